"""What all reports have in common: scores by name, and their form in JSON."""

from __future__ import annotations

from dataclasses import dataclass, fields, is_dataclass
from typing import Any, ClassVar

import numpy as np


@dataclass(frozen=True)
class ScoredReport:
    """Scores, and what else is known about an evaluation."""

    MEASURES: ClassVar[tuple[str, ...]] = ()
    """Scores that are None in JSON where they are not defined."""

    scores: dict[str, float]

    def to_dict(self) -> dict[str, Any]:
        """All fields for JSON: the scores first, by their own names."""
        values = as_json(self)
        return {**dict.fromkeys(self.MEASURES), **values.pop("scores"), **values}


def as_json(value: Any) -> Any:
    """Dataclasses as dictionaries, tuples and arrays as lists; other values unchanged."""
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, tuple):
        return list(value)
    if is_dataclass(value):
        return {field.name: as_json(getattr(value, field.name)) for field in fields(value)}
    return value
