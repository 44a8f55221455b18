"""One text after the other through ``predict([text])`` of a classifier that is open: nearfar, SetFit, scikit-learn."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.workers.clock import Clock
from benchmarks.workers.common import read_job, read_rows, report, threads

WARM = 20


def main() -> None:
    job = read_job()
    rows = read_rows(job["train"])
    predict = OPENED[job["kind"]](job, [row["text"] for row in rows], [row["label"] for row in rows])
    seconds, clock = [], Clock()
    for request in range(WARM + job["requests"]):
        if request == WARM:
            clock.start()
        began = time.perf_counter()
        predict([job["text"]])
        seconds.append(time.perf_counter() - began)
    clock.stop()
    p50, p99 = (1_000 * float(np.quantile(seconds[WARM:], share)) for share in (0.5, 0.99))
    report(texts=job["requests"], clock=clock, threads=threads(), milliseconds=p50, slow_milliseconds=p99)


def nearfar(job: dict[str, Any], texts: list[str], labels: list[str]) -> Callable[[list[str]], Any]:
    from nearfar import Classifier, load

    folder = Path(job["scratch"]) / "model"
    Classifier(job["encoder"], max_steps=1, estimate=False).fit(texts, labels).save(folder)
    return load(folder, precision=job["precision"]).predict


def setfit(job: dict[str, Any], texts: list[str], labels: list[str]) -> Callable[[list[str]], Any]:
    from setfit import SetFitModel

    model = SetFitModel.from_pretrained(job["encoder"], labels=sorted(set(labels)))
    model.model_head.fit(model.model_body.encode(texts), labels)  # a linear head; the body stays as it is
    return model.predict


def scikit_learn(job: dict[str, Any], texts: list[str], labels: list[str]) -> Callable[[list[str]], Any]:
    from sentence_transformers import SentenceTransformer
    from sklearn.linear_model import LogisticRegression

    encoder = SentenceTransformer(job["encoder"], device="cpu")
    head = LogisticRegression().fit(encoder.encode(texts), labels)
    return lambda rows: head.predict(encoder.encode(rows))


OPENED = {"nearfar": nearfar, "setfit": setfit, "scikit-learn": scikit_learn}

if __name__ == "__main__":
    main()
