"""A classifier on the default encoder, trained for a step: for timings, where its accuracy does not matter."""

from __future__ import annotations

from benchmarks.workers.common import read_job, read_rows, report
from nearfar import Classifier


def main() -> None:
    job = read_job()
    rows = read_rows(job["train"])
    classifier = Classifier(job["encoder"], max_steps=1, estimate=False)
    classifier.fit([row["text"] for row in rows], [row["label"] for row in rows]).save(job["folder"])
    report()


if __name__ == "__main__":
    main()
