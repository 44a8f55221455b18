"""One encoder with a head for each of several tasks, and the files that hold the heads."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from nearfar.encoding.encoder import TextModel
from nearfar.encoding.folder_files import read_json
from nearfar.encoding.heads import LinearHead
from nearfar.encoding.model import Model, Prediction, in_batches, load
from nearfar.encoding.model_folder import CARD, HEADS, Card, TaskSpec
from nearfar.encoding.pair_heads import CosineHead, PairHead, SharedLayer, make_pair_head
from nearfar.encoding.tokens import Inputs, TokenTable, tokenize
from nearfar.errors import EncoderError, SettingError, did_you_mean
from nearfar.files import atomic

KIND = "tasks"
"""The kind of the task in the card of a model with several."""
MOST_LAYERS = 100
"""Hidden layers that a head has at most."""
ROWS = 4_096
"""Rows that a head answers at once."""

Reads = Literal["texts", "joined", "apart"]
"""What a head stands on: single texts, pairs encoded together in both orders, or pairs encoded apart."""
Columns = tuple[NDArray[np.int64], ...]


@dataclass(frozen=True)
class TaskCard:
    """What must be known to use a task."""

    name: str
    kind: Literal["classes", "pairs", "scores"]
    head: dict[str, Any]
    metric: str
    labels: tuple[str, ...] | None = None
    """The classes in the order of the outputs; under a cosine head no and yes; None for scores."""
    low: float = 0.0
    high: float = 1.0
    """The range of the training scores, to which outputs from 0 to 1 are mapped."""
    threshold: float | None = None
    accuracy_threshold: float | None = None
    """Where a yes begins under a cosine head: for the best F1 of the dev rows, and for their best accuracy."""

    @property
    def reads(self) -> Reads:
        """What the head stands on."""
        kind = str(self.head.get("kind"))
        return "texts" if kind == "linear" else "joined" if kind.startswith("joint") else "apart"

    @property
    def outputs(self) -> int:
        """How many numbers a row gets: a logit of each class, or a score."""
        return 1 if self.labels is None or self.head.get("kind") == "cosine" else len(self.labels)

    @property
    def single_logit(self) -> bool:
        """Whether the head has one logit for two classes, that of the second; the logit of the first is 0."""
        return bool(self.head.get("single_logit"))

    @property
    def thresholds(self) -> dict[str, float] | None:
        """The decision thresholds that the dev rows chose; None where there were none."""
        if self.threshold is None or self.accuracy_threshold is None:
            return None
        return {"threshold": self.threshold, "accuracy_threshold": self.accuracy_threshold}

    @property
    def cut(self) -> float:
        """Where a yes begins under a cosine head, by the task's own metric; one half where no dev rows chose."""
        chosen = self.accuracy_threshold if self.metric == "accuracy" else self.threshold
        return 0.5 if chosen is None else chosen


class HeadSet(nn.Module):
    """The heads of all tasks, and the layer in front of them where there is one.

    Args:
        dim: width of a text vector.
        cards: the tasks.
        shared: whether there is a shared layer.
        dropout: of the shared layer, in front of it and inside.
    """

    def __init__(
        self, dim: int, cards: Sequence[TaskCard], *, shared: bool, dropout: tuple[float, float] = (0.0, 0.0)
    ) -> None:
        super().__init__()
        before, inside = dropout
        self.shared = SharedLayer(dim, before=before, inside=inside) if shared else None
        self.tasks = nn.ModuleDict({_key(card.name): _make_head(card, dim) for card in cards})
        self.single = frozenset(card.name for card in cards if card.single_logit)
        self.hidden = nn.ModuleDict(
            {_key(card.name): _hidden_layers(card, dim) for card in cards if card.head.get("hidden_layers")}
        )

    def forward(self, task: str, vectors: Sequence[Tensor]) -> Tensor:
        """(b, d) vectors of each column of a task -> (b, k).

        The cosine is that of the encoder's own vectors: the shared layer is not in front of it. A single logit z
        becomes the logits 0 and z of two classes: their softmax is the sigmoid of z, their cross-entropy its binary
        cross-entropy.
        """
        head = self.of(task)
        seen = list(vectors)
        if self.shared is not None and not isinstance(head, CosineHead):
            seen = [self.shared(column) for column in seen]
        if _key(task) in self.hidden:
            seen = [self.hidden[_key(task)](column) for column in seen]
        outputs: Tensor = head(*seen)
        return F.pad(outputs, (1, 0)) if task in self.single else outputs

    def of(self, task: str) -> nn.Module:
        """The head of a task."""
        return self.tasks[_key(task)]


def _key(task: str) -> str:
    """The name of a head among modules, which have uses of their own for names such as type and train."""
    return f"{task}+" if hasattr(nn.ModuleDict(), task) else task


