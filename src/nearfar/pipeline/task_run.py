"""A run of several tasks: one encoder with a head for each task, trained in the order of a schedule."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from accelerate import Accelerator

from nearfar.batching.schedules import (
    Annealing,
    BlockRoundRobin,
    OneOfEach,
    RoundRobin,
    Sampled,
    Schedule,
    Sequential,
    describe,
)
from nearfar.data import named_splits
from nearfar.encoding import Built, Card, save
from nearfar.encoding.task_model import TaskNetwork, describe_tasks, save_heads
from nearfar.errors import SettingError, counted, did_you_mean
from nearfar.evaluation import PairReport, Report
from nearfar.pipeline.card import task_model_card, versions
from nearfar.pipeline.data import in_memory, read_data
from nearfar.pipeline.defaults import WARMUP, check_keep, plan_stages, unstored_training
from nearfar.pipeline.output import JOURNAL, MEAN, Reports, evaluators, mean_scores
from nearfar.pipeline.plan import Prepared, decided, open_encoder, try_out
from nearfar.pipeline.tasks import (
    PlannedTask,
    build_loss,
    center_scores,
    check_dev,
    check_measured,
    make_sampler,
    make_task_loader,
    read_task,
    task_measure,
)
from nearfar.recipe import Recipe, Training
from nearfar.recipe.schema import Batches
from nearfar.recipe.tasks import TaskRecipe, TaskSchedule, TaskStage, task_toml
from nearfar.seeds import stream
from nearfar.training import FitSettings, LossModule, MultiTaskLoader, Scores, plan_run
from nearfar.training.optimizer import freeze_encoder
from nearfar.training.precision import Precision

HEAD_FACTOR = 20
"""How much faster heads learn than the encoder, where the recipe does not set their rate."""
WIDTH = 8
"""Of the vectors for which objectives are built to see whether they fit; that of the encoder is not known yet."""


def plan_task_run(recipe: TaskRecipe, data: object = None) -> TasksPlan:
    """Read the data of all tasks, choose what the recipe leaves open, and refuse what does not fit."""
    recipe, memory = with_memory(recipe, data)
    for each in recipe.task:
        if each.data.names not in ("auto", "none") or each.data.unlabeled or each.data.adapt:
            raise SettingError(
                f"task {each.name!r}: data.names, data.unlabeled and data.adapt are for recipes of one task; leave "
                "them out."
            )
    tasks = [read_task(recipe, task, memory) for task in recipe.task]
    notes = [note for task in tasks for note in task.notes]
    measured = check_dev(tasks)
    if not measured:
        notes.append("no task has dev data, so the last weights are kept")
    for task in tasks:
        notes += check_measured(task)
        build_loss(task, WIDTH, recipe.seed)
    _check_stages(recipe)
    training = recipe.training
    epochs = training.epochs or 5
    if recipe.schedule.kind == "mixed":
        _check_mixed(recipe)
    accumulate = training.accumulate
    if training.gradient_surgery != "none":
        together = _tasks_of_step(recipe)
        if accumulate == 1:
            accumulate = together
            notes.append(
                f"training.gradient_surgery compares the gradients of the tasks in a step, so a step has {accumulate} "
                "batches; training.accumulate sets another number"
            )
    schedule = schedule_of(recipe, tasks, epochs)
    every = training.evaluate_every
    if every == "auto":
        steps = epochs * -(-len(schedule) // (accumulate * (mixed_size(recipe) or 1)))
        every = "epoch" if epochs <= 10 else max(1, steps // 10)
    rate = training.learning_rate or 5e-5
    if training.keep == "best" and not measured:
        raise SettingError(
            'training.keep is "best", and no task has dev rows to tell which weights are best: set data.dev of every '
            'task, or training.keep = "last".'
        )
    chosen = replace(
        training,
        epochs=epochs,
        learning_rate=rate,
        accumulate=accumulate,
        evaluate_every=every,
        warmup=WARMUP if training.warmup is None else training.warmup,
        schedule="linear" if training.schedule == "auto" else training.schedule,
        keep=training.keep if training.keep != "auto" else "best" if measured else "last",
        keep_untrained=bool(training.keep_untrained),
    )
    return TasksPlan(replace(recipe, training=chosen, task=tuple(task.task for task in tasks)), tasks, notes)


@dataclass(frozen=True)
class TasksPlan:
    """A recipe with tasks with nothing left open, and its data."""

    recipe: TaskRecipe
    tasks: list[PlannedTask]
    notes: list[str]

    stages: int = 1
    classifies: bool = True
    domain: None = None

    @property
    def training(self) -> Training:
        """How all tasks are trained; the mean of their scores picks the model."""
        return replace(self.recipe.training, metric=MEAN)

    @property
    def metrics(self) -> dict[str, str]:
        """The score of each task in the mean."""
        return {task.name: task.card.metric for task in self.tasks}

    @property
    def earlier(self) -> Sequence[Callable[[str | None], Recipe]]:
        """The stages before the tasks: the encoder they begin with to their recipe."""

        def recipe_of(number: int, stage: TaskStage) -> Callable[[str | None], Recipe]:
            return lambda encoder: stage_recipe(self.recipe, stage, encoder or self.recipe.encoder.name, number)

        return [recipe_of(number, stage) for number, stage in enumerate(self.recipe.stage, 1)]

    def reads(self) -> list[object]:
        """The files and folders that the run reads, among other values."""
        tables = [*(task.data for task in self.recipe.task), *(stage.data for stage in self.recipe.stage)]
        return [self.recipe.encoder.name, *(source for data in tables for source in (data.train, data.dev, data.test))]

    def recipe_text(self) -> str:
        """The recipe as it is saved."""
        return task_toml(self.recipe)

    def config(self) -> dict[str, Any]:
        """The settings as trackers show them, those of a task under its name."""
        values = asdict(self.recipe)
        values["task"] = {task.pop("name"): task for task in values["task"]}
        values["stage"] = {str(number): stage for number, stage in enumerate(values["stage"], 1)}
        return values

    def identity(self, processes: int) -> str:
        """What must be equal for a checkpoint to be continued; how often it is stored does not matter."""
        plain = unstored_training(self.recipe.training)
        prints = " ".join(task.data.fingerprint() for task in self.tasks)
        tasks = tuple(replace(task, data=replace(task.data, disk="auto")) for task in self.recipe.task)
        text = task_toml(replace(self.recipe, training=plain, task=tasks))
        return hashlib.sha256(f"{text}\n{prints}\n{processes}".encode()).hexdigest()

    def journal(self, _number: int) -> str:
        """The file of the journal."""
        return JOURNAL

    @property
    def encoder(self) -> str:
        """The name of the encoder."""
        return self.recipe.encoder.name

    def in_precision(self, precision: Precision) -> TasksPlan:
        """The same with what was decided for ``training.precision``."""
        training = replace(self.recipe.training, precision=precision)
        return replace(self, recipe=replace(self.recipe, training=training))

    def open(self, accelerator: Accelerator, encoder: str | None = None) -> TasksRun:
        """Open the encoder and draw the heads."""
        recipe = self.recipe
        built = open_encoder(recipe.encoder, classes=None, seed=stream(recipe.seed, "head"), name=encoder)
        cards = [task.card for task in self.tasks]
        seed = stream(recipe.seed, "heads") % 2**62
        dropout = recipe.shared_dropout.before, recipe.shared_dropout.inside
        network = TaskNetwork(built.model, cards, shared=recipe.shared_layer, dropout=dropout, seed=seed)
        for task in self.tasks:
            center_scores(task, built, network)
        return TasksRun(self, built, network, accelerator, list(built.notes))


@dataclass(frozen=True)
class TasksRun:
    """The encoder under the heads of all tasks."""

    plan: TasksPlan
    built: Built
    network: TaskNetwork
    accelerator: Accelerator
    notes: list[str] = field(default_factory=list)

    def opening(self, precision: str) -> str:
        """What is trained on what, in words."""
        lines, recipe = [], self.plan.recipe
        for task in self.plan.tasks:
            parts = (("train", task.data.train), ("dev", task.data.dev), ("test", task.data.test))
            sizes = ", ".join(f"{name} {len(records):,}" for name, records in parts if records is not None)
            what = "scores" if task.card.labels is None else counted(len(task.card.labels), "label")
            lines.append(f"task {task.name}: {sizes}; {what}, head {task.card.head['kind']}, {task.card.metric}")
        weights = sum(weight.numel() for weight in self.network.parameters())
        shared = ", a shared layer" if recipe.shared_layer else ""
        lines.append(
            f"encoder: {recipe.encoder.name}, {weights / 1e6:.1f}M weights with heads{shared}, "
            f"{self.built.max_length} tokens; {precision} on {self.accelerator.device.type}"
        )
        return "\n".join(lines)

    def untrained_scores(self) -> dict[str, Scores]:
        """None: the heads of the tasks begin with random weights."""
        return {}

    def prepare(self, _number: int = 0) -> Prepared:
        """The training of all tasks."""
        recipe, training = self.plan.recipe, self.plan.training
        losses, loaders, notes = [], {}, list[str]()
        for task in self.plan.tasks:
            loss, task_notes = build_loss(task, self.built.model.dim, recipe.seed)
            losses.append(loss)
            loaders[task.name] = make_task_loader(task, loss, self.built, recipe)
            notes += task_notes
            if cut := loaders[task.name].tokens.truncated:
                limit = self.built.max_length
                notes.append(f"task {task.name}: {cut:,} texts are longer than {limit} tokens and are cut there")
        epochs, rate = training.epochs or 0, training.learning_rate
        assert rate is not None
        schedule = schedule_of(recipe, self.plan.tasks, epochs)
        loader = MultiTaskLoader(loaders, schedule, mixed_size(recipe))
        learned = recipe.training.weighting == "uncertainty"
        module = LossModule(self.network, losses, precision=decided(training), uncertainty=learned)
        module.to(self.accelerator.device)
        if recipe.encoder.frozen:
            freeze_encoder(module)
        head_rate = training.head_learning_rate or HEAD_FACTOR * rate
        settings = FitSettings(
            training=training,
            rates={"encoder": rate, "head": head_rate, "objective": 100 * rate},
            seed=recipe.seed,
            chunk=recipe.batches.chunk,
            pcgrad=recipe.training.combine if recipe.training.gradient_surgery == "pcgrad" else None,
            evaluate_at_start=bool(training.keep_untrained),
        )
        sizes = {task.name: task.batch_size or recipe.batches.size for task in recipe.task}
        trial = try_out(module, loader, settings, sizes, self.accelerator)
        if unused := [name for name in trial.frozen if ".pooler." not in name]:  # many encoders have one for nothing
            notes.append(f"weights that no task uses stay as they are: {', '.join(unused[:4])}")
        plan = plan_run(loader, training)
        lines = _batches(schedule, epochs, loader.mixed)
        lines.append(f"{_how(recipe)}; {counted(epochs, 'epoch')}; {counted(plan.steps, 'step')}{trial.estimate}")
        if settings.pcgrad is not None:
            lines += _gradient_weights(schedule, epochs)
            lines.append(f"gradient surgery holds {self._held():,.0f} MB of gradients more than a step without it")
        dev, metrics = self.evaluators().get("dev"), self.plan.metrics
        return Prepared(
            module=module,
            loader=loader,
            settings=settings,
            plan=plan,
            evaluate=None if dev is None else lambda: mean_scores(dev(), metrics),
            identity=self.plan.identity(self.accelerator.num_processes),
            lines=lines,
            notes=notes,
        )

    def _held(self) -> float:
        """MB of the gradients of shared weights that wait for those of the other tasks, at most."""
        trained = [weight for weight in self.network.shared_weights() if weight.requires_grad]
        return (len(self.plan.tasks) - 1) * sum(weight.numel() * weight.element_size() for weight in trained) / 2**20

    def fit_head(self) -> None:
        """The heads are trained with the encoder."""

    def evaluators(self) -> dict[str, Callable[[], dict[str, Report]]]:
        """For dev and test rows, where there are some, what measures the tasks."""
        splits = {
            split: {task.name: getattr(task.data, split) for task in self.plan.tasks} for split in ("dev", "test")
        }
        return evaluators(
            {
                split: {
                    task.name: task_measure(task, self.built, self.network, rows[task.name])
                    for task in self.plan.tasks
                    if rows[task.name] is not None and len(rows[task.name])
                }
                for split, rows in splits.items()
            }
        )

    def save(self, out: Path, module: LossModule, reports: Reports, metrics: dict[str, Any]) -> None:
        """Write the model folder: the heads, then the encoder with its card."""
        recipe, tasks = self.plan.recipe, self.plan.tasks
        cards = []
        for task in tasks:
            report, chosen = reports.get("dev", {}).get(task.name), task.card
            if isinstance(report, PairReport):
                chosen = replace(chosen, threshold=report.threshold, accuracy_threshold=report.accuracy_threshold)
            cards.append(chosen)
        card = Card(
            pooling=self.built.model.pooling,
            max_length=self.built.max_length,
            native=False,
            normalize=self.built.normalize,
            objective={task.name: task.task.objective.name for task in tasks},
            precision=decided(self.plan.training),
            versions=versions(),
            task=describe_tasks(cards, shared=recipe.shared_layer),
        )
        readme = task_model_card(recipe, {task.name: task.data for task in tasks}, cards, card, metrics)
        save_heads(out, self.network, dict(module.objectives.state_dict()))
        save(out, self.built.model, self.built.tokenizer, card, readme=readme)


def with_memory(recipe: TaskRecipe, data: object) -> tuple[TaskRecipe, dict[str, object]]:
    """The recipe with rows in memory in place of the files of some tasks, and all such rows by their names in it."""
    known = [task.name for task in recipe.task]
    if data is None:
        return recipe, {}
    if not isinstance(data, Mapping):
        raise SettingError(f"data of several tasks is a mapping from their names to rows: {', '.join(known)}.")
    for unknown in (name for name in data if name not in known):
        raise SettingError(
            f"data has rows of {unknown!r}, and the tasks are {', '.join(known)}.{did_you_mean(unknown, known)}"
        )
    splits = {name: named_splits(rows, name) for name, rows in data.items()}
    tasks = (replace(task, data=in_memory(task.data, splits.get(task.name, {}))) for task in recipe.task)
    return replace(recipe, task=tuple(tasks)), {name: rows for each in splits.values() for name, rows in each.items()}


def mixed_size(recipe: TaskRecipe) -> int | None:
    """The size of batches with rows of several tasks; None where every batch has one task."""
    return recipe.batches.size if recipe.schedule.kind == "mixed" else None


def schedule_of(recipe: TaskRecipe, tasks: Sequence[PlannedTask], epochs: int) -> Schedule:
    """The order in which the batches of the tasks come; of mixed batches, that of their rows."""
    table, usual = recipe.schedule, TaskSchedule()
    reads = _SCHEDULE_KEYS[table.kind]
    for name in ("order", "weights", "steps", "sampling", "temperature", "drop"):
        if getattr(table, name) != getattr(usual, name) and name not in reads:
            raise SettingError(f'schedule.{name} changes nothing where schedule.kind is "{table.kind}"; remove it.')
    mixed = mixed_size(recipe)
    if mixed is not None and table.steps is not None:
        table = replace(table, steps=table.steps * mixed)
    sizes = {task.name: len(make_sampler(task, recipe)) if mixed is None else len(task.data.train) for task in tasks}
    try:
        schedule = _schedule(table, sizes, epochs, stream(recipe.seed, "turns"))
    except SettingError as error:
        raise SettingError(f"[schedule]: {error}") from None
    if recipe.training.gradient_surgery != "none" and isinstance(schedule, Sampled):
        repeat = max(1, recipe.training.accumulate // len(schedule.trained))
        return OneOfEach(sampled=schedule, repeat=repeat)
    return schedule


_SCHEDULE_KEYS = {
    "sequential": ("order",),
    "round-robin": ("order",),
    "block-round-robin": ("order",),
    "annealed": ("weights", "steps", "drop"),
    "sampled": ("weights", "steps", "sampling", "temperature"),
    "mixed": ("weights", "steps", "sampling", "temperature"),
}
"""The keys that each kind of schedule reads."""


def _schedule(table: TaskSchedule, sizes: dict[str, int], epochs: int, seed: int) -> Schedule:
    shares: dict[str, Any] = {"tasks": sizes, "seed": seed, "weights": table.weights, "steps": table.steps}
    sampled = partial(Sampled, **shares, by=table.sampling, temperature=table.temperature)
    kinds: dict[str, Callable[[], Schedule]] = {
        "sequential": lambda: Sequential(tasks=sizes, epochs=epochs, order=table.order),
        "round-robin": lambda: RoundRobin(tasks=sizes, order=table.order),
        "block-round-robin": lambda: BlockRoundRobin(tasks=sizes, order=table.order),
        "annealed": lambda: Sampled(**shares, annealing=Annealing(epochs=epochs, drop=table.drop)),
        "sampled": sampled,
        "mixed": sampled,
    }
    return kinds[table.kind]()


def _tasks_of_step(recipe: TaskRecipe) -> int:
    """How many batches a step needs for gradient surgery; refused where no step has the gradients of all tasks."""
    table, remedy, accumulate = recipe.schedule, 'set it to "none"', recipe.training.accumulate
    trained = [task.name for task in recipe.task if table.weights.get(task.name, 1.0) > 0]
    if len(recipe.task) < 2:
        why = "there is one task"
    elif table.kind in ("sequential", "block-round-robin"):
        why = f'schedule.kind = "{table.kind}" trains one task after the other'
        remedy += ", or choose round-robin or sampled tasks"
    elif table.kind == "mixed":
        why = "a mixed batch may lack a task"
        remedy += ", or choose round-robin or sampled tasks"
    elif len(trained) < 2:
        why = f"schedule.weights leaves {trained[0]!r} alone to train"
        remedy += ", or give another task a weight above 0"
    elif recipe.encoder.frozen and not recipe.shared_layer:
        why = "encoder.frozen and no shared layer leave no weights that the tasks share"
    elif table.kind != "round-robin" and accumulate % len(trained) and accumulate > 1:
        raise SettingError(
            f"training.accumulate is {accumulate}, but with gradient surgery every step has as many batches of each of "
            f"the {len(trained)} tasks; set it to {len(trained)} or a multiple of it, or leave it out."
        )
    else:
        return len(table.order or recipe.task) if table.kind == "round-robin" else len(trained)
    raise SettingError(
        f"training.gradient_surgery compares the gradients of several tasks in a step, but {why}; {remedy}."
    )


def _check_mixed(recipe: TaskRecipe) -> None:
    """Refuse tasks whose rows cannot share batches with those of others."""
    kind = 'schedule.kind = "mixed" has rows of several tasks in a batch'
    if len(recipe.task) < 2:
        raise SettingError(f"{kind}, but there is one task; remove it, or add another [[task]].")
    if recipe.batches.size < len(recipe.task):
        raise SettingError(
            f"{kind}, but batches.size is {recipe.batches.size} and there are {len(recipe.task)} tasks; raise it to 32."
        )
    for task in recipe.task:
        if task.batch_size is not None:
            raise SettingError(
                f"{kind}, but task {task.name!r} has batches of its own (batch_size = {task.batch_size}); remove "
                "batch_size, or choose sampled tasks."
            )
        if task.objective.does.needs_positives:
            raise SettingError(
                f"{kind}, but {task.objective.name} of task {task.name!r} needs texts of the same class in a batch; "
                "choose another objective, or sampled tasks."
            )


def _check_stages(recipe: TaskRecipe) -> None:
    """Refuse a stage that could not begin, before the ones in front of it are trained."""
    for number, stage in enumerate(recipe.stage, 1):
        plain = stage_recipe(recipe, stage, recipe.encoder.name, number)
        try:
            data = read_data(plain)
            check_keep(stage.keep, data, "keep")
            plan_stages(plain, data)
        except SettingError as error:
            raise SettingError(f"stage {number}: {error}") from None


def stage_recipe(recipe: TaskRecipe, stage: TaskStage, encoder: str, number: int) -> Recipe:
    """A stage before the tasks as a recipe of its own."""
    training = Training(
        epochs=stage.epochs or 1,
        learning_rate=stage.learning_rate,
        precision=recipe.training.precision,
        keep=stage.keep,
        checkpoint_every=recipe.training.checkpoint_every,
        keep_checkpoints=recipe.training.keep_checkpoints,
    )
    return Recipe(
        seed=stream(recipe.seed, "stage", number) % 2**31,
        data=stage.data,
        objective=stage.objective,
        encoder=replace(recipe.encoder, name=encoder, frozen=False),
        training=training,
        batches=Batches(size=stage.batch_size, chunk=recipe.batches.chunk, shuffle=stage.shuffle),
    )


def _batches(schedule: Schedule, epochs: int, mixed: int | None) -> list[str]:
    """The batches of each task in an epoch, once where all epochs have the same; of mixed batches the rows."""
    if mixed is not None:
        rows = ", ".join(
            f"{name} {steps:,} (of {schedule.tasks[name]:,})" for name, steps in schedule.steps_per_task(0).items()
        )
        return [f"rows of an epoch: {rows}; {counted(-(-len(schedule) // mixed), 'mixed batch', 'mixed batches')}"]
    lines = [describe(schedule, epoch).replace(" steps:", " batches:") for epoch in range(epochs)]
    if len(set(lines)) == 1:
        return [f"batches of an epoch: {lines[0]}"]
    return [f"batches of epoch {number}: {line}" for number, line in enumerate(lines, 1)]


def _gradient_weights(schedule: Schedule, epochs: int) -> list[str]:
    """The weights of the tasks in gradient surgery, where they are not all alike: of the first and the last epoch."""
    weights = [schedule.task_weights(epoch) for epoch in (0, epochs - 1)]
    if all(weight == 1 for own in weights for weight in own.values()):
        return []
    first, last = (", ".join(f"{name} {weight:.3g}" for name, weight in own.items()) for own in weights)
    return [f"weights of the gradients: {first}" + ("" if last == first else f"; in the last epoch: {last}")]


def _how(recipe: TaskRecipe) -> str:
    training = recipe.training
    how = [f"schedule: {recipe.schedule.kind}"]
    if training.gradient_surgery != "none":
        how.append(f"gradient surgery: {training.gradient_surgery}")
    if training.weighting != "fixed":
        how.append(f"weights by {training.weighting}")
    if training.accumulate > 1:
        how.append(f"{training.accumulate} batches a step")
    return "; ".join(how)
