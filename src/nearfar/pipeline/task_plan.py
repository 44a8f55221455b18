"""What a run of several tasks is going to do: everything read, chosen and refused before anything is replaced."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from nearfar.batching.schedules import Annealed, RoundRobin, Sampled, Schedule, Sequential
from nearfar.data import named_splits
from nearfar.errors import SettingError, did_you_mean
from nearfar.pipeline.data import in_memory, read_data
from nearfar.pipeline.stages import plan_stages
from nearfar.pipeline.tasks import Ready, build_loss, check_dev, check_measured, make_sampler, read_task
from nearfar.recipe import Recipe, Training
from nearfar.recipe.schema import Batches
from nearfar.recipe.tasks import TaskRecipe, TaskSchedule, TaskStage
from nearfar.seeds import stream

WIDTH = 8
"""Of the vectors for which objectives are built to see whether they fit; that of the encoder is not known yet."""


def with_memory(recipe: TaskRecipe, data: Mapping[str, object]) -> tuple[TaskRecipe, dict[str, object]]:
    """The recipe with rows in memory in place of the files of some tasks, and all such rows by their names in it."""
    known = [task.name for task in recipe.task]
    for unknown in (name for name in data if name not in known):
        raise SettingError(
            f"data has rows of {unknown!r}, and the tasks are {', '.join(known)}.{did_you_mean(unknown, known)}"
        )
    splits = {name: named_splits(rows, name) for name, rows in data.items()}
    tasks = (replace(task, data=in_memory(task.data, splits.get(task.name, {}))) for task in recipe.task)
    return replace(recipe, task=tuple(tasks)), {name: rows for each in splits.values() for name, rows in each.items()}


def plan_tasks(
    recipe: TaskRecipe, memory: Mapping[str, object] | None = None
) -> tuple[TaskRecipe, list[Ready], list[str]]:
    """The recipe with nothing left open, the tasks with their data, and what the user should know."""
    tasks = [read_task(recipe, task, memory) for task in recipe.task]
    notes = [note for ready in tasks for note in ready.notes]
    if not check_dev(tasks):
        notes.append("no task has dev data, so the last weights are kept")
    for ready in tasks:
        notes += check_measured(ready)
        build_loss(ready, WIDTH, recipe.seed)
    _check_stages(recipe)
    training = recipe.training
    epochs = training.epochs or 5
    sizes = {ready.name: len(make_sampler(ready, recipe)) for ready in tasks}
    schedule = schedule_of(recipe, sizes, epochs)
    accumulate = training.accumulate
    if training.gradient_surgery != "none":
        _check_surgery(recipe)
        if accumulate == 1:
            accumulate = len(recipe.schedule.order) if recipe.schedule.kind == "round-robin" else 0
            accumulate = accumulate or len(tasks)
            notes.append(
                f"training.gradient_surgery compares the gradients of the tasks in a step, so a step has {accumulate} "
                "batches; training.accumulate sets another number"
            )
    every = training.evaluate_every
    if every == "auto":
        steps = epochs * -(-len(schedule) // accumulate)
        every = "epoch" if epochs <= 10 else max(1, steps // 10)
    chosen = replace(
        training, epochs=epochs, learning_rate=training.learning_rate or 5e-5, accumulate=accumulate,
        evaluate_every=every,
    )  # fmt: skip
    return replace(recipe, training=chosen, task=tuple(ready.task for ready in tasks)), tasks, notes


def schedule_of(recipe: TaskRecipe, sizes: dict[str, int], epochs: int) -> Schedule:
    """The schedule of tasks with so many batches."""
    settings, defaults = recipe.schedule, TaskSchedule()
    sampled = settings.kind in ("sampled", "annealed")
    for name, fits in (
        ("order", not sampled), ("weights", sampled), ("steps", sampled), ("sampling", settings.kind == "sampled"),
        ("temperature", settings.kind == "sampled"), ("drop", settings.kind == "annealed"),
    ):  # fmt: skip
        if getattr(settings, name) != getattr(defaults, name) and not fits:
            raise SettingError(f'schedule.{name} changes nothing where schedule.kind is "{settings.kind}"; remove it.')
    try:
        return _schedule(settings, sizes, epochs, stream(recipe.seed, "turns"))
    except SettingError as error:
        raise SettingError(f"[schedule]: {error}") from None


def _schedule(settings: TaskSchedule, sizes: dict[str, int], epochs: int, seed: int) -> Schedule:
    if settings.kind == "sequential":
        return Sequential(tasks=sizes, epochs=epochs, order=settings.order)
    if settings.kind == "round-robin":
        return RoundRobin(tasks=sizes, order=settings.order)
    if settings.kind == "annealed":
        return Annealed(
            tasks=sizes, seed=seed, epochs=epochs, drop=settings.drop, weights=settings.weights, steps=settings.steps
        )
    return Sampled(
        tasks=sizes,
        seed=seed,
        by=settings.sampling,
        temperature=settings.temperature,
        weights=settings.weights,
        steps=settings.steps,
    )


def _check_surgery(recipe: TaskRecipe) -> None:
    """Refuse surgery where no step has the gradients of two tasks."""
    settings, remedy = recipe.schedule, 'set it to "none"'
    sampled = [task.name for task in recipe.task if settings.weights.get(task.name, 1.0) > 0]
    if len(recipe.task) < 2:
        why = "there is one task"
    elif settings.kind == "sequential":
        why = 'schedule.kind = "sequential" trains one task after the other'
        remedy += ", or choose round-robin or sampled tasks"
    elif len(sampled) < 2:
        why = f"schedule.weights leaves {sampled[0]!r} alone to train"
        remedy += ", or give another task a weight above 0"
    else:
        return
    raise SettingError(
        f"training.gradient_surgery compares the gradients of several tasks in a step, but {why}; {remedy}."
    )


def _check_stages(recipe: TaskRecipe) -> None:
    """Refuse a stage that could not begin, before the ones in front of it are trained."""
    for number, stage in enumerate(recipe.stage, 1):
        plain = plain_stage(recipe, stage, recipe.encoder.name, number)
        try:
            plan_stages(plain, read_data(plain))
        except SettingError as error:
            raise SettingError(f"stage {number}: {error}") from None


def plain_stage(recipe: TaskRecipe, stage: TaskStage, encoder: str, number: int) -> Recipe:
    """A stage before the tasks as a recipe of its own."""
    training = Training(
        epochs=stage.epochs or 1, learning_rate=stage.learning_rate, precision=recipe.training.precision,
        checkpoint_every=recipe.training.checkpoint_every, keep_checkpoints=recipe.training.keep_checkpoints,
    )  # fmt: skip
    return Recipe(
        seed=stream(recipe.seed, "stage", number) % 2**31, data=stage.data, objective=stage.objective,
        encoder=replace(recipe.encoder, name=encoder), training=training,
        batches=Batches(size=stage.batch_size, chunk=recipe.batches.chunk, shuffle=stage.shuffle),
    )  # fmt: skip
