"""A faiss index over a folder of vectors, in parts on a disk: one pass to train, one to fill, one to measure recall.

While it is built, ``building.json`` records how; finished parts are not built again. ``index.json`` comes last.
"""

from __future__ import annotations

import importlib
import json
import math
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from nearfar.errors import OutputError, SettingError, did_you_mean
from nearfar.evaluation.index import INDEX, check_folder
from nearfar.files import FolderClaim, flush, sha256_of, write_atomic
from nearfar.seeds import generator
from nearfar.shards.executors import Executor, node_name
from nearfar.shards.storage import Storage
from nearfar.shards.vectors import VectorFolder

FORMAT = 2
"""The first format is that of a corpus in one file, in ``nearfar.evaluation.index``."""
Kind = Literal["flat", "hnsw", "ivf", "ivf-sq8", "ivf-pq"]
KINDS: tuple[Kind, ...] = get_args(Kind)
FLAT, EXACT, SCALAR = 200_000, 5_000_000, 200_000_000
"""Up to so many vectors an index is flat, IVF with whole vectors, and IVF with one byte a number; above, IVF-PQ."""
PART = 1_000_000
"""Vectors of a part."""
MOST = 65_536
"""Lists: beyond, finding the nearest list of a vector costs more than the encoder."""
TRAINING = 64
"""Vectors for each list that the lists are trained on."""
MEASURED = 5_000_000
"""Vectors among which recall is measured: parts at random, all of them in smaller indexes."""
QUERIES, TOP = 500, 10
LINKS, BREADTH, WIDEST = 32, 100, 4_096
"""Of a graph (HNSW): links of a vector, candidates while it is added, and candidates of a query at most."""
BUILDING, TRAINED = "building.json", "trained.faiss"


@dataclass(frozen=True)
class Part:
    """Successive shards of vectors in one file."""

    file: str
    first: int
    """The number of its first vector."""
    rows: int
    shards: tuple[int, int]
    """The first of its shards, and the first after it."""
    sha256: str = ""


@dataclass(frozen=True)
class Description:
    """What ``index.json`` says of an index."""

    kind: Kind
    lists: int
    vectors: str
    """The folder of the vectors, with the texts."""
    manifest: str
    """The digest of its manifest."""
    model: Mapping[str, str]
    documents: int
    dim: int
    parts: tuple[Part, ...]
    probes: int = 1
    """Lists that a query searches; of a graph, the candidates that it keeps."""
    recall: float | None = None
    """Of the nearest ten, against exact search."""

    def write(self, path: Path) -> None:
        """Write it to a file, which exists whole or not at all."""
        write_atomic(path, json.dumps({"format": FORMAT, **asdict(self)}, indent=1) + "\n")

    @classmethod
    def read(cls, path: Path) -> Description | None:
        """The description in a file; None where there is none that can be read."""
        try:
            values = json.loads(path.read_text(encoding="utf-8"))
            if values.pop("format") != FORMAT:
                return None
            parts = tuple(Part(**{**part, "shards": tuple(part["shards"])}) for part in values.pop("parts"))
            return cls(**values, parts=parts)
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None


@dataclass(frozen=True)
class Settings:
    """How an index is built."""

    kind: Kind | Literal["auto"] = "auto"
    recall: float = 0.95
    """The share of the nearest ten that a search should find; more lists are searched until it does."""
    lists: int | None = None
    rows_per_part: int = PART
    seed: int = 0

    def __post_init__(self) -> None:
        if self.kind not in ("auto", *KINDS):
            known = ["auto", *KINDS]
            raise SettingError(
                f"--kind is one of {', '.join(known)}, got {self.kind!r}.{did_you_mean(self.kind, known)}"
            )
        if not 0 < self.recall <= 1:
            raise SettingError(f"--recall must be above 0 and at most 1, got {self.recall}.")


