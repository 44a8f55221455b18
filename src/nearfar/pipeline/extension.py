"""More classes, or more texts of known ones, for a trained classifier; the encoder is not trained again.

The texts are encoded by the trained encoder, and the class head is brought up to date from what the model holds of its
training texts: the center and the number of texts of each class, or, where they were kept, all vectors.
"""

from __future__ import annotations

import copy
import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from nearfar.data import Records
from nearfar.encoding import CenterHead, Head, LinearHead, LogisticHead, Model, NeighborHead, TextModel, save
from nearfar.encoding.model_folder import read_extras
from nearfar.encoding.pretrained import find, open_config, open_network
from nearfar.encoding.scope import Scope, nearest_center
from nearfar.errors import DataError, Problem, SettingError, counted
from nearfar.evaluation import embed_table
from nearfar.files import write_atomic
from nearfar.pipeline.calibration import class_centers
from nearfar.pipeline.data import class_numbers
from nearfar.pipeline.heads import STRENGTH, TrainingRows, fit_to_vectors
from nearfar.pipeline.output import METRICS, RECIPE

NEW_CLASS_SHIFT = 0.3
"""What the logits of new classes lose where old ones are known by their centers: a center has no spread, texts have,
so that new classes would be predicted too often. docs/why/calibration.md has the comparison."""


@dataclass(frozen=True)
class Extension:
    """A classifier with more classes or texts, and what was done."""

    model: Model
    added: tuple[str, ...]
    """The new classes."""
    texts: int
    notes: list[str]


@dataclass(frozen=True)
class _NewTexts:
    vectors: Tensor
    """(n, d) as the encoder gives them."""
    numbers: NDArray[np.int64]
    """(n,) their classes, those of the model first."""
    classes: int
    """How many there are now."""


def extend(model: Model, records: Records, *, batch_size: int = 64) -> Extension:
    """A new model that also knows these texts; the one that is given stays as it is.

    Args:
        model: a trained classifier.
        records: labeled texts, or pairs for a model that reads pairs.
        batch_size: texts encoded together.
    """
    labels, scope = _extensible(model)
    if records.labels is None:
        message = "a model is extended by texts with one label each, and these have none"
        raise DataError(Problem(records.source, message, "Add a column named label, or name yours: --label."))
    added = tuple(label for label in records.classes() if label not in labels)
    classes = labels + added
    columns: Any = records.texts[0] if len(records.texts) == 1 else list(zip(*records.texts, strict=True))
    vectors = torch.from_numpy(embed_table(model.model, model.tokenize(columns), batch_size=batch_size))
    new = _NewTexts(vectors, class_numbers(records, classes), len(classes))
    head, notes = _extended_head(model, copy.deepcopy(model.model.head).cpu() if model.model.head else None, scope, new)
    network = model.model.network
    if model.card.native:
        network = _encoder_alone(model)
        notes.append("the architecture's own class head is replaced by a logistic one, which nearfar alone opens")
    extended = TextModel(network, pooling=model.model.pooling, head=head, transform=model.model.transform)
    extended.temperature, extended.scope = model.model.temperature, _extended_scope(scope, new)
    card = replace(model.card, labels=classes, native=False, head=head.describe())
    notes += _rare(records, added)
    extended.to(next(model.model.parameters()).device)
    return Extension(Model(extended, model.tokenizer, card), added, len(records), notes)


def _extensible(model: Model) -> tuple[tuple[str, ...], Scope]:
    """The classes of a model and what it holds of their texts; refuses a model that has none of it."""
    if model.labels is None:
        raise SettingError(
            "this model has no class head, so there are no classes to extend; train it on labeled texts."
        )
    if model.multilabel:
        raise SettingError("a model of several labels a text cannot be extended; train it again on all texts.")
    scope = model.model.scope
    if scope is None:
        raise SettingError(
            "this model holds nothing of its training texts, so it cannot be extended; train it with dev rows or "
            "fewer than 1,000 texts, and without --no-estimate."
        )
    if model.model.transform is not None:
        raise SettingError("a whitened model cannot be extended; extend the model that was whitened, then whiten it.")
    return model.labels, copy.deepcopy(scope).cpu()


