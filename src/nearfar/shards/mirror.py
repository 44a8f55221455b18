"""A training in an object store: each worker has a folder on its disk, and the first one keeps a copy there."""

from __future__ import annotations

import json
from pathlib import Path

from nearfar.encoding.model_folder import CARD
from nearfar.shards.run import RUNNING
from nearfar.shards.storage import Storage
from nearfar.training.checkpoints import MANIFEST

NAME = "run.json"
"""Which run the copy is of."""
LAST = (MANIFEST, CARD)
"""A checkpoint and a model are whole when they have these files, so they are sent after the others."""
OWN = {NAME, RUNNING}


class RunMirror:
    """A folder and its copy in an object store.

    Args:
        folder: on the disk of this worker.
        place: the URI of the copy.
        run: tells this run from others that were there before.
    """

    def __init__(self, folder: Path, place: str, run: str) -> None:
        self.folder, self.place, self.run = folder, Storage(place), run
        self._sent: dict[str, tuple[int, int]] = {}
        self._ours = False

    def begun(self) -> bool:
        """Whether the copy is of this run."""
        sign = self.place / NAME
        return sign.entry() is not None and bool(json.loads(sign.read()).get("run") == self.run)

    def push(self) -> None:
        """Send all files that have changed, what tells that others are whole last; then remove those that are gone."""
        from pyarrow import fs

        if not self._ours:  # what was there before goes: a mixture of two runs would be neither
            self._remove({*self.place.listing(recursive=True)} - OWN)
            (self.place / NAME).write(json.dumps({"run": self.run}).encode())
            self._ours = True
        here = self._here()
        for name in sorted(here, key=lambda name: (name.endswith(LAST), name)):
            if self._sent.get(name) != here[name]:
                target = self.place / name
                with target.write_errors():
                    fs.copy_files(
                        str(self.folder / name), target.path, source_filesystem=fs.LocalFileSystem(),
                        destination_filesystem=target.files,
                    )  # fmt: skip
        self._sent = here
        self._remove({*self.place.listing(recursive=True)} - {*here, *OWN})

    def pull(self, below: Path | None = None) -> None:
        """Fetch the copy, or what is in one of its folders."""
        from pyarrow import fs

        prefix = "" if below is None else f"{below.relative_to(self.folder).as_posix()}/"
        for name in self.place.listing(recursive=True):
            if name.startswith(prefix) and name not in OWN:
                target, source = self.folder / name, self.place / name
                target.parent.mkdir(parents=True, exist_ok=True)
                with source.read_errors():
                    fs.copy_files(
                        source.path, str(target), source_filesystem=source.files,
                        destination_filesystem=fs.LocalFileSystem(),
                    )  # fmt: skip

        self._ours = True
        if below is None:
            self._sent = self._here()

    def _here(self) -> dict[str, tuple[int, int]]:
        """The files of the folder, with what tells that one has changed; not those that are being written."""
        found: dict[str, tuple[int, int]] = {}
        for path in self.folder.rglob("*"):
            parts = path.relative_to(self.folder).parts
            if path.is_file() and not any(part.startswith(".") for part in parts):
                state = path.stat()
                found["/".join(parts)] = state.st_size, state.st_mtime_ns
        return found

    def _remove(self, names: set[str]) -> None:
        for name in sorted(names, key=lambda name: (not name.endswith(LAST), name)):
            (self.place / name).delete()
