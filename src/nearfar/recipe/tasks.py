"""A recipe of several tasks: one encoder, a head for each task, and a task schedule.

A file with ``[[task]]`` tables is such a recipe. Every task has its own data and objective; encoder, batches and
training are shared.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

from nearfar.errors import Problem, RecipeError
from nearfar.recipe.capabilities import Objective
from nearfar.recipe.keys import Key, printable
from nearfar.recipe.objectives import Auto
from nearfar.recipe.reader import Override, build_table, content, resolve_paths
from nearfar.recipe.schema import (
    CHUNK,
    DATA,
    ENCODER,
    SEED,
    STAGE_OBJECTIVE,
    Data,
    Encoder,
    Keep,
    Metric,
    Recipe,
    Shuffle,
    Training,
)
from nearfar.recipe.writer import table_to_toml

TaskKind: TypeAlias = Literal["classes", "pairs", "scores"]
TaskHeadKind: TypeAlias = Literal[
    "auto", "linear", "concat", "joint", "joint-difference", "joint-difference-activated", "cosine"
]
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
"""Names of tasks: they become part of the names of files and weights."""


@dataclass(frozen=True, kw_only=True)
class TaskHead:
    """The head of a task on the text embeddings."""

    kind: Annotated[
        TaskHeadKind,
        Key(
            '"linear" is for single texts; "concat" and "cosine" read pairs as a bi-encoder, "joint", '
            '"joint-difference" and "joint-difference-activated" as a cross-encoder in both orders; "auto" is linear '
            "for texts and joint for pairs."
        ),
    ] = "auto"
    dropout: Annotated[
        float,
        Key("The dropout probability before the head, after the shared layer if there is one.", at_least=0, below=1),
    ] = 0.1
    hidden_layers: Annotated[
        int,
        Key(
            "The number of further linear layers with tanh before the head, as wide as the embedding and with the same "
            "dropout.",
            at_least=0,
            at_most=16,
        ),
    ] = 0
    single_logit: Annotated[
        bool,
        Key(
            "Whether two classes have one logit, trained with binary cross-entropy, instead of one each, trained with "
            "cross-entropy."
        ),
    ] = False
    difference: Annotated[bool, Key('Whether "concat" also has the absolute difference of the embeddings.')] = False
    product: Annotated[bool, Key('Whether "concat" also has the product of the embeddings.')] = False
    symmetric: Annotated[
        bool,
        Key(
            'Whether a "joint" head gives the same output for both orders of the texts; false has one layer for each '
            "order, as published."
        ),
    ] = True


@dataclass(frozen=True, kw_only=True)
class SharedDropout:
    """Dropout before and inside the shared layer; the dropout after it is that of each head, task.head.dropout."""

    before: Annotated[
        float, Key("The dropout probability of the text embedding, before the shared layer.", at_least=0, below=1)
    ] = 0.0
    inside: Annotated[
        float, Key("The dropout probability between the linear layer and its tanh.", at_least=0, below=1)
    ] = 0.0


@dataclass(frozen=True, kw_only=True)
class Task:
    """One of the tasks that share the encoder."""

    name: Annotated[str, Key("The name of the task, in letters, digits, - and _; anything but mean.")]
    data: Annotated[Data, DATA]
    kind: Annotated[
        TaskKind | Literal["auto"],
        Key('Texts with classes, pairs with labels, or pairs with scores; "auto" is recognized from the columns.'),
    ] = "auto"
    head: Annotated[TaskHead, Key("The head of the task on the text embeddings.")] = field(default_factory=TaskHead)
    objective: Annotated[
        Objective,
        Key(
            'The objective of this task; "auto" is cross-entropy for classes, the squared error for scores, and '
            "cosine-mse with a cosine head."
        ),
    ] = field(default_factory=Auto)
    head_weight: Annotated[
        float,
        Key("The weight of the loss of the head, which is added to an objective that does not train it.", above=0),
    ] = 1.0
    weight: Annotated[float, Key("The weight of the loss of this task.", at_least=0)] = 1.0
    batch_size: Annotated[int | None, Key("The batch size of this task; unset means batches.size.", at_least=1)] = None
    metric: Annotated[
        Metric,
        Key(
            'The metric on the dev data of this task; "auto" is f1_weighted for classes and labels, f1 for labels with '
            "a cosine head, and spearman for scores."
        ),
    ] = "auto"


@dataclass(frozen=True, kw_only=True)
class TaskBatches:
    """Batch size and composition."""

    size: Annotated[int, Key("The batch size of tasks without a batch_size.", at_least=1)] = 32
    chunk: Annotated[int | None, CHUNK] = None
    per_class: Annotated[
        int,
        Key("The number of texts of each class in a batch, if an objective needs positives in the batch.", at_least=2),
    ] = 4


@dataclass(frozen=True, kw_only=True)
class TaskSchedule:
    """The task schedule: which task the next batch is from."""

    kind: Annotated[
        Literal["sampled", "round-robin", "block-round-robin", "sequential", "annealed", "mixed"],
        Key(
            '"sampled" takes batches of the tasks in random order, "round-robin" alternates between the tasks, '
            '"block-round-robin" has in every epoch one pass over each task, one task after the other, "sequential" '
            'trains all epochs of a task before the next task, "annealed" is like "sampled", in proportion to the data '
            'at first and nearly uniform at the end, "mixed" has rows of several tasks in a batch and averages the '
            "losses of the tasks."
        ),
    ] = "sampled"
    sampling: Annotated[
        Literal["proportional", "square-root", "temperature", "weights"],
        Key(
            "How many of the sampled batches or mixed rows a task gets: in proportion to its size, to the square root "
            'of its size, to its size to the power of 1 / temperature, or to its weight alone ("weights").'
        ),
    ] = "proportional"
    temperature: Annotated[
        float | None,
        Key('The temperature for sampling = "temperature": 1 is proportional, 2 is the square root.', above=0),
    ] = None
    weights: Annotated[
        dict[str, float],
        Key(
            "The weights of tasks by their names, 1 for the others: factors of their share of the sampled, annealed or "
            "mixed batches; with gradient surgery factors of their gradients.",
            at_least=0,
        ),
    ] = field(default_factory=dict)
    order: Annotated[
        tuple[str, ...],
        Key(
            "The order of the tasks, for sequential, round-robin and block-round-robin; unset means that of the file.",
            none=(),
        ),
    ] = ()
    steps: Annotated[
        int | None,
        Key(
            "The number of sampled, annealed or mixed batches in an epoch; unset means as many as all tasks with a "
            "weight above 0 have together.",
            at_least=1,
        ),
    ] = None
    drop: Annotated[
        float,
        Key(
            'For "annealed": the share of a task is its size to the power of an exponent, which falls from 1 by this '
            "much until the last epoch.",
            at_least=0,
            at_most=1,
        ),
    ] = 0.8


@dataclass(frozen=True, kw_only=True)
class TaskTraining(Training):
    """Epochs, optimizer, evaluation and checkpoints, for all tasks."""

    epochs: Annotated[int | None, Key("The number of passes over the schedule; unset means 5.", at_least=1)] = None
    learning_rate: Annotated[
        float | None, Key("The peak learning rate of the encoder; unset means 5e-5.", above=0, at_most=10)
    ] = None
    metric: Annotated[Metric, Key('Always "auto": the mean of the scores of all tasks selects the best weights.')] = (
        "auto"
    )
    head_learning_rate: Annotated[
        float | None,
        Key(
            "The peak learning rate of heads and shared layer; unset means 20 times training.learning_rate.",
            above=0,
            at_most=10,
        ),
    ] = None
    keep_untrained: Annotated[
        bool | None,
        Key(
            "Whether the weights before the first step are kept if no later ones have a better mean; unset means false."
        ),
    ] = None
    gradient_surgery: Annotated[
        Literal["none", "pcgrad"],
        Key(
            '"pcgrad" (PCGrad) removes from the gradient of a task what conflicts with those of the others: it is '
            "projected onto the normal plane of each gradient with which its cosine is negative."
        ),
    ] = "none"
    combine: Annotated[
        Literal["mean", "sum"],
        Key("Whether the gradients of the tasks in a step are averaged or summed, after gradient surgery."),
    ] = "mean"
    weighting: Annotated[
        Literal["fixed", "uncertainty"],
        Key(
            '"fixed" keeps the weights of the losses, task.weight; "uncertainty" learns them (homoscedastic '
            "uncertainty, Kendall et al., 2018)."
        ),
    ] = "fixed"


@dataclass(frozen=True, kw_only=True)
class TaskStage:
    """A training stage of the encoder before the tasks, on its own data."""

    data: Annotated[Data, DATA]
    objective: Annotated[Objective, STAGE_OBJECTIVE] = field(default_factory=Auto)
    epochs: Annotated[int | None, Key("The number of passes over the data; unset means 1.", at_least=1)] = None
    learning_rate: Annotated[
        float | None, Key("The peak learning rate; unset means the objective's default.", above=0, at_most=10)
    ] = None
    batch_size: Annotated[int | None, Key("The batch size; unset means the objective's default.", at_least=1)] = None
    shuffle: Annotated[Shuffle, Key("The batch composition.")] = "auto"
    keep: Annotated[
        Keep,
        Key("The weights that the next stage or the tasks start from: the last, or the best on the stage's dev data."),
    ] = "last"


@dataclass(frozen=True, kw_only=True)
class TaskRecipe:
    """All settings of a training run of several tasks."""

    seed: Annotated[int, SEED] = 2
    encoder: Annotated[Encoder, ENCODER] = field(default_factory=Encoder)
    shared_layer: Annotated[bool, Key("Whether all tasks share a linear layer with tanh in front of their heads.")] = (
        False
    )
    shared_dropout: Annotated[
        SharedDropout, Key("Dropout at the shared layer; that behind it is the dropout of each head.")
    ] = field(default_factory=SharedDropout)
    batches: Annotated[TaskBatches, Key("Batch size and composition.")] = field(default_factory=TaskBatches)
    schedule: Annotated[TaskSchedule, Key("The task schedule: which task the next batch is from.")] = field(
        default_factory=TaskSchedule
    )
    training: Annotated[TaskTraining, Key("Epochs, optimizer, evaluation and checkpoints, for all tasks.")] = field(
        default_factory=TaskTraining
    )
    stage: Annotated[tuple[TaskStage, ...], Key("Training stages of the encoder before the tasks.", none=())] = ()
    task: Annotated[tuple[Task, ...], Key("The tasks that share the encoder.")]

    def plain(self, task: Task) -> Recipe:
        """The recipe of one task."""
        return Recipe(seed=self.seed, data=task.data, encoder=self.encoder, objective=task.objective)


def has_tasks(path: Path) -> bool:
    """Whether a file is a recipe of several tasks; False for a file that cannot be read, which is refused elsewhere."""
    try:
        return "task" in tomllib.loads(path.read_bytes()[: 2**18].decode("utf-8-sig"))
    except (OSError, ValueError, RecursionError):
        return False


def read_task_recipe(path: Path, overrides: Sequence[Override] = ()) -> TaskRecipe:
    """Read a recipe of several tasks; overrides win over the file, and its paths are relative to its folder."""
    from nearfar.recipe.reader import parse

    where = printable(str(path))
    values, lines = parse(content(path, where), where)
    recipe: TaskRecipe = build_table(TaskRecipe, values, overrides, where=where, lines=lines)
    _check(recipe, where, [lines.get(("task", place)) for place in range(len(recipe.task))])
    return _resolved(recipe, path.absolute().parent)


def build_task_recipe(values: dict[str, Any], overrides: Sequence[Override] = (), *, where: str) -> TaskRecipe:
    """Make a recipe of several tasks without a file; ``where`` is for messages about values that no flag has set."""
    recipe: TaskRecipe = build_table(TaskRecipe, values, overrides, where=where)
    _check(recipe, where, [None] * len(recipe.task))
    return recipe


def task_toml(recipe: TaskRecipe) -> str:
    """The recipe as a TOML text; reading it gives an equal recipe."""
    return table_to_toml(recipe)


def _check(recipe: TaskRecipe, where: str, lines: Sequence[int | None]) -> None:
    """Check what depends on several keys."""
    problems: list[Problem] = []

    def report(message: str, remedy: str, line: int | None = None, value: str | None = None) -> None:
        problems.append(Problem(where, message, remedy, line, value=value))

    places: dict[str, int] = {}
    for place, (task, line) in enumerate(zip(recipe.task, lines, strict=True)):
        name = task.name
        if not NAME.fullmatch(name):
            report("a task cannot have this name", "Use letters, digits, - and _, such as sentiment.", line, name)
        elif name == "mean":
            report("a task cannot have the name mean, which is the score over all tasks", "Rename it.", line)
        elif name in places:
            message = f"two tasks have the name {name!r}, the {_nth(places[name])} and the {_nth(place)}"
            report(message, "Rename one of them.", line)
        places.setdefault(name, place)
    if not recipe.task:
        report("there is no task", "Add [[task]] with a name, and [task.data] with train.")
    elif not any(task.weight for task in recipe.task):
        message = f"the weights of all tasks ({', '.join(places)}) sum to zero, so that nothing would be learned"
        report(message, "Give at least one [[task]] a weight above 0.", lines[0])
    if not recipe.shared_layer:
        dropout = {"before": recipe.shared_dropout.before, "inside": recipe.shared_dropout.inside}
        for key in (key for key, value in dropout.items() if value):
            message = f"shared_dropout.{key} is {dropout[key]}, but there is no shared layer"
            report(message, "Write shared_layer = true, or set the dropout of each task in its head.")
    training = recipe.training
    if training.metric != "auto":
        message = f"training.metric is {training.metric!r}, but the mean of the tasks' scores selects the best weights"
        report(message, "Remove it; each [[task]] has its own metric.")
    if training.gradient_surgery == "none" and training.combine != "mean":
        message = f"training.combine is {training.combine!r}, which has no effect without gradient surgery"
        report(message, 'Remove it, or write training.gradient_surgery = "pcgrad".')
    if problems:
        raise RecipeError(problems)


def _nth(place: int) -> str:
    return {0: "first", 1: "second", 2: "third"}.get(place, f"{place + 1}th")


def _resolved(recipe: TaskRecipe, base: Path) -> TaskRecipe:
    tasks, stages = [], []
    encoder = recipe.encoder
    for task in recipe.task:
        whole = resolve_paths(recipe.plain(task), base)
        encoder = whole.encoder
        tasks.append(replace(task, data=whole.data, objective=whole.objective))
    for stage in recipe.stage:
        whole = resolve_paths(Recipe(data=stage.data, objective=stage.objective), base)
        stages.append(replace(stage, data=whole.data, objective=whole.objective))
    return replace(recipe, encoder=encoder, task=tuple(tasks), stage=tuple(stages))
