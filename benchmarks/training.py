"""Comparisons of training: short and long texts, small and large encoders, pairs, plain texts, few labels."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks import sources
from benchmarks.bench import BATCH, MAX_LENGTH, OURS, SEED, Bench, Contender
from benchmarks.comparison import Contenders, Quality
from benchmarks.lines import Line
from benchmarks.tables import middle, spread
from benchmarks.texts import balanced, take
from nearfar.training.precision import bf16_units

REFERENCE = "sentence-transformers"
OPERATIONS = 6
"""Floating-point operations a weight and token: two forward, four backward."""
GRAIN = 4
"""Batches of a block in which lengths are balanced."""
LONG_BATCH = 16
FEW_PER_CLASS = 8
SAME = {"learning_rate": 5e-5, "weight_decay": 0.01, "warmup_steps": 0.06}
"""nearfar's schedule, as arguments of the Trainer."""


def finetune(bench: Bench) -> Contenders:
    """All peers, with their defaults and their best settings."""
    job = _job(bench, bench.minilm(), warm=3)
    yield _timed(OURS, "train_nearfar", job)
    yield from _peers(bench, job)
    if bench.bf16:
        yield _timed("nearfar, fp32", "train_nearfar", {**job, "precision": "fp32"})


def finetune_base(bench: Bench) -> Contenders:
    """A BERT-base of random weights: only speed means anything."""
    encoder = bench.random_encoder("bert-base-sized", layers=12, width=768, heads=12, inner=3072)
    job = _job(bench, encoder, warm=1)
    yield _timed(OURS, "train_nearfar", job)
    yield from _peers(bench, job)


def finetune_one_thread(bench: Bench) -> Contenders:
    """The same peers, each with one thread."""
    for one in finetune_busy(bench):
        yield replace(one, threads=1)


def finetune_busy(bench: Bench) -> Contenders:
    """The same peers while a neighbor spins on one core."""
    job = _job(bench, bench.minilm(), warm=2)
    yield _timed(OURS, "train_nearfar", job)
    yield from _peers(bench, job)


def long_texts(tokens: int) -> Any:
    """Movie reviews cut at so many tokens."""

    def contenders(bench: Bench) -> Contenders:
        job = _long_job(bench, tokens)
        yield _timed(OURS, "train_nearfar", job)
        yield from _peers(bench, job)

    return contenders


def pairs(bench: Bench) -> Contenders:
    """The same loss on the same pairs: mnrl here, MultipleNegativesRankingLoss there."""
    rows, name = sources.positives(bench.texts)
    yield from _contrasted(bench, "positives", rows, {"name": "mnrl"}, f"{name}, in batches of {BATCH}")


def raw(bench: Bench) -> Contenders:
    """Plain texts, each its own partner under another dropout mask: simcse here, a column given twice there."""
    rows, name = sources.plain(bench.texts)
    about = (
        f"{name}, each encoded twice, in batches of {BATCH}; temperature 0.05 and no layer behind the vectors for both"
    )
    yield from _contrasted(bench, "plain", rows, {"name": "simcse", "projection": False}, about)


def few_labels(bench: Bench) -> Contenders:
    """``nearfar train few.csv`` and a script of SetFit, each as a whole new process."""
    file = bench.scratch / "few.csv"
    rows = few_rows(bench)
    with file.open("w", encoding="utf-8", newline="") as target:
        writer = csv.DictWriter(target, ["text", "label"])
        writer.writeheader()
        writer.writerows(rows)
    bench.notes.append(
        f"{len(rows)} texts of {len({row['label'] for row in rows})} classes of sample:helpdesk in a CSV file; whole "
        "processes, from the command to the model in its folder; everything with its defaults. The files of models and "
        "libraries are in the cache of the system."
    )
    train = ["-m", "nearfar", "train", str(file), "--out", "{folder}"]
    script = [str(Path(__file__).parent / "workers" / "setfit_script.py"), str(file), bench.minilm(), "{folder}"]
    yield _command(OURS, train)
    yield _command(f"{OURS} --no-estimate", [*train, "--no-estimate"])
    yield replace(_command("SetFit", script), python=bench.peers_python())


def few_rows(bench: Bench) -> sources.Rows:
    """As many texts of each class."""
    taken: dict[str, sources.Rows] = {}
    for row in bench.texts.helpdesk():
        taken.setdefault(row["label"], []).append({"text": row["text"], "label": row["label"]})
    return [row for rows in taken.values() for row in rows[:FEW_PER_CLASS]]


