"""Checks of rows beyond those of one file: whether they fit an objective, and whether they can give a score."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from nearfar.data import Records, RowType, pair_targets, row_type_of, score_range
from nearfar.errors import DataError, Problem, counted, unit_of
from nearfar.recipe import Objective
from nearfar.recipe.objectives import parts_of


def graded_problems(train: Records, objectives: Sequence[Objective]) -> list[Problem]:
    """What is wrong with graded scores for objectives that know positive and negative pairs only."""
    parts = [part for objective in objectives for part in parts_of(objective).values()]
    names = [part.name for part in parts if part.does.binary]
    low, high = score_range(train)
    between = [(score, line) for score, line in zip(train.scores or (), train.lines, strict=True) if low < score < high]
    if not names or not between:
        return []
    score, line = between[0]
    scores = f"{counted(len(between), 'score lies', 'scores lie')} between {low:g} and {high:g}"
    message = f"{names[0]} takes a pair as positive or negative, and {scores}"
    remedy = (
        "Label the pairs 1 or 0, or take an objective for scores: cosine-mse, pearson, or batch-softmax with its "
        "threshold."
    )
    return [Problem(train.source, message, remedy, line=line, value=f"{score:g}")]


def unmeasurable(records: Records, named: str = "the file") -> list[Problem]:
    """Why pairs or a ranking can give no score: to be reported before the training, not after it."""
    ranked = records.shape == "ranking" and records.scores is not None
    if not ranked and row_type_of(records, pairwise=True) is not RowType.BINARY_PAIRS:
        return []
    try:
        targets = pair_targets(records)
    except DataError as error:
        return list(error.problems)
    problems = [*fractions(records), *_repeats(records)] if ranked else []
    if not any(targets):
        remedy = "Add positive pairs (label or relevance 1), or measure on other rows."
        message = f"none of the {counted(len(records), 'pair')} of {named} is positive: there is nothing to find"
        problems.append(Problem(records.source, message, remedy, line=records.lines[0]))
    return problems


def unmeasurable_shares(shares: Mapping[str, Records | None]) -> list[Problem]:
    """The same for dev and test rows that were set aside from the training rows."""
    return [
        problem
        for role, records in shares.items()
        if records is not None and len(records)
        for problem in unmeasurable(records, f"the share set aside as {role} rows")
    ]


def fractions(records: Records) -> list[Problem]:
    """The rows of a ranking whose relevance is no grade."""
    message, remedy = "the relevance is not a whole number", "Map the grades to 0, 1, 2 and so on."
    return [
        Problem(records.source, message, remedy, line=line, value=f"{score:g}")
        for score, line in zip(records.scores or (), records.lines, strict=True)
        if not score.is_integer()
    ]


def _repeats(records: Records) -> list[Problem]:
    """The rows of a ranking whose document occurs before for the same query."""
    first: dict[tuple[str, str], int] = {}
    problems: list[Problem] = []
    pairs = zip(records.queries or (), records.documents or (), strict=True)
    for pair, line, text in zip(pairs, records.lines, records.texts[1], strict=True):
        if first.setdefault(pair, line) != line:
            message = f"the document is on {unit_of(records.source)} {first[pair]} already, for the same query"
            remedy = "Keep one row of each; without ids, documents that differ in case and blanks only are one."
            problems.append(Problem(records.source, message, remedy, line=line, value=text))
    return problems


def constant_scores(**parts: Records | None) -> list[str]:
    """What to say of scored pairs that tell no model from another."""
    return [
        f"all scores of the {role} rows are {records.scores[0]:g}, so that their correlation is 0 whatever is learned"
        + ("; name other rows as data.dev (--dev), or the pretrained encoder is kept" if role == "dev" else "")
        for role, records in parts.items()
        if records is not None and records.shape == "pairs" and records.scores and len(set(records.scores)) == 1
    ]
