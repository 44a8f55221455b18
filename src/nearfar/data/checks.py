"""A look over a data source before a run: what is in it, and what is doubtful about it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from nearfar.data.issues import count
from nearfar.data.readers import problems_of, table_of
from nearfar.data.records import Layout, Records, Shape, Target
from nearfar.data.targets import contradictions, contradictory, doubts, queries_without_positive
from nearfar.errors import DataError, Problem, shorten

_EXAMPLES = 5


@dataclass(frozen=True, slots=True)
class Duplicates:
    """Rows that repeat an earlier row: the same texts and the same label or score."""

    count: int
    examples: tuple[tuple[int, int], ...]
    """Some of them: the line of the first and the line of the repetition."""


@dataclass(frozen=True, slots=True)
class Conflict:
    """The same text under two labels."""

    text: str
    labels: tuple[str, str]
    lines: tuple[int, int]


@dataclass(frozen=True, slots=True)
class Examination:
    """What ``examine`` found."""

    source: str
    rows: int
    """Rows that could be read, good or bad."""
    usable: int
    """Rows with nothing wrong."""
    shape: Shape | None
    target: Target | None
    classes: dict[str, int]
    """How many usable rows each class has."""
    blank_lines: int
    empty: tuple[int, ...]
    """The lines of rows in which a text is empty."""
    duplicates: Duplicates
    conflicts: tuple[Conflict, ...]
    """Some of the texts that stand under two labels."""
    conflict_count: int
    dropped: dict[str, int]
    """How many rows ``invalid="drop"`` would leave out, by reason."""
    structural: bool
    """Whether the file itself is at fault, so that dropping rows would not help."""
    problems: tuple[Problem, ...]
    notes: tuple[str, ...]
    queries: int = 0
    """How many queries a ranking, or a file of queries, has."""
    without_positive: int = 0
    """How many queries of a ranking have no relevant document."""

    def to_dict(self) -> dict[str, Any]:
        """Everything, as JSON has it."""
        return asdict(self)


def examine(source: str, layout: Layout = Layout(), base: Path | None = None) -> Examination:  # noqa: B008  # frozen
    """Look over a source. Nothing is raised: a source that cannot be read is its own first problem."""
    try:
        table = table_of(source, layout, base=base, need="any")
    except DataError as error:
        nowhere = Duplicates(0, ())
        return Examination(
            source, 0, 0, None, None, {}, 0, (), nowhere, (), 0, {}, structural=True, problems=error.problems, notes=()
        )
    records = table.records
    classes: dict[str, int] = {}
    if records is not None and records.labels is not None:
        counted = Counter(records.labels)
        classes = {name: counted[name] for name in records.classes()}
    duplicates, conflicts, conflict_count = _repetitions(records)
    problems, doubtful = doubts(records) if records is not None else ([], [])
    told = [f"{problem.message}: {problem.remedy[0].lower()}{problem.remedy[1:-1]}" for problem in problems]
    if records is not None and (found := contradictions(records)):
        told.append(
            f"{contradictory(records, found)}: objectives that compare pairs refuse them; --invalid drop leaves all of "
            "their rows out"
        )
    if records is not None and records.shape == "texts":  # pairs of one kind teach, too
        told += _thin(classes)
    return Examination(
        source=source,
        rows=table.seen,
        usable=0 if records is None else len(records),
        shape=None if records is None else records.shape,
        target=None if records is None else records.target,
        classes=classes,
        blank_lines=table.structure.blank,
        empty=tuple(table.empty),
        duplicates=duplicates,
        conflicts=conflicts,
        conflict_count=conflict_count,
        dropped={reason: len(lines) for reason, lines in table.dropped.items()},
        structural=bool(table.structure.problems),
        problems=tuple(problems_of(table, "refuse")),
        notes=(*table.structure.notes, *told, *doubtful),
        queries=0 if records is None else len(set(records.queries or ())),
        without_positive=0 if records is None else len(queries_without_positive(records)),
    )


def _thin(classes: dict[str, int]) -> list[str]:
    """What classes lack that a classifier learns from."""
    if len(classes) == 1:
        name = next(iter(classes))
        return [f"all rows have the one class {shorten(name)}: add rows of another class, or name another --label"]
    single = [name for name, rows in classes.items() if rows == 1]
    if not single:
        return []
    shown = ", ".join(map(shorten, single[:3])) + (" ..." if len(single) > 3 else "")
    have = "has" if len(single) == 1 else "have"
    return [
        f"{len(single):,} of {len(classes):,} classes {have} a single row ({shown}): give each two at least, 8 or more "
        "are usual"
    ]


def compare(
    train: Records, other: Records, role: Literal["dev", "test"], *, classes: bool = True
) -> tuple[list[Problem], list[str]]:
    """What keeps ``other`` from being used beside ``train``, and what should be known about it.

    Args:
        role: what ``other`` is for.
        classes: whether labels are classes, all of which must be in ``train``; False where they only say whether the
            texts of a pair belong together, which pairs that all do can teach.
    """
    problems: list[Problem] = []
    if train.shape != other.shape:
        problems.append(
            Problem(
                other.source,
                f"the {role} rows are {_named(other.shape)} but the training rows are {_named(train.shape)}",
                "Name the same columns for both with data.text and data.pair (--text, --pair).",
            )
        )
    if train.target != other.target:
        problems.append(
            Problem(
                other.source,
                f"the {role} rows have {_aim(other.target)} but the training rows have {_aim(train.target)}",
                "Say what the column holds with data.label or data.score (--label, --score).",
            )
        )
    elif classes and train.labels is not None and other.labels is not None:
        problems.extend(_strange_labels(train, other, role))
    notes: list[str] = []
    seen = dict(zip(reversed(train.likenesses()), reversed(train.lines), strict=True))  # the first line of each
    shared = [(line, seen[key]) for key, line in zip(other.likenesses(), other.lines, strict=True) if key in seen]
    if train.shape == other.shape == "ranking":
        notes.extend(_shared_queries(train, other, role))
    if shared:
        examples = ", ".join(f"line {line} as line {first}" for line, first in shared[:_EXAMPLES])
        notes.append(
            f"{other.source}: {count(len(shared), f'{role} row')} also in the training data {train.source} "
            f"(such as {examples}): a result on {'it' if len(shared) == 1 else 'them'} says little"
        )
    return problems, notes


def _shared_queries(train: Records, other: Records, role: str) -> list[str]:
    seen = {key: line for (key, _), line in zip(reversed(train.keys()), reversed(train.lines), strict=True)}
    asked = {key: line for (key, _), line in zip(reversed(other.keys()), reversed(other.lines), strict=True)}
    shared = sorted((line, seen[key]) for key, line in asked.items() if key in seen)
    if not shared:
        return []
    examples = ", ".join(f"line {line} as line {first}" for line, first in shared[:_EXAMPLES])
    return [
        f"{other.source}: {count(len(shared), f'{role} query', f'{role} queries')} also in the training data "
        f"{train.source} (such as {examples}): a result on {'it' if len(shared) == 1 else 'them'} says little"
    ]


def _strange_labels(train: Records, other: Records, role: str) -> list[Problem]:
    assert other.labels is not None
    known = train.classes()
    strange: dict[str, list[int]] = {}
    for label, line in zip(other.labels, other.lines, strict=True):
        strange.setdefault(label, []).append(line)
    listed = ", ".join(repr(name[:40]) for name in known[:20]) + (", ..." if len(known) > 20 else "")
    return [
        Problem(
            other.source,
            f"a label that the training data does not have, in {count(len(lines), f'{role} row')}",
            f"Add training rows with it, or take these rows out; the training labels are {listed}.",
            line=lines[0],
            value=label,
        )
        for label, lines in strange.items()
        if label not in set(known)
    ]


def _repetitions(records: Records | None) -> tuple[Duplicates, tuple[Conflict, ...], int]:
    if records is None:
        return Duplicates(0, ()), (), 0
    targets: list[Hashable] = [None] * len(records)
    if records.target is not None:
        targets = list(records.labels or records.scores or ())
    same: dict[Hashable, int] = {}
    under: dict[tuple[str, ...], int] = {}
    repeated: list[tuple[int, int]] = []
    conflicts: list[Conflict] = []
    repeats = clashes = 0
    for index, texts in enumerate(zip(*records.texts, strict=True)):
        line = records.lines[index]
        first = same.setdefault((texts, targets[index]), line)
        if first != line:
            repeats += 1
            if repeats <= _EXAMPLES:
                repeated.append((first, line))
            continue
        if records.labels is None:
            continue
        earlier = under.setdefault(texts, index)
        if earlier != index:
            clashes += 1
            if clashes <= _EXAMPLES:
                labels = (records.labels[earlier], records.labels[index])
                conflicts.append(Conflict(shorten(" | ".join(texts)), labels, (records.lines[earlier], line)))
    return Duplicates(repeats, tuple(repeated)), tuple(conflicts), clashes


def _named(shape: Shape) -> str:
    return {"texts": "single texts", "ranking": "queries with documents"}.get(shape, shape)


def _aim(target: Target | None) -> str:
    return "neither labels nor scores" if target is None else f"{target}s"
