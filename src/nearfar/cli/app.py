"""The command line: verbs, their flags, and how errors are shown."""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from nearfar import __version__
from nearfar.cli.reproduce import reproduce
from nearfar.cli.study import study_app
from nearfar.errors import Interrupted, NearfarError, SettingError

DATA_HELP = (
    "CSV, TSV, JSONL, JSON or .txt (also .gz), Parquet, a folder saved by datasets, hub:NAME, sample:helpdesk, "
    "or - for standard input."
)

app = typer.Typer(
    name="nearfar",
    help="Fine-tune text encoders so that like texts come near and unlike texts go far.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(study_app)

DataArgument = Annotated[str, typer.Argument(help=DATA_HELP, metavar="FILE")]
ModelArgument = Annotated[str, typer.Argument(help="A model folder, or an encoder by name.", metavar="MODEL")]
TextOption = Annotated[str | None, typer.Option("--text", help="Column with the text (of a pair: the first).")]
PairOption = Annotated[str | None, typer.Option("--pair", help="Column with the second text of a pair.")]
LabelOption = Annotated[str | None, typer.Option("--label", help="Column with the class.")]
ScoreOption = Annotated[str | None, typer.Option("--score", help="Column with a graded score.")]
BatchOption = Annotated[int, typer.Option("--batch-size", min=1, help="Texts computed at once.")]
InvalidOption = Annotated[
    str | None, typer.Option("--invalid", metavar="refuse|drop", help="What to do with rows that cannot be used.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
CorpusOption = Annotated[str | None, typer.Option("--corpus", metavar="FILE", help="Texts to search among.")]
CorpusTextOption = Annotated[str | None, typer.Option("--corpus-text", help="Column with the text in the corpus.")]
ThresholdOption = Annotated[
    float | None,
    typer.Option("--threshold", help="The cosine from which a pair is a yes; unset: that of the model's dev rows."),
]
LinesOption = Annotated[str, typer.Option("--out", help="A .jsonl file, or - for standard output.")]
TaskOption = Annotated[
    str | None, typer.Option("--task", help="Which task, of a model trained with several ([[task]] tables).")
]
OverwriteOption = Annotated[bool, typer.Option("--overwrite", help="Replace what is already there.")]


@app.callback(invoke_without_command=True)
def _root(
    version: Annotated[bool, typer.Option("--version", help="Print the version and leave.", is_eager=True)] = False,
) -> None:
    if version:
        typer.echo(f"nearfar {__version__}")
        raise typer.Exit
    logger = logging.getLogger("nearfar")
    if not any(isinstance(handler, _Notes) for handler in logger.handlers):
        logger.addHandler(_Notes())


@app.command()
def train(
    source: Annotated[
        str | None, typer.Argument(help=f"A recipe (.toml), or the training data: {DATA_HELP}", metavar="RECIPE|FILE")
    ] = None,
    out: Annotated[Path, typer.Option("--out", help="Folder for the model.")] = Path("model"),
    objective: Annotated[str | None, typer.Option(help="What to train for; see 'nearfar objectives'.")] = None,
    encoder: Annotated[
        str | None, typer.Option(help="minilm, toy, a folder, or an id on the Hugging Face hub.")
    ] = None,
    dev: Annotated[str | None, typer.Option(help="Dev data: a file, or a share such as 0.1.")] = None,
    test: Annotated[str | None, typer.Option(help="Test data: a file, or a share such as 0.1.")] = None,
    text: TextOption = None,
    pair: PairOption = None,
    label: LabelOption = None,
    score: ScoreOption = None,
    invalid: InvalidOption = None,
    epochs: Annotated[int | None, typer.Option(help="How often every text is seen.")] = None,
    batch_size: Annotated[int | None, typer.Option(help="Texts in a batch.")] = None,
    learning_rate: Annotated[float | None, typer.Option(help="Highest learning rate of the encoder.")] = None,
    max_length: Annotated[int | None, typer.Option(help="Tokens of a text that are read.")] = None,
    pooling: Annotated[str | None, typer.Option(help="first, mean or pooler.")] = None,
    precision: Annotated[str | None, typer.Option(help="auto, fp32 or bf16.")] = None,
    seed: Annotated[int | None, typer.Option(help="The number all randomness follows from.")] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Any recipe key, e.g. training.warmup=0.1.")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue the interrupted run in --out.")] = False,
    overwrite: OverwriteOption = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check recipe and data, print the recipe, and stop.")
    ] = False,
) -> None:
    """Fine-tune an encoder from a recipe, or straight from a data file."""
    from nearfar.cli.train import train_command

    flags: list[tuple[str, str, object]] = [
        ("objective.name", "--objective", objective),
        ("encoder.name", "--encoder", encoder),
        ("data.dev", "--dev", dev),
        ("data.test", "--test", test),
        ("data.text", "--text", text),
        ("data.pair", "--pair", pair),
        ("data.label", "--label", label),
        ("data.score", "--score", score),
        ("data.invalid", "--invalid", invalid),
        ("training.epochs", "--epochs", epochs),
        ("batches.size", "--batch-size", batch_size),
        ("training.learning_rate", "--learning-rate", learning_rate),
        ("encoder.max_length", "--max-length", max_length),
        ("encoder.pooling", "--pooling", pooling),
        ("training.precision", "--precision", precision),
        ("seed", "--seed", seed),
    ]
    given = [(key, flag, value) for key, flag, value in flags if value is not None]
    train_command(source, out, given, set_ or [], resume=resume, overwrite=overwrite, dry_run=dry_run)


