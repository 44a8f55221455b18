"""Labels as an append-only file: every decision is on the disk before it is answered, and none is overwritten.

Each line is a JSON object: a decision on a text, or the name of a new class. A text's version is the number of
decisions on it. Whoever decides names the version that they saw, so two people never overwrite each other unseen.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, cast, get_args

from nearfar.errors import DataError, OutputError, Problem, SettingError
from nearfar.files import is_full

Kind = Literal["label", "skip", "none", "drop", "clear"]
KINDS: tuple[Kind, ...] = get_args(Kind)
LONGEST = 200
"""Characters of a class name or of a user's name."""


@dataclass(frozen=True)
class Decision:
    """What was decided last about a text."""

    kind: Kind
    """``label``, ``skip``: read later, ``none``: it fits no class, ``drop``: leave it out, ``clear``: none any more."""
    label: str | None = None
    """The class, where the kind is ``label``."""
    version: int = 0
    """How many decisions on this text there were, with this one."""
    user: str = ""
    checked: bool = False
    """Whether somebody was asked if the label is right."""


UNDECIDED = Decision("clear")


@dataclass(frozen=True)
class Change:
    """A decision that somebody wants to make."""

    key: str
    """Which text."""
    version: int
    """The version of the decision that they saw."""
    kind: Kind
    label: str | None = None
    checked: bool = False


@dataclass(frozen=True)
class Conflict:
    """A decision that was not made, because the text had another one meanwhile."""

    key: str
    now: Decision


class LabelLog:
    """The decisions on texts, by their keys, in a file.

    Args:
        path: a JSON Lines file; it need not exist. A last line that a power failure cut short is removed.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.recovered = 0
        """Bytes of an incomplete last line that were removed."""
        self._lock = threading.Lock()
        self._decisions: dict[str, Decision] = {}
        self._classes: dict[str, None] = {}
        self._count = 0
        self._good = self._read()
        try:
            self._handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        except OSError as cause:
            raise OutputError(f"{path}: labels cannot be written there: {cause.strerror}.") from cause

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of classes, in the order in which they came."""
        return tuple(self._classes)

    @property
    def revision(self) -> int:
        """How many lines the log has."""
        return self._count

    def decision(self, key: str) -> Decision:
        """What was decided last about a text."""
        return self._decisions.get(key, UNDECIDED)

    def decisions(self) -> dict[str, Decision]:
        """A copy of the last decisions on all texts that have one."""
        with self._lock:
            return dict(self._decisions)

    def add_class(self, name: str, *, user: str = "") -> str:
        """Add a class; returns its name without outer spaces. One that exists is not written again."""
        name = class_name(name)
        with self._lock:
            if name not in self._classes:
                self._append([{"class": name, "user": user}])
        return name

    def decide(self, changes: Sequence[Change], *, user: str = "") -> list[Conflict]:
        """Write decisions; returns those that were not written because their text has a newer version.

        When it returns, the others are on the disk.
        """
        with self._lock:
            conflicts, lines, versions = list[Conflict](), list[dict[str, Any]](), dict[str, int]()
            for change in changes:
                if change.kind not in KINDS:
                    raise SettingError(f"a decision is one of {', '.join(KINDS)}, got {change.kind!r}.")
                now = self.decision(change.key)
                if change.version != versions.get(change.key, now.version):
                    conflicts.append(Conflict(change.key, now))
                    continue
                label = class_name(change.label or "") if change.kind == "label" else None
                versions[change.key] = change.version + 1
                line: dict[str, Any] = {"text": change.key, "version": change.version + 1, "decision": change.kind}
                line |= ({} if label is None else {"label": label}) | ({"checked": True} if change.checked else {})
                lines.append(line | {"user": user})
            if lines:
                self._append(lines)
            return conflicts

    def close(self) -> None:
        """Close the file."""
        os.close(self._handle)

    def _append(self, lines: Sequence[dict[str, Any]]) -> None:
        now = datetime.now(UTC).isoformat(timespec="seconds")
        stamped = [line | {"time": now} for line in lines]
        content = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in stamped).encode(errors="replace")
        try:
            rest = memoryview(content)
            while rest:
                rest = rest[os.write(self._handle, rest) :]
            os.fsync(self._handle)
        except OSError as cause:
            os.ftruncate(self._handle, self._good)  # a part of a line would hide the next one
            why = "there is no room left on the disk" if is_full(cause) else str(cause.strerror)
            raise OutputError(f"{self.path}: the label could not be written: {why}.") from cause
        self._good += len(content)
        for line in stamped:
            self._apply(line)

    def _apply(self, line: Mapping[str, Any]) -> None:
        self._count += 1
        if "class" in line:
            self._classes.setdefault(str(line["class"]))
            return
        label = line.get("label")
        self._decisions[str(line["text"])] = Decision(
            cast(Kind, line["decision"]), label, int(line["version"]), str(line.get("user", "")),
            checked=line.get("checked") is True,
        )  # fmt: skip
        if label is not None:
            self._classes.setdefault(label)

    def _read(self) -> int:
        """Read the lines that are there; returns how many bytes of the file they take."""
        try:
            content = self.path.read_bytes()
        except FileNotFoundError:
            return 0
        good = content.rfind(b"\n") + 1
        self.recovered = len(content) - good
        for number, text in enumerate(content[:good].splitlines(), start=1):
            try:
                line = json.loads(text)
                assert "class" in line or (line["decision"] in KINDS and isinstance(line["text"], str))
                self._apply(line)
            except (ValueError, KeyError, TypeError, AssertionError):
                message, remedy = "this is no label that nearfar has written", "Remove the line, or restore the file."
                raise DataError(Problem(str(self.path), message, remedy, line=number)) from None
        if self.recovered:
            os.truncate(self.path, good)
        return good


def class_name(name: str) -> str:
    """The name of a class without outer spaces; raises SettingError for one that cannot be used.

    >>> class_name("  late  delivery ")
    'late delivery'
    """
    name = " ".join(name.split())
    if not name or len(name) > LONGEST:
        raise SettingError(f"the name of a class has 1 to {LONGEST} characters, got {len(name)}.")
    return name
