"""``nearfar tune``: the best model for one labeled file within a time budget."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nearfar.cli import options
from nearfar.errors import counted

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from nearfar.experiments.tune import Tuned


def tune(
    source: options.Data,
    out: Annotated[Path, typer.Option("--out", help="Folder for model, trials and report.")] = Path("tuned"),
    minutes: Annotated[float, typer.Option(help="Time budget, over all calls with this --out.")] = 10,
    folds: Annotated[int, typer.Option(help="Folds of the cross-validation.")] = 3,
    rounds: Annotated[int, typer.Option(help="Repetitions of the cross-validation, at most.")] = 4,
    metric: Annotated[str, typer.Option(help="Metric to choose by; auto: the default of the data.")] = "auto",
    seed: Annotated[int, typer.Option(help="Seed of all random numbers.")] = 2,
    encoder: options.Encoder = None,
    bi_encoder: Annotated[
        bool, typer.Option("--bi-encoder", help="For pairs with binary labels: a bi-encoder, not a cross-encoder.")
    ] = False,
    vectors: Annotated[bool, typer.Option("--vectors", hidden=True)] = False,
    text: options.Text = None,
    pair: options.Pair = None,
    label: options.Label = None,
    score: options.Score = None,
    invalid: options.Invalid = None,
    large: options.Large = False,
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="A recipe key of all contenders.")
    ] = None,
    workers: options.Workers = None,
) -> None:
    """Compare objectives on a labeled file within a time budget, and train the best one on all of it."""

    from nearfar.cli.progress import console_callback
    from nearfar.cli.study_actions import Bar, say, trial_line
    from nearfar.cli.train import gather_overrides
    from nearfar.experiments import tune as experiment
    from nearfar.experiments.local_executor import LocalExecutor
    from nearfar.experiments.search_space import Request
    from nearfar.training import duration

    flags = options.given(
        ("encoder.name", "--encoder", encoder),
        ("data.text", "--text", text),
        ("data.pair", "--pair", pair),
        ("data.label", "--label", label),
        ("data.score", "--score", score),
        ("data.invalid", "--invalid", invalid),
        ("data.large", "--large", large or None),
    )
    overrides = gather_overrides(flags, set_ or [])
    if vectors:
        options.note_former_name("--vectors", "--bi-encoder")
    request = Request(
        file=source,
        out=out,
        minutes=minutes,
        folds=folds,
        rounds=rounds,
        metric=metric,
        seed=seed,
        vectors=bi_encoder or vectors,
        settings=tuple(overrides),
    )
    console = options.open_console(stderr=True)
    watcher = Bar(console, trial_line) if console.is_terminal else TuneLines(console)
    tuned = experiment.tune(request, watcher, LocalExecutor(workers), callbacks=[console_callback(console)])
    page = write_report(tuned)
    show(tuned)
    model = tuned.folder / experiment.MODEL
    message = f"{duration(tuned.spent)} in all; the model is in {model}, the report in {page}"
    say(console, message)


class TuneLines:
    """A line for every trial; not their number, which is limited by the time."""

    def __init__(self, console: Console) -> None:
        from nearfar.cli.study_actions import Lines, trial_line

        lines = Lines(console, trial_line)
        self.message, self.trial, self.end = lines.message, lines.trial, lines.end

    def begin(self, done: int, total: int) -> None:
        """Print how many have run."""
        if done:
            self.message(f"{counted(done, 'trial')} of {total:,} at most have run already")


def write_report(tuned: Tuned) -> Path:
    """The page of all contenders; if none could be compared, that of the model alone."""
    from nearfar.experiments.tune import MODEL, REPORT
    from nearfar.files import write_atomic
    from nearfar.report import read_source, render_page

    path = tuned.folder / REPORT
    page = render_page(read_source(tuned.folder if tuned.judged else tuned.folder / MODEL))
    write_atomic(path, page, tuned.folder / f".{REPORT}")
    return path


def show(tuned: Tuned) -> None:
    """Print the table of all contenders, and the conclusion."""

    from nearfar.cli.study_actions import WIDTH, say

    console = options.open_console()
    console = console if console.is_terminal else options.open_console(width=WIDTH)
    if tuned.judged:
        for line in (*tuned.conditions, *(f"warning: {flag.sentence}" for flag in tuned.flags)):
            say(console, line)
        console.print(ranking(tuned))
    for sentence in tuned.sentences:
        say(console, f"{sentence}.")


def ranking(tuned: Tuned) -> Table:
    """Every contender with its scores, the best first."""
    from rich.table import Column, Table

    from nearfar.experiments.statistics import summarize
    from nearfar.training import duration

    numbers = (Column(name, justify="right") for name in ("folds", "mean ± sd", "a trial"))
    flags = ["flags"] if tuned.flags else []
    table = Table("contender", *numbers, *flags, "", title=f"{tuned.metric}, the best first", title_justify="left")
    for line in tuned.lines:
        short = summarize(line.scores) if line.scores else None
        table.add_row(
            line.name,
            str(len(line.scores)),
            "" if short is None else f"{short.mean:.4f} ± {short.sd:.4f}",
            "" if line.seconds is None else duration(line.seconds),
            *([", ".join(flag.sign for flag in tuned.flags if flag.contender == line.name)] if tuned.flags else []),
            line.outcome,
        )
    return table
