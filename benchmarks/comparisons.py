"""All comparisons by their names on the command line; nearfar is the first contender of each."""

from __future__ import annotations

from benchmarks import inference, own, training
from benchmarks.bench import MAX_LENGTH, OURS, SEED, Bench, Contender
from benchmarks.comparison import Comparison, Contenders

COST = "time a text"


def memory(bench: Bench) -> Contenders:
    """A small encoder, so that thousands of steps take minutes; no peer."""
    encoder = bench.random_encoder("small", layers=2, width=128, heads=2, inner=512)
    early, late = bench.amount(500, 20), bench.amount(5_000, 100)
    job = {
        "encoder": encoder, "train": bench.rows("mixed", bench.texts.mixed()), "batch": 16, "max_length": MAX_LENGTH,
        "seed": SEED, "shuffle": "random", "warm": early, "steps": late, "marks": [early, late],
    }  # fmt: skip
    bench.notes.append("2 layers of 128, random weights; batches of 16 texts of one to five sentences.")
    yield Contender(OURS, "train_nearfar", job)


COMPARISONS: dict[str, Comparison] = {
    "finetune": Comparison(
        "fine-tuning MiniLM with cross-entropy", training.finetune, quality=training.FINETUNE_QUALITY
    ),
    "pairs": Comparison(
        "training MiniLM on pairs with multiple negatives", training.pairs, unit="pairs/s",
        quality=training.PAIRS_QUALITY,
    ),
    "finetune-base": Comparison("fine-tuning a BERT-base-sized encoder of random weights", training.finetune_base),
    "few-labels": Comparison(
        "training on 64 texts, the whole command by a new process", training.few_labels, unit="ms"
    ),
    "long-256": Comparison(
        "fine-tuning MiniLM on reviews of at most 256 tokens", training.long_texts(256), quality=training.LONG_QUALITY
    ),
    "long-512": Comparison("fine-tuning MiniLM on reviews of at most 512 tokens", training.long_texts(512)),
    "embed": Comparison("texts to vectors with MiniLM", inference.embed, finish=inference.distances),
    "one-text": Comparison(
        "predicting one text of 25 tokens with MiniLM", inference.one_text, unit="ms"
    ),
    "cold-start": Comparison(
        "a prediction of one text by a new process", inference.cold_start, unit="ms"
    ),
    "triple-entropy": Comparison(
        f"triple-entropy with {own.CENTERS:,} centers beside cross-entropy", own.triple_entropy, ratio=COST
    ),
    "soft-triple": Comparison("SoftTriple with 2,000 centers a class, the loss alone", training.soft_triple),
    "raw": Comparison("training MiniLM on plain texts by two dropout masks", training.raw),
    "large-batch": Comparison("one huge contrastive batch beside batches of 64 texts", own.large_batch, ratio=COST),
    "finetune-one-thread": Comparison("fine-tuning MiniLM with one thread", training.finetune_one_thread),
    "finetune-busy": Comparison(
        "fine-tuning MiniLM while a neighbor process spins on one core", training.finetune_busy,
        surroundings=Bench.neighbor, others=1,
    ),
    "matmul": Comparison(
        "the machine's rate of matrix products, and the share that training reaches", training.matmul,
        remarks=training.share,
    ),
    "long-run": Comparison(
        "resident memory of fine-tuning MiniLM over many small batches of varying lengths", own.long_run, rounds=1
    ),
    "memory": Comparison("resident memory of training over many batches of varying lengths", memory, rounds=1),
}  # fmt: skip
"""Those of most interest first."""
