"""Comparisons of embedding and predicting: many texts, one text, a new process."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from benchmarks.bench import OURS, SEED, Bench, Contender
from benchmarks.comparison import Contenders
from benchmarks.lines import Line
from benchmarks.machine import ISA
from benchmarks.texts import balanced
from benchmarks.training import REFERENCE

ONE_TEXT = "i ordered a lamp two weeks ago and it still has not arrived at my new address, where is it now?"
GRAIN = 1_000


def embed(bench: Bench) -> Contenders:
    """Everybody's batch size is their own default."""
    texts = bench.rows("embed", balanced(bench.texts.many(), GRAIN, SEED))
    job = {"encoder": bench.minilm(), "texts": texts, "warm": 256, "count": bench.amount(4 * GRAIN, GRAIN)}

    def contender(name: str, worker: str, **more: object) -> Contender:
        vectors = str(bench.scratch / f"vectors-{name.replace(' ', '-')}.npy")
        return Contender(name, worker, {**job, "vectors": vectors, **more}, amount="count", grain=GRAIN)

    bench.notes.append(f"1 - cosine compares each vector with that of {REFERENCE}.")
    if ISA in os.environ:
        bench.notes.append("The limit binds torch; onnxruntime uses what the processor has.")
    yield contender(OURS, "embed_nearfar", precision="auto")
    yield contender(REFERENCE, "embed_sentence_transformers")
    bf16 = contender(f"{REFERENCE} bf16", "embed_sentence_transformers", kind="bf16")
    if bench.bf16:
        yield bf16
    else:
        bench.notes.append("The processor has no bf16 units, so bf16 is slow here; it begins with fewer texts.")
        yield replace(bf16, job={**bf16.job, "count": GRAIN})
    yield contender("onnxruntime int8, sorted by length", "embed_onnxruntime")
    for form in ("fp32", *(["bf16"] if bench.bf16 else []), "int8"):
        yield contender(f"{OURS} {form}", "embed_nearfar", precision=form)
    python = bench.onnx_python()
    if python is None:
        bench.notes.append("The ONNX backend is left out: its environment is missing (see requirements-onnx.txt).")
    else:
        yield replace(contender(f"{REFERENCE} ONNX", "embed_sentence_transformers", kind="onnx"), python=python)


def distances(_bench: Bench, contenders: Sequence[Contender]) -> Iterator[Line]:
    """How far each contender's vectors are from those of the reference, on the texts that both embedded."""
    found = {one.name: _unit(one.job["vectors"]) for one in contenders if os.path.exists(one.job["vectors"])}
    for name, vectors in found.items():
        if REFERENCE in found:
            both = min(len(vectors), len(found[REFERENCE]))
            apart = 1 - (vectors[:both] * found[REFERENCE][:both]).sum(axis=1)
            quality = {"1 - cosine, mean": float(apart.mean()), "1 - cosine, at most": float(apart.max())}
            yield {"kind": "quality", "contender": name, "seed": None,
                   "quality": {key: max(0.0, value) for key, value in quality.items()}}  # fmt: skip


def one_text(bench: Bench) -> Contenders:
    """A classifier of 8 classes on MiniLM that is open already."""
    job = {"encoder": bench.minilm(), "requests": bench.amount(200, 20), "text": ONE_TEXT,
           "train": bench.rows("few", bench.texts.helpdesk())}  # fmt: skip
    bench.notes.append("Requests of one text of 25 tokens, one after the other.")

    def contender(name: str, **more: object) -> Contender:
        return Contender(name, "predict_one", {**job, **more}, amount="requests", grain=20)

    for form in (None, "fp32", "int8"):
        yield contender(OURS if form is None else f"{OURS} {form}", kind="nearfar", precision=form)
    yield replace(contender("SetFit", kind="setfit"), python=bench.peers_python())
    yield contender(f"{REFERENCE} + scikit-learn", kind="scikit-learn")


def cold_start(bench: Bench) -> Contenders:
    """``nearfar predict MODEL one.txt`` by a new process, and by the source that NEARFAR_BEFORE names."""
    folder, file = bench.scratch / "classifier", bench.scratch / "one.txt"
    if not folder.exists():
        job = {"encoder": bench.minilm(), "folder": str(folder), "train": bench.rows("few", bench.texts.helpdesk())}
        bench.work(Contender("train", "make_classifier", job))
    file.write_text(f"{ONE_TEXT}\n", encoding="utf-8")
    job = {"words": ["-m", "nearfar", "predict", str(folder), str(file)], "runs": bench.amount(3, 1)}
    bench.notes.append("Whole processes, one after the other; files are in the cache of the system.")
    yield Contender(OURS, "cold_start", job, amount="runs")
    before = os.environ.get("NEARFAR_BEFORE")
    if before:
        yield Contender("nearfar before", "cold_start", {**job, "source": before}, amount="runs")


def _unit(path: str) -> np.ndarray:
    wide = np.load(path).astype(np.float64)
    return wide / np.linalg.norm(wide, axis=1, keepdims=True)
