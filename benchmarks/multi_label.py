"""Few texts with several labels: nearfar's default beside SetFit's one-vs-rest, on the same draws.

    python -m benchmarks.multi_label draw --data goemotions_full --out draws --per-label 8 --seeds 3
    python -m benchmarks.multi_label nearfar --draws draws
    python -m benchmarks.multi_label setfit --draws draws --encoder FOLDER     (in the environment of the peers)
    python -m benchmarks.multi_label table --draws draws

A draw has texts until each label has so many, and test texts in their own proportion. SetFit has a logistic regression
for each label on its trained encoder, which decides at a half; nearfar chooses one threshold by cross-validation of the
training texts. Both are also scored at the other's thresholds, where that is possible. Scores are those of
``nearfar.evaluation.multi_label_report``.
"""

from __future__ import annotations

import argparse
import gzip
import json
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

METRICS = ("f1_micro", "f1_macro", "f1_samples", "lrap", "accuracy")
PAIRS_A_TEXT = 5
"""Pairs of each kind that SetFit draws for a text; as many texts through the encoder as nearfar, about."""


def read(path: Path) -> tuple[list[str], list[list[str]]]:
    """Texts and labels of a file of JSON lines, whose labels are a list or joined by |."""
    content = path.read_bytes()
    content = gzip.decompress(content) if path.suffix == ".gz" else content
    rows = [json.loads(line) for line in content.decode().splitlines()]
    labels = [row["label"].split("|") if isinstance(row["label"], str) else row["label"] for row in rows]
    return [row["text"] for row in rows], labels


def write(path: Path, texts: list[str], labels: list[list[str]], rows: list[int]) -> None:
    """Some rows as JSON lines."""
    path.write_text("".join(json.dumps({"text": texts[row], "label": labels[row]}) + "\n" for row in rows))


def draw(data: Path, out: Path, per_label: int, seeds: int, tested: int) -> None:
    """Write a folder of training and test rows for each seed."""
    texts, labels = read(data / "train.jsonl.gz")
    test_texts, test_labels = read(data / "test.jsonl.gz")
    sizes = Counter(name for names in labels for name in names)
    for seed in range(seeds):
        source, have, taken = np.random.default_rng(seed), Counter[str](), list[int]()
        for name in sorted(sizes, key=lambda each: (sizes[each], each)):
            rows = [row for row, names in enumerate(labels) if name in names and row not in taken]
            for place in source.permutation(len(rows)):
                if have[name] >= per_label:
                    break
                taken.append(rows[place])
                have.update(labels[rows[place]])
        folder = out / str(seed)
        folder.mkdir(parents=True, exist_ok=True)
        write(folder / "train.jsonl", texts, labels, sorted(taken))
        chosen = sorted(source.choice(len(test_texts), tested, replace=False).tolist())
        write(folder / "test.jsonl", test_texts, test_labels, chosen)


def scores_of(folder: Path, chances: Any, classes: tuple[str, ...], threshold: float | None) -> dict[str, float]:
    """The scores of probabilities on the test rows of a draw."""
    from nearfar.evaluation import multi_label_report

    _, labels = read(folder / "test.jsonl")
    truth = np.array([[name in names for name in classes] for names in labels]).astype(np.int64)
    chosen = None if threshold is None else dict.fromkeys(classes, threshold)
    return multi_label_report(truth, np.asarray(chances, dtype=np.float64), classes, chosen).scores


def nearfar(folder: Path, encoder: str) -> dict[str, Any]:
    """Train the default recipe, and predict the test texts."""
    from nearfar.encoding.model import load
    from nearfar.pipeline import train
    from nearfar.recipe import build_recipe

    values = {
        "data": {"train": str(folder / "train.jsonl"), "dev": 0},
        "encoder": {"name": encoder},
        "training": {"estimate": False},
    }
    began = time.perf_counter()
    train(build_recipe(values, where="multi_label"), folder / "model", overwrite=True)
    seconds = time.perf_counter() - began
    model = load(folder / "model")
    classes = model.labels or ()
    chances = model.probabilities(read(folder / "test.jsonl")[0])
    cut = next(iter(model.card.task["thresholds"].values()))
    return {
        "seconds": seconds,
        "threshold": cut,
        "scores": scores_of(folder, chances, classes, cut),
        "at a half": scores_of(folder, chances, classes, 0.5),
    }


