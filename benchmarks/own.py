"""Where nearfar is compared with itself: what an objective, a huge batch or a long run costs over the plain step."""

from __future__ import annotations

from typing import Any

from benchmarks import sources
from benchmarks.bench import BATCH, MAX_LENGTH, OURS, SEED, Bench, Contender
from benchmarks.comparison import Contenders
from benchmarks.texts import balanced, take

CENTERS = 2_000
SIZES = (32, 64)
LONG_BATCH, LONG_TOKENS = 4, 60
WARM = 3


def triple_entropy(bench: Bench) -> Contenders:
    """The same texts and batches with both objectives, for two sizes of batches."""
    questions, name = sources.questions(bench.texts)
    for size in SIZES:
        rows = bench.rows(f"questions-{size}", balanced(questions, 4 * size, SEED))
        job = {**_job(bench, rows, batch=size, warm=WARM), "count": 4 * size}
        plain = f"{OURS}, cross-entropy, {size} texts"
        centers = {"name": "triple-entropy", "centers": CENTERS, "level": "tokens"}
        yield Contender(plain, "train_nearfar", job, amount="count", grain=4 * size)
        yield Contender(
            f"{OURS}, triple-entropy, {size} texts", "train_nearfar", {**job, "objective": centers}, base=plain,
            amount="count", grain=4 * size,
        )  # fmt: skip
    bench.notes.append(
        f"{name}, {len({row['label'] for row in questions})} classes of {CENTERS:,} centers, on every token. "
        "The goal is at most 1.5 times the time of cross-entropy."
    )


def large_batch(bench: Bench) -> Contenders:
    """The same pairs in batches of 64 texts and in one batch, of which 64 texts have a graph at a time."""
    texts, small = bench.amount(8_192, 2_048), BATCH // 2
    pairs, name = sources.all_pairs(bench.texts)
    pairs = take(pairs, WARM * small + texts // 2)
    shared = {"objective": {"name": "mnrl"}, "texts_a_row": 2}
    plain = f"{OURS}, batches of {BATCH} texts"
    yield Contender(
        plain, "train_nearfar", {**_job(bench, bench.rows("pairs-small", pairs), batch=small, warm=WARM), **shared}
    )
    whole = bench.rows("pairs-large", pairs[WARM * small :])
    job = {**_job(bench, whole, batch=texts // 2, warm=0), **shared, "chunk": small}
    yield Contender(f"{OURS}, one batch of {texts:,} texts", "train_nearfar", job, base=plain)
    bench.notes.append(
        f"{name}, objective mnrl; {small} pairs are {BATCH} texts. The large batch is one step with batches.chunk = "
        f"{small}. The goals are at most 1.6 times the time a text and at most 2,048 MB more."
    )


def long_run(bench: Bench) -> Contenders:
    """The default encoder over small batches of ever other lengths; no peer."""
    early, late = 500, bench.amount(5_000, 600)
    rows = bench.rows("varying", sources.varying(bench.texts))
    job = {
        **_job(bench, rows, batch=LONG_BATCH, warm=early),
        "max_length": LONG_TOKENS,
        "shuffle": "random",
        "steps": late,
        "marks": [early, late],
    }
    bench.notes.append(
        f"MiniLM, batches of {LONG_BATCH} texts of {sources.WORDS[0]} to {sources.WORDS[1]} words, cut at "
        f"{LONG_TOKENS} tokens. The goal is growth by at most 5 percent."
    )
    yield Contender(OURS, "train_nearfar", job)


def _job(bench: Bench, train: str, *, batch: int, warm: int) -> dict[str, Any]:
    return {"train": train, "encoder": bench.minilm(), "batch": batch, "warm": warm, "max_length": MAX_LENGTH,
            "seed": SEED}  # fmt: skip
