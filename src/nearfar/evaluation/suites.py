"""A folder of scored pairs as one benchmark: Spearman's correlation of cosine and score for each file, and the mean."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from nearfar.data import Layout, Records, read
from nearfar.data.sources import format_of
from nearfar.encoding import Model
from nearfar.errors import DataError, Problem, SettingError, counted, did_you_mean
from nearfar.evaluation.pairs import score_report
from nearfar.evaluation.similarity import score_pairs

Suite = Literal["sts", "all"]
SENTENCES = ("sts12", "sts13", "sts14", "sts15", "sts16", "stsb", "sickr")
WORDS = ("simlex999",)
SPLITS = ("test", "all")
"""Of a folder that is a data set, the file that is measured: the first of these that is there."""
SHOWN = 5
"""Files that were left out and are named where no other is there."""
CONSTANT = {"truth": "scores", "predicted": "cosines"}


@dataclass(frozen=True)
class SuiteSet:
    """One data set of a suite."""

    name: str
    records: Records


@dataclass(frozen=True)
class SetScore:
    """What a model is worth on one data set."""

    rows: int
    """How many pairs were compared."""
    spearman: float
    """Times 100; 0 where all scores or all cosines are the same."""
    constant: tuple[str, ...]
    """Which of ``truth`` and ``predicted`` has one value throughout, so that there is no correlation."""

    @property
    def doubt(self) -> str | None:
        """Why there is no correlation, where there is none.

        >>> SetScore(60, 0.0, ("truth",)).doubt
        'all scores are the same, which counts as a correlation of 0'
        """
        if not self.constant:
            return None
        if self.rows == 1:
            return "it has one pair, which counts as a correlation of 0"
        what = " and all ".join(CONSTANT[one] for one in self.constant)
        return f"all {what} are the same, which counts as a correlation of 0"


@dataclass(frozen=True)
class SuiteReport:
    """What a model is worth on a suite."""

    sets: dict[str, SetScore]

    @property
    def averaged(self) -> tuple[str, ...]:
        """The sets that are in the mean: all but those of single words, or these where there are no others."""
        return tuple(name for name in self.sets if name not in WORDS) or tuple(self.sets)

    @property
    def mean(self) -> float:
        """The mean over the sets, whatever their size."""
        return float(np.mean([self.sets[name].spearman for name in self.averaged]))

    def to_dict(self) -> dict[str, Any]:
        """Everything, as JSON has it."""
        sets = {
            name: {"spearman": score.spearman, "rows": score.rows, "constant": list(score.constant)}
            for name, score in self.sets.items()
        }
        return {"sets": sets, "mean": self.mean, "mean_of": list(self.averaged)}


def read_suite(
    folder: str, suite: str, *, layout: Layout | None = None, invalid: Literal["refuse", "drop"] = "refuse"
) -> tuple[list[SuiteSet], list[str]]:
    """The data sets of a folder, and what should be known about them.

    A data set is a file ``NAME.jsonl`` (or of any other format), or a folder ``NAME`` with a file ``test.*`` or,
    without one, ``all.*``.

    Args:
        folder: where they are.
        suite: ``sts`` for those with the names of semantic textual similarity and SimLex-999, ``all`` for every one
            that has scored pairs.
        layout: the columns; None for the usual names.
        invalid: what happens to rows that cannot be used.
    """
    if suite not in get_args(Suite):
        raise SettingError(f"--suite is sts or all, got {suite!r}.{did_you_mean(suite, get_args(Suite))}")
    place = Path(folder).expanduser()
    if place.is_file():
        remedy = f"Name the folder it is in, or measure on this file alone: nearfar evaluate MODEL {folder}"
        raise DataError([Problem(folder, "this is a file, and a suite is a folder of such files", remedy)])
    if not place.is_dir():
        raise DataError([Problem(folder, "there is no such folder", "Name a folder of files with scored pairs.")])
    try:
        found = _files(place)
    except PermissionError:
        remedy = "Give yourself permission with chmod."
        raise DataError([Problem(folder, "the folder may not be entered (permission denied)", remedy)]) from None
    known = (*SENTENCES, *WORDS)
    if suite == "sts":
        found = {name: found[name] for name in known if name in found}
    sets: list[SuiteSet] = []
    notes: list[str] = []
    for name, (path, *others) in found.items():
        notes.extend(f"{other}: left out: {path} is the data set {name}, too" for other in others)
        records = _read(path, layout or Layout(), invalid, strict=suite == "sts")
        if isinstance(records, str):
            notes.append(f"{path}: left out: {records}")
            continue
        notes.extend(f"{path}: {note}" for note in records.notes)
        sets.append(SuiteSet(name, records))
    if not sets:
        wanted = f"of the suite sts ({', '.join(known)})" if suite == "sts" else "with scored pairs"
        remedy = (
            "Name the folder that has files such as stsb.jsonl, or folders such as stsb/test.jsonl.gz; "
            "--suite all takes every file of scored pairs."
            if suite == "sts"
            else "Each file needs two texts and a score a row; --text, --pair and --score name other columns."
        )
        told = f": {'; '.join(notes[:SHOWN])}{' ...' if len(notes) > SHOWN else ''}" if notes else ""
        raise DataError([Problem(folder, f"the folder holds no data set {wanted}{told}", remedy)])
    return sets, notes


def evaluate_suite(
    model: Model, sets: Sequence[SuiteSet], *, batch_size: int = 64, watch: Callable[[int], None] | None = None
) -> SuiteReport:
    """Compare the cosines of each set with its scores; all rows of a set are one list, however it was put together.

    Args:
        model: an encoder of single texts.
        sets: what :func:`read_suite` found.
        batch_size: texts that are encoded together.
        watch: told after each set how many texts are done, two for every pair.
    """
    scores: dict[str, SetScore] = {}
    done = 0
    for one in sets:
        texts, left, right = _distinct(one.records)
        cosines = score_pairs(model.model, model.tokenize(texts), left, right, batch_size=batch_size)
        report = score_report(np.array(one.records.scores, dtype=np.float64), cosines)
        scores[one.name] = SetScore(report.rows, 100 * report.scores["spearman"], report.constant)
        done += 2 * len(one.records)
        if watch is not None:
            watch(done)
    return SuiteReport(scores)


def _files(folder: Path) -> dict[str, list[Path]]:
    """The files of each data set of a folder by its name, the one to measure first: a file goes before a folder."""
    found: dict[str, list[Path]] = {}
    for entry in sorted(folder.iterdir()):
        if entry.is_dir():
            if same := _measured(entry):
                found.setdefault(_named(entry.name), []).extend(same)
        elif format_of(entry):
            found.setdefault(_named(_stem(entry)), []).insert(0, entry)
    return found


def _measured(folder: Path) -> list[Path]:
    """The files of a folder that is a data set, the one to measure first; none where it is something else."""
    try:
        inside = [file for file in sorted(folder.iterdir(), reverse=True) if file.is_file() and format_of(file)]
    except PermissionError:
        return [folder]  # whoever reads it is told so
    return next((same for split in SPLITS if (same := [one for one in inside if _stem(one) == split])), [])


def _stem(path: Path) -> str:
    return path.name.lower().removesuffix(".gz").rsplit(".", 1)[0]


def _named(name: str) -> str:
    """``STS-12`` and ``sts_12`` are ``sts12``; a name that is none of ours stays as it is.

    >>> _named("STS-B"), _named("my_pairs")
    ('stsb', 'my_pairs')
    """
    plain = name.lower().replace("-", "").replace("_", "")
    return plain if plain in (*SENTENCES, *WORDS) else name


def _read(path: Path, layout: Layout, invalid: Literal["refuse", "drop"], *, strict: bool) -> Records | str:
    """The rows of a file, or, unless ``strict``, why it has no scored pairs."""
    try:
        records = read(str(path), layout, invalid=invalid)
    except DataError as error:
        if strict:
            raise
        return str(error.problems[0].message)
    if records.shape == "pairs" and records.scores is not None:
        return records
    has = "no scores" if records.shape == "pairs" else f"{counted(len(records.texts), 'text')} a row"
    if strict:
        remedy = "Name the columns with --text, --pair and --score, or take the file out of the folder."
        raise DataError([Problem(str(path), f"scored pairs are compared, and the file has {has}", remedy)])
    return f"it has {has}"


def _distinct(records: Records) -> tuple[list[str], NDArray[np.int64], NDArray[np.int64]]:
    """Every text once, and where the two of each row are."""
    places: dict[str, int] = {}
    left, right = (
        np.array([places.setdefault(text, len(places)) for text in column], dtype=np.int64) for column in records.texts
    )
    return list(places), left, right