@app.command()
def check(
    source: DataArgument,
    text: TextOption = None,
    pair: PairOption = None,
    label: LabelOption = None,
    score: ScoreOption = None,
    encoder: Annotated[
        str | None, typer.Option(help="Whose tokens to count; 'none' leaves token lengths out.")
    ] = "minilm",
    json_: JsonOption = False,
) -> None:
    """Look a data file over: rows, classes, lengths, duplicates, and everything that is wrong with it."""
    from nearfar.cli.check import check_command
    from nearfar.data import Layout

    encoder = None if encoder in (None, "", "none") else encoder
    ok = check_command(source, Layout(text=text, pair=pair, label=label, score=score), encoder, as_json=json_)
    raise typer.Exit(0 if ok else 1)


@app.command()
def evaluate(
    context: typer.Context,
    model: ModelArgument,
    source: Annotated[
        str | None, typer.Argument(help=f"{DATA_HELP} Not with --suite.", metavar="FILE", show_default=False)
    ] = None,
    suite: Annotated[
        str | None,
        typer.Option(
            metavar="sts|all", help="Measure on a folder of scored pairs: the STS sets and SimLex-999, or every file."
        ),
    ] = None,
    data: Annotated[
        str | None, typer.Option("--data", metavar="FOLDER", envvar="NEARFAR_DATA", help="The folder of --suite.")
    ] = None,
    text: TextOption = None,
    pair: PairOption = None,
    label: LabelOption = None,
    score: ScoreOption = None,
    corpus: CorpusOption = None,
    corpus_text: CorpusTextOption = None,
    threshold: ThresholdOption = None,
    invalid: InvalidOption = None,
    batch_size: BatchOption = 64,
    task: TaskOption = None,
    mistakes: Annotated[
        int, typer.Option(min=0, metavar="N", help="Show the N most confident mistakes of a task on FILE.")
    ] = 0,
    json_: JsonOption = False,
) -> None:
    """Measure a model: a classifier on labeled texts, an encoder on pairs, triplets, a ranking, a corpus or a suite.

    A model of several tasks is measured in one of them on FILE, or without FILE in all of them on the dev and test rows
    of its recipe, with their mean.
    """
    from nearfar.cli.predict import evaluate_command, file_or_suite
    from nearfar.cli.tasks import evaluate_tasks_command, holds_tasks
    from nearfar.data import Layout

    layout = Layout(text=text, pair=pair, label=label, score=score)
    typed = getattr(context.get_parameter_source("data"), "name", "") == "COMMANDLINE"  # the variable may always be set
    if suite is None and typed:
        raise SettingError("--data is the folder of --suite; add --suite sts or --suite all, or leave --data out.")
    if task is not None and (suite is not None or corpus is not None):
        raise SettingError("--task measures a head, and --suite and --corpus the encoder; give one of them.")
    if task is not None or (holds_tasks(model) and suite is None and corpus is None):
        evaluate_tasks_command(
            model, task, source, layout, invalid, batch_size, mistakes=mistakes, threshold=threshold, as_json=json_
        )
        return
    if mistakes:
        raise SettingError("--mistakes shows those of a task: of a model trained with [[task]] tables.")
    others = {"--label": label, "--corpus": corpus, "--corpus-text": corpus_text, "--threshold": threshold}
    source = file_or_suite(source, suite, data, others)
    if suite is not None and data is not None:
        from nearfar.cli.suites import suite_command

        suite_command(model, suite, data, layout, invalid, batch_size, as_json=json_)
        return
    evaluate_command(
        model, source, layout, invalid, batch_size, corpus=corpus, corpus_text=corpus_text, threshold=threshold,
        as_json=json_,
    )  # fmt: skip


