"""Small pieces of SVG: scales, ticks, axes, marks. Colors are classes: light, dark and paper each have theirs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

SERIES = 8
"""How many colors there are; further series repeat them with another mark."""

SHAPES = 4
"""How many marks there are."""


@dataclass(frozen=True)
class Scale:
    """From values to places on the page.

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
        """The place of a value."""
        low, high, value = self._plain(self.low), self._plain(self.high), self._plain(value)
        share = 0.5 if high == low else (value - low) / (high - low)
        return self.start + share * (self.end - self.start)

    def ticks(self, count: int = 5) -> list[float]:
        """Round values inside the scale."""
        return log_ticks(self.low, self.high) if self.log else nice_ticks(self.low, self.high, count)

    def _plain(self, value: float) -> float:
        return math.log10(value) if self.log else value


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
    return [round(place * step, 12) + 0.0 for place in range(first, last + 1)]


def log_ticks(low: float, high: float) -> list[float]:
    """Ones, twos and fives of each power of ten inside; only the ones where the range is wide.

    >>> log_ticks(20, 1000)
    [20.0, 50.0, 100.0, 200.0, 500.0, 1000.0]
    """
    powers = range(math.floor(math.log10(low)) - 1, math.ceil(math.log10(high)) + 1)
    factors = (1, 2, 5) if high / low < 2000 else (1,)
    found = [factor * 10.0**power for power in powers for factor in factors]
    inside = [value for value in found if low * 0.999 <= value <= high * 1.001]
    return inside or [low]


def padded(values: Iterable[float], share: float = 0.08, *, least: float = 1e-9) -> tuple[float, float]:
    """The range of some values with a little room on both sides.

    >>> padded([0, 10], 0.1)
    (-1.0, 11.0)
    """
    found = list(values)
    low, high = min(found), max(found)
    room = max((high - low) * share, least)
    return low - room, high + room


def number(value: float) -> str:
    """A coordinate: two decimals are finer than any screen.

    >>> number(3.14159), number(-0.0), number(12.0)
    ('3.14', '0', '12')
    """
    return f"{round(value, 2) + 0.0:.2f}".rstrip("0").rstrip(".")


def tag(name: str, content: str = "", /, **attributes: str | float | None) -> str:
    """One element; ``content`` is markup already, attributes are escaped. ``class_`` and ``text_anchor`` as in SVG.

    >>> tag("circle", r=2.5, class_="s0")
    '<circle r="2.5" class="s0"/>'
    """
    said = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(value) if isinstance(value, str) else number(value)}"'
        for key, value in attributes.items()
        if value is not None
    )
    return f"<{name}{said}>{content}</{name}>" if content else f"<{name}{said}/>"


def text(x: float, y: float, said: str, /, **attributes: str | float | None) -> str:
    """Words at a place, escaped."""
    return tag("text", escape(said), x=x, y=y, **attributes)


def line(x1: float, y1: float, x2: float, y2: float, class_: str) -> str:
    """A straight line."""
    return tag("line", x1=x1, y1=y1, x2=x2, y2=y2, class_=class_)


def path(points: Sequence[tuple[float, float]], class_: str) -> str:
    """A line through points."""
    steps = "".join(f"{'M' if place == 0 else 'L'}{number(x)} {number(y)}" for place, (x, y) in enumerate(points))
    return tag("path", d=steps, class_=class_)


def color(place: int) -> str:
    """The class of a series' color."""
    return f"s{place % SERIES}"


def mark(x: float, y: float, place: int, *, size: float = 4, title: str | None = None, class_: str = "mark") -> str:
    """The mark of a series: circle, square, triangle or diamond, in its color; ``title`` is shown when pointed at."""
    shape = (place + place // SERIES) % SHAPES if place >= SERIES else place % SHAPES
    inner = "" if title is None else tag("title", escape(title))
    classes = f"{class_} {color(place)}"
    if shape == 0:
        return tag("circle", inner, cx=x, cy=y, r=size, class_=classes)
    corners = {
        1: [(-0.88, -0.88), (0.88, -0.88), (0.88, 0.88), (-0.88, 0.88)],
        2: [(0, -1.15), (1.08, 0.8), (-1.08, 0.8)],
        3: [(0, -1.25), (1.25, 0), (0, 1.25), (-1.25, 0)],
    }[shape]
    points = " ".join(f"{number(x + size * dx)},{number(y + size * dy)}" for dx, dy in corners)
    return tag("polygon", inner, points=points, class_=classes)


def axes(
    x: Scale, y: Scale, *, x_title: str, y_title: str, x_ticks: Sequence[tuple[float, str]] | None = None,
    y_ticks: Sequence[tuple[float, str]] | None = None,
) -> str:  # fmt: skip
    """Quiet axes: hairlines across at each tick of y, short strokes at each tick of x, titles with units."""
    parts = []
    for value, said in y_ticks if y_ticks is not None else [(value, plain(value)) for value in y.ticks()]:
        parts.append(line(x.start, y(value), x.end, y(value), "grid"))
        parts.append(text(x.start - 7, y(value), said, class_="tick", text_anchor="end", dominant_baseline="central"))
    for value, said in x_ticks if x_ticks is not None else [(value, plain(value)) for value in x.ticks()]:
        parts.append(line(x(value), y.start, x(value), y.start + 4, "axis"))
        parts.append(text(x(value), y.start + 17, said, class_="tick", text_anchor="middle"))
    parts.append(line(x.start, y.start, x.end, y.start, "axis"))
    parts.append(text((x.start + x.end) / 2, y.start + 35, x_title, class_="title", text_anchor="middle"))
    parts.append(text(x.start - 7, y.end - 12, y_title, class_="title"))
    return "".join(parts)


def plain(value: float) -> str:
    """A tick's number: thousands apart, no needless zeros, a typographic minus.

    >>> plain(1000.0), plain(-0.25), plain(-0.0)
    ('1,000', '−0.25', '0')
    """
    value = value + 0.0
    return (f"{value:,.0f}" if value == round(value) else f"{value:,.6g}").replace("-", "−")


def figure(width: float, height: float, content: str, *, label: str, class_: str = "chart") -> str:
    """The whole picture; ``label`` says to those who cannot see it what it shows."""
    return tag(
        "svg", tag("title", escape(label)) + content, viewBox=f"0 0 {number(width)} {number(height)}", width=width,
        height=height, class_=class_, role="img", aria_label=label,
    )  # fmt: skip
