"""Whether contenders were trained at all: what to know about their runs before any p-value is read.

A comparison with a contender that has not learned says nothing about its objective. Three signs are looked for in the
finished runs of a contender on a data set: a training loss that hardly falls, a score that guessing would reach, and a
dev score that still rises at the end.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, Literal

from nearfar.data import RowType
from nearfar.errors import counted
from nearfar.experiments.records import Record, read_journal

Sign = Literal["flat loss", "at chance", "still rising"]
LEAST_FALL = 0.1
"""A loss is flat that falls by less than this share of what it was at first."""
LEAST_STEPS, LEAST_EVALUATIONS, LEAST_TESTED = 4, 3, 20
"""Fewer steps, evaluations or test rows say nothing."""
STILL_RISING = 0.1
"""A dev score still rises if its last gain is more than this share of all that was gained."""
LEAST_GAIN = 0.005
"""Gains below this are noise."""
LIKELY = 1.645
"""Standard errors that a score is above chance in 95 % of all cases at most, if it is that of chance."""
Entry = Mapping[str, Any]


@dataclass(frozen=True)
class Flag:
    """A sign that a contender was not trained well on a data set."""

    data: str
    contender: str
    sign: Sign
    what: str
    """In words, beginning with a noun of the contender."""

    @property
    def sentence(self) -> str:
        """All of it, without a full stop."""
        return f"{self.contender} on {self.data}: {self.what}"


def flags_of(records: Iterable[Record]) -> tuple[Flag, ...]:
    """The flags of all contenders on all data sets, in the order of their first run; more than half of its runs decide.

    Records have to be read from a study: losses and dev scores are in the journals beside them.
    """
    groups: dict[tuple[str, str], list[Record]] = {}
    for record in records:
        if record.done:
            groups.setdefault((record.cell, record.contender), []).append(record)
    flags = []
    for (cell, contender), runs in groups.items():
        journals = [read_journal(run) if run.folder is not None else [] for run in runs]
        found: dict[Sign, str | None] = {
            "flat loss": _flat_loss(journals),
            "at chance": _at_chance(runs),
            "still rising": _still_rising(journals),
        }
        flags += [Flag(cell, contender, sign, what) for sign, what in found.items() if what is not None]
    return tuple(flags)


def doubts(flags: Iterable[Flag], data: str, *contenders: str) -> list[str]:
    """What to say before a verdict on these contenders on a data set."""
    return [f"{flag.contender}: {flag.sign}" for flag in flags if flag.data == data and flag.contender in contenders]


def fall(losses: Sequence[float]) -> tuple[float, float] | None:
    """The mean of the first and of the last quarter of the losses; None for too few.

    >>> fall([4.0, 3.0, 2.0, 1.0])
    (4.0, 1.0)
    """
    if len(losses) < LEAST_STEPS:
        return None
    quarter = len(losses) // 4
    return fmean(losses[:quarter]), fmean(losses[-quarter:])


def is_flat(first: float, last: float) -> bool:
    """Whether a loss has hardly fallen.

    >>> is_flat(1.94, 1.86), is_flat(3.6, 2.1), is_flat(0.0, 0.0)
    (True, False, True)
    """
    return first - last <= LEAST_FALL * abs(first)


def still_rises(scores: Sequence[float]) -> bool:
    """Whether the last of the dev scores is the best, and a good part above the one before.

    >>> still_rises([0.2, 0.4, 0.6]), still_rises([0.5, 0.60, 0.605]), still_rises([0.5, 0.7, 0.6])
    (True, False, False)
    """
    if len(scores) < LEAST_EVALUATIONS or scores[-1] < max(scores):
        return False
    gain, whole = scores[-1] - scores[-2], scores[-1] - scores[0]
    return gain > LEAST_GAIN and gain > STILL_RISING * whole


def _flat_loss(journals: Sequence[Sequence[Entry]]) -> str | None:
    """Of several tasks or stages, the one that falls least counts."""
    ends = [_worst([each for curve in _curves(journal) if (each := fall(curve)) is not None]) for journal in journals]
    known = [each for each in ends if each is not None]
    flat = [each for each in known if is_flat(*each)]
    if not known or 2 * len(flat) <= len(known):
        return None
    first, last = (fmean(values) for values in zip(*flat, strict=True))
    runs = "" if len(known) == 1 else f" in {len(flat)} of {counted(len(known), 'run')}"
    return f"the training loss hardly falls{runs} ({first:.3g} at first, {last:.3g} at last)"


def _worst(ends: Sequence[tuple[float, float]]) -> tuple[float, float] | None:
    return min(ends, key=lambda each: (each[0] - each[1]) / (abs(each[0]) or 1.0), default=None)


def _curves(journal: Sequence[Entry]) -> list[list[float]]:
    """The losses of each stage, or of each task where there are several."""
    curves: dict[tuple[object, object], list[float]] = {}
    for entry in journal:
        if entry.get("kind") != "step":
            continue
        tasks = entry.get("tasks") or {None: {"loss": entry.get("loss")}}
        for name, task in tasks.items():
            if isinstance(loss := task.get("loss"), int | float):
                curves.setdefault((entry.get("stage"), name), []).append(loss)
    return list(curves.values())


def _still_rising(journals: Sequence[Sequence[Entry]]) -> str | None:
    curves = [scores for journal in journals if (scores := _dev_scores(journal))]
    rising = [scores for scores in curves if still_rises(scores)]
    if not curves or 2 * len(rising) <= len(curves):
        return None
    before, last = fmean(scores[-2] for scores in rising), fmean(scores[-1] for scores in rising)
    runs = "" if len(curves) == 1 else f" in {len(rising)} of {counted(len(curves), 'run')}"
    return f"the dev score still rises at the end{runs} ({before:.3f}, then {last:.3f}): more epochs may gain more"


def _dev_scores(journal: Sequence[Entry]) -> list[float]:
    """The dev scores of the last stage, by the metric that selects the weights."""
    entries = [entry for entry in journal if entry.get("kind") == "evaluation"]
    last = [entry for entry in entries if entry.get("stage") == entries[-1].get("stage")]
    scores = [(entry.get("scores") or {}).get(entry.get("metric")) for entry in last]
    return [score for score in scores if isinstance(score, int | float)]


def _at_chance(runs: Sequence[Record]) -> str | None:
    """Whether the mean score of the runs is within what guessing gives."""
    known = [(run.scores[name], chance(run)) for run in runs if (name := _score_name(run)) is not None]
    tested = sum(run.test for run in runs if run.seed == runs[0].seed)
    if not known or tested < LEAST_TESTED:
        return None
    score, level, deviation = (
        fmean(values) for values in zip(*((score, *guess) for score, guess in known), strict=True)
    )
    if score > level + LIKELY * deviation / math.sqrt(tested):
        return None
    guess = "always naming the most frequent class" if runs[0].labels else "chance"
    return f"{_score_name(runs[0])} {score:.3f} is no better than {guess} ({level:.3f})"


def _score_name(run: Record) -> str | None:
    """The score whose value by guessing is known; None where none is."""
    names = ("accuracy",) if run.kind in (RowType.LABELED, RowType.TRIPLETS) else ("spearman", "pearson")
    return next((name for name in names if name in run.scores), None)


def chance(run: Record) -> tuple[float, float]:
    """The score that guessing reaches, and its standard deviation over single rows.

    Of classes it is the share of the most frequent one among the test rows, of triplets a half, and of a correlation 0.
    """
    if run.kind == RowType.TRIPLETS:
        return 0.5, 0.5
    if run.kind != RowType.LABELED:
        return 0.0, 1.0
    rows = [sum(line) for line in run.confusion] or [1]
    share = max(rows) / (sum(rows) or 1)
    return share, math.sqrt(share * (1 - share))
