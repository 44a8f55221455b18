"""Types of what records have: settings, points of a search, spaces."""

from __future__ import annotations

from typing import Literal, NotRequired, TypeAlias, TypedDict

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
