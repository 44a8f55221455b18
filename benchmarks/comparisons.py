"""Who is compared with whom, at what. Each comparison is one function that yields contenders, nearfar first."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import own, sources
from benchmarks.bench import BATCH, MAX_LENGTH, OURS, SEED, Bench, Contender
from benchmarks.tables import Result, quality_table, speed_table, spread
from benchmarks.texts import take

REFERENCE = "sentence-transformers"
ONE_TEXT = "i ordered a lamp two weeks ago and it still has not arrived at my new address, where is it now?"
OPERATIONS = 6
"""Floating-point operations a weight and token: two forward, four backward."""

Contenders = Iterator[Contender]
Standing = list[tuple[Contender, Result]]


@dataclass(frozen=True)
class Comparison:
    """A name, what it is about, its contenders, and what surrounds them."""

    about: str
    contenders: Callable[[Bench], Contenders]
    finish: Callable[[Bench, Standing], list[str]] = lambda _bench, _standing: []
    """Adds to the results what is known only when all are there, and returns more Markdown."""
    surroundings: Callable[[Bench], AbstractContextManager[None]] = lambda _bench: nullcontext()
    repeats: int | None = None
    """At most so many; None leaves it to the caller."""
    table: Callable[[Standing], str] = lambda standing: speed_table([result for _, result in standing])
    """Speed and memory of all contenders that were timed, or failed to be."""


def finetune(bench: Bench) -> Contenders:
    """All peers, with their defaults and their best settings."""
    job = _finetune_job(bench, bench.minilm(), warm=3, steps=bench.amount(30, 4))
    yield Contender(OURS, "train_nearfar", job)
    yield from _peers(bench, job)
    if bench.bf16:
        yield Contender("nearfar, fp32", "train_nearfar", {**job, "precision": "fp32"})


def finetune_base(bench: Bench) -> Contenders:
    """A BERT-base of random weights: only speed means anything."""
    encoder = bench.random_encoder("bert-base-sized", layers=12, width=768, heads=12, inner=3072)
    job = _finetune_job(bench, encoder, warm=1, steps=bench.amount(4, 1))
    yield Contender(OURS, "train_nearfar", job)
    yield from _peers(bench, job)


def finetune_one_thread(bench: Bench) -> Contenders:
    """The same peers, each with one thread."""
    job = _finetune_job(bench, bench.minilm(), warm=2, steps=bench.amount(15, 3))
    for contender in (Contender(OURS, "train_nearfar", job), *_peers(bench, job)):
        yield replace(contender, threads=1)


def finetune_busy(bench: Bench) -> Contenders:
    """The same peers while a neighbor spins on one core."""
    job = _finetune_job(bench, bench.minilm(), warm=2, steps=bench.amount(15, 3))
    yield Contender(OURS, "train_nearfar", job)
    yield from _peers(bench, job)


def pairs(bench: Bench) -> Contenders:
    """The same loss on the same pairs: mnrl here, MultipleNegativesRankingLoss there."""
    rows, name = sources.positives(bench.texts)
    yield from _contrasted(bench, "positives", rows, {"name": "mnrl"}, name, "pairs in", "")


def raw(bench: Bench) -> Contenders:
    """Plain texts, each its own partner under another dropout mask: simcse here, a column given twice there."""
    rows, name = sources.plain(bench.texts)
    yield from _contrasted(
        bench, "plain", rows, {"name": "simcse", "projection": False}, name, "texts, each encoded twice, in",
        "; temperature 0.05 and no layer behind the vectors for both",
    )  # fmt: skip


def _contrasted(
    bench: Bench, file: str, rows: sources.Rows, objective: dict[str, Any], name: str, what: str, more: str
) -> Contenders:
    """One in-batch loss in both tools, and how good the cosines are afterwards."""
    warm, steps = bench.amount(3, 1), bench.amount(18, 2)
    rows = take(rows, (warm + steps) * BATCH)
    job = {
        "train": bench.rows(file, rows), "encoder": bench.minilm(), "warm": warm, "batch": BATCH,
        "max_length": MAX_LENGTH, "seed": SEED, "objective": objective,
    }  # fmt: skip
    graded = sources.graded(bench.texts)[: bench.amount(10_000, 200)]
    if graded:
        job["dev"] = bench.rows("graded", graded)
    bench.notes.append(
        f"{name}; {steps * BATCH:,} timed {what} batches of {BATCH} after {warm * BATCH:,} of warm-up; at most "
        f"{MAX_LENGTH} tokens a text{more}."
        + (f" Spearman is that of the cosines of {len(graded):,} STSb dev pairs afterwards." if graded else "")
    )
    yield Contender(OURS, "train_nearfar", job)
    yield Contender(REFERENCE, "pairs_sentence_transformers", job)
    if bench.bf16:
        yield Contender(f"{REFERENCE}, bf16", "pairs_sentence_transformers", {**job, "best": True})
        yield Contender(f"{OURS}, fp32", "train_nearfar", {**job, "precision": "fp32"})


def embed(bench: Bench) -> Contenders:
    """Everybody's batch size is their own default."""
    count = bench.amount(20_000, 2_000)
    job = {"encoder": bench.minilm(), "texts": bench.rows("embed", take(bench.texts.many(), count)), "warm": 256}

    def contender(name: str, worker: str, count: int = count, **more: object) -> Contender:
        vectors = str(bench.scratch / f"vectors-{name.replace(' ', '-')}.npy")
        return Contender(name, worker, {**job, "count": count, "vectors": vectors, **more})

    bench.notes.append(f"{count:,} texts; 1 - cosine compares each vector with that of {REFERENCE}.")
    yield contender(OURS, "embed_nearfar", precision="auto")
    yield contender(REFERENCE, "embed_sentence_transformers")
    part = count if bench.bf16 else count // 10
    if part < count:
        bench.notes.append(
            f"The processor has no bf16 units, so bf16 is slow here; it embeds only the first {part:,} texts."
        )
    yield contender(f"{REFERENCE} bf16", "embed_sentence_transformers", part, kind="bf16")
    yield contender("onnxruntime int8, sorted by length", "embed_onnxruntime")
    for form in ("fp32", *(["bf16"] if bench.bf16 else []), "int8"):
        yield contender(f"{OURS} {form}", "embed_nearfar", precision=form)
    python = bench.onnx_python()
    if python is None:
        bench.notes.append("The ONNX backend is left out: its environment is missing (see requirements-onnx.txt).")
    else:
        yield replace(contender(f"{REFERENCE} ONNX", "embed_sentence_transformers", kind="onnx"), python=python)


