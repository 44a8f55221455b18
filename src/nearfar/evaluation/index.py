"""A search index: the documents of a corpus with their embeddings, saved as a folder and bound to one model.

``index.json`` names the model by its digests and the other two files by their SHA-256; ``documents.jsonl`` has one
document a line, ``vectors.npy`` one embedding a row, in the same order.
"""

from __future__ import annotations

import json
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearfar.encoding import Model
from nearfar.encoding.vectors import fingerprint
from nearfar.errors import DataError, OutputError, Problem
from nearfar.evaluation.search import Progress, Ranked, top_documents
from nearfar.files import atomic_folder, check_writable, existing_parent, refuse_remote, sha256_of, unwritable
from nearfar.shapes import expect

FORMAT = 1
INDEX = "index.json"
DOCUMENTS = "documents.jsonl"
VECTORS = "vectors.npy"
PARTS = (DOCUMENTS, VECTORS)


@dataclass(frozen=True, eq=False)
class SearchIndex:
    """The documents of a corpus and their embeddings: made by ``Encoder.index``, saved and loaded as a folder.

    >>> import nearfar
    >>> enc = nearfar.Encoder("toy")
    >>> index = enc.index(["an apple", "a saw"])
    >>> len(index), index.vectors.shape
    (2, (2, 64))
    """

    texts: Sequence[str]
    ids: Sequence[str] | None
    """The ids of the documents, where the corpus has ids."""
    vectors: NDArray[np.float32]
    """(n, d) their embeddings, not normalized."""
    model: Model | dict[str, str] = field(repr=False)
    """The model that computed them, or its digests."""
    source: str
    """What the index is called in messages."""
    _checked: list[weakref.ref[Model]] = field(default_factory=list, repr=False)

    def __post_init__(self) -> None:
        expect(vectors=(self.vectors, "n d"))
        assert len(self.texts) == len(self.vectors)

    @classmethod
    def load(cls, folder: str | Path) -> SearchIndex:
        """Open a folder that :meth:`save` has written; DataError where it is missing, damaged or something else."""
        path = Path(folder)
        if not path.is_dir():
            raise _error(path, "there is no such folder", "Make an index: nearfar index MODEL CORPUS --out INDEX.")
        if not is_index(path):
            raise _error(path, f"not a search index: it has no {INDEX}", "Name a folder that nearfar index has made.")
        values = _description(path)
        for name in PARTS:
            if not (path / name).is_file():
                raise _damaged(path, f"{name} is missing")
            if sha256_of(path / name) != values["files"][name]:
                raise _damaged(path, f"{name} has changed since it was written")
        rows = [json.loads(line) for line in (path / DOCUMENTS).read_text(encoding="utf-8").split("\n")[:-1]]
        ids = [str(row["doc_id"]) for row in rows] if values["ids"] else None
        vectors = np.load(path / VECTORS, mmap_mode="r", allow_pickle=False)
        return cls([str(row["doc"]) for row in rows], ids, vectors, values["model"], str(folder))

    def save(self, folder: str | Path, *, overwrite: bool = False) -> None:
        """Write the index as a folder, which is there whole or not at all.

        Args:
            folder: where to write it.
            overwrite: replace an index that is there.
        """
        path = Path(folder)
        check_folder(path, overwrite=overwrite)
        try:
            with atomic_folder(path, path.with_name(f".{path.name}.new")) as new:
                (new / DOCUMENTS).write_bytes(b"".join(self._lines()))
                with (new / VECTORS).open("wb") as file:
                    np.save(file, np.asarray(self.vectors, dtype=np.float32), allow_pickle=False)
                values = {
                    "format": FORMAT,
                    "model": self.digests,
                    "documents": len(self),
                    "dim": self.vectors.shape[1],
                    "ids": self.ids is not None,
                    "files": {name: sha256_of(new / name) for name in PARTS},
                }
                (new / INDEX).write_text(json.dumps(values, indent=2) + "\n", encoding="utf-8")
        except OSError as cause:
            raise OutputError(f"{folder}: the index could not be written: {cause.strerror}.") from cause

    def _lines(self) -> Iterator[bytes]:
        for row in range(len(self)):
            yield (json.dumps(self.document(row), ensure_ascii=False) + "\n").encode()

    def __len__(self) -> int:
        return len(self.texts)

    def document(self, row: int) -> dict[str, str]:
        """A document with its id, where it has one, under the names of a ranking."""
        return ({} if self.ids is None else {"doc_id": self.ids[row]}) | {"doc": self.texts[row]}

    @property
    def digests(self) -> dict[str, str]:
        """SHA-256 of all that determines the embeddings of the model."""
        return self.model if isinstance(self.model, dict) else fingerprint(self.model)

    def check(self, model: Model) -> None:
        """Refuse another model than that of the index: its embeddings are not comparable."""
        if model is self.model or any(checked() is model for checked in self._checked):
            return
        if fingerprint(model) != self.digests:
            raise refuse_other_model(Path(self.source))
        self._checked.append(weakref.ref(model))

    def search(self, queries: NDArray[np.float32], *, top: int, progress: Progress | None = None) -> Ranked:
        """(b, top) cosines of the nearest documents of each query, falling, and (b, top) their rows."""
        return top_documents(queries, self.vectors, top=top, normalize=True, progress=progress)


def refuse_other_model(path: Path) -> DataError:
    """The error for an index of another model."""
    message = "this index was made with another model, whose embeddings are not comparable"
    remedy = "Search with that model, or make the index again: nearfar index MODEL CORPUS --out INDEX."
    return _error(path, message, remedy)


def is_index(path: Path) -> bool:
    """Whether a path is a folder with a search index."""
    return (path / INDEX).is_file()


def check_folder(path: Path, *, overwrite: bool) -> None:
    """Refuse a place that cannot take an index; only an index is replaced."""
    refuse_remote(path)
    if path.exists() and not path.is_dir():
        raise OutputError(f"{path}: this is a file; give a folder for the index.")
    if path.is_dir() and any(path.iterdir()):
        if not is_index(path):
            message = "the folder is not empty, and holds something else than a search index, so it is not replaced"
            raise OutputError(f"{path}: {message}. Choose another --out.")
        if not overwrite:
            raise OutputError(f"{path}: there is an index. Replace it with --overwrite, or choose another --out.")
    place = existing_parent(path)
    if not place.is_dir():
        raise OutputError(f"{path}: the folder cannot be made, because {place} is a file. Choose another --out.")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as cause:
        raise unwritable(path, cause) from cause
    check_writable(path.parent, path)


def _description(path: Path) -> dict[str, Any]:
    """What ``index.json`` says, checked."""
    try:
        values: dict[str, Any] = json.loads((path / INDEX).read_text(encoding="utf-8"))
        if values["format"] != FORMAT:
            remedy = "Make it again: nearfar index MODEL CORPUS --out INDEX."
            raise _error(path, f"the index has format {values['format']}, and this version reads {FORMAT}", remedy)
        whole = {*values["files"]} == {*PARTS} and isinstance(values["ids"], bool) and isinstance(values["model"], dict)
    except (OSError, ValueError, KeyError, TypeError):
        whole = False
    if not whole:
        raise _damaged(path, f"{INDEX} cannot be read")
    return values


def _damaged(path: Path, what: str) -> DataError:
    return _error(path, f"the index is damaged: {what}", "Make it again: nearfar index MODEL CORPUS --out INDEX.")


def _error(path: Path, message: str, remedy: str) -> DataError:
    return DataError(Problem(str(path), message, remedy))
