"""A model with a linear map fitted to its vectors: whitening or all-but-the-top, stored in the model folder."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray

from nearfar.encoding import Model, TextModel, Transform, save
from nearfar.encoding.encoder import TransformSpec
from nearfar.encoding.model_folder import read_extras
from nearfar.errors import SettingError, counted, did_you_mean
from nearfar.evaluation import Affine, AllButTheTop, Whitening, embed_table

Method = Literal["whitening", "all-but-the-top"]
METHODS: tuple[str, ...] = get_args(Method)
NARROWEST = 1e-3
"""Directions with less spread, as a share of the length of the vectors, are not whitened: scaled up, their rounding
would change cosines by more than 1e-5 between programs. A layer norm leaves one such direction."""
PIECE = 4096
"""Texts that are encoded between two calls of the progress callback."""


def check_method(method: str, *, dims: int | None, remove: int | None) -> Method:
    """Refuse an unknown method, and settings of the other one."""
    if method not in METHODS:
        raise SettingError(f"--method is {' or '.join(METHODS)}, got {method!r}.{did_you_mean(method, METHODS)}")
    if method == "all-but-the-top" and dims is not None:
        raise SettingError("--dims is for whitening; all-but-the-top keeps the width, and --remove says what goes.")
    if method == "whitening" and remove is not None:
        raise SettingError("--remove is for all-but-the-top; whitening keeps the widest directions, as many as --dims.")
    return "whitening" if method == "whitening" else "all-but-the-top"


def whiten(
    model: Model,
    texts: Sequence[str],
    *,
    method: Method,
    dims: int | None = None,
    remove: int | None = None,
    batch_size: int = 64,
    progress: Callable[[int], None] | None = None,
) -> tuple[Model, list[str]]:
    """The same encoder with a linear map after its pooling, and notes about it.

    The map is fitted to the vectors after the pooling, before they are normalized. Where the model has a map already,
    the new one is fitted after it, and both become one.

    Args:
        model: an encoder of single texts.
        texts: at least two different texts, like those that the model will encode.
        method: ``whitening`` or ``all-but-the-top``.
        dims: the most directions that a whitening keeps.
        remove: how many directions ``all-but-the-top`` removes.
        batch_size: texts that are encoded together.
        progress: called now and then with the number of texts that are encoded.
    """
    pieces = []
    for start in range(0, max(1, len(texts)), PIECE):
        piece = texts[start : start + PIECE]
        pieces.append(embed_table(model.model, model.tokenize(piece), batch_size=batch_size))
        if progress is not None:
            progress(start + len(piece))
    vectors = np.concatenate(pieces)
    if method == "whitening":
        fitted = Whitening.fit(vectors, dims=dims, narrowest=NARROWEST)
    else:
        fitted = AllButTheTop.fit(vectors, remove=remove)
    width, kept, number = vectors.shape[1], len(fitted.bias), counted(len(texts), "text")
    notes: list[str] = []
    if method == "whitening" and kept < min(width, dims or width):
        more = "; give more texts to keep more" if len(texts) <= width else ", but for rounding"
        notes.append(f"{number} spread in {kept} of {counted(width, 'direction')} only{more}")
    if len(texts) < 10 * kept:
        notes.append(
            f"{number} are few for {counted(kept, 'direction')}: the map overfits these texts; give {10 * kept:,} or "
            "more" + (", or lower --dims" if method == "whitening" else "")
        )
    about: TransformSpec = {"kind": method, "dims": kept, "texts": len(texts)}
    old = model.model
    if old.transform is not None:
        weight: NDArray[np.float32] = old.transform.weight.numpy()
        first = Affine(weight.T.astype(np.float64), old.transform.bias.numpy().astype(np.float64))
        fitted = first.then(fitted)
        about["before"] = model.card.transform
        notes.append("the model has a map already; the new one is fitted after it, and both are stored as one")
    transform = Transform(*(torch.from_numpy(part) for part in fitted.layer()))
    mapped = TextModel(old.network, transform=transform, pooling=old.pooling, native=old.native, head=old.head)
    mapped.temperature, mapped.scope = old.temperature, old.scope
    task = model.card.task.copy()
    task.pop("threshold", None)
    task.pop("accuracy_threshold", None)
    if len(task) < len(model.card.task):
        notes.append("the decision threshold from the dev rows is dropped, because all cosines have changed")
    return Model(mapped, model.tokenizer, replace(model.card, transform=about, task=task)), notes


def save_whitened(model: Model, out: Path, *, origin: str) -> None:
    """Write the model folder; weights of the objective in the original folder are kept."""
    folder = Path(origin).expanduser()
    objective = read_extras(folder, "objective") if folder.is_dir() else {}
    out.mkdir(parents=True, exist_ok=True)
    save(out, model.model, model.tokenizer, model.card, readme=_readme(model, folder), objective=objective)


def _readme(model: Model, folder: Path) -> str:
    """The model card of the original, or a short one, with a section on the map."""
    card = folder / "README.md"
    before = card.read_text(encoding="utf-8") if card.is_file() else f"# {folder.name}\n"
    about = model.card.transform
    assert about is not None
    kind = "whitening" if about["kind"] == "whitening" else "all-but-the-top map"
    words = (
        f"A {kind} after the pooling, fitted to {counted(about['texts'], 'text')}, gives vectors of "
        f"{counted(about['dims'], 'number')}. `nearfar.load` and `SentenceTransformer` both apply it. Results above "
        "are those of the model without it."
    )
    return f"{before.rstrip()}\n\n## Map\n\n{words}\n"
