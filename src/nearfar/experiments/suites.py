"""Scored pairs as the test of trials whose training rows have nothing to be tested by, such as plain texts.

The sets travel as one table of pairs, the label of a pair being the name of its set.
"""

from __future__ import annotations

import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

from nearfar.data import Records, limit, read
from nearfar.errors import DataError, Problem, counted
from nearfar.experiments.diagnostics import POSITIVES, space_of
from nearfar.experiments.records import Space
from nearfar.seeds import generator

if TYPE_CHECKING:
    from nearfar.encoding import Model
    from nearfar.evaluation import SuiteSet

METRIC = "spearman"
LETTERS = np.array(list(string.ascii_lowercase))
SPLITS = ("train", "dev", "test", "all")
"""Names of files that say nothing: the folder says what they are."""


def find_sets(
    places: Sequence[str], suite: Literal["sts", "all"], *, invalid: Literal["refuse", "drop"]
) -> dict[str, str]:
    """The files of scored pairs, each under the name of its set; a folder has those of its suite."""
    from nearfar.evaluation import read_suite

    files: dict[str, str] = {}
    problems: list[Problem] = []
    for place in places:
        try:
            if Path(place).is_dir():
                sets, _ = read_suite(place, suite, invalid=invalid)
                named = {one.name: one.records.source for one in sets}
            else:
                require_scored(read(place, invalid=invalid))
                named = {set_name(place): place}
        except DataError as error:
            problems.extend(error.problems)
            continue
        for name, file in named.items():
            number = 1 + sum(other == name or other.startswith(f"{name} (") for other in files)
            files[name if number == 1 else f"{name} ({number})"] = file
    if problems:
        raise DataError(problems)
    return files


def set_name(file: str) -> str:
    """What a file of scored pairs is called after.

    >>> set_name("data/sts12/test.jsonl.gz"), set_name("mine/alike.csv")
    ('sts12', 'alike')
    """
    path = Path(file.partition("#")[0])
    stem = path.name.split(".")[0]
    return path.parent.name if stem.lower() in SPLITS and path.parent.name else stem


def require_scored(records: Records) -> Records:
    """Refuse rows whose cosine cannot be compared with a score."""
    if records.shape == "pairs" and records.scores is not None:
        return records
    has = "pairs without scores" if records.shape == "pairs" else f"{counted(len(records.texts), 'text')} a row"
    remedy = "Name a file with two texts and a score a row, in columns with the usual names: text_a, text_b, score."
    raise DataError([Problem(records.source, f"scored pairs are tested on, and the file has {has}", remedy)])


def merged(sets: Mapping[str, Records], rows: int | None) -> Records:
    """All sets as one table, the label of a pair being its set; of each set so many rows, whatever the seed."""
    parts = {
        name: one if rows is None or rows >= len(one) else one.take(limit(one, rows, seed=0))
        for name, one in sets.items()
    }
    return Records(
        texts=tuple([text for one in parts.values() for text in one.texts[side]] for side in range(2)),
        labels=[name for name, one in parts.items() for _ in range(len(one))],
        scores=[score for one in parts.values() for score in one.scores or ()],
        lines=[line for one in parts.values() for line in one.lines],
        source=", ".join(one.source for one in parts.values()),
    )


def sets_of(records: Records) -> list[SuiteSet]:
    """What :func:`merged` put together."""
    from nearfar.evaluation import SuiteSet

    places: dict[str, list[int]] = {}
    for place, name in enumerate(records.labels or ()):
        places.setdefault(name, []).append(place)
    return [SuiteSet(name, replace(records.take(rows), labels=None)) for name, rows in places.items()]


def plain_rows(records: Records) -> Records:
    """Single texts each once, without whatever labels they have; pairs and triplets as they are."""
    if records.shape != "texts":
        return records
    first: dict[str, int] = {}
    for place, text in enumerate(records.texts[0]):
        first.setdefault(text, place)
    return replace(records.take(first.values()), labels=None, scores=None, queries=None, documents=None)


def random_letters(records: Records, seed: int) -> Records:
    """Texts with a random letter for every sign but blanks: their lengths are all that is left of them."""
    source = generator(seed, "random letters")

    def drawn(text: str) -> str:
        letters = LETTERS[source.integers(len(LETTERS), size=len(text))]
        return "".join(sign if sign.isspace() else str(letter) for sign, letter in zip(text, letters, strict=True))

    return replace(records, texts=tuple([drawn(text) for text in column] for column in records.texts))


@dataclass(frozen=True)
class Examined:
    """What a model is worth on sets of scored pairs, and the geometry of a fixed sample of their texts."""

    scores: dict[str, float]
    """The mean under ``spearman`` and that of each set under ``SET/spearman``, as fractions."""
    geometry: dict[str, float]
    space: Space
    notes: list[str]


def examine(model: Model, records: Records, *, batch_size: int) -> Examined:
    """What a model is worth on the sets, as :func:`merged` has them, and what its space looks like."""
    from nearfar.evaluation import evaluate_suite
    from nearfar.pipeline.geometry import Positives, positive_pairs

    sets = sets_of(records)
    report = evaluate_suite(model, sets, batch_size=batch_size)
    pairs = [positive_pairs(one.records) for one in sets]
    left, right = ([text for one in pairs for text in getattr(one, side)] for side in ("left", "right"))
    positives = Positives(left, right).sample(POSITIVES)
    texts = list(dict.fromkeys(text for side in records.texts for text in side))
    geometry, space = space_of(model, texts, positives, batch_size=batch_size)
    notes = [f"{name}: {one.warning}" for name, one in report.sets.items() if one.warning]
    if len(report.averaged) < len(report.sets):
        notes.append(f"the mean is that of {', '.join(report.averaged)}")
    scores = {METRIC: report.mean / 100}
    scores |= {f"{name}/{METRIC}": one.spearman / 100 for name, one in report.sets.items()}
    return Examined(scores, geometry, space, notes)
