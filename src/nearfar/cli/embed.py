"""``nearfar embed``: texts to a file of embeddings, with the memory of one window however long the file is."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nearfar.cli import options
from nearfar.errors import DataError, Interrupted, OutputError, counted

if TYPE_CHECKING:
    from nearfar.cli.progress import EmbeddingProgress
    from nearfar.cli.windows import Survey, Windows
    from nearfar.encoding import Model
    from nearfar.encoding.vectors import VectorFile

FILES_HELP = "For --out FOLDER/ also a folder or a pattern such as 'data/*.parquet', s3:// or gs://."
WINDOW = 8_192
"""Rows that are read, sorted by length, embedded and written together."""


def embed(
    model: options.Model,
    source: Annotated[str, typer.Argument(help=f"{options.DATA_HELP} {FILES_HELP}", metavar="FILE|FILES")],
    out: Annotated[
        str,
        typer.Option(
            "--out", help="A .npy file, or - for standard output; a folder for shards of many files: FOLDER/."
        ),
    ],
    text: options.Text = None,
    encoding: options.Encoding = None,
    invalid: options.Invalid = None,
    large: options.Large = False,
    batch_size: options.BatchSize = 64,
    device: options.Device = None,
    precision: options.Precision = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue the file of an interrupted run.")] = False,
    overwrite: options.Overwrite = False,
    form: Annotated[
        str, typer.Option("--format", metavar="parquet|npy", help="Of the shards in --out FOLDER/.")
    ] = "parquet",
    dtype: Annotated[
        str, typer.Option("--dtype", metavar="fp32|fp16|int8", help="How shards store the numbers of a vector.")
    ] = "fp32",
    ids: Annotated[str | None, typer.Option("--id", help="Column with the ids that shards keep; unset: id.")] = None,
    only: Annotated[bool, typer.Option("--only", help="Shards without the texts and ids.")] = False,
    rows_per_shard: options.RowsPerShard = 65_536,
    on: options.On = "local",
    address: options.Address = "auto",
    workers: options.Workers = None,
    threads: options.Threads = 1,
    gpus_per_worker: options.Gpus = 0,
) -> None:
    """Compute embeddings: a NumPy file with one float32 row per text, or a folder of shards.

    With --out FOLDER/ the input is one file or many (a folder, a pattern in quotes, s3:// or gs://). Shards are
    computed by one process for each core, or by a Ray cluster; the same command continues an interrupted run.
    """
    from nearfar.cli.shards import is_sharded, run_sharded

    if is_sharded(source, out):
        run_sharded(
            ("embed", model, source, out),
            {
                "text": text, "id": ids, "encoding": encoding, "invalid": invalid or "refuse", "large": large,
                "batch_size": batch_size, "device": device, "precision": precision, "dtype": dtype,
                "file_format": form, "only": only, "rows_per_shard": rows_per_shard,
            },
            (on, workers, address, threads, gpus_per_worker),
            overwrite=overwrite,
        )  # fmt: skip
        return
    from nearfar.cli.options import check_target, handling, open_console
    from nearfar.cli.windows import Windows
    from nearfar.data import Layout
    from nearfar.encoding import load
    from nearfar.encoding.predictor import form_of, predictor_of
    from nearfar.encoding.vectors import VectorFile, fingerprint, header
    from nearfar.files import part_of, progress_of

    options.use_device(device)
    options.use_precision(precision)
    choice = handling(invalid)
    target = None if out == "-" else Path(out)
    if resume and target is None:
        raise OutputError("--resume continues a file, and --out - is none; leave --resume out, or name a file.")
    if target is not None:
        if resume and not overwrite and target.is_file() and not part_of(target).exists():
            progress_of(target).unlink(missing_ok=True)
            _print(f"{out}: the file is complete; there is nothing to resume. Replace it with --overwrite.")
            return
        check_target(out, overwrite=overwrite)
    loaded = options.prepared(load(model))
    rows = Windows(source, Layout(text=text, encoding=encoding, large=large), invalid=choice, size=WINDOW)
    console = open_console(stderr=True)
    with console.status("checking the rows") if console.is_terminal else nullcontext():
        survey = rows.survey()
    predictor_of(loaded).check(survey.first)  # refuses single texts for a model of pairs before the work
    for note in survey.notes:
        _print(f"note: {source}: {note}")
    shape = (survey.rows, loaded.model.dim)
    if target is None:
        sys.stdout.buffer.write(header(shape))
        _embed_windows(loaded, rows, survey, batch_size, 0, _to_standard_output)
        sys.stdout.buffer.flush()
        return
    made = fingerprint(loaded)
    made["settings"] = " ".join((made["settings"], *form_of(loaded)))
    origin = {**made, "rows": survey.rows, "texts": survey.digest, "window": WINDOW}
    with VectorFile(target, shape, origin) as vectors:
        note_on_earlier_run = _earlier_run(vectors, resume=resume)
        start = vectors.open(resume=resume)
        if note_on_earlier_run:
            _print(note_on_earlier_run)
        try:
            _embed_windows(loaded, rows, survey, batch_size, start, vectors.append)
        except KeyboardInterrupt:
            message = f"stopped after {vectors.done:,} of {counted(survey.rows, 'text')}; continue with --resume."
            raise Interrupted(message) from None
        except DataError:  # the source has changed, so some of the embeddings may be of other texts
            vectors.discard()
            raise
        vectors.finish()
    _print(f"{counted(shape[0], 'vector')} of {shape[1]} numbers in {out}")


def _earlier_run(vectors: VectorFile, *, resume: bool) -> str | None:
    """What to report of an earlier run that did not finish."""
    left = vectors.unfinished()
    if resume:
        if left is None:
            return "note: there is nothing to resume; starting at the beginning"
        return f"resuming after {left.done:,} of {counted(left.rows, 'text')}"
    if left is None or not left.done:
        return None
    if left.changed:
        return f"note: the unfinished vectors of another run in {vectors.part.name} are replaced"
    return (
        f"note: starting again, though {left.done:,} of {counted(left.rows, 'vector')} were in {vectors.part.name}; "
        "--resume would have continued"
    )


def _embed_windows(
    model: Model, rows: Windows, survey: Survey, batch_size: int, start: int, write: Callable[[Any], None]
) -> None:
    """Embed all rows from ``start`` on, window by window."""
    from nearfar.cli.progress import EmbeddingProgress
    from nearfar.encoding.predictor import predictor_of

    done, reader = 0, predictor_of(model)
    with EmbeddingProgress(survey.rows, start) as progress, _moved_by_batches(progress, model):
        for window in rows.again(survey):
            done += len(window)
            if start < done and len(window):
                write(model.embed(reader.texts(window.texts), batch_size=batch_size))
                progress.reach(done)


def _to_standard_output(vectors: Any) -> None:
    import numpy as np

    from nearfar.encoding.vectors import DTYPE

    sys.stdout.buffer.write(np.ascontiguousarray(vectors, dtype=DTYPE).data)


@contextmanager
def _moved_by_batches(progress: EmbeddingProgress, model: Model) -> Iterator[None]:
    """Every batch moves the bar: a window may take a slow encoder minutes."""
    handle = model.model.register_forward_hook(lambda _model, _inputs, output: progress.add(len(output.embedding)))
    try:
        yield
    finally:
        handle.remove()


def _print(text: str) -> None:
    sys.stderr.write(f"{text}\n")
