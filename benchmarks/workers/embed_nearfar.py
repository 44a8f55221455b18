"""Texts to vectors with ``nearfar.load(...).embed``."""

from __future__ import annotations

import numpy as np

from benchmarks.workers.clock import Clock
from benchmarks.workers.common import first, read_job, report, threads
from nearfar import load


def main() -> None:
    job = read_job()
    texts = [row["text"] for row in first(job["texts"], job["count"])]
    model = load(job["encoder"], precision=job.get("precision"))
    model.embed(texts[: job["warm"]])
    clock = Clock()
    vectors = model.embed(texts)
    clock.stop()
    np.save(job["vectors"], vectors)
    report(texts=len(texts), clock=clock, threads=threads())


if __name__ == "__main__":
    main()
