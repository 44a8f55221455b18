"""Pieces of HTML. A plain string is text and gets escaped; only :class:`Markup` goes onto the page unchanged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
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
