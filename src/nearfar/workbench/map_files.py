"""The map as files for other tools: Parquet for embedding-atlas, and the projector of TensorBoard."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from nearfar.files import atomic, write_atomic
from nearfar.workbench.projection import Neighbors

ATLAS = "map.parquet"
ATLAS_NEIGHBORS = 15


@dataclass(frozen=True)
class MapTable:
    """Texts with everything that the files have."""

    texts: Sequence[str]
    labels: Sequence[str | None]
    predictions: Sequence[str | None]
    places: NDArray[np.float32]
    vectors: NDArray[np.float32]
    neighbors: Neighbors


def write_atlas(folder: Path, table: MapTable) -> list[Path]:
    """A Parquet file for embedding-atlas: ``text``, ``projection_x``, ``projection_y``, ``neighbors`` and labels."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows, cosines = (values[:, :ATLAS_NEIGHBORS] for values in table.neighbors)
    distances = np.maximum(1 - cosines.astype(np.float64), 0)
    near = [{"ids": ids, "distances": away} for ids, away in zip(rows.tolist(), distances.tolist(), strict=True)]
    kind = pa.struct([("ids", pa.list_(pa.int64())), ("distances", pa.list_(pa.float64()))])
    columns = {
        "id": pa.array(range(len(table.texts)), pa.int64()),
        "text": pa.array(table.texts, pa.string()),
        "label": pa.array(table.labels, pa.string()),
        "prediction": pa.array(table.predictions, pa.string()),
        "projection_x": pa.array(table.places[:, 0].astype(np.float64)),
        "projection_y": pa.array(table.places[:, 1].astype(np.float64)),
        "neighbors": pa.array(near, kind),
    }
    path = folder / ATLAS
    with atomic(path) as temporary:
        pq.write_table(pa.table(columns), temporary)
    return [path]


def write_projector(folder: Path, table: MapTable) -> list[Path]:
    """A folder that ``tensorboard --logdir`` shows in its projector: vectors, metadata and their description."""
    out = folder / "projector"
    out.mkdir(exist_ok=True)
    vectors, metadata, config = out / "tensors.tsv", out / "metadata.tsv", out / "projector_config.pbtxt"
    with atomic(vectors) as temporary, temporary.open("w", encoding="utf-8") as file:
        file.writelines("\t".join(f"{value:.6g}" for value in row) + "\n" for row in table.vectors.tolist())
    with atomic(metadata) as temporary, temporary.open("w", encoding="utf-8", errors="replace") as file:
        file.write("text\tlabel\tprediction\n")
        for values in zip(table.texts, table.labels, table.predictions, strict=True):
            file.write("\t".join(re.sub(r"\s+", " ", value or "") for value in values) + "\n")
    names = (("tensor_name", "texts"), ("tensor_path", vectors.name), ("metadata_path", metadata.name))
    lines = "".join(f"  {key}: {json.dumps(value)}\n" for key, value in names)
    write_atomic(config, f"embeddings {{\n{lines}}}\n")
    return [vectors, metadata, config]
