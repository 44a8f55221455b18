"""What a data source contains, and what is wrong with it, before a run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from nearfar.data.readers import problems_of, read_table
from nearfar.data.records import Layout, Records, Shape, Target, normalized
from nearfar.data.targets import contradictions, contradictions_message, queries_without_positive, target_problems
from nearfar.errors import DataError, Problem, counted, shorten, unit_of

_EXAMPLES = 5


@dataclass(frozen=True, slots=True)
class Duplicates:
    """Rows that repeat an earlier row: the same texts and the same label or score."""

    count: int = 0
    examples: tuple[tuple[int, int], ...] = ()
    """Some of them: the line of the first and the line of the repetition."""


@dataclass(frozen=True, slots=True)
class Conflict:
    """The same text with two labels."""

    text: str
    labels: tuple[str, str]
    lines: tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Examination:
    """The result of ``examine``."""

    source: str
    rows: int = 0
    """Rows that could be read, valid or not."""
    usable: int = 0
    """Valid rows."""
    shape: Shape | None = None
    target: Target | None = None
    classes: dict[str, int]
    """The number of valid rows of each class."""
    blank_lines: int = 0
    empty: tuple[int, ...] = ()
    """The lines of rows with an empty text."""
    duplicates: Duplicates = Duplicates()
    conflicts: tuple[Conflict, ...] = ()
    """Some of the texts that have two labels."""
    conflict_count: int = 0
    dropped: dict[str, int]
    """The number of rows that ``invalid="drop"`` would leave out, by reason."""
    structural: bool
    """Whether the file itself has problems, so that dropping rows would not help."""
    problems: tuple[Problem, ...]
    notes: tuple[str, ...] = ()
    queries: int = 0
    """The number of queries of a ranking, or of a file of queries."""
    without_positive: int = 0
    """The number of queries of a ranking without a relevant document."""

    def to_dict(self) -> dict[str, Any]:
        """Everything, ready for JSON."""
        return asdict(self)


def examine(source: str, layout: Layout = Layout(), base: Path | None = None) -> Examination:  # noqa: B008  # frozen
    """Examine a source. Nothing is raised: that a source cannot be read is a problem in the result."""
    try:
        table = read_table(source, layout, base=base, need="any")
    except DataError as error:
        return Examination(source=source, classes={}, dropped={}, structural=True, problems=error.problems)
    records = table.records or Records(([],), None, None, [], source)
    numbers = Counter(label for labels in records.row_labels() for label in labels)
    classes = {name: numbers[name] for name in records.classes()}
    duplicates, conflicts, conflict_count = _repetitions(records)
    return Examination(
        source=source,
        rows=table.rows_read,
        usable=len(records),
        shape=None if table.records is None else records.shape,
        target=records.target,
        classes=classes,
        blank_lines=table.structure.blank,
        empty=tuple(table.empty),
        duplicates=duplicates,
        conflicts=conflicts,
        conflict_count=conflict_count,
        dropped={reason: len(lines) for reason, lines in table.dropped.items()},
        structural=bool(table.structure.problems),
        problems=tuple(problems_of(table, "refuse")),
        notes=(*table.structure.notes, *_notes(records, classes)),
        queries=len(set(records.queries or ())),
        without_positive=len(queries_without_positive(records)),
    )


def _notes(records: Records, classes: dict[str, int]) -> list[str]:
    """Why some objectives would refuse the rows, and what they lack."""
    problems, remarks = target_problems(records)
    notes = [f"{problem.message}: {problem.remedy[0].lower()}{problem.remedy[1:-1]}" for problem in problems]
    if contradicting := contradictions(records):
        message = contradictions_message(records, contradicting)
        notes.append(f"{message}: objectives that compare pairs refuse them; --invalid drop leaves all their rows out")
    if records.label_sets is not None:
        bare = sum(not labels for labels in records.label_sets)
        mean = sum(map(len, records.label_sets)) / max(1, len(records))
        none = f", {bare:,} of {len(records):,} without a label" if bare else ""
        notes.append(f"rows have several labels (multi-label): {mean:.1f} on average{none}")
    if records.shape == "texts":  # pairs of one class can be trained on
        single = [name for name, rows in classes.items() if rows == 1]
        if len(classes) == 1:
            name = shorten(next(iter(classes)))
            notes.append(f"all rows have the one class {name}: add rows of another class, or name another --label")
        elif single:
            shown = ", ".join(map(shorten, single[:3])) + (" ..." if len(single) > 3 else "")
            have = f"{len(single):,} of {len(classes):,} classes {'has' if len(single) == 1 else 'have'}"
            notes.append(f"{have} a single row ({shown}): give each at least two; 8 or more are usual")
    return [*notes, *remarks]


def compare(
    train: Records, other: Records, role: Literal["dev", "test"], *, classes: bool = True
) -> tuple[list[Problem], list[str]]:
    """Why ``other`` cannot be used together with ``train``, and what users should know about it.

    Args:
        train: the training rows.
        other: the dev or test rows.
        role: what ``other`` is for.
        classes: whether labels are classes, all of which must be in ``train``; False for binary labels of pairs, since
            positive pairs alone can be trained on.
    """
    problems: list[Problem] = []
    if train.shape != other.shape:
        message = f"the {role} rows are {_shape_name(other)} but the training rows are {_shape_name(train)}"
        remedy = "Name the same columns for both with data.text and data.pair (--text, --pair)."
        problems.append(Problem(other.source, message, remedy))
    if train.target != other.target and (train.target, other.target) != ("labels", "label"):
        message = f"the {role} rows have {_target_name(other)} but the training rows have {_target_name(train)}"
        remedy = "Say what the column holds with data.label or data.score (--label, --score)."
        problems.append(Problem(other.source, message, remedy))
    elif classes and train.is_labeled and other.is_labeled:
        problems.extend(_unknown_labels(train, other, role))
    notes: list[str] = []
    if train.shape == other.shape == "ranking":
        asked, other_asked = (map(normalized, each.texts[0]) for each in (train, other))
        notes += _leakage(train, other, asked, other_asked, f"{role} query", f"{role} queries")
    notes += _leakage(train, other, train.iter_split_keys(), other.iter_split_keys(), f"{role} row")
    return problems, notes


def _leakage(
    train: Records,
    other: Records,
    train_keys: Iterable[Hashable],
    other_keys: Iterable[Hashable],
    thing: str,
    things: str | None = None,
) -> list[str]:
    """A note on dev or test texts that are in the training data; queries, given in the plural, count once."""
    pairs = list(zip(other_keys, other.lines, strict=True))
    if things is not None:
        pairs = list(dict(reversed(pairs)).items())
    asked = {key for key, _ in pairs}
    first: dict[Hashable, int] = {}  # the first line of each; there may be very many training rows
    for key, line in zip(train_keys, train.lines, strict=True):
        if key in asked:
            first.setdefault(key, line)
    shared = sorted((line, first[key]) for key, line in pairs if key in first)
    if not shared:
        return []
    units = unit_of(other.source), unit_of(train.source)
    examples = ", ".join(f"{units[0]} {line} as {units[1]} {before}" for line, before in shared[:_EXAMPLES])
    return [
        f"{other.source}: {counted(len(shared), thing, things)} also in the training data {train.source} "
        f"(such as {examples}): a result on {'it' if len(shared) == 1 else 'them'} says little"
    ]


def _unknown_labels(train: Records, other: Records, role: str) -> list[Problem]:
    known = train.classes()
    listed = ", ".join(repr(name[:40]) for name in known[:20]) + (", ..." if len(known) > 20 else "")
    remedy = f"Add training rows with it, or remove these rows; the training labels are {listed}."
    lines: dict[str, list[int]] = {}
    for labels, line in zip(other.row_labels(), other.lines, strict=True):
        for label in labels:
            lines.setdefault(label, []).append(line)
    return [
        Problem(
            other.source,
            f"a label that the training data does not have, in {counted(len(lines[label]), f'{role} row')}",
            remedy,
            line=lines[label][0],
            value=label,
        )
        for label in lines
        if label not in set(known)
    ]


def _repetitions(records: Records) -> tuple[Duplicates, tuple[Conflict, ...], int]:
    targets: Sequence[Hashable] = records.labels or records.scores or [None] * len(records)
    if records.label_sets is not None:
        targets = [tuple(sorted(labels)) for labels in records.label_sets]
    first_lines: dict[Hashable, int] = {}
    first_rows: dict[tuple[str, ...], int] = {}
    repeated: list[tuple[int, int]] = []
    conflicts: list[tuple[int, int]] = []
    for index, texts in enumerate(zip(*records.texts, strict=True)):
        line = records.lines[index]
        first = first_lines.setdefault((texts, targets[index]), line)
        if first != line:
            repeated.append((first, line))
        elif records.is_labeled and (earlier := first_rows.setdefault(texts, index)) != index:
            conflicts.append((earlier, index))
    labels = records.row_labels() if conflicts else []
    examples = [
        Conflict(
            shorten(" | ".join(column[other] for column in records.texts)),
            (", ".join(labels[one]), ", ".join(labels[other])),
            (records.lines[one], records.lines[other]),
        )
        for one, other in conflicts[:_EXAMPLES]
    ]
    return Duplicates(len(repeated), tuple(repeated[:_EXAMPLES])), tuple(examples), len(conflicts)


def _shape_name(records: Records) -> str:
    return {"texts": "single texts", "ranking": "queries with documents"}.get(records.shape, records.shape)


def _target_name(records: Records) -> str:
    names = {None: "neither labels nor scores", "labels": "several labels a row"}
    return names.get(records.target, f"{records.target}s")