@app.command()
def geometry(
    model: ModelArgument,
    source: DataArgument,
    pairs: Annotated[
        str | None, typer.Option(metavar="FILE", help="Pairs, of which the like ones tell the alignment; e.g. STS.")
    ] = None,
    before: Annotated[
        str | None, typer.Option(metavar="MODEL", help="Another model, to be shown beside: what the first was once.")
    ] = None,
    layers: Annotated[bool, typer.Option("--layers", help="Look at every layer of the encoder, too.")] = False,
    seed: Annotated[int, typer.Option(min=0, help="Which random pairs, where not all are compared.")] = 0,
    text: Annotated[str | None, typer.Option("--text", help="Column with the text.")] = None,
    pair: PairOption = None,
    invalid: InvalidOption = None,
    batch_size: BatchOption = 64,
    json_: JsonOption = False,
) -> None:
    """See what the space of a model looks like: alignment, uniformity, anisotropy, effective rank, cosines, layers."""
    from nearfar.cli.geometry import geometry_command
    from nearfar.data import Layout

    geometry_command(
        model, source, Layout(text=text, pair=pair), invalid, batch_size, pairs=pairs, before=before, layers=layers,
        seed=seed, as_json=json_,
    )  # fmt: skip


@app.command()
def whiten(
    model: ModelArgument,
    source: DataArgument,
    out: Annotated[Path, typer.Option("--out", help="Folder for the model with the map.")],
    method: Annotated[
        str, typer.Option(metavar="whitening|all-but-the-top", help="The map that is fitted to the vectors.")
    ] = "whitening",
    dims: Annotated[
        int | None, typer.Option(min=1, help="Directions that a whitening keeps, the widest first; unset: all.")
    ] = None,
    remove: Annotated[
        int | None,
        typer.Option(min=0, help="Directions that all-but-the-top removes; unset: a hundredth of the width."),
    ] = None,
    text: TextOption = None,
    pair: PairOption = None,
    invalid: InvalidOption = None,
    batch_size: BatchOption = 64,
    overwrite: OverwriteOption = False,
) -> None:
    """Straighten the space of a model without training: a linear map, fitted to texts and stored behind its pooling."""
    from nearfar.cli.geometry import whiten_command
    from nearfar.data import Layout

    whiten_command(
        model, source, out, Layout(text=text, pair=pair), invalid, batch_size, method=method, dims=dims,
        remove=remove, overwrite=overwrite,
    )  # fmt: skip


@app.command()
def predict(
    model: ModelArgument,
    source: DataArgument,
    out: Annotated[str, typer.Option("--out", help="A .jsonl file, or - for standard output.")] = "-",
    text: TextOption = None,
    pair: PairOption = None,
    task: TaskOption = None,
    invalid: InvalidOption = None,
    batch_size: BatchOption = 64,
    overwrite: OverwriteOption = False,
) -> None:
    """Label texts: one JSON object a line with text, label and probabilities, or the score of a task."""
    from nearfar.cli.predict import predict_command
    from nearfar.cli.tasks import holds_tasks, predict_tasks_command
    from nearfar.data import Layout

    if task is not None or holds_tasks(model):
        layout = Layout(text=text, pair=pair)
        predict_tasks_command(model, task, source, out, layout, invalid, batch_size, overwrite=overwrite)
        return
    predict_command(model, source, out, Layout(text=text, pair=pair), invalid, batch_size, overwrite=overwrite)


@app.command()
def export(
    model: ModelArgument,
    out: Annotated[Path, typer.Option("--out", help="Folder for the classifier.")],
    task: TaskOption = None,
    overwrite: OverwriteOption = False,
) -> None:
    """Write the classifier of one of several tasks as a folder that AutoModelForSequenceClassification opens."""
    from nearfar.cli.tasks import export_command

    export_command(model, task, out, overwrite=overwrite)


