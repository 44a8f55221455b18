"""Figures over several tables of a paper: the gain of a contender against the size of the training set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from nearfar.experiments.published import Figure, Paper, find_table
from nearfar.experiments.published.comparison import Line, beside
from nearfar.experiments.records import STUDY, read_results

HEAD = ("table", "data", "training texts", "contender", "our gain", "published gain", "ours is")


@dataclass(frozen=True)
class Gain:
    """A point of the figure: a contender on a data set of a table."""

    table: str
    texts: float | None
    """Texts that we trained on, on average; None where it was not run."""
    line: Line

    def cells(self) -> list[str]:
        """As ``HEAD`` has them."""
        texts = "–" if self.texts is None else f"{self.texts:,.0f}"
        gains = [_signed(self.line.difference), _signed(self.line.published_difference)]
        return [self.table, self.line.data, texts, self.line.contender, *gains, self.line.word]


def gains(paper: Paper, figure: Figure, folders: Mapping[str, Sequence[Path]]) -> list[Gain]:
    """All points, table by table; ``folders`` are those of the studies of each table."""
    points = []
    for number in figure.tables:
        places = folders.get(number, ())
        records = [record for folder in places if (folder / STUDY).is_file() for record in read_results(folder)[1]]
        for line in beside(find_table(paper, number), places):
            texts = [record.texts for record in records if record.done and record.data == line.data]
            points.append(Gain(number, fmean(texts) if texts and line.comparison else None, line))
    return points


def conclusion(points: Sequence[Gain]) -> list[str]:
    """The mean gain of each contender in each table, ours and the published one."""
    sentences = []
    for number, name in dict.fromkeys((point.table, point.line.contender) for point in points):
        lines = [point.line for point in points if (point.table, point.line.contender) == (number, name)]
        ours = [line.difference for line in lines if line.difference is not None]
        theirs = [line.published_difference for line in lines if line.published_difference is not None]
        mine = f"{_signed(fmean(ours))} on {len(ours)} of {len(lines)} data sets" if ours else "not run"
        printed = f"; published: {_signed(fmean(theirs))}" if theirs else ""
        sentences.append(f"Mean gain of {name} in table {number}: {mine}{printed}.")
    return sentences


def as_markdown(paper: Paper, figure: Figure, points: Sequence[Gain], notes: Sequence[str]) -> str:
    """The points as a table, the mean gain of each table, and what is to be known."""
    lines = [f"# {paper.title}", "", f"Figure {figure.number}: {figure.title}. {paper.cite}.", ""]
    lines += [f"| {' | '.join(HEAD)} |", "|" + "---|" * len(HEAD)]
    lines += [f"| {' | '.join(point.cells())} |" for point in points]
    lines += ["", *(f"- {sentence}" for sentence in conclusion(points))]
    lines += ["", "How this differs from the paper:", "", *(f"- {note}" for note in notes)] if notes else []
    return "\n".join(lines) + "\n"


def _signed(value: float | None) -> str:
    """Two decimals with a sign; no sign before a zero.

    >>> _signed(0.869), _signed(-0.001), _signed(None)
    ('+0.87', '0.00', '–')
    """
    if value is None:
        return "–"
    shown = round(value, 2) + 0.0
    return f"{shown:+.2f}" if shown else "0.00"
