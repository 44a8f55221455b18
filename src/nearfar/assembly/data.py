"""The data of a run: read, checked against each other, split where a share was asked for."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from nearfar.data import Layout, Records, compare, read, share
from nearfar.errors import DataError, Problem
from nearfar.recipe import Recipe

AUTO_ROWS = 1_000
"""From this many rows on, ``dev = "auto"`` sets a share aside."""
AUTO_SHARE = 0.1


@dataclass(frozen=True)
class RunData:
    """Training, dev and test rows, and the classes they are about."""

    train: Records
    dev: Records | None
    test: Records | None
    classes: tuple[str, ...]
    notes: tuple[str, ...]

    def fingerprint(self) -> str:
        """What a resumed run must find unchanged."""
        return " ".join(part.fingerprint() for part in (self.train, self.dev, self.test) if part is not None)


def layout_of(recipe: Recipe) -> Layout:
    """The columns a recipe names."""
    data = recipe.data
    return Layout(text=data.text, pair=data.pair, label=data.label, score=data.score, columns=data.columns)


def read_data(recipe: Recipe) -> RunData:
    """Read and check everything a run needs; whatever is wrong is raised at once, over all files."""
    layout, problems, notes = layout_of(recipe), list[Problem](), list[str]()

    def attempt(source: str, role: Literal["train", "dev", "test"]) -> Records | None:
        try:
            return read(
                _from_here(source), layout, invalid=recipe.data.invalid, need="label" if role == "train" else "any"
            )
        except DataError as error:
            problems.extend(error.problems)
            return None

    train = attempt(recipe.data.train, "train")
    dev_setting = recipe.data.dev
    files: dict[str, Records | None] = {}
    for role, setting in (("dev", dev_setting), ("test", recipe.data.test)):
        if isinstance(setting, str) and setting != "auto":
            files[role] = attempt(setting, "dev" if role == "dev" else "test")
    if train is not None:
        if train.labels is None:
            problems.append(_no_labels(train))
        for role, records in files.items():
            if records is not None and train.labels is not None:
                found, told = compare(train, records, "dev" if role == "dev" else "test")
                problems.extend(found)
                notes.extend(told)
    if problems:
        raise DataError(problems)
    assert train is not None
    for records in (train, *files.values()):
        if records is not None:
            notes.extend(f"{records.source}: {note}" for note in records.notes)

    classes = train.classes()
    test, dev = files.get("test"), files.get("dev")
    if isinstance(recipe.data.test, float | int) and recipe.data.test > 0:
        train, test = _divide(train, recipe.data.test, recipe.seed, "test")
    if dev_setting == "auto":
        dev_setting = AUTO_SHARE if len(train) >= AUTO_ROWS else 0.0
        if not dev_setting:
            notes.append(
                f"no dev data: {len(train):,} rows are fewer than {AUTO_ROWS:,}, so all of them train and the last "
                "weights are kept; set data.dev to choose by a dev score"
            )
    if isinstance(dev_setting, float | int) and dev_setting > 0:
        train, dev = _divide(train, dev_setting, recipe.seed, "dev")
    return RunData(train, dev, test, classes, tuple(notes))


def _from_here(source: str) -> str:
    """A file below the current folder by its short name, as messages should have it."""
    here = Path.cwd()
    return (
        str(Path(source).relative_to(here)) if source.startswith("/") and Path(source).is_relative_to(here) else source
    )


def class_numbers(records: Records, classes: tuple[str, ...]) -> NDArray[np.int64]:
    """(n,) the number of each row's class; a label that is not among them is refused with its line."""
    numbers = {name: number for number, name in enumerate(classes)}
    labels = records.labels or []
    problems = [
        Problem(
            records.source, "the model does not know this label", f"It knows: {', '.join(classes[:12])}.",
            line=line, value=label,
        )
        for label, line in zip(labels, records.lines, strict=True)
        if label not in numbers
    ]  # fmt: skip
    if problems:
        raise DataError(problems)
    return np.array([numbers[label] for label in labels], dtype=np.int64)


def _divide(records: Records, fraction: float, seed: int, name: str) -> tuple[Records, Records]:
    rest, chosen = share(records, fraction, seed=seed, name=name)
    return records.take(rest), records.take(chosen)


def _no_labels(records: Records) -> Problem:
    if records.scores is not None:
        return Problem(
            records.source, "this objective needs classes, and the file has scores",
            "Name the column with the classes: data.label, or --label.", line=records.lines[0],
        )  # fmt: skip
    return Problem(
        records.source, "this objective needs a class for every text, and the file has no label column",
        "Add a column named label, or name yours: data.label, or --label.",
        line=records.lines[0] if records.lines else None,
    )  # fmt: skip
