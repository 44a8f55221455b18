"""Checkpoints: whole or not there at all.

A checkpoint is a folder ``step-N`` with tensors in safetensors, a ``state.json``, and a ``MANIFEST.json`` that names
every file with its size and SHA-256. It is written under another name and renamed when all of it is on the disk, so a
kill at any moment leaves either the whole checkpoint or none. A damaged one is recognized by its manifest.
"""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save_file
from torch import Tensor

from nearfar.errors import CheckpointError
from nearfar.files import atomic_folder, sha256_of, write_errors

MANIFEST = "MANIFEST.json"
STATE = "state.json"
WRITING = ".writing-"

Tensors = dict[str, Tensor]


@dataclass(frozen=True)
class Checkpoint:
    """A whole checkpoint as it was read."""

    path: Path
    state: dict[str, Any]
    tensors: dict[str, Tensors]


class CheckpointStore:
    """The checkpoints of one run.

    Args:
        folder: where they live.
        keep: how many to keep, the newest ones.
    """

    def __init__(self, folder: Path, *, keep: int = 2) -> None:
        self.folder = folder
        self.keep = keep

    def write(self, step: int, state: dict[str, Any], tensors: dict[str, Tensors]) -> Path:
        """Write the checkpoint of a step and drop the oldest ones."""
        path = self._write(f"step-{step:08d}", state, tensors)
        self._prune(step)
        return path

    def write_best(self, step: int, tensors: Tensors) -> str:
        """Keep the weights of the best step so far; returns the name to store in the next checkpoint's state."""
        name = f"best-{step:08d}"
        self._write(name, {"step": step}, {"model": tensors})
        self._prune(step, {name})
        return name

    def read_best(self, name: str) -> Tensors:
        """The weights that :meth:`write_best` kept under a name."""
        problem = damage(self.folder / name)
        if problem:
            raise CheckpointError(
                f"{self.folder / name}: the best weights are damaged: {problem}. Start over with --overwrite."
            )
        return load_file(self.folder / name / "model.safetensors")

    def newest(self) -> tuple[Checkpoint | None, list[str]]:
        """The newest whole checkpoint, and a warning for each damaged one that was passed over."""
        warnings: list[str] = []
        for path in reversed(self._steps()):
            problem = damage(path)
            if problem is None:
                state = json.loads((path / STATE).read_text(encoding="utf-8"))
                best = state.get("best")
                problem = damage(self.folder / best["weights"]) if best else None
                if problem is None:
                    files = sorted(path.glob("*.safetensors"))
                    return Checkpoint(path, state, {file.stem: load_file(file) for file in files}), warnings
                problem = f"the best weights it refers to are damaged: {problem}"
            warnings.append(f"passed over the damaged checkpoint {path.name}: {problem}")
        return None, warnings

    def clear(self) -> None:
        """Remove everything: the run is finished and saved, or starts over."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _steps(self) -> list[Path]:
        if not self.folder.is_dir():
            return []
        return sorted(path for path in self.folder.iterdir() if re.fullmatch(r"step-\d{8,}", path.name))

    def _prune(self, step: int, named: set[str] | None = None) -> None:
        """Drop the oldest checkpoints, and best weights that neither a checkpoint nor ``named`` names.

        Checkpoints after the ``step`` go, too: they are damaged, and the run has begun again from one before them.
        """
        steps = self._steps()
        past = [path for path in steps if int(path.name.removeprefix("step-")) <= step]
        kept = past[-self.keep :]
        for path in steps:
            if path not in kept:
                shutil.rmtree(path, ignore_errors=True)
        wanted = set(named or ())
        for path in kept:
            try:
                best = json.loads((path / STATE).read_text(encoding="utf-8")).get("best")
            except (OSError, ValueError):
                continue
            wanted |= {best["weights"]} if best else set()
        for path in self.folder.iterdir():
            stale_best = path.name.startswith("best-") and path.name not in wanted
            if stale_best or path.name.startswith(WRITING):
                shutil.rmtree(path, ignore_errors=True)

    def _write(self, name: str, state: dict[str, Any], tensors: dict[str, Tensors]) -> Path:
        path, temporary = self.folder / name, self.folder / f"{WRITING}{name}"
        with write_errors(path, "the checkpoint"), atomic_folder(path, temporary) as folder:
            for stem, named in tensors.items():
                whole = {key: value.detach().cpu().contiguous() for key, value in named.items()}
                save_file(whole, folder / f"{stem}.safetensors")
            (folder / STATE).write_text(json.dumps(state, indent=1), encoding="utf-8")
            files = {file.name: {"bytes": file.stat().st_size, "sha256": sha256_of(file)} for file in folder.iterdir()}
            (folder / MANIFEST).write_text(json.dumps(files, indent=1), encoding="utf-8")
        return path


def damage(path: Path) -> str | None:
    """What is wrong with a checkpoint folder, or None when it is whole."""
    try:
        files = json.loads((path / MANIFEST).read_text(encoding="utf-8"))
        for name, stated in files.items():
            file = path / name
            if not file.is_file():
                return f"{name} is missing"
            size = file.stat().st_size
            if size != stated["bytes"]:
                return f"{name} has {size:,} bytes instead of {stated['bytes']:,}"
            if sha256_of(file) != stated["sha256"]:
                return f"{name} has other contents than were written"
    except FileNotFoundError as cause:
        return f"{Path(str(cause.filename)).name} is missing"
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as cause:
        return f"its manifest cannot be read ({cause})"
    if STATE not in files:
        return "its manifest is incomplete"
    return None