def build_index(
    vectors: str, out: Path, settings: Settings, executor: Executor, *, overwrite: bool = False
) -> Description:
    """Build an index over a folder of vectors, or what is left of it after an interruption.

    Args:
        vectors: the folder that ``nearfar embed --out FOLDER/`` has made.
        out: the folder of the index, on a disk that all workers see.
        settings: how.
        executor: where its parts are filled.
        overwrite: replace an index that is there, or one that was begun with other settings.
    """
    folder = VectorFolder.open(vectors)
    plan = _plan(folder, settings)
    before = Description.read(out / BUILDING)
    if before is None or overwrite:
        check_folder(out, overwrite=overwrite)
    elif before != plan:
        what = "the vectors are others" if before.manifest != plan.manifest else "the settings are others"
        raise OutputError(
            f"{out}: an index was begun here, and cannot be continued, because {what}. Start again with --overwrite, "
            "or choose another --out."
        )
    out.mkdir(parents=True, exist_ok=True)
    claim = FolderClaim(out, "another process is building this index. Let it finish, or choose another --out.")
    claim.take()
    try:
        if before is None or overwrite:
            for path in [*out.glob("part-*.faiss"), out / INDEX, out / TRAINED]:
                path.unlink(missing_ok=True)
            plan.write(out / BUILDING)
        with Storage(str(out)).write_errors(), executor.session() as session:
            if plan.lists and not (out / TRAINED).is_file():
                _write(_trained(folder, plan, settings.seed), out / TRAINED)
            jobs = {number: part for number, part in enumerate(plan.parts) if not (out / part.file).is_file()}
            for _, _problem in session.run(
                fill_part, (str(out), plan, executor.threads), jobs, small=plan.documents < FLAT
            ):
                if _problem:
                    raise OutputError(_problem)
            parts = tuple(replace(part, sha256=sha256_of(out / part.file)) for part in plan.parts)
            done = _measured(replace(plan, parts=parts), folder, out, settings)
            done.write(out / INDEX)
            for name in (BUILDING, TRAINED):
                (out / name).unlink(missing_ok=True)
        return done
    finally:
        claim.close()


