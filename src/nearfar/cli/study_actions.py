"""``nearfar study``: run a study file, and show what came out."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Literal

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn
from rich.table import Table

from nearfar.errors import SettingError, counted
from nearfar.evaluation.geometry import MEASURES
from nearfar.experiments.estimates import estimate
from nearfar.experiments.records import Record, cell_name, read_plan, read_records, scores_of, set_scores
from nearfar.experiments.runner import folder_of, run_study, stand
from nearfar.experiments.statistics import compare_all, summarize
from nearfar.experiments.verdicts import overall, verdict
from nearfar.training import duration

SHOWN = 10
"""Failed trials whose reasons are spelled out."""
WIDTH = 160
DECIMALS = 4
"""Of scores and differences."""


def study_run_command(
    path: Path,
    out: Path | None,
    on: str,
    *,
    dry_run: bool,
    workers: int | None,
    threads: int | None,
    retry_failed: bool,
    address: str,
    cpus: float,
    gpus: float,
) -> None:
    """Run a study, or say what it would be."""
    console = Console(stderr=True)
    folder = folder_of(path, out)
    if on not in ("local", "ray"):
        raise SettingError(f"--on is local or ray, got {on!r}.")
    if on == "ray":
        from nearfar.experiments.ray_executor import require_ray

        require_ray()
    if dry_run:
        _plan(path, folder, workers=workers, threads=threads, retry_failed=retry_failed, on=on)
        return
    place: Literal["local", "ray"] = "ray" if on == "ray" else "local"
    watcher = Bar(console) if console.is_terminal else Lines(console)
    outcome = run_study(
        path, folder, watcher, on=place, workers=workers, threads=threads, retry_failed=retry_failed,
        address=address, cpus=cpus, gpus=gpus,
    )  # fmt: skip
    if not outcome.ran:
        watcher.notice("all trials of this study are there; nothing ran")
    show(folder, _wide())
    _failures(outcome.failed, console)


def study_show_command(folder: Path) -> None:
    """Print the table and the verdicts of a study."""
    show(folder, _wide())
    plan, records = read_plan(folder), read_records(folder)
    _failures([record for record in records if not record.done], Console(stderr=True))
    left = len(plan.cells) - len(records)
    if left:
        has = "has" if left == 1 else "have"
        Lines(Console(stderr=True)).notice(f"{left:,} of {counted(len(plan.cells), 'trial')} {has} not run yet")


def show(folder: Path, console: Console) -> None:
    """Mean, deviation and paired difference of every contender on every data set, and what may be said of them."""
    plan, records = read_plan(folder), read_records(folder)
    scores = scores_of(records)
    if not scores:
        console.print(f"{folder}: no trial has finished yet", highlight=False, soft_wrap=True)
        return
    planned: dict[str, list[tuple[int, int]]] = {}
    for cell in plan.cells:
        planned.setdefault(cell_name(cell.data, cell.limit), []).append((cell.seed, cell.fold))
    families = compare_all(scores, baseline=plan.baseline, planned=planned) if _has(scores, plan.baseline) else ()
    compared = {(each.data, family.contender): each for family in families for each in family.comparisons}
    table = Table(title=f"{plan.name}: {plan.metric}, baseline {plan.baseline}", title_justify="left")
    for column in ("data", "contender"):
        table.add_column(column)
    for column in ("trials", "mean ± sd", "difference", "95 % interval", "p (Holm)", "win/tie/loss"):
        table.add_column(column, justify="right")
    for data in dict.fromkeys(cell_name(cell.data, cell.limit) for cell in plan.cells):
        wanted = len(set(planned[data]))
        for name in plan.contenders:
            values = [score for key, score in scores.items() if key[:2] == (data, name)]
            if not values:
                table.add_row(data, name, f"0/{wanted}", *[""] * 5)
                continue
            short = summarize(values)
            cells = [data, name, f"{short.n}/{wanted}", f"{short.mean:.4f} ± {short.sd:.4f}"]
            found = compared.get((data, name))
            if found is not None:
                interval = found.interval
                cells += [
                    f"{found.difference:+.4f}",
                    "" if interval is None else f"{interval.low:+.4f} to {interval.high:+.4f}",
                    "< 0.001" if found.adjusted_p < 0.001 else f"{found.adjusted_p:.3f}",
                    f"{found.wins}/{found.ties}/{found.losses}",
                ]
            table.add_row(*cells)
        table.add_section()
    console.print(table)
    _show_sets(records, list(plan.contenders), console)
    for family in families:
        for comparison in family.comparisons:
            console.print(f"{verdict(comparison, least=DECIMALS)}.", highlight=False, soft_wrap=True, markup=False)
        if len(family.comparisons) > 1 or family.refused:
            console.print(f"{overall(family)}.", highlight=False, soft_wrap=True, markup=False)


def _show_sets(records: Sequence[Record], contenders: Sequence[str], console: Console) -> None:
    """Where scored pairs are the test: each of their sets, and what became of the space; means over the seeds."""
    tested = [record for record in records if record.done and set_scores(record)]
    if not tested:
        return
    sets = list(dict.fromkeys(name for record in tested for name in set_scores(record)))
    title = "Spearman × 100 of each set, and the geometry of its texts before → after"
    table = Table(title=title, title_justify="left")
    for column in ("data", "contender"):
        table.add_column(column)
    for column in (*sets, *(measure.replace("_", " ") for measure in MEASURES)):
        table.add_column(column, justify="right")
    for data in dict.fromkeys(record.cell for record in tested):
        for name in contenders:
            runs = [record for record in tested if (record.cell, record.contender) == (data, name)]
            if runs:
                cells = [_mean([100 * set_scores(run)[one] for run in runs if one in set_scores(run)], 2)
                         for one in sets]  # fmt: skip
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


def _mean(values: Sequence[float], decimals: int) -> str:
    return f"{fmean(values):.{decimals}f}" if values else "-"


class Lines:
    """A line for every trial, for files and pipes."""

    def __init__(self, console: Console) -> None:
        self.console = console

    def begin(self, done: int, total: int) -> None:
        """Say how much there is."""
        self.notice(f"{counted(total, 'trial')}, {done:,} of them there already")

    def notice(self, text: str) -> None:
        """Print a line."""
        self.console.print(text, highlight=False, soft_wrap=True, markup=False)

    def trial(self, record: Record, done: int, total: int, left: float | None, leader: str | None) -> None:
        """Print what became of a trial."""
        rest = "" if left is None else f"; {duration(left)} left"
        self.notice(f"{done}/{total}  {trial_line(record)}{'' if leader is None else f'; {leader}'}{rest}")

    def end(self) -> None:
        """Nothing is left to do."""


class Bar(Lines):
    """A bar with trials done, who leads and the time left."""

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self.bar = Progress(
            SpinnerColumn(), TextColumn("trials"), BarColumn(), MofNCompleteColumn(),
            TextColumn("{task.fields[leader]}  {task.fields[left]}", markup=False), console=console,
        )  # fmt: skip
        self.task = self.bar.add_task("", total=1, leader="", left="")

    def begin(self, done: int, total: int) -> None:
        """Show the bar."""
        self.bar.update(self.task, completed=done, total=total)
        self.bar.start()

    def trial(self, record: Record, done: int, total: int, left: float | None, leader: str | None) -> None:
        """Move the bar; what failed is printed above it."""
        if not record.done:
            self.notice(trial_line(record))
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
    return f"{who}: {record.metric} {record.score:.4f} ({duration(record.seconds)})"


def _plan(path: Path, folder: Path, *, workers: int | None, threads: int | None, retry_failed: bool, on: str) -> None:
    console = _wide()
    standing = stand(path, folder)
    plan = standing.planned.plan
    console.print(
        f"study {plan.name!r} in {folder}: {plan.metric}, baseline {plan.baseline}", highlight=False, soft_wrap=True
    )
    table = Table()
    for column in ("data", "rows", "contender"):
        table.add_column(column)
    for column in ("seeds", "folds", "trials", "there"):
        table.add_column(column, justify="right")
    done = set(standing.done)
    for data in plan.data:
        for size in data.limits:
            for name in plan.contenders:
                cells = [
                    cell for cell in plan.cells if (cell.data, cell.limit, cell.contender) == (data.name, size, name)
                ]
                folds = len({cell.fold for cell in cells})
                there = sum(cell.id in done for cell in cells)
                rows = data.rows if size is None else size
                table.add_row(
                    cell_name(data.name, size), f"{rows:,}", name, str(len(plan.seeds)), str(folds), str(len(cells)),
                    str(there),
                )  # fmt: skip
    console.print(table)
    for note in standing.notes:
        console.print(note, highlight=False, soft_wrap=True, markup=False)
    waiting = [*standing.waiting, *(standing.failed if retry_failed else ())]
    failed = "" if retry_failed or not standing.failed else f", {len(standing.failed):,} failed before"
    total = counted(len(standing.planned.trials), "trial")
    console.print(f"{total}: {len(standing.done):,} there{failed}, {len(waiting):,} to run", highlight=False)
    if waiting:
        if on == "ray":
            workers = 1  # how many run at once, the cluster knows
        told = estimate(standing.planned, waiting, folder, workers=workers, threads=threads)
        told += "; on Ray that is shared by all nodes" if on == "ray" else ""
        console.print(told, highlight=False, soft_wrap=True, markup=False)


def _failures(failed: Sequence[Record], console: Console) -> None:
    if not failed:
        return
    for record in failed[:SHOWN]:
        console.print(trial_line(record), highlight=False, soft_wrap=True, markup=False)
    more = f" ({len(failed) - SHOWN:,} more are not shown)" if len(failed) > SHOWN else ""
    console.print(
        f"{counted(len(failed), 'trial')} failed{more}; mend the cause and run the study with --retry-failed.",
        highlight=False,
        soft_wrap=True,
    )


def _wide() -> Console:
    """Standard output; a file or a pipe has no width that a table must keep to."""
    console = Console(markup=False)  # names of contenders may have brackets
    return console if console.is_terminal else Console(width=WIDTH, markup=False)


def _has(scores: dict[tuple[str, str, int, int], float], name: str) -> bool:
    return any(key[1] == name for key in scores)
