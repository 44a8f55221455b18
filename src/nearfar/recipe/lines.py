"""The line of each key in a TOML text.

``tomllib`` does not report lines, so this scanner reads the text again. ``tomllib`` has accepted the text before,
therefore the scanner need not check anything.
"""

from __future__ import annotations

import re
import tomllib
from bisect import bisect_left

from nearfar.recipe.literals import BARE, Path

DEEPEST = 16
"""Keys nested deeper than this have the line of their ancestor."""

_GAP = re.compile(r"(?:[ \t\r\n]+|#[^\n]*)*")
_BLANK = re.compile(r"[ \t]*")
_STRING = re.compile(r'"""(?:[^\\]|\\.)*?"{3,5}' r"|'''.*?'{3,5}" r'|"(?:[^"\\]|\\.)*"' r"|'[^']*'", re.DOTALL)
_PLAIN = re.compile(r"[^,\]}\r\n#]+")


def key_lines(text: str) -> dict[Path, int]:
    """The 1-based line of every key, table and list entry of a valid TOML text.

    >>> key_lines("seed = 2\\n[data]\\ntrain = 'a.csv'\\n")
    {('seed',): 1, ('data',): 2, ('data', 'train'): 3}
    """
    return _Scanner(text).scan()


class _Scanner:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.breaks = [match.start() for match in re.finditer("\n", text)]
        self.lines: dict[Path, int] = {}
        self.lengths: dict[Path, int] = {}  # of arrays of tables

    def scan(self) -> dict[Path, int]:
        table: Path = ()
        self.skip(_GAP)
        while self.at < len(self.text):
            table = self.header() if self.sees("[") else self.statement(table)
            self.skip(_GAP)
        return self.lines

    def header(self) -> Path:
        line, many = self.line(), self.text.startswith("[[", self.at)
        self.at += 1 + many
        *parents, last = self.key()
        self.at += 1 + many
        path: Path = ()
        for part in parents[:DEEPEST]:
            path = self.newest((*path, part))
            self.note(path, line)
        path = (*path, last)
        if many:
            self.note(path, line)
            self.lengths[path] = self.lengths.get(path, 0) + 1
            path = self.newest(path)
        if len(path) <= DEEPEST:
            self.lines[path] = line
        return path

    def newest(self, path: Path) -> Path:
        return (*path, self.lengths[path] - 1) if path in self.lengths else path

    def statement(self, table: Path) -> Path:
        """Read one ``key = value`` and return its table."""
        path, line = table, self.line()
        for part in self.key():
            path = (*path, part) if len(path) <= DEEPEST else path
            self.note(path, line)
        self.at += 1  # the equals sign
        self.skip(_BLANK)
        self.value(path)
        return table

    def key(self) -> list[str]:
        parts = []
        while True:
            self.skip(_BLANK)
            if quoted := _STRING.match(self.text, self.at):
                parts.append(tomllib.loads(f"key = {quoted[0]}")["key"])
                self.at = quoted.end()
            else:
                parts.append(self.take(BARE))
            self.skip(_BLANK)
            if not self.sees("."):
                return parts
            self.at += 1

    def value(self, path: Path) -> None:
        if self.sees("["):
            self.array(path)
        elif self.sees("{"):
            self.inline_table(path)
        elif quoted := _STRING.match(self.text, self.at):
            self.at = quoted.end()
        else:
            self.take(_PLAIN)

    def array(self, path: Path) -> None:
        self.at += 1
        self.skip(_GAP)
        place = 0
        while not self.sees("]"):
            inner = (*path, place)
            self.note(inner, self.line())
            self.value(inner)
            self.separator()
            place += 1
        self.at += 1

    def inline_table(self, path: Path) -> None:
        self.at += 1
        self.skip(_GAP)
        while not self.sees("}"):
            self.statement(path)
            self.separator()
        self.at += 1

    def separator(self) -> None:
        self.skip(_GAP)
        if self.sees(","):
            self.at += 1
            self.skip(_GAP)

    def note(self, path: Path, line: int) -> None:
        if len(path) <= DEEPEST:
            self.lines.setdefault(path, line)

    def line(self) -> int:
        return bisect_left(self.breaks, self.at) + 1

    def sees(self, sign: str) -> bool:
        return self.text.startswith(sign, self.at)

    def skip(self, pattern: re.Pattern[str]) -> None:
        match = pattern.match(self.text, self.at)
        self.at = match.end() if match else self.at

    def take(self, pattern: re.Pattern[str]) -> str:
        match = pattern.match(self.text, self.at)
        assert match, f"the scanner failed at character {self.at}"
        self.at = match.end()
        return match[0]
