"""The output folder, checked before the work; reports and the numbers of ``metrics.json``."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from nearfar.encoding.digests import DIGESTS
from nearfar.encoding.model_folder import CARD, EXTRAS, HEADS, README
from nearfar.encoding.pretrained import BUILT_IN, STAGING
from nearfar.errors import CheckpointError, OutputError
from nearfar.evaluation import MultiLabelReport, PairReport, Report
from nearfar.files import check_writable, existing_parent, free_bytes, refuse_remote, remove
from nearfar.training import LossModule, Progress, Scores
from nearfar.training.pcgrad import Conflicts, PairConflicts

Asked = Literal["auto", "fp32", "bf16"]
MEAN: Any = "mean"
"""The score over all tasks that picks the model."""
Reports = dict[str, dict[str, Report]]
"""By split (dev, test) and task; the task of a plain recipe has no name."""
Measure = Callable[[Mapping[str, float] | None], Report]
"""Measures one task on the rows of one split, binary pairs and several labels by the given thresholds."""


def evaluators(measures: Mapping[str, Mapping[str, Measure]]) -> dict[str, Callable[[], dict[str, Report]]]:
    """For each split that has rows, what measures its tasks; the thresholds of test rows are those of the dev rows."""
    thresholds: dict[str, Mapping[str, float]] = {}

    def evaluator(split: str) -> Callable[[], dict[str, Report]]:
        def evaluate() -> dict[str, Report]:
            chosen = thresholds if split == "test" else {}
            reports = {name: measure(chosen.get(name)) for name, measure in measures[split].items()}
            if split == "dev":
                thresholds.update(
                    {
                        name: report.thresholds
                        for name, report in reports.items()
                        if isinstance(report, PairReport | MultiLabelReport)
                    }
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
        "kept_step": last.kept,
        "untrained": all(progress.kept == 0 for progress in trainings),
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


CHECKPOINTS = "checkpoints"
RECIPE = "recipe.toml"
JOURNAL = "journal.jsonl"
METRICS = "metrics.json"
STAGES = "stages"
ESTIMATING = ".estimating"
"""In the folder of a saved model whose estimate is not known yet: the run has not finished."""
LEFTOVERS = (STAGING, f".{RECIPE}", f".{METRICS}", f".{HEADS}", f".{DIGESTS}", f".{README}", f".{EXTRAS}", f".{CARD}")
"""Where files are written before they take their places."""


def check_output(out: Path, *, resume: bool, overwrite: bool, reads: Iterable[object] = ()) -> bool:
    """Refuse a place that cannot take the model; returns False when the run in it has finished.

    Nothing is changed yet: what is to be replaced goes only when the run is sure to begin. Files and folders that the
    run ``reads`` are not replaced; whatever else is among them is passed over.
    """
    refuse_remote(out)
    if str(out) in BUILT_IN:
        raise OutputError(
            f"{out}: this is the name of an encoder, which later commands would open instead of the folder. "
            "Choose another --out."
        )
    try:
        no_folder, filled = out.exists() and not out.is_dir(), out.is_dir() and bool(_names(out))
    except OSError as cause:
        raise OutputError(f"{out}: the folder cannot be looked at: {cause.strerror}. Choose another --out.") from cause
    if no_folder:
        raise OutputError(f"{out}: this is a file; give a folder for the model.")
    if filled:
        ours = holds_run(_names(out))
        if resume and (out / CARD).is_file() and not (out / ESTIMATING).exists():
            return False
        if resume and not ours:
            raise OutputError(f"{out}: the folder holds no run to resume; give the folder of one, or another --out.")
        if not ours:
            raise OutputError(
                f"{out}: the folder is not empty, and holds something else than a model of nearfar, so it is not "
                "replaced. Choose another --out."
            )
        if not (resume or overwrite):
            raise OutputError(
                f"{out}: the folder is not empty. Continue its run with --resume, replace it with --overwrite, "
                "or choose another --out."
            )
        if not resume:
            _check_spared(out, reads)
    place = existing_parent(out)
    if not place.is_dir():
        raise OutputError(f"{out}: the folder cannot be made, because {place} is a file. Choose another --out.")
    check_writable(place, out)
    return True


def holds_run(names: set[str]) -> bool:
    """Whether these are of a model, or of a run that has begun; a recipe beside other things may be anybody's."""
    began = any(
        name in (CHECKPOINTS, STAGES) or (name.startswith("journal") and name.endswith(".jsonl")) for name in names
    )
    return CARD in names or (RECIPE in names and (began or names == {RECIPE}))


def _names(out: Path) -> set[str]:
    """What is in a folder, but for what a run that was killed has left half written."""
    return {entry.name for entry in out.iterdir() if entry.name not in LEFTOVERS}


def clear_leftovers(out: Path) -> None:
    """Remove what a run that was killed has left half written."""
    for name in LEFTOVERS:
        remove(out / name)


def _check_spared(out: Path, reads: Iterable[object]) -> None:
    """Refuse to remove what the run is made from."""
    for source in reads:
        for name in (source, source.rpartition("#")[0]) if isinstance(source, str) else ():
            if name and os.path.exists(name) and Path(name).resolve().is_relative_to(out.resolve()):
                raise OutputError(
                    f"{out}: the run reads {name}, which would be removed with what is in the folder. "
                    "Choose another --out."
                )


def resumed_precision(out: Path, asked: Asked) -> Asked:
    """The precision that the run in a folder has begun with; an error where the recipe now asks for another."""
    try:
        began = tomllib.loads((out / RECIPE).read_text(encoding="utf-8"))["training"]["precision"]
    except (OSError, ValueError, KeyError, TypeError):
        return asked
    if began not in ("fp32", "bf16") or began == asked:
        return asked
    if asked != "auto":
        raise CheckpointError(
            f'{out}: this run computes in {began}, and training.precision is "{asked}" now. Resume without it, or '
            "start over with --overwrite."
        )
    return "bf16" if began == "bf16" else "fp32"


def has_checkpoint(out: Path) -> bool:
    """Whether a run has left something to go on from, damaged or not."""
    return any((out / CHECKPOINTS).rglob("step-*"))


def make_folder(out: Path) -> None:
    """Make the folder of a run, and those above it."""
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as cause:
        raise OutputError(f"{out}: the folder cannot be made ready: {cause.strerror}. Choose another --out.") from cause


def open_output(out: Path, *, resume: bool) -> None:
    """Make the folder, and remove the model in it that is to be replaced."""
    make_folder(out)
    try:
        if not resume:
            for entry in out.iterdir():
                remove(entry)
    except OSError as cause:
        raise OutputError(f"{out}: the folder cannot be made ready: {cause.strerror}. Choose another --out.") from cause


def check_room(out: Path, weights: int, *, keep: int) -> None:
    """Refuse to start when the disk cannot hold what the run will write.

    ``weights`` is the size of the model in bytes; a checkpoint holds it three times (AdamW remembers two numbers a
    weight), one more checkpoint than is kept exists while it is written, and the best and the final weights are extra.
    """
    needed = weights * (3 * (keep + 1) + 2 + 1)
    free = free_bytes(out)
    if free < needed:
        raise OutputError(
            f"{out}: the disk has {free / 1e9:.1f} GB free, and this run may need {needed / 1e9:.1f} GB for its "
            "checkpoints and the model. Make room, lower training.keep_checkpoints, or choose another --out."
        )