def soft_triple(bench: Bench) -> Contenders:
    """The loss alone: both make the same similarities and gradients."""
    job = {"embeddings": bench.amount(1_728, 256), "passes": 1}
    bench.notes.append(
        f"{job['embeddings']:,} embeddings of width 384, 6 classes of 2,000 centers, forward and backward; rates are "
        "embeddings per second, peak MB is above what the process held before the first pass. nearfar computes in "
        "bf16 where training does by default."
    )
    bf16 = bf16_units() is not None
    for name, way, low in (
        (OURS, "nearfar", bf16),
        (f"{OURS} fp32", "nearfar", False),
        ("pytorch-metric-learning", "metric-learning", False),
    ):
        yield Contender(name, "soft_triple_pass", {**job, "way": way, "bf16": low}, amount="passes")


def matmul(bench: Bench) -> Contenders:
    """The machine's own rate, and nearfar's training beside it."""
    job = _job(bench, bench.minilm(), warm=3)
    counted = bench.work(Contender("count tokens", "count_tokens", {**job, "count": 4_096}))["details"]
    yield _timed(OURS, "train_nearfar", job)
    shape = {"tokens": round(BATCH * counted["tokens_per_text"]), "width": counted["width"], "inner": counted["inner"]}
    yield Contender("matrix products", "matmul", {**counted, **shape, "seconds": bench.amount(15, 1)})


def share(turns: dict[str, list[Line]]) -> list[str]:
    """Which part of the machine's rate the training makes use of."""
    machine, ours = turns.get("matrix products", []), turns.get(OURS, [])
    speed = spread([turn["texts_per_second"] for turn in ours])
    if not machine or speed is None:
        return []
    tokens, weights = machine[0]["details"]["tokens_per_text"], machine[0]["details"]["weights"]
    lines = [
        f"A text has {tokens:.1f} tokens, the encoder {weights / 1e6:.2f}M weights in matrix products: "
        f"{OPERATIONS * weights * tokens / 1e9:.2f} GFLOP of training a text, as the plain network needs "
        "them. Of the last layer nearfar computes little more than the first tokens, so it does up to a sixth less; "
        "attention scores, the head and the optimizer are not counted."
    ]
    for name in ("fp32", "bf16"):
        rate = spread([turn["details"][f"{name} GFLOP/s"] for turn in machine])
        assert rate is not None
        reached = OPERATIONS * weights * tokens * speed.median / 1e9
        lines.append(
            f"Training does {reached:,.0f} GFLOP/s, {100 * reached / rate.median:.0f} % of the {name} matrix products "
            f"measured here ({middle([rate.median])} GFLOP/s)."
        )
    return ["\n".join(f"- {line}" for line in lines)]


def finetune_quality(bench: Bench) -> tuple[Contender, Contender]:
    """One whole epoch of SST-2 sentences; same rates, warm-up and decay."""
    rows = bench.texts.training()
    job = {
        "train": bench.rows("quality", rows[: bench.amount(len(rows), 256)]), "encoder": bench.minilm(), "warm": 0,
        "dev": bench.rows("dev", bench.texts.dev()), "batch": BATCH, "max_length": MAX_LENGTH, "shuffle": "random",
    }  # fmt: skip
    return Contender(OURS, "train_nearfar", job), Contender("Trainer", "finetune_trainer", {**job, "arguments": SAME})


def long_quality(bench: Bench) -> tuple[Contender, Contender]:
    """One epoch of 1,024 reviews cut at 256 tokens, tested on 500."""
    rows, _ = sources.reviews(bench.texts)
    test, _ = sources.reviews(bench.texts, "test")
    job = {
        **_long_job(bench, 256), "train": bench.rows("long-quality", take(rows, bench.amount(1_024, 64))), "warm": 0,
        "dev": bench.rows("long-dev", test[: bench.amount(500, 32)]), "shuffle": "random",
    }  # fmt: skip
    del job["count"]
    return Contender(OURS, "train_nearfar", job), Contender("Trainer", "finetune_trainer", {**job, "arguments": SAME})


