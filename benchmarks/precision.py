"""Accuracy of classifiers in fp32, bf16 and int8: trained once on each data set, evaluated in every number format.

python -m benchmarks.precision --data FOLDER --out precision.jsonl
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import statistics
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.tables import markdown
from nearfar import Classifier
from nearfar.encoding import load
from nearfar.encoding.formats import use_precision

SETS = ("trec", "sst5", "cr", "subj", "mr", "mpqa", "banking77", "goemotions")
FORMS = ("fp32", "bf16", "int8")


def main() -> None:
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--data", type=Path, required=True, help="the folder of the data sets")
    made.add_argument("--out", type=Path, required=True, help="a .jsonl file; data sets that it has are not run again")
    made.add_argument("--encoder", default="minilm")
    made.add_argument("--per-class", type=int, default=16, help="training texts of each class")
    made.add_argument("--test", type=int, default=2000, help="test texts, at most")
    made.add_argument("--steps", type=int, help="training steps; unset: the default")
    made.add_argument("--only", action="append", choices=SETS)
    options = made.parse_args()
    rows = [json.loads(line) for line in options.out.read_text().splitlines()] if options.out.exists() else []
    for name in options.only or SETS:
        if all(row["data"] != name for row in rows):
            rows.append(measured(name, options))
            with options.out.open("a", encoding="utf-8") as file:
                file.write(json.dumps(rows[-1]) + "\n")
    print(table(rows))


def table(rows: list[dict[str, Any]]) -> str:
    """One line for each data set, and the mean of the changes."""
    lines = []
    for row in rows:
        changes = [f"{row[form] - row['fp32']:+.2f} ({row[f'{form} changed']:.2f} %)" for form in FORMS[1:]]
        distances = [f"{row[f'{form} distance']:.5f}" for form in FORMS[1:]]
        lines.append([row["data"], str(row["rows"]), f"{row['fp32']:.2f}", *changes, *distances])
    means = [statistics.mean(row[form] - row["fp32"] for row in rows) for form in FORMS[1:]]
    lines.append(["mean", "", "", *(f"{mean:+.3f}" for mean in means), "", ""])
    changes = [f"{form}: change (labels that differ)" for form in FORMS[1:]]
    return markdown(["data", "test texts", "fp32", *changes, *(f"{form}: 1 - cosine" for form in FORMS[1:])], lines)


def measured(name: str, options: argparse.Namespace) -> dict[str, Any]:
    """Accuracy in percent, labels that differ and the distance of vectors, in every format."""
    train, test = draw(options.data / name, options.per_class, options.test)
    texts, truth = [row["text"] for row in test], np.array([str(row["label"]) for row in test])
    result: dict[str, Any] = {"data": name, "rows": len(test), "train": len(train)}
    with tempfile.TemporaryDirectory() as scratch:
        labels = [str(row["label"]) for row in train]
        fitted = Classifier(options.encoder, estimate=False, max_steps=options.steps)
        fitted.fit([row["text"] for row in train], labels).save(f"{scratch}/model")
        model = load(f"{scratch}/model")
        exact: Any = None
        for form in FORMS:
            chosen = use_precision(model, form)
            names = np.array(model.labels)
            found, vectors = names[model.probabilities(texts).argmax(axis=1)], model.embed(texts).astype(np.float64)
            exact = (found, vectors) if exact is None else exact
            lengths = np.linalg.norm(vectors, axis=1) * np.linalg.norm(exact[1], axis=1)
            result[form] = 100 * float((found == truth).mean())
            result[f"{form} changed"] = 100 * float((found != exact[0]).mean())
            result[f"{form} distance"] = float(1 - ((vectors * exact[1]).sum(axis=1) / lengths).mean())
            result[f"{form} used"] = chosen.form
    return result


def draw(folder: Path, per_class: int, most: int) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Some training texts of each class, and test texts that are none of them."""
    parts = {part: folder / f"{part}.jsonl.gz" for part in ("train", "test", "all")}
    rows = {part: read(path) for part, path in parts.items() if path.exists()}
    source = random.Random(1)
    every = rows.get("train") or rows["all"]
    source.shuffle(every)
    train: list[dict[str, Any]] = []
    counts: dict[str, int] = {}
    rest = []
    for row in every:
        label = str(row["label"])
        counts[label] = counts.get(label, 0) + 1
        (train if counts[label] <= per_class else rest).append(row)
    test = rows.get("test") or rest
    source.shuffle(test)
    return train, test[:most]


def read(path: Path) -> list[dict[str, Any]]:
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


if __name__ == "__main__":
    main()