def one_text(bench: Bench) -> Contenders:
    """A classifier of 8 classes on MiniLM that is open already."""
    job = {"encoder": bench.minilm(), "requests": bench.amount(400, 20), "text": ONE_TEXT,
           "train": bench.rows("few", bench.texts.helpdesk())}  # fmt: skip
    bench.notes.append(f"{job['requests']:,} requests, one after the other, of one text of 25 tokens.")
    for form in (None, "fp32", "int8"):
        name = OURS if form is None else f"{OURS} {form}"
        yield Contender(name, "predict_one", {**job, "kind": "nearfar", "precision": form})
    peers = Path(os.environ.get("NEARFAR_PEERS", sys.executable))  # SetFit may be in an environment of its own
    yield Contender("SetFit", "predict_one", {**job, "kind": "setfit"}, python=peers)
    yield Contender(f"{REFERENCE} + scikit-learn", "predict_one", {**job, "kind": "scikit-learn"})


def cold_start(bench: Bench) -> Contenders:
    """``nearfar predict MODEL one.txt`` by a new process, and by the source that NEARFAR_BEFORE names."""
    folder, file = bench.scratch / "classifier", bench.scratch / "one.txt"
    if not folder.exists():
        job = {"encoder": bench.minilm(), "folder": str(folder), "train": bench.rows("few", bench.texts.helpdesk())}
        bench.work(Contender("train", "make_classifier", job))
    file.write_text(f"{ONE_TEXT}\n", encoding="utf-8")
    job = {"model": str(folder), "file": str(file), "runs": bench.amount(5, 1)}
    bench.notes.append(f"Whole processes, {job['runs']} for each repeat; files are in the cache of the system.")
    yield Contender(OURS, "cold_start", job)
    before = os.environ.get("NEARFAR_BEFORE")
    if before:
        yield Contender("nearfar before", "cold_start", {**job, "source": before})


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