@app.command()
def embed(
    model: ModelArgument,
    source: DataArgument,
    out: Annotated[str, typer.Option("--out", help="A .npy file, or - for standard output.")],
    text: TextOption = None,
    invalid: InvalidOption = None,
    batch_size: BatchOption = 64,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue the unfinished vectors of an interrupted run.")
    ] = False,
    overwrite: OverwriteOption = False,
) -> None:
    """Turn texts into vectors: a NumPy file of one float32 row per text."""
    from nearfar.cli.embed import embed_command
    from nearfar.data import Layout

    embed_command(model, source, out, Layout(text=text), invalid, batch_size, resume=resume, overwrite=overwrite)


@app.command()
def score(
    model: ModelArgument,
    source: DataArgument,
    out: LinesOption = "-",
    text: TextOption = None,
    pair: PairOption = None,
    threshold: ThresholdOption = None,
    invalid: InvalidOption = None,
    batch_size: BatchOption = 64,
    overwrite: OverwriteOption = False,
) -> None:
    """Compare pairs of texts: one JSON object a line with both texts and their cosine."""
    from nearfar.cli.predict import score_command
    from nearfar.data import Layout

    layout = Layout(text=text, pair=pair)
    score_command(model, source, out, layout, invalid, batch_size, threshold=threshold, overwrite=overwrite)


@app.command()
def search(
    model: ModelArgument,
    corpus: Annotated[str, typer.Argument(help=f"Texts to search among: {DATA_HELP}", metavar="CORPUS")],
    queries: Annotated[str, typer.Argument(help="Texts to search for, one a row, or a ranking.", metavar="QUERIES")],
    top: Annotated[int, typer.Option("--top", min=1, help="Documents of each query.")] = 10,
    out: LinesOption = "-",
    text: Annotated[str | None, typer.Option("--text", help="Column with the text in the queries.")] = None,
    corpus_text: CorpusTextOption = None,
    invalid: InvalidOption = None,
    batch_size: BatchOption = 64,
    overwrite: OverwriteOption = False,
) -> None:
    """Find the texts nearest to each query: one JSON object a line with the query and its results."""
    from nearfar.cli.search import search_command

    search_command(
        model, corpus, queries, out, invalid, batch_size, top=top, text=text, corpus_text=corpus_text,
        overwrite=overwrite,
    )  # fmt: skip


@app.command()
def mine(
    model: ModelArgument,
    source: DataArgument,
    out: Annotated[str, typer.Option("--out", help="A .jsonl file, or - for standard output.")],
    corpus: Annotated[
        str | None,
        typer.Option("--corpus", metavar="FILE", help="Where negatives come from; unset: the right texts of FILE."),
    ] = None,
    as_: Annotated[
        str, typer.Option("--as", metavar="triplets|pairs", help="Rows to write: triplets, or pairs with label 1 or 0.")
    ] = "triplets",
    positions: Annotated[
        str,
        typer.Option(
            metavar="A-B|powers",
            help="Ranks that negatives are drawn from, 1 being the nearest text; powers: the ranks 100 + 2^j.",
        ),
    ] = "10-50",
    per_anchor: Annotated[
        int | None, typer.Option(min=1, help="Negatives of an anchor; unset: 5 of a window, all of the powers.")
    ] = None,
    margin: Annotated[
        float | None, typer.Option(help="How far below those of all positives a negative's cosine must be.")
    ] = None,
    max_score: Annotated[float | None, typer.Option(help="Highest cosine of a negative with its anchor.")] = None,
    oversample: Annotated[
        bool, typer.Option("--oversample", help="Repeat positive pairs until there are as many as negative ones.")
    ] = False,
    seed: Annotated[int, typer.Option(min=0, help="The number all randomness follows from.")] = 2,
    text: TextOption = None,
    pair: PairOption = None,
    label: LabelOption = None,
    score: ScoreOption = None,
    corpus_text: CorpusTextOption = None,
    invalid: InvalidOption = None,
    batch_size: BatchOption = 64,
    overwrite: OverwriteOption = False,
) -> None:
    """Find hard negatives for pairs that belong together: texts the model takes for near that are not known to be."""
    from nearfar.cli.mine import mine_command, parse_positions
    from nearfar.data import Layout
    from nearfar.pipeline.hard_negatives import Mining

    settings = Mining(
        window=parse_positions(positions), per_anchor=per_anchor, margin=margin, max_score=max_score, seed=seed
    )
    mine_command(
        model, source, out, Layout(text=text, pair=pair, label=label, score=score), invalid, batch_size, settings,
        corpus=corpus, corpus_text=corpus_text, form=as_, oversample=oversample, overwrite=overwrite,
    )  # fmt: skip


