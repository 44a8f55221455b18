"""Small pieces of HTML. Whatever comes from data goes through :func:`said`, which escapes it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise

from nearfar.report import svg


@dataclass(frozen=True)
class Section:
    """A part of the page with a heading of its own."""

    name: str
    """Its anchor."""
    title: str
    body: str
    empty: bool = False
    """Whether it only says, in one line, why there is nothing to show."""


@dataclass(frozen=True)
class Column:
    """How a column of a table looks."""

    title: str
    kind: str = ""
    """``num`` sets numbers below each other, ``wide`` gives texts room, ``plot`` holds a picture."""


def said(value: object) -> str:
    """Text as markup.

    >>> said("<b> & 'c'")
    '&lt;b&gt; &amp; &#x27;c&#x27;'
    """
    return escape(str(value))


def section(name: str, title: str, *parts: str) -> Section:
    """A section with something to show."""
    return Section(name, title, "".join(parts))


def missing(name: str, title: str, why: str) -> Section:
    """A section without data: one line says why."""
    return Section(name, title, said(why), empty=True)


def paragraph(markup: str, class_: str = "") -> str:
    """A paragraph of markup."""
    return f'<p class="{class_}">{markup}</p>' if class_ else f"<p>{markup}</p>"


def note(text: str) -> str:
    """A remark below a table or a picture."""
    return paragraph(said(text), "note")


def table(columns: Sequence[Column], rows: Iterable[Sequence[str]], *, foot: Sequence[str] | None = None) -> str:
    """A table whose cells are markup; the first column names the row."""
    head = "".join(f'<th scope="col"{_class(column)}>{column.title}</th>' for column in columns)
    lines = [list(row) for row in rows]
    for above, row in reversed(list(pairwise(lines))):  # a name that stands above already steps back
        if row[0] == above[0]:
            row[0] = f'<span class="again">{row[0]}</span>'
    body = "".join(f"<tr>{_cells(columns, row)}</tr>" for row in lines)
    last = "" if foot is None else f"<tfoot><tr>{_cells(columns, foot)}</tr></tfoot>"
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody>{last}</table></div>'


def tabs(parts: Sequence[tuple[str, str]]) -> str:
    """One part for each data set, below each other; with scripts, one at a time. A single part stands alone."""
    if len(parts) == 1:
        return f"<h3>{said(parts[0][0])}</h3>{parts[0][1]}"
    inner = "".join(
        f'<div class="tab" data-title="{said(title)}"><h3>{said(title)}</h3>{body}</div>' for title, body in parts
    )
    return f'<div class="tabs">{inner}</div>'


def side_by_side(parts: Iterable[str]) -> str:
    """Pictures in a row, as many as fit."""
    return f'<div class="panels">{"".join(parts)}</div>'


def panel(title: str, picture: str, remark: str = "") -> str:
    """One picture with its title and a line below it; title and remark are texts."""
    below = f"<span>{said(remark)}</span>" if remark else ""
    return f"<figure><figcaption><b>{said(title)}</b>{below}</figcaption>{picture}</figure>"


def folded(title: str, body: str) -> str:
    """Something for those who want it all; open on paper."""
    return f"<details><summary>{said(title)}</summary>{body}</details>"


def legend(names: Sequence[str], *, first: int = 0) -> str:
    """Which mark is whose."""
    if not names:
        return ""
    entries = "".join(
        f"<li>{svg.figure(14, 14, svg.mark(7, 7, place, size=4.5), label=name, class_='key')}{said(name)}</li>"
        for place, name in enumerate(names, start=first)
    )
    return f'<ul class="legend">{entries}</ul>'


def listed(names: Sequence[str], last: str = "and") -> str:
    """Words in a row.

    >>> listed(["a", "b", "c"]), listed(["a"])
    ('a, b and c', 'a')
    """
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} {last} {names[-1]}" if names else ""


def cut(text: str, width: int) -> str:
    """A long text in short.

    >>> cut("one two three", 8)
    'one two…'
    """
    flat = " ".join(text.split())
    return flat if len(flat) <= width else f"{flat[: width - 1].rstrip()}…"


def _class(column: Column) -> str:
    return f' class="{column.kind}"' if column.kind else ""


def _cells(columns: Sequence[Column], row: Sequence[str]) -> str:
    return "".join(
        f'<th scope="row"{_class(column)}>{cell}</th>' if place == 0 else f"<td{_class(column)}>{cell}</td>"
        for place, (column, cell) in enumerate(zip(columns, row, strict=True))
    )
