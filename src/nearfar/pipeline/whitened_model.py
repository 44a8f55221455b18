"""A model with a map fitted to its vectors: whitening, or all but the top, stored in the model folder."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray

from nearfar.encoding import Model, TextModel, Transform, save
from nearfar.encoding.model_folder import read_extras
from nearfar.encoding.transform import TransformSpec
from nearfar.errors import SettingError, counted, did_you_mean
from nearfar.evaluation import Affine, AllButTheTop, Whitening, embed_table

Method = Literal["whitening", "all-but-the-top"]
METHODS: tuple[str, ...] = get_args(Method)
NARROWEST = 1e-3
"""Directions of less spread, as a part of the length of the vectors, are not whitened: scaled up, their rounding would
make cosines differ by more than 1e-5 between programs that compute the same. A layer norm leaves one such direction."""
PIECE = 4096
"""Texts that are encoded between two words about how far it is."""
THRESHOLDS = ("threshold", "accuracy_threshold")


def check_method(method: str, *, dims: int | None, remove: int | None) -> Method:
    """Refuse a method that does not exist, and settings of the other one."""
    if method not in METHODS:
        raise SettingError(f"--method is {' or '.join(METHODS)}, got {method!r}.{did_you_mean(method, METHODS)}")
    if method == "all-but-the-top" and dims is not None:
        raise SettingError("--dims is of whitening; all-but-the-top keeps the width, and --remove says what goes.")
    if method == "whitening" and remove is not None:
        raise SettingError("--remove is of all-but-the-top; whitening keeps the widest directions, as many as --dims.")
    return "whitening" if method == "whitening" else "all-but-the-top"


def straightened(
    model: Model,
    texts: Sequence[str],
    *,
    method: Method,
    dims: int | None = None,
    remove: int | None = None,
    batch_size: int = 64,
    watch: Callable[[int], None] | None = None,
) -> tuple[Model, list[str]]:
    """The same encoder with a map behind its pooling, and what should be known about that.

    The map is fitted to the vectors as they come out of the pooling, before they are scaled to length one. Where the
    model has a map already, the new one is fitted behind it, and both become one.

    Args:
        model: an encoder of single texts.
        texts: two different texts at least; those that the model is meant for.
        method: ``whitening`` or ``all-but-the-top``.
        dims: how many directions a whitening keeps at most.
        remove: how many directions go, for ``all-but-the-top``.
        batch_size: texts that are encoded together.
        watch: told now and then how many texts are encoded.
    """
    found = []
    for start in range(0, max(1, len(texts)), PIECE):
        piece = texts[start : start + PIECE]
        found.append(embed_table(model.model, model.tokenize(piece), batch_size=batch_size))
        if watch is not None:
            watch(start + len(piece))
    vectors = np.concatenate(found)
    if method == "whitening":
        fitted = Whitening.fit(vectors, dims=dims, narrowest=NARROWEST)
    else:
        fitted = AllButTheTop.fit(vectors, remove=remove)
    width = vectors.shape[1]
    notes: list[str] = []
    kept = len(fitted.bias)
    if method == "whitening" and kept < min(width, dims or width):
        more = "; give more texts to keep more" if len(texts) <= width else ", but for rounding"
        notes.append(f"{counted(len(texts), 'text')} spread in {kept} of {counted(width, 'direction')} only{more}")
    if len(texts) < 10 * kept:
        notes.append(
            f"{counted(len(texts), 'text')} are few for {counted(kept, 'direction')}: the map fits these very texts; "
            f"give {10 * kept:,} or more" + (", or lower --dims" if method == "whitening" else "")
        )
    about: TransformSpec = {"kind": method, "dims": kept, "texts": len(texts)}
    old = model.model
    if old.transform is not None:
        fitted = _affine(old.transform).then(fitted)
        about["before"] = model.card.transform
        notes.append("the model has a map already; the new one is fitted behind it, and both are stored as one")
    weight, bias = (torch.from_numpy(part) for part in fitted.layer())
    mapped = TextModel(
        old.network, transform=Transform(weight, bias), pooling=old.pooling, native=old.native, head=old.head
    )
    task = {key: value for key, value in model.card.task.items() if key not in THRESHOLDS}
    if len(task) < len(model.card.task):
        notes.append("the threshold of the model's dev rows is left out, because all cosines have changed")
    return Model(mapped, model.tokenizer, replace(model.card, transform=about, task=task)), notes


def save_straightened(model: Model, out: Path, *, origin: str) -> None:
    """Write the folder; weights of the objective in the folder of the model it was made from stay with it."""
    folder = Path(origin).expanduser()
    objective = read_extras(folder, "objective") if folder.is_dir() else {}
    out.mkdir(parents=True, exist_ok=True)
    save(out, model.model, model.tokenizer, model.card, readme=_readme(model, folder), objective=objective)


def _affine(transform: Transform) -> Affine:
    weight: NDArray[np.float32] = transform.weight.numpy()
    return Affine(weight.T.astype(np.float64), transform.bias.numpy().astype(np.float64))


def _readme(model: Model, folder: Path) -> str:
    """The model card there was, or a short one, and what the map is."""
    card = folder / "README.md"
    before = card.read_text(encoding="utf-8") if card.is_file() else f"# {folder.name}\n"
    about = model.card.transform
    assert about is not None
    kind = "whitening" if about["kind"] == "whitening" else "all-but-the-top map"
    words = (
        f"Behind its pooling stands a {kind}, fitted to {counted(about['texts'], 'text')}: vectors have "
        f"{counted(about['dims'], 'number')}. It is applied by `nearfar.load` and by `SentenceTransformer` alike. "
        "Results above, where there are any, are those of the model without it."
    )
    return f"{before.rstrip()}\n\n## Map\n\n{words}\n"
