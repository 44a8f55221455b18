"""Checkpoints, whole or not there at all, and the journal that is kept consistent with them."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from safetensors.torch import load_file, save_file
from torch import Tensor

from nearfar.errors import CheckpointError
from nearfar.files import atomic_folder, sha256_of, write_errors
from nearfar.training.contracts import StepEntry


class Journal:
    """Appends entries to ``journal.jsonl``; a process that is not to write one gets ``path=None``."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()

    def write(self, entry: Mapping[str, object]) -> None:
        """One line more; numbers that are not finite become null, so that every reader takes them."""
        if self.path is None:
            return
        with write_errors(self.path, "the journal"), self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(_plain(entry), ensure_ascii=False) + "\n")

    def size(self) -> int:
        """How many bytes it has now: a checkpoint stores this."""
        if self.path is None:
            return 0
        return self.path.stat().st_size

    def rewind(self, size: int) -> None:
        """Cut off what was written after a checkpoint, so that a resumed run writes it again and not twice."""
        if self.path is not None:
            os.truncate(self.path, min(size, self.size()))


def read_journal(path: Path) -> list[dict[str, Any]]:
    """All whole entries; a last line cut short by a kill is left out."""
    entries = []
    for line in path.read_bytes().split(b"\n"):
        try:
            entries.append(json.loads(line))
        except ValueError:
            continue
    return entries


def tracker_values(entry: StepEntry) -> dict[str, float]:
    """A step as trackers take it."""
    values: dict[str, dict[str, float]] = {
        "parts": entry["parts"],
        "temperatures": entry.get("temperatures", {}),
        "masked": {name: float(count) for name, count in entry.get("masked", {}).items()},
        "tasks": {name: task["loss"] for name, task in entry.get("tasks", {}).items()},
        "cosine": {pair: each["cosine"] or 0.0 for pair, each in entry.get("surgery", {}).items() if each["steps"]},
        "task_weight": entry.get("task_weights", {}),
        "learning_rate": entry["learning_rates"],
    }
    flat: dict[str, float] = {
        "train/loss": entry["loss"],
        "train/gradient_norm": entry["gradient_norm"],
        "train/texts_per_second": entry["texts_per_second"],
        "train/epoch": entry["epoch"],
    }
    return flat | {f"train/{kind}/{name}": value for kind, named in values.items() for name, value in named.items()}


def _plain(value: object) -> object:
    if isinstance(value, Mapping):
        return {key: _plain(inner) for key, inner in value.items()}
    if isinstance(value, float):
        if value != value or value in (float("inf"), float("-inf")):
            return None
        return float(f"{value:.7g}")
    return value


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


class Mirror(Protocol):
    """A copy of the folder of a run at a place that all processes reach."""

    def push(self) -> None:
        """Send what has changed in the folder."""

    def pull(self, below: Path | None = None) -> None:
        """Fetch all of it, or one of its folders."""


class CheckpointStore:
    """The checkpoints of one run.

    Args:
        folder: where they live.
        keep: how many to keep, the newest ones.
        mirror: takes a copy of each, where processes share no disk.
    """

    def __init__(self, folder: Path, *, keep: int = 2, mirror: Mirror | None = None) -> None:
        self.folder = folder
        self.keep = keep
        self.mirror = mirror

    def write(self, step: int, state: dict[str, Any], tensors: dict[str, Tensors]) -> Path:
        """Write the checkpoint of a step and drop the oldest ones."""
        path = self._write(f"step-{step:08d}", state, tensors)
        self._prune(step)
        self._push()
        return path

    def write_best(self, step: int, tensors: Tensors) -> str:
        """Keep the weights of the best step so far; returns the name to store in the next checkpoint's state."""
        name = f"best-{step:08d}"
        self._write(name, {"step": step}, {"model": tensors})
        self._prune(step, {name})
        self._push()
        return name

    def _push(self) -> None:
        if self.mirror is not None:
            self.mirror.push()

    def read_best(self, name: str) -> Tensors:
        """The weights that :meth:`write_best` kept under a name."""
        if self.mirror is not None and not (self.folder / name).is_dir():  # another process has written it
            self.mirror.pull(self.folder / name)
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
                problem = damage(self.folder / best["weights"]) if best and "weights" in best else None
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
            wanted |= {best["weights"]} if best and "weights" in best else set()
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
