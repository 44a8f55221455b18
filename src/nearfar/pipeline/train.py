"""A whole run: from a recipe to a saved, evaluated model."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate import Accelerator
from rich.console import Console

from nearfar.data import named_splits
from nearfar.encoding import Built, Card, Head, TextModel, TokenTable, save
from nearfar.encoding.masked_words import masked_words
from nearfar.encoding.model_folder import objective_weights
from nearfar.errors import SettingError, counted
from nearfar.evaluation import PairReport, Report, evaluate
from nearfar.files import write_atomic, write_errors
from nearfar.pipeline.card import model_card, versions
from nearfar.pipeline.data import RunData, in_memory, read_data
from nearfar.pipeline.defaults import are_few, parts_of, trains_head
from nearfar.pipeline.heads import fit_head
from nearfar.pipeline.loaders import company, make_loader, twins
from nearfar.pipeline.objectives import build_terms
from nearfar.pipeline.output import (
    CHECKPOINTS,
    JOURNAL,
    METRICS,
    RECIPE,
    check_output,
    check_room,
    has_checkpoint,
    open_output,
)
from nearfar.pipeline.rows import EVALUATION_BATCH, Rows, Scale, evaluation_rows, scale_of, tokenized
from nearfar.pipeline.runtime import QUICK_STEPS, Say, flat, open_accelerator, open_encoder, sayer, watch
from nearfar.pipeline.stages import Stage, plan_stages, unstored, written
from nearfar.recipe import Recipe, to_toml
from nearfar.recipe.objectives import LabelAware, SimCSE
from nearfar.seeds import stream
from nearfar.training import (
    Callback,
    CheckpointStore,
    FitSettings,
    Journal,
    Loader,
    LossModule,
    Plan,
    Progress,
    RunFiles,
    TaskLoss,
    about,
    choose_precision,
    fit,
    plan_run,
)
from nearfar.training.optimizer import Part, freeze, unused_weights
from nearfar.training.precision import Precision


@dataclass(frozen=True)
class Summary:
    """What a finished run reports."""

    out: Path
    progress: Progress | None
    """None when the run in the folder had finished before."""
    reports: dict[str, Report]
    classifies: bool = True
    """Whether the model predicts classes; else it embeds texts."""


def run(
    recipe: Recipe,
    out: Path,
    *,
    data: object = None,
    resume: bool = False,
    overwrite: bool = False,
    console: Console | None = None,
    listeners: tuple[Callback, ...] = (),
    part: bool = False,
) -> Summary:
    """Train what the recipe describes and save it into ``out``.

    Args:
        recipe: what to train.
        out: the folder of the model.
        data: rows in memory in place of the recipe's files: the training rows, or a mapping with ``train``, ``dev`` and
            ``test``. The saved recipe names them ``memory:train`` and so on; to resume, pass the same rows.
        resume: go on with the run in the folder.
        overwrite: replace what is in the folder.
        console: where the run is shown; None for standard error.
        listeners: are told of every step and evaluation.
        part: whether this is part of a run whose processes go on.
    """
    rows = {} if data is None else named_splits(data)
    recipe = replace(recipe, data=in_memory(recipe.data, rows))
    main = int(os.environ.get("RANK", "0")) == 0
    console = console or Console(stderr=True)
    say = sayer(console, speak=main)
    read = read_data(recipe, rows)
    if not check_output(out, resume=resume, overwrite=overwrite, reads=_reads(recipe)):
        say(f"{out}: this run has finished; there is nothing to resume.")
        return Summary(out, None, {})
    accelerator = open_accelerator(out, recipe.training.trackers)
    try:
        return _run(recipe, read, out, accelerator, console, say, listeners, resume=resume, part=part)
    finally:
        if not part:
            accelerator.end_training()


def _run(
    recipe: Recipe, data: RunData, out: Path, accelerator: Accelerator, console: Console, say: Say,
    listeners: tuple[Callback, ...], *, resume: bool, part: bool,
) -> Summary:  # fmt: skip
    main = bool(accelerator.is_main_process)
    stages, notes = plan_stages(recipe, data)
    recipe = stages[-1].recipe
    precision, reason = choose_precision(recipe.training.precision)
    headed = data.row_type.has_classes and any(trains_head(stage.recipe.objective) for stage in stages)
    built = open_encoder(recipe.encoder, classes=data.classes if headed else None, seed=stream(recipe.seed, "head"))
    built.model.to(accelerator.device)
    parts = _parts(built, data)
    mapped = [parts.scale.note] if parts.scale is not None and parts.scale.note else []
    pooled = _unused_pooling(data, built)
    for note in (*data.notes, *mapped, *built.notes, *notes, *pooled, *_truncation(parts.train.table, built)):
        say(f"note: {note}")
    if main:
        weights = sum(4 * weight.numel() for weight in built.model.parameters())
        check_room(out, weights, keep=recipe.training.keep_checkpoints)
    for stage in reversed(stages):  # whatever one of them refuses, it refuses before the first begins
        prepared = [_prepare(stage, built, data, parts, accelerator, precision)]
    say(_opening(recipe, data, built, f"{precision} ({reason})", accelerator))

    recipe_text = to_toml(written(stages))
    if main:
        open_output(out, resume=resume)
        if not has_checkpoint(out):  # else it says already what the run was started with
            write_atomic(out / RECIPE, recipe_text)
    accelerator.wait_for_everyone()
    if recipe.training.trackers:
        accelerator.init_trackers("nearfar", config=flat(asdict(recipe)))
    began = time.perf_counter()
    finished: list[Progress] = []
    for stage in stages:
        ready = prepared.pop() if prepared else _prepare(stage, built, data, parts, accelerator, precision)
        for note in ready.notes:
            say(f"note: {note}")
        say(_announcement(stage, ready))
        identity = _identity(stages[: stage.number], data, accelerator.num_processes)
        followed = part or stage.number < stage.of
        finished.append(
            _train(
                stage, ready, data, parts, out, accelerator, console, listeners, identity=identity, resume=resume,
                followed=followed,
            )
        )  # fmt: skip
        if lost := _lost(finished[-1], stage.recipe):
            say(f"warning: {lost}")
    if data.row_type.has_classes and recipe.head.kind not in ("trained", "auto"):
        built.model.head = parts.fit(recipe)
    reports = {name: task() for name, task in parts.evaluators(recipe, fit=False).items()}
    metrics = _metrics(finished, reports, time.perf_counter() - began)
    if main:
        card = _card(stages, data, built, ready.learner, reports, parts)
        readme = model_card(recipe, recipe_text, data, card, metrics)
        weights_of = objective_weights(ready.learner.objectives)
        with write_errors(out, "the model"):
            write_atomic(out / METRICS, json.dumps(metrics, indent=2, ensure_ascii=False) + "\n")
            save(out, built.model, built.tokenizer, card, readme=readme, objective=weights_of)
        shutil.rmtree(out / CHECKPOINTS, ignore_errors=True)
    accelerator.wait_for_everyone()
    return Summary(out, finished[-1], reports, classifies=data.row_type.has_classes)


@dataclass(frozen=True)
class _Parts:
    """The data, tokenized, and what can be done with it."""

    built: Built
    data: RunData
    scale: Scale | None
    train: Rows
    dev: Rows | None
    test: Rows | None

    def fit(self, recipe: Recipe) -> Head:
        """A class head for the model as it is now, on its device."""
        kind: Any = recipe.head.kind
        head = fit_head(
            kind, self.built.model, self.train.table, self.train.labels, len(self.data.classes),
            neighbors=recipe.head.neighbors, batch_size=EVALUATION_BATCH,
        )  # fmt: skip
        return head.to(next(self.built.model.parameters()).device)

    def evaluators(self, recipe: Recipe, *, fit: bool) -> dict[str, Callable[[], Report]]:
        """What measures the model on the dev and test rows; with ``fit``, under a head fitted to it first."""
        fits = fit and self.data.row_type.has_classes and recipe.head.kind not in ("trained", "auto")
        model, found, thresholds = self.built.model, dict[str, Callable[[], Report]](), dict[str, float]()

        def measure(task: Callable[[], Report]) -> Report:
            if not fits:
                report = task()
            else:
                trained, model.head = model.head, self.fit(recipe)
                try:
                    report = task()
                finally:
                    model.head = trained
            if isinstance(report, PairReport) and report.chosen_here:
                thresholds.update(threshold=report.threshold, accuracy_threshold=report.accuracy_threshold)
            return report

        for name, rows, records in (("dev", self.dev, self.data.dev), ("test", self.test, self.data.test)):
            if rows is not None and records is not None and len(records):
                measured = evaluation_rows(rows, records, self.data.classes)
                chosen = thresholds if name == "test" else None
                task = partial(evaluate, model, measured, batch_size=EVALUATION_BATCH, thresholds=chosen)
                found[name] = lambda task=task: measure(task)  # type: ignore[misc]
        return found


def _parts(built: Built, data: RunData) -> _Parts:
    scale = scale_of(data)
    train, dev, test = (
        None if records is None else tokenized(built, data, records, scale)
        for records in (data.train, data.dev, data.test)
    )
    assert train is not None
    return _Parts(built, data, scale, train, dev, test)


@dataclass(frozen=True)
class _Ready:
    """A stage that can begin."""

    learner: LossModule
    feed: Loader
    plan: Plan
    notes: list[str]
    seconds: float | None
    """What it will take, about; None where finding out would take a good part of it."""


def _prepare(
    stage: Stage, built: Built, data: RunData, parts: _Parts, accelerator: Accelerator, precision: Precision
) -> _Ready:
    recipe, model = stage.recipe, built.model
    for weight in model.parameters():
        weight.requires_grad = True  # an earlier stage may have had no use for it
    terms, notes = build_terms(
        recipe.objective,
        classes=data.classes,
        dim=model.dim,
        labels=parts.train.labels,
        seed=stage.stream("objective"),
        graded=data.row_type.has_scores,
    )
    weighting = None
    aware = [part for part in parts_of(recipe.objective) if isinstance(part, LabelAware)]
    if aware:
        weighting = _weighting(recipe, aware[0], built, data, stage.stream("weighting"))
    projection = None
    if data.row_type.views and any(isinstance(part, SimCSE) and part.projection for part in parts_of(recipe.objective)):
        projection = _projection(model.dim, stage.stream("projection"))
    masked = None
    if any(isinstance(part, SimCSE) and part.mlm_weight for part in parts_of(recipe.objective)):
        masked, told = masked_words(recipe.encoder.name, built, seed=stage.stream("masked-words"))
        notes += [told] if told else []
    learner = LossModule(
        model, [TaskLoss(tuple(terms))], precision=precision, weighting=weighting, projection=projection, masked=masked
    )
    learner.to(accelerator.device)
    feed = make_loader(stage, built, data, parts.train)
    notes += [*company(feed, recipe), *twins(feed, recipe, data, built)]
    plan = plan_run(feed, recipe.training)
    chunk = recipe.batches.chunk
    size = min(recipe.batches.size or 1, chunk * accelerator.num_processes if chunk else len(feed))
    per_batch, frozen = _try_out(learner, feed, accelerator, size, timed=plan.steps > QUICK_STEPS)
    if frozen:
        notes.append(f"weights that take no part in this objective stay as they are: {', '.join(frozen[:4])}")
    seconds = None if per_batch is None else _estimate(per_batch, plan, recipe)
    return _Ready(learner, feed, plan, notes, seconds)


def _train(
    stage: Stage, ready: _Ready, data: RunData, parts: _Parts, out: Path, accelerator: Accelerator, console: Console,
    listeners: tuple[Callback, ...], *, identity: str, resume: bool, followed: bool,
) -> Progress:  # fmt: skip
    main, recipe = bool(accelerator.is_main_process), stage.recipe
    folder, journal = out / CHECKPOINTS / stage.folder, out / stage.journal(JOURNAL)
    store = CheckpointStore(folder, keep=recipe.training.keep_checkpoints)
    watcher = watch(console, ready.plan.steps, main=main)
    dev = parts.evaluators(recipe, fit=True).get("dev")
    try:
        return fit(
            ready.learner, ready.feed,
            FitSettings(
                training=recipe.training, rates=_rates(recipe), seed=stage.seed, chunk=recipe.batches.chunk,
                evaluate_at_start=not data.row_type.has_classes,
            ),
            RunFiles(
                store=store, journal=Journal(journal if main else None), identity=identity, resume=resume,
                followed=followed,
            ),
            accelerator=accelerator, callbacks=(watcher, *listeners),
            evaluate=None if dev is None else lambda: dev().scores,
        )  # fmt: skip
    finally:
        watcher.end()


def _lost(progress: Progress, recipe: Recipe) -> str | None:
    """What to say where the weights from before the training were the best."""
    if progress.best is None or progress.best["step"] != 0 or len(progress.evaluations) < 2:
        return None
    metric = recipe.training.metric
    before = progress.best["scores"][metric]
    after = max(entry["scores"][metric] for entry in progress.evaluations[1:])
    if after == before:
        return (
            f"the dev {metric} stayed at {before:.4f} at best, so the encoder is kept as it was; more texts or epochs, "
            "or another objective, may do better"
        )
    return (
        f"the dev {metric} fell from {before:.4f} to {after:.4f} at best, so the encoder is kept as it was; these "
        "texts may have nothing to teach it, or a lower training.learning_rate may help"
    )


def _weighting(recipe: Recipe, settings: LabelAware, built: Built, data: RunData, seed: int) -> TextModel:
    name = settings.weighting or recipe.encoder.name
    helper = open_encoder(recipe.encoder, classes=data.classes, seed=seed, name=name)
    if name != recipe.encoder.name and helper.tokenizer.get_vocab() != built.tokenizer.get_vocab():
        raise SettingError(
            f"objective.weighting is {name!r}, whose vocabulary is not that of encoder.name {recipe.encoder.name!r}: "
            "both read the same tokens; leave objective.weighting out, or name an encoder of the same family."
        )
    return helper.model


def _rates(recipe: Recipe) -> dict[Part, float]:
    rate = recipe.training.learning_rate
    assert rate is not None
    own_head = recipe.encoder.pooling is not None
    return {
        "encoder": rate,
        "head": recipe.training.head_learning_rate or (100 * rate if own_head else rate),
        "objective": recipe.objective.learning_rate or 100 * rate,
    }


def _projection(dim: int, seed: int) -> torch.nn.Module:
    """SimCSE's layer between vectors and objective: it takes part in training only, and is not saved."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return torch.nn.Sequential(torch.nn.Linear(dim, dim), torch.nn.Tanh())


