"""What the rows of a file are, in one table: how they are measured, what is trained on them, how messages call them.

A new row type is a member of :class:`RowType` with its traits, an entry in ``evaluation/evaluators.py``, and a line in
:func:`row_type_of`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal, Self, TypeAlias

from nearfar.data.records import Records, Shape
from nearfar.errors import Problem

RankingScore: TypeAlias = Literal["map", "mrr", "p@1", "ndcg@10", "has_positive@1", "has_positive@5"]
LabelSetScore: TypeAlias = Literal["f1_micro", "f1_samples", "lrap"]
PairScore: TypeAlias = Literal["spearman", "pearson", "f1", "average_precision"]
Score: TypeAlias = Literal["accuracy", "f1_macro", "f1_weighted", LabelSetScore, PairScore, RankingScore]
"""The scores that can pick the best weights, or be compared in a study; recipes name them, too."""


@dataclass(frozen=True, kw_only=True)
class _Traits:
    wording: str
    shapes: tuple[Shape, ...]
    metrics: tuple[Score, ...]
    objective: str
    has_classes: bool = False
    multilabel: bool = False
    has_text_scores: bool = False
    has_scores: bool = False
    has_binary_labels: bool = False
    has_grades: bool = False
    views: bool = False


class RowType(StrEnum):
    """What the rows of a file are. Its value is what cards, plans and records say.

    >>> RowType("scores").metrics[0], RowType.SCORED_PAIRS.wording
    ('spearman', 'pairs with scores')
    """

    LABELED = (
        "classes",
        _Traits(
            wording="texts with classes",
            shapes=("texts", "pairs"),
            metrics=("f1_weighted", "f1_macro", "accuracy"),
            objective="cross-entropy",
            has_classes=True,
        ),
    )
    MULTILABEL = (
        "multilabel",
        _Traits(
            wording="texts with several labels",
            shapes=("texts", "pairs"),
            metrics=("f1_micro", "f1_macro", "f1_samples", "lrap", "accuracy"),
            objective="cross-entropy",
            has_classes=True,
            multilabel=True,
        ),
    )
    SCORED_TEXTS = (
        "text-scores",
        _Traits(
            wording="texts with scores",
            shapes=("texts",),
            metrics=("spearman", "pearson"),
            objective="score-mse",
            has_text_scores=True,
        ),
    )
    SCORED_PAIRS = (
        "scores",
        _Traits(
            wording="pairs with scores",
            shapes=("pairs",),
            metrics=("spearman", "pearson"),
            objective="cosine-mse",
            has_scores=True,
        ),
    )
    BINARY_PAIRS = (
        "pairs",
        _Traits(
            wording="pairs with labels",
            shapes=("pairs",),
            metrics=("f1", "accuracy", "average_precision"),
            objective="batch-softmax",
            has_binary_labels=True,
        ),
    )
    POSITIVE_PAIRS = (
        "positives",
        _Traits(
            wording="positive pairs",
            shapes=("pairs",),
            metrics=("mrr", "map", "p@1", "ndcg@10", "has_positive@1", "has_positive@5"),
            objective="batch-softmax",
        ),
    )
    TRIPLETS = (
        "triplets",
        _Traits(wording="triplets", shapes=("triplets",), metrics=("accuracy",), objective="batch-softmax"),
    )
    RANKING = (
        "ranking",
        _Traits(
            wording="queries with documents",
            shapes=("ranking",),
            metrics=("map", "mrr", "p@1", "ndcg@10", "has_positive@1", "has_positive@5"),
            objective="batch-softmax",
            has_grades=True,
        ),
    )
    PLAIN = "plain", _Traits(wording="plain texts", shapes=("texts",), metrics=(), objective="simcse", views=True)

    wording: str
    """What messages call such rows."""
    shapes: tuple[Shape, ...]
    """The shapes of records that can be such rows."""
    metrics: tuple[Score, ...]
    """The scores such rows are measured by, the first one by default; none where nothing can be measured."""
    objective: str
    """The objective that ``auto`` chooses, by its name; for few labeled texts ``pipeline/defaults.py`` has another."""
    has_classes: bool
    """Whether each row has a class, which a class head predicts; else vectors are compared."""
    multilabel: bool
    """Whether a row has any number of classes, each of which a class head predicts by itself."""
    has_text_scores: bool
    """Whether each row is a text with a score, which a head predicts (regression)."""
    has_scores: bool
    """Whether each row is a pair with a graded score."""
    has_binary_labels: bool
    """Whether each row is labeled as a positive or a negative pair."""
    has_grades: bool
    """Whether rows may have grades of relevance."""
    views: bool
    """Whether rows are single texts, each compared with another view of itself."""

    @property
    def has_head(self) -> bool:
        """Whether a head predicts what rows have; else vectors are compared."""
        return self.has_classes or self.has_text_scores

    def __new__(cls, value: str, traits: _Traits | None = None) -> Self:
        """A string with the traits as attributes; ``RowType("classes")`` looks a member up and makes none."""
        assert traits is not None
        member = str.__new__(cls, value)
        member._value_ = value
        for name, trait in vars(traits).items():
            setattr(member, name, trait)
        return member


def row_type_of(
    records: Records, *, pairwise: bool | None, plain: bool = False, scores: bool | None = None
) -> RowType | Problem:
    """What rows are to an objective, or why they do not fit it.

    Args:
        records: the rows.
        pairwise: whether the objective compares pairs of texts; None leaves it to the rows.
        plain: whether the objective makes pairs of single texts.
        scores: whether the objective predicts a score of each text; None leaves it to the rows, as ``pairwise``.
    """
    shape = records.shape
    rated = shape == "texts" and records.scores is not None
    if scores or (scores is None and pairwise is None and rated):
        return RowType.SCORED_TEXTS if rated else _no_text_scores(records)
    if plain and shape == "texts":
        return RowType.PLAIN
    if pairwise is None:
        pairwise = shape in ("triplets", "ranking") or (shape == "pairs" and not records.is_labeled)
    if not pairwise:
        if records.label_sets is not None:
            return RowType.MULTILABEL
        return RowType.LABELED if records.labels is not None else _no_labels(records)
    if shape == "texts":
        message = "this objective compares pairs of texts, and the file has single texts"
        remedy = "Name both columns (data.text and data.pair, or --text and --pair), or choose a class objective."
        return Problem(records.source, message, remedy, line=records.lines[0] if records.lines else None)
    if shape != "pairs":
        return RowType.TRIPLETS if shape == "triplets" else RowType.RANKING
    if records.label_sets is not None:
        message = "this objective compares pairs of texts, and these have several labels each"
        remedy = "Give each pair one label, or a score; or choose cross-entropy, which reads both texts as one."
        return Problem(records.source, message, remedy, line=records.lines[0] if records.lines else None)
    if records.scores is not None:
        return RowType.SCORED_PAIRS
    return RowType.POSITIVE_PAIRS if records.labels is None else RowType.BINARY_PAIRS


def _no_text_scores(records: Records) -> Problem:
    has = "single texts with labels" if records.is_labeled else "single texts without scores"
    message = f"this objective predicts the score of a text, and the file has {has}"
    if records.shape != "texts":
        message = f"this objective predicts the score of single texts, and the file has {records.shape}"
    remedy = "Name the column of the text and that of its score: data.text and data.score, or --text and --score."
    return Problem(records.source, message, remedy, line=records.lines[0] if records.lines else None)


def _no_labels(records: Records) -> Problem:
    if records.scores is not None:
        message = "this objective needs classes, and the file has scores"
        remedy = (
            "Name the column with the classes (data.label, or --label), or leave --objective out to predict the scores."
        )
    else:
        message = "this objective needs a class for every text, and the file has no label column"
        remedy = "Add a column named label, or name yours (data.label, or --label); without labels: --objective simcse."
    return Problem(records.source, message, remedy, line=records.lines[0] if records.lines else None)
