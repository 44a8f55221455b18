"""The results of speed comparisons as JSON Lines: one line a turn of a contender, and some about what it found.

A line is complete in itself: it names the run, the comparison, the contender, the machine and the versions. Kinds:

- ``turn``: what a worker reported, and whether it counts (``kept``) or why it does not (``why``);
- ``quality``: numbers of a contender that are no times, with a ``seed`` where they are paired by seed;
- ``notes``: what is said below the table of a comparison;
- ``failure``: a worker ended without a report.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from nearfar.files import write_atomic

Line = dict[str, Any]
Key = tuple[str, str, int | None, bool]


def read(path: Path) -> list[Line]:
    """All lines of a file; none if there is no file."""
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]


def append(path: Path, line: Line) -> None:
    """One more line, at once."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.write(_text([line]))


def key(line: Line) -> Key:
    """What a later run of the same takes the place of."""
    return line["comparison"], line["processor"], line["threads_asked"], line["quick"]


def latest(lines: Iterable[Line]) -> dict[Key, list[Line]]:
    """The lines of the latest run of each comparison on each processor."""
    found: dict[Key, list[Line]] = {}
    for line in lines:
        current = found.setdefault(key(line), [])
        if current and current[0]["run"] < line["run"]:
            current.clear()
        if not current or current[0]["run"] == line["run"]:
            current.append(line)
    return found


def archive(path: Path, old: Path) -> int:
    """Move the lines of runs that a later one has taken the place of to another file; how many these were."""
    lines = read(path)
    runs = {key: inside[0]["run"] for key, inside in latest(lines).items()}
    superseded = [line for line in lines if line["run"] != runs[key(line)]]
    if superseded:
        write_atomic(old, _text([*read(old), *superseded]))
        write_atomic(path, _text([line for line in lines if line["run"] == runs[key(line)]]))
    return len(superseded)


def of_kind(lines: Sequence[Line], kind: str) -> list[Line]:
    """Those of one kind, in their order."""
    return [line for line in lines if line["kind"] == kind]


def _text(lines: Iterable[Line]) -> str:
    return "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