def setfit(folder: Path, encoder: str) -> dict[str, Any]:
    """SetFit with ``multi_target_strategy="one-vs-rest"``; its probabilities go to a file for :func:`scores_of`."""
    from datasets import Dataset
    from setfit import SetFitModel, Trainer, TrainingArguments  # type: ignore[import-not-found]

    texts, labels = read(folder / "train.jsonl")
    classes = tuple(sorted({name for names in labels for name in names}))
    rows = [[int(name in names) for name in classes] for names in labels]
    model = SetFitModel.from_pretrained(encoder, multi_target_strategy="one-vs-rest", labels=list(classes))
    out = str(folder / "setfit-checkpoints")  # else they are written to the current folder
    settings = TrainingArguments(
        output_dir=out, batch_size=16, num_iterations=PAIRS_A_TEXT, report_to="none", save_strategy="no", seed=42
    )
    trainer = Trainer(model=model, args=settings, train_dataset=Dataset.from_dict({"text": texts, "label": rows}))
    began = time.perf_counter()
    trainer.train()
    seconds = time.perf_counter() - began
    chances = np.asarray(model.predict_proba(read(folder / "test.jsonl")[0], as_numpy=True))
    return {"seconds": seconds, "classes": classes, "chances": chances.tolist()}


def table(draws: Path) -> list[str]:
    """The mean of each score over the draws, and its range."""
    lines: dict[str, list[dict[str, float]]] = {}
    for folder in sorted(path for path in draws.iterdir() if path.is_dir()):
        ours = json.loads((folder / "nearfar.json").read_text())
        lines.setdefault("nearfar, cross-validated threshold", []).append(ours["scores"])
        lines.setdefault("nearfar at a half", []).append(ours["at a half"])
        if (folder / "setfit.json").is_file():
            theirs = json.loads((folder / "setfit.json").read_text())
            found = scores_of(folder, theirs["chances"], tuple(theirs["classes"]), 0.5)
            lines.setdefault("SetFit one-vs-rest", []).append(found)
            best = scores_of(folder, theirs["chances"], tuple(theirs["classes"]), None)
            lines.setdefault("SetFit, best threshold of the test texts", []).append(best)
    head = [f"| | {' | '.join(METRICS)} |", "|---" * (len(METRICS) + 1) + "|"]
    for name, scores in lines.items():
        cells = []
        for metric in METRICS:
            values = [one[metric] for one in scores]
            cells.append(f"{np.mean(values):.3f} ({min(values):.3f} to {max(values):.3f})")
        head.append(f"| {name}, {len(scores)} draws | {' | '.join(cells)} |")
    return head


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("step", choices=("draw", "nearfar", "setfit", "table"))
    parser.add_argument("--data", type=Path, default=Path("goemotions_full"))
    parser.add_argument("--draws", "--out", type=Path, default=Path("draws"))
    parser.add_argument("--encoder", default="minilm")
    parser.add_argument("--per-label", type=int, default=8)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--tested", type=int, default=1_000)
    given = parser.parse_args()
    if given.step == "draw":
        draw(given.data, given.draws, given.per_label, given.seeds, given.tested)
    elif given.step == "table":
        print("\n".join(table(given.draws)))
    else:
        run = nearfar if given.step == "nearfar" else setfit
        for folder in sorted(path for path in given.draws.iterdir() if path.is_dir()):
            result = run(folder, given.encoder)
            (folder / f"{given.step}.json").write_text(json.dumps(result))


if __name__ == "__main__":
    main()
