"""The folder of a fitted estimator: a temporary one until it is saved, which lives as long as somebody uses it."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nearfar.errors import OutputError
from nearfar.files import atomic_folder, write_atomic

CARD = "nearfar.json"
SETTINGS = "estimator.json"
"""The settings of the estimator and the type of its labels, beside the model."""


class ModelFolder:
    """A model folder on the disk.

    Args:
        path: where it is.
        temporary: whether it is removed when nobody refers to this object any more, at the latest when Python ends.
    """

    def __init__(self, path: Path, *, temporary: bool) -> None:
        self.path = path
        if temporary:
            weakref.finalize(self, shutil.rmtree, path, ignore_errors=True)

    @classmethod
    def make(cls) -> ModelFolder:
        """An empty temporary folder."""
        return cls(Path(tempfile.mkdtemp(prefix="nearfar-")), temporary=True)

    def files(self) -> dict[str, bytes]:
        """The content of all files by their names in the folder."""
        paths = sorted(path for path in self.path.rglob("*") if path.is_file())
        return {str(path.relative_to(self.path)): path.read_bytes() for path in paths}

    @classmethod
    def from_files(cls, files: Mapping[str, bytes]) -> ModelFolder:
        """A temporary folder with these files."""
        folder = cls.make()
        for name, content in files.items():
            path = folder.path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        return folder

    def settings(self) -> dict[str, Any]:
        """What ``estimator.json`` says; nothing for a model that the command line or another library has saved."""
        try:
            values = json.loads((self.path / SETTINGS).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return values if isinstance(values, dict) else {}

    def write_settings(self, values: Mapping[str, object]) -> None:
        """Write ``estimator.json``."""
        write_atomic(self.path / SETTINGS, json.dumps(values, indent=2, ensure_ascii=False) + "\n")

    def copy_to(self, target: Path, *, overwrite: bool) -> None:
        """Copy the model to a folder, which has all of it or nothing; only a model is replaced."""
        if target.exists() and target.resolve() == self.path.resolve():
            return
        if target.exists() and not target.is_dir():
            raise OutputError(f"{target}: this is a file; give a folder for the model.")
        if target.is_dir() and any(target.iterdir()):
            if not (target / CARD).is_file():
                raise OutputError(
                    f"{target}: the folder is not empty, and holds something else than a model of nearfar, so it is "
                    "not replaced. Choose another one."
                )
            if not overwrite:
                raise OutputError(
                    f"{target}: there is a model already. Replace it with overwrite=True, or choose another folder."
                )
        try:
            place = target.absolute()
            place.parent.mkdir(parents=True, exist_ok=True)
            with atomic_folder(place, place.with_name(f".{place.name}-saving-{os.getpid()}")) as new:
                shutil.copytree(self.path, new, dirs_exist_ok=True)
        except OSError as cause:
            reason = cause.strerror or str(cause)
            raise OutputError(
                f"{target}: the model cannot be written there: {reason}. Choose another folder."
            ) from cause