@app.command()
def tune(
    source: DataArgument,
    out: Annotated[Path, typer.Option("--out", help="Folder for the model, the trials and the report.")] = Path(
        "tuned"
    ),
    minutes: Annotated[float, typer.Option(help="The time there is, over all calls with this --out.")] = 10,
    folds: Annotated[int, typer.Option(help="The parts of which each is tested on once.")] = 3,
    rounds: Annotated[int, typer.Option(help="How often the folds are drawn anew, at most.")] = 4,
    metric: Annotated[str, typer.Option(help="The score to choose by; auto is what suits the data.")] = "auto",
    seed: Annotated[int, typer.Option(help="The number all randomness follows from.")] = 2,
    encoder: Annotated[
        str | None, typer.Option(help="minilm, toy, a folder, or an id on the Hugging Face hub.")
    ] = None,
    vectors: Annotated[
        bool,
        typer.Option("--vectors", help="Of pairs with yes and no: compare vectors, rather than read both at once."),
    ] = False,
    text: TextOption = None,
    pair: PairOption = None,
    label: LabelOption = None,
    score: ScoreOption = None,
    invalid: InvalidOption = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="A recipe key that holds for all contenders.")
    ] = None,
    workers: Annotated[int | None, typer.Option(min=1, help="Processes; unset: one for each core.")] = None,
) -> None:
    """Try the sensible objectives on a labeled file for some minutes, and train the best on all of it."""
    from nearfar.cli.train import gather_overrides
    from nearfar.cli.tune import tune_command
    from nearfar.experiments.search_space import Request

    flags: list[tuple[str, str, object]] = [
        ("encoder.name", "--encoder", encoder),
        ("data.text", "--text", text),
        ("data.pair", "--pair", pair),
        ("data.label", "--label", label),
        ("data.score", "--score", score),
        ("data.invalid", "--invalid", invalid),
    ]
    overrides = gather_overrides([flag for flag in flags if flag[2] is not None], set_ or [])
    request = Request(
        file=source, out=out, minutes=minutes, folds=folds, rounds=rounds, metric=metric, seed=seed, vectors=vectors,
        settings=tuple(overrides),
    )  # fmt: skip
    tune_command(request, workers=workers)


@app.command()
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
            help="The page, or the table for a paper; unset: by the ending of --out (.md, .csv, .tex), else html.",
        ),
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(
            "--data",
            metavar="FILE",
            help="Of a model: labeled rows to predict, map and search; of an encoder, texts or pairs to measure.",
        ),
    ] = None,
    task: Annotated[
        str | None, typer.Option("--task", help="Of a model with several tasks: whose rows --data has.")
    ] = None,
    batch_size: BatchOption = 64,
    overwrite: OverwriteOption = False,
) -> None:
    """Show a study or a run to people: one page that needs no network, or the table for a paper."""
    from nearfar.cli.report import report_command

    report_command(folder, out, form, data=data, task=task, batch_size=batch_size, overwrite=overwrite)


app.command()(reproduce)


@app.command()
def objectives(
    name: Annotated[str | None, typer.Argument(help="One objective, to see all of it.")] = None,
    json_: JsonOption = False,
) -> None:
    """What can be trained for, on which data, and where it comes from."""
    from nearfar.cli.objectives import objectives_command

    objectives_command(name, as_json=json_)


def main() -> None:
    """Run the command; what nearfar refuses is shown as a message, never as a traceback."""
    if "OMP_WAIT_POLICY" not in os.environ:  # read when torch is loaded: docs/why/fast-path.md has the figures
        os.environ.setdefault("GOMP_SPINCOUNT", "10000")
    try:
        app(standalone_mode=True)
    except Interrupted as stop:
        _tell(str(stop))
        sys.exit(130)
    except NearfarError as error:
        _tell(f"error: {error}")
        sys.exit(1)
    except KeyboardInterrupt:
        _tell("interrupted")
        sys.exit(130)
    except BrokenPipeError:  # the reader of our output has gone, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)


class _Notes(logging.Handler):
    """What the library logs, as notes on standard error."""

    def emit(self, record: logging.LogRecord) -> None:
        _tell(f"note: {record.getMessage()}")


def _tell(text: str) -> None:
    if os.environ.get("RANK", "0") == "0":  # of several processes one speaks
        sys.stderr.write(f"{text}\n")
