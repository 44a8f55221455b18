"""Published tables of studies, to be run again: their study files on the user's data, with the user's options."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from nearfar.data import Layout, Records, folds, limit, read, without_contradictions
from nearfar.errors import DataError, NearfarError, Problem, SettingError, counted, did_you_mean
from nearfar.experiments.published import DataSpec, PublishedTable, Values, study_values
from nearfar.experiments.published.table_data import ROWS, DataFolder, TableOptions, store_rows, write_text
from nearfar.experiments.rows import layout_of
from nearfar.experiments.study_schema import COLUMNS, LAYOUT, StudyTable
from nearfar.experiments.suites import plain_rows
from nearfar.recipe.writer import table_to_toml


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


def prepare(data: DataFolder, out: Path, options: TableOptions | None = None, *, place: Path | None = None) -> Prepared:
    """Write the study files of a table for the data that is there; raises DataError where none is.

    A data set with a dev file of its own becomes a study of its own. Rows are drawn from the files as they are; where a
    table has others (four of the classes, pairs without their grades), these are written beside the study files.

    Args:
        data: the paper, the table, and the data that is there.
        out: where the folders of the studies are.
        options: what is to be other than in the paper.
        place: where study files and rows are written; None for ``out``.
    """
    options = options or TableOptions()
    if options.epochs is not None:
        raise SettingError(
            "--epochs is for tables of several tasks; a study file has those of the paper. Leave it out."
        )
    place, changes = (place or out).absolute(), options.changes(data.paper)
    _check_sets(data.table, options.sets)
    studies, missing = list[Ready](), list[Problem]()
    for name in data.table.studies:
        groups: dict[str, list[Values]] = {}
        devs: dict[str, str] = {}
        values = study_values(name)
        for entry in values["data"]:
            if options.sets is not None and entry["name"] not in options.sets:
                continue
            try:
                placed, dev = _placed(data, entry, values["study"], place, options)
            except DataError as error:
                missing.extend(error.problems)
                continue
            stem = Path(name).stem
            if dev is not None:
                stem = stem if stem.endswith(f"-{entry['name']}") else f"{stem}-{entry['name']}"
                devs[stem] = dev
            groups.setdefault(stem, []).append(placed)
        for stem, entries in groups.items():
            edited = _edited(study_values(name), changes, options.encoder_of(data.table), options)
            edited["contender"], absent = _present(edited["contender"], options)
            data.notes += [note for note in absent if note not in data.notes]
            if stem in devs:
                edited["recipe"]["data"] = {**edited["recipe"].get("data", {}), "dev": devs[stem]}
            write_text(place / f"{stem}.toml", table_to_toml({**edited, "data": tuple(entries)}))
            studies.append(Ready(place / f"{stem}.toml", out / stem))
    if not studies:
        raise DataError(missing)
    return Prepared(tuple(studies), tuple(missing), tuple(data.notes))


def set_names(table: PublishedTable) -> list[str]:
    """The data sets of a table, by their names."""
    return list(dict.fromkeys(str(entry["name"]) for name in table.studies for entry in study_values(name)["data"]))


def _check_sets(table: PublishedTable, sets: tuple[str, ...] | None) -> None:
    known = set_names(table)
    for unknown in (name for name in sets or () if name not in known):
        raise SettingError(
            f"--sets: table {table.number} has no data set {unknown!r}; it has {', '.join(known)}."
            f"{did_you_mean(unknown, known)}"
        )


def _placed(
    data: DataFolder, entry: Values, study: Values, place: Path, options: TableOptions
) -> tuple[Values, str | None]:
    """The table of a data set with the user's files, and its dev file; DataError with what is needed."""
    name = str(entry["name"])
    spec = data.paper.data[name]
    files: dict[str, str] = {role: str(entry[role]) for role in ("file", "test", "corpus") if role in entry}
    folder = files.pop("test") if "suite" in entry else None
    if spec.dev is not None:
        files["dev"] = spec.dev
    remedy = "JSON Lines, CSV, TSV and Parquet are read, by the name before the dot."
    paths = data.find(name, files, "is not run", remedy)
    notes = data.substitutes(name, files, paths)
    layout = layout_of({key: entry[key] for key in LAYOUT if key in entry})
    placed, dev = dict(entry), None
    if folder is not None:
        placed["test"] = str(data.path / folder)
    if spec.plain and options.limit is not None:
        placed["test_limit"] = options.limit
    for role, path in paths.items():
        if role == "corpus":
            placed[role] = str(path)
            continue
        records = _read(path, layout, name)
        rows = _table_rows(records, spec, name, role)
        notes += [f"{name}: {note}" for note in rows.notes if note not in records.notes]
        if role == "file":
            rows = plain_rows(rows) if spec.plain else rows
            if options.limit is not None:
                placed["limit"] = min(options.limit, len(rows))
            else:
                data.check_size(name, rows, max(entry.get("limit", 0), data.table.needs.get(name, 0)), "is not run")
            if "test" not in entry:
                _check_folds(name, rows, study, options)
        if role == "dev" or spec.changes:
            path = place / ROWS / f"{name}-{role}.jsonl"
            columns = store_rows(rows, path)
            if role != "dev":
                placed = {key: value for key, value in placed.items() if key not in COLUMNS} | columns
        if role == "dev":
            dev = str(path)
        else:
            placed[role] = str(path)
    data.notes += notes
    return placed, dev


