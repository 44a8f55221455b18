"""Many files to many shards: plan, compute what is missing, and write the manifest."""

from __future__ import annotations

import hashlib
import json
import os
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from threading import Event, Thread
from typing import Any

import nearfar
from nearfar.data import Layout
from nearfar.data.table import bind
from nearfar.data.values import Issues
from nearfar.encoding import Model, load
from nearfar.encoding.devices import choose_device
from nearfar.encoding.digests import folder_digest
from nearfar.encoding.formats import PRECISIONS, use_precision
from nearfar.encoding.predictor import open_predictor, predictor_of
from nearfar.encoding.task_model import is_task_model
from nearfar.encoding.vectors import fingerprint
from nearfar.errors import (
    DataError,
    Interrupted,
    NearfarError,
    OutputError,
    Problem,
    SettingError,
    counted,
    did_you_mean,
)
from nearfar.files import FolderClaim, check_writable
from nearfar.recipe.training_texts import training_texts
from nearfar.shards.executors import Executor, Session
from nearfar.shards.inputs import columns_of_file, known_format, ranges_of
from nearfar.shards.manifest import DONE, NAME, Kind, Manifest, Result, Shard, finished, read_manifest
from nearfar.shards.storage import TEMPORARY, Entry, Storage, expand
from nearfar.shards.vectors import DTYPES, FILE_FORMATS
from nearfar.shards.work import Failure, Job, Work, compute, packed

ROWS = 65_536
"""Rows of a shard."""
SMALL = 1_000
"""Rows for which no further processes are started, unless they are asked for."""
RUNNING = "running.json"
BEAT = 10.0
"""Seconds between two signs of life of a run, where a folder has no locks."""
IDS = ("id", "doc_id", "docid", "document_id", "passage_id", "_id")
Report = Callable[[int, int], None]
"""Takes the rows that are done, and all rows."""


@dataclass(frozen=True)
class Options:
    """How files are embedded or predicted; the results depend on them."""

    text: str | None = None
    """The column with the text; None: it is recognized."""
    pair: str | None = None
    """The column with the second text of a pair."""
    id: str | None = None
    """The column with the ids, kept beside the vectors; None for the usual names."""
    encoding: str | None = None
    invalid: str = "refuse"
    large: bool = False
    batch_size: int = 64
    precision: str | None = None
    device: str | None = None
    dtype: str = "fp32"
    """How vectors are stored: fp32, fp16 or int8."""
    file_format: str | None = None
    """parquet or npy for vectors, jsonl or parquet for predictions."""
    rows_per_shard: int = ROWS
    only: bool = False
    """Whether texts and ids are left out."""
    task: str | None = None
    top: int | None = None
    min_probability: float = 0.0
    reject: float | None = None

    def checked(self, kind: Kind) -> Options:
        """The options with the format of the files; refuses what does not fit."""
        formats = FILE_FORMATS if kind == "embed" else ("jsonl", "parquet")
        form = self.file_format or formats[0]
        for name, value, known in (
            ("dtype", self.dtype, DTYPES),
            ("format", form, formats),
            ("precision", self.precision, (None, *PRECISIONS)),
            ("invalid", self.invalid, ("refuse", "drop")),
        ):
            if value not in known:
                listed = [str(each) for each in known if each is not None]
                raise SettingError(
                    f"{name} is one of {', '.join(listed)}, got {value!r}.{did_you_mean(str(value), listed)}"
                )
        for name, number in (("rows_per_shard", self.rows_per_shard), ("batch_size", self.batch_size)):
            if number < 1:
                raise SettingError(f"{name} must be 1 or more, got {number}.")
        return replace(self, file_format=form)

    @property
    def layout(self) -> Layout:
        """How the files are read."""
        return Layout(self.text, self.pair, encoding=self.encoding, large=self.large)


@dataclass(frozen=True)
class Outcome:
    """What a run has computed."""

    manifest: Manifest
    computed: int
    """Shards that this run has computed; the others were there."""


def run_files(
    kind: Kind,
    model: str,
    sources: Sequence[str],
    out: str,
    options: Options,
    executor: Executor,
    *,
    overwrite: bool = False,
    report: Report | None = None,
) -> Outcome:
    """Compute all shards of some files that are not there yet.

    Args:
        kind: ``"embed"`` or ``"predict"``.
        model: a model folder, or the name of an encoder.
        sources: files, folders and patterns, on disks or in object stores.
        out: the folder of the shards.
        options: how.
        executor: where.
        overwrite: start again where the folder has another run.
        report: follows the run.
    """
    options = options.checked(kind)
    inputs = expand(sources)
    for entry in inputs:
        known_format(entry.name)
    place = Storage(out)
    _refuse_other_folder(place)
    with executor.session() as session, alone(place):
        work = _work(kind, model, inputs, out, options, executor, travels=session.travels)
        manifest, results = _planned(work, inputs, place, options, overwrite=overwrite)
        return _filled(work, manifest, results, session, report or (lambda _done, _all: None))