def _rare(records: Records, added: tuple[str, ...]) -> list[str]:
    """A note on new classes with a single text."""
    sizes = {label: sum(label == other for other in records.labels or ()) for label in added}
    rare = [repr(label) for label, size in sizes.items() if size == 1]
    return [f"new classes with a single text: {', '.join(rare[:5])}; give several, if you can"] if rare else []


def _extended_head(model: Model, head: Head | None, scope: Scope, new: _NewTexts) -> tuple[Head, list[str]]:
    """The class head of all texts, exactly or from class centers; and how exact it is, in words."""
    vectors = F.normalize(new.vectors.float(), dim=1)
    if isinstance(head, CenterHead):
        return _more_centers(head, scope, vectors, new), []
    if isinstance(head, NeighborHead):
        return _more_neighbors(head, vectors, new), []
    if isinstance(head, LinearHead):
        return _more_linear(head, scope, new), []
    known, counts, notes = scope.vectors, None, list[str]()
    numbers = scope.labels
    if known is None or numbers is None:  # each class as its center, which counts as much as its texts
        present = scope.counts > 0
        known, numbers = scope.centers[present], torch.arange(len(present))[present]
        counts = np.concatenate([scope.counts[present].numpy(), np.ones(len(vectors), dtype=np.float32)])
        notes = ["the head knows old texts by class centers alone; models trained with --keep-vectors know all of them"]
    labels = np.concatenate([numbers.numpy(), new.numbers])
    rows = TrainingRows(model.tokenize([]), labels, tuple(map(str, range(new.classes))), weights=counts)
    fitted = fit_to_vectors("logistic", torch.cat([known, vectors]).numpy(), rows)
    if counts is not None and isinstance(fitted, LogisticHead):
        fitted.bias[len(scope.counts) :] -= NEW_CLASS_SHIFT
    return fitted, notes


def _more_centers(head: CenterHead, scope: Scope, vectors: Tensor, new: _NewTexts) -> CenterHead:
    """Means of the vectors of all texts, from the means and numbers of the old ones."""
    dim = vectors.shape[1]
    extended = CenterHead(dim, new.classes, temperature=head.temperature, weighted=head.bias is not None)
    extended.centers[: head.classes] = head.centers
    centers, counts = _merged(head.centers, scope.counts, vectors, new)
    touched = torch.from_numpy(np.unique(new.numbers))
    extended.centers[touched] = centers[touched]
    if head.bias is not None and extended.bias is not None:
        extended.bias[: head.classes] = head.bias
    assert len(counts) == new.classes
    return extended


def _merged(old: Tensor, counts: Tensor, vectors: Tensor, new: _NewTexts) -> tuple[Tensor, Tensor]:
    """(c, d) the centers of old and new texts together, and (c,) their numbers."""
    more = new.classes - len(old)
    old, counts = F.pad(old, (0, 0, 0, more)), F.pad(counts, (0, more))
    centers, beside = (torch.from_numpy(part) for part in class_centers(vectors.numpy(), new.numbers, new.classes))
    total = counts + beside
    joined = (old * counts[:, None] + centers * beside[:, None]) / total.clamp(min=1)[:, None]
    return joined, total


def _more_neighbors(head: NeighborHead, vectors: Tensor, new: _NewTexts) -> NeighborHead:
    rows = len(head.labels) + len(vectors)
    extended = NeighborHead(
        vectors.shape[1], new.classes, rows=rows, neighbors=head.neighbors, temperature=head.temperature
    )
    extended.vectors.copy_(torch.cat([head.vectors, vectors]))
    extended.labels.copy_(torch.cat([head.labels, torch.from_numpy(new.numbers)]))
    return extended


def _more_linear(head: LinearHead, scope: Scope, new: _NewTexts) -> LinearHead:
    """A trained linear layer reads vectors that are not normalized: all old centers get the length of the new texts."""
    length = new.vectors.float().norm(dim=1).mean().clamp(min=1e-12)
    weight, bias = _fitted_rows(
        (head.linear.weight * length, head.linear.bias), scope, new.vectors.float() / length, new
    )
    extended = LinearHead(new.vectors.shape[1], new.classes, dropout=head.dropout.p)
    with torch.no_grad():
        extended.linear.weight.copy_(weight / length)
        extended.linear.bias.copy_(bias)
    return extended


