"""``nearfar report``: a study or a run as a page, or as a table for a paper."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nearfar.cli import options
from nearfar.errors import OutputError, SettingError, did_you_mean
from nearfar.files import unwritable, write_atomic

if TYPE_CHECKING:
    from nearfar.data import Layout
    from nearfar.report import Source

PAGE = "report.html"
ENDINGS = {".md": "markdown", ".csv": "csv", ".tex": "latex"}
"""The format by the ending of the file, where --format is not given."""


def report(
    folder: Annotated[str, typer.Argument(help="The folder of a study, or of a trained model.", metavar="STUDY|MODEL")],
    out: Annotated[
        str | None, typer.Option("--out", help="A file, or - for standard output; unset: report.html, tables to -.")
    ] = None,
    form: Annotated[
        str | None,
        typer.Option(
            "--format",
            metavar="html|markdown|csv|latex",
            help="The page, or the table for a paper; unset: by the suffix of --out (.md, .csv, .tex), else html.",
        ),
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(
            "--data",
            metavar="FILE",
            help="For a model: labeled rows to predict and map; for an encoder: texts or pairs to measure.",
        ),
    ] = None,
    task: Annotated[
        str | None, typer.Option("--task", help="For a model of several tasks: the task of --data.")
    ] = None,
    text: options.Text = None,
    pair: options.Pair = None,
    label: options.Label = None,
    score: options.Score = None,
    encoding: options.Encoding = None,
    large: options.Large = False,
    batch_size: options.BatchSize = 64,
    device: options.Device = None,
    overwrite: options.Overwrite = False,
) -> None:
    """Render a study or a run as one HTML page that needs no network, or as a table for a paper."""
    from nearfar.data import Layout
    from nearfar.report import FORMATS, read_source, render, render_page

    options.use_device(device)
    known = ("html", *FORMATS)
    form = form or ENDINGS.get(Path(out or "").suffix.lower(), "html")
    if form not in known:
        raise SettingError(
            f"--format is {', '.join(known[:-1])} or {known[-1]}, got {form!r}.{did_you_mean(form, known)}"
        )
    if task is not None and data is None:
        raise SettingError("--task chooses the task that predicts --data; give --data, too.")
    target = out or (PAGE if form == "html" else "-")
    _check(target, overwrite=overwrite)
    source = read_source(Path(folder))
    with tempfile.TemporaryDirectory(prefix="nearfar-report-") as scratch:
        notes: list[str] = []
        if data is not None:
            layout = Layout(text=text, pair=pair, label=label, score=score, encoding=encoding, large=large)
            source, notes = _with_file(source, data, layout, task, Path(scratch), batch_size)
        elif form == "html":
            source, notes = _with_run_rows(source, batch_size)
        sys.stderr.writelines(f"note: {note}\n" for note in notes)
        text = render_page(source) if form == "html" else render(source, form)
    if target == "-":
        sys.stdout.write(text)
        return
    _write(Path(target), text)
    sys.stderr.write(f"written to {target}\n")


def _with_file(
    source: Source, data: str, layout: Layout, task: str | None, scratch: Path, batch_size: int
) -> tuple[Source, list[str]]:
    """Add what the model predicts for a file, or the geometry of its texts, and notes."""
    if source.home is None:
        raise SettingError("--data is for the report of a single model; the trials of a study have their predictions.")
    from nearfar.cli.columns import remembered
    from nearfar.data import read
    from nearfar.report.spaces import embeds

    records = read(data, remembered(str(source.home), data, layout, task=task))
    if task is None and embeds(source.home):
        from nearfar.report.single_run import add_geometry

        return add_geometry(source, records, batch_size=batch_size)
    if source.tasks:
        from nearfar.report.single_run import add_file_mistakes, lacks_probabilities

        if lacks_probabilities(source.home, task):
            return add_file_mistakes(source, records, task, batch_size=batch_size), []
    from nearfar.report.single_run import add_predictions

    return add_predictions(source, records, scratch, task=task, batch_size=batch_size)


def _with_run_rows(source: Source, batch_size: int) -> tuple[Source, list[str]]:
    """Add the mistakes of a multi-task run on its dev rows, or the geometry of an encoder on its own texts."""
    if source.tasks:
        from nearfar.report.single_run import add_dev_mistakes

        return add_dev_mistakes(source, batch_size=batch_size)
    from nearfar.report.spaces import embeds

    if source.home is None or not embeds(source.home):
        return source, []
    from nearfar.report.single_run import add_geometry

    return add_geometry(source, None, batch_size=batch_size)


def _check(target: str, *, overwrite: bool) -> None:
    """Refuse a target that cannot be written; an older report may be replaced without --overwrite."""
    path = Path(target)
    if target == "-":
        return
    if path.is_dir():
        raise OutputError(f"{target}: this is a folder; give the name of a file.")
    if path.exists() and not overwrite and not _is_report(path):
        raise OutputError(
            f"{target}: the file exists and is no report. Replace it with --overwrite, or choose another --out."
        )
    if not path.parent.is_dir():
        raise OutputError(f"{target}: there is no folder {path.parent}; make it first.")


def _is_report(path: Path) -> bool:
    from nearfar.report.page import GENERATOR

    with path.open("rb") as file:
        return f'<meta name="generator" content="{GENERATOR} '.encode() in file.read(4096)


def _write(path: Path, text: str) -> None:
    try:
        write_atomic(path, text)
    except OSError as cause:
        raise unwritable(path, cause) from cause
