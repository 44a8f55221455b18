"""A trained model: ``load(folder)`` predicts labels and embeds texts; :func:`nearfar.load` makes it an estimator."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nearfar.encoding import model_folder
from nearfar.encoding.devices import choose_device
from nearfar.encoding.encoder import Output, TextModel, Transform
from nearfar.encoding.folder_files import is_panic
from nearfar.encoding.heads import Head, NeighborHead, make_head
from nearfar.encoding.hub import first_line
from nearfar.encoding.light_tokenizer import LightTokenizer
from nearfar.encoding.model_files import SavedModel, check_target, copy_model
from nearfar.encoding.pretrained import (
    choose_length,
    exclusive_random,
    find,
    labels_of,
    open_config,
    open_light,
    open_network,
    open_tokenizer,
    positions,
    require_pooler,
    several_labels,
)
from nearfar.encoding.scope import NO_SCOPE, Scope
from nearfar.encoding.tokens import TokenTable, tokenize
from nearfar.errors import EncoderError, NearfarError, OutputError, SettingError

Texts = Sequence[str] | Sequence[tuple[str, str]]
PROBE = "a text"
"""What a model encodes when it is opened, to see that it works."""


@dataclass(frozen=True)
class Prediction:
    """What a model says of a text or a pair."""

    label: str | None
    """None for a task of scores, and where a text may have several labels."""
    probabilities: dict[str, float]
    """Of every class, of several labels each by itself; empty for scores and under a cosine head."""
    score: float | None = None
    """In the range of the training scores; under a cosine head with labels, the cosine."""
    labels: tuple[str, ...] | None = None
    """The labels that apply, the most likely first, of a model of several labels a text; else None."""
    typicality: float | None = None
    """How typical the text is of the classes, from 0 to 1, where that was asked for."""


class Model(SavedModel):
    """A text model with its tokenizer, for inference.

    >>> model = load("toy")
    >>> model.embed(["a short text", "another one"]).shape
    (2, 64)
    """

    def __init__(
        self, model: TextModel, tokenizer: Any, card: model_folder.Card, *, folder: Path | None = None
    ) -> None:
        self.model = model.eval()
        self.reader = tokenizer
        """Makes tokens of texts: a tokenizer of transformers, or its file opened without transformers."""
        self.card = card
        self.folder = folder

    @property
    def tokenizer(self) -> Any:
        """The tokenizer of transformers; where it was opened without, transformers is imported now."""
        if isinstance(self.reader, LightTokenizer):
            self.reader = self.reader.whole()
        return self.reader

    @tokenizer.setter
    def tokenizer(self, tokenizer: Any) -> None:
        self.reader = tokenizer

    @classmethod
    def from_pretrained(
        cls, name: str | Path, *, revision: str | None = None, token: str | None = None, device: str | None = None
    ) -> Model:
        """The same as ``nearfar.load``, by the name it has in transformers and sentence-transformers."""
        return load(name, revision=revision, token=token, device=device)

    def save(self, path: str | Path) -> None:
        """Save the model to a folder; a model that is there is replaced.

        A model of nearfar is copied with its model card, recipe and scores.
        """
        folder = Path(path)
        if self.folder is not None:
            if model_folder.read_card(self.folder) != self.card:
                raise OutputError(f"{self.folder}: this folder has changed since the model was opened; open it again.")
            return copy_model(self.folder, folder)
        check_target(folder)
        return model_folder.save(folder, self.model, self.tokenizer, self.card, readme=_README)

    @property
    def labels(self) -> tuple[str, ...] | None:
        """The class names in the order of the probabilities; None for a model without a class head."""
        return self.card.labels

    def predict(self, texts: Texts, *, batch_size: int = 64, typicality: bool = False) -> list[Prediction]:
        """The label of each text, or of each ``(left, right)`` pair for a model trained on pairs.

        With ``typicality``, predictions also say how typical a text is of the classes.
        """
        if typicality:
            return self._typical(texts, batch_size)
        if self.predicts_scores:
            return [Prediction(None, {}, float(score)) for score in self.scores(texts, batch_size=batch_size)]
        labels = self._require_labels()
        chances = self.probabilities(texts, batch_size=batch_size)
        if self.multilabel:
            return [self._several(labels, row.tolist()) for row in chances]
        return [Prediction(labels[int(row.argmax())], dict(zip(labels, row.tolist(), strict=True))) for row in chances]

    def _typical(self, texts: Texts, batch_size: int) -> list[Prediction]:
        labels = self._require_labels()
        both = zip(*self.typical_probabilities(texts, batch_size=batch_size), strict=True)
        return [
            Prediction(labels[int(row.argmax())], dict(zip(labels, row.tolist(), strict=True)), typicality=float(share))
            for row, share in both
        ]

    @property
    def multilabel(self) -> bool:
        """Whether a text may have several labels."""
        return self.card.task.get("kind") == "multilabel"

    @property
    def predicts_scores(self) -> bool:
        """Whether the head predicts the score of a text."""
        return self.card.task.get("kind") == "text-scores"

    def scores(self, texts: Texts | TokenTable, *, batch_size: int = 64) -> NDArray[np.float32]:
        """(n,) the score of each text, in the units of the training scores."""
        if not self.predicts_scores:
            raise SettingError("this model has no head for scores; train it on texts with scores (--score).")
        table = self.tokenize(texts)
        scores = in_batches(self.model, table, batch_size, lambda output: output.logits, width=1, logits_only=True)
        return scores[:, 0].numpy()

    def _several(self, labels: tuple[str, ...], chances: list[float]) -> Prediction:
        """The labels with at least the probability of their thresholds."""
        least = self.card.task.get("thresholds", {})
        order = sorted(zip(labels, chances, strict=True), key=lambda pair: -pair[1])
        applying = tuple(label for label, chance in order if chance >= least.get(label, 0.5))
        return Prediction(None, dict(zip(labels, chances, strict=True)), labels=applying)

    def probabilities(self, texts: Texts, *, batch_size: int = 64) -> NDArray[np.float32]:
        """(n, c) probabilities of the classes; where a text may have several labels, of each label by itself."""
        logits = torch.from_numpy(self.logits(texts, batch_size=batch_size))
        return (logits.sigmoid() if self.multilabel else logits.softmax(dim=1)).numpy()

    def logits(self, texts: Texts | TokenTable, *, batch_size: int = 64) -> NDArray[np.float32]:
        """(n, c) what the class head gives before it becomes probabilities."""
        self._require_labels()
        logits = in_batches(
            self.model, self.tokenize(texts), batch_size, lambda output: output.logits, width=self.model.classes,
            logits_only=True,
        )  # fmt: skip
        return logits.numpy()

    def typical_probabilities(
        self, texts: Texts, *, batch_size: int = 64
    ) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """(n, c) probabilities of the classes, and (n,) how typical each text is of them.

        The typicality is the share of in-scope texts that lie farther from the classes than this one.
        """
        self._require_labels()
        if self.model.scope is None:
            raise SettingError(NO_SCOPE)
        width = self.model.classes

        def both(output: Output) -> Tensor:
            assert output.logits is not None
            assert output.typicality is not None
            return torch.cat([output.logits.float(), output.typicality[:, None]], dim=1)

        values = in_batches(self.model, self.tokenize(texts), batch_size, both, width=width + 1)
        return values[:, :width].softmax(dim=1).numpy(), values[:, width].numpy()

    def embed(self, texts: Texts | TokenTable, *, batch_size: int = 64) -> NDArray[np.float32]:
        """(n, d) text vectors."""
        vectors = in_batches(
            self.model, self.tokenize(texts), batch_size, lambda output: output.embedding, width=self.model.dim
        )
        if self.card.normalize:
            vectors = torch.nn.functional.normalize(vectors, dim=1)
        return vectors.numpy()

    def tokenize(self, texts: Texts | TokenTable) -> TokenTable:
        """Texts or pairs of texts to tokens, with the checks a caller expects; tokens stay as they are."""
        if isinstance(texts, TokenTable):
            return texts
        if isinstance(texts, str):
            raise SettingError("give a list of texts, not one string: ['...'].")
        rows = list(texts)
        paired = bool(rows) and not isinstance(rows[0], str)
        for place, row in enumerate(rows):
            if not (_is_pair(row) if paired else isinstance(row, str)):
                wanted = "a (left, right) pair of strings, as the first one is" if paired else "a string"
                if place == 0:
                    wanted = "a string or a (left, right) pair of strings"
                raise SettingError(f"text {place} must be {wanted}, got {row!r:.60}.")
        if rows and paired != self.card.joined:
            wanted = "pairs of texts" if self.card.joined else "single texts"
            raise SettingError(f"this model reads {wanted}; got {'pairs' if paired else 'single texts'}.")
        columns: list[list[Any]] = [list(column) for column in zip(*rows, strict=True)] if paired else [rows]
        return tokenize(self.reader, columns, max_length=self.card.max_length)

    def _require_labels(self) -> tuple[str, ...]:
        if self.card.labels is None:
            raise SettingError("this model has no class head, so it predicts no labels; it embeds texts.")
        return self.card.labels


def _is_pair(row: object) -> bool:
    sides = row if isinstance(row, Sequence) and not isinstance(row, str) else ()
    return len(sides) == 2 and all(isinstance(side, str) for side in sides)


def in_batches(
    model: TextModel, table: TokenTable, batch_size: int, view: Any, *, width: int, logits_only: bool = False
) -> Tensor:
    """(n, width) of one field of the output, computed in batches of similar length, in the order of the table."""
    if batch_size < 1:
        raise SettingError(f"batch_size must be 1 or more, got {batch_size}.")
    device = next(model.parameters()).device
    result = torch.zeros(len(table), width)
    training = model.training
    if training:  # to go through all modules takes a millisecond
        model.eval()
    try:
        with torch.inference_mode():
            for rows in by_length(table, batch_size, tokens=model.tokens_at_once):
                output: Output = model(model.inputs(table, rows).to(device), logits_only=logits_only)
                result[torch.from_numpy(rows)] = view(output).float().cpu()
    finally:
        if training:
            model.train()
    return result


def by_length(table: TokenTable, batch_size: int, *, tokens: int = 0) -> Iterator[NDArray[np.int64]]:
    """Batches of texts of similar length, the longest first, so that memory runs out at once or never.

    A batch has more texts than ``batch_size`` where it has no more ``tokens`` then.
    """
    lengths = table.lengths
    order = np.argsort(-lengths, kind="stable")
    start = 0
    while start < len(order):
        stop = start + max(batch_size, tokens // max(1, int(lengths[order[start]])))
        yield order[start:stop]
        start = stop


_README = """---
library_name: nearfar
tags: [nearfar, sentence-transformers]
---