def _plan(folder: VectorFolder, settings: Settings) -> Description:
    """Kind, lists and parts, by the number of vectors."""
    n = len(folder)
    if not n:
        raise folder.place.problem("there are no vectors to search", "Embed files that have rows.")
    kind = settings.kind
    if kind == "auto":
        kind = "flat" if n < FLAT else "ivf" if n < EXACT else "ivf-sq8" if n < SCALAR else "ivf-pq"
    lists = 0
    if kind.startswith("ivf"):
        usual = min(MOST, 2 ** round(math.log2(4 * math.sqrt(n))))
        lists = max(1, min(settings.lists or usual, n // 39 or 1))
    parts: list[Part] = []
    starts = folder.starts.tolist()
    begin = 0
    for shard in range(1, len(starts)):
        last = shard == len(starts) - 1
        if starts[shard] - starts[begin] >= settings.rows_per_part or last:
            rows = starts[shard] - starts[begin]
            parts.append(Part(f"part-{len(parts):05}.faiss", starts[begin], rows, (begin, shard)))
            begin = shard
    vectors = folder.place.name if not folder.place.local else folder.place.path
    manifest = folder.manifest
    return Description(kind, lists, vectors, manifest.digest, dict(manifest.model), n, folder.dim, tuple(parts))


def _trained(folder: VectorFolder, plan: Description, seed: int) -> Any:
    """An empty index whose lists are trained on some of the vectors."""
    faiss = faiss_module()
    wanted = min(len(folder), max(TRAINING * plan.lists, 10_000))
    sample = np.concatenate(list(_sampled(folder, wanted, seed)))
    quantizer = faiss.IndexFlatIP(plan.dim)
    if plan.kind == "ivf":
        index = faiss.IndexIVFFlat(quantizer, plan.dim, plan.lists, faiss.METRIC_INNER_PRODUCT)
    elif plan.kind == "ivf-sq8":
        eight = faiss.ScalarQuantizer.QT_8bit
        index = faiss.IndexIVFScalarQuantizer(quantizer, plan.dim, plan.lists, eight, faiss.METRIC_INNER_PRODUCT)
        index.by_residual = False
    else:
        pieces = max(piece for piece in range(1, max(1, plan.dim // 4) + 1) if plan.dim % piece == 0)
        bits = 8 if len(sample) >= 256 else max(1, int(math.log2(max(2, len(sample)))) - 1)
        index = faiss.IndexIVFPQ(quantizer, plan.dim, plan.lists, pieces, bits, faiss.METRIC_INNER_PRODUCT)
    index.cp.seed = seed + 1234
    index.cp.spherical = True
    index.cp.min_points_per_centroid = 1  # small corpora are fine, and faiss would print a warning
    index.train(sample)
    return index


def _sampled(folder: VectorFolder, wanted: int, seed: int) -> Iterator[NDArray[np.float32]]:
    """About so many normalized vectors, from up to 256 shards at random."""
    random = generator(seed, "index training")
    shards = len(folder.manifest.results)
    chosen = np.sort(random.permutation(shards)[: min(shards, 256)])
    total = sum(folder.manifest.results[shard].rows for shard in chosen)
    for shard in chosen.tolist():
        vectors = folder.vectors(shard)
        take = min(len(vectors), math.ceil(wanted * len(vectors) / max(1, total)))
        yield normalized(vectors[np.sort(random.permutation(len(vectors))[:take])])


def _empty(plan: Description) -> Any:
    """An index that needs no training: all vectors, or a graph between them."""
    faiss = faiss_module()
    if plan.kind == "flat":
        return faiss.IndexFlatIP(plan.dim)
    index = faiss.IndexHNSWFlat(plan.dim, LINKS, faiss.METRIC_INNER_PRODUCT)
    index.hnsw.efConstruction = BREADTH
    return index


def fill_part(common: tuple[str, Description, int], part: Part) -> str | None:
    """Build a part and write its file; returns why that is impossible, or None."""
    out, plan, threads = Path(common[0]), common[1], common[2]
    faiss = faiss_module()
    faiss.omp_set_num_threads(threads)
    if not (out / BUILDING).is_file():
        return (
            f"{out}: this folder is not there on {node_name()}: choose an --out that all nodes share, such as a "
            "network disk."
        )
    folder = VectorFolder.open(plan.vectors)
    index = faiss.read_index(str(out / TRAINED)) if plan.lists else _empty(plan)
    row = part.first
    for shard in range(*part.shards):
        vectors = normalized(folder.vectors(shard))
        if plan.lists:
            index.add_with_ids(vectors, np.arange(row, row + len(vectors), dtype=np.int64))
        else:
            index.add(vectors)
        row += len(vectors)
    with Storage(str(out / part.file)).write_errors():
        _write(index, out / part.file)
    return None


def _write(index: Any, path: Path) -> None:
    """Write an index to a file, which exists whole or not at all."""
    temporary = path.with_name(f".new-{path.name}-{os.getpid()}")
    try:
        try:
            faiss_module().write_index(index, str(temporary))
        except RuntimeError as cause:  # faiss reports a full disk so
            raise OSError(str(cause)) from cause
        flush(temporary)
        os.replace(temporary, path)
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def _measured(plan: Description, folder: VectorFolder, out: Path, settings: Settings) -> Description:
    """The description with the recall of the nearest ten, and the lists to search for the recall that was asked for."""
    if plan.kind == "flat":
        return replace(plan, recall=1.0)
    random = generator(settings.seed, "index recall")
    chosen: list[Part] = []
    for place in random.permutation(len(plan.parts)).tolist():
        if not chosen or sum(part.rows for part in chosen) + plan.parts[place].rows <= MEASURED:
            chosen.append(plan.parts[place])
    total = sum(part.rows for part in chosen)
    wanted = np.sort(random.permutation(total)[: min(QUERIES, total)])
    rows = np.concatenate([np.arange(part.first, part.first + part.rows) for part in chosen])[wanted]
    queries = _rows_of(folder, np.sort(rows))
    rows = np.sort(rows)
    exact = _exact(folder, chosen, queries, rows)
    indexes = [open_part(out / part.file, plan.kind) for part in chosen]
    firsts = [0 if plan.lists else part.first for part in chosen]
    probes, most = (1, plan.lists) if plan.lists else (16, WIDEST)
    while True:
        found = [
            search_part(index, queries, TOP + 1, probes, first) for index, first in zip(indexes, firsts, strict=True)
        ]
        _, ids = merged([each[0] for each in found], [each[1] for each in found], TOP + 1)
        recall = _recall(ids, exact, rows)
        if recall >= settings.recall or probes >= most:
            return replace(plan, probes=probes, recall=round(recall, 4))
        probes = min(most, 2 * probes)


def _rows_of(folder: VectorFolder, rows: NDArray[np.int64]) -> NDArray[np.float32]:
    """(q, d) some of the vectors, normalized; ``rows`` rises."""
    starts = folder.starts
    shards = np.searchsorted(starts, rows, side="right") - 1
    return np.concatenate(
        [normalized(folder.vectors(int(shard))[rows[shards == shard] - starts[shard]]) for shard in np.unique(shards)]
    )


def _exact(
    folder: VectorFolder, parts: list[Part], queries: NDArray[np.float32], rows: NDArray[np.int64]
) -> NDArray[np.int64]:
    """(q, 10) the nearest vectors of each query in some parts, apart from itself."""
    faiss = faiss_module()
    starts = folder.starts
    scores: list[NDArray[np.float32]] = []
    ids: list[NDArray[np.int64]] = []
    for part in parts:
        for shard in range(*part.shards):
            vectors = normalized(folder.vectors(shard))
            if len(vectors):
                near, places = faiss.knn(queries, vectors, min(TOP + 1, len(vectors)), faiss.METRIC_INNER_PRODUCT)
                best = merged([*scores, near], [*ids, places + starts[shard]], TOP + 1)
                scores, ids = [best[0]], [best[1]]
    return _without(ids[0], rows)


def _without(ids: NDArray[np.int64], rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """(q, k - 1) the ids without that of the query itself, or without the last one."""
    own = ids == rows[:, None]
    own[~own.any(axis=1), -1] = True
    others: NDArray[np.int64] = ids[~own].reshape(len(ids), -1)
    return others


def _recall(found: NDArray[np.int64], exact: NDArray[np.int64], rows: NDArray[np.int64]) -> float:
    """The share of the nearest ones that are found."""
    found = _without(found, rows)
    known = exact[:, :, None] == found[:, None, :]
    valid = exact >= 0
    return float((known.any(axis=2) & valid).sum() / max(1, valid.sum()))


def open_part(path: Path, kind: Kind) -> Any:
    """A part, memory-mapped: only what a search looks at is read."""
    faiss = faiss_module()
    flags = faiss.IO_FLAG_MMAP_IFC if kind in ("flat", "hnsw") else faiss.IO_FLAG_MMAP | faiss.IO_FLAG_READ_ONLY
    return faiss.read_index(str(path), flags)


def search_part(
    index: Any, queries: NDArray[np.float32], top: int, probes: int, first: int = 0
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """(q, k) the cosines and the numbers of the nearest vectors of a part; -1 where there are fewer."""
    if hasattr(index, "nprobe"):
        index.nprobe = probes
    elif hasattr(index, "hnsw"):
        index.hnsw.efSearch = max(probes, top)
    scores, ids = index.search(queries, min(top, int(index.ntotal)))
    return scores, np.where(ids >= 0, ids + first, -1)


def merged(
    scores: list[NDArray[np.float32]], ids: list[NDArray[np.int64]], top: int
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """(q, top) the best of several results; the lower number first among equals, -1 at the end.

    >>> values, rows = merged([np.array([[0.5, 0.1]]), np.array([[0.5]])], [np.array([[7, 2]]), np.array([[3]])], 2)
    >>> rows.tolist()
    [[3, 7]]
    """
    every, rows = np.concatenate(scores, axis=1), np.concatenate(ids, axis=1)
    every = np.where(rows >= 0, every, -np.inf)
    order = np.lexsort((rows, -every), axis=1)[:, :top]
    return np.take_along_axis(every, order, axis=1), np.take_along_axis(rows, order, axis=1)


def normalized(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    """(n, d) with length 1, contiguous, as faiss reads them."""
    result = np.array(vectors, dtype=np.float32, order="C")
    lengths = np.sqrt(np.einsum("nd,nd->n", result, result))[:, None]
    result /= np.where(lengths > 0, lengths, np.float32(1))
    return result


def faiss_module() -> Any:
    """faiss; refuses to go on without it."""
    try:
        return importlib.import_module("faiss")
    except ModuleNotFoundError as error:
        raise SettingError("an index of shards needs faiss, which is not installed: pip install faiss-cpu.") from error
