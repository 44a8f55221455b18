"""Published tables, to be done again: their study files, on the data that is there and with the wishes of the user."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from nearfar.data import Layout, Records, folds, limit, read, without_contradictions
from nearfar.data.sources import format_of
from nearfar.errors import DataError, OutputError, Problem, SettingError, counted, did_you_mean
from nearfar.experiments.published import PUBLISHED, DataSpec, Paper, PublishedTable, Values, study_values
from nearfar.experiments.rows import layout_of, write_rows
from nearfar.experiments.study_schema import StudyTable
from nearfar.experiments.suites import plain_rows
from nearfar.files import atomic, write_atomic
from nearfar.recipe.writer import table_to_toml

COLUMNS = ("text", "pair", "label", "score", "columns", "negative", "query_id", "doc_id")
"""Keys of a data set in a study file that name columns."""
OWN = "paper"
"""The encoder of the paper, whatever it is."""
ROWS = "rows"
"""The folder for rows that are made of those of the data."""


@dataclass(frozen=True, kw_only=True)
class Wishes:
    """What is to be other than in the study files."""

    encoder: str | None = None
    """A name or a folder; ``paper`` is that of the paper, None the default one."""
    seeds: tuple[int, ...] | None = None
    folds: int | None = None
    limit: int | None = None
    """Rows of each data set; all of one that has fewer."""
    settings: str = PUBLISHED
    epochs: int | None = None
    """Of tables with several tasks."""
    sets: tuple[str, ...] | None = None
    """Some of the data sets; None for all that are there."""


@dataclass(frozen=True)
class Ready:
    """A study that can begin."""

    file: Path
    folder: Path
    """Where its records are, or will be."""


@dataclass(frozen=True)
class Prepared:
    """The studies of a table, and what is to be known about them."""

    studies: tuple[Ready, ...]
    missing: tuple[Problem, ...]
    """Data sets that cannot be run, each with what is needed."""
    notes: tuple[str, ...]


def prepare(
    paper: Paper,
    table: PublishedTable,
    data: Path,
    out: Path,
    wishes: Wishes | None = None,
    *,
    place: Path | None = None,
) -> Prepared:
    """Write the study files of a table for the data that is there; raises DataError where none is.

    A data set with a dev file of its own becomes a study of its own. Rows are drawn from the files as they are; where a
    table has others (four of the classes, pairs without their grades), these are written beside the study files.

    Args:
        paper: whose table it is.
        table: what to do again.
        data: the folder of the data, with a folder for each set.
        out: where the folders of the studies are.
        wishes: what is to be other than in the study files.
        place: where study files and rows are written; None for ``out``.
    """
    wishes = wishes or Wishes()
    if not data.is_dir():
        remedy = "Name the folder that has one folder for each data set, such as trec/train.jsonl.gz."
        raise DataError([Problem(str(data), "there is no such folder", remedy)])
    place = (place or out).absolute()
    if wishes.epochs is not None:
        raise SettingError(
            "--epochs is for tables of several tasks; a study file has those of the paper. Leave it out."
        )
    changes = settings_of(paper, wishes.settings)
    _check_sets(table, wishes.sets)
    shelf = _Shelf(paper, table, data.absolute(), place, wishes)
    studies: list[Ready] = []
    missing: list[Problem] = []
    for name in table.studies:
        groups: dict[str, list[Values]] = {}
        devs: dict[str, str] = {}
        values = study_values(name)
        for entry in values["data"]:
            if wishes.sets is not None and entry["name"] not in wishes.sets:
                continue
            try:
                found, dev = shelf.take(entry, values["study"])
            except DataError as error:
                missing.extend(error.problems)
                continue
            stem = Path(name).stem
            if dev is not None:
                stem = stem if stem.endswith(f"-{entry['name']}") else f"{stem}-{entry['name']}"
                devs[stem] = dev
            groups.setdefault(stem, []).append(found)
        for stem, entries in groups.items():
            values = _edited(study_values(name), entries, devs.get(stem), table, changes, wishes)
            write_text(place / f"{stem}.toml", table_to_toml(values))
            studies.append(Ready(place / f"{stem}.toml", out / stem))
    if not studies:
        raise DataError(missing)
    return Prepared(tuple(studies), tuple(missing), tuple(shelf.notes))


def _check_sets(table: PublishedTable, sets: tuple[str, ...] | None) -> None:
    known = list(dict.fromkeys(entry["name"] for name in table.studies for entry in study_values(name)["data"]))
    for unknown in (name for name in sets or () if name not in known):
        raise SettingError(
            f"--sets: table {table.number} has no data set {unknown!r}; it has {', '.join(known)}."
            f"{did_you_mean(unknown, known)}"
        )


def differences(table: PublishedTable, wishes: Wishes, encoder: str) -> list[str]:
    """In what a run with these wishes differs from the paper; ``encoder`` is the default one."""
    used = encoder_of(table, wishes) or encoder
    said = [f"the encoder is {used}; the paper's is {table.encoder}"] if used != table.encoder else []
    if wishes.settings != PUBLISHED:
        said.append(f"the settings are not the paper's but those called {wishes.settings}")
    asked = {"seeds": wishes.seeds, "folds": wishes.folds, "limit": wishes.limit, "epochs": wishes.epochs,
             "sets": wishes.sets}  # fmt: skip
    changed = [
        f"--{name} {','.join(map(str, value)) if isinstance(value, tuple) else value}"
        for name, value in asked.items()
        if value is not None
    ]
    if changed:
        said.append(f"other than in the study file: {', '.join(changed)}")
    return [*said, *table.notes]


class _Shelf:
    """The folder of the data: finds files, and makes rows of them."""

    def __init__(self, paper: Paper, table: PublishedTable, data: Path, place: Path, wishes: Wishes) -> None:
        self.paper, self.table, self.data, self.place, self.wishes = paper, table, data, place, wishes
        self.notes: list[str] = []

    def take(self, entry: Mapping[str, Any], study: Mapping[str, Any]) -> tuple[Values, str | None]:
        """The table of a data set with files that are there, and its dev file; DataError with what is needed."""
        name = str(entry["name"])
        spec = self.paper.data[name]
        wanted = {role: str(entry[role]) for role in ("file", "test") if role in entry}
        folder = wanted.pop("test") if "suite" in entry else None
        if spec.dev is not None:
            wanted["dev"] = spec.dev
        paths = {role: find_file(self.data, self.paper, file) for role, file in wanted.items()}
        lacking = [wanted[role] for role, path in paths.items() if path is None]
        if lacking:
            message = f"{name} is not run: there is no {' and no '.join(lacking)}"
            remedy = (
                f"Put it there: {spec.about}. JSON Lines, CSV, TSV and Parquet are read, by the name before the dot."
            )
            raise DataError([Problem(str(self.data), message, remedy)])
        layout = layout_of({key: entry[key] for key in COLUMNS if key in entry})
        placed, dev, notes = dict(entry), None, list[str]()
        if folder is not None:
            placed["test"] = str(self.data / folder)
        if spec.plain and self.wishes.limit is not None:
            placed["test_limit"] = self.wishes.limit
        for role, path in paths.items():
            assert path is not None
            if _stem(path) != _stem(Path(wanted[role])):
                notes.append(f"{name}: {path.relative_to(self.data)} takes the place of {wanted[role]}")
            found = _read(path, layout, name)
            rows = _made(found, spec, name, role)
            notes += [f"{name}: {note}" for note in rows.notes if note not in found.notes]
            if role == "file" and spec.plain:
                rows = plain_rows(rows)
            if role == "file":
                placed |= self._limited(name, rows, entry.get("limit"))
                if "test" not in entry:
                    self._check_folds(name, rows, study)
            if role == "dev" or spec.changes:
                file = self.place / ROWS / f"{name}-{role}.jsonl"
                columns = store_rows(rows, file)
                path = file
                if role != "dev":
                    placed = {key: value for key, value in placed.items() if key not in COLUMNS} | columns
            if role == "dev":
                dev = str(path)
            else:
                placed[role] = str(path)
        self.notes += notes
        return placed, dev

    def _limited(self, name: str, rows: Records, limit: int | None) -> Values:
        """How many rows are drawn; DataError where there are fewer than the table has."""
        if self.wishes.limit is not None:
            return {"limit": min(self.wishes.limit, len(rows))}
        needed = max(limit or 0, self.table.needs.get(name, 0))
        if len(rows) < needed:
            message = f"{name} is not run: there are {counted(len(rows), 'row')}, and the table has {needed:,}"
            remedy = f"Bring all of it: {self.paper.data[name].about}. Or look at less with --limit."
            raise DataError([Problem(rows.source, message, remedy)])
        return {}

    def _check_folds(self, name: str, rows: Records, study: Mapping[str, Any]) -> None:
        """Refuse so few rows that a class would be in one fold only; the other data sets can run without them."""
        wishes = self.wishes
        if wishes.limit is None:
            return
        try:
            for seed in wishes.seeds or study.get("seeds", StudyTable.seeds):
                drawn = rows.take(limit(rows, min(wishes.limit, len(rows)), seed=seed))
                folds(drawn, wishes.folds or study.get("folds", StudyTable.folds), seed=seed)
        except DataError as error:
            first = error.problems[0]
            message = f"{name} is not run with --limit {wishes.limit:,}: {first.message}"
            remedy = "Give a larger --limit, or fewer --folds."
            raise DataError([replace(first, where=rows.source, line=None, message=message, remedy=remedy)]) from error


def find_file(data: Path, paper: Paper, name: str) -> Path | None:
    """A file of the data by its name, in any format, or one that may take its place."""
    for each in (name, *paper.instead.get(name, ())):
        path = data / each
        if path.is_file():
            return path
        if path.parent.is_dir():
            same = (
                entry
                for entry in sorted(path.parent.iterdir())
                if entry.is_file() and format_of(entry) and _stem(entry) == _stem(path)
            )
            found = next(same, None)
            if found is not None:
                return found
    return None


def _read(path: Path, layout: Layout, name: str) -> Records:
    try:
        return read(str(path), layout)
    except DataError as error:
        first, more = error.problems[0], len(error.problems) - 1
        rest = f", and {counted(more, 'other problem')}" if more else ""
        message = f"{name} is not run: {first.message}{rest}"
        raise DataError([replace(first, message=message)]) from error


def _made(rows: Records, spec: DataSpec, name: str, role: str) -> Records:
    """The rows that the table has, of those of a file."""
    if spec.labels:
        unknown = [label for label in spec.labels if label not in (rows.labels or ())]
        if unknown:
            message = f"{name} is not run: no row has the label {unknown[0]!r}"
            raise DataError([Problem(rows.source, message, f"Bring all of it: {spec.about}.")])
        rows = rows.take(place for place, label in enumerate(rows.labels or ()) if label in spec.labels)
    if spec.relevant is not None:
        if rows.scores is None:
            raise DataError([Problem(rows.source, f"{name} is not run: its rows have no relevance", f"{spec.about}.")])
        rows = replace(rows, scores=[float(score >= spec.relevant) for score in rows.scores])
    if spec.positives:
        rows = replace(rows, labels=None, scores=None, queries=None, documents=None)
    if spec.consistent and role == "file":
        rows, wrong = without_contradictions(rows, invalid="drop")
        if wrong:
            raise DataError(wrong)
    return rows


def _edited(
    values: Values, entries: Sequence[Values], dev: str | None, table: PublishedTable, changes: Values, wishes: Wishes
) -> Values:
    """A study file with the data that is there, and with all wishes."""
    study = values["study"]
    if wishes.seeds is not None:
        study["seeds"] = wishes.seeds
    if wishes.folds is not None:
        study["folds"] = wishes.folds
    if wishes.limit is not None:
        study["rare"] = "keep"  # of few rows, few are of a rare class
    recipe: Values = values.get("recipe", {})
    for name, part in changes.get("recipe", {}).items():
        recipe[name] = {**recipe.get(name, {}), **part}
    encoder = encoder_of(table, wishes)
    if encoder is not None:
        recipe["encoder"] = {**recipe.get("encoder", {}), "name": encoder}
    if dev is not None:
        recipe["data"] = {**recipe.get("data", {}), "dev": dev}
    others = changes.get("contender", {})
    contenders = tuple(_tables({**each, **others.get(each["name"], {})}) for each in values["contender"])
    return {"study": study, "recipe": recipe, "data": tuple(entries), "contender": contenders}


def _tables(contender: Values) -> Values:
    """Stages as tables of their own, as people write them."""
    return {key: tuple(value) if isinstance(value, list) else value for key, value in contender.items()}


def encoder_of(table: PublishedTable, wishes: Wishes) -> str | None:
    """Whom a study names; a folder by its whole path, for paths in a study file count from its own folder."""
    if wishes.encoder is None:
        return None
    if wishes.encoder == OWN:
        return table.encoder
    return str(Path(wishes.encoder).absolute()) if Path(wishes.encoder).is_dir() else wishes.encoder


def settings_of(paper: Paper, settings: str) -> Values:
    """What settings of a paper change, by their name."""
    if settings == PUBLISHED:
        return {}
    if settings not in paper.settings:
        known = [PUBLISHED, *paper.settings]
        raise SettingError(
            f"{paper.name} has no settings {settings!r}; there are: {', '.join(known)}.{did_you_mean(settings, known)}"
        )
    return paper.settings[settings]


def store_rows(rows: Records, file: Path) -> dict[str, str]:
    """Write rows, and the folders they need; whoever reads them meanwhile has them whole. Returns their columns."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with atomic(file) as temporary:
            return write_rows(rows, temporary)
    except OSError as cause:
        raise OutputError(f"{file}: the rows cannot be written: {cause.strerror}. Choose another --out.") from cause


def write_text(file: Path, text: str) -> None:
    """Write a file, and the folders it needs."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(file, text)
    except OSError as cause:
        raise OutputError(f"{file}: this cannot be written: {cause.strerror}. Choose another --out.") from cause


def _stem(path: Path) -> str:
    return path.name.split(".")[0].lower()