An encoder of texts. `nearfar.load("this-folder")` and `SentenceTransformer("this-folder")` open it.
"""


def load(
    name: str | Path, *, revision: str | None = None, token: str | None = None, device: str | None = None
) -> Model:
    """Open a model folder, whichever library saved it, or an encoder by name.

    Args:
        name: a folder, a short name, or an id on the Hugging Face Hub; ``"owner/name@v1"`` names its revision, too.
        revision: a branch, a tag or a commit on the Hub.
        token: an access token for private repositories; None for that of ``hf auth login`` or ``HF_TOKEN``.
        device: ``"cpu"``, ``"cuda"``, ``"cuda:1"`` or ``"mps"``; None for a GPU where there is one.
    """
    place = choose_device(device)
    if revision is not None:
        if os.path.exists(name) or str(name) in ("toy", "minilm") or "@" in str(name):
            raise SettingError(f"revision {revision!r} is for a model on the hub; {name} has none.")
        name = f"{name}@{revision}"
    source = find(str(name), token=token)
    folder = Path(source.location) if source.location else None
    card = model_folder.read_card(folder) if folder is not None and folder.is_dir() else None
    saved = folder if card is not None else None
    if card is None and source.prompt:
        raise EncoderError(
            f"{name}: sentence-transformers puts the prompt {source.prompt!r} in front of every text, and nearfar does "
            "not, so its vectors would be others. Save it without a default_prompt_name, and put the prompt into the "
            "texts."
        )
    opened = None if card is None or card.native else open_light(source)
    head: Head | None = None
    if opened is not None:
        (network, tokenizer), fresh = opened, set[str]()
        labels, native = card.labels if card else None, False
    else:
        config, tokenizer = open_config(source), open_tokenizer(source)
        labels = labels_of(config) if card is None else card.labels
        native = labels is not None if card is None else card.native
        with exclusive_random():
            torch.manual_seed(0)  # the toy encoder is drawn, not loaded: always the same one
            network, fresh = open_network(source, config, native=native)
    width = int(network.config.hidden_size)
    with exclusive_random():
        if labels is not None and not native:
            head = _read_head(folder, card, width, len(labels), name)
        elif card is not None and card.task.get("kind") == "text-scores":
            head = _read_head(folder, card, width, 1, name)
    if card is None:
        length = choose_length(source, network, tokenizer, None)
        task: model_folder.TaskSpec = {"kind": "multilabel"} if labels and several_labels(network.config) else {}
        card = model_folder.Card(
            source.pooling or "mean", length, native, labels, normalize=source.normalize, task=task
        )
    _check_complete(network, card, fresh if folder is not None else set(), name)
    transform = None
    if card.transform is not None:
        transform = _read_transform(folder if source.transformed else None, width, name)
    model = TextModel(network, pooling=card.pooling, native=card.native, head=head, transform=transform)
    if (calibration := card.task.get("calibration")) is not None:
        model.temperature = calibration["temperature"]
    if saved is not None and labels is not None:
        model.scope = _read_scope(saved, width, len(labels), name)
    result = Model(model.to(place), tokenizer, card, folder=saved)
    if folder is not None:
        _try_out(result, name)
    return result


def _try_out(model: Model, name: str | Path) -> None:
    """Encode one short text: settings that pass every check may still not go together."""
    texts: Texts = [(PROBE, PROBE)] if model.card.joined else [PROBE]
    try:
        with torch.random.fork_rng(devices=[]):
            model.embed(texts)
            if model.labels is not None or model.predicts_scores:
                width = model.model.classes
                in_batches(model.model, model.tokenize(texts), 1, lambda output: output.logits, width=width)
    except NearfarError as cause:
        raise EncoderError(f"{name}: this model does not work: {cause}") from cause
    except BaseException as cause:  # whatever a network raises for numbers that do not go together
        if not isinstance(cause, Exception) and not is_panic(cause):
            raise
        raise EncoderError(
            f"{name}: this model does not work ({first_line(cause):.200}). Is the folder complete?"
        ) from cause


def _check_complete(network: Any, card: model_folder.Card, fresh: set[str], name: str | Path) -> None:
    """Refuse a network that does not match the card; ``fresh`` are the weights that its folder did not hold."""
    classes = int(network.config.num_labels)
    if card.native and card.labels is not None and len(card.labels) != classes:
        raise EncoderError(f"{name}: {len(card.labels)} labels for {classes} classes. Is the folder complete?")
    if card.pooling == "pooler":
        require_pooler(network.base_model, str(name))
    most = positions(network)
    if most is not None and card.max_length > most:
        raise EncoderError(
            f"{name}: its card reads {card.max_length:,} tokens, and the encoder has {most:,} positions. Is the folder "
            "complete?"
        )
    needed = card.native or card.pooling == "pooler"  # else the pooler is not used, and many checkpoints have none
    lost = sorted(key for key in fresh if needed or ".pooler." not in f".{key}")
    if lost:
        raise EncoderError(f"{name}: weights are missing from the folder: {', '.join(lost[:5])}. Is it complete?")


def _read_transform(folder: Path | None, dim: int, name: str | Path) -> Transform:
    """The map behind the pooling; an error where the card has one and the folder does not."""
    weights = {} if folder is None else model_folder.read_extras(folder, "transform")
    shapes = {key: tuple(tensor.shape) for key, tensor in weights.items()}
    width = (shapes.get("bias") or (0,))[0]
    if not width or shapes != {"weight": (width, dim), "bias": (width,)}:
        raise EncoderError(
            f"{name}: the map behind its pooling is missing from modules.json or {model_folder.EXTRAS}, or belongs to "
            "another model. Is the folder complete?"
        )
    return Transform(weights["weight"], weights["bias"])


def _read_scope(folder: Path, dim: int, classes: int, name: str | Path) -> Scope | None:
    """The class centers that texts are rejected by; None where the model has none."""
    tensors = model_folder.read_extras(folder, "scope")
    if not tensors:
        return None
    shapes = {key: tuple(tensor.shape) for key, tensor in tensors.items()}
    rows, kept = (shapes.get("reference") or (0,))[0], (shapes.get("labels") or (0,))[0]
    wanted: dict[str, tuple[int, ...]] = {"centers": (classes, dim), "counts": (classes,), "reference": (rows,)}
    wanted |= {"vectors": (kept, dim), "labels": (kept,)} if kept else {}
    if not rows or shapes != wanted:
        raise EncoderError(
            f"{name}: the class centers in {model_folder.EXTRAS} belong to another model. Is the folder complete?"
        )
    return Scope(**tensors)


def _read_head(folder: Path | None, card: model_folder.Card | None, dim: int, classes: int, name: str | Path) -> Head:
    """Our class head, as the card describes it, with its weights."""
    try:
        with torch.device("meta"):  # nothing is allocated for what the file does not hold
            head = make_head(card.head if card is not None else None, dim, classes)
    except (TypeError, ValueError, RuntimeError, OverflowError) as cause:
        raise EncoderError(
            f"{name}: the class head of its card cannot be made ({cause}). Is the folder complete?"
        ) from cause
    weights = model_folder.read_extras(folder, "head") if folder is not None else {}
    actual, expected = (
        {key: tensor.shape for key, tensor in tensors.items()} for tensors in (weights, head.state_dict())
    )
    if actual != expected:
        raise EncoderError(
            f"{name}: the class head is missing from {model_folder.EXTRAS}, or belongs to another model. Is the folder "
            "whole?"
        )
    head.load_state_dict(weights, assign=True)
    if isinstance(head, NeighborHead) and not bool(((head.labels >= 0) & (head.labels < classes)).all()):
        raise EncoderError(f"{name}: its neighbors have classes that the card does not list. Is the folder complete?")
    return head
