"""Texts to vectors with ``nearfar.load(...).embed``."""

from __future__ import annotations

import time

import numpy as np

from benchmarks.workers.common import read_job, read_rows, report, threads
from nearfar import load


def main() -> None:
    job = read_job()
    texts = [row["text"] for row in read_rows(job["texts"])][: job["count"]]
    model = load(job["encoder"], precision=job.get("precision"))
    model.embed(texts[: job["warm"]])
    began = time.perf_counter()
    vectors = model.embed(texts)
    seconds = time.perf_counter() - began
    np.save(job["vectors"], vectors)
    report(texts=len(texts), seconds=seconds, threads=threads())


if __name__ == "__main__":
    main()
