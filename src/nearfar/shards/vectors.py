"""Vectors in shards: how they are stored, and the vectors of a whole folder, shard by shard."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from nearfar.errors import DataError, Problem
from nearfar.shards.manifest import Manifest, read_manifest
from nearfar.shards.storage import Storage

Dtype = Literal["fp32", "fp16", "int8"]
FileFormat = Literal["parquet", "npy"]
DTYPES: tuple[Dtype, ...] = get_args(Dtype)
FILE_FORMATS: tuple[FileFormat, ...] = get_args(FileFormat)
NUMPY: dict[Dtype, Any] = {"fp32": np.float32, "fp16": np.float16, "int8": np.int8}
GROUP = 8_192
"""Rows of a row group: what is read to look up one document."""


def stored(vectors: NDArray[np.float32], dtype: Dtype) -> tuple[NDArray[Any], NDArray[np.float32] | None]:
    """(n, d) vectors as they are stored, and (n,) the scales of int8: a vector is its integers times its scale.

    >>> integers, scales = stored(np.array([[0.5, -1.0]], dtype=np.float32), "int8")
    >>> integers.tolist(), bool(np.allclose(integers * scales[:, None], [[0.5, -1.0]], atol=0.005))
    ([[64, -127]], True)
    """
    if dtype != "int8":
        return vectors.astype(NUMPY[dtype]), None
    scales = np.abs(vectors).max(axis=1, initial=0.0).astype(np.float32) / np.float32(127)
    integers = np.rint(vectors / np.where(scales > 0, scales, np.float32(1))[:, None])
    return integers.astype(np.int8), scales


def restored(values: NDArray[Any], scales: NDArray[np.float32] | None) -> NDArray[np.float32]:
    """(n, d) the vectors in single precision."""
    wide = values.astype(np.float32)
    return wide if scales is None else wide * scales[:, None]


def shard_files(
    stem: str,
    vectors: NDArray[np.float32],
    dtype: Dtype,
    file_format: FileFormat,
    columns: Mapping[str, Sequence[object]],
) -> dict[str, bytes]:
    """The files of a shard by their names, always the same bytes for the same vectors.

    Args:
        stem: the name without an ending.
        vectors: (n, d) of the rows.
        dtype: how they are stored.
        file_format: a Parquet file with the other columns beside, or a NumPy file without.
        columns: ``row`` and the texts and ids, of n values each.
    """
    values, scales = stored(vectors, dtype)
    if file_format == "npy":
        files = {f"{stem}.npy": _npy(values)}
        return files if scales is None else files | {f"{stem}.scale.npy": _npy(scales)}
    import pyarrow as pa
    import pyarrow.parquet as pq

    flat = pa.array(np.ascontiguousarray(values).reshape(-1))
    arrays = {
        name: pa.array(list(column), type=pa.int64() if name == "row" else pa.string())
        for name, column in columns.items()
    }
    arrays["vector"] = pa.FixedSizeListArray.from_arrays(flat, values.shape[1])
    if scales is not None:
        arrays["scale"] = pa.array(scales)
    buffer = io.BytesIO()
    packed = dict.fromkeys(columns, "zstd")  # vectors hardly become smaller
    table = pa.table(arrays)
    pq.write_table(
        table, buffer, row_group_size=GROUP, use_dictionary=False, write_statistics=False, compression=packed
    )
    return {f"{stem}.parquet": buffer.getvalue()}


def _npy(values: NDArray[Any]) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, np.ascontiguousarray(values), allow_pickle=False)
    return buffer.getvalue()


@dataclass(frozen=True)
class VectorFolder:
    """The result of ``nearfar embed`` over many files: a folder of shards with a manifest.

    Args:
        place: the folder, on a disk or in an object store.
        manifest: what it has.
    """

    place: Storage
    manifest: Manifest

    @classmethod
    def open(cls, folder: str) -> VectorFolder:
        """Open a folder; refuses one that is not complete, or has something else."""
        place = Storage(str(folder))
        manifest = read_manifest(place)
        if manifest is None:
            message = "not a folder of vectors: it has no manifest.json"
            raise place.problem(message, "Make one: nearfar embed MODEL 'texts/*.parquet' --out FOLDER/.")
        if manifest.kind != "embed":
            raise place.problem("these are predictions, not vectors", "Name a folder that nearfar embed has made.")
        if not manifest.complete:
            message = "the run that fills this folder has not finished"
            raise place.problem(message, "Give its command again: it computes what is missing.")
        return cls(place, manifest)

    def __len__(self) -> int:
        return sum(result.rows for result in self.manifest.results)

    @property
    def dim(self) -> int:
        """The width of a vector."""
        return int(self.manifest.settings["dim"])

    @property
    def starts(self) -> NDArray[np.int64]:
        """(s + 1,) the number of the first vector of each shard, and of all vectors."""
        return np.concatenate([[0], np.cumsum([result.rows for result in self.manifest.results])]).astype(np.int64)

    def __iter__(self) -> Iterator[NDArray[np.float32]]:
        """The vectors, shard by shard: (n, d) each; only one is in memory."""
        return (self.vectors(number) for number in range(len(self.manifest.results)))

    def vectors(self, shard: int) -> NDArray[np.float32]:
        """(n, d) the vectors of a shard; raises DataError where its file is missing or damaged."""
        stem = self.manifest.stem(shard)
        rows = self.manifest.results[shard].rows
        try:
            if self.manifest.settings["file_format"] == "npy":
                values = np.load(io.BytesIO(self._read(f"{stem}.npy", shard)), allow_pickle=False)
                packed = self.manifest.settings["dtype"] == "int8"
                scales = np.load(io.BytesIO(self._read(f"{stem}.scale.npy", shard))) if packed else None
            else:
                table = self._table(shard, ["vector", "scale"])
                values = table["vector"].combine_chunks().flatten().to_numpy().reshape(-1, self.dim)
                scales = table["scale"].to_numpy() if "scale" in table.column_names else None
        except (ValueError, KeyError, OSError) as cause:
            raise self._damaged(f"{stem} cannot be read ({str(cause)[:100]})") from cause
        if values.shape != (rows, self.dim):
            raise self._damaged(f"{stem} has the shape {values.shape}, and the manifest says {(rows, self.dim)}")
        return restored(values, scales)

    def document(self, row: int) -> dict[str, str]:
        """The text of a vector, with its id where there is one; of .npy files the place of the text."""
        shard = int(np.searchsorted(self.starts, row, side="right")) - 1
        place = row - int(self.starts[shard])
        if self.manifest.settings["file_format"] == "npy":
            return {
                "doc": f"{self.manifest.input_of(shard).name}, shard {self.manifest.stem(shard)}, row {place + 1:,}"
            }
        table = _row_group(self, shard, place // GROUP)
        values = {name: table[name][place % GROUP].as_py() for name in table.column_names}
        ids = {"doc_id": str(values["id"])} if values.get("id") is not None else {}
        texts = [str(values[name]) for name in ("text", "text_b") if name in values]
        return ids | {"doc": " ".join(texts) or f"{self.manifest.input_of(shard).name}:{values['row']}"}

    def _table(self, shard: int, names: Sequence[str]) -> Any:
        import pyarrow.parquet as pq

        content = self._read(f"{self.manifest.stem(shard)}.parquet", shard)
        file = pq.ParquetFile(io.BytesIO(content))
        return file.read(columns=[name for name in names if name in file.schema_arrow.names])

    def _read(self, name: str, shard: int) -> bytes:
        size = self.manifest.results[shard].files[name]["bytes"]
        place = self.place / name
        if place.entry() is None:
            raise self._damaged(f"{name} is missing")
        content = place.read()
        if len(content) != size:
            raise self._damaged(f"{name} has {len(content):,} bytes, and the manifest says {size:,}")
        return content

    def _damaged(self, what: str) -> DataError:
        remedy = "Delete the file and give the command of nearfar embed again: it computes this shard only."
        return DataError(Problem(self.place.name, f"the folder is damaged: {what}", remedy))

    def __hash__(self) -> int:
        return hash((self.place.name, self.manifest.digest))


@lru_cache(maxsize=64)
def _row_group(folder: VectorFolder, shard: int, group: int) -> Any:
    """The texts and ids of some rows of a shard."""
    import pyarrow.parquet as pq

    name = f"{folder.manifest.stem(shard)}.parquet"
    with (folder.place / name).open() as source, pq.ParquetFile(source) as file:
        names = [name for name in file.schema_arrow.names if name not in ("vector", "scale")]
        return file.read_row_group(group, columns=names)
