"""``nearfar report``: a study or a run as a page, or as a table for a paper."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from nearfar.errors import OutputError, SettingError, did_you_mean
from nearfar.files import unwritable, write_atomic
from nearfar.report import FORMATS, Source, read_source, render, render_page
from nearfar.report.page import GENERATOR
from nearfar.report.spaces import embeds

if TYPE_CHECKING:
    from nearfar.data import Records

PAGE = "report.html"
ENDINGS = {".md": "markdown", ".csv": "csv", ".tex": "latex"}
"""What a file is to be by its name, where no format is asked for."""


def report_command(
    folder: str,
    out: str | None,
    form: str | None,
    *,
    data: str | None,
    task: str | None,
    batch_size: int,
    overwrite: bool,
) -> None:
    """Write the page or the table; without ``--out`` the page goes to report.html, a table to standard output."""
    known = ("html", *FORMATS)
    form = form or ENDINGS.get(Path(out or "").suffix.lower(), "html")
    if form not in known:
        raise SettingError(
            f"--format is {', '.join(known[:-1])} or {known[-1]}, got {form!r}.{did_you_mean(form, known)}"
        )
    if task is not None and data is None:
        raise SettingError("--task chooses what --data is predicted by; give that, too.")
    target = out or (PAGE if form == "html" else "-")
    _check(target, overwrite=overwrite)
    source = read_source(Path(folder))
    with tempfile.TemporaryDirectory(prefix="nearfar-report-") as scratch:
        if data is not None:
            source = _probed(source, data, task, Path(scratch), batch_size)
        elif source.tasks and form == "html":
            source = _looked(source, batch_size)
        elif source.single and form == "html":
            source = _surveyed(source, None, batch_size)
        text = render_page(source) if form == "html" else render(source, form)
    if target == "-":
        sys.stdout.write(text)
        return
    _write(Path(target), text)
    sys.stderr.write(f"written to {target}\n")


def _probed(source: Source, data: str, task: str | None, scratch: Path, batch_size: int) -> Source:
    """The run with its predictions for a file."""
    if not source.single:
        raise SettingError("--data is for the report of a single model; the trials of a study have their predictions.")
    from nearfar.data import Layout, read

    records = read(data, Layout())
    if source.home is not None and task is None and embeds(source.home):
        return _surveyed(source, records, batch_size)
    if source.tasks:
        from nearfar.report.task_mistakes import has_no_chances, look_at

        if source.home is not None and has_no_chances(source.home, task):
            return look_at(source, records, task, batch_size=batch_size)
    from nearfar.report.run_predictions import probe

    source, notes = probe(source, records, scratch, task=task, batch_size=batch_size)
    _note(notes)
    return source


def _looked(source: Source, batch_size: int) -> Source:
    """The run on several tasks with its mistakes on their dev rows."""
    from nearfar.report.task_mistakes import look

    source, notes = look(source, batch_size=batch_size)
    _note(notes)
    return source


def _surveyed(source: Source, records: Records | None, batch_size: int) -> Source:
    """The run with the geometry of its texts, where it is an encoder."""
    if source.home is None or not embeds(source.home):
        return source
    from nearfar.report.run_geometry import survey

    source, notes = survey(source, records, batch_size=batch_size)
    _note(notes)
    return source


def _note(notes: list[str]) -> None:
    for note in notes:
        sys.stderr.write(f"note: {note}\n")


def _check(target: str, *, overwrite: bool) -> None:
    """Refuse what cannot be written; an older report may be replaced without asking."""
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
    with path.open("rb") as file:
        return f'<meta name="generator" content="{GENERATOR} '.encode() in file.read(4096)


def _write(path: Path, text: str) -> None:
    try:
        write_atomic(path, text)
    except OSError as cause:
        raise unwritable(path, cause) from cause
