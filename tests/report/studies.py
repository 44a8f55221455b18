"""A study as `nearfar study run` leaves it, with made-up models: predictions first, and every number counted from them."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np

from nearfar.experiments.records import (
    JOURNAL,
    MAP,
    PREDICTIONS,
    STUDY,
    Cell,
    DataSet,
    Plan,
    Record,
    map_bytes,
    plan_text,
    write_record,
)

QUESTIONS = ("abbreviation", "description", "entity", "human", "location", "number")
EVIL = '<script>document.title = "hacked"</script> & "quoted" </svg> it\'s'
CONTENDERS = {"cross-entropy": 2.0, "triple-entropy": 2.12, "supcon": 2.9}
"""How far apart the made-up models keep the classes."""

SETS: dict[str, tuple[tuple[str, ...], tuple[int, ...]]] = {
    "trec": (QUESTIONS, (100, 1000)),
    "cr": (("negative", "positive"), (1000,)),
    "intents": (tuple(f"intent {number:02d}" for number in range(24)), (1000,)),
}


def write_study(
    folder: Path, *, seeds: tuple[int, ...] = (2, 16), folds: int = 5, sets: tuple[str, ...] = tuple(SETS),
    contenders: dict[str, float] | None = None, rows: int = 120, failed: int = 0, waiting: int = 0, evil: str = EVIL,
    conflicts: bool = False,
) -> Plan:  # fmt: skip
    """Write plan and records; the last ``failed`` and ``waiting`` cells have no score, or no record."""
    strengths = CONTENDERS if contenders is None else contenders
    cells = tuple(
        Cell(id=f"{data}-{limit}-{name}-{seed}-{fold}".replace(" ", "_"), data=data, limit=limit, contender=name,
             seed=seed, fold=fold)
        for data in sets for limit in SETS[data][1] for name in strengths for seed in seeds for fold in range(folds)
    )  # fmt: skip
    plan = Plan(
        name="Objectives on few labels", metric="f1_weighted", baseline=next(iter(strengths)), seeds=seeds, folds=folds,
        data=tuple(
            DataSet(name=data, file=f"data/{data}.jsonl", limits=SETS[data][1], digest="d1" * 16, rows=1000, kind="classes",
                    labels=SETS[data][0])
            for data in sets
        ),
        contenders={name: {"objective": {"name": name}} for name in strengths}, cells=cells,
    )  # fmt: skip
    folder.mkdir(parents=True, exist_ok=True)
    (folder / STUDY).write_text(plan_text(plan), encoding="utf-8")
    for place, cell in enumerate(cells[: len(cells) - waiting]):
        fails = place >= len(cells) - waiting - failed
        record, files = trial(cell, strengths[cell.contender], rows, folds, evil, first=cell.seed == seeds[0],
                              conflicts=conflicts)  # fmt: skip
        if fails:
            record = Record(
                id=cell.id, data=cell.data, limit=cell.limit, contender=cell.contender, seed=cell.seed, fold=cell.fold,
                status="failed", metric="f1_weighted", reason="training met NaN at step 12 <lower the learning rate>",
            )  # fmt: skip
            files = {}
        write_record(folder, record, files)
    return plan


def trial(
    cell: Cell, strength: float, rows: int, folds: int, evil: str, *, first: bool, conflicts: bool
) -> tuple[Record, dict[str, bytes]]:
    """One run of a model that predicts the true class with noise from its seed and fold."""
    labels = SETS[cell.data][0]
    world = np.random.default_rng(len(labels))  # the same texts for everybody
    truth = world.integers(len(labels), size=rows * folds)
    ease = world.normal(size=(rows * folds, len(labels)))
    given = truth.copy()
    given[: 2 * folds : folds] = (given[: 2 * folds : folds] + 1) % len(labels)  # two wrong labels, in fold 0
    limit = cell.limit or 1000
    noise = np.random.default_rng([cell.seed, cell.fold, len(cell.contender), len(labels), limit])
    mine = np.arange(cell.fold, rows * folds, folds)
    pull = strength * (1 + 0.18 * math.log10(limit / 100)) * (1 + 0.12 * (len(labels) > 10))
    logits = ease[mine] * 0.9 + noise.normal(size=(rows, len(labels))) * 0.5
    logits[np.arange(rows), truth[mine]] += pull
    chances = np.exp(1.6 * logits)
    chances /= chances.sum(axis=1, keepdims=True)
    predicted = chances.argmax(axis=1)
    counts = np.zeros((len(labels), len(labels)), dtype=int)
    for true, other in zip(given[mine], predicted, strict=True):
        counts[true, other] += 1
    texts = [f"text {row} about {labels[truth[row]]}: what is meant, and who knows it?" for row in mine]
    texts[3] = evil
    lines = [
        {"row": int(row), "text": text, "label": labels[given[row]], "predicted": labels[other],
         "probabilities": {name: round(float(chance), 6) for name, chance in zip(labels, chance_row, strict=True)}}
        for row, text, other, chance_row in zip(mine, texts, predicted, chances, strict=True)
    ]  # fmt: skip
    steps = 40
    journal: list[dict[str, Any]] = []
    for step in range(1, steps + 1):
        loss = 1.8 * math.exp(-step / 12) + 0.2 / strength + 0.05 * abs(float(noise.normal()))
        journal.append({"kind": "step", "step": step, "steps": steps, "epoch": 1 + (step - 1) // 10, "loss": loss})
        if conflicts and step % 10 == 0:
            journal[-1]["surgery"] = {
                "sst / sts": {"steps": 1, "conflicts": int(step == 20), "cosine": 0.01 * step - 0.3}
            }
        if step % 10 == 0:
            score = float((predicted == given[mine]).mean()) * (1 - 0.5 * math.exp(-step / 9))
            journal.append({"kind": "evaluation", "step": step, "epoch": step // 10, "scores": {"f1_weighted": score},
                            "metric": "f1_weighted", "best": True, "stopped": False})  # fmt: skip
    scores, per_class = counted_scores(counts, labels)
    files = {
        PREDICTIONS: "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines).encode(),
        JOURNAL: "".join(json.dumps(entry) + "\n" for entry in journal).encode(),
    }
    centers = np.random.default_rng(7).normal(size=(len(labels), 24))
    spread = np.random.default_rng(8).normal(size=(rows, 24))
    if first and cell.fold == 0:
        before = (centers[truth[mine]] * 0.45 + spread * 0.9 + 1.2).astype(np.float32)
        after = (centers[truth[mine]] * strength * 0.5 + spread * 0.55).astype(np.float32)
        files[MAP] = map_bytes(mine.tolist(), before, after)
    record = Record(
        id=cell.id, data=cell.data, limit=cell.limit, contender=cell.contender, seed=cell.seed, fold=cell.fold,
        status="done", metric="f1_weighted", scores=scores, per_class=per_class, labels=list(labels),
        confusion=counts.tolist(), texts=int(limit * (folds - 1) / folds), test=rows,
        geometry={
            "before": {"alignment": 1.42, "uniformity": -1.9, "anisotropy": 0.41, "effective_rank": 12.0},
            "after": {"alignment": 1.3 / strength + 0.02 * cell.fold, "uniformity": -2.1 - strength / 4 - len(labels) / 30,
                      "anisotropy": 0.1, "effective_rank": 18.0 + cell.fold},
        },
        recipe={"seed": cell.seed, "objective": {"name": cell.contender}, "training": {"epochs": 4, "learning_rate": 5e-05}},
        versions={"nearfar": "0.1.0", "torch": "2.13.0"}, seconds=12.0 * strength, cpu_seconds=23.0 * strength,
        peak_mb=700 + 40 * strength,
    )  # fmt: skip
    return record, files


def counted_scores(
    counts: np.ndarray[Any, Any], labels: tuple[str, ...]
) -> tuple[dict[str, float], dict[str, dict[str, float]]]:
    """Accuracy, F1 and the figures of each class, by the textbook."""
    per_class = {}
    for place, label in enumerate(labels):
        hits, positives, predicted = counts[place, place], counts[place].sum(), counts[:, place].sum()
        precision, recall = hits / predicted if predicted else 0.0, hits / positives if positives else 0.0
        f1 = 2 * precision * recall / (precision + recall) if hits else 0.0
        per_class[label] = {
            "precision": float(precision),
            "recall": float(recall),
            "f1": float(f1),
            "support": int(positives),
        }
    total = counts.sum()
    scores = {
        "accuracy": float(np.trace(counts) / total),
        "f1_macro": float(np.mean([entry["f1"] for entry in per_class.values()])),
        "f1_weighted": float(sum(entry["f1"] * entry["support"] for entry in per_class.values()) / total),
    }
    return scores, per_class
