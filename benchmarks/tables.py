"""Medians, spreads, ratios, and the Markdown they are printed in."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import NamedTuple


class Spread(NamedTuple):
    """The median of some values, with the least and the greatest."""

    median: float
    low: float
    high: float


def spread(values: Sequence[float | None]) -> Spread | None:
    """Of the values that are there; None when none is."""
    there = [value for value in values if value is not None]
    return Spread(statistics.median(there), min(there), max(there)) if there else None


def ratios(ours: Sequence[float | None], theirs: Sequence[float | None]) -> list[float | None]:
    """Ours over theirs, repeat by repeat; None where either is missing."""
    return [
        mine / other if mine is not None and other else None for mine, other in zip(ours, theirs, strict=True)
    ]  # fmt: skip


def paired(ours: Sequence[float], theirs: Sequence[float]) -> tuple[float, float]:
    """The mean of the differences ours - theirs, and its standard error (0 for a single pair)."""
    differences = [mine - other for mine, other in zip(ours, theirs, strict=True)]
    error = statistics.stdev(differences) / len(differences) ** 0.5 if len(differences) > 1 else 0.0
    return statistics.mean(differences), error


def number(value: float | None) -> str:
    """Three digits that matter, and no more."""
    if value is None:
        return "-"
    if value == int(value) and abs(value) < 1000:
        return str(int(value))
    if abs(value) >= 100:
        return f"{value:,.0f}"
    if abs(value) >= 10:
        return f"{value:.1f}"
    return f"{value:.2f}" if abs(value) >= 1 else f"{value:.3g}"


def with_spread(values: Sequence[float | None], unit: str = "") -> str:
    """``median (low to high)``; of one value only that."""
    found = spread(values)
    if found is None:
        return "-"
    if sum(value is not None for value in values) == 1:
        return f"{number(found.median)}{unit}"
    return f"{number(found.median)}{unit} ({number(found.low)} to {number(found.high)})"


def middle(values: Sequence[float | None]) -> str:
    """The median alone."""
    found = spread(values)
    return number(found.median if found else None)


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table; the first column is text, the others are numbers."""
    clean = [[cell.replace("|", "\\|").replace("\n", " ") for cell in row] for row in [header, *rows]]
    widths = [max(3, *(len(row[place]) for row in clean)) for place in range(len(header))]
    lines = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |" for row in clean
    ]
    rule = "|" + "|".join(
        "-" * (width + 2) if not place else "-" * (width + 1) + ":" for place, width in enumerate(widths)
    )
    return "\n".join([lines[0], rule + "|", *lines[1:]])


def quality_table(seeds: Sequence[int], ours: Sequence[float], theirs: Sequence[float], names: tuple[str, str]) -> str:
    """One row a seed, and the paired difference below."""
    rows = [
        [str(seed), f"{mine:.4f}", f"{other:.4f}", f"{mine - other:+.4f}"]
        for seed, mine, other in zip(seeds, ours, theirs, strict=True)
    ]
    mean, error = paired(ours, theirs)
    rows.append(
        ["mean", f"{statistics.mean(ours):.4f}", f"{statistics.mean(theirs):.4f}", f"{mean:+.4f} ± {error:.4f}"]
    )
    return markdown(["seed", *names, "difference"], rows)
