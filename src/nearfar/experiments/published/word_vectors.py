"""Static word vectors, such as those of fastText, as one more row of a table that is tested on scored pairs."""

from __future__ import annotations

import gzip
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from nearfar.data import Layout, Records, read, unit_scores
from nearfar.errors import DataError, Problem, SettingError
from nearfar.experiments.published import PublishedTable, study_values
from nearfar.experiments.published.comparison import Line
from nearfar.experiments.published.table_data import DataFolder

REMEDY = "Give a text file with a word and its numbers on each line, as fastText's .vec and word2vec's .txt files have."


@dataclass(frozen=True)
class WordVectors:
    """The vectors of some words, and the score of pairs of them."""

    file: str
    vectors: dict[str, NDArray[np.float64]]

    def cosines(self, left: Sequence[str], right: Sequence[str]) -> tuple[NDArray[np.float64], int]:
        """(n,) cosines, 0 where a word has no vector; and of how many pairs both words have one."""
        cosines, known = np.zeros(len(left)), 0
        for place, words in enumerate(zip(left, right, strict=True)):
            one, other = (self.vectors.get(word, self.vectors.get(word.lower())) for word in words)
            if one is not None and other is not None:
                known += 1
                length = float(np.linalg.norm(one) * np.linalg.norm(other))
                cosines[place] = float(one @ other) / length if length else 0.0
        return cosines, known


def read_word_vectors(path: Path, words: Sequence[str]) -> WordVectors:
    """The vectors of these words, and of their lower case; a first line with two numbers is a header."""
    wanted = {*words, *(word.lower() for word in words)}
    vectors: dict[str, NDArray[np.float64]] = {}
    width: int | None = None
    for number, line in enumerate(_lines(path), 1):
        word, *values = line.rstrip().split(" ")
        if number == 1 and len(values) == 1:
            continue
        width = len(values) if width is None else width
        if word not in wanted or word in vectors:
            continue
        try:
            vector = np.array(values, dtype=np.float64)
        except ValueError:
            raise DataError([Problem(str(path), "a word is followed by what is no number", REMEDY, number)]) from None
        if len(vector) != width or not np.isfinite(vector).all():
            message = f"a word has {len(vector)} numbers, the first one {width}; all need as many, and finite ones"
            raise DataError([Problem(str(path), message, REMEDY, number)])
        vectors[word] = vector
    if not vectors:
        raise DataError([Problem(str(path), "none of the words of the test pairs has a vector", REMEDY)])
    return WordVectors(str(path), vectors)


def _lines(path: Path) -> Iterator[str]:
    if not path.is_file():
        raise DataError([Problem(str(path), "there is no such file", REMEDY)])
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            for line in file:
                yield line.decode("utf-8")
    except (UnicodeDecodeError, OSError) as cause:
        raise DataError([Problem(str(path), "this is no text file of word vectors", REMEDY)]) from cause


def vector_rows(
    table: PublishedTable, data: DataFolder, path: Path, lines: Sequence[Line]
) -> tuple[list[list[str]], list[str]]:
    """The row of word vectors under the head of the table, and what to know about it."""
    from nearfar.evaluation import score_report
    from nearfar.experiments.published.comparison import cells_of

    if not table.vectors:
        raise SettingError(
            f"--vectors is for a table with a row of word vectors, which table {table.number} has not; leave it out."
        )
    rows, notes = [], []
    for entry in (entry for name in table.studies for entry in study_values(name)["data"]):
        name = str(entry["name"])
        if name not in table.vectors:
            continue
        found = data.find(name, {"test": str(entry["test"])}, "has no test pairs", "It is needed for --vectors.")
        records = _scored(read(str(found["test"]), Layout()))
        left, right = records.texts[:2]
        words = read_word_vectors(path, [*left, *right])
        cosines, known = words.cosines(left, right)
        truth, _ = unit_scores(records)
        ours = table.scale * score_report(np.array(truth), cosines).scores["spearman"]
        base = next((line for line in lines if line.data == name and line.metric == "spearman"), None)
        before = None if base is None or base.ours is None else base.ours[0]
        printed = table.published["spearman"][name][table.baseline]
        rows.append(cells_of(name, "word vectors", table.scale, (before, ours), (printed, table.vectors[name])))
        notes.append(
            f"word vectors on {name}: {path.name}, which has both words of {known:,} of {len(records):,} pairs; the "
            "others count with a cosine of 0"
        )
    return rows, notes


def _scored(records: Records) -> Records:
    if records.shape != "pairs" or records.scores is None:
        raise DataError([Problem(records.source, "these are no pairs with scores", "Test on scored pairs.")])
    return records
