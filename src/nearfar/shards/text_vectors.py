"""The vectors of texts in memory, by shards: computed by several processes or a cluster, and kept in a folder."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Sequence

from nearfar.errors import OutputError
from nearfar.shards.executors import Executor
from nearfar.shards.run import Options, Report, run_files
from nearfar.shards.storage import Storage
from nearfar.shards.vectors import VectorFolder

ROWS = 1_000_000
"""Texts of a file."""
TEXTS, VECTORS = "texts", "vectors"


def shard_vectors(
    model: str, texts: Sequence[str], folder: str, options: Options, executor: Executor, report: Report | None = None
) -> VectorFolder:
    """The vectors of texts, in their order; a second call with the same texts computes what is missing.

    Args:
        model: a model folder, or the name of an encoder.
        texts: each is embedded once.
        folder: gets the texts and the vectors; on a cluster, one that all nodes reach.
        options: how they are embedded.
        executor: where.
        report: follows the run.
    """
    place = Storage(folder.rstrip("/"))
    files = {_name(number, texts): number for number in range(-(-len(texts) // ROWS))}
    there = (place / TEXTS).listing()
    if set(there) - {*files}:
        raise OutputError(
            f"{place.name}: this folder has the vectors of other texts. Choose another --shards, or delete the folder."
        )
    for name, number in files.items():
        if name not in there:
            (place / TEXTS / name).write(_packed(texts[number * ROWS : (number + 1) * ROWS]))
    out = str((place / VECTORS).name)
    run_files("embed", model, [(place / TEXTS).name], out, options, executor, report=report)
    return VectorFolder.open(out)


def _name(number: int, texts: Sequence[str]) -> str:
    """The name of a file of texts: its number, for the order, and the digest of the texts."""
    digest = hashlib.sha256()
    for text in texts[number * ROWS : (number + 1) * ROWS]:
        content = text.encode()
        digest.update(len(content).to_bytes(8, "little"))
        digest.update(content)
    return f"{number:06}-{digest.hexdigest()[:16]}.parquet"


def _packed(texts: Sequence[str]) -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as pq

    buffer = io.BytesIO()
    pq.write_table(pa.table({"text": pa.array(list(texts), type=pa.string())}), buffer, row_group_size=65_536)
    return buffer.getvalue()
