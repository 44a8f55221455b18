"""How good a trained model is on new texts, with an interval and two baselines.

Test rows say it, or dev rows. Without them, few training texts are divided into folds: for each fold an encoder is
trained on the other texts and predicts its own. The trained model has seen all of its texts, so a head that is fitted
without one of them is far too optimistic: docs/why/estimate.md has the measurements. Nothing here changes the model.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from nearfar.data import Records, folds
from nearfar.errors import Interrupted, counted
from nearfar.evaluation.classification import most_likely
from nearfar.evaluation.estimate import NAMES, Estimate, Predicted, Predictions
from nearfar.evaluation.evaluators import outputs
from nearfar.evaluation.multi_label import MultiLabelReport, apply_thresholds, choose_thresholds
from nearfar.pipeline.calibration import HeldOut
from nearfar.pipeline.data import AUTO_ROWS, RunData
from nearfar.pipeline.defaults import BATCH, TRAINED, Stage, has_dev, plan_stages
from nearfar.pipeline.encoder_run import EncoderPlan, EncoderRun
from nearfar.pipeline.heads import TrainingRows, cross_validated, fit_to_vectors, unit_vectors
from nearfar.pipeline.loaders import EVALUATION_BATCH, Rows, evaluation_rows
from nearfar.pipeline.output import Reports
from nearfar.pipeline.plan import Messages, decided, open_accelerator
from nearfar.training import CheckpointStore, Journal, Progress, RunFiles, about, fit

FOLDS = 3
"""Parts of the training texts, each predicted by a model that was trained on the others."""
LEAST_STEPS = 3
"""Steps of each fold, however few texts the run itself has processed."""
LEAST = 8
"""Different texts from which on cross-validation takes place, below the number from which on dev rows are set aside."""
BASELINE_ROWS = 5_000
"""Up to so many training texts a head is fitted to the untrained encoder."""
SLOW = 10.0
"""Seconds from which on every fold is reported."""
Part: TypeAlias = tuple[list[int], list[int]]
"""The rows that a fold trains on, and those that it predicts."""
CLASS, ENCODER = "most frequent class", "untrained encoder"


def estimate_quality(
    run: EncoderRun, trainings: Sequence[Progress], messages: Messages, reports: Reports
) -> Estimate | None:
    """The estimate of a run that has finished: on its test or dev rows, or by cross-validation; None where it has none.

    Args:
        run: the trained model.
        trainings: that of each stage.
        messages: reports what is done.
        reports: those of the dev and test rows, where there are some.
    """
    plan = run.plan
    if not plan.classifies:
        return None
    split: Literal["test", "dev"]
    for split in ("test", "dev"):
        if split in reports:
            if run.calibrates and not has_dev(plan.data):
                _calibrate(run, trainings, messages)
            return _on_rows(run, split, reports).estimate(split, plan.recipe.seed)
    if plan.given.data.unlabeled is True:
        if run.calibrates and not has_dev(plan.data):  # by the classes that names gave the texts
            _calibrate(run, trainings, messages)
        messages("how good the model is on new texts is not known, because no text has a label: give some with --test")
        return None
    labeled = plan.data.labeled
    n = len(labeled)
    if n >= AUTO_ROWS:
        messages("how good the model is on new texts is not known: set rows aside with --test 0.1")
        return None
    parts = _parts(labeled, plan.recipe.seed)
    if parts is None:
        messages(
            f"{counted(n, 'text')} are too few to estimate how good the model is on new texts: add some, or --test"
        )
        return None
    seconds = sum(progress.seconds for progress in trainings)
    messages(
        f"estimating how good the model is on new texts: {len(parts)}-fold cross-validation, {about(seconds)}; "
        "--no-estimate leaves it out"
    )
    shown = messages if seconds > SLOW else Messages((), quiet=True)
    found, held = _cross_validated(run, parts, _budget(run, trainings), shown)
    if held:
        run.calibrate(HeldOut.join(held))
    return replace(found.estimate("cross-validation", plan.recipe.seed), folds=len(parts))


def _parts(train: Records, seed: int) -> list[Part] | None:
    """Rows to train on and to predict; None where there are too few. A class is never without a row to train on."""
    if len(set(train.normalized_texts())) < LEAST:
        return None
    labels, parts = train.row_labels(), []
    for inside, outside in folds(train, FOLDS, seed=seed, every_class=False):
        known = {label for row in inside for label in labels[row]}
        lone = [row for row in outside if labels[row] and not known.intersection(labels[row])]
        measured = [row for row in outside if row not in set(lone)]
        if measured:
            parts.append((sorted([*inside, *lone]), measured))
    return parts if len(parts) > 1 else None


def _cross_validated(
    run: EncoderRun, parts: Sequence[Part], texts: int, messages: Messages
) -> tuple[Predictions, list[HeldOut]]:
    """What the models of the folds predict for the texts that they were not trained on."""
    plan = run.plan
    baseline = _Baseline.of(run)
    rows = [np.array(outside) for _, outside in parts]
    truth = _truth(run.rows["train"], plan.data.train)
    predicted, beside, held = list[Predicted](), list[Predicted](), list[HeldOut]()
    for number, (inside, outside) in enumerate(parts, start=1):
        part = fold_run(plan, (inside, outside), texts)
        predicted.append(predictions_of(part, "test", part.thresholds))
        held += [part.held_out("test", by="folds")] if run.calibrates else []
        beside.append(baseline.predict(np.array(inside), np.array(outside)))
        score = Predictions(plan.data.row_type, truth[np.array(outside)], predicted[-1], {})
        messages(f"fold {number} of {len(parts)}: {NAMES[score.metric]} {score.score(predicted[-1]):.2f}")
    order = np.concatenate(rows)
    baselines = {ENCODER: np.concatenate(beside)}
    if plan.data.row_type.has_classes:
        baselines = {CLASS: _most_frequent(truth[: len(plan.data.labeled)], truth[order]), **baselines}
    return Predictions(plan.data.row_type, truth[order], np.concatenate(predicted), baselines), held


def _calibrate(run: EncoderRun, trainings: Sequence[Progress], messages: Messages) -> None:
    """Calibrate the probabilities by folds, where there are test rows for the estimate, which are not to choose."""
    labeled = run.plan.data.labeled
    parts = _parts(labeled, run.plan.recipe.seed) if len(labeled) < AUTO_ROWS else None
    if parts is None:
        return
    seconds = sum(progress.seconds for progress in trainings)
    messages(f"calibrating probabilities: {len(parts)} folds, {about(seconds)}; --no-estimate leaves it out")
    texts = _budget(run, trainings)
    run.calibrate(HeldOut.join([fold_run(run.plan, part, texts).held_out("test", by="folds") for part in parts]))


def _budget(run: EncoderRun, trainings: Sequence[Progress]) -> int:
    """The texts that the training of a fold processes: together the folds process as many as the run."""
    n = len(run.plan.data.train)
    texts = sum(
        progress.step * min(n, stage.recipe.batches.size or n)
        for progress, stage in zip(trainings, run.plan.parts, strict=True)
    )
    return texts // FOLDS


def fold_accuracy(plan: EncoderPlan) -> float:
    """The accuracy of short trainings on texts that they were trained without: of a plan that has not been run."""
    truth: dict[int, bool] = {}
    for part in fold_parts(plan) or []:
        run = fold_run(plan, part, fold_budget(plan))
        predicted = predictions_of(run, "test", run.thresholds)
        truth |= dict(zip(part[1], (predicted == run.rows["test"].labels).tolist(), strict=True))
    return float(np.mean(list(truth.values())))


def fold_budget(plan: EncoderPlan) -> int:
    """The texts that the training of a fold processes, of a plan that has not been run."""
    n = len(plan.data.train)
    steps = sum(-(-n // (stage.recipe.batches.size or n)) * (stage.recipe.training.epochs or 1) for stage in plan.parts)
    return steps * min(n, plan.recipe.batches.size or n) // FOLDS


def fold_parts(plan: EncoderPlan) -> list[Part] | None:
    """The rows that each fold trains on and predicts; None where there are too few."""
    return _parts(plan.data.labeled, plan.recipe.seed)


def fold_run(plan: EncoderPlan, part: Part, texts: int) -> EncoderRun:
    """The run of a model that is trained on the first rows, with about ``texts`` texts; the others are its test."""
    inside, outside = part
    train = plan.data.train
    data = replace(plan.data, train=train.take(inside), dev=None, test=train.take(outside), pseudo=0)
    stages = _shorter(plan, data, texts)
    with tempfile.TemporaryDirectory(prefix="nearfar-estimate-") as folder:
        accelerator = open_accelerator(Path(folder))  # without the trackers of the run
        run = replace(plan, data=data, parts=stages).in_precision(decided(plan.training)).open(accelerator)
        for number in range(len(stages)):
            prepared = run.prepare(number)
            store = CheckpointStore(Path(folder) / str(number), keep=1)
            files = RunFiles(store=store, journal=Journal(None), identity=prepared.identity, followed=True, finish=True)
            progress = fit(prepared.module, prepared.loader, prepared.settings, files, accelerator=accelerator)
            if progress.interrupted:
                raise Interrupted("the estimate was interrupted.")
        run.fit_head()
    return run


def _shorter(plan: EncoderPlan, data: RunData, texts: int) -> list[Stage]:
    """The stages as the recipe has them for these rows, with so many steps that about ``texts`` are processed."""
    recipe = plan.given
    if not recipe.stage:
        last = plan.recipe
        recipe = replace(recipe, objective=last.objective, head=last.head, encoder=last.encoder, batches=last.batches)
    sizes = [min(len(data.train), stage.recipe.batches.size or BATCH) for stage in plan.parts]
    most = max(LEAST_STEPS, texts // sum(sizes))
    training = recipe.training
    steps = min(most, training.max_steps or most)
    training = replace(training, max_steps=steps, keep="last", trackers=(), checkpoint_every="auto")
    stages, _ = plan_stages(
        replace(recipe, training=training, stage=tuple(replace(each, keep=None) for each in recipe.stage)), data
    )
    return stages


def _on_rows(run: EncoderRun, split: Literal["test", "dev"], reports: Reports) -> Predictions:
    """The trained model and the baselines on dev or test rows."""
    data = run.plan.data
    records = data.test if split == "test" else data.dev
    assert records is not None
    truth = _truth(run.rows[split], records)
    report = reports.get("dev", {}).get("")
    thresholds = report.thresholds if isinstance(report, MultiLabelReport) else run.thresholds
    baselines: dict[str, Predicted] = {}
    if data.row_type.has_classes:
        baselines[CLASS] = _most_frequent(_truth(run.rows["train"], data.train), truth)
    if len(data.train) <= BASELINE_ROWS:
        baselines[ENCODER] = _Baseline.of(run, split).predict(None, None)
    return Predictions(data.row_type, truth, predictions_of(run, split, thresholds), baselines)


def predictions_of(run: EncoderRun, split: str, thresholds: Mapping[str, float]) -> Predicted:
    """What the model of a run says about the texts of a split."""
    data = run.plan.data
    records = data.test if split == "test" else data.dev
    assert records is not None
    rows = evaluation_rows(run.rows[split], records, data.classes)
    return _decided(outputs(run.model, rows, batch_size=EVALUATION_BATCH), run, thresholds)


def _decided(values: NDArray[np.float32], run: EncoderRun, thresholds: Mapping[str, float]) -> Predicted:
    data = run.plan.data
    if data.row_type.has_text_scores:
        return values[:, 0]
    if data.row_type.multilabel:
        return apply_thresholds(values, data.classes, thresholds)
    return most_likely(values)


def _truth(rows: Rows, records: Records) -> Predicted:
    return np.array(records.scores, dtype=np.float64) if rows.row_type.has_text_scores else rows.labels


def _most_frequent(train: Predicted, truth: Predicted) -> Predicted:
    """The most frequent class, or label, of the training texts for every text."""
    if train.ndim == 2:
        applies = np.zeros(truth.shape, dtype=np.bool_)
        applies[:, train.sum(axis=0).argmax()] = True
        return applies
    return np.full(len(truth), Counter(train.tolist()).most_common(1)[0][0])


@dataclass(frozen=True)
class _Baseline:
    """The untrained encoder with the head of the run; a logistic or ridge one where that is trained with the encoder.

    ``vectors`` are those of the training texts, ``others`` those of the texts to predict, if they are not among them.
    """

    run: EncoderRun
    vectors: NDArray[np.float32]
    others: NDArray[np.float32] | None

    @classmethod
    def of(cls, run: EncoderRun, split: str | None = None) -> _Baseline:
        untrained = run.plan.open(run.accelerator, encoder=run.plan.encoder)
        vectors = {
            name: unit_vectors(untrained.model, untrained.rows[name].table, batch_size=EVALUATION_BATCH)
            for name in ("train", *([] if split is None else [split]))
        }
        return cls(run, vectors["train"], None if split is None else vectors[split])

    def predict(self, inside: NDArray[np.int64] | None, outside: NDArray[np.int64] | None) -> Predicted:
        """What a head that is fitted to the texts inside says about those outside; None: all, and the others."""
        data, recipe = self.run.plan.data, self.run.plan.recipe
        rows = self.run.training_rows(recipe)
        vectors = self.vectors
        if inside is not None:
            rows, vectors = _taken(rows, inside), vectors[inside]
        asked = self.others if outside is None else self.vectors[outside]
        kind: Any = recipe.head.kind
        if kind in TRAINED:
            kind = "ridge" if data.row_type.has_text_scores else "logistic"
        head = fit_to_vectors(kind, vectors, rows, neighbors=recipe.head.neighbors)
        thresholds: dict[str, float] = {}
        if data.row_type.multilabel:
            probabilities, _ = cross_validated(vectors, rows, seed=recipe.seed)
            thresholds = choose_thresholds(rows.labels, probabilities, data.classes)
        with torch.inference_mode():
            logits = head(torch.from_numpy(asked))
        values = logits.sigmoid() if data.row_type.multilabel else logits
        return _decided(values.numpy(), self.run, thresholds)


def _taken(rows: TrainingRows, places: NDArray[np.int64]) -> TrainingRows:
    """Some of the training texts; their token table is of no use any more."""
    return replace(
        rows,
        labels=rows.labels[places],
        scores=None if rows.scores is None else rows.scores[places],
        weights=None if rows.weights is None else rows.weights[places],
        names=0,
    )
