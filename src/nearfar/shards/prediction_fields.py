"""The fields of a prediction as a file has them, beside the columns of the input."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nearfar.encoding.model import Prediction


@dataclass(frozen=True)
class Fields:
    """Which fields a prediction has, and what they are called."""

    only: bool
    """Whether the columns of the file are left out."""
    top: int | None
    least: float
    """The probability below which there is no label."""
    reject: float | None = None
    """The typicality below which there is no label; None: it is not computed."""
    columns: tuple[str, ...] = ()
    """The columns of the file."""
    flat: bool = False
    """Whether the format has plain cells: the probability of the label in place of those of all classes."""
    reasons: bool = False
    """Whether there are rows without a prediction, with the reason."""

    def beside(self, columns: Sequence[str], *, flat: bool, reasons: bool) -> Fields:
        """The same for the columns of a file and the format of the target."""
        return replace(self, columns=tuple(columns), flat=flat, reasons=reasons)

    @property
    def notes(self) -> list[str]:
        """Names that differ because the file has such columns."""
        changed = [name for name in NAMES if not self.only and name in self.columns]
        return [f"it has a column {name!r}, so predictions are in {self.name(name)!r}" for name in changed]

    def name(self, field: str) -> str:
        """The name of a field, another one where the file has such a column."""
        while not self.only and field in self.columns:
            field = f"predicted_{field}"
        return field

    def names(self, first: Mapping[str, object]) -> list[str]:
        """The names of all columns, given the fields of a first prediction."""
        kept = [] if self.only else list(self.columns)
        return [*kept, *(name for name in first if name not in kept), *([self.name(REASON)] if self.reasons else [])]

    def of(self, prediction: Prediction) -> dict[str, object]:
        """The fields of a prediction."""
        fields: dict[str, object] = {}
        ranked = sorted(prediction.probabilities.items(), key=lambda each: -each[1])
        if prediction.label is not None:
            sure = not ranked or ranked[0][1] >= self.least
            fits = self.reject is None or (prediction.typicality or 0.0) >= self.reject
            fields[self.name("label")] = prediction.label if sure and fits else None
        if prediction.labels is not None:
            applying = [label for label in prediction.labels if prediction.probabilities[label] >= self.least]
            fields[self.name("labels")] = ";".join(applying) if self.flat else applying
        if ranked and self.flat:
            fields[self.name("probability")] = round(ranked[0][1], 6)
            for place, (label, chance) in enumerate(ranked[1 : self.top or 1], 2):
                fields[self.name(f"label_{place}")] = label
                fields[self.name(f"probability_{place}")] = round(chance, 6)
        elif ranked:
            listed = ranked[: self.top] if self.top else prediction.probabilities.items()
            fields[self.name("probabilities")] = {name: round(chance, 6) for name, chance in listed}
        if prediction.score is not None:
            fields[self.name("score")] = round(prediction.score, 6)
        if prediction.typicality is not None:
            fields[self.name("typicality")] = round(prediction.typicality, 6)
        return fields


REASON = "not_predicted"
NAMES = ("label", "labels", "probability", "probabilities", "score", "typicality", REASON)
