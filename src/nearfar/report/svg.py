"""Pieces of SVG: scales, ticks, marks, charts. Colors are CSS classes, so light, dark and print each have their own."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from nearfar.report.elements import NOTHING, Markup, number, tag

NARROW, BROAD = 420, 600
"""Widths of charts above which they are shrunk, or scrolled, on a narrow screen."""
MATRIX = "chart matrix"
"""The CSS class of a chart of cells with numbers."""
SERIES = 8
"""Number of colors; further series repeat them with another mark."""
CORNERS = (
    ((-0.88, -0.88), (0.88, -0.88), (0.88, 0.88), (-0.88, 0.88)),
    ((0, -1.15), (1.08, 0.8), (-1.08, 0.8)),
    ((0, -1.25), (1.25, 0), (0, 1.25), (-1.25, 0)),
)
"""Marks that are no circle: square, triangle, diamond."""

Point = tuple[float, float]


@dataclass(frozen=True)
class Scale:
    """Maps values to coordinates.

    >>> Scale(0, 10, 100, 200)(5)
    150.0
    >>> Scale(1, 100, 0, 200, log=True)(10)
    100.0
    """

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def __call__(self, value: float) -> float:
        """The coordinate of a value."""
        low, high, value = (math.log10(x) if self.log else x for x in (self.low, self.high, value))
        share = 0.5 if high == low else (value - low) / (high - low)
        return self.start + share * (self.end - self.start)

    def ticks(self, count: int = 5) -> list[float]:
        """Round values inside the scale."""
        return log_ticks(self.low, self.high) if self.log else nice_ticks(self.low, self.high, count)


def nice_ticks(low: float, high: float, count: int = 5) -> list[float]:
    """About ``count`` round values from ``low`` to ``high``.

    >>> nice_ticks(0, 1)
    [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]
    >>> nice_ticks(3, 3)
    [3]
    """
    if not high > low:
        return [low]
    rough = (high - low) / max(1, count)
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= rough * 0.999)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [round(index * step, 12) + 0.0 for index in range(first, last + 1)]


def log_ticks(low: float, high: float) -> list[float]:
    """1, 2 and 5 times each power of ten inside the range; only the powers where the range is wide.

    >>> log_ticks(20, 1000)
    [20.0, 50.0, 100.0, 200.0, 500.0, 1000.0]
    """
    powers = range(math.floor(math.log10(low)) - 1, math.ceil(math.log10(high)) + 1)
    factors = (1, 2, 5) if high / low < 2000 else (1,)
    values = [factor * 10.0**power for power in powers for factor in factors]
    return [value for value in values if low * 0.999 <= value <= high * 1.001] or [low]


def padded(values: Iterable[float], share: float = 0.08, *, least: float = 1e-9) -> Point:
    """The range of the values with padding on both sides.

    >>> padded([0, 10], 0.1)
    (-1.0, 11.0)
    """
    known = list(values)
    low, high = min(known), max(known)
    padding = max((high - low) * share, least)
    return low - padding, high + padding


def plain(value: float) -> str:
    """The number at a tick: thousands separated, no trailing zeros, a typographic minus.

    >>> plain(1000.0), plain(-0.25), plain(-0.0)
    ('1,000', '−0.25', '0')
    """
    value = value + 0.0
    return (f"{value:,.0f}" if value == round(value) else f"{value:,.6g}").replace("-", "−")


def text(x: float, y: float, content: str, /, **attributes: str | float | None) -> Markup:
    """Text at a position."""
    return tag("text", content, x=x, y=y, **attributes)


def tilted(x: float, y: float, degrees: int, content: str, class_: str) -> Markup:
    """Text that runs upwards from a position."""
    return text(0, 0, content, class_=class_, transform=f"translate({number(x)} {number(y)}) rotate({-degrees})")


def row_name(x: float, y: float, content: str) -> Markup:
    """The name of a row, left of a position."""
    return text(x, y, content, class_="tick name", text_anchor="end", dominant_baseline="central")


def line(x1: float, y1: float, x2: float, y2: float, class_: str) -> Markup:
    """A straight line."""
    return tag("line", x1=x1, y1=y1, x2=x2, y2=y2, class_=class_)


def path(points: Sequence[Point], class_: str) -> Markup:
    """A line through points."""
    steps = "".join(f"{'L' if index else 'M'}{number(x)} {number(y)}" for index, (x, y) in enumerate(points))
    return tag("path", d=steps, class_=class_)


def color(series: int) -> str:
    """The CSS class with the color of a series."""
    return f"s{series % SERIES}"


def mark(x: float, y: float, series: int, *, size: float = 4, title: str | None = None, class_: str = "mark") -> Markup:
    """The mark of a series: circle, square, triangle or diamond in its color; ``title`` is its tooltip."""
    shape = (series + series // SERIES) % (len(CORNERS) + 1)
    inner = [] if title is None else [tag("title", title)]
    classes = f"{class_} {color(series)}"
    if shape == 0:
        return tag("circle", *inner, cx=x, cy=y, r=size, class_=classes)
    points = " ".join(f"{number(x + size * dx)},{number(y + size * dy)}" for dx, dy in CORNERS[shape - 1])
    return tag("polygon", *inner, points=points, class_=classes)


def figure(width: float, height: float, *content: Markup, label: str, class_: str = "chart") -> Markup:
    """The whole picture; ``label`` describes it to screen readers.

    On a narrow screen the letters of a chart that is shrunk are larger; a broad one, or a large matrix, is scrolled.
    """
    box, title = f"0 0 {number(width)} {number(height)}", tag("title", label)
    scrolled = width > {"chart": BROAD, MATRIX: NARROW}.get(class_, width)
    if class_ == "chart" and width > NARROW:
        class_ += " broad" if scrolled else " shrunk"
    drawn = tag(
        "svg", title, *content, viewBox=box, width=width, height=height, class_=class_, role="img", aria_label=label
    )
    return tag("div", drawn, class_="scroll") if scrolled else drawn


def legend(names: Sequence[str], *, first: int = 0) -> Markup:
    """The mark of each series with its name."""
    entries = (
        tag("li", figure(14, 14, mark(7, 7, series, size=4.5), label=name, class_="key"), name)
        for series, name in enumerate(names, start=first)
    )
    return tag("ul", *entries, class_="legend") if names else NOTHING


@dataclass
class Chart:
    """Two axes and what is drawn between them, in the units of the axes."""

    x: Scale
    y: Scale
    content: list[Markup] = field(default_factory=list)

    def axes(self, x_title: str, y_title: str, x_ticks: Sequence[tuple[float, str]] | None = None) -> None:
        """Thin grid lines at the ticks of y, short strokes at those of x, and the titles."""
        x, y = self.x, self.y
        for value in y.ticks():
            self.content.append(line(x.start, y(value), x.end, y(value), "grid"))
            at = {"class_": "tick", "text_anchor": "end", "dominant_baseline": "central"}
            self.content.append(text(x.start - 7, y(value), plain(value), **at))
        for value, title in [(value, plain(value)) for value in x.ticks()] if x_ticks is None else x_ticks:
            self.content.append(line(x(value), y.start, x(value), y.start + 4, "axis"))
            self.content.append(text(x(value), y.start + 17, title, class_="tick", text_anchor="middle"))
        self.content.append(line(x.start, y.start, x.end, y.start, "axis"))
        middle = (x.start + x.end) / 2
        self.content.append(text(middle, y.start + 35, x_title, class_="title", text_anchor="middle"))
        self.content.append(text(x.start - 7, y.end - 12, y_title, class_="title"))

    def zero(self) -> None:
        """A dashed line at y = 0."""
        self.content.append(line(self.x.start, self.y(0), self.x.end, self.y(0), "zero"))

    def line(self, points: Iterable[Point], class_: str) -> None:
        """A line through points."""
        self.content.append(path([(self.x(x), self.y(y)) for x, y in points], class_))

    def mark(
        self, point: Point, series: int, *, size: float = 4, title: str | None = None, class_: str = "mark"
    ) -> None:
        """The mark of a series."""
        self.content.append(mark(self.x(point[0]), self.y(point[1]), series, size=size, title=title, class_=class_))

    def figure(self, width: float, height: float, label: str) -> Markup:
        """The whole picture."""
        return figure(width, height, *self.content, label=label)


def histogram(
    edges: NDArray[np.float64], groups: Sequence[NDArray[np.float64]], titles: tuple[str, str], label: str
) -> Markup:
    """Shares of several groups in the bins between the edges, as outlines over each other."""
    width, height = 334, 220
    top = max(5.0, *(float(group.max()) for group in groups)) * 1.05
    chart = Chart(Scale(edges[0], edges[-1], 50, width - 12), Scale(0, top, height - 46, 32))
    chart.axes(*titles)
    for series, group in enumerate(groups):
        if group.any():
            outline = [
                (edges[0], 0.0),
                *zip(np.repeat(edges, 2)[1:-1], np.repeat(group, 2), strict=True),
                (edges[-1], 0.0),
            ]
            chart.line(outline, f"area {color(series)}")
            chart.line(outline, f"line {color(series)}")
    return chart.figure(width, height, label)
