"""Arguments and options that several commands share, and how they write their results."""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any, Literal

import typer

from nearfar.errors import OutputError, SettingError, did_you_mean
from nearfar.files import atomic, refuse_remote

if TYPE_CHECKING:
    from rich.console import Console

    from nearfar.encoding import Model as OpenModel

DATA_HELP = (
    "CSV, TSV, JSONL, JSON or .txt (also .gz), Parquet, .xlsx, a folder saved by datasets, hub:NAME, sample:helpdesk, "
    "or - for standard input."
)

Data = Annotated[str, typer.Argument(help=DATA_HELP, metavar="FILE")]
Model = Annotated[str, typer.Argument(help="A model folder, or an encoder by name.", metavar="MODEL")]

Text = Annotated[str | None, typer.Option("--text", help="Column with the text (of a pair: the first).")]
Pair = Annotated[str | None, typer.Option("--pair", help="Column with the second text of a pair.")]
Label = Annotated[str | None, typer.Option("--label", help="Column with the class.")]
LabelSeparator = Annotated[
    str | None,
    typer.Option("--label-separator", metavar="TEXT", help="What separates several labels of a text, such as ';'."),
]
Score = Annotated[str | None, typer.Option("--score", help="Column with the score of a text, or of a pair.")]
Invalid = Annotated[
    str | None, typer.Option("--invalid", metavar="refuse|drop", help="What to do with rows that cannot be used.")
]
Encoding = Annotated[
    str | None, typer.Option("--encoding", help="Character encoding of text files, such as cp1252; unset: detected.")
]
Large = Annotated[
    bool,
    typer.Option(
        "--large", help="Read texts of any length, and compressed files whose content is far larger than they are."
    ),
]
CorpusText = Annotated[str | None, typer.Option("--corpus-text", help="Column with the text in the corpus.")]

Encoder = Annotated[
    str | None, typer.Option(help="minilm, toy, a folder or an id on the Hugging Face hub; to compare: a,b or auto.")
]
Seed = Annotated[int, typer.Option(min=0, help="Seed of all random numbers.")]
BatchSize = Annotated[int, typer.Option("--batch-size", min=1, help="Texts computed at once.")]
Device = Annotated[
    str | None,
    typer.Option("--device", metavar="cpu|cuda|mps", help="Where the model computes; unset: a GPU where there is one."),
]
Precision = Annotated[
    str | None,
    typer.Option(
        "--precision",
        metavar="auto|fp32|bf16|int8",
        help="Number format of the matrix products; auto: the fastest, measured; unset: bf16 if the processor has it.",
    ),
]
Workers = Annotated[int | None, typer.Option(min=1, help="Processes; unset: one for each core.")]
Threshold = Annotated[
    float | None,
    typer.Option("--threshold", help="Decision threshold: the lowest cosine of a positive pair; unset: the model's."),
]
Task = Annotated[
    str | None, typer.Option("--task", help="Which task, of a model trained with several ([[task]] tables).")
]

On = Annotated[str, typer.Option("--on", metavar="local|ray", help="Where shards are computed.")]
Address = Annotated[str, typer.Option("--address", help="Of the Ray cluster; auto finds the one of this machine.")]
Threads = Annotated[int, typer.Option("--threads", min=1, help="Threads of each worker that computes shards.")]
Gpus = Annotated[float, typer.Option("--gpus-per-worker", min=0, help="GPUs of each worker, with --on ray.")]
RowsPerShard = Annotated[int, typer.Option("--rows-per-shard", min=1, help="Rows of an input file in a shard.")]

