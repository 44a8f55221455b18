"""What an exported graph computes besides text vectors: one entry for each head, kept in the metadata of the graph.

This module and ``onnx_model`` import neither torch nor transformers, so that exported models run without them.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Literal, get_args

Reads = Literal["texts", "joined", "both-orders", "apart"]
"""Single texts; pairs joined in the tokenizer's pair format, once or in both orders; pairs encoded apart."""
Kind = Literal["classes", "multilabel", "scores", "cosine"]
LabelType = Literal["str", "int", "float", "bool"]
LARGEST = 1_000_000


@dataclass(frozen=True, kw_only=True)
class ExportedHead:
    """One output of the graph, and what it means."""

    name: str
    """The task; empty for a model of one task."""
    output: str
    """The name of the output in the graph."""
    reads: Reads
    kind: Kind
    labels: tuple[str, ...] = ()
    label_type: LabelType = "str"
    thresholds: dict[str, float] = field(default_factory=dict)
    """Of several labels a text: the probability from which on each label applies; 0.5 where none is named."""
    low: float = 0.0
    high: float = 1.0
    """Scores are mapped to this range, as the user's scores were."""
    cut: float = 0.5
    """The cosine from which on a pair has the second label."""


@dataclass(frozen=True, kw_only=True)
class ExportedCard:
    """The metadata of an exported graph."""

    format: int
    max_length: int
    dim: int
    pad_id: int
    pad_type: int
    pad_left: bool
    typed: bool
    """Whether the graph reads token type ids."""
    heads: tuple[ExportedHead, ...]
    version: str
    precision: Literal["fp32", "int8"] = "fp32"

    def to_json(self) -> dict[str, Any]:
        """The card as JSON has it."""
        return asdict(self)

    @classmethod
    def from_json(cls, values: Any) -> ExportedCard:
        """The card of a graph; ValueError for anything that is none."""
        if not isinstance(values, dict):
            raise ValueError("it is no table")
        try:
            heads = tuple(
                ExportedHead(**{**head, "labels": tuple(map(str, head.get("labels", ())))}) for head in values["heads"]
            )
            card = cls(**{**values, "heads": heads})
        except (TypeError, KeyError, AttributeError) as cause:
            raise ValueError(str(cause)) from cause
        numbers = (card.format, card.max_length, card.dim, card.pad_id, card.pad_type)
        if not all(isinstance(number, int) and 0 <= number < LARGEST for number in numbers):
            raise ValueError("a number in it is out of range")
        for head in heads:
            if head.kind not in get_args(Kind) or head.reads not in get_args(Reads):
                raise ValueError(f"its head {head.name!r} is of an unknown kind")
            if head.kind in ("classes", "multilabel", "cosine") and len(head.labels) < 2:
                raise ValueError(f"its head {head.name!r} has fewer than two labels")
        return card


def label_value(name: str, kind: LabelType) -> str | int | float | bool:
    """A label as the user wrote it.

    >>> label_value("3", "int"), label_value("true", "bool"), label_value("3", "str")
    (3, True, '3')
    """
    match kind:
        case "int":
            return int(name)
        case "float":
            return float(name)
        case "bool":
            return name == "true"
    return name