def _check_folds(name: str, rows: Records, study: Values, options: TableOptions) -> None:
    """Refuse so few rows that a class would be in one fold only; the other data sets can run without them."""
    if options.limit is None:
        return
    try:
        for seed in options.seeds or study.get("seeds", StudyTable.seeds):
            drawn = rows.take(limit(rows, min(options.limit, len(rows)), seed=seed))
            folds(drawn, options.folds or study.get("folds", StudyTable.folds), seed=seed)
    except DataError as error:
        first = error.problems[0]
        message = f"{name} is not run with --limit {options.limit:,}: {first.message}"
        remedy = "Give a larger --limit, or fewer --folds."
        raise DataError([replace(first, where=rows.source, line=None, message=message, remedy=remedy)]) from error


def _read(path: Path, layout: Layout, name: str) -> Records:
    try:
        return read(str(path), layout)
    except DataError as error:
        first, more = error.problems[0], len(error.problems) - 1
        rest = f", and {counted(more, 'other problem')}" if more else ""
        raise DataError([replace(first, message=f"{name} is not run: {first.message}{rest}")]) from error


def _table_rows(rows: Records, spec: DataSpec, name: str, role: str) -> Records:
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
        rows, problems = without_contradictions(rows, invalid="drop")
        if problems:
            raise DataError(problems)
    return rows


def _edited(values: Values, changes: Values, encoder: str | None, options: TableOptions) -> Values:
    """A study file with other settings, and with all options."""
    study, recipe = values["study"], values.get("recipe", {})
    if options.seeds is not None:
        study["seeds"] = options.seeds
    if options.folds is not None:
        study["folds"] = options.folds
    if options.limit is not None:
        study["rare"] = "keep"  # of few rows, few are of a rare class
    study |= changes.get("study", {})
    for name, part in changes.get("recipe", {}).items():
        recipe[name] = {**recipe.get(name, {}), **part}
    recipe["training"] = {**recipe.get("training", {}), "keep_untrained": False}  # papers choose among trained weights
    if encoder is not None:
        recipe["encoder"] = {**recipe.get("encoder", {}), "name": encoder}
    others, trained = changes.get("contender", {}), changes.get("trained", {})
    contenders = (
        {**each, **({} if "untrained" in each else trained), **others.get(each["name"], {})}
        for each in values["contender"]
    )
    tables = (
        {key: tuple(value) if isinstance(value, list) else value for key, value in each.items()} for each in contenders
    )
    return {"study": study, "recipe": recipe, "data": (), "contender": tuple(tables)}


def _present(contenders: tuple[Values, ...], options: TableOptions) -> tuple[tuple[Values, ...], list[str]]:
    """The contenders without those whose encoder cannot be had, and a note on each of these.

    That is an encoder that is not trained, and other than that of the table, such as a checkpoint of another paper.
    """
    kept, notes = list[Values](), list[str]()
    for each in contenders:
        if "untrained" in each and each["name"] in options.checkpoints:
            each = {**each, "encoder": {"name": options.checkpoints[each["name"]]}}
        name = each.get("encoder", {}).get("name") if "untrained" in each else None
        if name is None or name in options.checkpoints.values() or _can_open(name):
            kept.append(each)
        else:
            notes.append(
                f"not run: {each['name']}, for {name} is not on this machine; name a folder with --checkpoint "
                f"{each['name']}=FOLDER"
            )
    return tuple(kept), notes


@cache
def _can_open(name: str) -> bool:
    from nearfar.encoding.pretrained import find

    try:
        find(name)
    except NearfarError:
        return False
    return True
