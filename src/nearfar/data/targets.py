"""From what stands in a file to what objectives and metrics take: scores in 0..1, pairs that are like or unlike."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from nearfar.data.issues import Ledger, count, merged
from nearfar.data.records import Records
from nearfar.errors import DataError, Problem, SettingError, shorten

SCALES = ((0, 1), (-1, 1), (0, 4), (0, 5), (1, 5), (0, 10), (0, 100))
"""Scales of raters that are recognized when both their ends occur."""
_WIDER = ((4, 5), (5, 10), (50, 100))
"""Scales from 0 to the second number, recognized by a largest score above the first."""
_WORDS = ("duplicate", "paraphrase", "equivalent", "similar", "same", "match", "relevant", "entailment")
LIKE = ("1", "1.0", "true", "t", "yes", "y", "positive", "is duplicate", *_WORDS)
"""Labels of pairs whose texts belong together; case apart, and with blanks for _ and -."""
UNLIKE = (
    *("0", "0.0", "false", "f", "no", "n", "negative", "is not duplicate"),
    *(f"{no} {word}" for word in _WORDS for no in ("not", "non", "no")),
    *("different", "dissimilar", "irrelevant", "unrelated"),
)
_EXAMPLES = 5
_SHOWN = 40
"""Characters of a text in a message that has two of them."""


def score_range(records: Records) -> tuple[float, float]:
    """The scale the scores of a file lie on, as far as it can be told: (lowest, highest).

    0..1 when all lie within; -1..1 likewise; a usual scale of raters (0..4, 0..5, 1..5, 0..10, 0..100)
    when both its ends occur; 0..5, 0..10 or 0..100 when none is below 0 and the largest is above 4, 5 or 50;
    else from the smallest score to the largest. The relevance of a ranking begins at 0. Give the
    scale of the training file to :func:`unit_scores` for the others, whose ends may not occur.

    >>> score_range(Records((["a", "b"],), None, [0.23, 9.8], [1, 2], "f.csv"))
    (0.0, 10.0)
    """
    scores = _scores(records)
    low, high = min(scores), max(scores)
    if records.shape == "ranking":
        return 0.0, max(1.0, high)
    for bottom, top in SCALES[:2]:
        if bottom <= low and high <= top:
            return float(bottom), float(top)
    if (low, high) in SCALES:
        return low, high
    for above, top in _WIDER:
        if low >= 0 and above < high <= top:
            return 0.0, float(top)
    if low == high:
        raise DataError(
            [
                Problem(
                    records.source,
                    f"all {count(len(records), 'score')} are {low:g}, from which no scale can be told",
                    "Add rows with other scores, write scores from 0 to 1, or leave the column out if all are alike.",
                    line=records.lines[0],
                )
            ]
        )
    return low, high


def unit_scores(
    records: Records, *, low: float | None = None, high: float | None = None
) -> tuple[list[float], str | None]:
    """The scores mapped to 0..1, and what to tell of it (None when they are in 0..1 as they stand).

    Args:
        low: the score that becomes 0, as :func:`score_range` has it of the training file; None for that of this one.
        high: the score that becomes 1.

    Raises DataError with every row whose score is outside.

    >>> unit_scores(Records((["a", "b", "c"],), None, [0.0, 2.5, 5.0], [1, 2, 3], "f.csv"))
    ([0.0, 0.5, 1.0], 'scores from 0 to 5 are divided by 5')
    """
    scores = _scores(records)
    stated = low is not None or high is not None
    if low is None or high is None:
        found = score_range(records)
        low, high = found[0] if low is None else low, found[1] if high is None else high
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise SettingError(f"scores cannot lie from {low} to {high}: name two finite numbers, the lower one first")
    ledger = Ledger(records.source)
    for score, line in zip(scores, records.lines, strict=True):
        if not low <= score <= high:
            ledger.problem(
                f"a score outside the range from {low:g} to {high:g}",
                "Correct it, or rate all files of a run on one scale.",
                line=line,
                value=score,
            )
    if ledger.problems:
        raise DataError(merged(records.source, [ledger]))
    if (low, high) == (0, 1):
        return list(scores), None
    width = high - low
    return [min(1.0, max(0.0, (score - low) / width)) for score in scores], _told(scores, low, high, stated=stated)


def pair_targets(records: Records) -> list[float]:
    """1.0 for each pair whose texts belong together, 0.0 for each whose texts do not.

    Labels may be 1 and 0, yes and no, true and false, duplicate and not_duplicate and the like;
    scores must be 1 and 0, but any relevance above 0 is a 1. Without labels and scores all pairs
    (and anchors and positives of triplets) belong together. Raises DataError with every row that says something else.

    >>> pair_targets(Records((["a", "b"], ["c", "d"]), ["Yes", "not_duplicate"], None, [1, 2], "f.csv"))
    [1.0, 0.0]
    """
    if records.shape == "texts":
        raise DataError(
            [
                Problem(
                    records.source,
                    "pairs are needed, but these are single texts",
                    "Name both columns with data.text and data.pair (--text, --pair).",
                )
            ]
        )
    if records.labels is not None:
        names = {name: _meaning(name) for name in set(records.labels)}
        targets = [names[name] for name in records.labels]
    elif records.scores is not None:
        relevant = records.shape == "ranking"
        targets = [float(score > 0) if relevant else score if score in (0, 1) else None for score in records.scores]
    else:
        targets = [1.0] * len(records)
    ledger = Ledger(records.source)
    values: Sequence[object] = records.labels or records.scores or ()
    for index, target in enumerate(targets):
        if target is None and records.labels is not None:
            ledger.problem(
                "a label that does not say whether the two texts belong together",
                "Write 1 or 0 (or yes or no); if the column holds scores, name it with data.score (--score); if all "
                "pairs belong together, take the column out.",
                line=records.lines[index],
                value=values[index],
            )
        elif target is None:
            ledger.problem(
                "a score that is neither 0 nor 1",
                "Write 1 for texts that belong together and 0 for others, or take an objective for graded scores.",
                line=records.lines[index],
                value=values[index],
            )
    if ledger.problems:
        raise DataError(merged(records.source, [ledger]))
    return [float(target or 0.0) for target in targets]


def queries_without_positive(records: Records) -> list[str]:
    """The ids of queries none of whose documents is relevant, in the order of the file."""
    if records.queries is None or records.scores is None:
        return []
    best: dict[str, float] = {}
    for query, relevance in zip(records.queries, records.scores, strict=True):
        best[query] = max(best.get(query, 0.0), relevance)
    return [query for query, relevance in best.items() if relevance <= 0]


def doubts(records: Records) -> tuple[list[Problem], list[str]]:
    """What keeps pairs or a ranking from being trained on, and what should be known about their targets.

    Looks for files of nothing but unlike pairs, and for queries without a relevant document; for pairs that are called
    like and unlike see :func:`contradictions`. Classes that are not of two kinds (entailment, neutral, contradiction)
    are left alone.
    """
    targets = _two_kinds(records)
    if targets is None or not targets:
        return [], []
    problems: list[Problem] = []
    if not any(targets):
        problems.append(
            Problem(
                records.source,
                f"{count(len(records), 'pair')}, but none of texts that belong together",
                "Add pairs that do (label or relevance 1): there is nothing to draw near.",
                line=records.lines[0],
            )
        )
    notes: list[str] = []
    without = queries_without_positive(records)
    if without:
        assert records.queries is not None
        line = records.lines[records.queries.index(without[0])]
        notes.append(
            f"{count(len(without), 'query', 'queries')} of {len(set(records.queries)):,} without a relevant document "
            f"(such as {without[0][:60]!r} on line {line})"
        )
    return problems, notes


def contradictions(records: Records) -> list[list[int]]:
    """The rows of each pair of texts that is called like and unlike, in the order of the file.

    Case and blanks make no difference, nor which text is on the left, but in ranking. Graded scores that differ are
    no contradiction: raters differ, and the mean of two scores is a score.

    >>> contradictions(Records((["a", "b", "C"], ["c", "d", "a"]), ["1", "1", "0"], None, [1, 2, 3], "f.csv"))
    [[0, 2]]
    """
    targets = _two_kinds(records) or []
    rows: dict[tuple[str, ...], list[int]] = {}
    for index, key in enumerate(records.likenesses() if targets else ()):
        rows.setdefault(key, []).append(index)
    return [found for found in rows.values() if len({targets[index] for index in found}) > 1]


def contradictory(records: Records, found: Sequence[Sequence[int]]) -> str:
    """How many pairs contradict each other and where they begin, in words.

    >>> contradictory(Records((["a", "a"], ["c", "c"]), ["1", "0"], None, [7, 9], "f.csv"), [[0, 1]])
    '1 pair is called like and unlike (first on line 7)'
    """
    line = records.lines[found[0][0]]
    return f"{count(len(found), 'pair is', 'pairs are')} called like and unlike (first on line {line})"


def consistent(records: Records, *, invalid: Literal["refuse", "drop"]) -> tuple[Records, list[Problem]]:
    """The records without pairs that contradict each other, or what is wrong with them.

    Nobody can tell which of the rows is right, so ``invalid="drop"`` leaves out all of them, and says so in the notes.
    """
    found = contradictions(records)
    if not found:
        return records, []
    if invalid == "refuse":
        ledger = Ledger(records.source)
        for rows in found:
            _enter_contradiction(records, rows, ledger)
        return records, merged(records.source, [ledger])
    gone = {index for rows in found for index in rows}
    note = f"{count(len(gone), 'row')} dropped because {contradictory(records, found)}"
    kept = records.take(index for index in range(len(records)) if index not in gone)
    if len(kept):
        return replace(kept, notes=(*records.notes, note)), []
    remedy = "Correct the labels."
    return records, [Problem(records.source, f"no rows are left that can be used: {note}", remedy)]


def _enter_contradiction(records: Records, rows: Sequence[int], ledger: Ledger) -> None:
    targets = pair_targets(records.take(rows))
    first, other = rows[0], next(row for row, target in zip(rows, targets, strict=True) if target != targets[0])
    said = [records.labels[row] if records.labels else f"{(records.scores or [])[row]:g}" for row in (first, other)]
    left, right = (shorten(column[other], _SHOWN) for column in records.texts)
    named = "label" if records.labels else "relevance" if records.shape == "ranking" else "score"
    ledger.problem(
        f"the {named} {said[1]} contradicts line {records.lines[first]}, where the same two texts have {said[0]}: "
        f"{left} and {right}",
        'Keep the row that is right, or leave out all rows of such pairs with data.invalid = "drop" (--invalid drop).',
        line=records.lines[other],
    )


def _two_kinds(records: Records) -> list[float] | None:
    """The targets of pairs when they are of two kinds, else None."""
    if records.shape not in ("pairs", "ranking") or records.target is None:
        return None
    if records.labels is not None and any(_meaning(name) is None for name in set(records.labels)):
        return None
    if records.shape == "pairs" and records.scores is not None and not {0.0, 1.0}.issuperset(records.scores):
        return None
    return pair_targets(records)


def _meaning(label: str) -> float | None:
    name = " ".join(re.sub(r"(?<=[a-z])[_-]", " ", label.casefold()).split())  # but -1 is not 1
    if name in LIKE:
        return 1.0
    return 0.0 if name in UNLIKE else None


def _told(scores: Sequence[float], low: float, high: float, *, stated: bool) -> str:
    least, most = min(scores), max(scores)
    if low == 0:
        how = f"divided by {high:g}"
    else:
        how = f"mapped to (score {'+' if low < 0 else '-'} {abs(low):g}) / {high - low:g}"
    if stated or (least, most) == (low, high):
        return f"scores from {low:g} to {high:g} are {how}"
    return f"scores from {least:g} to {most:g} are taken to be on a scale from {low:g} to {high:g} and {how}"


def _scores(records: Records) -> list[float]:
    if records.scores:
        return records.scores
    raise DataError(
        [
            Problem(
                records.source,
                "there are no scores" if records.labels is None else "there are labels, but no scores",
                "Name the column that holds them with data.score (--score).",
            )
        ]
    )
