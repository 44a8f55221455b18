"""``nearfar evaluate``: a saved model on a file, on a suite, or on the rows of its own recipe."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.table import Table
from rich.text import Text

from nearfar.cli import options
from nearfar.cli.options import handling, open_console, print_json, print_notes
from nearfar.errors import DataError, Problem, SettingError, counted

if TYPE_CHECKING:
    from rich.console import RenderableType

    from nearfar.data import Layout, Records
    from nearfar.data.corpora import Corpus
    from nearfar.encoding import Model
    from nearfar.encoding.task_model import TaskCard, TaskModel
    from nearfar.evaluation import ClusterReport, Report, SuiteReport
    from nearfar.evaluation.out_of_scope import ScopeReport


def suite_command(
    model_name: str, suite: str, folder: str, layout: Layout, invalid: str | None, batch_size: int, *, as_json: bool
) -> None:
    """Measure the model on every data set of the suite, and print it."""
    from nearfar.cli.progress import EmbeddingProgress
    from nearfar.encoding import load
    from nearfar.evaluation import evaluate_suite, read_suite
    from nearfar.pipeline.evaluate import require_vectors

    sets, notes = read_suite(folder, suite, layout=layout, invalid=handling(invalid))
    model = options.prepared(load(model_name))
    require_vectors(model)
    with EmbeddingProgress(sum(2 * len(one.records) for one in sets), lines=False) as progress:
        report = evaluate_suite(model, sets, batch_size=batch_size, progress=progress.reach)
    if as_json:
        sys.stdout.write(json.dumps(report.to_dict(), ensure_ascii=False, indent=2) + "\n")
    else:
        open_console().print(_table(report, f"{model_name}: Spearman's correlation of cosine and score × 100"))
    notes += [f"{name}: {score.warning}" for name, score in report.sets.items() if score.warning]
    print_notes(notes)


def _table(report: SuiteReport, title: str) -> Table:
    table = Table(title=Text(title, style="italic"), title_justify="left", min_width=min(len(title) + 2, 100))
    table.add_column("data")
    table.add_column("pairs", justify="right")
    table.add_column("Spearman", justify="right")
    for name, score in report.sets.items():
        table.add_row(Text(name), f"{score.rows:,}", f"{score.spearman:.2f}")
    table.add_section()
    beside = [name for name in report.sets if name not in report.averaged]
    words = f"mean of {counted(len(report.averaged), 'set')}" + (f", without {', '.join(beside)}" if beside else "")
    table.add_row(Text(words), f"{sum(report.sets[name].rows for name in report.averaged):,}", f"{report.mean:.2f}")
    return table


def evaluate(
    context: typer.Context,
    model: options.Model,
    source: Annotated[
        str | None, typer.Argument(help=f"{options.DATA_HELP} Not with --suite.", metavar="FILE", show_default=False)
    ] = None,
    suite: Annotated[
        str | None,
        typer.Option(
            metavar="sts|all", help="Evaluate on a folder of scored pairs: the STS sets and SimLex-999, or every file."
        ),
    ] = None,
    data: Annotated[
        str | None, typer.Option("--data", metavar="FOLDER", envvar="NEARFAR_DATA", help="The folder of --suite.")
    ] = None,
    text: options.Text = None,
    pair: options.Pair = None,
    label: options.Label = None,
    label_separator: options.LabelSeparator = None,
    score: options.Score = None,
    scale: Annotated[
        str | None, typer.Option("--scale", metavar="LOW,HIGH", help="The lowest and the highest score or grade.")
    ] = None,
    relevant: Annotated[
        float | None,
        typer.Option("--relevant", help="The lowest grade of a relevant document; unset: above the lowest."),
    ] = None,
    corpus: Annotated[str | None, typer.Option("--corpus", metavar="FILE", help="Texts to search among.")] = None,
    corpus_text: options.CorpusText = None,
    dictionary: Annotated[
        str | None,
        typer.Option(
            "--dictionary",
            metavar="FILE",
            help="Entity linking: names with the ids of entities as labels, for mentions.",
        ),
    ] = None,
    csls: Annotated[
        int | None,
        typer.Option("--csls", min=1, metavar="K", help="Search by CSLS with K neighbors, as for bilingual lexicons."),
    ] = None,
    clusters: Annotated[
        bool, typer.Option("--clusters", help="Compare k-means clusters of labeled texts with their classes.")
    ] = False,
    out_of_scope: Annotated[
        str | None,
        typer.Option(
            "--out-of-scope",
            metavar="FILE",
            help="Texts of none of the classes: how well a classifier tells them from those of FILE (AUROC, FPR).",
        ),
    ] = None,
    reject: Annotated[
        float,
        typer.Option(
            min=0, max=1, metavar="SHARE", help="The level of 'predict --reject' to measure --out-of-scope at."
        ),
    ] = 0.05,
    threshold: options.Threshold = None,
    encoding: options.Encoding = None,
    invalid: options.Invalid = None,
    large: options.Large = False,
    batch_size: options.BatchSize = 64,
    device: options.Device = None,
    precision: options.Precision = None,
    task: options.Task = None,
    mistakes: Annotated[
        int, typer.Option(min=0, metavar="N", help="Show the N most confident mistakes of a task on FILE.")
    ] = 0,
    json_: options.Json = False,
) -> None:
    """Evaluate a model: a classifier on labeled texts, an encoder on pairs, triplets, a ranking, a corpus or a suite.

    An encoder without a class head is evaluated on labeled texts by k-means clusters: NMI and purity. With --dictionary
    the labels are entities, and the nearest names are looked up.

    Of a classifier the calibration of its probabilities is measured, too: the expected calibration error (ece) and the
    log-loss. With --out-of-scope, also how well it rejects texts of none of its classes.

    A model of several tasks is evaluated on one of them with FILE, or without FILE on the dev and test rows of all of
    them, with the mean of their scores.
    """
    from nearfar.cli.columns import remembered
    from nearfar.cli.options import handling, one_standard_input
    from nearfar.cli.progress import embedding_progress
    from nearfar.data import Layout, read
    from nearfar.data.sources import locate
    from nearfar.encoding import load
    from nearfar.encoding.task_model import holds_tasks, load_tasks

    options.use_device(device)
    options.use_precision(precision)
    layout = Layout(
        text=text, pair=pair, label=label, score=score, scale=_scale(scale), relevant=relevant, encoding=encoding,
        label_separator=label_separator, large=large,
    )  # fmt: skip
    choice = handling(invalid)
    typed = getattr(context.get_parameter_source("data"), "name", "") == "COMMANDLINE"  # not by NEARFAR_DATA
    if suite is None and typed:
        raise SettingError("--data is the folder of --suite; add --suite sts or --suite all, or leave --data out.")
    given = [flag for flag, value in (("--corpus", corpus), ("--dictionary", dictionary), ("--suite", suite)) if value]
    given += ["--clusters"] if clusters else []
    if len(given) > 1:
        raise SettingError(f"{' and '.join(given)} are different evaluations; give one of them.")
    if task is not None and given:
        raise SettingError(f"--task evaluates a head, and {given[0]} the encoder; give one of them.")
    if out_of_scope is not None and (given or task is not None or holds_tasks(model)):
        beside = given[0] if given else "--task" if task is not None else "a model of several tasks"
        raise SettingError(f"--out-of-scope is for a classifier on labeled texts, not for {beside}; leave one out.")
    vectors_only = {"--corpus": corpus, "--dictionary": dictionary, "--csls": csls, "--clusters": clusters or None}
    if task is not None or (holds_tasks(model) and suite is None and not any(vectors_only.values())):
        tasks = load_tasks(model, options.prepared(load(model)))
        if source is None:
            if mistakes or threshold is not None:
                flag = "--mistakes shows those of" if mistakes else "--threshold is for"
                raise SettingError(f"{flag} one task on a file; give --task and FILE.")
            _evaluate_recipe_rows(model, tasks, task, batch_size, as_json=json_)
            return
        card = _with_threshold(tasks.card(task), threshold)
        records = read(source, remembered(model, source, layout, task=task), invalid=choice)
        _evaluate_task(tasks, card, records, batch_size, mistakes, as_json=json_)
        return
    if mistakes:
        raise SettingError("--mistakes shows those of a task: of a model trained with [[task]] tables.")
    others = {"--label": label, "--corpus-text": corpus_text, "--threshold": threshold, "--csls": csls}
    source = _file_or_suite(source, suite, data, others)
    if suite is not None and data is not None:
        suite_command(model, suite, data, layout, invalid, batch_size, as_json=json_)
        return
    if corpus_text is not None and corpus is None:
        raise SettingError("--corpus-text names a column of the file in --corpus; give that, too.")
    one_standard_input(source, corpus, out_of_scope)
    from nearfar.data.corpora import read_corpus

    for file in (source, out_of_scope):
        if file is not None:
            locate(file)  # refuses a file that does not exist before the model is opened
    opened = options.prepared(load(model))
    records = read(source, remembered(model, source, layout), invalid=choice)
    searched = None if corpus is None else read_corpus(corpus, text=corpus_text, invalid=choice, large=large)
    texts = len({*chain(*records.texts), *(() if searched is None else searched.texts)})
    with embedding_progress(opened.model, texts):
        if dictionary is not None or clusters or (not opened.labels and records.labels and records.shape == "texts"):
            if threshold is not None:
                raise SettingError(
                    "--threshold is the lowest cosine of a positive pair, and there are no pairs; leave it out."
                )
            report, notes = _evaluate_labeled(opened, records, dictionary, layout, csls, batch_size)
        else:
            report, notes = _evaluate_model(opened, records, searched, threshold, batch_size, choice, csls)
    scope = None
    if out_of_scope is not None:
        columns = remembered(model, out_of_scope, Layout(text=text, pair=pair, encoding=encoding))
        scope = _scope(opened, records, read(out_of_scope, columns, invalid=choice, need="text"), reject, batch_size)
    more = {} if scope is None else {"out_of_scope": scope.to_dict()}
    _show(report, f"{source}: {len(records):,} rows", as_json=json_, **more)
    if scope is not None and not json_:
        _show(scope, f"{out_of_scope}: {scope.out_of_scope:,} rows of no class", as_json=False)
    print_notes(records.notes, records.source)
    if searched is not None:
        print_notes(searched.notes, searched.source)
    print_notes(notes)


def _scale(given: str | None) -> tuple[float, float] | None:
    """Two numbers with a comma between them."""
    if given is None:
        return None
    try:
        low, high = map(float, given.split(","))
    except ValueError:
        raise SettingError(f"--scale is the lowest and the highest score, as in 1,4; got {given!r}.") from None
    return low, high


def _evaluate_model(
    model: Model,
    records: Records,
    corpus: Corpus | None,
    threshold: float | None,
    batch_size: int,
    invalid: Literal["refuse", "drop"],
    csls: int | None,
) -> tuple[Report, list[str]]:
    """A classifier on labeled rows, or an encoder on pairs, triplets, a ranking or a corpus."""
    from nearfar.encoding.predictor import predictor_of
    from nearfar.pipeline.evaluate import measure, measure_classes, measure_text_scores, require_vectors

    remedy = "Evaluation needs a classifier and labeled rows, or an encoder and pairs, triplets or a ranking."
    if model.labels is not None and corpus is None:
        if threshold is not None or csls is not None:
            flag = "--csls" if threshold is None else "--threshold"
            raise SettingError(f"{flag} is about cosines of pairs, and a classifier has none; leave it out.")
        if not records.is_labeled:
            message = "nothing can be compared: the file has no label column"
            raise DataError([Problem(records.source, message, remedy)])
        predictor = predictor_of(model)
        predictor.check(records)
        return measure_classes(model, predictor.texts(records.texts), records, batch_size=batch_size), []
    if model.predicts_scores and records.shape == "texts" and corpus is None:
        if records.scores is None:
            message = "nothing can be compared: the model predicts scores, and the file has no score column"
            raise DataError([Problem(records.source, message, "Name the column with the scores: --score.")])
        predictor = predictor_of(model)
        return measure_text_scores(model, predictor.texts(records.texts), records, batch_size=batch_size), []
    if records.shape == "texts":
        who = "the model has no class head" if model.labels is None else "the file has single texts"
        raise DataError([Problem(records.source, f"nothing can be compared: {who}", remedy)])
    require_vectors(model)
    given = None if threshold is None else {"threshold": threshold}
    return measure(model, records, corpus=corpus, invalid=invalid, thresholds=given, csls=csls, batch_size=batch_size)


def _scope(model: Model, records: Records, outside: Records, level: float, batch_size: int) -> ScopeReport:
    """How well the model tells the texts of its classes from those of no class."""
    from nearfar.encoding.predictor import predictor_of
    from nearfar.pipeline.evaluate import measure_scope

    predictor = predictor_of(model)
    predictor.check(outside)
    texts = [predictor.texts(rows.texts) for rows in (records, outside)]
    return measure_scope(model, *texts, level=level, batch_size=batch_size)


def _evaluate_labeled(
    model: Model, records: Records, dictionary: str | None, layout: Layout, csls: int | None, batch_size: int
) -> tuple[Report | ClusterReport, list[str]]:
    """Embeddings of labeled texts: entities looked up in a dictionary, or clusters against classes."""
    from nearfar.data import Layout, read
    from nearfar.pipeline.evaluate import measure_clusters, measure_linking

    if dictionary is not None:
        names = read(dictionary, Layout(text=layout.text, label=layout.label))
        return measure_linking(model, records, names, csls=csls, batch_size=batch_size)
    if csls is not None:
        raise SettingError("--csls is for a search: positive pairs, --corpus or --dictionary; leave it out.")
    return measure_clusters(model, records, batch_size=batch_size), []


def _evaluate_task(
    model: TaskModel, card: TaskCard, records: Records, batch_size: int, mistakes: int, *, as_json: bool
) -> None:
    """One task on a file, with its most confident mistakes where these are asked for."""
    from nearfar.encoding.predictor import task_predictor
    from nearfar.pipeline.tasks import judge, truth_of, worst

    task_predictor(model, card.name).check(records)
    outputs = model.outputs(card.name, records.texts, batch_size=batch_size)
    truth = truth_of(card, records)
    report = judge(card, outputs, truth, card.thresholds)
    wrong = worst(card, outputs, truth, records, mistakes)
    title = f"{card.name}, {records.source}: {len(records):,} rows"
    _show(report, title, as_json=as_json, **({"mistakes": wrong} if mistakes else {}))
    if mistakes and not as_json:
        open_console().print(_mistakes_table(wrong, card, len(records)))
    print_notes(records.notes, records.source)


def _evaluate_recipe_rows(name: str, model: TaskModel, task: str | None, batch_size: int, *, as_json: bool) -> None:
    """All tasks, or one, on the dev and test rows that the saved recipe names."""

    from nearfar.cli.tables import task_table
    from nearfar.pipeline.output import split_values
    from nearfar.pipeline.tasks import evaluate_saved

    named = None if task is None else model.card(task).name
    splits, notes = evaluate_saved(Path(name), model, named, batch_size=batch_size)
    metrics = {card.name: card.metric for card in model.tasks.values()}
    if as_json:
        print_json({split: split_values(reports, metrics) for split, reports in splits.items()})
    else:
        for split, reports in splits.items():
            open_console().print(task_table(split, reports, metrics))
    print_notes(notes)


def _show(report: Report | ClusterReport | ScopeReport, title: str, *, as_json: bool, **more: object) -> None:
    """Print a report as a table or as JSON."""
    if as_json:
        print_json({**report.to_dict(), **more})
        return

    from nearfar.cli.tables import report_table

    open_console().print(report_table(report, title))


def _file_or_suite(source: str | None, suite: str | None, data: str | None, others: dict[str, Any]) -> str:
    """The file to measure on, empty for a suite; refuses both, neither, and flags that say nothing to a suite."""
    if suite is None:
        if source is None:
            raise SettingError("name a FILE to measure on, or a folder of scored pairs: --suite sts --data FOLDER.")
        return source
    if source is not None:
        raise SettingError(f"--suite measures on the files of --data, so {source} has no part in it; leave one out.")
    if data is None:
        raise SettingError("--suite needs the folder of its files: --data FOLDER, or the variable NEARFAR_DATA.")
    idle = [flag for flag, value in others.items() if value is not None]
    if idle:
        raise SettingError(f"{', '.join(idle)} says nothing to --suite, which compares scored pairs; leave it out.")
    return ""


def _with_threshold(card: TaskCard, threshold: float | None) -> TaskCard:
    """The task with another threshold, where one is asked for."""
    if threshold is None:
        return card
    if card.labels is None or card.head["kind"] != "cosine":
        raise SettingError(
            f"--threshold is the lowest cosine of a positive pair, and task {card.name!r} has "
            f"{'scores' if card.labels is None else 'the head ' + repr(card.head['kind'])}; leave it out."
        )
    return replace(card, threshold=threshold, accuracy_threshold=threshold)


def _mistakes_table(rows: list[dict[str, Any]], card: TaskCard, total: int) -> RenderableType:
    from rich.table import Table
    from rich.text import Text

    if not rows:
        return Text(f"none of {total:,} rows is wrong")
    graded = card.labels is None
    sure = "error" if graded else "from the threshold" if card.head["kind"] == "cosine" else "probability"
    table = Table(title="largest errors" if graded else "most confident mistakes", title_justify="left")
    for column in ("line", "text", "truth", "said", sure):
        table.add_column(column)
    for row in rows:
        said = row["said"] if isinstance(row["said"], str) else f"{row['said']:.3g}"
        truth = row["truth"] if isinstance(row["truth"], str) else f"{row['truth']:.3g}"
        cells = (str(row["line"]), " | ".join(row["texts"]), truth, said, f"{row['sure']:.3f}")
        table.add_row(*map(Text, cells))  # texts and labels may have brackets, which are no markup
    return table
