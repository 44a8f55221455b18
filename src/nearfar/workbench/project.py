"""A project: the texts of a file, and a folder with all decisions on them, their vectors and the model."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearfar.data import Layout, Stream
from nearfar.data.readers import Invalid
from nearfar.data.values import MANY_LABELS, NO_LABEL, label_of
from nearfar.data.writers import write_rows
from nearfar.errors import DataError, Problem, SettingError, counted, did_you_mean
from nearfar.files import only_process
from nearfar.workbench.label_log import Decision, LabelLog, class_name

LABELS = "labels.jsonl"
WINDOW = 8_192
"""Rows that are read at once."""
MODEL = "model"
CURVE = "accuracy.jsonl"
RESULT = "labeled"
CHANGES = "changes.csv"
LABEL_COLUMNS = ("label", "labels", "class", "category", "intent", "target")
BUSY = "another process has this project open. Use its address, end it, or choose another --out."


@dataclass(frozen=True)
class Texts:
    """The texts of a file, and the labels that it has."""

    source: str
    texts: list[str]
    labels: list[str | None]
    """The label of each text in the file; None where it has none."""
    lines: list[int]
    notes: tuple[str, ...] = ()
    keys: list[str] = field(init=False)
    """What names a text in the log: it stays the same when rows are added to the file or sorted."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "keys", list(text_keys(self.texts)))

    def __len__(self) -> int:
        return len(self.texts)


def text_keys(texts: Sequence[str]) -> Iterator[str]:
    """A digest of each text; repetitions of it are numbered.

    >>> first, second = text_keys(["a", "a"])
    >>> second == first + "-2"
    True
    """
    seen = Counter[str]()
    for text in texts:
        key = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]
        seen[key] += 1
        yield key if seen[key] == 1 else f"{key}-{seen[key]}"


def read_texts(source: str, layout: Layout = Layout(), *, invalid: Invalid = "refuse") -> Texts:  # noqa: B008  # frozen
    """The texts of any data source; a label may be missing in some rows, in all, or in none."""
    stream = Stream(source, replace(layout, label=None), size=WINDOW, invalid=invalid)
    texts, values, lines = list[str](), list[Mapping[str, object]](), list[int]()
    for window in stream.windows():
        if window.records.shape != "texts":
            message = f"single texts are shown, and the rows have {counted(len(window.records.texts), 'text')}"
            raise DataError(Problem(source, message, "Name the column with the text (--text)."))
        by_line = dict(window.rows)
        texts += window.records.texts[0]
        lines += window.records.lines
        values += [by_line[line] for line in window.records.lines]
    notes = stream.finish()
    names = {name for row in values[:WINDOW] for name in row}
    label = layout.label
    if label is not None and label not in names:
        raise SettingError(f"--label {label}: {source} has no such column.{did_you_mean(label, sorted(names))}")
    if label is None:
        label = next((name for name in LABEL_COLUMNS if name in names), None)
    known = [NO_LABEL if label is None else label_of(row.get(label)) for row in values]
    if unused := sum(one is not NO_LABEL and not isinstance(one, str) for one in known):
        several = MANY_LABELS in known
        why = "one class a text is shown, and these have several" if several else "they are no names of classes"
        notes = (*notes, f"{counted(unused, 'label')} of column {label!r} not used: {why}")
    return Texts(source, texts, [one if isinstance(one, str) else None for one in known], lines, notes)


