"""What an objective's table declares: which rows it reads, what it needs of a batch, and which defaults it sets.

Everything that loaders, defaults and checks ask of an objective is in :class:`Capabilities`, computed from its
settings. So an objective is one table, one module in ``objectives``, and one builder in ``pipeline/objectives.py``.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Annotated, Any, ClassVar, Literal, Self, TypeAlias

from nearfar.recipe.keys import Choice, Key, forget_schema, tag

NAME = Key("The objective; it decides which other keys this table has.")
LearningRate: TypeAlias = Annotated[
    float | None,
    Key(
        "The learning rate of the objective's own weights, such as centers; unset means 100 times "
        "training.learning_rate.",
        above=0,
        at_most=10,
    ),
]
Temperature: TypeAlias = Annotated[
    float, Key("The temperature; lower values give more weight to the nearest texts.", above=0)
]
ClassWeight: TypeAlias = Literal["none", "balanced"] | dict[str, float]
Reads: TypeAlias = Literal["any", "classes", "text-scores", "pairs", "views", "mixed"]


@dataclass(frozen=True)
class SecondView:
    """How the second view of a text differs from the first, beside dropout."""

    method: Literal["spans", "words", "synonyms"]
    settings: Mapping[str, Any] = field(default_factory=dict)
    plain_only: bool = False
    """Whether it is for single texts only."""


@dataclass(frozen=True, kw_only=True)
class Defaults:
    """What an objective sets where a recipe leaves it open; None leaves it to the usual rules."""

    batch_size: int | None = None
    epochs: int | None = None
    learning_rate: float | None = None
    head_learning_rate: float | None = None
    pooling: Literal["first", "mean"] | None = None
    max_length: int | None = None
    schedule: Literal["linear", "cosine", "constant"] | None = None
    warmup: float | None = None
    published: bool = False
    """Whether these are the settings of a paper, which hold for any number of rows and any encoder."""


@dataclass(frozen=True, kw_only=True)
class Capabilities:
    """What an objective reads, needs and does."""

    reads: Reads
    """Rows with classes; single texts with scores; pairs, each text encoded by itself; views: pairs, or single texts in
    two views each. ``any`` leaves it to the data, ``mixed`` is a blend whose parts read different rows."""
    in_batch: bool = False
    """Whether the rows of a batch are compared with each other, so that larger batches teach more."""
    needs_positives: bool = False
    """Whether same-class examples have to share a batch."""
    idle_without_positives: bool = False
    """Whether nothing is learned from an anchor without a positive."""
    two_views: bool = False
    """Whether labeled texts come in two views each, so that every text has a positive."""
    second_views: tuple[SecondView, ...] = ()
    """How second views differ; the parts of a blend share one."""
    head_weight: float | None = None
    """The weight of a cross-entropy, which trains a class head; None without one."""
    multilabel: bool = False
    """Whether it reads texts with several labels each, beside texts with one class."""
    binary: bool = False
    """Whether a pair is either positive or negative, with no scores in between."""
    threshold: float | None = None
    """The target above which a pair is positive, where that is set; of the parts of a blend the lowest."""
    by_anchor: bool = False
    """Whether labeled pairs become triplets: each positive with each negative of the same left text."""
    needs_negatives: bool = False
    """Whether its settings are for rows with a negative each (triplets)."""
    projection: bool = False
    """Whether a layer stands between vectors and objective while training on plain texts."""
    masked_words: bool = False
    """Whether masked words are predicted beside it."""
    weighting: bool = False
    """Whether a second encoder learns how much each negative counts."""
    encoder: str | None = None
    """The name of that encoder; None for the same as encoder.name."""
    text_vector: bool = False
    """Whether text vectors are compared, with each other or with centers; a head beside it then reads the same."""
    counts_padding: bool = False
    """Whether padding tokens count as tokens."""
    problem: str | None = None
    """What is wrong with its settings."""
    fills: Mapping[str, Any] = field(default_factory=dict)
    """Settings of the table that are unset, and what they become."""
    defaults: Defaults = field(default_factory=Defaults)

    @property
    def trains_head(self) -> bool:
        """Whether a cross-entropy that counts trains a class head."""
        return bool(self.head_weight)


def combine(parts: Iterable[tuple[float, Capabilities]]) -> Capabilities:
    """What a weighted sum of objectives reads, needs and does."""
    weighted = list(parts)
    every = [part for _, part in weighted]
    heads = [weight * part.head_weight for weight, part in weighted if part.head_weight is not None]
    names = [flag.name for flag in fields(Capabilities) if flag.default is False]
    flags: dict[str, Any] = {name: any(getattr(part, name) for part in every) for name in names}
    flags["multilabel"] = all(part.multilabel for part in every)
    flags["idle_without_positives"] = all(part.idle_without_positives for part in every)
    return Capabilities(
        reads=_reads({part.reads for part in every}),
        second_views=tuple(view for part in every for view in part.second_views),
        head_weight=max(heads, default=None),
        threshold=min((part.threshold for part in every if part.threshold is not None), default=None),
        encoder=next((part.encoder for part in every if part.encoder is not None), None),
        problem=next((part.problem for part in every if part.problem is not None), None),
        defaults=_defaults([part.defaults for part in every]),
        **flags,
    )


def _reads(kinds: set[Reads]) -> Reads:
    if len(kinds) < 2:
        return next(iter(kinds), "any")
    return "pairs" if kinds == {"pairs", "views"} else "mixed"


def _defaults(parts: list[Defaults]) -> Defaults:
    """The largest batch, the most epochs, the lowest learning rates, and of the rest what the first part sets."""

    def stated(name: str) -> list[Any]:
        return [value for part in parts if (value := getattr(part, name)) is not None]

    return Defaults(
        batch_size=max(stated("batch_size"), default=None),
        epochs=max(stated("epochs"), default=None),
        learning_rate=min(stated("learning_rate"), default=None),
        head_learning_rate=min(stated("head_learning_rate"), default=None),
        pooling=next(iter(stated("pooling")), None),
        max_length=next(iter(stated("max_length")), None),
        schedule=next(iter(stated("schedule")), None),
        warmup=max(stated("warmup"), default=None),
        published=any(part.published for part in parts),
    )


class Objective(Choice):
    """The table of an objective: a frozen dataclass whose settings are its fields."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    @abstractmethod
    def name(self) -> str:
        """The objective; it decides which other keys the table has."""

    @property
    @abstractmethod
    def learning_rate(self) -> float | None:
        """The learning rate of the objective's own weights."""

    @property
    def class_weight(self) -> ClassWeight:
        """How much the texts of each class count; a setting of objectives that read classes."""
        return "none"

    @property
    @abstractmethod
    def does(self) -> Capabilities:
        """What the objective reads, needs and does with these settings."""

    @classmethod
    def tables(cls) -> tuple[type[Objective], ...]:
        """The tables to choose from by their names."""
        return tuple(table for table in OBJECTIVES.values() if issubclass(table, cls))

    def filled(self) -> Self:
        """The table with nothing left open that it can tell by itself."""
        return replace(self, **self.does.fills)


class Single(Objective):
    """An objective that a blend can hold."""


OBJECTIVES: dict[str, type[Objective]] = {}
"""Every objective by the name a recipe uses: those of ``objectives.py``, and those of :func:`add_table`."""


def add_table(table: type[Objective]) -> None:
    """Let recipes name another objective."""
    OBJECTIVES[tag(table)] = table
    forget_schema()


def remove_table(table: type[Objective]) -> None:
    """Undo :func:`add_table`."""
    del OBJECTIVES[tag(table)]
    forget_schema()
