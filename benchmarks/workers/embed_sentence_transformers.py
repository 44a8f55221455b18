"""Texts to vectors with ``SentenceTransformer.encode``: as it comes, in bf16, or through its ONNX backend."""

from __future__ import annotations

import numpy as np
from sentence_transformers import SentenceTransformer

from benchmarks.workers.clock import Clock
from benchmarks.workers.common import asked_threads, first, read_job, report, threads


def main() -> None:
    job = read_job()
    texts = [row["text"] for row in first(job["texts"], job["count"])]
    kind = job.get("kind", "default")
    if kind == "onnx":
        model = SentenceTransformer(job["encoder"], device="cpu", backend="onnx", model_kwargs=_session())
    else:
        model = SentenceTransformer(job["encoder"], device="cpu")
    if kind == "bf16":
        model.bfloat16()
    model.encode(texts[: job["warm"]])
    clock = Clock()
    vectors = model.encode(texts)
    clock.stop()
    np.save(job["vectors"], np.asarray(vectors, dtype=np.float32))
    report(texts=len(texts), clock=clock, threads=threads())


def _session() -> dict[str, object]:
    """ONNX Runtime does not read OMP_NUM_THREADS, so the number of threads is told to it."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    if asked_threads() is not None:
        options.intra_op_num_threads = asked_threads()
    return {"session_options": options, "provider": "CPUExecutionProvider"}


if __name__ == "__main__":
    main()
