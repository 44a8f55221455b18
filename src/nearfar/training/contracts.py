"""What a training run needs from its parts: small protocols, and the types of what it reports."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal, NotRequired, Protocol, TypedDict

from nearfar.batching import Rows, Sampler
from nearfar.encoding import Inputs, TokenTable
from nearfar.errors import duration
from nearfar.training.loss_module import Batch


def about(seconds: float) -> str:
    """An estimate of a time; nothing takes none.

    >>> about(0.2), about(200)
    ('about 1 s', 'about 3 min 20 s')
    """
    return f"about {duration(max(seconds, 1))}"


Scores = dict[str, float]
Evaluate = Callable[[], Scores]
"""Computes the dev scores of the present weights."""


class InputModel(Protocol):
    """Turns rows of a token table into the input of an encoder."""

    def inputs(self, table: TokenTable, rows: Rows) -> Inputs:
        """Rows of a table in the form the encoder reads fastest."""


class BatchLoader(Protocol):
    """Training rows as batches of tensors: of one task, or of several that share an encoder."""

    @property
    def sampler(self) -> Sampler:
        """Which rows share a batch."""

    def __len__(self) -> int:
        """How many rows there are."""

    def by_task(self, rows: Rows) -> dict[str, Rows]:
        """The rows of a batch by the task they belong to; its name is empty where there is only one."""

    def task_weights(self, epoch: int) -> Mapping[str, float]:
        """The weight of each task's gradient where a step has one of each, as in PCGrad; the first epoch is 0."""

    def batches(self, model: InputModel, rows: Rows, chunk: int | None, *, rank: int, world: int) -> list[Batch]:
        """The share of a batch that this process computes, in chunks of at most so many rows."""

    def place(self, rows: Rows) -> str:
        """Where the rows come from, for messages."""


class TaskEntry(TypedDict):
    """The part of a task in a step."""

    loss: float
    rows: int


class ConflictEntry(TypedDict):
    """How often the gradients of two tasks conflicted, and their mean cosine."""

    steps: int
    conflicts: int
    cosine: float | None


class StepDetails(TypedDict, total=False):
    """What only some objectives or several tasks report of a step."""

    temperatures: dict[str, float]
    masked: dict[str, int]
    tasks: dict[str, TaskEntry]
    surgery: dict[str, ConflictEntry]
    task_weights: dict[str, float]


class StepEntry(StepDetails):
    """A step in the journal."""

    kind: Literal["step"]
    step: int
    steps: int
    epoch: int
    loss: float
    parts: dict[str, float]
    learning_rates: dict[str, float]
    gradient_norm: float
    texts_per_second: float
    seconds: float


class EvaluationEntry(TypedDict):
    """An evaluation on the dev rows in the journal."""

    kind: Literal["evaluation"]
    step: int
    epoch: int
    scores: Scores
    best: bool
    metric: str
    stopped: bool


class Evaluated(TypedDict):
    """The scores after a step."""

    step: int
    scores: Scores


class Best(Evaluated):
    """The best evaluation so far, and the name of its stored weights."""

    weights: NotRequired[str]


class Callback(Protocol):
    """Follows a run: a progress bar, a log, a test. A class that inherits from it needs only the methods it uses.

    >>> class Losses(Callback):
    ...     def __init__(self):
    ...         self.values = []
    ...     def step(self, entry):
    ...         self.values.append(entry["loss"])
    >>> import nearfar
    >>> losses = Losses()
    >>> clf = nearfar.Classifier("toy", max_steps=2, callbacks=[losses])
    >>> _ = clf.fit(["an apple", "a plum", "a saw", "a drill"], ["fruit", "fruit", "tool", "tool"])
    >>> len(losses.values)
    2
    """

    def message(self, text: str) -> None:  # noqa: ARG002
        """A line for the user."""
        return

    def begin(self, steps: int) -> None:  # noqa: ARG002
        """A training of so many steps begins."""
        return

    def step(self, entry: StepEntry) -> None:  # noqa: ARG002
        """An optimizer step was taken."""
        return

    def evaluation(self, entry: EvaluationEntry) -> None:  # noqa: ARG002
        """The dev rows were evaluated."""
        return

    def end(self) -> None:
        """The training that began has ended, whatever the reason."""
        return
