"""A whole run of several tasks: from a recipe with ``[[task]]`` tables to one saved, evaluated model."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate import Accelerator
from rich.console import Console

from nearfar.batching import Rows
from nearfar.batching.schedules import Schedule, describe
from nearfar.encoding import Built, Card, save
from nearfar.encoding.model_folder import CARD, objective_weights
from nearfar.encoding.task_model import TaskNetwork, describe_tasks, save_heads
from nearfar.errors import CheckpointError, counted
from nearfar.evaluation import Report
from nearfar.files import write_atomic, write_errors
from nearfar.pipeline.card import versions
from nearfar.pipeline.data import read_data
from nearfar.pipeline.output import (
    CHECKPOINTS,
    JOURNAL,
    METRICS,
    RECIPE,
    STAGES,
    check_output,
    check_room,
    has_checkpoint,
    open_output,
)
from nearfar.pipeline.runtime import QUICK_STEPS, Say, flat, open_accelerator, open_encoder, sayer, watch
from nearfar.pipeline.stages import plan_stages, unstored, written
from nearfar.pipeline.task_card import task_readme
from nearfar.pipeline.task_plan import plain_stage, plan_tasks, schedule_of, with_memory
from nearfar.pipeline.task_scores import MEAN, evaluators_of, finished, mean_scores, metrics_of
from nearfar.pipeline.tasks import Ready, build_loss, level, make_task_loader
from nearfar.pipeline.train import run
from nearfar.recipe import Recipe, Training, read_recipe
from nearfar.recipe.tasks import TaskRecipe, task_toml
from nearfar.seeds import stream
from nearfar.training import (
    Callback,
    CheckpointStore,
    FitSettings,
    Journal,
    LossModule,
    MultiTaskLoader,
    Plan,
    Progress,
    RunFiles,
    about,
    choose_precision,
    fit,
    plan_run,
    read_journal,
)
from nearfar.training.optimizer import freeze, unused_weights

HEAD_FACTOR = 20
"""How much faster heads learn than the encoder, where nothing else is said."""


@dataclass(frozen=True)
class TaskSummary:
    """What a finished run of several tasks reports."""

    out: Path
    progress: Progress | None
    """None when the run in the folder had finished before."""
    reports: dict[str, dict[str, Report]]
    """For dev and test, where there is any, the report of each task."""
    metrics: dict[str, str]
    """The score of each task that counts in the mean."""


def run_tasks(
    recipe: TaskRecipe,
    out: Path,
    *,
    data: Mapping[str, object] | None = None,
    resume: bool = False,
    overwrite: bool = False,
    console: Console | None = None,
    listeners: tuple[Callback, ...] = (),
) -> TaskSummary:
    """Train the tasks of a recipe, after its stages, and save encoder and heads into ``out``.

    Args:
        recipe: what to train.
        out: the folder of the model.
        data: for tasks by their names, rows in memory in place of their files, each as :func:`nearfar.pipeline.run`
            takes them.
        resume: go on with the run in the folder.
        overwrite: replace what is in the folder.
        console: where the run is shown; None for standard error.
        listeners: are told of every step and evaluation.
    """
    main = int(os.environ.get("RANK", "0")) == 0
    console = console or Console(stderr=True)
    say = sayer(console, speak=main)
    recipe, memory = with_memory(recipe, data or {})
    recipe, tasks, notes = plan_tasks(recipe, memory)
    metrics = {ready.name: ready.card.metric for ready in tasks}
    if not check_output(out, resume=resume, overwrite=overwrite, reads=_reads(recipe)):
        say(f"{out}: this run has finished; there is nothing to resume.")
        return TaskSummary(out, None, {}, metrics)
    accelerator = open_accelerator(out, recipe.training.trackers)  # may be refused, so before anything is replaced
    try:
        for note in notes:
            say(f"note: {note}")
        built = open_encoder(recipe.encoder, classes=None, seed=stream(recipe.seed, "head"))  # the same
        if main:
            open_output(out, resume=resume)
            if not (out / RECIPE).exists():
                write_atomic(out / RECIPE, task_toml(recipe))
        accelerator.wait_for_everyone()
        if recipe.stage:
            built = _after_stages(recipe, out, accelerator, console, say)
        if main and not has_checkpoint(out):  # a resumed run may have begun with another recipe, and left no checkpoint
            write_atomic(out / RECIPE, task_toml(recipe))
        if recipe.training.trackers:
            accelerator.init_trackers("nearfar", config=_config(recipe))
        return _run(recipe, tasks, built, out, accelerator, console, say, listeners, resume=resume)
    finally:
        accelerator.end_training()


def _after_stages(recipe: TaskRecipe, out: Path, accelerator: Accelerator, console: Console, say: Say) -> Built:
    """Train the stages before the tasks, those that are not there yet; the encoder as the last one leaves it."""
    folders = [out / STAGES / str(number) for number in range(1, len(recipe.stage) + 1)]
    begun, done = [folder.exists() for folder in folders], [(folder / CARD).is_file() for folder in folders]
    accelerator.wait_for_everyone()  # nobody looks any more when the first process begins a folder
    encoder = recipe.encoder.name
    for place, (stage, folder) in enumerate(zip(recipe.stage, folders, strict=True)):
        trained = " (trained before)" if done[place] else ""
        say(f"stage {place + 1} of {len(folders)}, before the tasks: {stage.objective.name}{trained}")
        plain = plain_stage(recipe, stage, encoder, place + 1)
        if done[place]:
            _check_trained(plain, folder)
        else:
            run(plain, folder, resume=begun[place], console=console, part=True)
        encoder = str(folder.absolute())
    return open_encoder(recipe.encoder, classes=None, seed=stream(recipe.seed, "head"), name=encoder)


def _check_trained(plain: Recipe, folder: Path) -> None:
    """Refuse a stage that another recipe has trained; the encoder of a later one is what the stage before it left."""
    stages, _ = plan_stages(plain, read_data(plain))
    wanted, found = unstored(written(stages)), unstored(read_recipe(folder / RECIPE))
    if folder.name != "1":
        found = replace(found, encoder=replace(found.encoder, name=wanted.encoder.name))
    if found != wanted:
        raise CheckpointError(
            f"{folder}: this stage was trained by another recipe. Resume with what it was started with, or start over "
            "with --overwrite."
        )


def _reads(recipe: TaskRecipe) -> list[object]:
    """What a run is made from, files and folders among it."""
    tables = [*(task.data for task in recipe.task), *(stage.data for stage in recipe.stage)]
    return [recipe.encoder.name, *(source for data in tables for source in (data.train, data.dev, data.test))]


def _config(recipe: TaskRecipe) -> dict[str, Any]:
    """The settings as trackers take them, those of a task under its name."""
    values = asdict(recipe)
    values["task"] = {task.pop("name"): task for task in values["task"]}
    values["stage"] = {str(number): stage for number, stage in enumerate(values["stage"], 1)}
    return flat(values)


def _run(
    recipe: TaskRecipe, tasks: list[Ready], built: Built, out: Path, accelerator: Accelerator, console: Console,
    say: Say, listeners: tuple[Callback, ...], *, resume: bool,
) -> TaskSummary:  # fmt: skip
    main = bool(accelerator.is_main_process)
    precision, reason = choose_precision(recipe.training.precision)
    cards = [ready.card for ready in tasks]
    network = TaskNetwork(built.model, cards, shared=recipe.shared_layer, seed=stream(recipe.seed, "heads") % 2**62)
    aims, feeds = [], {}
    for note in built.notes:
        say(f"note: {note}")
    for ready in tasks:
        aim, told = build_loss(ready, built.model.dim, recipe.seed)
        aims.append(aim)
        feeds[ready.name] = make_task_loader(ready, aim, built, recipe)
        level(ready, built, network)
        cut = feeds[ready.name].tokens.truncated
        told += [
            f"task {ready.name}: {cut:,} texts are longer than {built.max_length} tokens and are cut there"
        ] * bool(cut)
        for note in told:
            say(f"note: {note}")
    epochs = recipe.training.epochs or 0
    schedule = schedule_of(recipe, {name: len(feed.sampler) for name, feed in feeds.items()}, epochs)
    feed = MultiTaskLoader(feeds, schedule)
    learner = LossModule(network, aims, precision=precision, uncertainty=recipe.training.weighting == "uncertainty").to(
        accelerator.device
    )
    if main:
        check_room(
            out, sum(4 * weight.numel() for weight in learner.parameters()), keep=recipe.training.keep_checkpoints
        )
    training = replace(recipe.training, metric=MEAN)
    plan = plan_run(feed, training)
    seconds, frozen = _try_out(learner, feed, accelerator, timed=plan.steps > QUICK_STEPS)
    if frozen:
        say(f"note: weights that take no part in any task stay as they are: {', '.join(frozen[:4])}")
    weights = sum(weight.numel() for weight in learner.parameters())
    say(_opening(recipe, tasks, built, weights, f"{precision} ({reason}) on {accelerator.device.type}"))
    for line in _turns(schedule, epochs):
        say(line)
    say(_announcement(recipe, plan, None if seconds is None else _estimate(seconds, schedule, plan, recipe)))
    if recipe.training.gradient_surgery != "none":
        say(f"surgery holds {_held(network, len(tasks)):,.0f} MB of gradients more than a step without it")
    evaluators = evaluators_of(tasks, built, network)
    identity = _identity(recipe, tasks, accelerator.num_processes)
    progress = _train(
        recipe, training, learner, feed, plan, evaluators.get("dev"), out, accelerator, console, listeners,
        identity=identity, resume=resume,
    )  # fmt: skip
    reports = {split: evaluate() for split, evaluate in evaluators.items()}
    cards = [finished(ready, reports) for ready in tasks]
    if main:
        journal = read_journal(out / JOURNAL)
        found = metrics_of(tasks, progress, reports, journal, learner)
        card = Card(
            pooling=built.model.pooling, max_length=built.max_length, native=False, normalize=built.normalize,
            objective={ready.name: ready.task.objective.name for ready in tasks}, versions=versions(),
            task=describe_tasks(cards, shared=recipe.shared_layer),
        )  # fmt: skip
        readme = task_readme(recipe, tasks, cards, card, found)
        with write_errors(out, "the model"):
            write_atomic(out / METRICS, json.dumps(found, indent=2, ensure_ascii=False) + "\n")
            save_heads(out, network, objective_weights(learner.objectives))
            save(out, built.model, built.tokenizer, card, readme=readme)
        _tidy(out, len(recipe.stage))
    accelerator.wait_for_everyone()
    return TaskSummary(out, progress, reports, {ready.name: ready.card.metric for ready in tasks})


def _train(
    recipe: TaskRecipe, training: Training, learner: LossModule, feed: MultiTaskLoader, plan: Plan,
    evaluate: Callable[[], dict[str, Report]] | None, out: Path, accelerator: Accelerator, console: Console,
    listeners: tuple[Callback, ...], *, identity: str, resume: bool,
) -> Progress:  # fmt: skip
    main = bool(accelerator.is_main_process)
    rate = training.learning_rate
    assert rate is not None
    watcher = watch(console, plan.steps, main=main)
    metrics: dict[str, str] = {task.name: task.metric for task in recipe.task}

    def scores() -> dict[str, float]:
        assert evaluate is not None
        return mean_scores(evaluate(), metrics)

    try:
        return fit(
            learner, feed,
            FitSettings(
                training=training, seed=recipe.seed, chunk=recipe.batches.chunk,
                rates={"encoder": rate, "head": training.head_learning_rate or HEAD_FACTOR * rate,
                       "objective": 100 * rate},
                pcgrad=recipe.training.combine if recipe.training.gradient_surgery == "pcgrad" else None,
            ),
            RunFiles(
                store=CheckpointStore(out / CHECKPOINTS, keep=training.keep_checkpoints),
                journal=Journal(out / JOURNAL if main else None), identity=identity, resume=resume,
            ),
            accelerator=accelerator, callbacks=(watcher, *listeners), evaluate=None if evaluate is None else scores,
        )  # fmt: skip
    finally:
        watcher.end()


def _try_out(
    learner: LossModule, feed: MultiTaskLoader, accelerator: Accelerator, *, timed: bool
) -> tuple[dict[str, float] | None, list[str]]:
    """Two rows of each task forward and backward: which weights take part. With ``timed``, also a batch of each."""
    learner.train()
    rank, world = accelerator.process_index, accelerator.num_processes
    seconds: dict[str, float] = {}
    first: dict[str, Rows] = {}
    for rows in feed.sampler.batches(0):
        first.setdefault(feed.task_of(rows), rows)
    start = 0
    with torch.random.fork_rng(devices=[]):
        for own in feed.loaders.values():
            few = start + np.arange(min(2, len(own)))
            start += len(own)
            for batch in feed.batches(learner.model, few, None, rank=rank, world=world):
                learner(batch.to(accelerator.device))[0].backward()
        frozen = unused_weights(learner)
        freeze(learner, frozen)
        learner.zero_grad(set_to_none=True)
        for name, rows in first.items() if timed else ():
            began = time.perf_counter()
            for batch in feed.batches(learner.model, rows[:16], None, rank=rank, world=world):
                learner(batch.to(accelerator.device))[0].backward()
            seconds[name] = (time.perf_counter() - began) / len(rows[:16])
            learner.zero_grad(set_to_none=True)
    return seconds if timed else None, frozen


def _estimate(per_row: dict[str, float], schedule: Schedule, plan: Plan, recipe: TaskRecipe) -> float:
    """Seconds a run will take, from those of a few rows of each task."""
    sizes = {task.name: task.batch_size or recipe.batches.size for task in recipe.task}
    steps = schedule.steps_per_task(0)
    epoch = sum(steps[name] * sizes[name] * per_row.get(name, 0.0) for name in steps)
    return epoch * plan.steps / plan.steps_per_epoch


def _opening(recipe: TaskRecipe, tasks: list[Ready], built: Built, weights: int, where: str) -> str:
    lines = []
    for ready in tasks:
        parts = (("train", ready.data.train), ("dev", ready.data.dev), ("test", ready.data.test))
        sizes = ", ".join(f"{name} {len(records):,}" for name, records in parts if records is not None)
        about = "scores" if ready.card.labels is None else counted(len(ready.card.labels), "label")
        lines.append(f"task {ready.name}: {sizes}; {about}, head {ready.card.head['kind']}, {ready.card.metric}")
    shared = ", a shared layer" if recipe.shared_layer else ""
    lines.append(
        f"encoder: {recipe.encoder.name}, {weights / 1e6:.1f}M weights with heads{shared}, {built.max_length} tokens; "
        f"{where}"
    )
    return "\n".join(lines)


def _turns(schedule: Schedule, epochs: int) -> list[str]:
    """What each task has of an epoch, once where all epochs have the same."""
    told = [describe(schedule, epoch).replace(" steps:", " batches:") for epoch in range(epochs)]
    if len(set(told)) == 1:
        return [f"batches of an epoch: {told[0]}"]
    return [f"batches of epoch {number}: {line}" for number, line in enumerate(told, 1)]


def _announcement(recipe: TaskRecipe, plan: Plan, seconds: float | None) -> str:
    training = recipe.training
    how = [f"schedule: {recipe.schedule.kind}"]
    if training.gradient_surgery != "none":
        how.append(f"gradient surgery: {training.gradient_surgery}")
    if training.weighting != "fixed":
        how.append(f"weights by {training.weighting}")
    if training.accumulate > 1:
        how.append(f"{training.accumulate} batches a step")
    spent = "" if seconds is None else f", {about(seconds)}"
    return f"{'; '.join(how)}; {counted(training.epochs or 0, 'epoch')}; {counted(plan.steps, 'step')}{spent}"


def _held(network: TaskNetwork, tasks: int) -> float:
    """MB of the gradients of shared weights that wait for those of the other tasks, at most."""
    trained = [weight for weight in network.shared_weights() if weight.requires_grad]
    return (tasks - 1) * sum(weight.numel() * weight.element_size() for weight in trained) / 2**20


def _identity(recipe: TaskRecipe, tasks: list[Ready], processes: int) -> str:
    """What must be equal for a checkpoint to be continued; where and how often things are stored does not matter."""
    plain = replace(recipe.training, trackers=(), keep_checkpoints=1, checkpoint_every="epoch")
    prints = " ".join(ready.data.fingerprint() for ready in tasks)
    text = task_toml(replace(recipe, training=plain))
    return hashlib.sha256(f"{text}\n{prints}\n{processes}".encode()).hexdigest()


def _tidy(out: Path, stages: int) -> None:
    """Remove what only a resumed run needs; of the stages, keep the journals."""
    for number in range(1, stages + 1):
        journal = out / STAGES / str(number) / JOURNAL
        if journal.is_file():
            os.replace(journal, out / JOURNAL.replace(".", f"-stage-{number}.", 1))
    shutil.rmtree(out / STAGES, ignore_errors=True)
    shutil.rmtree(out / CHECKPOINTS, ignore_errors=True)