def _try_out(
    learner: LossModule, feed: Loader, accelerator: Accelerator, size: int, *, timed: bool
) -> tuple[float | None, list[str]]:
    """Two rows forward and backward: which weights take part. With ``timed``, also how long ``size`` rows take."""
    learner.train()
    seconds, frozen = None, list[str]()
    every = np.arange(len(feed))
    rank, world = accelerator.process_index, accelerator.num_processes
    with torch.random.fork_rng(devices=[]):
        for rows in (every[:2], every[:: max(1, len(feed) // size)][:size])[: 1 + timed]:
            began = time.perf_counter()
            (batch,) = feed.batches(learner.model, rows, None, rank=rank, world=world)
            total, _ = learner(batch.to(accelerator.device))
            total.backward()
            seconds = time.perf_counter() - began
            if not frozen:
                frozen = unused_weights(learner)
                freeze(learner, frozen)
            learner.zero_grad(set_to_none=True)
    return seconds if timed else None, frozen


def _estimate(per_batch: float, plan: Plan, recipe: Recipe) -> float:
    """Seconds a run will take, from those of one batch; in chunks every text goes forward twice."""
    chunk = recipe.batches.chunk
    pieces = 1.0 if chunk is None else max(1.0, (recipe.batches.size or 0) / chunk)
    return per_batch * pieces * (4 / 3 if pieces > 1 else 1.0) * plan.steps * recipe.training.accumulate


def _card(
    stages: list[Stage], data: RunData, built: Built, learner: LossModule, reports: dict[str, Report], parts: _Parts
) -> Card:
    head, recipe = built.model.head, stages[-1].recipe
    task: dict[str, Any] = {"kind": str(data.row_type)}
    if parts.scale is not None:
        task |= {"low": parts.scale.low, "high": parts.scale.high}
    if isinstance(found := reports.get("dev"), PairReport):
        task |= {"threshold": found.threshold, "accuracy_threshold": found.accuracy_threshold}
    return Card(
        pooling=built.model.pooling,
        max_length=built.max_length,
        native=built.model.native,
        labels=data.classes if data.row_type.has_classes else None,
        normalize=built.normalize,
        joined=data.row_type.has_classes and data.train.shape == "pairs",
        head=None if head is None else head.describe(),
        objective={**asdict(recipe.objective), "weights": sorted(learner.objectives.state_dict())},
        versions=versions(),
        task=task,
    )


def _metrics(finished: list[Progress], reports: dict[str, Report], seconds: float) -> dict[str, Any]:
    last = finished[-1]
    texts, spent = sum(progress.texts for progress in finished), sum(progress.seconds for progress in finished)
    return {
        **{name: report.to_dict() for name, report in reports.items()},
        "training": {
            "steps": last.step,
            "best_step": last.best["step"] if last.best else last.step,
            "evaluations": last.evaluations,
            "texts_per_second": texts / spent if spent else None,
            "seconds": seconds,
            **({"stages": [progress.step for progress in finished]} if len(finished) > 1 else {}),
        },
    }


def _reads(recipe: Recipe) -> list[object]:
    """What a run is made from, files and folders among it."""
    objectives = [recipe.objective, *(stage.objective for stage in recipe.stage)]
    aware = [part for one in objectives for part in parts_of(one) if isinstance(part, LabelAware)]
    data = recipe.data
    return [data.train, data.dev, data.test, recipe.encoder.name, *(part.weighting for part in aware)]


def _identity(stages: list[Stage], data: RunData, processes: int) -> str:
    """What must be equal for a checkpoint of the last of these stages to be continued.

    Where and how often things are stored does not matter.
    """
    text = "\n".join(to_toml(unstored(stage.recipe)) for stage in stages)
    return hashlib.sha256(f"{text}\n{data.fingerprint()}\n{processes}".encode()).hexdigest()


def _unused_pooling(data: RunData, built: Built) -> list[str]:
    """What is lost where few texts are to teach the architecture's own head on a sentence encoder."""
    if not (built.model.native and built.pools) or not are_few(len(data.train), len(data.classes)):
        return []
    return [
        f"the architecture's own class head does not read the {built.model.pooling}-pooled vectors of this "
        f"sentence encoder; with few texts, --pooling {built.model.pooling} learns faster"
    ]


def _truncation(table: TokenTable, built: Built) -> list[str]:
    if not table.truncated:
        return []
    share = 100 * table.truncated / len(table)
    return [
        f"{table.truncated:,} training texts ({share:.1f} %) are longer than {built.max_length} tokens and are cut "
        "there; encoder.max_length sets the limit"
    ]


def _opening(recipe: Recipe, data: RunData, built: Built, precision: str, accelerator: Accelerator) -> str:
    weights = sum(weight.numel() for weight in built.model.parameters())
    parts = (("train", data.train), ("dev", data.dev), ("test", data.test))
    sizes = ", ".join(f"{name} {len(records):,}" for name, records in parts if records is not None)
    about = f"{len(data.classes)} classes" if data.row_type.has_classes else data.row_type.wording
    where = (
        f"{accelerator.device.type} x {accelerator.num_processes}"
        if accelerator.num_processes > 1
        else accelerator.device.type
    )
    return (
        f"rows: {sizes}; {about}\n"
        f"encoder: {recipe.encoder.name}, {weights / 1e6:.1f}M weights, {built.max_length} tokens; "
        f"{precision} on {where}"
    )


def _announcement(stage: Stage, ready: _Ready) -> str:
    recipe = stage.recipe
    limit = recipe.training.max_steps
    stop = "" if limit is None else f", at most {counted(limit, 'step')}"
    return (
        f"{stage.title}objective: {recipe.objective.name}; "
        f"{counted(len(ready.feed.sampler), 'batch', 'batches')} of {recipe.batches.size} an epoch, "
        f"{counted(recipe.training.epochs or 0, 'epoch')}{stop}; "
        f"{counted(ready.plan.steps, 'step')}" + ("" if ready.seconds is None else f", {about(ready.seconds)}")
    )
