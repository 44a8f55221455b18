"""Pieces of HTML, and the elements of a section: tables, notes, tabs and panels."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape, unescape
from itertools import pairwise
from typing import final


@final
@dataclass(frozen=True)
class Markup:
    """HTML or SVG that is escaped already."""

    code: str

    def __add__(self, other: Markup) -> Markup:
        return Markup(self.code + other.code)

    def __str__(self) -> str:
        return self.code


Content = str | Markup
NOTHING = Markup("")
NARROW = 4
"""Columns that a table has room for on a narrow screen."""
VOID = ("br", "circle", "line", "path", "polygon", "rect")
"""Elements that close themselves where they have no content."""


@dataclass(frozen=True)
class Missing:
    """Why a section has nothing to show."""

    reason: str


def join(*parts: Content) -> Markup:
    """Texts and markup in a row.

    >>> join("a < b", Markup("<br>"), "c").code
    'a &lt; b<br>c'
    """
    return Markup("".join(part.code if isinstance(part, Markup) else escape(part) for part in parts))


def number(value: float) -> str:
    """A coordinate with at most two decimals.

    >>> number(3.14159), number(-0.0), number(12.0)
    ('3.14', '0', '12')
    """
    return f"{round(value, 2) + 0.0:.2f}".rstrip("0").rstrip(".")


def tag(name: str, /, *content: Content, **attributes: str | float | None) -> Markup:
    """One element; attributes are spelled ``class_`` and ``text_anchor``.

    >>> tag("circle", r=2.5, class_="s0").code
    '<circle r="2.5" class="s0"/>'
    >>> tag("p", "a < b", id="x").code
    '<p id="x">a &lt; b</p>'
    """
    head = name + "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(value) if isinstance(value, str) else number(value)}"'
        for key, value in attributes.items()
        if value is not None
    )
    return Markup(f"<{head}/>" if name in VOID and not content else f"<{head}>{join(*content)}</{name}>")


def listed(names: Sequence[Content]) -> Markup:
    """Names as an English list.

    >>> listed(["a", "b", "c"]).code, listed(["a"]).code
    ('a, b and c', 'a')
    """
    separators = ["", *[", "] * (len(names) - 2), " and "][: len(names)]
    return join(*(part for pair in zip(separators, names, strict=True) for part in pair))


def cut(text: str, width: int) -> str:
    """A long text, shortened.

    >>> cut("one two three", 8)
    'one two…'
    """
    flat = " ".join(text.split())
    return flat if len(flat) <= width else f"{flat[: width - 1].rstrip()}…"


@dataclass(frozen=True)
class Column:
    """The head of a table column."""

    title: Content
    kind: str = ""
    """``num`` aligns numbers, ``wide`` is for long texts, ``plot`` holds a chart."""


def strings(*titles: str) -> list[Column]:
    """Columns of short texts."""
    return [Column(title) for title in titles]


def numbers(*titles: Content) -> list[Column]:
    """Columns of numbers."""
    return [Column(title, "num") for title in titles]


def note(text: str) -> Markup:
    """A remark below a table or a chart."""
    return tag("p", text, class_="note")


def table(
    columns: Sequence[Column], rows: Iterable[Sequence[Content]], foot: Sequence[Content] | None = None
) -> Markup:
    """A table; the first column names the row, and a name that repeats the one above is printed pale.

    On a narrow screen the cells of a table that is wide are below each other, each with the title of its column.
    """
    lines = [list(row) for row in rows]
    for above, row in reversed(list(pairwise(lines))):
        if row[0] == above[0]:
            row[0] = tag("span", row[0], class_="again")
    titles = (tag("th", column.title, scope="col", class_=column.kind or None) for column in columns)
    parts = [tag("thead", tag("tr", *titles)), tag("tbody", *(_row(columns, line) for line in lines))]
    if foot is not None:
        parts.append(tag("tfoot", _row(columns, foot)))
    wide = len(columns) > NARROW or any(column.kind in ("wide", "plot") for column in columns)
    return tag("div", tag("table", *parts, class_="stack" if wide else None), class_="scroll")


def tabs(parts: Sequence[tuple[str, Markup]]) -> Markup:
    """One part for each data set, below each other; with scripts, one at a time."""
    if len(parts) == 1:
        return tag("h3", parts[0][0]) + parts[0][1]
    inner = (tag("div", tag("h3", title), body, class_="tab", data_title=title) for title, body in parts)
    return tag("div", *inner, class_="tabs")


def tabbed(
    parts: Sequence[tuple[str, Markup]], missing: Missing, remark: str, head: Markup = NOTHING
) -> Markup | Missing:
    """Tabs between a head and a remark; without any part, the reason why."""
    return head + tabs(parts) + (note(remark) if remark else NOTHING) if parts else missing


def panels(parts: Iterable[Markup]) -> Markup:
    """Charts side by side, as many as fit."""
    return tag("div", *parts, class_="panels")


def panel(picture: Markup, *caption: str) -> Markup:
    """One chart with its caption: a title and a remark, or less."""
    title, remarks = [tag("b", text) for text in caption[:1]], [tag("span", text) for text in caption[1:]]
    above = tag("figcaption", *title, *remarks) if caption else NOTHING
    return tag("figure", above, picture)


def details(title: str, body: Markup) -> Markup:
    """A part that is folded on the screen and open on paper."""
    return tag("details", tag("summary", title), body)


def _plain(column: Column) -> str | None:
    """The title of a column without markup; None for that of charts."""
    if column.kind == "plot":
        return None
    title = column.title
    return title if isinstance(title, str) else unescape(" ".join(re.sub("<[^>]*>", " ", title.code).split()))


def _row(columns: Sequence[Column], cells: Sequence[Content]) -> Markup:
    first, *others = zip(columns, cells, strict=True)
    return tag(
        "tr",
        tag("th", first[1], scope="row", class_=first[0].kind or None),
        *(tag("td", cell, class_=column.kind or None, data_title=_plain(column)) for column, cell in others),
    )
