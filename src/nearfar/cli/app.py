"""The ``nearfar`` command: its subcommands, and how errors are shown."""

from __future__ import annotations

import io
import logging
import os
import sys
from typing import Annotated

import typer

from nearfar import __version__
from nearfar.cli.check import check
from nearfar.cli.embed import embed
from nearfar.cli.evaluate import evaluate
from nearfar.cli.export import export
from nearfar.cli.extend import extend
from nearfar.cli.geometry import geometry
from nearfar.cli.index import index
from nearfar.cli.mine import mine
from nearfar.cli.objectives import objectives
from nearfar.cli.predict import predict, score
from nearfar.cli.push import push
from nearfar.cli.report import report
from nearfar.cli.reproduce import reproduce
from nearfar.cli.search import search
from nearfar.cli.serve import serve
from nearfar.cli.study import study_app
from nearfar.cli.train import train
from nearfar.cli.tune import tune
from nearfar.cli.whiten import whiten
from nearfar.cli.workbench import explore, label
from nearfar.errors import Interrupted, NearfarError, ProcessError
from nearfar.files import is_full

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


for command in (
    *(
        train,
        check,
        evaluate,
        geometry,
        whiten,
        predict,
        extend,
        export,
        serve,
        embed,
        score,
        index,
        search,
        mine,
        tune,
        report,
        reproduce,
        label,
        explore,
    ),
    objectives,
    push,
):
    app.command()(command)


def main() -> None:
    """Run the command; errors of nearfar are shown as a message, not as a traceback."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # what cannot be encoded is escaped, also in JSON
    if "OMP_WAIT_POLICY" not in os.environ:  # read when torch is loaded: docs/why/fast-path.md has the figures
        os.environ.setdefault("GOMP_SPINCOUNT", "10000")
    for stream in (sys.stdout, sys.stderr):  # half of a surrogate pair is printed as JSON escapes it
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        app(standalone_mode=True)
    except Interrupted as stop:
        _print(str(stop))
        sys.exit(130)
    except ProcessError as error:
        sys.stderr.write(f"error: {error}\n")  # by any process: the first may be the one that is gone
        sys.stderr.flush()
        os._exit(1)  # torch would wait for the process that is gone
    except NearfarError as error:
        _print(f"error: {error}")
        sys.exit(1)
    except (MemoryError, RuntimeError) as error:
        if not _is_memory(error):
            raise
        _print(f"error: there is not enough memory for this: {MEMORY_REMEDY}")
        sys.exit(1)
    except KeyboardInterrupt:
        _print("interrupted")
        sys.exit(130)
    except BrokenPipeError:  # the reader has closed the pipe, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)
    except OSError as error:
        if not is_full(error):
            raise
        where = "" if error.filename is None else f"{error.filename}: "
        _print(f"error: {where}there is no room left to write: make room and give the same command again.")
        sys.exit(1)


MEMORY_REMEDY = "use smaller batches (--batch-size), fewer or shorter texts, or a smaller encoder."


def _is_memory(error: Exception) -> bool:
    """Whether an error says that memory is exhausted, whichever library raised it."""
    words = ("can't allocate memory", "out of memory", "Cannot allocate memory")
    return isinstance(error, MemoryError) or any(word in str(error) for word in words)


class _Notes(logging.Handler):
    """What the library logs, as notes on standard error."""

    def emit(self, record: logging.LogRecord) -> None:
        _print(f"note: {record.getMessage()}")


def _print(text: str) -> None:
    if os.environ.get("RANK", "0") == "0":  # of several processes, one prints
        sys.stderr.write(f"{text}\n")
