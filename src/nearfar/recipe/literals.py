"""Python values as TOML literals."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TypeAlias

Path: TypeAlias = tuple[str | int, ...]
"""Keys, and 0-based positions of list entries."""

BARE = re.compile(r"[A-Za-z0-9_-]+")
"""A key that needs no quotes."""
LARGEST = 2**63 - 1
"""TOML integers have 64 bits."""

_ESCAPES = {code: f"\\u{code:04x}" for code in (*range(32), 127)}
_ESCAPES |= {ord("\n"): "\\n", ord("\t"): "\\t", ord("\r"): "\\r", ord('"'): '\\"', ord("\\"): "\\\\"}


def literal(value: object) -> str:
    """A value as a TOML literal; ``None``, which TOML lacks, becomes ``unset``.

    >>> literal(("a", 0.5, True))
    '["a", 0.5, true]'
    """
    if value is None:
        return "unset"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value) if abs(value) <= LARGEST else "an integer of more than 64 bits"
    if isinstance(value, str):
        return f'"{value.translate(_ESCAPES)}"'
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(literal, value))}]"
    if isinstance(value, Mapping):
        pairs = ", ".join(f"{key_literal(str(name))} = {literal(part)}" for name, part in value.items())
        return f"{{ {pairs} }}" if pairs else "{}"
    return repr(value)


def key_literal(name: str) -> str:
    """A key in TOML, in quotes only if they are needed."""
    return name if BARE.fullmatch(name) else literal(name)


def dotted(path: Iterable[str | int]) -> str:
    """A path of keys as one dotted key, each part shortened.

    >>> dotted(("stage", 0, "learning rate"))
    'stage.0."learning rate"'
    """
    return ".".join(short(key_literal(str(part))) for part in path)


def shown(value: object) -> str:
    """A value for a message: short, on one line, with its type."""
    if isinstance(value, str):
        return f"the string {short(printable(literal(value)))}"
    if isinstance(value, list | tuple):
        return "a list"
    if isinstance(value, Mapping):
        return "a table"
    if value is None or isinstance(value, bool | int | float):
        return literal(value)
    return f"a {type(value).__name__}"


def printable(text: str) -> str:
    """A text that any terminal can print, whatever bytes the shell has passed."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def short(text: str, width: int = 60) -> str:
    """A text of limited length; its last character, often a quote, is kept."""
    return text if len(text) <= width else f"{text[: width - 4]}...{text[-1]}"
