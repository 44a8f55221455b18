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

SETTINGS = "estimator.json"
"""The settings of the estimator and the type of its labels, beside the model."""


def _remove(path: Path, owner: int) -> None:
    """Remove a folder, but not that of the process that this one was forked from."""
    if os.getpid() == owner:
        shutil.rmtree(path, ignore_errors=True)


class ModelFolder:
    """A model folder on the disk.

    Args:
        path: where it is.
        temporary: whether it is removed when nobody refers to this object any more, at the latest when Python ends.
        within: the folder that it is a part of, which is kept with it.
    """

    def __init__(self, path: Path, *, temporary: bool, within: ModelFolder | None = None) -> None:
        self.path = path
        self.within = within
        if temporary:
            weakref.finalize(self, _remove, path, os.getpid())

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
        from nearfar.encoding.folder_files import read_json  # it loads torch

        return read_json(self.path, SETTINGS) or {}

    def write_settings(self, values: Mapping[str, object]) -> None:
        """Write ``estimator.json``."""
        from nearfar.encoding.digests import write_listed

        write_listed(self.path, SETTINGS, json.dumps(values, indent=2, ensure_ascii=False) + "\n")