def _work(
    kind: Kind, name: str, inputs: Sequence[Entry], out: str, options: Options, executor: Executor, *, travels: bool
) -> Work:
    """The model and all settings that the results depend on."""
    gpus = getattr(executor, "gpus", 0)
    device = options.device or ("cuda" if travels and gpus else "cpu" if travels else str(choose_device(None)))
    model = load(name, device="cpu" if travels else device)
    form = use_precision(model, options.precision, own_texts=training_texts).form  # type: ignore[arg-type]  # it was checked
    predictor = _predictor(kind, name, model, options)
    layout = options.layout
    texts, ids = _columns(inputs[0].name, layout, options)
    if (len(texts) == 2) != predictor.paired:
        wanted = "pairs of texts" if predictor.paired else "single texts"
        remedy = "Name both columns: --text and --pair." if predictor.paired else "Name the column to read: --text."
        raise DataError(Problem(inputs[0].name, f"the model reads {wanted}, and the file has {len(texts)}", remedy))
    common = ("batch_size", "rows_per_shard", "file_format", "invalid", "only", "encoding")
    own = ("dtype",) if kind == "embed" else ("task", "top", "min_probability", "reject")
    settings = {key: value for key, value in asdict(options).items() if key in (*common, *own)}
    settings |= {"precision": form, "device": device, "threads": executor.threads, "dim": model.model.dim}
    settings |= {"texts": list(texts), "id": ids if kind == "embed" and not options.only else None}
    digests = fingerprint(model) | ({"folder": folder_digest(Path(name))} if kind == "predict" else {})
    return Work(out, kind, name, digests, settings, layout)


def _predictor(kind: Kind, name: str, model: Model, options: Options) -> Any:
    if kind == "embed":
        return predictor_of(model)
    if options.task is None and not is_task_model(model.card):
        predictor = predictor_of(model)
        if not model.predicts_scores and model.labels is None:
            raise SettingError("this model has no class head, so it predicts no labels; it embeds texts.")
    else:
        predictor = open_predictor(name, options.task, device="cpu")
    predictor.check_reject(options.reject)
    return predictor


def _columns(name: str, layout: Layout, options: Options) -> tuple[tuple[str, ...], str | None]:
    """The columns of the texts and of the ids, by the first file."""
    columns = columns_of_file(name, layout)
    issues = Issues(name)
    binding = bind(columns, layout, "text", issues)
    if binding is None:
        raise DataError(issues.problems)
    if options.id is not None and options.id not in columns:
        known = ", ".join(map(repr, columns[:20]))
        raise DataError(Problem(name, f"there is no column {options.id!r} among {known}", "Set --id to one of them."))
    usual = next((column for column in columns if column.strip().lower() in IDS and column not in binding.texts), None)
    return binding.texts, options.id or usual


def _planned(
    work: Work, inputs: Sequence[Entry], place: Storage, options: Options, *, overwrite: bool
) -> tuple[Manifest, dict[int, Result]]:
    """The manifest of the run and the shards that are done: of the folder if it is the same run, else a new one."""
    before = None if overwrite else read_manifest(place)
    new = Manifest(work.kind, nearfar.__version__, work.digests, work.settings, inputs, ())
    if before is not None:
        new = replace(new, shards=before.shards)
        new.check(before, place)
        return new, finished(place, new, before.results)
    with ThreadPoolExecutor(8) as pool:
        ranges = list(pool.map(lambda entry: ranges_of(entry.name, options.rows_per_shard, work.layout), inputs))
    shards = [Shard(number, part) for number, parts in enumerate(ranges) for part in parts]
    if not shards:
        raise DataError(Problem(inputs[0].name, "there are no rows in the files", "Name files that have rows."))
    if overwrite:
        _clear(place)
    new = replace(new, shards=shards)
    new.write(place)
    return new, {}


