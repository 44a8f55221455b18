"""One shard, in whichever process: read its rows, compute, write its files, and record that it is done."""

from __future__ import annotations

import ctypes
import hashlib
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

import nearfar
from nearfar.data import Layout, Records
from nearfar.data.table import Table, check_rows
from nearfar.data.values import Issues, is_text
from nearfar.data.writers import encoded
from nearfar.encoding import Model
from nearfar.encoding.formats import use_precision
from nearfar.encoding.predictor import Predictor, open_predictor
from nearfar.encoding.vectors import fingerprint
from nearfar.errors import DataError, NearfarError, OutputError, SettingError
from nearfar.shards.executors import fetched, node_name
from nearfar.shards.inputs import Window, columns_of_file, windows_of_range
from nearfar.shards.manifest import NAME, Kind, Result, Shard, record
from nearfar.shards.prediction_fields import REASON, Fields
from nearfar.shards.storage import Entry, Storage
from nearfar.shards.vectors import shard_files

WINDOW = 8_192
"""Rows of a shard that are computed together."""
RELEASED = 65_536
"""Rows after which memory is returned to the system, so that small shards do not return it every time."""


@dataclass(frozen=True)
class Work:
    """What all shards of a run have in common."""

    out: str
    kind: Kind
    model: str
    """A folder, or the name of an encoder."""
    digests: Mapping[str, str]
    settings: Mapping[str, Any]
    layout: Layout
    version: str = field(default_factory=lambda: nearfar.__version__)
    parcel: Any = None
    """The files of the model, where they travel to other machines."""


@dataclass(frozen=True)
class Job:
    """One shard."""

    number: int
    stem: str
    entry: Entry
    shard: Shard


@dataclass(frozen=True)
class Failure:
    """Why a shard could not be computed."""

    message: str
    final: bool
    """Whether the other shards would fail for the same reason."""


def compute(work: Work, job: Job) -> Result | Failure:
    """Compute a shard, and write its files; errors of nearfar are returned, as they must pass between machines."""
    try:
        if work.version != nearfar.__version__:
            raise SettingError(
                f"{node_name()} has nearfar {nearfar.__version__}, and the run was begun by {work.version}: install "
                "the same version on all nodes."
            )
        out = Storage(work.out)
        if out.local and not (out / NAME).entry():
            raise OutputError(
                f"{work.out}: this folder of the run is not there on {node_name()}: choose an --out that all nodes "
                "share, such as a network disk or s3://BUCKET/FOLDER."
            )
        content, result = (_embedded if work.kind == "embed" else _predicted)(work, job)
        for name, piece in content.items():
            (out / name).write(piece)
        record(out, job.stem, result)
        del content
        _held.rows += result.rows
        if _held.rows >= RELEASED:
            _held.rows = 0
            _release_memory()
        return result
    except DataError as error:
        return Failure(str(error), final=False)
    except NearfarError as error:
        return Failure(str(error), final=True)


@dataclass
class _Held:
    rows: int = 0
    """Computed since memory was returned to the system."""


_held = _Held()


def _release_memory() -> None:
    """Return what shards have used to the system: else memory grows a little with every shard."""
    import pyarrow as pa

    pa.default_memory_pool().release_unused()
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):  # another C library
            ctypes.CDLL(None).malloc_trim(0)


def _embedded(work: Work, job: Job) -> tuple[dict[str, bytes], Result]:
    settings = work.settings
    model, reader = opened(work)
    names = [*settings["texts"], *([settings["id"]] if settings["id"] else [])]
    kept: dict[str, list[object]] = {"row": []}
    if not settings["only"]:
        kept |= {name: [] for name in ("id",) * bool(settings["id"]) + ("text", "text_b")[: len(settings["texts"])]}
    vectors: list[np.ndarray[Any, Any]] = [np.zeros((0, settings["dim"]), dtype=np.float32)]
    dropped: list[int] = []
    for window, table in _windows(work, job, names):
        records = _records(table, dropped)
        if len(records):
            vectors.append(model.embed(reader.texts(records.texts), batch_size=settings["batch_size"]))
        kept["row"] += records.lines
        for name, column in zip(("text", "text_b"), records.texts, strict=False):
            if name in kept:
                kept[name] += column
        if "id" in kept:
            ids = dict(zip(window.lines, window.column(settings["id"]), strict=True))
            kept["id"] += [None if ids[line] is None else str(ids[line]) for line in records.lines]
    every = np.concatenate(vectors)
    files = shard_files(job.stem, every, settings["dtype"], settings["file_format"], kept)
    return files, Result(len(every), _described(files), dropped)


