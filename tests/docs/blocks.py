"""The fenced blocks of a page, in order, each with the remark that stands right before it."""

from __future__ import annotations

import re
import textwrap
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
LANGUAGES = ("python", "console", "sh", "csv", "tsv", "jsonl", "toml", "json", "text")
"""What a block may be. ``text`` is for trees and formulas: nothing is done with it."""

_BLOCK = re.compile(
    r"(?:^[ ]*<!-- (?P<remark>[^\n]+?) -->\n+)?"
    r"^(?P<indent>[ ]*)```(?P<language>[^\n]*)\n(?P<body>.*?)^(?P=indent)```[ ]*$",
    re.MULTILINE | re.DOTALL,
)
"""Blocks inside of tabs (``=== "Python"``) are indented."""


@dataclass(frozen=True)
class Block:
    """One fenced block.

    ``remark`` is the comment before it, which the reader of the page does not see:
    ``file: NAME`` writes the block to a file; ``refused`` says that its commands leave with 1;
    ``Ctrl-C after step N`` interrupts its command there.
    """

    page: Path
    line: int
    language: str
    body: str
    remark: str

    @property
    def place(self) -> str:
        """Where a message points to."""
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def blocks_of(page: Path) -> list[Block]:
    """All fenced blocks of a page."""
    return parse(page.read_text(encoding="utf-8"), page)


def parse(text: str, page: Path = ROOT / "README.md") -> list[Block]:
    """All fenced blocks of a text."""
    return [
        Block(
            page,
            text.count("\n", 0, found.start("language")) + 1,
            found["language"].strip(),
            textwrap.dedent(found["body"]) if found["indent"] else found["body"],
            (found["remark"] or "").strip(),
        )
        for found in _BLOCK.finditer(text)
    ]


@dataclass(frozen=True)
class Command:
    """A line that starts with ``$``, and the lines the page shows below it."""

    text: str
    shown: tuple[str, ...]


def commands_of(block: Block) -> list[Command]:
    """The commands of a console block; a backslash at the end of a line continues it."""
    commands: list[Command] = []
    for line in block.body.replace("\\\n", " ").splitlines():
        if line.startswith("$ "):
            commands.append(Command(line[2:], ()))
        else:
            assert commands, f"{block.place}: a console block starts with '$ ', not with {line!r}"
            commands[-1] = Command(commands[-1].text, (*commands[-1].shown, line))
    return commands


def missing_line(shown: tuple[str, ...], printed: str) -> str | None:
    """The first shown line that was not printed, in this order; ``...`` stands for anything, also for whole lines."""
    lines = iter(printed.splitlines())
    for line in shown:
        wanted = line.strip()
        if wanted in ("", "..."):
            continue
        pattern = re.compile(".*".join(re.escape(part) for part in wanted.split("...")))
        if not any(pattern.fullmatch(candidate.strip()) for candidate in lines):
            return line
    return None