def pairs_quality(bench: Bench) -> tuple[Contender, Contender]:
    """One epoch of the STSb pairs with a score from 4 on."""
    rows, _ = sources.positives(bench.texts)
    job = _pairs_job(bench, "positives-quality", rows[: bench.amount(len(rows), 128)], {"name": "mnrl"})
    job |= {"warm": 0, "shuffle": "random"}
    del job["count"]
    peer = Contender(REFERENCE, "pairs_sentence_transformers", {**job, "arguments": SAME})
    return Contender(OURS, "train_nearfar", job), peer


FINETUNE_QUALITY = Quality(
    "f1_macro", "F1 (macro) on the SST-2 dev sentences after one epoch, by seed", finetune_quality
)  # fmt: skip
LONG_QUALITY = Quality(
    "f1_macro", "F1 (macro) on 500 test reviews after one epoch of 1,024 reviews cut at 256 tokens, by seed",
    long_quality,
)  # fmt: skip
PAIRS_QUALITY = Quality(
    "spearman", "Spearman correlation on the STSb dev pairs after one epoch of the pairs, by seed", pairs_quality
)  # fmt: skip


def _job(bench: Bench, encoder: str, *, warm: int) -> dict[str, Any]:
    """Texts of which a warm-up takes the last and the clock the first ones."""
    rows = balanced(bench.texts.training(), GRAIN * BATCH, SEED)
    bench.notes.append(f"Batches of {BATCH} texts after {warm} of warm-up; at most {MAX_LENGTH} tokens a text.")
    return {"train": bench.rows("train", rows), "encoder": encoder, "warm": warm, "batch": BATCH,
            "max_length": MAX_LENGTH, "seed": SEED, "count": GRAIN * BATCH}  # fmt: skip


def _long_job(bench: Bench, tokens: int) -> dict[str, Any]:
    rows, name = sources.reviews(bench.texts)
    bench.notes.append(f"{name}, at most {tokens} tokens each, in batches of {LONG_BATCH} after 2 of warm-up.")
    rows = balanced(rows, GRAIN * LONG_BATCH, SEED)
    return {"train": bench.rows("reviews", rows), "encoder": bench.minilm(), "warm": 2, "batch": LONG_BATCH,
            "max_length": tokens, "seed": SEED, "count": bench.amount(GRAIN, 1) * LONG_BATCH}  # fmt: skip


def _peers(bench: Bench, job: dict[str, Any]) -> Contenders:
    bf16 = ", bf16" if bench.bf16 else ""
    yield _timed("Trainer", "finetune_trainer", job)
    yield _timed(f"Trainer, grouped by length{bf16}", "finetune_trainer", {**job, "best": True})
    yield _timed(REFERENCE, "finetune_sentence_transformers", job)
    if bench.bf16:
        yield _timed(f"{REFERENCE}, bf16", "finetune_sentence_transformers", {**job, "best": True})


def _contrasted(bench: Bench, file: str, rows: sources.Rows, objective: dict[str, Any], about: str) -> Contenders:
    """One in-batch loss in both tools, and how good the cosines are afterwards."""
    job = _pairs_job(bench, file, balanced(rows, GRAIN * BATCH, SEED), objective)
    graded = " Spearman is that of the cosines of STSb dev pairs afterwards." if "dev" in job else ""
    bench.notes.append(f"{about}; at most {MAX_LENGTH} tokens a text.{graded}")
    yield _timed(OURS, "train_nearfar", job)
    yield _timed(REFERENCE, "pairs_sentence_transformers", job)
    if bench.bf16:
        yield _timed(f"{REFERENCE}, bf16", "pairs_sentence_transformers", {**job, "best": True})
        yield _timed(f"{OURS}, fp32", "train_nearfar", {**job, "precision": "fp32"})


def _pairs_job(bench: Bench, file: str, rows: sources.Rows, objective: dict[str, Any]) -> dict[str, Any]:
    job = {
        "train": bench.rows(file, rows), "encoder": bench.minilm(), "warm": bench.amount(3, 1), "batch": BATCH,
        "max_length": MAX_LENGTH, "seed": SEED, "objective": objective, "count": bench.amount(GRAIN, 2) * BATCH,
    }  # fmt: skip
    graded = sources.graded(bench.texts)[: bench.amount(10_000, 200)]
    return {**job, "dev": bench.rows("graded", graded)} if graded else job


def _timed(name: str, worker: str, job: dict[str, Any]) -> Contender:
    return Contender(name, worker, job, amount="count", grain=GRAIN * job["batch"])


def _command(name: str, words: list[str]) -> Contender:
    return Contender(name, "cold_start", {"words": words, "runs": 1}, amount="runs")
