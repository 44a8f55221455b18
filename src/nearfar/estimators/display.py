"""What notebooks show: a card of a fitted estimator, pages of reports, and charts. Everything is escaped."""

from __future__ import annotations

import os
from collections.abc import Sequence
from html import escape
from pathlib import Path

from nearfar.files import write_atomic

CELL = "padding:2px 12px 2px 0;text-align:left;vertical-align:top"
HEIGHT = 720


def card(title: str, rows: Sequence[tuple[str, str]]) -> str:
    """A small table under a title, as HTML that needs no style sheet.

    >>> "&lt;b&gt;" in card("Classifier", [("classes", "<b>")])
    True
    """
    lines = "".join(
        f'<tr><th style="{CELL};font-weight:600;white-space:nowrap">{escape(name)}</th>'
        f'<td style="{CELL}">{escape(value)}</td></tr>'
        for name, value in rows
    )
    frame = "border:1px solid currentColor;border-radius:6px;padding:8px 12px;display:inline-block;max-width:48em"
    return (
        f'<div style="{frame}"><strong>{escape(title)}</strong>'
        f'<table style="border-collapse:collapse;margin-top:6px">{lines}</table></div>'
    )


class Page:
    """An HTML page: shown inline in a notebook, or saved as a file.

    Args:
        html: the whole page.
    """

    def __init__(self, html: str) -> None:
        self.html = html

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the page to a file."""
        write_atomic(Path(path), self.html)

    def _repr_html_(self) -> str:
        style = f"width:100%;height:{HEIGHT}px;border:1px solid #ccc;border-radius:6px"
        return f'<iframe sandbox="allow-scripts" style="{style}" srcdoc="{escape(self.html, quote=True)}"></iframe>'

    def __repr__(self) -> str:
        return f"<a report of {len(self.html):,} characters; save(path) writes it to a file>"


class Chart:
    """A chart as SVG: shown inline in a notebook, or saved as a file.

    Args:
        svg: the whole picture.
    """

    def __init__(self, svg: str) -> None:
        self.svg = svg

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the chart to a file."""
        write_atomic(Path(path), self.svg)

    def _repr_svg_(self) -> str:
        return self.svg

    def __repr__(self) -> str:
        return f"<a chart of {len(self.svg):,} characters of SVG; save(path) writes it to a file>"


def interval_chart(rows: Sequence[tuple[str, float, float]], title: str) -> Chart:
    """Points with bars to both sides, one row each: name, mean and deviation.

    >>> "<b>" in interval_chart([("<b>", 0.5, 0.1)], "accuracy").svg
    False
    """
    left, width, step, top = 8 * max(len(name) for name, _, _ in rows) + 24, 360, 26, 34
    low = min(mean - sd for _, mean, sd in rows)
    high = max(mean + sd for _, mean, sd in rows)
    pad = 0.08 * (high - low) or 0.01
    low, high = low - pad, high + pad

    def x(value: float) -> float:
        return round(left + width * (value - low) / (high - low), 1)

    height = top + step * len(rows) + 28
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + width + 24}" height="{height}" '
        'font-family="sans-serif" font-size="12" fill="#333">',
        f'<rect width="100%" height="100%" fill="#fff"/><text x="8" y="18" font-weight="600">{escape(title)}</text>',
    ]
    for number in range(5):
        value = low + number * (high - low) / 4
        parts.append(
            f'<line x1="{x(value)}" x2="{x(value)}" y1="{top - 6}" y2="{height - 24}" stroke="#ddd"/>'
            f'<text x="{x(value)}" y="{height - 8}" text-anchor="middle">{value:.3f}</text>'
        )
    for place, (name, mean, sd) in enumerate(rows):
        y = top + step * place + step // 2
        parts.append(
            f'<text x="{left - 10}" y="{y + 4}" text-anchor="end">{escape(name)}</text>'
            f'<line x1="{x(mean - sd)}" x2="{x(mean + sd)}" y1="{y}" y2="{y}" stroke="#1f6feb" stroke-width="2"/>'
            f'<circle cx="{x(mean)}" cy="{y}" r="4" fill="#1f6feb"/>'
        )
    return Chart("".join([*parts, "</svg>"]))
