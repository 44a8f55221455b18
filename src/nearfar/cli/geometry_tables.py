"""The tables of ``nearfar geometry``: measures, layers, and histograms of cosines."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from nearfar.errors import counted
from nearfar.evaluation.geometry import MEASURES, CosineHistogram
from nearfar.pipeline.geometry import Space

BARS = 20
"""Most lines of a histogram."""
WIDEST = 30
"""The longest bar."""
MEANINGS = {
    "alignment": "squared distance of positive pairs: lower is closer",
    "uniformity": "lower is more even; 0 is one point",
    "anisotropy": "mean cosine of random pairs; 0 is isotropic",
    "effective_rank": "how many directions are used",
}


def geometry_tables(spaces: Sequence[Space], source: str) -> RenderableType:
    """All tables for one model, or for two side by side."""
    last = spaces[-1].report
    about = f"{source}: {counted(last.rows, 'vector')} of {counted(last.dim, 'number')}"
    parts: list[RenderableType] = [Text(about, style="italic"), _measures(spaces)]
    if last.zeros:
        parts.append(Text(f"{counted(last.zeros, 'vector')} of zeros: no direction, and a cosine of 0 with everything"))
    if spaces[-1].layers is not None:
        parts.append(_layers(spaces))
    step = bins_per_line([space.report.histogram for space in spaces])
    histograms = [_histogram(space, step, named=len(spaces) > 1) for space in spaces]
    return Group(*parts, *(table for table in histograms if table is not None))


def _table(spaces: Sequence[Space], first: str, title: str | None = None) -> Table:
    table = Table(title=title, title_justify="left")
    table.add_column(first)
    for name in ["value"] if len(spaces) == 1 else ["before", "after", "change"]:
        table.add_column(name, justify="right")
    return table


def _cells(values: Sequence[float | None]) -> list[str]:
    cells = ["-" if value is None else f"{_rounded(value):.4f}" for value in values]
    if len(values) > 1:
        first, last = values[0], values[-1]
        cells.append("-" if first is None or last is None else f"{_rounded(last - first):+.4f}")
    return cells


def _rounded(value: float) -> float:
    """To four digits, without a negative zero.

    >>> _rounded(-0.00001)
    0.0
    """
    return round(value, 4) + 0.0


def _measures(spaces: Sequence[Space]) -> Table:
    table = _table(spaces, "measure")
    table.add_column("")
    for measure in MEASURES:
        meaning = MEANINGS[measure]
        error = spaces[-1].report.uniformity_error
        if measure == "uniformity" and error:
            meaning += f"; ± {error:.4f} by sampling"
        values = [space.report.scores.get(measure) for space in spaces]
        table.add_row(measure.replace("_", " "), *_cells(values), meaning)
    return table


def _layers(spaces: Sequence[Space]) -> Table:
    table = _table(spaces, "after", "anisotropy by layer")
    every = [space.layers or () for space in spaces]
    for layer in range(max(map(len, every))):
        values = [layers[layer] if layer < len(layers) else None for layers in every]
        table.add_row("embeddings" if layer == 0 else f"layer {layer}", *_cells(values))
    return table


def bins_per_line(histograms: Sequence[CosineHistogram]) -> int:
    """How many bins become one line: few where all cosines are close to each other, the same for all models."""
    counts = [zip(one.positive, one.random, strict=True) for one in histograms]
    used = [index for bins in counts for index, both in enumerate(bins) if any(both)]
    return -(-(max(used) + 1 - min(used)) // BARS) if used else 1


def _histogram(space: Space, step: int, *, named: bool) -> Table | None:
    """Cosines of positive pairs beside those of random pairs, as bars; None without any."""
    histogram = space.report.histogram
    kinds = {
        kind: [sum(counts[start : start + step]) for start in range(0, len(counts), step)]
        for kind, counts in (("positive", histogram.positive), ("random", histogram.random))
        if sum(counts)
    }
    if not kinds:
        return None
    used = [index for counts in kinds.values() for index, count in enumerate(counts) if count]
    title = Text(f"cosines{f' of {space.model}' if named else ''}", style="italic")
    table = Table(title=title, title_justify="left")
    table.add_column("from", justify="right")
    for kind, counts in kinds.items():
        table.add_column(f"{kind} pairs ({sum(counts):,})", min_width=WIDEST)
    for index in range(min(used), max(used) + 1):
        bars = [_bar(counts[index], sum(counts), max(counts)) for counts in kinds.values()]
        table.add_row(f"{histogram.edges[index * step]:+.2f}", *bars)
    return table


def _bar(count: int, total: int, most: int) -> Text:
    """A bar relative to the longest, with its percentage of all; never empty where there is something."""
    if not count:
        return Text("")
    length = max(1, round((WIDEST - 6) * count / most))
    return Text(f"{'█' * length} {100 * count / total:.1f}")