def _make_head(card: TaskCard, dim: int) -> LinearHead | PairHead:
    settings = {key: value for key, value in card.head.items() if key not in ("hidden_layers", "single_logit")}
    outputs = 1 if card.single_logit else card.outputs
    if settings.get("kind") == "linear":
        del settings["kind"]
        return LinearHead(dim, card.outputs, outputs=outputs, **settings)
    return make_pair_head(settings, dim, outputs)


def _hidden_layers(card: TaskCard, dim: int) -> nn.Sequential:
    """The further layers of a head."""
    dropout = float(card.head.get("dropout", 0.0))
    return nn.Sequential(*(SharedLayer(dim, before=dropout) for _ in range(card.head["hidden_layers"])))


class TaskNetwork(nn.Module):
    """An encoder under the heads of several tasks.

    Args:
        encoder: the text model, without a head of its own.
        cards: the tasks.
        shared: whether one layer stands in front of all heads.
        dropout: of that layer, in front of it and inside.
        seed: of the heads' first weights.
    """

    native = False

    def __init__(
        self, encoder: TextModel, cards: Sequence[TaskCard], *, shared: bool, dropout: tuple[float, float] = (0.0, 0.0),
        seed: int = 0,
    ) -> None:  # fmt: skip
        super().__init__()
        self.encoder = encoder
        self.cards = {card.name: card for card in cards}
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.head = HeadSet(encoder.dim, cards, shared=shared, dropout=dropout)

    @property
    def held(self) -> Any:
        """The encoder's network in whichever form it is open, by whose names weights are grouped."""
        return self.encoder.held

    def inputs(self, table: TokenTable, rows: Sequence[int] | NDArray[np.int64]) -> Inputs:
        """Rows of a table in the form the encoder reads fastest."""
        return self.encoder.inputs(table, rows)

    def shared_weights(self) -> list[Tensor]:
        """The weights that several tasks train."""
        shared = self.head.shared
        return [*self.encoder.parameters(), *(() if shared is None else shared.parameters())]

    def answers(self, task: str, vectors: NDArray[np.float32], columns: Columns) -> NDArray[np.float32]:
        """(n, k) outputs of a task, from vectors of texts and where the texts of each row are among them."""
        training = self.head.training
        self.head.eval()
        device = next(self.encoder.parameters()).device
        found = [np.zeros((0, self.cards[task].outputs), dtype=np.float32)]
        try:
            with torch.inference_mode():
                for start in range(0, len(columns[0]), ROWS):
                    rows = [torch.from_numpy(vectors[column[start : start + ROWS]]).to(device) for column in columns]
                    found.append(self.head(task, rows).float().cpu().numpy())
        finally:
            self.head.train(training)
        return np.concatenate(found)


def lay_out(
    tokenizer: Any, texts: Sequence[Sequence[str]], reads: Reads, max_length: int
) -> tuple[TokenTable, Columns]:
    """Texts or pairs as a head stands on them: a table of tokens, and where in it the texts of each row are."""
    n = len(texts[0])
    every = np.arange(n, dtype=np.int64)
    if reads == "texts":
        return tokenize(tokenizer, texts[:1], max_length=max_length), (every,)
    left, right = (list(column) for column in texts)
    if reads == "joined":
        table = tokenize(tokenizer, [left + right, right + left], max_length=max_length)
        return table, (every, n + every)
    places: dict[str, int] = {}
    columns = tuple(
        np.array([places.setdefault(text, len(places)) for text in column], dtype=np.int64) for column in (left, right)
    )
    return tokenize(tokenizer, [list(places)], max_length=max_length), columns


class TaskModel:
    """A model of several tasks, for use.

    Args:
        model: the encoder, with tokenizer and card.
        network: the same encoder under its heads.
        cards: the tasks.
    """

    def __init__(self, model: Model, network: TaskNetwork, cards: Sequence[TaskCard]) -> None:
        self.model = model
        self.network = network.eval()
        self.tasks = {card.name: card for card in cards}

    def card(self, task: str | None) -> TaskCard:
        """A task by its name; a model with one task needs none."""
        known = list(self.tasks)
        if task is None and len(known) == 1:
            return self.tasks[known[0]]
        if task is None:
            raise SettingError(f"this model has several tasks; name one with --task: {', '.join(known)}.")
        if task not in self.tasks:
            raise SettingError(
                f"there is no task {task!r}; the tasks are {', '.join(known)}.{did_you_mean(task, known)}"
            )
        return self.tasks[task]

    def outputs(self, task: str, texts: Sequence[Sequence[str]], *, batch_size: int = 64) -> NDArray[np.float32]:
        """(n, k) what the head gives: logits, a score from 0 to 1, or a cosine. ``texts`` are one or two columns."""
        card = self.card(task)
        if len(texts) != (1 if card.reads == "texts" else 2):
            wanted = "single texts" if card.reads == "texts" else "pairs of texts"
            raise SettingError(f"task {card.name!r} reads {wanted}; got {len(texts)} columns of texts.")
        if any(isinstance(column, str) for column in texts):
            raise SettingError(
                f"task {card.name!r}: give lists of texts, one for each column, not a string: [['...']]."
            )
        if len({len(column) for column in texts}) > 1:
            sizes = " and ".join(str(len(column)) for column in texts)
            raise SettingError(f"task {card.name!r}: the columns of texts must have the same length, got {sizes}.")
        table, columns = lay_out(self.model.reader, texts, card.reads, self.model.card.max_length)
        encoder = self.network.encoder
        vectors = in_batches(encoder, table, batch_size, lambda output: output.embedding, width=encoder.dim)
        return self.network.answers(card.name, vectors.numpy(), columns)

    def predict(self, task: str, texts: Sequence[Sequence[str]], *, batch_size: int = 64) -> list[Prediction]:
        """The answer for each row of one or two columns of texts."""
        card = self.card(task)
        return [answer(card, row) for row in self.outputs(card.name, texts, batch_size=batch_size)]


