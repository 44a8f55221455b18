"""The ``nearfar`` command: its subcommands, and how errors are shown."""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from nearfar import __version__
from nearfar.cli import options
from nearfar.cli.check import check
from nearfar.cli.embed import embed
from nearfar.cli.evaluate import evaluate
from nearfar.cli.export import export
from nearfar.cli.geometry import geometry
from nearfar.cli.mine import mine
from nearfar.cli.objectives import objectives
from nearfar.cli.predict import predict, score
from nearfar.cli.report import report
from nearfar.cli.reproduce import reproduce
from nearfar.cli.search import search
from nearfar.cli.study import study_app
from nearfar.cli.train import train
from nearfar.cli.whiten import whiten
from nearfar.errors import Interrupted, NearfarError

app = typer.Typer(
    name="nearfar",
    help="Fine-tune text encoders with contrastive and metric-learning objectives.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(study_app)


@app.callback(invoke_without_command=True)
def _root(
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.", is_eager=True)] = False,
) -> None:
    if version:
        typer.echo(f"nearfar {__version__}")
        raise typer.Exit
    logger = logging.getLogger("nearfar")
    if not any(isinstance(handler, _Notes) for handler in logger.handlers):
        logger.addHandler(_Notes())


def tune(
    source: options.Data,
    out: Annotated[Path, typer.Option("--out", help="Folder for the model, the trials and the report.")] = Path(
        "tuned"
    ),
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
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="A recipe key of all contenders.")
    ] = None,
    workers: options.Workers = None,
) -> None:
    """Compare objectives on a labeled file within a time budget, and train the best one on all of it."""
    from nearfar.cli.train import gather_overrides
    from nearfar.cli.tune import tune_command
    from nearfar.experiments.search_space import Request

    flags = options.given(
        ("encoder.name", "--encoder", encoder),
        ("data.text", "--text", text),
        ("data.pair", "--pair", pair),
        ("data.label", "--label", label),
        ("data.score", "--score", score),
        ("data.invalid", "--invalid", invalid),
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
    tune_command(request, workers=workers)


for command in (
    *(train, check, evaluate, geometry, whiten, predict, export, embed, score, search, mine, tune, report, reproduce),
    objectives,
):
    app.command()(command)


def main() -> None:
    """Run the command; errors of nearfar are shown as a message, not as a traceback."""
    if "OMP_WAIT_POLICY" not in os.environ:  # read when torch is loaded: docs/why/fast-path.md has the figures
        os.environ.setdefault("GOMP_SPINCOUNT", "10000")
    try:
        app(standalone_mode=True)
    except Interrupted as stop:
        _print(str(stop))
        sys.exit(130)
    except NearfarError as error:
        _print(f"error: {error}")
        sys.exit(1)
    except KeyboardInterrupt:
        _print("interrupted")
        sys.exit(130)
    except BrokenPipeError:  # the reader has closed the pipe, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)


class _Notes(logging.Handler):
    """What the library logs, as notes on standard error."""

    def emit(self, record: logging.LogRecord) -> None:
        _print(f"note: {record.getMessage()}")


def _print(text: str) -> None:
    if os.environ.get("RANK", "0") == "0":  # of several processes, one prints
        sys.stderr.write(f"{text}\n")
