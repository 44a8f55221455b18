"""``nearfar check``: a data file looked over."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from nearfar.data import Examination, Layout, Records, examine, read
from nearfar.errors import DataError, NearfarError, counted, problem_list

PERCENTILES = (50, 90, 95, 99, 100)
SHOWN_CLASSES = 30


def check_command(source: str, layout: Layout, encoder: str | None, *, as_json: bool) -> bool:
    """Print what is in a source; returns whether it can be trained on as it is."""
    found = examine(source, layout)
    lengths, remark = _lengths(source, layout, encoder, found) if encoder and source != "-" else (None, None)
    if as_json:
        sys.stdout.write(json.dumps({**found.to_dict(), "token_lengths": lengths}, ensure_ascii=False, indent=2) + "\n")
        return not found.problems
    console = Console()
    if found.rows or not found.structural:
        _print_summary(console, found, lengths, encoder, remark)
    if found.problems:
        console.print(problem_list(found.problems), highlight=False, soft_wrap=True, markup=False)
        if found.dropped and not found.structural:
            total = sum(found.dropped.values())
            console.print(f"--invalid drop would leave out {total:,} of {found.rows:,} rows.", highlight=False)
    else:
        mind = ", but mind the note" + "s" * (len(found.notes) > 1) if found.notes else ""
        console.print(f"nothing is wrong with it{mind}", highlight=False)
    return not found.problems


def _print_summary(
    console: Console, found: Examination, lengths: dict[str, int] | None, encoder: str | None, remark: str | None
) -> None:
    table = Table(show_header=False, title=Text(found.source, style="italic"), title_justify="left")
    table.add_column()
    table.add_column()
    table.add_row("rows", f"{found.rows:,}" + (f", {found.usable:,} usable" if found.usable != found.rows else ""))
    if found.shape:
        what = {
            "texts": "single texts",
            "pairs": "pairs of texts",
            "triplets": "triplets of texts",
            "ranking": f"{found.queries:,} queries with documents",
        }[found.shape]
        score = " with their relevance" if found.shape == "ranking" else " with scores"
        table.add_row("shape", what + {"label": " with labels", "score": score, None: ""}[found.target])
    if found.classes:
        listed = sorted(found.classes.items(), key=lambda item: -item[1])
        text = ", ".join(f"{name} {count:,}" for name, count in listed[:SHOWN_CLASSES])
        table.add_row(
            counted(len(found.classes), "class", "classes"), text + (" ..." if len(listed) > SHOWN_CLASSES else "")
        )
    tokens = f"tokens ({encoder})"
    if lengths is not None:
        text = ", ".join(f"{name} {value}" for name, value in lengths.items())
        table.add_row(tokens, text + ("; both texts of a pair together" if _joined(found) else ""))
    elif remark:
        table.add_row(tokens, remark)
    table.add_row("blank lines", f"{found.blank_lines:,}, skipped" if found.blank_lines else "none")
    table.add_row("empty texts", _counted(len(found.empty), [str(line) for line in found.empty]))
    repeats = [f"{again} repeats {first}" for first, again in found.duplicates.examples]
    table.add_row("duplicates", _counted(found.duplicates.count, repeats))
    clashes = [f"{c.lines[0]} {c.labels[0]!r} and {c.lines[1]} {c.labels[1]!r}" for c in found.conflicts]
    table.add_row("same text, two labels", _counted(found.conflict_count, clashes))
    if found.dropped:
        table.add_row("would be dropped", ", ".join(f"{count:,} ({reason})" for reason, count in found.dropped.items()))
    for note in found.notes:
        table.add_row("note", note)
    console.print(table, markup=False, highlight=False)


def _counted(count: int, examples: list[str]) -> str:
    return f"{count:,}: lines {', '.join(examples[:5])}" + (" ..." if count > 5 else "") if count else "none"


def _joined(found: Examination | Records) -> bool:
    """Whether both texts of a pair are read as one: with labels, unless a pair objective is named."""
    return found.shape == "pairs" and found.target == "label"


def _as_read(records: Records) -> Sequence[Sequence[str]]:
    """One column of all texts, for each is cut by itself; two where both texts of a pair are read as one."""
    return records.texts if _joined(records) else [[text for column in records.texts for text in column]]


def _lengths(source: str, layout: Layout, encoder: str, found: Examination) -> tuple[dict[str, int] | None, str | None]:
    """Percentiles of the lengths in tokens of what is read at once; none of it is worth a failure."""
    if not found.usable:
        return None, None
    try:
        records = read(source, layout, invalid="drop")
    except DataError:
        return None, "not counted: the file itself is at fault"
    try:
        import numpy as np

        from nearfar.encoding import find, tokenize
        from nearfar.encoding.encoder import open_tokenizer, quiet_transformers

        with quiet_transformers():  # it warns of texts longer than the encoder reads, which is what we count
            table = tokenize(open_tokenizer(find(encoder)), _as_read(records), max_length=1_000_000)
        counts: Any = np.percentile(table.lengths, PERCENTILES, method="higher")
    except NearfarError as error:
        return None, f"not counted: {str(error).splitlines()[0]}"
    names = [f"{p} %" if p < 100 else "longest" for p in PERCENTILES]
    return {name: int(value) for name, value in zip(names, counts, strict=True)}, None
