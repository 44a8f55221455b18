"""A recipe with several tasks: one encoder, a head for each task, and whose turn it is.

A file with ``[[task]]`` tables is such a recipe. Every task has data and an objective of its own; encoder, batches and
training are those of all of them.
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
from nearfar.recipe.keys import Key
from nearfar.recipe.literals import printable
from nearfar.recipe.objectives import Auto
from nearfar.recipe.overrides import Override
from nearfar.recipe.paths import resolve_paths
from nearfar.recipe.reader import build_table, content
from nearfar.recipe.schema import Data, Encoder, Metric, Recipe, Shuffle, Training
from nearfar.recipe.writer import table_to_toml

TaskKind: TypeAlias = Literal["classes", "pairs", "scores"]
TaskHeadKind: TypeAlias = Literal[
    "auto", "linear", "concat", "joint", "joint-difference", "joint-difference-activated", "cosine"
]
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
"""What a task may be called: its name becomes part of names of files and weights."""


@dataclass(frozen=True, kw_only=True)
class TaskHead:
    """What makes an answer of text vectors."""

    kind: Annotated[
        TaskHeadKind,
        Key(
            '"linear" reads single texts, "concat" and "cosine" two texts encoded apart, the "joint" ones two texts '
            'encoded together in both orders; "auto" is linear for texts and joint for pairs.'
        ),
    ] = "auto"
    dropout: Annotated[
        float, Key("The share of coordinates left out in front of the head while training.", at_least=0, below=1)
    ] = 0.1
    difference: Annotated[bool, Key('Whether "concat" also sees the absolute difference of the two vectors.')] = False
    product: Annotated[bool, Key('Whether "concat" also sees the product of the two vectors.')] = False
    symmetric: Annotated[
        bool,
        Key(
            'Whether a "joint" head gives the same answer when the two texts change places; false has a layer of its '
            "own for each order, as published."
        ),
    ] = True


@dataclass(frozen=True, kw_only=True)
class Task:
    """One of the tasks that share the encoder."""

    name: Annotated[str, Key("What the task is called, in letters, digits, - and _; anything but mean.")]
    data: Annotated[Data, Key("Which texts to read and what their columns mean.")]
    kind: Annotated[
        TaskKind | Literal["auto"],
        Key('Texts with classes, pairs with labels, or pairs with scores; "auto" is what the data has.'),
    ] = "auto"
    head: Annotated[TaskHead, Key("What makes an answer of text vectors.")] = field(default_factory=TaskHead)
    objective: Annotated[
        Objective,
        Key(
            'What the task is trained for; "auto" is cross-entropy for classes, the squared error for scores, and '
            "cosine-mse under a cosine head."
        ),
    ] = field(default_factory=Auto)
    head_weight: Annotated[
        float, Key("The weight of the head's own loss beside an objective that does not train the head.", above=0)
    ] = 1.0
    weight: Annotated[float, Key("What the loss of this task counts beside those of the others.", at_least=0)] = 1.0
    batch_size: Annotated[int | None, Key("The rows in its batches; unset means batches.size.", at_least=1)] = None
    metric: Annotated[
        Metric,
        Key(
            'The score on its dev rows; "auto" is f1_weighted for classes and labels, f1 for labels under a cosine '
            "head, and spearman for scores."
        ),
    ] = "auto"


@dataclass(frozen=True, kw_only=True)
class TaskBatches:
    """How many rows sit together in a step."""

    size: Annotated[int, Key("The rows in a batch of a task that says nothing else.", at_least=1)] = 32
    chunk: Annotated[
        int | None,
        Key(
            "The rows of a batch that are in memory at a time, with the same loss and gradients for a third more "
            "time; unset means all of them.",
            at_least=1,
        ),
    ] = None
    per_class: Annotated[
        int, Key("The texts of a class that sit together where an objective needs classmates.", at_least=2)
    ] = 4


@dataclass(frozen=True, kw_only=True)
class TaskSchedule:
    """The task schedule: which task the next batch is from."""

    kind: Annotated[
        Literal["sampled", "round-robin", "sequential", "annealed"],
        Key(
            '"sampled" mixes the batches at random, "round-robin" goes through the tasks in turn, "sequential" trains '
            'one task after the other, "annealed" begins in proportion to the data and ends nearly even.'
        ),
    ] = "sampled"
    sampling: Annotated[
        Literal["proportional", "square-root", "temperature", "weights"],
        Key("How the share of sampled batches depends on the size of a task."),
    ] = "proportional"
    temperature: Annotated[
        float | None, Key("How even sampling by temperature is: 1 is in proportion, 2 the square root.", above=0)
    ] = None
    weights: Annotated[
        dict[str, float],
        Key("The weight of a task's share of sampled or annealed batches, by its name; 1 for others.", at_least=0),
    ] = field(default_factory=dict)
    order: Annotated[
        tuple[str, ...],
        Key("The tasks in the order to train them, sequential or round-robin; unset means that of the file.", none=()),
    ] = ()
    steps: Annotated[
        int | None,
        Key("The batches of an epoch, sampled or annealed; unset means as many as all tasks have.", at_least=1),
    ] = None
    drop: Annotated[
        float, Key("What the exponent of annealed shares loses until the last epoch.", at_least=0, at_most=1)
    ] = 0.8


@dataclass(frozen=True, kw_only=True)
class TaskTraining(Training):
    """How long and how fast to learn, and what to keep."""

    epochs: Annotated[int | None, Key("How often the schedule is walked through; unset means 5.", at_least=1)] = None
    learning_rate: Annotated[
        float | None, Key("The highest learning rate of the encoder; unset means 5e-5.", above=0, at_most=10)
    ] = None
    metric: Annotated[
        Metric, Key('Always "auto": the mean of the scores of all tasks picks the model, each by its own metric.')
    ] = "auto"
    head_learning_rate: Annotated[
        float | None,
        Key(
            "The highest learning rate of heads and shared layer; unset means 20 times training.learning_rate.",
            above=0,
            at_most=10,
        ),
    ] = None
    gradient_surgery: Annotated[
        Literal["none", "pcgrad"],
        Key('"pcgrad" projects the gradient of a task onto the normal plane of each gradient it conflicts with.'),
    ] = "none"
    combine: Annotated[
        Literal["mean", "sum"],
        Key("How the gradients of the tasks in a step are reduced to one, after gradient surgery."),
    ] = "mean"
    weighting: Annotated[
        Literal["fixed", "uncertainty"],
        Key('"uncertainty" learns how much the loss of each task counts; "fixed" keeps to the weight of each task.'),
    ] = "fixed"


@dataclass(frozen=True, kw_only=True)
class TaskStage:
    """A training of the encoder before the tasks, on data of its own."""

    data: Annotated[Data, Key("Which texts to read and what their columns mean.")]
    objective: Annotated[Objective, Key("What this stage trains for.")] = field(default_factory=Auto)
    epochs: Annotated[int | None, Key("How often it sees every row; unset means 1.", at_least=1)] = None
    learning_rate: Annotated[
        float | None, Key("Its highest learning rate; unset means what suits the objective.", above=0, at_most=10)
    ] = None
    batch_size: Annotated[
        int | None, Key("The rows in its batches; unset means what suits the objective.", at_least=1)
    ] = None
    shuffle: Annotated[Shuffle, Key("Who shares a batch.")] = "auto"


@dataclass(frozen=True, kw_only=True)
class TaskRecipe:
    """One run of several tasks, in writing."""

    seed: Annotated[int, Key("The number all randomness follows from.", at_least=0, at_most=2**31 - 1)] = 2
    encoder: Annotated[Encoder, Key("The pretrained model that turns texts into vectors.")] = field(
        default_factory=Encoder
    )
    shared_layer: Annotated[
        bool, Key("Whether one linear layer with tanh, shared by all tasks, stands in front of the heads.")
    ] = False
    batches: Annotated[TaskBatches, Key("How many rows sit together in a step.")] = field(default_factory=TaskBatches)
    schedule: Annotated[TaskSchedule, Key("The task schedule: which task the next batch is from.")] = field(
        default_factory=TaskSchedule
    )
    training: Annotated[TaskTraining, Key("How long and how fast to learn, and what to keep.")] = field(
        default_factory=TaskTraining
    )
    stage: Annotated[tuple[TaskStage, ...], Key("Trainings of the encoder before the tasks.", none=())] = ()
    task: Annotated[tuple[Task, ...], Key("The tasks that share the encoder.")]

    def plain(self, task: Task) -> Recipe:
        """What a task asks for, as a recipe of its own would."""
        return Recipe(seed=self.seed, data=task.data, encoder=self.encoder, objective=task.objective)


def has_tasks(path: Path) -> bool:
    """Whether a file is a recipe with tasks; a file that cannot be read is none, and is refused elsewhere."""
    try:
        return "task" in tomllib.loads(path.read_bytes()[: 2**18].decode("utf-8-sig"))
    except (OSError, ValueError, RecursionError):
        return False


def read_task_recipe(path: Path, overrides: Sequence[Override] = ()) -> TaskRecipe:
    """Read a recipe with tasks; overrides win over what it says, and its paths count from its folder."""
    from nearfar.recipe.parser import parse

    where = printable(str(path))
    values, lines = parse(content(path, where), where)
    recipe: TaskRecipe = build_table(TaskRecipe, values, overrides, where=where, lines=lines)
    _check(recipe, where, [lines.get(("task", place)) for place in range(len(recipe.task))])
    return _resolved(recipe, path.absolute().parent)


def build_task_recipe(values: dict[str, Any], overrides: Sequence[Override] = (), *, where: str) -> TaskRecipe:
    """Make a recipe with tasks without a file; ``where`` names the place of values that no flag set."""
    recipe: TaskRecipe = build_table(TaskRecipe, values, overrides, where=where)
    _check(recipe, where, [None] * len(recipe.task))
    return recipe


def task_toml(recipe: TaskRecipe) -> str:
    """The recipe as a TOML text; reading it gives an equal recipe."""
    return table_to_toml(recipe)


def _check(recipe: TaskRecipe, where: str, lines: Sequence[int | None]) -> None:
    """What no single key can know."""
    problems: list[Problem] = []
    seen: dict[str, int] = {}
    for place, task in enumerate(recipe.task):
        if not NAME.fullmatch(task.name):
            remedy = "Use letters, digits, - and _, such as sentiment."
            problems.append(Problem(where, "a task cannot have this name", remedy, lines[place], value=task.name))
        elif task.name == "mean":
            message = "a task cannot have the name mean, which is that of the score over all tasks"
            problems.append(Problem(where, message, "Give it another name.", lines[place]))
        elif task.name in seen:
            message = f"two tasks have the name {task.name!r}, the {_nth(seen[task.name])} and the {_nth(place)}"
            problems.append(Problem(where, message, "Give one of them another name.", lines[place]))
        seen.setdefault(task.name, place)
    if not recipe.task:
        problems.append(Problem(where, "there is no task", "Add [[task]] with a name, and [task.data] with train."))
    elif not any(task.weight for task in recipe.task):
        message = f"the weights of all tasks ({', '.join(seen)}) sum to zero, so that nothing would be learned"
        problems.append(Problem(where, message, "Give at least one [[task]] a weight above 0.", lines[0]))
    if recipe.training.metric != "auto":
        message = f"training.metric is {recipe.training.metric!r}, but the mean of the tasks' scores picks the model"
        problems.append(Problem(where, message, "Remove it; each [[task]] has a metric of its own."))
    if recipe.training.gradient_surgery == "none" and recipe.training.combine != "mean":
        message = f"training.combine is {recipe.training.combine!r}, which has no effect without gradient surgery"
        problems.append(Problem(where, message, 'Remove it, or write training.gradient_surgery = "pcgrad".'))
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