def _filled(work: Work, manifest: Manifest, results: dict[int, Result], session: Session, report: Report) -> Outcome:
    """Compute the shards that are missing, and write the manifest of all."""
    place = Storage(work.out)
    rows = [shard.rows.count for shard in manifest.shards]
    total, done = sum(rows), sum(rows[number] for number in results)
    jobs = {
        number: Job(number, manifest.stem(number), manifest.input_of(number), shard)
        for number, shard in enumerate(manifest.shards)
        if number not in results
    }
    report(done, total)
    failures: dict[int, Failure] = {}
    if jobs:
        try:
            small = sum(rows[number] for number in jobs) < SMALL
            for number, result in session.run(compute, _shared(work, session), jobs, small=small):
                if isinstance(result, Failure):
                    failures[number] = result
                    if result.final:
                        break
                else:
                    results[number] = result
                    done += rows[number]
                    report(done, total)
        except KeyboardInterrupt:
            raise Interrupted(f"stopped: {_state(results, manifest)}; give the same command again.") from None
    if failures:
        raise _failed(failures, results, manifest, place)
    every = [results[number] for number in range(len(manifest.shards))]
    whole = replace(manifest, results=every)
    before = read_manifest(place)
    if before is None or jobs or not before.complete:
        whole.write(place)
    _tidy(place)
    return Outcome(whole, len(jobs))


def _shared(work: Work, session: Session) -> Work:
    """The work with the files of the model, where it leaves this machine."""
    files = packed(work.model) if session.travels else None
    if files is None:
        return work
    digest = hashlib.sha256(
        "".join(f"{name} {hashlib.sha256(piece).hexdigest()}" for name, piece in files.items()).encode()
    )
    return replace(work, parcel=(digest.hexdigest(), session.share(files)))


def _state(results: Mapping[int, Result], manifest: Manifest) -> str:
    return f"{len(results):,} of {counted(len(manifest.shards), 'shard')} are done"


def _failed(
    failures: Mapping[int, Failure], results: Mapping[int, Result], manifest: Manifest, place: Storage
) -> NearfarError:
    """The error of a run some of whose shards could not be computed."""
    messages = list(dict.fromkeys(failure.message for failure in failures.values()))
    more = f"\n... and {counted(len(messages) - 5, 'more error')}" if len(messages) > 5 else ""
    text = "\n".join(messages[:5]) + more
    if any(failure.final for failure in failures.values()):
        return OutputError(text)
    kept = f"{_state(results, manifest)} in {place.name} and stay there"
    return NearfarError(f"{text}\n{kept}. With --invalid drop the same command leaves out rows that cannot be used.")


def _refuse_other_folder(place: Storage) -> None:
    """Refuse a folder that has something else than shards, and a file."""
    if place.entry() is not None:
        raise OutputError(f"{place.name}: this is a file; give a folder for the shards.")
    if (place / NAME).entry() is None:
        others = [name for name in place.listing() if not name.startswith((TEMPORARY, RUNNING))]
        if others:
            raise OutputError(
                f"{place.name}: the folder is not empty, and has something else than shards ({others[0]}). Choose "
                "another --out."
            )


def _clear(place: Storage) -> None:
    """Remove all files of an earlier run; the manifest first, so that what is left is no run."""
    (place / NAME).delete()
    for name in place.listing(recursive=True):
        if name.startswith((DONE, "shard-", TEMPORARY)):
            (place / name).delete()


def _tidy(place: Storage) -> None:
    """Remove what a finished run does not need."""
    for name in place.listing(recursive=True):
        if name.startswith(f"{DONE}/") or Path(name).name.startswith(TEMPORARY):
            (place / name).delete()
    if place.local:
        with suppress(OSError):
            (Path(place.path) / DONE).rmdir()


@contextmanager
def alone(place: Storage) -> Iterator[None]:
    """Keep other runs out of a folder: by a lock on a disk, by a sign of life in an object store."""
    message = "another run is filling this folder. Let it finish, or choose another --out."
    if place.local:
        place.make_folder()
        claim = FolderClaim(Path(place.path), message)
        claim.take()
        try:
            check_writable(Path(place.path), Path(place.path))
            yield
        finally:
            claim.close()
        return
    sign = place / RUNNING
    entry = sign.entry()
    age = None if entry is None else time.time() - entry.modified / 1e9
    if age is not None and age < 3 * BEAT:
        raise OutputError(f"{place.name}: {message} If it was killed, try again in {3 * BEAT - age:.0f} s.")
    ended = Event()

    def beat() -> None:
        content = json.dumps({"host": socket.gethostname(), "process": os.getpid()}).encode()
        while True:
            with suppress(NearfarError):
                sign.write(content)
            if ended.wait(BEAT):
                return

    thread = Thread(target=beat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        sign.delete()
