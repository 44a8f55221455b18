"""``nearfar evaluate --suite``: one table for a folder of scored pairs."""

from __future__ import annotations

import json
import sys

from rich.console import Console
from rich.table import Table
from rich.text import Text

from nearfar.cli.output import handling, print_notes
from nearfar.cli.progress import EmbeddingProgress
from nearfar.data import Layout
from nearfar.encoding import load
from nearfar.errors import counted
from nearfar.evaluation import SuiteReport, evaluate_suite, read_suite
from nearfar.pipeline.evaluate import require_vectors


def suite_command(
    model_name: str, suite: str, folder: str, layout: Layout, invalid: str | None, batch_size: int, *, as_json: bool
) -> None:
    """Measure the model on every data set of the suite, and print it."""
    sets, notes = read_suite(folder, suite, layout=layout, invalid=handling(invalid))
    model = load(model_name)
    require_vectors(model)
    with EmbeddingProgress(sum(2 * len(one.records) for one in sets), lines=False) as progress:
        report = evaluate_suite(model, sets, batch_size=batch_size, progress=progress.reach)
    if as_json:
        sys.stdout.write(json.dumps(report.to_dict(), ensure_ascii=False, indent=2) + "\n")
    else:
        Console().print(_table(report, f"{model_name}: Spearman's correlation of cosine and score × 100"))
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
