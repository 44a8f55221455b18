"""Where nearfar is compared with itself: what an objective, a huge batch or a long run costs over the plain step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from benchmarks import sources
from benchmarks.bench import BATCH, MAX_LENGTH, OURS, SEED, Bench, Contender
from benchmarks.tables import Result, markdown, middle, ratios, with_spread
from benchmarks.texts import take

CENTERS = 2_000
SIZES = (32, 64)
LONG_BATCH, LONG_TOKENS = 4, 60
WARM = 3


def triple_entropy(bench: Bench) -> Iterator[Contender]:
    """The same texts and batches with both objectives, for two sizes of batches."""
    questions, name = sources.questions(bench.texts)
    steps = bench.amount(30, 4)
    for size in SIZES:
        rows = bench.rows(f"questions-{size}", take(questions, (WARM + steps) * size))
        job = _job(bench, rows, batch=size, warm=WARM)
        plain = f"{OURS}, cross-entropy, {size} texts"
        centers = {"name": "triple-entropy", "centers": CENTERS, "level": "tokens"}
        yield Contender(plain, "train_nearfar", job)
        yield Contender(
            f"{OURS}, triple-entropy, {size} texts", "train_nearfar", {**job, "objective": centers}, base=plain
        )
    bench.notes.append(
        f"{name}, {len({row['label'] for row in questions})} classes of {CENTERS:,} centers, on every token; {steps} "
        "timed steps each. The goal is at most 1.5 times the time of cross-entropy."
    )


def large_batch(bench: Bench) -> Iterator[Contender]:
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


def long_run(bench: Bench) -> Iterator[Contender]:
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


def cost_table(standing: Sequence[tuple[Contender, Result]]) -> str:
    """Contenders with the time and memory they take beside the one they are measured against, turn by turn."""
    results = {contender.name: result for contender, result in standing}
    qualities = list(dict.fromkeys(key for result in results.values() for key in result.keys("quality")))
    rows = []
    for contender, result in standing:
        speeds, peaks = result.values("texts_per_second"), result.values("peak_rss_mb")
        time, memory = "", ""
        if contender.base is not None:
            base = results[contender.base]
            time = with_spread(ratios(base.values("texts_per_second"), speeds), " x")
            memory = with_spread(differences(peaks, base.values("peak_rss_mb")))
        row = [result.name, with_spread(speeds), time, middle(peaks), memory, middle(result.values("threads"))]
        rows.append(row + [middle(result.values(key, "quality")) for key in qualities])
    return markdown(["contender", "texts/s", "time a text", "peak MB", "more MB", "threads", *qualities], rows)


def latency_table(standing: Sequence[tuple[Contender, Result]]) -> str:
    """Contenders with the milliseconds of one request, and how many times those of the first they take."""
    ours, rows = standing[0][1], []
    for _, result in standing:
        times = result.values("milliseconds")
        slower = "" if result is ours else with_spread(ratios(times, ours.values("milliseconds")), " x")
        rows.append([result.name, with_spread(times), with_spread(result.values("slow_milliseconds")), slower])
    return markdown(["contender", "ms, median", "ms, slowest percent", f"times {ours.name}"], rows)


def differences(ours: Sequence[float | None], theirs: Sequence[float | None]) -> list[float | None]:
    """Ours less theirs, repeat by repeat; None where either is missing."""
    return [
        mine - other if mine is not None and other is not None else None
        for mine, other in zip(ours, theirs, strict=True)
    ]


def _job(bench: Bench, train: str, *, batch: int, warm: int) -> dict[str, object]:
    return {"train": train, "encoder": bench.minilm(), "batch": batch, "warm": warm, "max_length": MAX_LENGTH,
            "seed": SEED}  # fmt: skip
