"""A benchmark suite of scored pairs: Spearman's correlation of cosine and score for each data set, and the mean."""

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
from nearfar.evaluation.inference import score_pairs
from nearfar.evaluation.pairs import score_report

Suite = Literal["sts", "all"]
SENTENCES = ("sts12", "sts13", "sts14", "sts15", "sts16", "stsb", "sickr")
WORDS = ("simlex999",)
SPLITS = ("test", "all")
"""The file of a data set in a folder that is measured: the first of these that exists."""
SHOWN = 5
"""Most skipped files that an error names."""
CONSTANT = {"truth": "scores", "predicted": "cosines"}


@dataclass(frozen=True)
class SuiteSet:
    """One data set of a suite."""

    name: str
    records: Records


@dataclass(frozen=True)
class SetScore:
    """The result on one data set."""

    rows: int
    """How many pairs were compared."""
    spearman: float
    """Times 100; 0 where all scores or all cosines are the same."""
    constant: tuple[str, ...]
    """Which of ``truth`` and ``predicted`` has one value throughout, so that no correlation is defined."""

    @property
    def warning(self) -> str | None:
        """Why no correlation is defined, where that is so.

        >>> SetScore(60, 0.0, ("truth",)).warning
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
    """The results on a suite."""

    sets: dict[str, SetScore]

    @property
    def averaged(self) -> tuple[str, ...]:
        """The sets in the mean: all but those of single words, or these where there are no others."""
        return tuple(name for name in self.sets if name not in WORDS) or tuple(self.sets)

    @property
    def mean(self) -> float:
        """The unweighted mean over the sets."""
        return float(np.mean([self.sets[name].spearman for name in self.averaged]))

    def to_dict(self) -> dict[str, Any]:
        """All values for JSON."""
        sets = {
            name: {"spearman": score.spearman, "rows": score.rows, "constant": list(score.constant)}
            for name, score in self.sets.items()
        }
        return {"sets": sets, "mean": self.mean, "mean_of": list(self.averaged)}


def read_suite(
    folder: str, suite: str, *, layout: Layout | None = None, invalid: Literal["refuse", "drop"] = "refuse"
) -> tuple[list[SuiteSet], list[str]]:
    """The data sets of a folder, and notes about them.

    A data set is a file ``NAME.jsonl`` (or of any other format), or a folder ``NAME`` with a file ``test.*`` or,
    without one, ``all.*``.

    Args:
        folder: the folder with the data sets.
        suite: ``sts`` for the known sets of semantic textual similarity and SimLex-999, ``all`` for every data set with
            scored pairs.
        layout: the columns; None for the usual names.
        invalid: what happens to invalid rows.
    """
    if suite not in get_args(Suite):
        raise SettingError(f"--suite is sts or all, got {suite!r}.{did_you_mean(suite, get_args(Suite))}")
    path = Path(folder).expanduser()
    if path.is_file():
        remedy = f"Name the folder it is in, or measure on this file alone: nearfar evaluate MODEL {folder}"
        raise DataError([Problem(folder, "this is a file, and a suite is a folder of such files", remedy)])
    if not path.is_dir():
        raise DataError([Problem(folder, "there is no such folder", "Name a folder of files with scored pairs.")])
    try:
        files = _files(path)
    except PermissionError:
        remedy = "Give yourself permission with chmod."
        raise DataError([Problem(folder, "the folder may not be entered (permission denied)", remedy)]) from None
    known = (*SENTENCES, *WORDS)
    if suite == "sts":
        files = {name: files[name] for name in known if name in files}
    sets: list[SuiteSet] = []
    notes: list[str] = []
    for name, (file, *others) in files.items():
        notes.extend(f"{other}: skipped: {file} is the data set {name}, too" for other in others)
        records = _read(file, layout or Layout(), invalid, strict=suite == "sts")
        if isinstance(records, str):
            notes.append(f"{file}: skipped: {records}")
            continue
        notes.extend(f"{file}: {note}" for note in records.notes)
        sets.append(SuiteSet(name, records))
    if not sets:
        wanted = f"of the suite sts ({', '.join(known)})" if suite == "sts" else "with scored pairs"
        remedy = (
            "Name the folder that has files such as stsb.jsonl, or folders such as stsb/test.jsonl.gz; "
            "--suite all takes every file of scored pairs."
            if suite == "sts"
            else "Each file needs two texts and a score a row; --text, --pair and --score name other columns."
        )
        skipped = f": {'; '.join(notes[:SHOWN])}{' ...' if len(notes) > SHOWN else ''}" if notes else ""
        raise DataError([Problem(folder, f"the folder holds no data set {wanted}{skipped}", remedy)])
    return sets, notes


def evaluate_suite(
    model: Model, sets: Sequence[SuiteSet], *, batch_size: int = 64, progress: Callable[[int], None] | None = None
) -> SuiteReport:
    """Spearman's correlation of cosine and score on each set, over all its rows at once.

    Args:
        model: an encoder of single texts.
        sets: from :func:`read_suite`.
        batch_size: texts that are encoded together.
        progress: called after each set with the number of texts done, two for every pair.
    """
    scores: dict[str, SetScore] = {}
    done = 0
    for one in sets:
        texts, left, right = _distinct(one.records)
        cosines = score_pairs(model.model, model.tokenize(texts), left, right, batch_size=batch_size)
        report = score_report(np.array(one.records.scores, dtype=np.float64), cosines)
        scores[one.name] = SetScore(report.rows, 100 * report.scores["spearman"], report.constant)
        done += 2 * len(one.records)
        if progress is not None:
            progress(done)
    return SuiteReport(scores)


def _files(folder: Path) -> dict[str, list[Path]]:
    """The files of each data set by its name, the one to measure first: a file comes before a folder."""
    files: dict[str, list[Path]] = {}
    for entry in sorted(folder.iterdir()):
        if entry.is_dir():
            if same := _split_files(entry):
                files.setdefault(_set_name(entry.name), []).extend(same)
        elif format_of(entry):
            files.setdefault(_set_name(_stem(entry)), []).insert(0, entry)
    return files


def _split_files(folder: Path) -> list[Path]:
    """The files of a data set in a folder, the one to measure first; empty where it is no data set."""
    try:
        inside = [file for file in sorted(folder.iterdir(), reverse=True) if file.is_file() and format_of(file)]
    except PermissionError:
        return [folder]  # reading it raises the error
    return next((same for split in SPLITS if (same := [one for one in inside if _stem(one) == split])), [])


def _stem(path: Path) -> str:
    return path.name.lower().removesuffix(".gz").rsplit(".", 1)[0]


def _set_name(name: str) -> str:
    """``STS-12`` and ``sts_12`` are ``sts12``; an unknown name stays unchanged.

    >>> _set_name("STS-B"), _set_name("my_pairs")
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
    """Every text once, and the indices of the two texts of each row."""
    known: dict[str, int] = {}
    left, right = (
        np.array([known.setdefault(text, len(known)) for text in column], dtype=np.int64) for column in records.texts
    )
    return list(known), left, right
