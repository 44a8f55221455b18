"""A saved index over a folder of vectors: its documents, and search over its parts."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearfar.encoding import Model
from nearfar.encoding.vectors import fingerprint
from nearfar.errors import DataError, Problem
from nearfar.evaluation.index import INDEX, refuse_other_model
from nearfar.evaluation.search import Progress, Ranked
from nearfar.evaluation.vectors import refuse_unusable
from nearfar.shards.executors import Executor
from nearfar.shards.index_build import BUILDING, Description, Part, merged, normalized, open_part, search_part
from nearfar.shards.vectors import VectorFolder

BATCH = 1_024
"""Queries that are searched together."""


def is_sharded_index(path: Path) -> bool:
    """Whether a folder has an index of shards, finished or not."""
    return (path / BUILDING).is_file() or Description.read(path / INDEX) is not None


@dataclass(frozen=True, eq=False)
class ShardedIndex:
    """An index that ``nearfar index VECTORS`` has made."""

    folder: Path
    description: Description
    executor: Executor | None = field(default=None, repr=False)
    """Where parts are searched; None for this process."""

    @classmethod
    def load(cls, folder: str | Path, executor: Executor | None = None) -> ShardedIndex:
        """Open an index; DataError where it is not finished, or a part of it is missing."""
        path = Path(folder)
        description = Description.read(path / INDEX)
        if description is None:
            what = "it is not finished" if (path / BUILDING).is_file() else "it cannot be read"
            raise _error(path, f"not an index that can be searched: {what}", "Give the command of nearfar index again.")
        for part in description.parts:
            if not (path / part.file).is_file():
                remedy = "Make it again: nearfar index VECTORS --out INDEX --overwrite."
                raise _error(path, f"the index is damaged: {part.file} is missing", remedy)
        return cls(path, description, executor)

    def __len__(self) -> int:
        return self.description.documents

    @cached_property
    def vectors(self) -> VectorFolder:
        """The folder of the vectors, which has the texts."""
        folder = VectorFolder.open(self.description.vectors)
        if folder.manifest.digest != self.description.manifest:
            message = f"the vectors in {self.description.vectors} are others than those of the index"
            raise _error(self.folder, message, "Make it again: nearfar index VECTORS --out INDEX --overwrite.")
        return folder

    def document(self, row: int) -> dict[str, str]:
        """A document with its id, where it has one."""
        return self.vectors.document(row)

    def check(self, model: Model) -> None:
        """Refuse another model than that of the index: its embeddings are not comparable."""
        if fingerprint(model) != dict(self.description.model):
            raise refuse_other_model(self.folder)

    def search(self, queries: NDArray[np.float32], *, top: int, progress: Progress | None = None) -> Ranked:
        """(b, top) cosines of the nearest documents of each query, falling, and (b, top) their rows, -1 for none."""
        refuse_unusable(queries=queries)
        progress = progress or (lambda _: None)
        parts, lists = self.description.parts, self.description
        common = (str(self.folder), lists.kind, lists.probes, normalized(queries), min(top, len(self)))
        best: Ranked | None = None
        jobs = dict(enumerate(parts))
        for number, found in enumerate(self._run(common, jobs), 1):
            both = [found] if best is None else [best, found]
            best = merged([each[0] for each in both], [each[1] for each in both], common[4])
            progress(number / len(parts))
        assert best is not None
        return best

    def _run(self, common: Any, jobs: dict[int, Part]) -> Any:
        if self.executor is None:
            for part in jobs.values():
                yield nearest(common, part)
            return
        with self.executor.session() as session:
            for _, found in session.run(nearest, common, jobs):
                if isinstance(found, str):
                    raise _error(self.folder, found, "Put the index on a disk that all nodes share.")
                yield found


def nearest(common: tuple[str, Any, int, NDArray[np.float32], int], part: Part) -> Ranked | str:
    """The nearest vectors of a part, or why it cannot be searched on this machine."""
    from nearfar.shards.executors import node_name

    folder, kind, probes, queries, top = common
    path = Path(folder) / part.file
    if not path.is_file():
        return f"{part.file} is not there on {node_name()}"
    index = open_part(path, kind)
    first = part.first if kind in ("flat", "hnsw") else 0
    pieces = [
        search_part(index, queries[start : start + BATCH], top, probes, first)
        for start in range(0, len(queries), BATCH)
    ]
    width = max(piece[0].shape[1] for piece in pieces) if pieces else 0
    none = np.zeros((0, width), dtype=np.float32), np.zeros((0, width), dtype=np.int64)
    return np.concatenate([none[0], *(piece[0] for piece in pieces)]), np.concatenate(
        [none[1], *(piece[1] for piece in pieces)]
    )


def _error(path: Path, message: str, remedy: str) -> DataError:
    return DataError(Problem(str(path), message, remedy))
