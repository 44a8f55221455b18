"""Arguments and options that several commands share, as types of their parameters."""

from __future__ import annotations

import logging
from typing import Annotated

import typer

DATA_HELP = (
    "CSV, TSV, JSONL, JSON or .txt (also .gz), Parquet, a folder saved by datasets, hub:NAME, sample:helpdesk, "
    "or - for standard input."
)

Data = Annotated[str, typer.Argument(help=DATA_HELP, metavar="FILE")]
Model = Annotated[str, typer.Argument(help="A model folder, or an encoder by name.", metavar="MODEL")]

Text = Annotated[str | None, typer.Option("--text", help="Column with the text (of a pair: the first).")]
Pair = Annotated[str | None, typer.Option("--pair", help="Column with the second text of a pair.")]
Label = Annotated[str | None, typer.Option("--label", help="Column with the class.")]
Score = Annotated[str | None, typer.Option("--score", help="Column with a similarity score.")]
Invalid = Annotated[
    str | None, typer.Option("--invalid", metavar="refuse|drop", help="What to do with rows that cannot be used.")
]
CorpusText = Annotated[str | None, typer.Option("--corpus-text", help="Column with the text in the corpus.")]

Encoder = Annotated[str | None, typer.Option(help="minilm, toy, a folder, or an id on the Hugging Face hub.")]
Seed = Annotated[int, typer.Option(min=0, help="Seed of all random numbers.")]
BatchSize = Annotated[int, typer.Option("--batch-size", min=1, help="Texts computed at once.")]
Workers = Annotated[int | None, typer.Option(min=1, help="Processes; unset: one for each core.")]
Threshold = Annotated[
    float | None,
    typer.Option("--threshold", help="Decision threshold: the lowest cosine of a positive pair; unset: the model's."),
]
Task = Annotated[
    str | None, typer.Option("--task", help="Which task, of a model trained with several ([[task]] tables).")
]

OutLines = Annotated[str, typer.Option("--out", help="A .jsonl file, or - for standard output.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace existing files.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]


def note_former_name(former: str, present: str) -> None:
    """Log that a flag has another name now."""
    logging.getLogger(__name__).warning("%s is now %s; the former name is still accepted", former, present)


def given(*flags: tuple[str, str, object]) -> list[tuple[str, str, object]]:
    """Of ``(recipe key, flag, value)``, those whose flag was given."""
    return [flag for flag in flags if flag[2] is not None]
