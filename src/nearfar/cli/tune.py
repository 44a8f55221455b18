"""``nearfar tune``: one labeled file to the best model that some minutes can find."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.table import Table

from nearfar.cli.study_actions import WIDTH, Bar, Lines, trial_line
from nearfar.cli.training_progress import console_callback
from nearfar.errors import counted
from nearfar.experiments.local_executor import LocalExecutor
from nearfar.experiments.search_space import Request
from nearfar.experiments.statistics import summarize
from nearfar.experiments.tune import MODEL, REPORT, Tuned, tune
from nearfar.files import write_atomic
from nearfar.report import read_source, render_page
from nearfar.training import duration


class TuneLines:
    """A line for every trial; how many there will be at most is of no interest, the time is."""

    def __init__(self, console: Console) -> None:
        lines = Lines(console, trial_line)
        self.message, self.trial, self.end = lines.message, lines.trial, lines.end

    def begin(self, done: int, total: int) -> None:
        """Say how many have run."""
        if done:
            self.message(f"{counted(done, 'trial')} of {total:,} at most are there already")


def tune_command(request: Request, *, workers: int | None) -> None:
    """Tune, show the contenders, and write the report."""
    console = Console(stderr=True)
    watcher = Bar(console, trial_line) if console.is_terminal else TuneLines(console)
    tuned = tune(request, watcher, LocalExecutor(workers), callbacks=[console_callback(console)])
    report = write_report(tuned)
    show(tuned)
    console.print(
        f"{duration(tuned.spent)} in all; the model is in {tuned.folder / MODEL}, the report in {report}",
        highlight=False,
        soft_wrap=True,
        markup=False,
    )


def write_report(tuned: Tuned) -> Path:
    """The page of all contenders; where none could be compared, that of the model alone."""
    path = tuned.folder / REPORT
    write_atomic(path, render_page(read_source(tuned.folder if tuned.judged else tuned.folder / MODEL)))
    return path


def show(tuned: Tuned) -> None:
    """The table of all contenders, and what may be said of the best."""
    console = Console()
    console = console if console.is_terminal else Console(width=WIDTH)
    if tuned.judged:
        console.print(ranking(tuned))
    for sentence in tuned.sentences:
        console.print(f"{sentence}.", highlight=False, soft_wrap=True, markup=False)


def ranking(tuned: Tuned) -> Table:
    """Every contender with its scores, the best first."""
    table = Table(title=f"{tuned.metric}, the best first", title_justify="left")
    table.add_column("contender")
    for column in ("folds", "mean ± sd", "a trial"):
        table.add_column(column, justify="right")
    table.add_column("")
    for line in tuned.lines:
        short = summarize(line.scores) if line.scores else None
        table.add_row(
            line.name,
            str(len(line.scores)),
            "" if short is None else f"{short.mean:.4f} ± {short.sd:.4f}",
            "" if line.seconds is None else duration(line.seconds),
            line.outcome,
        )
    return table
