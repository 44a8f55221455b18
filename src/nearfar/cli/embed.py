"""``nearfar embed``: texts to a file of vectors, in the memory of one window however long the file is."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from nearfar.cli.predict import check_target, handling, texts_for
from nearfar.cli.windows import Survey, Windows
from nearfar.data import Layout
from nearfar.encoding import Model, load
from nearfar.encoding.vectors import DTYPE, VectorFile, account_of, fingerprint, header, part_of
from nearfar.errors import DataError, Interrupted, OutputError, counted
from nearfar.training.progress import LINES, duration

WINDOW = 8_192
"""Rows that are read, sorted by length, embedded and written together."""


def embed_command(
    model_name: str,
    source: str,
    out: str,
    layout: Layout,
    invalid: str | None,
    batch_size: int,
    *,
    resume: bool,
    overwrite: bool,
) -> None:
    """Write one vector a row, as .npy: first a pass that only checks and counts, then one that embeds."""
    choice = handling(invalid)
    target = None if out == "-" else Path(out)
    if resume and target is None:
        raise OutputError("--resume continues a file, and --out - is none; leave --resume out, or name a file.")
    if target is not None:
        if resume and not overwrite and target.is_file() and not part_of(target).exists():
            account_of(target).unlink(missing_ok=True)
            _say(f"{out}: the file is whole; there is nothing to resume. Replace it with --overwrite.")
            return
        check_target(out, overwrite=overwrite)
    model = load(model_name)
    rows = Windows(source, layout, invalid=choice, size=WINDOW)
    survey = _survey(rows)
    texts_for(survey.first, model)  # single texts where the model reads pairs are refused now
    for note in survey.notes:
        _say(f"note: {source}: {note}")
    shape = (survey.rows, model.model.dim)
    if target is None:
        sys.stdout.buffer.write(header(shape))
        _embed(model, rows, survey, batch_size, 0, _to_standard_output)
        sys.stdout.buffer.flush()
        return
    origin = {**fingerprint(model), "rows": survey.rows, "texts": survey.digest, "window": WINDOW}
    with VectorFile(target, shape, origin) as vectors:
        about = _about(vectors, resume=resume)
        start = vectors.open(resume=resume)
        if about:
            _say(about)
        try:
            _embed(model, rows, survey, batch_size, start, vectors.append)
        except KeyboardInterrupt:
            raise Interrupted(
                f"stopped after {vectors.done:,} of {counted(survey.rows, 'text')}; continue with --resume."
            ) from None
        except DataError:  # the source is no longer what it was, so some of the vectors may be of other texts
            vectors.discard()
            raise
        vectors.finish()
    _say(f"{counted(shape[0], 'vector')} of {shape[1]} numbers in {out}")


def _survey(rows: Windows) -> Survey:
    console = Console(stderr=True)
    if not console.is_terminal:
        return rows.survey()
    with console.status("checking the rows"):
        return rows.survey()


def _about(vectors: VectorFile, *, resume: bool) -> str | None:
    """What to say of an earlier run that did not finish."""
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
        f"note: starting anew, though {left.done:,} of {counted(left.rows, 'vector')} were in {vectors.part.name}; "
        "--resume would have continued"
    )


def _embed(
    model: Model,
    rows: Windows,
    survey: Survey,
    batch_size: int,
    start: int,
    write: Callable[[NDArray[np.float32]], None],
) -> None:
    """Embed all rows from ``start`` on, window by window."""
    done = 0
    with _progress(survey.rows, start) as progress, _watched(model, progress):
        for window in rows.again(survey):
            done += len(window)
            if start < done and len(window):
                write(model.embed(texts_for(window, model), batch_size=batch_size))
                progress.reach(done)


def _to_standard_output(vectors: NDArray[np.float32]) -> None:
    sys.stdout.buffer.write(np.ascontiguousarray(vectors, dtype=DTYPE).data)


@contextmanager
def _watched(model: Model, progress: Bar | Lines) -> Iterator[None]:
    """Every batch moves the bar; a window of an encoder that is slow would hold it for minutes."""
    handle = model.model.register_forward_hook(lambda _model, _inputs, output: progress.add(len(output.embedding)))
    try:
        yield
    finally:
        handle.remove()


@contextmanager
def _progress(rows: int, start: int) -> Iterator[Bar | Lines]:
    console = Console(stderr=True)
    progress = Bar(console, rows, start) if console.is_terminal else Lines(rows, start)
    try:
        yield progress
    finally:
        progress.close()


class Pace:
    """How fast the texts of this process go, and how long the others will take."""

    def __init__(self, rows: int, start: int) -> None:
        self.rows = rows
        self.start = start
        self.began = time.perf_counter()

    def words(self, done: int) -> tuple[str, str]:
        """Texts a second, time left."""
        speed = (done - self.start) / max(time.perf_counter() - self.began, 1e-9)
        return f"{speed:,.0f}", duration((self.rows - done) / speed) if speed else "-"


class Bar:
    """A live bar, for a terminal."""

    def __init__(self, console: Console, rows: int, start: int) -> None:
        self.done = start
        self.pace = Pace(rows, start)
        self.bar = Progress(
            TextColumn("embedding"), BarColumn(), MofNCompleteColumn(),
            TextColumn("{task.fields[speed]} texts/s  {task.fields[left]} left"), console=console,
        )  # fmt: skip
        self.task = self.bar.add_task("", total=rows, completed=start, speed="-", left="-")
        self.bar.start()

    def add(self, texts: int) -> None:
        """So many more are computed."""
        self.reach(self.done + texts)

    def reach(self, done: int) -> None:
        """So many are written."""
        self.done = done
        speed, left = self.pace.words(done)
        self.bar.update(self.task, completed=done, speed=speed, left=left)

    def close(self) -> None:
        """Leave the bar as it is and give the terminal back."""
        self.bar.stop()


class Lines:
    """A line now and then, for files and pipes; none when the first would be the last."""

    def __init__(self, rows: int, start: int) -> None:
        self.rows = rows
        self.pace = Pace(rows, start)
        self.last = start

    def add(self, texts: int) -> None:
        """Lines tell only of what is written."""

    def reach(self, done: int) -> None:
        """So many are written."""
        if done - self.last >= self.rows / LINES and done < self.rows:
            self.last = done
            speed, left = self.pace.words(done)
            _say(f"{done:,}/{self.rows:,} texts  {speed} texts/s  {left} left")

    def close(self) -> None:
        """Nothing is left to do."""


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")
