"""Draw the figures of the pages in docs/concepts, as SVG for light and dark pages: ``python docs/draw_figures.py``.

One style: thin lines, the fonts of the system, no background, and the colors of Okabe and Ito, which color-blind
readers can tell apart; what differs by color differs by shape or dash as well. Curves are computed from the formulas.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

FOLDER = Path(__file__).parent / "images"
INK = {"light": ("#1b1f24", "#59626d", "#c9ced4"), "dark": ("#e8eaec", "#a9b1ba", "#4a525b")}
COLORS = {"light": ("#0072b2", "#d55e00", "#009e73", "#cc79a7"), "dark": ("#56b4e9", "#e69f00", "#36c99b", "#e08bbd")}
DASHES = ("", "7 4", "2 4", "9 3 2 3")


class Drawing:
    """A picture of one theme, as a list of elements."""

    def __init__(self, theme: str, width: int, height: int, title: str) -> None:
        self.ink, self.soft, self.frame = INK[theme]
        self.colors = COLORS[theme]
        self.size, self.title, self.parts = (width, height), title, [""] * 0

    def text(self, x: float, y: float, words: str, *, color: str = "", anchor: str = "middle", size: int = 14) -> None:
        self.parts.append(
            f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" '
            f'fill="{color or self.ink}">{words}</text>'
        )

    def circle(self, x: float, y: float, r: float, *, fill: str = "none", stroke: str = "none") -> None:
        self.parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{r:.1f}" fill="{fill}" stroke="{stroke}"/>')

    def cross(self, x: float, y: float, color: str, r: float = 6) -> None:
        self.path([(x - r, y - r), (x + r, y + r)], color, width=3)
        self.path([(x - r, y + r), (x + r, y - r)], color, width=3)

    def path(self, points: Iterable[tuple[float, float]], color: str, *, dash: str = "", width: float = 2) -> None:
        steps = " L".join(f"{x:.1f} {y:.1f}" for x, y in points)
        dashed = f' stroke-dasharray="{dash}"' if dash else ""
        self.parts.append(f'<path d="M{steps}" fill="none" stroke="{color}" stroke-width="{width}"{dashed}/>')

    def arrow(self, start: tuple[float, float], end: tuple[float, float], color: str, dash: str = "") -> None:
        self.path([start, end], color, dash=dash)
        angle = math.atan2(end[1] - start[1], end[0] - start[0])
        wings = [(end[0] - 9 * math.cos(angle + d), end[1] - 9 * math.sin(angle + d)) for d in (0.45, -0.45)]
        self.path([wings[0], end, wings[1]], color)

    def curves(
        self, box: tuple[float, float, float, float], xs: tuple[float, float], ys: tuple[float, float],
        lines: Sequence[tuple[str, Callable[[float], float]]], labels: tuple[str, str],
    ) -> None:  # fmt: skip
        """Functions in a frame (left, top, width, height), with a legend inside of it."""
        left, top, width, height = box
        self.path([(left, top), (left, top + height), (left + width, top + height)], self.frame)
        for share in (0, 0.5, 1):
            x, y = left + share * width, top + height * (1 - share)
            self.text(x, top + height + 18, f"{xs[0] + share * (xs[1] - xs[0]):g}", color=self.soft, size=12)
            self.text(left - 8, y + 4, f"{ys[0] + share * (ys[1] - ys[0]):g}", color=self.soft, anchor="end", size=12)
        self.text(left + width / 2, top + height + 38, labels[0], color=self.soft, size=13)
        self.text(left, top - 12, labels[1], color=self.soft, anchor="start", size=13)
        for number, (name, function) in enumerate(lines):
            points = []
            for step in range(121):
                x = xs[0] + (xs[1] - xs[0]) * step / 120
                y = min(max(function(x), ys[0]), ys[1])
                points.append((left + width * step / 120, top + height * (1 - (y - ys[0]) / (ys[1] - ys[0]))))
            color, dash = self.colors[number], DASHES[number]
            self.path(points, color, dash=dash, width=2.5)
            self.path(
                [(left + width + 14, top + 12 + 24 * number), (left + width + 44, top + 12 + 24 * number)],
                color,
                dash=dash,
            )
            self.text(left + width + 52, top + 16 + 24 * number, name, anchor="start", size=13)

    def svg(self) -> str:
        width, height = self.size
        font = "font-family=\"system-ui, 'Segoe UI', Helvetica, Arial, sans-serif\""
        box = f'viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
        head = f'<svg xmlns="http://www.w3.org/2000/svg" {box} {font} role="img">'
        return "\n".join([head, f"<title>{self.title}</title>", *self.parts, "</svg>", ""])


def on_circle(center: tuple[float, float], radius: float, degrees: float) -> tuple[float, float]:
    angle = math.radians(degrees)
    return center[0] + radius * math.cos(angle), center[1] - radius * math.sin(angle)


def pull_and_push(theme: str) -> Drawing:
    """Before and after: an anchor, its positive and negatives on the circle of normalized embeddings."""
    drawing = Drawing(theme, 720, 330, "A contrastive loss pulls the positive to the anchor and pushes negatives away")
    blue, orange = drawing.colors[:2]
    for number, (name, angles) in enumerate((("before", (90, 20, 120, 60, 250)), ("after", (90, 74, 190, -20, 265)))):
        center, radius = (180 + 360 * number, 175), 115
        drawing.circle(*center, radius, stroke=drawing.frame)
        drawing.text(center[0], 325, name, color=drawing.soft)
        spots = [on_circle(center, radius, angle) for angle in angles]
        drawing.circle(*spots[0], 8, fill=drawing.ink)
        drawing.circle(*spots[1], 8, fill=blue)
        for spot in spots[2:]:
            drawing.cross(*spot, orange)
        if number == 0:
            drawing.arrow(on_circle(center, radius + 16, 24), on_circle(center, radius + 16, 50), blue)
            drawing.arrow(on_circle(center, radius + 16, 124), on_circle(center, radius + 16, 150), orange, "5 3")
    drawing.circle(300, 20, 7, fill=drawing.ink)
    drawing.text(312, 25, "anchor", anchor="start", size=13)
    drawing.circle(380, 20, 7, fill=blue)
    drawing.text(392, 25, "positive", anchor="start", size=13)
    drawing.cross(470, 20, orange, 5)
    drawing.text(484, 25, "negative", anchor="start", size=13)
    return drawing


def temperature(theme: str) -> Drawing:
    """How much of the gradient a negative has, by its cosine, beside negatives from -1 to 1."""
    drawing = Drawing(theme, 720, 330, "The weight of a negative by its cosine, for three temperatures")

    def share(tau: float) -> Callable[[float], float]:
        return lambda cosine: math.exp((cosine - 1) / tau)

    lines = [(f"temperature {tau:g}", share(tau)) for tau in (0.05, 0.1, 0.5)]
    axes = ("cosine of anchor and negative", "weight, relative to a negative of cosine 1")
    drawing.curves((70, 40, 460, 230), (-1, 1), (0, 1), lines, axes)
    return drawing


def margins(theme: str) -> Drawing:
    """The loss of one pair by its distance: contrastive loss with margin 1, and the triplet loss."""
    drawing = Drawing(theme, 720, 330, "Contrastive and triplet loss by distance")
    lines = [
        ("positive pair", lambda d: d * d / 2),
        ("negative pair, margin 1", lambda d: max(0.0, 1 - d) ** 2 / 2),
        ("triplet, positive at 0.5", lambda d: max(0.0, 0.5 - d + 0.5)),
    ]
    axes = ("distance (of the triplet: from anchor to negative)", "loss")
    drawing.curves((70, 40, 440, 230), (0, 2), (0, 2), lines, axes)
    return drawing


def classes(theme: str) -> Drawing:
    """SupCon compares texts with texts; SoftTriple compares texts with centers."""
    drawing = Drawing(theme, 720, 330, "Comparing with the texts of the batch, and with trained centers")
    blue, orange, _, _ = drawing.colors
    groups = (((70, 90), (110, 70), (95, 130), (60, 160)), ((220, 190), (250, 230), (200, 240), (265, 180)))
    for number, name in enumerate(("SupCon: texts of a batch", "SoftTriple: centers of a class")):
        shift = 30 + 360 * number
        for spots, color, round_mark in ((groups[0], blue, True), (groups[1], orange, False)):
            for x, y in spots:
                if round_mark:
                    drawing.circle(shift + x, y + 10, 7, fill=color)
                else:
                    drawing.cross(shift + x, y + 10, color, 5)
        if number == 0:
            for x, y in groups[0][1:]:
                drawing.path([(shift + 70, 100), (shift + x, y + 10)], blue, width=1.5)
            for x, y in groups[1]:
                drawing.path([(shift + 70, 100), (shift + x, y + 10)], orange, dash="4 4", width=1)
        else:
            centers = (((82, 95), blue), ((75, 155), blue), ((230, 205), orange), ((235, 235), orange))
            for (x, y), color in centers:
                corners = [(shift + x + dx, y + 10 + dy) for dx, dy in ((-8, -8), (8, -8), (8, 8), (-8, 8), (-8, -8))]
                drawing.path(corners, color, width=2.5)
                drawing.path(
                    [(shift + 110, 80), (shift + x, y + 10)], color, dash="" if color == blue else "4 4", width=1.5
                )
        drawing.text(shift + 160, 310, name, color=drawing.soft)
    return drawing


def geometry(theme: str) -> Drawing:
    """Anisotropic, aligned but not uniform, aligned and uniform."""
    drawing = Drawing(theme, 720, 290, "Alignment and uniformity on the circle")
    blue, orange, green, pink = drawing.colors
    panels = (
        ("narrow cone: cosines all high", ((70, 96), (80, 110), (64, 88), (75, 104))),
        ("spread, but pairs apart", ((0, 70), (90, 165), (180, 250), (270, 345))),
        ("pairs close, texts spread", ((20, 32), (110, 122), (200, 212), (290, 302))),
    )
    for number, (name, pairs) in enumerate(panels):
        center = (120 + 240 * number, 125)
        drawing.circle(*center, 90, stroke=drawing.frame)
        for color, dash, (one, two) in zip((blue, orange, green, pink), DASHES, pairs, strict=True):
            ends = [on_circle(center, 90, angle) for angle in (one, two)]
            drawing.path(ends, color, dash=dash)
            for end in ends:
                drawing.circle(*end, 6, fill=color)
        drawing.text(center[0], 260, name, color=drawing.soft, size=13)
    return drawing


def pairing(theme: str) -> Drawing:
    """Scores of two contenders over the same eight folds: the folds differ more than the contenders."""
    drawing = Drawing(theme, 720, 310, "Scores of two contenders on the same folds, and their differences")
    blue, orange, _, _ = drawing.colors
    first = (71.0, 78.5, 74.0, 80.5, 69.5, 76.0, 73.0, 79.0)
    second = (72.2, 79.2, 75.4, 81.3, 70.8, 76.6, 74.5, 79.9)
    drawing.path([(70, 30), (70, 250), (420, 250)], drawing.frame)
    for fold, (one, two) in enumerate(zip(first, second, strict=True)):
        x, (y, z) = 95 + 42 * fold, (250 - (value - 66) * 13 for value in (one, two))
        drawing.path([(x, y), (x, z)], drawing.soft, width=1)
        drawing.circle(x, y, 6, fill=blue)
        drawing.cross(x, z, orange, 5)
    drawing.text(245, 280, "fold", color=drawing.soft, size=13)
    drawing.text(70, 18, "score of both contenders", color=drawing.soft, anchor="start", size=13)
    gains = [two - one for one, two in zip(first, second, strict=True)]
    mean = sum(gains) / len(gains)
    reach = 2.365 * math.sqrt(sum((gain - mean) ** 2 for gain in gains) / 7 / 8)
    drawing.path([(520, 30), (520, 250), (680, 250)], drawing.frame)
    for gain in gains:
        drawing.circle(570, 250 - gain * 110, 5, fill=drawing.soft)
    drawing.path([(630, 250 - (mean - reach) * 110), (630, 250 - (mean + reach) * 110)], drawing.ink, width=3)
    drawing.circle(630, 250 - mean * 110, 6, fill=drawing.ink)
    drawing.text(520, 18, "difference", color=drawing.soft, anchor="start", size=13)
    drawing.text(570, 280, "each fold", color=drawing.soft, size=12)
    drawing.text(640, 280, "mean, 95 %", color=drawing.soft, size=12)
    drawing.text(512, 254, "0", color=drawing.soft, anchor="end", size=12)
    return drawing


FIGURES = {
    "pull-and-push": pull_and_push,
    "temperature": temperature,
    "margins": margins,
    "centers": classes,
    "alignment": geometry,
    "pairing": pairing,
}


def pictures() -> dict[str, str]:
    """The name of every file, and what it contains."""
    return {f"{name}-{theme}.svg": draw(theme).svg() for name, draw in FIGURES.items() for theme in INK}


if __name__ == "__main__":
    for name, text in pictures().items():
        (FOLDER / name).write_text(text, encoding="utf-8")
        sys.stdout.write(f"{FOLDER.name}/{name}\n")