def _fitted_rows(layer: tuple[Tensor, Tensor], scope: Scope, vectors: Tensor, new: _NewTexts) -> tuple[Tensor, Tensor]:
    """The rows of the classes that have new texts, fitted by logistic regression; all others stay as they are.

    The old classes are there as their centers, each as often as it has texts. The L2 penalty pulls the rows of old
    classes to what they were, those of new classes to zero.
    """
    weight, bias = (part.detach().double() for part in layer)
    more = new.classes - len(weight)
    start = F.pad(weight, (0, 0, 0, more)), F.pad(bias, (0, more))
    rows = torch.from_numpy(np.unique(new.numbers))
    free = [part[rows].clone().requires_grad_() for part in start]
    known = scope.counts > 0
    inputs = torch.cat([vectors.double(), scope.centers[known].double()])
    labels = torch.cat([torch.from_numpy(new.numbers), torch.arange(len(known))[known]])
    weights = torch.cat([torch.ones(len(vectors), dtype=torch.float64), scope.counts[known].double()])
    optimizer: Any = torch.optim.LBFGS(free, max_iter=500, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        optimizer.zero_grad()
        whole = [part.index_copy(0, rows, value) for part, value in zip(start, free, strict=True)]
        costs = F.cross_entropy(F.linear(inputs, *whole), labels, reduction="none")
        total: Any = (weights * costs).sum() + (free[0] - start[0][rows]).square().sum() / (2 * STRENGTH)
        total.backward()
        return torch.as_tensor(total)

    optimizer.step(loss)
    fitted = [part.index_copy(0, rows, value.detach()) for part, value in zip(start, free, strict=True)]
    return fitted[0].float(), fitted[1].float()


def _extended_scope(scope: Scope, new: _NewTexts) -> Scope:
    """Centers and numbers of all texts; the reference scores of the new ones are those without the text itself."""
    vectors = F.normalize(new.vectors.float(), dim=1)
    centers, counts = _merged(scope.centers, scope.counts, vectors, new)
    scores = []
    for vector, number in zip(vectors, new.numbers.tolist(), strict=True):
        rest = centers.clone()
        rest[number] = (centers[number] * counts[number] - vector) / max(float(counts[number]) - 1, 1.0)
        scores.append(nearest_center(vector[None], rest) if counts[number] > 1 else vectors.new_zeros(0))
    reference = torch.cat([scope.reference, *scores])
    if scope.vectors is None or scope.labels is None:
        return Scope(centers, counts, reference)
    labels = torch.cat([scope.labels, torch.from_numpy(new.numbers)])
    return Scope(centers, counts, reference, torch.cat([scope.vectors, vectors]), labels)


def _encoder_alone(model: Model) -> Any:
    """The encoder of a model folder without the architecture's own class head."""
    assert model.folder is not None
    source = find(str(model.folder))
    network, _ = open_network(source, open_config(source), native=False)
    return network


def save_extension(extension: Extension, out: Path, *, origin: str) -> None:
    """Write the model folder; the recipe is that of the original, which trained the encoder."""
    folder = Path(origin).expanduser()
    model, local = extension.model, folder.is_dir()
    out.mkdir(parents=True, exist_ok=True)
    objective = read_extras(folder, "objective") if local else {}
    save(out, model.model, model.tokenizer, model.card, readme=_readme(extension, folder), objective=objective)
    if local and (folder / RECIPE).is_file():
        write_atomic(out / RECIPE, (folder / RECIPE).read_bytes())
    about = {"extended": {"classes": list(extension.added), "texts": extension.texts}}
    write_atomic(out / METRICS, json.dumps(about, indent=2, ensure_ascii=False) + "\n")


def _readme(extension: Extension, folder: Path) -> str:
    card = folder / "README.md"
    before = card.read_text(encoding="utf-8") if card.is_file() else f"# {folder.name}\n"
    more = f", with the new classes {', '.join(f'`{label}`' for label in extension.added)}" if extension.added else ""
    words = (
        f"Extended by {counted(extension.texts, 'text')}{more}. The encoder was not trained on them; results above are "
        "those of the model before."
    )
    return f"{before.rstrip()}\n\n## Extension\n\n{words}\n"
