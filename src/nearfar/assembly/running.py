"""A whole run: from a recipe to a saved, evaluated model."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from rich.console import Console

from nearfar.assembly.card import model_card, versions
from nearfar.assembly.data import RunData, class_numbers, read_data
from nearfar.assembly.objectives import build_terms
from nearfar.assembly.output import (
    CHECKPOINTS,
    JOURNAL,
    METRICS,
    RECIPE,
    check_output,
    check_room,
    open_output,
    write_whole,
)
from nearfar.batching import FileOrder, RandomOrder
from nearfar.data import Records
from nearfar.encoding import Built, Card, TokenTable, build, save, tokenize
from nearfar.encoding.bundle import objective_weights
from nearfar.errors import SettingError, counted
from nearfar.evaluation import ClassReport, evaluate_classes
from nearfar.recipe import Recipe, to_toml
from nearfar.seeding import stream
from nearfar.training import (
    CheckpointStore,
    Feed,
    Journal,
    Learner,
    Listener,
    LiveBar,
    PlainLog,
    Plan,
    Progress,
    choose_precision,
    duration,
    fit,
    plan_run,
)
from nearfar.training.optim import Part, freeze, unused_weights

EVALUATION_BATCH = 64


@dataclass(frozen=True)
class Summary:
    """What a finished run reports."""

    out: Path
    progress: Progress | None
    """None when the run in the folder had finished before."""
    reports: dict[str, ClassReport]


def run(
    recipe: Recipe,
    out: Path,
    *,
    resume: bool = False,
    overwrite: bool = False,
    console: Console | None = None,
    listeners: tuple[Listener, ...] = (),
) -> Summary:
    """Train what the recipe describes and save it into ``out``."""
    main = int(os.environ.get("RANK", "0")) == 0
    console = console or Console(stderr=True)
    say = _sayer(console, speak=main)
    data = read_data(recipe)
    if not check_output(out, resume=resume, overwrite=overwrite):
        say(f"{out}: this run has finished; there is nothing to resume.")
        return Summary(out, None, {})
    accelerator = Accelerator(
        mixed_precision="no",  # the learner sets the precision itself, so that runs of one process may differ in it
        cpu=not (torch.cuda.is_available() or torch.backends.mps.is_available()),
        log_with=[_available(tracker) for tracker in recipe.training.trackers] or None,
        project_dir=str(out),
    )
    try:
        return _run(recipe, data, out, accelerator, console, say, listeners, resume=resume)
    finally:
        accelerator.end_training()


def _run(
    recipe: Recipe, data: RunData, out: Path, accelerator: Accelerator, console: Console, say: Callable[[str], None],
    listeners: tuple[Listener, ...], *, resume: bool,
) -> Summary:  # fmt: skip
    main = bool(accelerator.is_main_process)
    precision, reason = choose_precision(recipe.training.precision)
    built = build(
        recipe.encoder.name, classes=data.classes, seed=stream(recipe.seed, "head"), pooling=recipe.encoder.pooling,
        max_length=recipe.encoder.max_length, dropout=recipe.encoder.dropout, fast=recipe.encoder.fast,
    )  # fmt: skip
    table, labels = _tokens(built, data.train), class_numbers(data.train, data.classes)
    terms, notes = build_terms(
        recipe.objective,
        classes=data.classes,
        dim=built.model.dim,
        labels=labels,
        seed=stream(recipe.seed, "objective"),
    )
    learner = Learner(built.model, terms, precision=precision).to(accelerator.device)
    if main:
        check_room(
            out, sum(4 * weight.numel() for weight in learner.parameters()), keep=recipe.training.keep_checkpoints
        )
    feed = _feed(recipe, table, labels, data.train)
    for note in (*data.notes, *built.notes, *notes, *_truncation(table, built)):
        say(f"note: {note}")
    plan = plan_run(feed, recipe.training)
    per_batch, frozen = _try_out(learner, feed, accelerator, recipe.batches.chunk)
    if frozen:
        say(f"note: weights that take no part in this objective stay as they are: {', '.join(frozen[:4])}")
    say(_opening(recipe, data, built, len(feed.sampler), f"{precision} ({reason})", accelerator))
    say(f"{counted(plan.steps, 'step')}, about {duration(_estimate(per_batch, plan, recipe))}")

    dev = _evaluator(built, data, data.dev)
    recipe_text = to_toml(recipe)
    if main:
        open_output(out, resume=resume)
        if not (out / RECIPE).exists():  # of a resumed run it says already what that was started with
            write_whole(out / RECIPE, recipe_text)
    accelerator.wait_for_everyone()
    if recipe.training.trackers:
        accelerator.init_trackers("nearfar", config=_flat(asdict(recipe)))
    store = CheckpointStore(out / CHECKPOINTS, keep=recipe.training.keep_checkpoints)
    watcher = (LiveBar if console.is_terminal and main else PlainLog)(console if main else _silent(), plan.steps)
    began = time.perf_counter()
    try:
        progress = fit(
            learner, feed, recipe.training, rates=_rates(recipe), seed=recipe.seed, chunk=recipe.batches.chunk,
            accelerator=accelerator,
            store=store, journal=Journal(out / JOURNAL if main else None), listeners=(watcher, *listeners),
            evaluate=None if dev is None else lambda: dev().scores,
            identity=_identity(recipe, data, accelerator.num_processes), resume=resume,
        )  # fmt: skip
    finally:
        watcher.close()
    test = _evaluator(built, data, data.test)
    reports = {name: task() for name, task in (("dev", dev), ("test", test)) if task is not None}
    metrics = _metrics(progress, reports, time.perf_counter() - began)
    if main:
        card = _card(recipe, data, built, learner)
        readme = model_card(recipe, recipe_text, data, card, metrics)
        write_whole(out / METRICS, json.dumps(metrics, indent=2, ensure_ascii=False) + "\n")
        save(out, built.model, built.tokenizer, card, readme=readme, objective=objective_weights(learner.objectives))
        store.clear()
    accelerator.wait_for_everyone()
    return Summary(out, progress, reports)


def _tokens(built: Built, records: Records) -> TokenTable:
    return tokenize(built.tokenizer, records.texts, max_length=built.max_length)


def _feed(recipe: Recipe, table: TokenTable, labels: Any, train: Records) -> Feed:
    size = recipe.batches.size
    random = recipe.batches.shuffle == "random"
    sampler = (
        RandomOrder(rows=len(table), size=size, seed=recipe.seed) if random else FileOrder(rows=len(table), size=size)
    )
    return Feed(table, labels, sampler, tuple(train.lines), train.source)


def _rates(recipe: Recipe) -> dict[Part, float]:
    rate = recipe.training.learning_rate
    own_head = recipe.encoder.pooling is not None
    return {
        "encoder": rate,
        "head": recipe.training.head_learning_rate or (100 * rate if own_head else rate),
        "objective": recipe.objective.learning_rate or 100 * rate,
    }


def _evaluator(built: Built, data: RunData, records: Records | None) -> Callable[[], ClassReport] | None:
    if records is None or not len(records):
        return None
    table, truth = _tokens(built, records), class_numbers(records, data.classes)
    return lambda: evaluate_classes(built.model, table, truth, data.classes, batch_size=EVALUATION_BATCH)


def _try_out(
    learner: Learner, feed: Feed, accelerator: Accelerator, chunk: int | None = None
) -> tuple[float, list[str]]:
    """One small and one whole batch forward and backward: which weights take part, and how long a batch takes."""
    order = feed.sampler.batches(0)
    learner.train()
    seconds = 0.0
    frozen: list[str] = []
    with torch.random.fork_rng(devices=[]):
        for place, rows in enumerate((order[0][:2], order[len(order) // 2])):
            began = time.perf_counter()
            rows = rows[: chunk * accelerator.num_processes] if chunk else rows
            rank, world = accelerator.process_index, accelerator.num_processes
            (batch,) = feed.batches(learner.model, rows, None, rank=rank, world=world)
            total, _ = learner(batch.to(accelerator.device))
            total.backward()
            seconds = time.perf_counter() - began
            if place == 0:
                frozen = unused_weights(learner)
                freeze(learner, frozen)
            learner.zero_grad(set_to_none=True)
    return seconds, frozen


def _estimate(per_batch: float, plan: Plan, recipe: Recipe) -> float:
    """Seconds a run will take, from those of one batch; in chunks every text goes forward twice."""
    chunk = recipe.batches.chunk
    pieces = 1.0 if chunk is None else max(1.0, recipe.batches.size / chunk)
    return per_batch * pieces * (4 / 3 if pieces > 1 else 1.0) * plan.steps * recipe.training.accumulate


def _card(recipe: Recipe, data: RunData, built: Built, learner: Learner) -> Card:
    head = built.model.head
    return Card(
        pooling=built.model.pooling,
        max_length=built.max_length,
        native=built.model.native,
        labels=data.classes,
        normalize=built.normalize,
        joined=data.train.shape == "pairs",
        head=None if head is None else {"kind": "linear", "dropout": head.dropout.p},
        objective={**asdict(recipe.objective), "weights": sorted(learner.objectives.state_dict())},
        versions=versions(),
    )


def _metrics(progress: Progress, reports: dict[str, ClassReport], seconds: float) -> dict[str, Any]:
    return {
        **{name: report.to_dict() for name, report in reports.items()},
        "training": {
            "steps": progress.step,
            "best_step": progress.best["step"] if progress.best else progress.step,
            "evaluations": progress.evaluations,
            "texts_per_second": progress.texts / progress.seconds if progress.seconds else None,
            "seconds": seconds,
        },
    }


def _identity(recipe: Recipe, data: RunData, processes: int) -> str:
    """What must be equal for a checkpoint to be continued; where and how often things are stored does not matter."""
    plain = replace(recipe.training, trackers=(), keep_checkpoints=1, checkpoint_every="epoch")
    text = to_toml(replace(recipe, training=plain))
    return hashlib.sha256(f"{text}\n{data.fingerprint()}\n{processes}".encode()).hexdigest()


def _available(tracker: str) -> str:
    package = {"tensorboard": "tensorboard", "mlflow": "mlflow", "wandb": "wandb"}[tracker]
    if importlib.util.find_spec(package) is None:
        raise SettingError(
            f"training.trackers names {tracker}, which is not installed: pip install 'nearfar[{tracker}]'."
        )
    return tracker


def _truncation(table: TokenTable, built: Built) -> list[str]:
    if not table.truncated:
        return []
    share = 100 * table.truncated / len(table)
    return [
        f"{table.truncated:,} training texts ({share:.1f} %) are longer than {built.max_length} tokens and are cut "
        "there; encoder.max_length sets the limit"
    ]


def _opening(
    recipe: Recipe, data: RunData, built: Built, batches: int, precision: str, accelerator: Accelerator
) -> str:  # fmt: skip
    weights = sum(weight.numel() for weight in built.model.parameters())
    parts = (("train", data.train), ("dev", data.dev), ("test", data.test))
    sizes = ", ".join(f"{name} {len(records):,}" for name, records in parts if records is not None)
    where = (
        f"{accelerator.device.type} x {accelerator.num_processes}"
        if accelerator.num_processes > 1
        else accelerator.device.type
    )
    limit = recipe.training.max_steps
    stop = "" if limit is None else f", at most {counted(limit, 'step')}"
    return (
        f"rows: {sizes}; {len(data.classes)} classes\n"
        f"encoder: {recipe.encoder.name}, {weights / 1e6:.1f}M weights, {built.max_length} tokens; "
        f"objective: {recipe.objective.name}\n"
        f"{counted(batches, 'batch', 'batches')} of {recipe.batches.size} an epoch, "
        f"{counted(recipe.training.epochs, 'epoch')}{stop}; "
        f"{precision} on {where}"
    )


def _sayer(console: Console, *, speak: bool) -> Callable[[str], None]:
    def say(text: str) -> None:
        if speak:
            console.print(text, highlight=False, soft_wrap=True, markup=False)

    return say


def _silent() -> Console:
    return Console(quiet=True)


def _flat(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, dict):
            flat |= _flat(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = value if isinstance(value, int | float | str | bool) else str(value)
    return flat