def _predicted(work: Work, job: Job) -> tuple[dict[str, bytes], Result]:
    settings = work.settings
    predictor = opened(work)[1]
    flat = settings["file_format"] == "parquet"
    only, top, least, reject = (settings[name] for name in ("only", "top", "min_probability", "reject"))
    columns = columns_of_file(job.entry.name, work.layout)
    fields = Fields(only=only, top=top, least=least, reject=reject).beside(columns, flat=flat, reasons=flat)
    lines: list[dict[str, object]] = []
    names: dict[str, None] = dict.fromkeys(() if only else columns)
    dropped: list[int] = []
    for window, table in _windows(work, job, None):
        records = _records(table, dropped)
        answers = (
            predictor.predict(records.texts, batch_size=settings["batch_size"], typicality=reject is not None)
            if len(records)
            else []
        )
        predicted = dict(zip(records.lines, map(fields.of, answers), strict=True))
        reasons = {problem.line: problem.message for problem in table.rows.problems}
        for line, values in window.rows:
            missing = {fields.name(REASON): reasons.get(line, "cannot be used")}
            lines.append(({} if only else dict(values)) | predicted.get(line, missing))
    for line_values in lines:
        names |= dict.fromkeys(line_values)
    names |= dict.fromkeys([fields.name(REASON)] if flat else [])
    ending = {"parquet": ".parquet", "jsonl": ".jsonl"}[settings["file_format"]]
    files = {f"{job.stem}{ending}": encoded(ending, list(names), lines)}
    return files, Result(len(lines), _described(files), dropped)


def _windows(work: Work, job: Job, columns: Sequence[str] | None) -> Iterator[tuple[Window, Table]]:
    """The rows of a shard, some at a time, with the checked texts; raises DataError where they cannot be used."""
    name, settings = job.entry.name, work.settings
    _refuse_changed(job.entry)
    texts = settings["texts"]
    text, pair = (*texts, None)[:2]
    plain = Layout(text, pair, max_chars=work.layout.max_chars, large=work.layout.large)
    issues = Issues(name)
    bad: list[Any] = []
    for window in windows_of_range(name, job.shard.rows, work.layout, issues, columns, WINDOW):
        chosen = [window.column(text) for text in texts]
        table = _usual(name, window.lines, chosen, plain.limits.line or sys.maxsize)
        if table is None:
            rows = (dict(zip(texts, values, strict=True)) for values in zip(*chosen, strict=True))
            table = check_rows(name, zip(window.lines, rows, strict=True), plain, "text", issues)
        if settings["invalid"] == "refuse":
            bad += table.rows.problems
        if not bad and not issues.problems:
            yield window, table
    if bad or issues.problems:
        raise DataError(sorted([*issues.problems, *bad], key=lambda each: each.line or 0))
    _refuse_changed(job.entry)


def _usual(name: str, lines: Sequence[int], columns: Sequence[Sequence[Any]], longest: int) -> Table | None:
    """What :func:`check_rows` gives for rows all of which can be used, in a fifth of the time; None for others."""
    if not all(is_text(value) and len(value) <= longest for column in columns for value in column):
        return None
    return Table(Issues(name), Issues(name), len(lines), records=Records(tuple(columns), None, None, lines, name))


def _records(table: Table, dropped: list[int]) -> Records:
    """The valid rows of a window; the lines of the others are added to ``dropped``."""
    assert table.records is not None
    dropped += sorted(line for lines in table.dropped.values() for line in lines)
    return table.records


def _refuse_changed(entry: Entry) -> None:
    now = Storage(entry.name).entry()
    if now != entry:
        what = "it is gone" if now is None else "it has changed since the run began"
        remedy = "Restore it and give the same command again, or start again with --overwrite."
        raise Storage(entry.name).problem(what, remedy)


def _described(files: Mapping[str, bytes]) -> dict[str, dict[str, Any]]:
    return {name: {"bytes": len(piece), "sha256": hashlib.sha256(piece).hexdigest()} for name, piece in files.items()}


def opened(work: Work) -> tuple[Model, Predictor]:
    """The model of a run and its predictor, opened once in a process; refuses one with other weights."""
    import torch

    settings = work.settings
    if torch.get_num_threads() != settings["threads"]:
        torch.set_num_threads(settings["threads"])
    place = work.model if work.parcel is None else _unpacked(*work.parcel)
    return _open(place, settings["precision"], settings["device"], settings.get("task"), tuple(work.digests.items()))


@lru_cache(maxsize=1)
def _open(
    place: str, precision: Any, device: str, task: str | None, digests: tuple[tuple[str, str], ...]
) -> tuple[Model, Predictor]:
    models: list[Model] = []

    def prepare(model: Model) -> Model:
        if not fingerprint(model).items() <= dict(digests).items():
            raise SettingError(
                f"{place}: the model on {node_name()} is another than that of the run, although it has the same name; "
                "copy the model folder to all nodes."
            )
        use_precision(model, precision)
        models.append(model)
        return model

    predictor = open_predictor(place, task, prepare=prepare, device=device)
    return models[0], predictor


def packed(name: str) -> dict[str, bytes] | None:
    """The files of a model folder, to be sent to other machines; None for the name of an encoder."""
    folder = Path(name)
    if not folder.is_dir():
        return None
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@lru_cache(maxsize=1)
def _unpacked(digest: str, parcel: Any) -> str:
    """The folder of this machine with the files of a model; made once."""
    user = os.getuid() if hasattr(os, "getuid") else 0
    place = Path(tempfile.gettempdir()) / f"nearfar-model-{user}-{digest[:16]}"
    if not place.is_dir():
        whole = Path(tempfile.mkdtemp(prefix="nearfar-model-"))
        for name, content in fetched(parcel).items():
            (whole / name).parent.mkdir(parents=True, exist_ok=True)
            (whole / name).write_bytes(content)
        try:
            os.rename(whole, place)
        except OSError:  # another process was first
            return str(place if place.is_dir() else whole)
    return str(place)
