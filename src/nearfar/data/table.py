"""From rows as they stand in a source to checked records, keeping account of all that is wrong."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice

from nearfar.data.columns import Binding, Need, bind
from nearfar.data.delimited import Row
from nearfar.data.ids import ids_of, with_ids
from nearfar.data.issues import Ledger, count
from nearfar.data.records import Layout, Records
from nearfar.data.values import BELOW_ZERO, EMPTY_TEXT, Fault, is_text, label_of, number_of, score_of, text_fault
from nearfar.errors import MEMORY

PEEK = 1_000
"""How many rows are looked at for the names of columns, which JSON rows need not all have."""


@dataclass
class Table:
    """What reading one source came to."""

    structure: Ledger
    """Faults of the file itself, which always refuse it."""
    rows: Ledger
    """Faults of single rows, which may be dropped instead."""
    seen: int = 0
    """Rows that could be read, good or bad."""
    dropped: dict[str, list[int]] = field(default_factory=dict)
    """The lines of the rows at fault by the (first) reason."""
    empty: list[int] = field(default_factory=list)
    """The lines of rows in which a text is empty."""
    records: Records | None = None
    """The good rows; None when the columns are not known."""


def gather(source: str, rows: Iterator[Row], layout: Layout, need: Need, ledger: Ledger) -> Table:
    """Read all rows, decide which columns they are in, and check every value."""
    table = Table(ledger, Ledger(source))
    first = list(islice(rows, PEEK))
    known = dict.fromkeys(name for _, values in first for name in values)
    binding = bind(list(known), layout, need, ledger) if first else None
    if binding is None:
        table.seen = len(first) + sum(1 for _ in rows)
        if not first and not ledger.problems:
            ledger.problem("there are no rows", "Name a source that has rows.")
        return table
    columns: tuple[list[str], ...] = tuple([] for _ in binding.texts)
    lines: list[int] = []
    targets: list[object] = []
    queries: list[object] = []
    documents: list[object] = []
    beside = [
        (name, values)
        for name, values in ((binding.target, targets), (binding.query, queries), (binding.document, documents))
        if name is not None
    ]
    sound: list[bool] = []
    blocked = False
    for line, values in chain(first, rows):
        if not blocked and not known.keys() >= values.keys():
            blocked = changes(binding, known, values, layout, need, line, len(lines), ledger)
        sound.append(_take_texts(table, columns, binding.texts, line, values))
        lines.append(line)
        for name, kept in beside:
            kept.append(values.get(name))
    table.seen = len(lines)
    if need != "text":
        _note_unused(known, binding, ledger)
    labels, scores = _resolve(table, binding, targets, lines, sound)
    told = [
        _identify(table, binding, name, values, lines, sound)
        for name, values in ((binding.query, queries), (binding.document, documents))
    ]
    records = Records(columns, labels, scores, lines, source, queries=told[0], documents=told[1])
    keep = [index for index, good in enumerate(sound) if good]
    if len(keep) < len(lines):
        records = records.take(keep)
    table.records = with_ids(records, binding, ledger)
    return table


def drop_notes(table: Table) -> list[str]:
    """How many rows were dropped, by reason."""
    unit = "row" if table.structure.where.startswith(MEMORY) else "line"
    return [
        f"{count(len(lines), 'row')} dropped because {reason} (first on {unit} {lines[0]})"
        for reason, lines in table.dropped.items()
    ]


def _take_texts(
    table: Table, columns: Sequence[list[str]], names: Sequence[str], line: int, values: Mapping[str, object]
) -> bool:
    """Append the texts of a row to their columns; False after entering which of them cannot be used."""
    good = True
    for column, name in zip(columns, names, strict=True):
        value = values.get(name)
        if is_text(value):
            column.append(value)  # type: ignore[arg-type]  # is_text saw that it is a string
        else:
            column.append("")
            fault = text_fault(value)
            if fault is EMPTY_TEXT and (not table.empty or table.empty[-1] != line):
                table.empty.append(line)
            _enter(table, fault, line, name, value, first=good)
            good = False
    return good


def _note_unused(known: Iterable[str], binding: Binding, ledger: Ledger) -> None:
    used = (*binding.texts, binding.target, binding.query, binding.document)
    unused = [name for name in known if name and name not in used]
    if unused:
        listed = ", ".join(repr(name[:60]) for name in unused[:20])
        ledger.notes.append(f"columns that are not used: {listed}{' and more' if len(unused) > 20 else ''}")


def _resolve(
    table: Table, binding: Binding, targets: Sequence[object], lines: Sequence[int], sound: list[bool]
) -> tuple[list[str] | None, list[float] | None]:
    """Labels or scores of all rows; ``sound`` turns False where a row has none that can be used."""
    if binding.target is None:
        return None, None
    scored = binding.kind in ("score", "relevance")
    if binding.kind == "grade":
        scored = _numbers(targets)[0]
    elif binding.kind == "either" and all(_numbers(targets)):
        scored = True
        table.structure.notes.append(
            f"column {binding.target!r} holds fractions, so it is read as scores; set data.label to read it as classes"
        )
    convert = score_of if scored else label_of
    cache: dict[tuple[type, object], object] = {}  # labels recur; 1, 1.0 and True are equal but not the same
    labels: list[str] = []
    scores: list[float] = []
    for index, value in enumerate(targets):
        if isinstance(value, str | int | float):
            key = (type(value), value)
            result = cache.get(key)
            if result is None:
                result = convert(value)
                if not scored:
                    cache[key] = result
        else:
            result = convert(value)
        if binding.ranked and isinstance(result, float) and result < 0:
            result = BELOW_ZERO
        if isinstance(result, Fault):
            _enter(table, result, lines[index], binding.target, value, first=sound[index])
            sound[index] = False
        labels.append(result if isinstance(result, str) else "")
        scores.append(result if isinstance(result, float) else 0.0)
    return (None, scores) if scored else (labels, None)


def _identify(
    table: Table, binding: Binding, name: str | None, values: Sequence[object], lines: Sequence[int], sound: list[bool]
) -> list[str] | None:
    """The ids in a column; None when there is none, or none that is worth a refusal."""
    if name is None:
        return None
    ids, faults = ids_of(values)
    if faults and not binding.firm:
        index, fault = next(iter(faults.items()))
        table.structure.notes.append(f"column {name!r} is not used: {fault.message} on line {lines[index]}")
        return None
    for index, fault in faults.items():
        _enter(table, fault, lines[index], name, values[index], first=sound[index])
        sound[index] = False
    return ids


def _numbers(targets: Sequence[object]) -> tuple[bool, bool]:
    """Whether all values are numbers, and whether some of them are not whole."""
    fraction = False
    for value in targets:
        if value is None or (isinstance(value, str) and not value.strip()):
            continue
        number = number_of(value)
        if number is None:
            return False, False
        fraction = fraction or not (number.is_integer() or number != number or number in (float("inf"), -float("inf")))
    return True, fraction


def _enter(table: Table, fault: Fault, line: int, column: str, value: object, *, first: bool) -> None:
    table.rows.problem(fault.message, fault.remedy, line=line, column=column, value=value)
    if first:
        table.dropped.setdefault(fault.message, []).append(line)


def changes(
    binding: Binding,
    known: dict[str, None],
    values: Iterable[str],
    layout: Layout,
    need: Need,
    line: int,
    before: int,
    ledger: Ledger,
) -> bool:
    """Add the columns of a row to those known; True after entering that a late one makes the rows before doubtful."""
    old, late = list(known), [name for name in values if name not in known]
    known.update(dict.fromkeys(late))

    def other(names: list[str]) -> bool:
        return bind(names, layout, need, Ledger(ledger.where)) != binding

    if not other([*old, *late]):
        return False
    first = next(name for place, name in enumerate(late) if other([*old, *late[: place + 1]]))
    ledger.problem(
        f"a column {first!r} appears first here, but the {before:,} rows before do not have it",
        "Give all rows the same columns, or name those to read with data.text, data.pair, data.label, data.score.",
        line=line,
    )
    return True
