"""The output folder: checked before the work, not after it."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from nearfar.encoding.model_folder import CARD
from nearfar.errors import OutputError
from nearfar.files import check_writable, existing_parent, free_bytes, remove

CHECKPOINTS = "checkpoints"
RECIPE = "recipe.toml"
JOURNAL = "journal.jsonl"
METRICS = "metrics.json"
STAGES = "stages"


def check_output(out: Path, *, resume: bool, overwrite: bool, reads: Iterable[object] = ()) -> bool:
    """Refuse a place that cannot take the model; returns False when the run in it has finished.

    Nothing is changed yet: what is to be replaced goes only when the run is sure to begin. Files and folders that the
    run ``reads`` are not replaced; whatever else is among them is passed over.
    """
    try:
        no_folder, filled = out.exists() and not out.is_dir(), out.is_dir() and any(out.iterdir())
    except OSError as cause:
        raise OutputError(f"{out}: the folder cannot be looked at: {cause.strerror}. Choose another --out.") from cause
    if no_folder:
        raise OutputError(f"{out}: this is a file; give a folder for the model.")
    if filled:
        ours = _holds_run(out)
        if resume and (out / CARD).is_file():
            return False
        if resume and not ours:
            raise OutputError(f"{out}: the folder holds no run to resume; give the folder of one, or another --out.")
        if not ours:
            raise OutputError(
                f"{out}: the folder is not empty, and holds something else than a model of nearfar, so it is not "
                "replaced. Choose another --out."
            )
        if not (resume or overwrite):
            raise OutputError(
                f"{out}: the folder is not empty. Continue its run with --resume, replace it with --overwrite, "
                "or choose another --out."
            )
        if not resume:
            _check_spared(out, reads)
    place = existing_parent(out)
    if not place.is_dir():
        raise OutputError(f"{out}: the folder cannot be made, because {place} is a file. Choose another --out.")
    check_writable(place, out)
    return True


def _holds_run(out: Path) -> bool:
    """Whether a model is in the folder, or a run that has begun; a recipe beside other things may be anybody's."""
    names = {entry.name for entry in out.iterdir() if not entry.name.startswith((".try-", f".{RECIPE}-"))}
    began = any(
        name in (CHECKPOINTS, STAGES) or (name.startswith("journal") and name.endswith(".jsonl")) for name in names
    )
    return CARD in names or (RECIPE in names and (began or names == {RECIPE}))


def _check_spared(out: Path, reads: Iterable[object]) -> None:
    """Refuse to remove what the run is made from."""
    for source in reads:
        for name in (source, source.rpartition("#")[0]) if isinstance(source, str) else ():
            if name and os.path.exists(name) and Path(name).resolve().is_relative_to(out.resolve()):
                raise OutputError(
                    f"{out}: the run reads {name}, which would be removed with what is in the folder. "
                    "Choose another --out."
                )


def has_checkpoint(out: Path) -> bool:
    """Whether a run has left something to go on from, damaged or not."""
    return any((out / CHECKPOINTS).rglob("step-*"))


def open_output(out: Path, *, resume: bool) -> None:
    """Make the folder, and remove the model in it that is to be replaced."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        if not resume:
            for entry in out.iterdir():
                remove(entry)
    except OSError as cause:
        raise OutputError(f"{out}: the folder cannot be made ready: {cause.strerror}. Choose another --out.") from cause


def check_room(out: Path, weights: int, *, keep: int) -> None:
    """Refuse to start when the disk cannot hold what the run will write.

    ``weights`` is the size of the model in bytes; a checkpoint holds it three times (AdamW remembers two numbers a
    weight), one more checkpoint than is kept exists while it is written, and the best and the final weights are extra.
    """
    needed = weights * (3 * (keep + 1) + 2 + 1)
    free = free_bytes(out)
    if free < needed:
        raise OutputError(
            f"{out}: the disk has {free / 1e9:.1f} GB free, and this run may need {needed / 1e9:.1f} GB for its "
            "checkpoints and the model. Make room, lower training.keep_checkpoints, or choose another --out."
        )