OutLines = Annotated[str, typer.Option("--out", help="A .jsonl file, or - for standard output.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace existing files.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]


def open_console(*, stderr: bool = False, width: int | None = None) -> Console:
    """A console that prints texts, labels and file names as they are: no markup, and ``:100`` is no emoji."""
    from rich.console import Console

    return Console(stderr=stderr, width=width, markup=False, emoji=False)


def use_device(name: str | None) -> None:
    """Open models on this device from now on; one that is not there is refused."""
    if name is not None:
        from nearfar.encoding.devices import use_device as use

        use(name)


_precision: str | None = None


def use_precision(name: str | None) -> None:
    """Have the models that :func:`prepared` gets compute in this number format."""
    global _precision
    known = ("auto", "fp32", "bf16", "int8")
    if name is not None and name not in known:
        raise SettingError(f"--precision is one of {', '.join(known)}, got {name!r}.{did_you_mean(name, known)}")
    _precision = name


def prepared(model: OpenModel) -> OpenModel:
    """The model, computing in the number format that was asked for; another than fp32 is printed."""
    from nearfar.encoding.formats import Precision as Asked
    from nearfar.encoding.formats import use_precision as use
    from nearfar.recipe.training_texts import training_texts

    asked: Any = _precision
    given: Asked | None = asked
    choice = use(model, given, own_texts=training_texts)
    if given is not None or choice.form != "fp32":
        print_notes([f"precision: {choice.form} ({choice.reason})"])
    return model


def note_former_name(former: str, present: str) -> None:
    """Log that a flag has another name now."""
    logging.getLogger(__name__).warning("%s is now %s; the former name is still accepted", former, present)


def given(*flags: tuple[str, str, object]) -> list[tuple[str, str, object]]:
    """Of ``(recipe key, flag, value)``, those whose flag was given."""
    return [flag for flag in flags if flag[2] is not None]


Handling = Literal["refuse", "drop"]


def handling(invalid: str | None) -> Handling:
    """What was asked to be done with bad rows."""
    if invalid not in (None, "refuse", "drop"):
        raise SettingError(f"--invalid is refuse or drop, got {invalid!r}.")
    return "drop" if invalid == "drop" else "refuse"


def check_target(out: str, *, overwrite: bool) -> None:
    """Refuse an output that cannot be written, before the work."""
    if out == "-":
        return
    refuse_remote(out)
    path = Path(out)
    if path.is_dir():
        raise OutputError(f"{out}: this is a folder; give the name of a file.")
    if path.exists() and not overwrite:
        raise OutputError(f"{out}: the file exists. Replace it with --overwrite, or choose another --out.")
    if not path.parent.is_dir():
        raise OutputError(f"{out}: there is no folder {path.parent}; make it first.")
    if not os.access(path.parent, os.W_OK):
        raise OutputError(f"{out}: nothing can be written to the folder {path.parent}.")


def write_target(out: str, write: Callable[[IO[bytes]], None]) -> None:
    """Write to standard output, or to a file that is there whole or not at all."""
    if out == "-":
        write(sys.stdout.buffer)
        sys.stdout.buffer.flush()
        return
    try:
        with atomic(Path(out)) as temporary, temporary.open("wb") as file:
            write(file)
    except OSError as cause:
        raise OutputError(f"{out}: writing failed: {cause.strerror}.") from cause


def one_standard_input(*sources: str | None) -> None:
    """Refuse to read two files from standard input, which comes only once."""
    if sources.count("-") > 1:
        raise SettingError("only one file can come from standard input: name the others.")


def write_lines(out: str, rows: Iterable[Mapping[str, object]]) -> None:
    """Write one JSON object a line."""

    def write(file: IO[bytes]) -> None:
        for row in rows:
            file.write((json.dumps(row, ensure_ascii=False) + "\n").encode(errors="backslashreplace"))

    write_target(out, write)


def print_json(values: Mapping[str, object]) -> None:
    """Print JSON on standard output."""
    sys.stdout.write(json.dumps(values, ensure_ascii=False, indent=2) + "\n")


def print_notes(notes: Iterable[str], source: str | None = None) -> None:
    """Print what the user should know about the data, on standard error; ``source`` is the file that notes are of."""
    for note in notes:
        sys.stderr.write(f"note: {note}\n" if source is None else f"note: {source}: {note}\n")