def answer(card: TaskCard, outputs: NDArray[np.float32]) -> Prediction:
    """(k,) outputs of a head, in words."""
    if card.labels is None:
        return Prediction(None, {}, card.low + float(outputs[0]) * (card.high - card.low))
    if card.head["kind"] == "cosine":
        cosine = float(outputs[0])
        return Prediction(card.labels[int(cosine >= card.cut)], {}, cosine)
    chances = np.exp(outputs - outputs.max(), dtype=np.float64)
    chances /= chances.sum()
    return Prediction(card.labels[int(outputs.argmax())], dict(zip(card.labels, chances.tolist(), strict=True)), None)


def describe_tasks(cards: Sequence[TaskCard], *, shared: bool) -> TaskSpec:
    """What the card of the folder says of its tasks."""
    return {"kind": KIND, "shared_layer": shared, "tasks": [asdict(card) for card in cards]}


def save_heads(folder: Path, network: TaskNetwork, objective: Mapping[str, Tensor]) -> None:
    """Write the heads, and the objectives' own weights, before the folder gets its card."""
    tensors: dict[str, Tensor] = dict(network.head.state_dict())
    tensors |= {f"objective.{name}": tensor for name, tensor in objective.items()}
    with atomic(folder / HEADS, folder / f".{HEADS}") as file:
        save_file({name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}, file)


def holds_tasks(name: str | Path) -> bool:
    """Whether a name is that of a folder with a model of several tasks."""
    folder = Path(os.path.expanduser(name))
    card = read_json(folder, CARD) if os.path.isdir(folder) else None
    task = None if card is None else card.get("task")
    return isinstance(task, dict) and task.get("kind") == KIND


def is_task_model(card: Card) -> bool:
    """Whether a card is that of a model with several tasks."""
    return card.task.get("kind") == KIND


def load_tasks(name: str | Path, model: Model | None = None) -> TaskModel:
    """Open a model with several tasks; ``model`` is its encoder where that is open already."""
    model = model or load(name)
    if not is_task_model(model.card):
        raise SettingError(f"{name}: this model has no tasks; --task is for models trained with [[task]] tables.")
    path = (model.folder or Path(name)) / HEADS
    try:
        cards = [_card(values) for values in model.card.task["tasks"]]
        if len({card.name for card in cards}) != len(cards) or not cards:
            raise ValueError("its tasks have no names of their own")
        with torch.device("meta"):  # nothing is allocated for what the file does not hold
            network = TaskNetwork(model.model, cards, shared=bool(model.card.task["shared_layer"]))
        tensors = {key: value.clone() for key, value in load_file(path).items() if not key.startswith("objective.")}
        network.head.load_state_dict(tensors, assign=True)
        network.head.to(next(model.model.parameters()).device)
    except (OSError, SafetensorError, RuntimeError, KeyError, TypeError, ValueError, AttributeError) as cause:
        first = str(cause).strip().splitlines()[0] if str(cause).strip() else type(cause).__name__
        raise EncoderError(
            f"{path}: the heads of the tasks cannot be opened ({first}). Is the folder complete?"
        ) from cause
    return TaskModel(model, network, cards)


def _card(values: Mapping[str, Any]) -> TaskCard:
    labels = values["labels"]
    card = TaskCard(**{**values, "labels": None if labels is None else tuple(map(str, labels))})
    if not isinstance(card.name, str):
        raise TypeError(f"a task with the name {card.name!r:.60}")
    if card.labels is not None and (len(card.labels) < 2 or len(set(card.labels)) < len(card.labels)):
        raise ValueError(f"labels of task {card.name!r:.60} that are not two or more different names")
    layers = card.head.get("hidden_layers", 0)
    if type(layers) is not int or not 0 <= layers <= MOST_LAYERS:
        raise ValueError(f"task {card.name!r:.60} with {layers!r:.60} hidden layers")
    numbers = [card.low, card.high, card.threshold, card.accuracy_threshold]
    if not all(value is None or (isinstance(value, int | float) and math.isfinite(value)) for value in numbers):
        raise ValueError(f"task {card.name!r:.60} with scores that are no numbers")
    return card
