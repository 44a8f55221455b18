"""The types of what trials leave: points of a search, scores, spaces, predictions."""

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypeAlias, TypedDict

Setting: TypeAlias = str | int | float | bool
Settings: TypeAlias = dict[str, Setting]
"""Dotted recipe keys to values."""
Files: TypeAlias = dict[str, bytes]
"""What a trial keeps beside its record, by the names of the files."""


class SearchPoint(TypedDict):
    """Settings that a search tried."""

    settings: Settings
    scores: list[float]
    """Of the inner folds, or of the evaluations on the dev rows."""
    status: Literal["done", "pruned", "failed"]
    reason: NotRequired[str]
    """Why it failed."""


class Histogram(TypedDict):
    """How often cosines lie between two edges."""

    edges: list[float]
    positive: list[int]
    random: list[int]


class Space(TypedDict):
    """What pictures of an embedding space need."""

    histogram: Histogram
    layers: list[float | None]
    """The anisotropy behind each layer."""
    texts: int
    positives: int
    """Positive pairs that were measured."""


class ClassFigures(TypedDict):
    """What predictions of classes are worth."""

    scores: dict[str, float]
    per_class: dict[str, dict[str, float]]
    labels: list[str]
    confusion: list[list[int]]


class Result(TypedDict, total=False):
    """What a finished trial has come to: fields of its :class:`Record`."""

    settings: Settings
    searched: list[SearchPoint]
    scores: dict[str, float]
    per_class: dict[str, dict[str, float]]
    labels: list[str]
    confusion: list[list[int]]
    geometry: dict[str, dict[str, float]]
    space: dict[str, Space]
    before: dict[str, float]
    texts: int
    test: int
    notes: list[str]
    recipe: dict[str, Any]