def matmul(bench: Bench) -> Contenders:
    """The machine's own rate, and nearfar's training beside it."""
    job = _finetune_job(bench, bench.minilm(), warm=3, steps=bench.amount(30, 4))
    counted = bench.work(Contender("count tokens", "count_tokens", job))["details"]
    yield Contender(OURS, "train_nearfar", job)
    shape = {"tokens": round(BATCH * counted["tokens_per_text"]), "width": counted["width"], "inner": counted["inner"]}
    yield Contender("matrix products", "matmul", {**counted, **shape, "seconds": bench.amount(10, 1)})


def _finetune_job(bench: Bench, encoder: str, *, warm: int, steps: int) -> dict[str, object]:
    """The warm-up texts and after them the timed ones, in one file."""
    rows = take(bench.texts.training(), (warm + steps) * BATCH)
    train = bench.rows(f"train-{len(rows)}", rows)
    bench.notes.append(
        f"{steps * BATCH:,} timed texts in batches of {BATCH} after {warm * BATCH:,} of warm-up; at most {MAX_LENGTH} "
        "tokens a text."
    )
    return {"train": train, "encoder": encoder, "warm": warm, "batch": BATCH, "max_length": MAX_LENGTH, "seed": SEED}


def _peers(bench: Bench, job: dict[str, object]) -> Contenders:
    bf16 = ", bf16" if bench.bf16 else ""
    yield Contender("Trainer", "finetune_trainer", job)
    yield Contender(f"Trainer, grouped by length{bf16}", "finetune_trainer", {**job, "best": True})
    yield Contender(REFERENCE, "finetune_sentence_transformers", job)
    if bench.bf16:
        yield Contender(f"{REFERENCE}, bf16", "finetune_sentence_transformers", {**job, "best": True})


def _quality(bench: Bench, _standing: Standing) -> list[str]:
    """One whole epoch for several seeds, nearfar and the Trainer side by side; same rates, warm-up and decay."""
    if not bench.quality:
        return []
    rows = bench.texts.training()
    rows = rows[: bench.amount(len(rows), 2_560)]
    job = {
        "train": bench.rows("quality", rows), "dev": bench.rows("dev", bench.texts.dev()), "encoder": bench.minilm(),
        "warm": 0, "batch": BATCH, "max_length": MAX_LENGTH, "shuffle": "random",
    }  # fmt: skip
    seeds = list(range(1, bench.seeds + 1))
    same = {"learning_rate": 5e-5, "weight_decay": 0.01, "warmup_steps": 0.06}
    ours, theirs = Result(OURS), Result("Trainer")
    for seed in seeds:
        ours.runs.append(bench.work(Contender(OURS, "train_nearfar", {**job, "seed": seed})))
        theirs.runs.append(
            bench.work(Contender("Trainer", "finetune_trainer", {**job, "seed": seed, "arguments": same}))
        )
    scores = [[run["quality"]["f1_macro"] for run in result.runs if run] for result in (ours, theirs)]
    return [
        f"F1 (macro) on the {len(bench.texts.dev()):,} dev texts after one epoch of {len(rows):,}, by seed:",
        quality_table(seeds, scores[0], scores[1], (OURS, "Trainer")),
    ]


