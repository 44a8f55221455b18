"""Targets of pairs for objectives and metrics: scores scaled to 0..1, and binary labels."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import numpy as np

from nearfar.data.disk_columns import first_rows
from nearfar.data.records import Records
from nearfar.data.values import Issues
from nearfar.errors import DataError, Problem, SettingError, counted, shorten

SCALES = ((0, 1), (-1, 1), (0, 4), (0, 5), (1, 5), (0, 10), (0, 100))
"""Rating scales that are recognized if both their ends occur."""
_WIDER = ((4, 5), (5, 10), (50, 100))
"""Scales from 0 to the second number, recognized by a largest score above the first."""
_WORDS = ("duplicate", "paraphrase", "equivalent", "similar", "same", "match", "relevant", "entailment")
POSITIVE_LABELS = ("1", "1.0", "true", "t", "yes", "y", "positive", "is duplicate", *_WORDS)
"""Labels of positive pairs, in lower case and with spaces for _ and -."""
NEGATIVE_LABELS = (
    *("0", "0.0", "false", "f", "no", "n", "negative", "is not duplicate"),
    *(f"{no} {word}" for word in _WORDS for no in ("not", "non", "no")),
    *("different", "dissimilar", "irrelevant", "unrelated"),
)
_SHOWN = 40
"""Characters of a text in a message that has two of them."""


def score_range(records: Records) -> tuple[float, float]:
    """The scale of the scores of a file: (lowest, highest).

    The one that the records state (data.scale); else 0..1 if all scores are within; else -1..1; a usual rating scale
    (0..4, 0..5, 1..5, 0..10, 0..100) if both its ends occur; 0..5, 0..10 or 0..100 if none is below 0 and the largest
    is above 4, 5 or 50; else from the smallest to the largest score. The relevance of a ranking begins at 0. Pass the
    scale of the training file to :func:`unit_scores` for the other files, in which the ends may not occur.

    >>> score_range(Records((["a", "b"],), None, [0.23, 9.8], [1, 2], "f.csv"))
    (0.0, 10.0)
    """
    if records.scale is not None:
        return records.scale
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
        message = f"all {counted(len(records), 'score')} are {low:g}, which gives no scale"
        remedy = "Add rows with other scores, write scores from 0 to 1, or remove the column if all are equal."
        raise DataError(Problem(records.source, message, remedy, line=records.lines[0]))
    return low, high


def unit_scores(
    records: Records, *, low: float | None = None, high: float | None = None
) -> tuple[list[float], str | None]:
    """The scores mapped to 0..1, and a note on how (None if they are in 0..1 already).

    Args:
        records: rows with scores.
        low: the score that becomes 0, from :func:`score_range` of the training file; None for that of this one.
        high: the score that becomes 1, likewise.

    Raises DataError with every row whose score is outside.

    >>> unit_scores(Records((["a", "b", "c"],), None, [0.0, 2.5, 5.0], [1, 2, 3], "f.csv"))
    ([0.0, 0.5, 1.0], 'scores from 0 to 5 are divided by 5')
    """
    scores = _scores(records)
    given = low is not None or high is not None
    if low is None or high is None:
        lowest, highest = score_range(records)
        low, high = lowest if low is None else low, highest if high is None else high
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise SettingError(f"scores cannot range from {low} to {high}: give two finite numbers, the lower one first")
    issues = Issues(records.source)
    for score, line in zip(scores, records.lines, strict=True):
        if not low <= score <= high:
            message = f"a score outside the range from {low:g} to {high:g}"
            issues.add(message, "Correct it, or use one scale in all files of a run.", line=line, value=score)
    if issues.problems:
        raise DataError(issues.sorted_problems())
    if (low, high) == (0, 1):
        return list(scores), None
    width = high - low
    how = f"mapped to (score {'+' if low < 0 else '-'} {abs(low):g}) / {width:g}" if low else f"divided by {high:g}"
    note = f"scores from {low:g} to {high:g} are {how}"
    least, most = min(scores), max(scores)
    if not given and (least, most) != (low, high):
        note = f"scores from {least:g} to {most:g} are assumed to be on a scale from {low:g} to {high:g} and {how}"
    return [min(1.0, max(0.0, (score - low) / width)) for score in scores], note


def pair_targets(records: Records) -> list[float]:
    """1.0 for each positive pair, 0.0 for each negative pair.

    Labels may be 1 and 0, yes and no, true and false, duplicate and not_duplicate and so on; scores must be 1 and 0,
    but the relevance of a ranking counts as 1 from ``records.relevant`` on, by default above the lowest. Without labels
    and scores all pairs (and anchors and positives of triplets) are positive. Raises DataError with every row that has
    another label.

    >>> pair_targets(Records((["a", "b"], ["c", "d"]), ["Yes", "not_duplicate"], None, [1, 2], "f.csv"))
    [1.0, 0.0]
    """
    if records.shape == "texts":
        remedy = "Name both columns with data.text and data.pair (--text, --pair)."
        raise DataError(Problem(records.source, "pairs are needed, but these are single texts", remedy))
    values: Sequence[object] = records.labels or records.scores or ()
    if records.labels is not None:
        meanings = {name: _meaning(name) for name in set(records.labels)}
        targets = [meanings[name] for name in records.labels]
        message = "a label that is not binary"
        remedy = (
            "Write 1 for a positive pair and 0 for a negative one (or yes and no); if the column holds scores, name it "
            "with data.score (--score); if all pairs are positive, remove the column."
        )
    elif records.scores is not None:
        ranked = records.shape == "ranking"
        targets = [
            float(records.is_relevant(score)) if ranked else score if score in (0, 1) else None
            for score in records.scores
        ]
        message = "a score that is neither 0 nor 1"
        remedy = "Write 1 for positive and 0 for negative pairs, or choose an objective for graded scores."
    else:
        return [1.0] * len(records)
    issues = Issues(records.source)
    for value, target, line in zip(values, targets, records.lines, strict=True):
        if target is None:
            issues.add(message, remedy, line=line, value=value)
    if issues.problems:
        raise DataError(issues.sorted_problems())
    return [float(target or 0.0) for target in targets]


def queries_without_positive(records: Records) -> list[str]:
    """The ids of queries without a relevant document, in the order of the file."""
    if records.queries is None or records.scores is None:
        return []
    found: dict[str, bool] = {}
    for query, grade in zip(records.queries, records.scores, strict=True):
        found[query] = found.get(query, False) or records.is_relevant(grade)
    return [query for query, relevant in found.items() if not relevant]


def positive_above(records: Records) -> float:
    """The target, from 0 to 1, above which a pair is positive: half of the scale, and for ranking the relevant grades.

    >>> ranking = Records((["a"], ["b"]), None, [2.0], [1], "f.csv", queries=["q"], scale=(1, 4), relevant=3)
    >>> positive_above(ranking) < 2 / 3, positive_above(ranking) > 1 / 3
    (True, True)
    """
    if records.shape != "ranking" or records.scores is None:
        return 0.5
    if records.relevant is None:
        return 0.0
    low, high = score_range(records)
    return float(np.nextafter(np.float32((records.relevant - low) / (high - low)), np.float32(-1)))


def grades_of(records: Records) -> list[int]:
    """How relevant the right text of each row is to the left one, in whole numbers from 0, the lowest grade.

    Pairs have 1 and 0. Raises DataError for graded scores of pairs, and for a relevance that is no whole number.

    >>> grades_of(Records((["a"], ["b"]), None, [3.0], [1], "f.csv", queries=["q"], scale=(1, 4)))
    [2]
    """
    if records.shape != "ranking" or records.scores is None:
        if records.shape == "pairs" and records.scores is not None and not {0.0, 1.0}.issuperset(records.scores):
            line = next(line for line, score in zip(records.lines, records.scores, strict=True) if score not in (0, 1))
            remedy = "Search for positive pairs: with labels 1 and 0, or without scores."
            message = "graded scores do not say which texts are to be found"
            raise DataError([Problem(records.source, message, remedy, line=line)])
        return [int(target) for target in pair_targets(records)]
    if problems := fractions(records):
        raise DataError(problems)
    return [int(score - _lowest(records)) for score in records.scores]


def relevant_grade(records: Records) -> int:
    """The lowest of the grades of :func:`grades_of` that is relevant."""
    return 1 if records.relevant is None else max(1, math.ceil(records.relevant - _lowest(records)))


def _lowest(records: Records) -> float:
    return 0.0 if records.scale is None else records.scale[0]


def fractions(records: Records) -> list[Problem]:
    """The rows of a ranking whose relevance is no grade."""
    message, remedy = "the relevance is not a whole number", "Map the grades to 0, 1, 2 and so on."
    return [
        Problem(records.source, message, remedy, line=line, value=f"{score:g}")
        for score, line in zip(records.scores or (), records.lines, strict=True)
        if not float(score - _lowest(records)).is_integer()
    ]


def target_problems(records: Records) -> tuple[list[Problem], list[str]]:
    """Why pairs or a ranking cannot be trained on, and what users should know about their targets.

    Reports files without a positive pair, and queries without a relevant document; for pairs that are both positive and
    negative see :func:`contradictions`. Labels that are not binary (entailment, neutral, contradiction) are left alone.
    """
    targets = _binary_targets(records)
    if not targets:
        return [], []
    problems: list[Problem] = []
    if not any(targets):
        message = f"{counted(len(records), 'pair')}, but none of them is positive"
        remedy = "Add positive pairs (label or relevance 1): without them there is nothing to learn."
        problems.append(Problem(records.source, message, remedy, line=records.lines[0]))
    notes: list[str] = []
    without = queries_without_positive(records)
    if without:
        assert records.queries is not None
        place = records.place(records.queries.index(without[0]))
        notes.append(
            f"{counted(len(without), 'query', 'queries')} of {len(set(records.queries)):,} without a relevant document "
            f"(such as {without[0][:60]!r} on {place})"
        )
    return problems, notes


def contradictions(records: Records) -> list[list[int]]:
    """The rows of each pair of texts that is both positive and negative, in the order of the file.

    Texts are compared normalized, and in either order except for ranking. Graded scores that differ are not a
    contradiction: raters differ, and the mean of two scores is a score.

    >>> contradictions(Records((["a", "b", "C"], ["c", "d", "a"]), ["1", "1", "0"], None, [1, 2, 3], "f.csv"))
    [[0, 2]]
    """
    binary = _binary_targets(records)
    if not binary:
        return []
    targets, first = np.array(binary), first_rows(map("\x1f".join, records.iter_split_keys()))
    groups = np.unique(first[targets != targets[first]])
    rows = np.flatnonzero(np.isin(first, groups))
    rows = rows[np.argsort(first[rows], kind="stable")]
    cuts = np.flatnonzero(np.diff(first[rows])) + 1
    return [same.tolist() for same in np.split(rows, cuts)] if len(rows) else []


def contradictions_message(records: Records, contradicting: Sequence[Sequence[int]]) -> str:
    """How many pairs contradict each other, and the first line.

    >>> contradictions_message(Records((["a", "a"], ["c", "c"]), ["1", "0"], None, [7, 9], "f.csv"), [[0, 1]])
    '1 pair is both positive and negative (first on line 7)'
    """
    place = records.place(contradicting[0][0])
    return f"{counted(len(contradicting), 'pair is', 'pairs are')} both positive and negative (first on {place})"


def without_contradictions(records: Records, *, invalid: Literal["refuse", "drop"]) -> tuple[Records, list[Problem]]:
    """The records without pairs that are both positive and negative, or these pairs as problems.

    Nobody can know which of the rows is right, so ``invalid="drop"`` leaves out all of them, with a note.
    """
    contradicting = contradictions(records)
    if not contradicting:
        return records, []
    if invalid == "refuse":
        issues = Issues(records.source)
        for rows in contradicting:
            _report_contradiction(records, rows, issues)
        return records, issues.sorted_problems()
    dropped = {index for rows in contradicting for index in rows}
    note = f"{counted(len(dropped), 'row')} dropped because {contradictions_message(records, contradicting)}"
    kept = records.take(index for index in range(len(records)) if index not in dropped)
    if len(kept):
        return replace(kept, notes=(*records.notes, note)), []
    return records, [Problem(records.source, f"no rows are left that can be used: {note}", "Correct the labels.")]


def _report_contradiction(records: Records, rows: Sequence[int], issues: Issues) -> None:
    targets = pair_targets(records.take(rows))
    first, other = rows[0], next(row for row, target in zip(rows, targets, strict=True) if target != targets[0])
    value, first_value = (
        records.labels[row] if records.labels else f"{(records.scores or [])[row]:g}" for row in (other, first)
    )
    left, right = (shorten(column[other], _SHOWN) for column in records.texts)
    kind = "label" if records.labels else "relevance" if records.shape == "ranking" else "score"
    issues.add(
        f"the {kind} {value} contradicts {records.place(first)}, where the same two texts have {first_value}: "
        f"{left} and {right}",
        'Keep the row that is right, or leave out all rows of such pairs with data.invalid = "drop" (--invalid drop).',
        line=records.lines[other],
    )


def _binary_targets(records: Records) -> list[float] | None:
    """The targets of pairs if they are binary, else None."""
    if records.shape not in ("pairs", "ranking") or records.target is None:
        return None
    if records.labels is not None and any(_meaning(name) is None for name in set(records.labels)):
        return None
    if records.shape == "pairs" and records.scores is not None and not {0.0, 1.0}.issuperset(records.scores):
        return None
    return pair_targets(records)


def _meaning(label: str) -> float | None:
    name = " ".join(re.sub(r"(?<=[a-z])[_-]", " ", label.casefold()).split())  # but -1 is not 1
    if name in POSITIVE_LABELS:
        return 1.0
    return 0.0 if name in NEGATIVE_LABELS else None


def _scores(records: Records) -> Sequence[float]:
    if records.scores:
        return records.scores
    message = "there are no scores" if records.labels is None else "there are labels, but no scores"
    raise DataError(Problem(records.source, message, "Name the column with data.score (--score)."))
