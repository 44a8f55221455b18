"""Small corpora in several files, and folders to compare."""

from __future__ import annotations

from pathlib import Path

import pytest

WORDS = [
    "parcel",
    "invoice",
    "card",
    "lamp",
    "saw",
    "apple",
    "rain",
    "train",
    "bread",
    "paper",
    "river",
    "stone",
    "cloud",
    "window",
    "garden",
    "letter",
]


def texts(number: int, start: int = 0) -> list[str]:
    """Texts of several lengths, all different."""
    return [
        " ".join(WORDS[(place * 7 + word * (place % 5 + 1)) % len(WORDS)] for word in range(1 + place % 9))
        + f" {place}"
        for place in range(start, start + number)
    ]


def write_corpus(folder: Path, files: int = 3, rows: int = 50) -> Path:
    """Parquet files with ids and texts."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder.mkdir(parents=True, exist_ok=True)
    for number in range(files):
        start = number * rows
        columns = {"id": [f"d{place}" for place in range(start, start + rows)], "text": texts(rows, start)}
        pq.write_table(pa.table(columns), folder / f"{number}.parquet", row_group_size=16)
    return folder


def contents(folder: Path) -> dict[str, bytes]:
    """All files of a folder."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """150 texts in three files."""
    return write_corpus(tmp_path / "corpus")
