"""The page of all recipe keys, from the schema: ``python -m nearfar.recipe.reference``."""

from __future__ import annotations

import sys
from dataclasses import MISSING

from nearfar.recipe.keys import Entry, entries, fits, phrase, tag
from nearfar.recipe.literals import literal
from nearfar.recipe.schema import Recipe

_INTRODUCTION = """\
# The recipe

A recipe is a TOML file. Only `data.train` is required; every other key has a default. Any key can be set on the
command line, too: `--set training.epochs=3`. There, the bare word `none` unsets a key.
"""


def reference() -> str:
    """The whole page in Markdown."""
    sections = [_INTRODUCTION, *_sections(Recipe, "", "Top of the file")]
    return "\n".join(sections)


def _sections(table: type, path: str, title: str, level: int = 2) -> list[str]:
    known = entries(table)
    rows = [_row(entry) for entry in known.values() if not _inner(entry)]
    sections = []
    if rows:
        head = ["| Key | Fits | Default | |", "|---|---|---|---|"]
        about = f"{table.__doc__}\n\n" if path else ""
        sections.append(f"{'#' * level} {title}\n\n{about}" + "\n".join([*head, *rows]) + "\n")
    for entry in known.values():
        full, inner = f"{path}{entry.name}", _inner(entry)
        header = f"`[[{full}]]`" if fits(entry.kind).items is not None else f"`[{full}]`"
        for part in inner:
            name = f"{header} with `name = {literal(tag(part))}`" if len(inner) > 1 else header
            sections += _sections(part, f"{full}.", name)
    return sections


def _inner(entry: Entry) -> tuple[type, ...]:
    form = fits(entry.kind)
    inner = form.items if form.items is not None else form.values
    return form.tables if inner is None else fits(inner).tables


def _row(entry: Entry) -> str:
    default = "required" if entry.default is MISSING else f"`{literal(entry.default)}`"
    default = "unset" if entry.default is None else default
    cells = [f"`{entry.name}`", phrase(entry.kind, entry.key), default, entry.key.about]
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


if __name__ == "__main__":
    sys.stdout.write(reference())
