"""Docstrings of the API reference as Markdown: an extension of griffe (``extensions`` in mkdocs.yml).

Docstrings have doctests without a heading and references with roles (``:meth:`index```). Markdown would read the first
as quotations, with links wherever an index such as ``[0][0]`` stands, and would print the second as they are.
"""

from __future__ import annotations

import re
from typing import Any

import griffe

_DOCTEST = re.compile(r"^(?P<indent> *)>>> .*(?:\n(?P=indent) *\S.*)*", re.MULTILINE)
_ROLE = re.compile(r":(?:class|meth|func|attr|mod):`~?([^`]+)`")


def as_markdown(text: str) -> str:
    """A docstring with fenced doctests and plain names.

    >>> as_markdown("See :meth:`fit`.\\n\\n>>> 1 + 1\\n2\\n")
    'See `fit`.\\n\\n```pycon\\n>>> 1 + 1\\n2\\n```\\n'
    """
    fenced = _DOCTEST.sub(lambda found: f"{found['indent']}```pycon\n{found[0]}\n{found['indent']}```", text)
    return _ROLE.sub(r"`\1`", fenced)


class Docstrings(griffe.Extension):
    """Changes each docstring once, when its object has been read."""

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None and not obj.is_alias:
            obj.docstring.value = as_markdown(obj.docstring.value)
