"""What came out of a run: the reports of its tasks on dev and test rows, and the numbers of ``metrics.json``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from nearfar.evaluation import PairReport, Report
from nearfar.training import LossModule, Progress, Scores
from nearfar.training.pcgrad import Conflicts, PairConflicts

MEAN: Any = "mean"
"""The score over all tasks that picks the model."""
Reports = dict[str, dict[str, Report]]
"""By split (dev, test) and task; the task of a plain recipe has no name."""
Measure = Callable[[Mapping[str, float] | None], Report]
"""Measures one task on the rows of one split, binary pairs by the given thresholds."""


def evaluators(measures: Mapping[str, Mapping[str, Measure]]) -> dict[str, Callable[[], dict[str, Report]]]:
    """For each split that has rows, what measures its tasks; the thresholds of test rows are those of the dev rows."""
    thresholds: dict[str, Mapping[str, float]] = {}

    def evaluator(split: str) -> Callable[[], dict[str, Report]]:
        def evaluate() -> dict[str, Report]:
            chosen = thresholds if split == "test" else {}
            reports = {name: measure(chosen.get(name)) for name, measure in measures[split].items()}
            if split == "dev":
                thresholds.update(
                    {name: report.thresholds for name, report in reports.items() if isinstance(report, PairReport)}
                )
            return reports

        return evaluate

    return {split: evaluator(split) for split in ("dev", "test") if measures.get(split)}


def mean_scores(reports: Mapping[str, Report], metrics: Mapping[str, str]) -> Scores:
    """The score of each task, and their mean, which picks the model."""
    scores = {f"{name}/{metrics[name]}": report.scores[metrics[name]] for name, report in reports.items()}
    return {**scores, MEAN: float(np.mean(list(scores.values())))}


def split_values(reports: Mapping[str, Report], metrics: Mapping[str, str]) -> dict[str, Any]:
    """The reports of a split as JSON has them, with the mean where every task has one."""
    if "" in reports:
        return dict(reports[""].to_dict())
    values: dict[str, Any] = {name: report.to_dict() for name, report in reports.items()}
    if len(reports) == len(metrics):
        values[MEAN] = mean_scores(reports, metrics)[MEAN]
    return values


def metrics_of(
    reports: Reports, metrics: Mapping[str, str], trainings: Sequence[Progress], seconds: float,
    module: LossModule, journal: Sequence[Mapping[str, Any]],
) -> dict[str, Any]:  # fmt: skip
    """What ``metrics.json`` says of a run."""
    last = trainings[-1]
    texts, spent = sum(progress.texts for progress in trainings), sum(progress.seconds for progress in trainings)
    values: dict[str, Any] = {split: split_values(of_split, metrics) for split, of_split in reports.items()}
    if "" not in metrics:
        values["metrics"] = dict(metrics)
    values["training"] = {
        "steps": last.step,
        "best_step": last.best["step"] if last.best else last.step,
        "evaluations": last.evaluations,
        "texts_per_second": texts / spent if spent else None,
        "seconds": seconds,
        **({"stages": [progress.step for progress in trainings]} if len(trainings) > 1 else {}),
    }
    conflicts = conflicts_in(journal)
    if conflicts is not None:
        values["surgery"] = conflicts.entry()
    if learned := module.learned_weights():
        values["task_weights"] = learned
    return values


def conflicts_in(journal: Sequence[Mapping[str, Any]]) -> Conflicts | None:
    """The conflict statistics of all steps of a journal; None where no step had gradient surgery."""
    total: Conflicts | None = None
    for entry in journal:
        if "surgery" not in entry:
            continue
        pairs = {}
        for pair, values in entry["surgery"].items():
            one, _, other = pair.partition(" / ")
            steps, cosine = values["steps"], values["cosine"] or 0.0
            pairs[one, other] = PairConflicts(steps=steps, conflicts=values["conflicts"], cosines=cosine * steps)
        names = tuple(dict.fromkeys(name for pair in pairs for name in pair))
        step = Conflicts(tasks=names, pairs=pairs)
        total = step if total is None else total + step
    return total
