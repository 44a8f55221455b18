"""``nearfar check``: what a data file contains, and everything that is wrong with it."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from nearfar.cli import options
from nearfar.errors import DataError, NearfarError, counted, problem_list

if TYPE_CHECKING:
    from rich.table import Table

    from nearfar.data import Examination, Layout, Records

PERCENTILES = (50, 90, 95, 99, 100)
SHOWN_CLASSES = 30


def check(
    source: options.Data,
    text: options.Text = None,
    pair: options.Pair = None,
    label: options.Label = None,
    label_separator: options.LabelSeparator = None,
    score: options.Score = None,
    encoding: options.Encoding = None,
    large: options.Large = False,
    encoder: Annotated[
        str | None, typer.Option(help="Encoder whose tokens are counted; 'none' leaves token lengths out.")
    ] = "minilm",
    json_: options.Json = False,
) -> None:
    """Check a data file: rows, classes, lengths, duplicates, and everything that is wrong with it."""
    from nearfar.cli.options import open_console
    from nearfar.data import Layout, examine

    layout = Layout(
        text=text, pair=pair, label=label, score=score, label_separator=label_separator, encoding=encoding, large=large
    )
    encoder = None if encoder in (None, "", "none") or source == "-" else encoder
    result = examine(source, layout)
    lengths, foreign = _token_lengths(source, layout, encoder, result) if encoder else (None, None)
    if foreign is not None:
        result = replace(result, notes=(*result.notes, foreign))
    if json_:
        counts = lengths if isinstance(lengths, dict) else None
        values = {**result.to_dict(), "token_lengths": counts}
        sys.stdout.write(json.dumps(values, ensure_ascii=False, indent=2) + "\n")
        raise typer.Exit(1 if result.problems else 0)
    console = open_console()
    if result.rows or not result.structural:
        console.print(_summary(result, lengths, encoder), markup=False, highlight=False)
    if result.problems:
        console.print(problem_list(result.problems), highlight=False, soft_wrap=True, markup=False)
        if result.dropped and not result.structural:
            total = sum(result.dropped.values())
            console.print(f"--invalid drop would leave out {total:,} of {result.rows:,} rows.", highlight=False)
    else:
        see = f", but see the note{'s' * (len(result.notes) > 1)}" if result.notes else ""
        console.print(f"no problems{see}", highlight=False)
    raise typer.Exit(1 if result.problems else 0)


def _summary(result: Examination, lengths: dict[str, int] | str | None, encoder: str | None) -> Table:
    from rich.table import Column, Table
    from rich.text import Text

    table = Table(
        "", Column(overflow="fold"), show_header=False, title=Text(result.source, style="italic"), title_justify="left"
    )
    table.add_row("rows", f"{result.rows:,}" + (f", {result.usable:,} usable" if result.usable != result.rows else ""))
    if result.shape:
        shape = {
            "texts": "single texts",
            "pairs": "pairs of texts",
            "triplets": "triplets of texts",
            "ranking": f"{result.queries:,} queries with documents",
        }[result.shape]
        score = " with their relevance" if result.shape == "ranking" else " with scores"
        table.add_row(
            "shape",
            shape
            + {"label": " with labels", "labels": " with several labels", "score": score, None: ""}[result.target],
        )
    if result.classes:
        largest_first = sorted(result.classes.items(), key=lambda item: -item[1])
        listed = ", ".join(f"{name} {count:,}" for name, count in largest_first[:SHOWN_CLASSES])
        more = " ..." if len(largest_first) > SHOWN_CLASSES else ""
        table.add_row(counted(len(result.classes), "class", "classes"), listed + more)
    if isinstance(lengths, dict):
        counts = ", ".join(f"{name} {value}" for name, value in lengths.items())
        lengths = counts + ("; both texts of a pair together" if _joined(result) else "")
    if lengths:
        table.add_row(f"tokens ({encoder})", lengths)
    table.add_row("blank lines", f"{result.blank_lines:,}, skipped" if result.blank_lines else "none")
    table.add_row("empty texts", _with_lines(len(result.empty), [str(line) for line in result.empty]))
    repeats = [f"{again} repeats {first}" for first, again in result.duplicates.examples]
    table.add_row("duplicates", _with_lines(result.duplicates.count, repeats))
    conflicts = [f"{c.lines[0]} {c.labels[0]!r} and {c.lines[1]} {c.labels[1]!r}" for c in result.conflicts]
    table.add_row("same text, two labels", _with_lines(result.conflict_count, conflicts))
    if result.dropped:
        reasons = ", ".join(f"{count:,} ({reason})" for reason, count in result.dropped.items())
        table.add_row("would be dropped", reasons)
    for note in result.notes:
        table.add_row("note", note)
    return table


def _with_lines(count: int, examples: list[str]) -> str:
    return f"{count:,}: lines {', '.join(examples[:5])}" + (" ..." if count > 5 else "") if count else "none"


def _joined(data: Examination | Records) -> bool:
    """Whether both texts of a pair are one input (cross-encoder): with labels, unless a pair objective is named."""
    return data.shape == "pairs" and data.target in ("label", "labels")


def _token_lengths(
    source: str, layout: Layout, encoder: str, result: Examination
) -> tuple[dict[str, int] | str | None, str | None]:
    """Percentiles of the input lengths in tokens, or why they are not counted; and a note on a foreign language."""
    from nearfar.data import read

    if not result.usable:
        return None, None
    try:
        records = read(source, layout, invalid="drop")
    except DataError:
        return "not counted: the file cannot be read as a whole", None
    # Each text is truncated by itself, but both texts of a pair together where they are one input.
    texts = records.texts if _joined(records) else [[text for column in records.texts for text in column]]
    try:
        import numpy as np

        from nearfar.encoding import find, tokenize
        from nearfar.encoding.pretrained import open_tokenizer, quiet_transformers
        from nearfar.encoding.tokens import foreign_texts

        tokenizer = open_tokenizer(find(encoder))
        with quiet_transformers():  # it warns of texts longer than the maximum, which are counted here
            table = tokenize(tokenizer, texts, max_length=1_000_000)
    except NearfarError as error:
        return f"not counted: {str(error).splitlines()[0]}", None
    names = [f"{p} %" if p < 100 else "longest" for p in PERCENTILES]
    counts = np.percentile(table.lengths, PERCENTILES, method="higher")
    foreign = None if encoder == "toy" else foreign_texts(tokenizer, table)
    return {name: int(value) for name, value in zip(names, counts, strict=True)}, foreign