def _distances(_bench: Bench, standing: Standing) -> list[str]:
    """How far each contender's vectors are from those of the reference, at worst."""
    found = {contender.name: _unit(np.load(contender.job["vectors"])) for contender, result in standing if result.last}
    if REFERENCE not in found:
        return []
    for contender, result in standing:
        if contender.name in found:
            vectors = found[contender.name]
            distances = 1 - (vectors * found[REFERENCE][: len(vectors)]).sum(axis=1)
            for run in result.runs:
                if run:
                    run["quality"]["1 - cosine, mean"] = max(0.0, float(distances.mean()))
                    run["quality"]["1 - cosine, at most"] = max(0.0, float(distances.max()))
    return []


def _unit(vectors: np.ndarray) -> np.ndarray:
    wide = vectors.astype(np.float64)
    return wide / np.linalg.norm(wide, axis=1, keepdims=True)


def _share(bench: Bench, standing: Standing) -> list[str]:
    """Which part of the machine's rate the training makes use of."""
    (_, ours), (contender, machine) = standing
    speed = spread(ours.values("texts_per_second"))
    tokens, weights = contender.job["tokens_per_text"], contender.job["weights"]
    lines = [
        f"A text has {tokens:.1f} tokens, the encoder {weights / 1e6:.2f}M weights in matrix products: "
        f"{OPERATIONS * weights * tokens / 1e9:.2f} GFLOP of training a text, as the plain network needs "
        "them. Of the last layer nearfar computes little more than the first tokens, so it does up to a sixth less; "
        "attention scores, the head and the optimizer are not counted."
    ]
    for name in ("fp32", "bf16"):
        rate = spread(machine.values(f"{name} GFLOP/s", "details"))
        if speed and rate:
            reached = OPERATIONS * weights * tokens * speed.median / 1e9
            units = "" if name == "fp32" or bench.bf16 else " (which it has no units for)"
            lines.append(
                f"Training does {reached:,.0f} GFLOP/s, {100 * reached / rate.median:.0f} % of the machine's measured "
                f"{name} rate{units}."
            )
    return ["\n".join(f"- {line}" for line in lines)]


COMPARISONS: dict[str, Comparison] = {
    "finetune": Comparison(
        "fine-tuning MiniLM with cross-entropy", finetune, finish=_quality
    ),
    "finetune-base": Comparison("the same with a BERT-base-sized encoder of random weights", finetune_base),
    "finetune-one-thread": Comparison("fine-tuning MiniLM with one thread", finetune_one_thread),
    "finetune-busy": Comparison(
        "fine-tuning MiniLM while a neighbor process spins on one core", finetune_busy, surroundings=Bench.neighbor
    ),
    "pairs": Comparison(
        "training MiniLM on pairs with multiple negatives", pairs,
        table=lambda standing: speed_table([result for _, result in standing]).replace("texts/s", "pairs/s", 1),
    ),
    "raw": Comparison("training MiniLM on plain texts by two dropout masks", raw),
    "triple-entropy": Comparison(
        f"triple-entropy with {own.CENTERS:,} centers beside cross-entropy", own.triple_entropy, table=own.cost_table
    ),
    "large-batch": Comparison(
        "one huge contrastive batch beside batches of 64 texts", own.large_batch, table=own.cost_table
    ),
    "long-run": Comparison(
        "resident memory of fine-tuning MiniLM over many small batches of varying lengths", own.long_run, repeats=1
    ),
    "embed": Comparison("texts to vectors with MiniLM", embed, finish=_distances),
    "one-text": Comparison("predicting one text of 25 tokens with MiniLM", one_text, table=own.latency_table),
    "cold-start": Comparison("a prediction of one text by a new process", cold_start, table=own.latency_table),
    "memory": Comparison("resident memory of training over many batches of varying lengths", memory, repeats=1),
    "matmul": Comparison("the machine's rate of matrix products, and the share that training reaches", matmul,
                         finish=_share),
}  # fmt: skip
"""Every comparison by its name on the command line."""
