"""Class objectives on the same folds: weighted F1 over folds and seeds, one line of JSON a run.

    python -m benchmarks.class_objectives run --data trec --data cr --limit 1000 --contender cross-entropy ...
    python -m benchmarks.class_objectives table

A run is a data set, a contender, a seed and a fold: the seed draws the texts, the folds and the training. What is there
already is not run again, so several processes may share the work (--share 0/2 and --share 1/2). Data sets with an
official test set use it when --folds is 0.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np

from nearfar.data import Records, folds, limit, read

RECIPES: dict[str, dict[str, Any]] = {
    "cross-entropy": {"objective": {"name": "cross-entropy"}},
    "triple-entropy": {"objective": {"name": "triple-entropy", "centers": 100}},
    "triple-entropy-half": {"objective": {"name": "triple-entropy", "centers": 100, "beta": 0.5}},
    "triple-entropy-slow": {"objective": {"name": "triple-entropy", "centers": 100, "learning_rate": 5e-5}},
    "supcon": {"objective": {"name": "supcon"}},
    "cross-entropy+supcon": {"objective": {"name": "cross-entropy+supcon"}},
    "label-aware": {"objective": {"name": "label-aware"}},
}


def main(arguments: list[str] | None = None) -> None:
    settings = parsed(arguments)
    if settings.verb == "table":
        print(table(settings.results))
        return
    jobs = [
        (data, name, seed, fold)
        for seed in settings.seed
        for fold in range(max(1, settings.folds))
        for data in settings.data
        for name in settings.contender
    ]
    mine, of = (int(number) for number in settings.share.split("/"))
    for place, job in enumerate(jobs):
        if place % of == mine and not known(settings.results, job, settings):
            line = run_one(*job, settings)
            with settings.results.open("a") as file:
                file.write(json.dumps(line) + "\n")
            print(line, flush=True)


def run_one(data: str, name: str, seed: int, fold: int, settings: argparse.Namespace) -> dict[str, Any]:

    from nearfar.pipeline import train as train_recipe
    from nearfar.recipe import build_recipe

    train, test = split(settings.source / data, seed, fold, settings)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        write(train, folder / "train.jsonl")
        write(test, folder / "test.jsonl")
        values: dict[str, Any] = {
            "seed": seed,
            "data": {"train": str(folder / "train.jsonl"), "test": str(folder / "test.jsonl"), "dev": 0},
            "encoder": {"pooling": settings.pooling, "max_length": 128},
            "batches": {"size": 32},
            "training": {"epochs": settings.epochs, "learning_rate": settings.rate, "estimate": False},
            **RECIPES[name],
        }
        began = time.process_time()
        summary = train_recipe(build_recipe(values, [], where="benchmark"), folder / "model")
    scores = summary.report("test").scores
    return {
        "data": data, "contender": name, "seed": seed, "fold": fold, "texts": len(train), "test": len(test),
        "epochs": settings.epochs, "rate": settings.rate, "f1_weighted": scores["f1_weighted"],
        "accuracy": scores["accuracy"], "cpu_seconds": time.process_time() - began,
    }  # fmt: skip


def split(folder: Path, seed: int, fold: int, settings: argparse.Namespace) -> tuple[Records, Records]:
    whole = folder / "all.jsonl.gz"
    train = read(str(whole if whole.exists() else folder / "train.jsonl.gz"))
    if settings.limit:
        train = train.take(limit(train, settings.limit, seed=seed))
    if settings.folds:
        inside, outside = folds(train, settings.folds, seed=seed)[fold]
        return train.take(inside), train.take(outside)
    test = read(str(folder / "test.jsonl.gz"))
    known_classes = set(train.labels or ())
    kept = [place for place, label in enumerate(test.labels or ()) if label in known_classes]
    return train, test.take(kept)


def write(records: Records, path: Path) -> None:
    names = ("text",) if len(records.texts) == 1 else ("text_a", "text_b")
    rows = zip(*records.texts, records.labels or (), strict=True)
    path.write_text("".join(json.dumps(dict(zip((*names, "label"), row, strict=True))) + "\n" for row in rows))


def lines(results: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in results.read_text().splitlines()] if results.exists() else []


def known(results: Path, job: tuple[str, str, int, int], settings: argparse.Namespace) -> bool:
    same = (*job, settings.epochs, settings.rate)
    keys = ("data", "contender", "seed", "fold", "epochs", "rate")
    return any(tuple(line[key] for key in keys) == same for line in lines(results))


def table(results: Path) -> str:
    """Mean and deviation of each contender, and its difference to the first, paired by seed and fold."""
    from scipy import stats

    found: dict[tuple[Any, ...], dict[str, dict[tuple[int, int], float]]] = defaultdict(lambda: defaultdict(dict))
    for line in lines(results):
        group = (line["data"], line["texts"], line["epochs"], line["rate"])
        found[group][line["contender"]][line["seed"], line["fold"]] = 100 * line["f1_weighted"]
    rows = [
        "| data | texts | epochs | rate | contender | runs | weighted F1 | difference | t-test p |",
        "|---" * 9 + "|",
    ]
    for group, contenders in sorted(found.items()):
        names = [name for name in RECIPES if name in contenders]
        base = contenders[names[0]]
        for name in names:
            values = contenders[name]
            shared = sorted(set(values) & set(base))
            differences = np.array([values[key] - base[key] for key in shared])
            told = ["", ""]
            if name != names[0] and len(shared) > 1:
                p = stats.ttest_1samp(differences, 0).pvalue if differences.any() else 1.0
                told = [f"{differences.mean():+.2f} ± {differences.std(ddof=1):.2f}", f"{p:.3f}"]
            spread = np.std(list(values.values()), ddof=1) if len(values) > 1 else 0.0
            cells = [*group, name, len(values), f"{np.mean(list(values.values())):.2f} ± {spread:.2f}", *told]
            rows.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join(rows)


def parsed(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("verb", choices=["run", "table"])
    parser.add_argument("--data", action="append", default=[], help="a data set; repeatable")
    parser.add_argument("--contender", action="append", default=[], choices=list(RECIPES))
    parser.add_argument("--seed", action="append", type=int, default=[])
    parser.add_argument("--folds", type=int, default=5, help="0 for the official test set")
    parser.add_argument("--limit", type=int, default=1000)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--rate", type=float, default=5e-5)
    parser.add_argument("--pooling", default="mean")
    parser.add_argument("--share", default="0/1", help="which part of the runs this process does")
    parser.add_argument("--source", type=Path, default=Path(os.environ.get("NEARFAR_DATA", "../shared/data")))
    parser.add_argument("--results", type=Path, default=Path("class_objectives.jsonl"))
    settings = parser.parse_args(arguments)
    settings.seed = settings.seed or [2, 16]
    return settings


if __name__ == "__main__":
    main()
