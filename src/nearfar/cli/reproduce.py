"""``nearfar reproduce``: a published table done again, and ours beside the published figures."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nearfar.cli.options import open_console
from nearfar.errors import DataError, Problem, SettingError

if TYPE_CHECKING:
    from rich.console import Console

    from nearfar.experiments.local_executor import LocalExecutor
    from nearfar.experiments.published import Figure, Paper, PublishedTable
    from nearfar.experiments.published.comparison import Line
    from nearfar.experiments.published.table_data import DataFolder, TableOptions
    from nearfar.experiments.records import Record
    from nearfar.experiments.reproduce import Prepared

RESULT = "published.md"
"""The table, in the folder of the studies."""
WIDTH = 180


def reproduce(
    paper: Annotated[
        str | None, typer.Argument(help="A paper; --list shows all.", metavar="PAPER", show_default=False)
    ] = None,
    table: Annotated[str | None, typer.Option("--table", metavar="N", help="Which of its tables.")] = None,
    figure: Annotated[
        str | None,
        typer.Option(
            "--figure", metavar="N", help="A figure over several tables: runs them all, or what is left of them."
        ),
    ] = None,
    list_: Annotated[bool, typer.Option("--list", help="Show the papers and their tables, and stop.")] = False,
    data: Annotated[
        Path | None,
        typer.Option(
            "--data",
            metavar="DIR",
            envvar="NEARFAR_DATA",
            help="The data: a folder for each set, such as DIR/trec/train.jsonl.gz; unset: the variable NEARFAR_DATA.",
        ),
    ] = None,
    encoder: Annotated[
        str | None,
        typer.Option(help="minilm, toy, a folder, an id on the Hugging Face hub, or paper for that of the paper."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="Folder for the studies; unset: reproduced/PAPER-N.")
    ] = None,
    settings: Annotated[
        str,
        typer.Option(
            help="published for those of the paper; triple-entropy and multi-task also have trained, triple-entropy, "
            "mirror, multi-task and simcse mean, triple-entropy grid (its search of 4,900 points)."
        ),
    ] = "published",
    seeds: Annotated[
        str | None, typer.Option(metavar="N,N,...", help="Other seeds than those of the study files.")
    ] = None,
    folds: Annotated[int | None, typer.Option(min=2, help="Other folds than those of the study files.")] = None,
    limit: Annotated[
        int | None, typer.Option(min=2, help="Rows of each data set; unset: as many as the paper has.")
    ] = None,
    epochs: Annotated[
        int | None, typer.Option(min=1, help="Of a table of several tasks: other epochs than those of the paper.")
    ] = None,
    sets: Annotated[
        str | None, typer.Option(metavar="NAME,NAME,...", help="Only these data sets of the table.")
    ] = None,
    vectors: Annotated[
        Path | None,
        typer.Option(
            "--vectors",
            metavar="FILE",
            help="Word vectors as text, such as fastText's, for the row that mirror's words has.",
        ),
    ] = None,
    checkpoint: Annotated[
        list[str] | None,
        typer.Option(
            "--checkpoint", metavar="NAME=MODEL", help="The encoder of a contender that is not trained: SimCSE=FOLDER."
        ),
    ] = None,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Processes on this machine; unset: one for each core.")
    ] = None,
    retry_failed: Annotated[bool, typer.Option("--retry-failed", help="Run trials again that failed before.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the plan, the trials and how long they will take, and stop.")
    ] = False,
) -> None:
    """Run a published table again, on your data and encoder, and print ours beside the published figures."""
    from nearfar.experiments.published import find_figure, find_paper, find_table

    if list_:
        _list(paper)
        return
    if paper is None:
        raise SettingError("name a paper; 'nearfar reproduce --list' shows all papers and their tables.")
    known = find_paper(paper)
    if figure is not None and table is not None:
        raise SettingError("--figure runs the tables that it is made of; give --table or --figure.")
    drawn = None if figure is None else find_figure(known, figure)
    tables = [find_table(known, number) for number in (drawn.tables if drawn is not None else (table,))]
    if data is None:
        raise SettingError("where is the data? Name its folder with --data, or by the variable NEARFAR_DATA.")
    from nearfar.experiments.local_executor import LocalExecutor
    from nearfar.experiments.published.table_data import PAPER_ENCODER, DataFolder, TableOptions

    options = TableOptions(
        encoder=encoder,
        seeds=_seeds(seeds),
        folds=folds,
        limit=limit,
        settings=settings,
        epochs=epochs,
        sets=_names(sets),
        vectors=vectors,
        checkpoints=_checkpoints(checkpoint or []),
    )
    if vectors is not None and not all(each.vectors for each in tables):
        raise SettingError("--vectors is for a table with a row of word vectors: words of mirror; leave it out.")
    if encoder is not None and encoder != PAPER_ENCODER:
        from nearfar.encoding.pretrained import find

        find(encoder)  # one that is none would fail in every trial
    executor = LocalExecutor(workers)
    if drawn is not None:
        _figure(known, drawn, data, out or Path("reproduced"), options, executor, retry_failed, dry_run)
        return
    (chosen,) = tables
    run = _run if chosen.tasks is None else _together
    folder = out or Path("reproduced") / f"{known.name}-{chosen.number}"
    run(DataFolder(known, chosen, data), folder, options, executor, retry_failed=retry_failed, dry_run=dry_run)


def _figure(
    paper: Paper,
    figure: Figure,
    data: Path,
    out: Path,
    options: TableOptions,
    executor: LocalExecutor,
    retry_failed: bool,
    dry_run: bool,
) -> None:
    """Run the tables of a figure, each in the folder it has by itself, and draw them as one page."""
    from nearfar.cli.study_actions import say
    from nearfar.experiments.published import find_table
    from nearfar.experiments.published.figures import as_markdown, conclusion, gains
    from nearfar.experiments.published.table_data import DataFolder, write_text
    from nearfar.experiments.records import STUDY
    from nearfar.experiments.reproduce import set_names
    from nearfar.report import read_source, render_page
    from nearfar.report.sources import merged

    folders: dict[str, list[Path]] = {}
    notes = []
    names = {number: set_names(find_table(paper, number)) for number in figure.tables}
    every = list(dict.fromkeys(name for each in names.values() for name in each))
    for unknown in (name for name in options.sets or () if name not in every):
        raise SettingError(f"--sets: no table of figure {figure.number} has {unknown!r}; they have {', '.join(every)}.")
    for number in figure.tables:
        source = DataFolder(paper, find_table(paper, number), data)
        sets = None if options.sets is None else tuple(name for name in options.sets if name in names[number])
        if sets == ():
            continue
        own, place = replace(options, sets=sets), out / f"{paper.name}-{number}"
        try:
            folders[number] = _run(source, place, own, executor, retry_failed=retry_failed, dry_run=dry_run)
        except DataError as error:
            notes += [f"table {number}: {problem}" for problem in error.problems]
    _say([f"note: {note}" for note in notes])
    if not folders:
        raise SettingError(f"no table of figure {figure.number} can be run with this data; the reasons are above.")
    if dry_run:
        return
    points = gains(paper, figure, folders)
    for sentence in conclusion(points):
        say(_console(), sentence)
    page, text = (out / f"{paper.name}-figure-{figure.number}{ending}" for ending in (".html", ".md"))
    studies = [read_source(folder) for places in folders.values() for folder in places if (folder / STUDY).is_file()]
    write_text(page, render_page(merged(studies, f"{paper.name}, figure {figure.number}")))
    write_text(text, as_markdown(paper, figure, points, notes))
    _say([f"written to {page} and {text}"])


def _run(
    data: DataFolder, out: Path, options: TableOptions, executor: LocalExecutor, *, retry_failed: bool, dry_run: bool
) -> list[Path]:
    """A table of studies; returns their folders."""
    from nearfar.experiments.published.comparison import as_markdown, beside, beyond
    from nearfar.experiments.published.table_data import write_text
    from nearfar.experiments.reproduce import prepare
    from nearfar.recipe import Encoder

    paper, table = data.paper, data.table
    with tempfile.TemporaryDirectory() as aside:
        prepared = prepare(data, out, options, place=Path(aside) if dry_run else None)
        notes = [*options.differences(table, Encoder().name), *prepared.notes]
        _say([*(f"note: {note}" for note in notes), *(f"note: {problem}" for problem in prepared.missing)])
        refused = _studies(prepared, executor, retry_failed=retry_failed, dry_run=dry_run)
    if len(refused) == len(prepared.studies):
        raise DataError([problem for problems in refused for problem in problems])
    _say([f"note: not run: {problem}" for problems in refused for problem in problems])
    folders = [ready.folder for ready in prepared.studies]
    if dry_run:
        return folders
    lines, more = beside(table, folders), beyond(table, folders)
    if all(line.comparison is None for line in lines):
        raise SettingError(
            f"{out}: there is nothing to compare, because no trial of a contender and its baseline has finished; the "
            "reasons are above. Fix them, and run the same command with --retry-failed."
        )
    rows: list[list[str]] = []
    if options.vectors is not None:
        from nearfar.experiments.published.word_vectors import vector_rows

        rows, vector_notes = vector_rows(table, data, options.vectors, lines)
        notes += vector_notes
        _say([f"note: {note}" for note in vector_notes])
    _show(paper, table, lines, more, rows)
    notes += [str(problem) for problem in (*prepared.missing, *(one for problems in refused for one in problems))]
    write_text(out / RESULT, as_markdown(paper, table, lines, notes, more, rows))
    _say([f"written to {out / RESULT}; a page of a study: nearfar report {prepared.studies[0].folder}"])
    return folders


def _together(
    data: DataFolder, out: Path, options: TableOptions, executor: LocalExecutor, *, retry_failed: bool, dry_run: bool
) -> None:
    """A table whose contenders train several tasks at once."""
    from rich.table import Column, Table

    from nearfar.cli.study_actions import say, watch
    from nearfar.experiments.estimates import estimate
    from nearfar.experiments.multitask import plan_table, run_table
    from nearfar.experiments.published.table_data import write_text
    from nearfar.experiments.published.task_comparison import task_conclusion, task_lines, task_markdown, task_tables
    from nearfar.recipe import Encoder

    paper, table = data.paper, data.table
    folder = out / f"table-{table.number}"
    ready = plan_table(data, out, options)
    planned = ready.planned
    notes = [*options.differences(table, Encoder().name), *planned.notes]
    _say([f"note: {note}" for note in notes])
    if dry_run:
        states = planned.states(folder)
        waiting = states.to_run(retry_failed=retry_failed)
        typer.echo(f"{', '.join(planned.plan.contenders)}; seeds {', '.join(map(str, planned.plan.seeds))}")
        counts = f"{len(states.done)} there, {len(states.failed)} failed, {len(waiting)} to run"
        typer.echo(f"{len(planned.trials)} trials: {counts}")
        if waiting:
            typer.echo(estimate(planned, waiting, folder, executor))
        return
    watcher = watch(open_console(stderr=True), _task_trial_line)
    ran = run_table(ready, out, folder, watcher, executor, retry_failed=retry_failed)
    if not ran:
        _say(["all trials of this table are there; nothing ran"])
    lines = task_lines(table, folder)
    console = _console()
    say(console, f"{paper.name}, table {table.number}: {table.title}")
    for title, head, rows in task_tables(table, lines):
        columns = (Column(name, justify="right" if place else "left") for place, name in enumerate(head))
        shown = Table(*columns, title=title, title_justify="left")
        for row in rows:
            shown.add_row(*row)
        console.print(shown)
    for sentence in task_conclusion(table, lines):
        say(console, sentence)
    write_text(out / RESULT, task_markdown(paper, table, lines, notes))
    _say([f"written to {out / RESULT}; a page of it: nearfar report {folder}"])


def _task_trial_line(record: Record) -> str:
    """A trial of several tasks in one line."""
    title = f"{record.contender}, seed {record.seed}"
    if not record.done:
        return f"{title}: failed: {record.reason}"
    dev = {name: score for name, score in record.scores.items() if name != record.metric and " " not in name}
    tasks = ", ".join(f"{name} {score:.3f}" for name, score in dev.items())
    return f"{title}: {record.metric} {record.score:.3f} ({tasks})"


def _console() -> Console:

    console = open_console()
    return console if console.is_terminal else open_console(width=WIDTH)


def _studies(
    prepared: Prepared, executor: LocalExecutor, *, retry_failed: bool, dry_run: bool
) -> list[tuple[Problem, ...]]:
    """Run the studies one after the other; what is wrong with those that cannot begin."""
    from nearfar.cli.study_actions import study_dry_run, study_run_command

    refused = []
    for ready in prepared.studies:
        try:
            run = study_dry_run if dry_run else study_run_command
            run(ready.file, ready.folder, executor, retry_failed=retry_failed)
        except DataError as error:
            refused.append(error.problems)
    return refused


def _show(
    paper: Paper, table: PublishedTable, lines: Sequence[Line], more: Sequence[str], rows: Sequence[list[str]]
) -> None:
    from rich.table import Column, Table

    from nearfar.cli.study_actions import say
    from nearfar.experiments.published.comparison import HEAD, WORDS, averages, conclusion

    console = _console()
    title = f"{paper.name}, table {table.number}: {table.title}; baseline {table.baseline}"
    columns = (Column(name, justify="left" if name in WORDS else "right") for name in HEAD)
    shown = Table(*columns, title=title, title_justify="left")
    before = None
    for line in lines:
        if before is not None and (line.metric, line.data) != before:
            shown.add_section()
        shown.add_row(*line.cells())
        before = (line.metric, line.data)
    shown.add_section()
    for cells in (*rows, *averages(lines)):
        shown.add_row(*cells)
    console.print(shown)
    for sentence in (*conclusion(lines), *more):
        say(console, sentence)


def _list(name: str | None) -> None:
    """All tables and figures of all papers, or of one."""
    from nearfar.experiments.published import find_paper, papers, study_values

    for paper in papers() if name is None else [find_paper(name)]:
        typer.echo(f"{paper.name}: {paper.title} ({paper.cite})")
        for table in paper.tables:
            sets = ", ".join(dict.fromkeys(data for rows in table.published.values() for data in rows)) or ", ".join(
                entry["name"] for name in table.studies for entry in study_values(name)["data"]
            )
            if table.tasks is not None:
                sets = "+".join(study_values(table.tasks)["task"])
            typer.echo(f"  --table {table.number}: {table.title}; {sets}")
        for figure in paper.figures:
            typer.echo(f"  --figure {figure.number}: {figure.title}")


def _checkpoints(given: Sequence[str]) -> dict[str, str]:
    """Contenders and their encoders, which must be there; a folder by its whole path."""
    from nearfar.encoding.pretrained import find

    found = {}
    for each in given:
        name, sign, encoder = each.partition("=")
        if not (name and sign and encoder):
            raise SettingError(f"--checkpoint is a contender and its encoder, as in SimCSE=FOLDER; got {each!r}.")
        find(encoder)
        found[name] = str(Path(encoder).absolute()) if Path(encoder).is_dir() else encoder
    return found


def _seeds(given: str | None) -> tuple[int, ...] | None:
    """Numbers with commas between them.

    >>> _seeds("2,16")
    (2, 16)
    """
    if given is None:
        return None
    parts = [part.strip() for part in given.split(",")]
    numbers = tuple(int(part) for part in parts if part.isascii() and part.isdigit())
    if len(set(numbers)) < len(parts):
        raise SettingError(f"--seeds is whole numbers with commas between them, none twice, as in 2,16; got {given!r}.")
    return numbers


def _names(given: str | None) -> tuple[str, ...] | None:
    """Names with commas between them.

    >>> _names("trec, cr")
    ('trec', 'cr')
    """
    if given is None:
        return None
    names = tuple(part.strip() for part in given.split(","))
    if "" in names or len(set(names)) < len(names):
        raise SettingError(f"--sets is names with commas between them, none twice, as in trec,cr; got {given!r}.")
    return names


def _say(lines: Sequence[str]) -> None:
    for line in lines:
        typer.echo(line, err=True)