class Project:
    """Texts and their labels: those of the file, and those that were given since.

    Args:
        texts: what is labeled.
        folder: where everything is kept; made if there is none.
        classes: names of classes to begin with.
    """

    def __init__(self, texts: Texts, folder: Path, classes: Sequence[str] = ()) -> None:
        self.texts, self.folder = texts, folder
        folder.mkdir(parents=True, exist_ok=True)
        self._first_classes: dict[str, None] = {}
        self.log = LabelLog(folder / LABELS)
        for name in [*classes, *sorted({label for label in texts.labels if label is not None})]:
            self._first_classes[class_name(name)] = None
        self.rows = {key: row for row, key in enumerate(texts.keys)}

    @property
    def classes(self) -> tuple[str, ...]:
        """All classes: those of the command, of the file, and those that were added."""
        return tuple(self._first_classes | dict.fromkeys(self.log.classes))

    def decision(self, row: int) -> Decision:
        """The last decision on a text."""
        return self.log.decision(self.texts.keys[row])

    def label(self, row: int) -> str | None:
        """The label of a text now; None where it has none."""
        return _label_now(self.texts.labels[row], self.decision(row))

    def labels(self) -> list[str | None]:
        """The labels of all texts now."""
        labels = list(self.texts.labels)
        for row, decision in self._decided():
            labels[row] = _label_now(labels[row], decision)
        return labels

    def is_open(self, row: int) -> bool:
        """Whether a text still has to be labeled."""
        return self.label(row) is None and self.decision(row).kind == "clear"

    def open_rows(self) -> NDArray[np.bool_]:
        """(n,) which texts still have to be labeled."""
        mask = np.array([label is None for label in self.texts.labels], dtype=np.bool_)
        for row, decision in self._decided():
            mask[row] = decision.kind == "clear" and self.texts.labels[row] is None
        return mask

    def skipped(self) -> list[int]:
        """Texts without a label that were put off, the earliest first."""
        return [row for row, decision in self._decided() if decision.kind == "skip" and self.texts.labels[row] is None]

    def _decided(self) -> Iterator[tuple[int, Decision]]:
        for key, decision in self.log.decisions().items():
            row = self.rows.get(key)
            if row is not None:
                yield row, decision

    def result_rows(self) -> list[dict[str, object]]:
        """The labeled texts as they are exported; those that were dropped are left out."""
        return [
            {"text": text, "label": label}
            for text, label in zip(self.texts.texts, self.labels(), strict=True)
            if label is not None
        ]

    def changes(self) -> list[dict[str, object]]:
        """Texts whose label is another one than in the file, or that were dropped."""
        found: list[dict[str, object]] = []
        for row, decision in sorted(self._decided(), key=lambda each: each[0]):
            before, now = self.texts.labels[row], self.label(row)
            if before is not None and now != before:
                line: dict[str, object] = {"line": self.texts.lines[row], "text": self.texts.texts[row]}
                what = "changed" if decision.kind == "label" else "dropped"
                found.append(line | {"change": what, "before": before, "after": now, "user": decision.user})
        return found

    def export(self) -> list[Path]:
        """Write the labeled texts as CSV and as JSON Lines, and what differs from the file; never over the file."""
        rows, changes = self.result_rows(), self.changes()
        written = [self.folder / f"{RESULT}.csv", self.folder / f"{RESULT}.jsonl"]
        for path in written:
            write_rows(path, ["text", "label"], rows)
        if changes:
            written.append(self.folder / CHANGES)
            write_rows(written[-1], list(changes[0]), changes)
        return written

    def curve(self) -> list[dict[str, Any]]:
        """Accuracy by number of labels, as trainings so far have estimated it."""
        try:
            lines = (self.folder / CURVE).read_text(encoding="utf-8").splitlines()
        except FileNotFoundError:
            return []
        points = []
        for line in lines:
            try:
                points.append(json.loads(line))
            except ValueError:  # the last line, if the machine was switched off
                break
        return points

    def close(self) -> None:
        """Close the log."""
        self.log.close()


def _label_now(given: str | None, decision: Decision) -> str | None:
    """The label of a text: that of the file, unless somebody has decided otherwise."""
    return given if decision.kind in ("clear", "skip") else decision.label


def default_folder(source: str) -> Path:
    """The folder of a project where none is named: in the current folder, named after the file.

    >>> str(default_folder("data/tickets.csv.gz")), str(default_folder("sample:helpdesk#test"))
    ('tickets.nearfar', 'helpdesk-test.nearfar')
    """
    stem = source.removeprefix("sample:").removeprefix("hub:").replace("#", "-")
    name = Path(stem).name.split(".")[0] or "texts"
    return Path(f"{'texts' if name == '-' else name}.nearfar")


@contextmanager
def open_project(texts: Texts, folder: Path, classes: Sequence[str] = ()) -> Iterator[Project]:
    """A project that this process has to itself."""
    with only_process(folder, ".lock", BUSY):
        project = Project(texts, folder, classes)
        try:
            yield project
        finally:
            project.close()
