"""``nearfar study``: run a study file, and show what came out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import fmean

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn
from rich.table import Column, Table

from nearfar.cli.options import open_console
from nearfar.errors import counted
from nearfar.evaluation.geometry import MEASURES
from nearfar.experiments.comparisons import compare_all, overall, verdict
from nearfar.experiments.conditions import Conditions, conditions_of
from nearfar.experiments.estimates import estimate
from nearfar.experiments.local_executor import LocalExecutor
from nearfar.experiments.records import (
    Record,
    cell_name,
    read_plan,
    read_records,
    read_results,
    scores_of,
    set_scores,
    untrained_notes,
)
from nearfar.experiments.statistics import summarize
from nearfar.experiments.study import folder_of, run_study, study_status
from nearfar.experiments.training_checks import Flag, doubts, flags_of
from nearfar.experiments.trial_runner import Executor, Watcher
from nearfar.training import duration

SHOWN = 10
"""Failed trials whose reasons are spelled out."""
WIDTH = 160
DECIMALS = 4
"""Of scores and differences."""


def study_run_command(path: Path, out: Path | None, executor: Executor, *, retry_failed: bool) -> None:
    """Run a study, and show its table."""
    console = open_console(stderr=True)
    folder = folder_of(path, out)
    watcher = watch(console)
    outcome = run_study(path, folder, watcher, executor, retry_failed=retry_failed)
    if not outcome.ran:
        watcher.message("all trials of this study are there; nothing ran")
    show(folder, _wide())
    _failures(outcome.failed, console)


def study_show_command(folder: Path) -> None:
    """Print the table and the verdicts of a study."""
    show(folder, _wide())
    plan, records = read_plan(folder), read_records(folder)
    _failures([record for record in records if not record.done], open_console(stderr=True))
    left = len(plan.cells) - len(records)
    if left:
        has = "has" if left == 1 else "have"
        say(open_console(stderr=True), f"{left:,} of {counted(len(plan.cells), 'trial')} {has} not run yet")


def say(console: Console, text: str) -> None:
    """Print a line as it is, however long."""
    console.print(text, highlight=False, soft_wrap=True, markup=False)


def show(folder: Path, console: Console) -> None:
    """Mean, deviation and paired difference of every contender on every data set, and what may be said of them."""
    plan, records = read_results(folder)
    scores = scores_of(records)
    if not scores:
        say(console, f"{folder}: no trial has finished yet")
        return
    planned: dict[str, list[tuple[int, int]]] = {}
    for cell in plan.cells:
        planned.setdefault(cell_name(cell.data, cell.limit), []).append((cell.seed, cell.fold))
    families = compare_all(scores, baseline=plan.baseline, planned=planned) if _has(scores, plan.baseline) else ()
    compared = {(each.data, family.contender): each for family in families for each in family.comparisons}
    flags = flags_of(records)
    for line in before_scores(conditions_of(records), flags):
        say(console, line)
    columns = (
        "trials",
        "mean ± sd",
        *(["flags"] if flags else []),
        "difference",
        "95 % interval",
        "p (Holm)",
        "win/tie/loss",
    )
    best = "" if plan.runs == "all" else ", best run by dev score"
    table = _table(("data", "contender"), columns, f"{plan.name}: {plan.metric}{best}, baseline {plan.baseline}")
    for data in dict.fromkeys(cell_name(cell.data, cell.limit) for cell in plan.cells):
        wanted = len(set(planned[data]))
        for name in plan.contenders:
            values = [score for key, score in scores.items() if key[:2] == (data, name)]
            if not values:
                table.add_row(data, name, f"0/{wanted}")
                continue
            short = summarize(values)
            cells = [data, name, f"{short.n}/{wanted}", f"{short.mean:.4f} ± {short.sd:.4f}"]
            if flags:
                cells.append(", ".join(flag.sign for flag in flags if (flag.data, flag.contender) == (data, name)))
            comparison = compared.get((data, name))
            if comparison is not None:
                interval = comparison.interval
                cells += [
                    f"{comparison.difference:+.4f}",
                    "" if interval is None else f"{interval.low:+.4f} to {interval.high:+.4f}",
                    "< 0.001" if comparison.adjusted_p < 0.001 else f"{comparison.adjusted_p:.3f}",
                    f"{comparison.wins}/{comparison.ties}/{comparison.losses}",
                ]
            table.add_row(*cells)
        table.add_section()
    console.print(table)
    for note in untrained_notes(records):
        say(console, note)
    _show_sets(records, list(plan.contenders), console)
    for family in families:
        known = {one.data: doubts(flags, one.data, one.contender, one.baseline) for one in family.comparisons}
        for comparison in family.comparisons:
            say(console, f"{verdict(comparison, least=DECIMALS, doubts=known[comparison.data])}.")
        if len(family.comparisons) > 1 or family.refused:
            say(console, f"{overall(family, [data for data, each in known.items() if each])}.")


def before_scores(conditions: Conditions, flags: Sequence[Flag]) -> list[str]:
    """What is to be read before the table of a study: what contenders share, in what they differ, who did not train."""
    return [*conditions.lines(), *(f"warning: {flag.sentence}" for flag in flags)]


def _show_sets(records: Sequence[Record], contenders: Sequence[str], console: Console) -> None:
    """Where scored pairs are the test: each of their sets, and what became of the space; means over the seeds."""
    tested = [record for record in records if record.done and set_scores(record)]
    if not tested:
        return
    sets = list(dict.fromkeys(name for record in tested for name in set_scores(record)))
    title = "Spearman × 100 of each set, and the geometry of its texts before → after"
    table = _table(("data", "contender"), (*sets, *(measure.replace("_", " ") for measure in MEASURES)), title)
    for data in dict.fromkeys(record.cell for record in tested):
        for name in contenders:
            runs = [record for record in tested if (record.cell, record.contender) == (data, name)]
            if runs:
                scores = [set_scores(run) for run in runs]
                cells = [_mean([100 * score[one] for score in scores if one in score], 2) for one in sets]
                cells += [
                    " → ".join(
                        _mean([run.geometry[when][measure] for run in runs if measure in run.geometry.get(when, {})], 3)
                        for when in ("before", "after")
                    )
                    for measure in MEASURES
                ]
                table.add_row(data, name, *cells)
        table.add_section()
    console.print(table)


def _table(words: Sequence[str], numbers: Sequence[str], title: str | None = None) -> Table:
    """A table whose columns of numbers are aligned to the right."""
    columns = (Column(name, justify="right") for name in numbers)
    return Table(*words, *columns, title=title, title_justify="left")


def _mean(values: Sequence[float], decimals: int) -> str:
    return f"{fmean(values):.{decimals}f}" if values else "-"


def watch(console: Console, describe: Callable[[Record], str] | None = None) -> Watcher:
    """A bar on a terminal, a line for every trial in files and pipes."""
    return (Bar if console.is_terminal else Lines)(console, describe or trial_line)


class Lines:
    """A line for every trial."""

    def __init__(self, console: Console, describe: Callable[[Record], str]) -> None:
        self.console, self.describe = console, describe

    def begin(self, done: int, total: int) -> None:
        """Say how much there is."""
        self.message(f"{counted(total, 'trial')}, {done:,} of them there already")

    def message(self, text: str) -> None:
        """Print a line."""
        say(self.console, text)

    def trial(self, record: Record, done: int, total: int, left: float | None, leader: str | None) -> None:
        """Print what became of a trial."""
        rest = "" if left is None else f"; {duration(left)} left"
        self.message(f"{done}/{total}  {self.describe(record)}{'' if leader is None else f'; {leader}'}{rest}")

    def end(self) -> None:
        """Nothing is left to do."""


class Bar:
    """A bar with trials done, who leads and the time left."""

    def __init__(self, console: Console, describe: Callable[[Record], str]) -> None:
        self.console, self.describe = console, describe
        text = TextColumn("{task.fields[leader]}  {task.fields[left]}", markup=False)
        columns = (SpinnerColumn(), TextColumn("trials"), BarColumn(), MofNCompleteColumn(), text)
        self.bar = Progress(*columns, console=console)
        self.task = self.bar.add_task("", total=1, leader="", left="")

    def begin(self, done: int, total: int) -> None:
        """Show the bar."""
        self.bar.update(self.task, completed=done, total=total)
        self.bar.start()

    def message(self, text: str) -> None:
        """Print a line above the bar."""
        say(self.console, text)

    def trial(self, record: Record, done: int, total: int, left: float | None, leader: str | None) -> None:
        """Move the bar; what failed is printed above it."""
        if not record.done:
            self.message(self.describe(record))
        rest = "" if left is None else f"{duration(left)} left"
        self.bar.update(self.task, completed=done, total=total, leader=leader or "", left=rest)

    def end(self) -> None:
        """Leave the bar as it is."""
        self.bar.stop()


def trial_line(record: Record) -> str:
    """A trial in one line."""
    who = f"{record.contender} on {record.cell}, seed {record.seed}, fold {record.fold}"
    if not record.done:
        return f"{who}: failed: {(record.reason or 'no reason is known').splitlines()[0]}"
    kept = "; the untrained encoder was kept" if record.untrained else ""
    return f"{who}: {record.metric} {record.score:.4f} ({duration(record.seconds)}){kept}"


def study_dry_run(path: Path, out: Path | None, executor: Executor, *, retry_failed: bool) -> None:
    """Print the plan of a study, its trials and how long they will take."""
    console, folder = _wide(), folder_of(path, out)
    status = study_status(path, folder)
    planned, states = status.planned, status.states
    plan, done = planned.plan, set(states.done)
    say(console, f"study {plan.name!r} in {folder}: {plan.metric}, baseline {plan.baseline}")
    table = _table(("data", "rows", "contender"), ("seeds", "folds", "trials", "there"))
    for data in plan.data:
        for size in data.limits:
            for name in plan.contenders:
                cells = [
                    cell for cell in plan.cells if (cell.data, cell.limit, cell.contender) == (data.name, size, name)
                ]
                rows = data.rows if size is None else size
                numbers = (
                    *(len(plan.seeds), len({cell.fold for cell in cells})),
                    *(len(cells), sum(cell.id in done for cell in cells)),
                )
                table.add_row(cell_name(data.name, size), f"{rows:,}", name, *map(str, numbers))
    console.print(table)
    for note in status.notes:
        say(console, note)
    waiting = states.to_run(retry_failed=retry_failed)
    failed = "" if retry_failed or not states.failed else f", {len(states.failed):,} failed before"
    say(console, f"{counted(len(planned.trials), 'trial')}: {len(done):,} there{failed}, {len(waiting):,} to run")
    if waiting:
        local = executor if isinstance(executor, LocalExecutor) else None
        sentence = estimate(planned, waiting, folder, local or LocalExecutor(workers=1))
        say(console, sentence if local else f"{sentence}; on Ray that is shared by all nodes")


def _failures(failed: Sequence[Record], console: Console) -> None:
    if not failed:
        return
    for record in failed[:SHOWN]:
        say(console, trial_line(record))
    more = f" ({len(failed) - SHOWN:,} more are not shown)" if len(failed) > SHOWN else ""
    say(console, f"{counted(len(failed), 'trial')} failed{more}; fix the cause and run the study with --retry-failed.")


def _wide() -> Console:
    """Standard output; a file or a pipe has no width that a table must keep to."""
    console = open_console()  # names of contenders may have brackets
    return console if console.is_terminal else open_console(width=WIDTH)


def _has(scores: dict[tuple[str, str, int, int], float], name: str) -> bool:
    return any(key[1] == name for key in scores)
