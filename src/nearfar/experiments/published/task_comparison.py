"""Our figures beside the published ones, of several tasks: dev, training and test rows, each task and approach."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from nearfar.errors import counted
from nearfar.experiments.published import Paper, PublishedTable
from nearfar.experiments.records import STUDY, read_records
from nearfar.experiments.statistics import Summary, summarize
from nearfar.experiments.trial import MEAN

TRAIN, TEST = " train", " test"
"""Endings of the names of scores on training and test rows; a score on dev rows has the name of its task."""


@dataclass(frozen=True)
class TaskLine:
    """A contender: its scores over the seeds beside those of the paper, as fractions."""

    contender: str
    ours: dict[str, Summary]
    """Score to mean and deviation; empty where nothing was run."""
    published: dict[str, float]

    @property
    def runs(self) -> int:
        """How many runs there are."""
        return self.ours[MEAN].n if self.ours else 0

    def cells(self, scores: Sequence[str]) -> list[str]:
        """The contender, its runs, our scores, the published ones."""
        ours = [_shown(self.ours.get(score)) for score in scores]
        return [self.contender, str(self.runs), *ours, *_figures(self.published, scores)]


class Cells(NamedTuple):
    """A table of words and numbers."""

    title: str
    head: list[str]
    rows: list[list[str]]


def task_lines(table: PublishedTable, folder: Path) -> list[TaskLine]:
    """The contenders in the order of the paper; one that was not run has no scores of ours."""
    records = read_records(folder) if (folder / STUDY).is_file() else []
    published: dict[str, dict[str, float]] = {}
    for score, rows in table.published.items():
        for row in rows.values():
            for name, value in row.items():
                published.setdefault(name, {})[score] = value
    lines = []
    for name in dict.fromkeys([*published, *(record.contender for record in records)]):
        done = [record.scores for record in records if record.contender == name and record.done]
        measured = dict.fromkeys(score for scores in done for score in scores)
        ours = {score: summarize([scores[score] for scores in done if score in scores]) for score in measured}
        lines.append(TaskLine(name, ours, published.get(name, {})))
    return lines


def task_tables(table: PublishedTable, lines: Sequence[TaskLine]) -> list[Cells]:
    """Our scores beside the published ones: on dev rows, on training rows, of each approach, and on test rows."""
    dev = [score for score in table.published if not score.endswith(TRAIN)]
    train = [score for score in table.published if score.endswith(TRAIN)]
    tables = [Cells("dev rows", ["contender", "seeds", *_heads(dev)], [line.cells(dev) for line in lines])]
    if train:
        rows = [line.cells(train) for line in lines]
        tables.append(Cells("training rows", ["contender", "seeds", *_heads(train)], rows))
    if table.groups:
        rows = [_approach(name, members, lines, dev) for name, members in table.groups.items()]
        tables.append(Cells("results per task, by approach (figure 3)", ["approach", "runs", *_heads(dev)], rows))
    if table.test:
        tables.append(Cells("test rows", ["best on dev rows", "seeds", *_heads(dev)], [_test_row(table, lines, dev)]))
    if any(line.published for line in lines):
        return tables
    return [
        Cells(title, _without_published(head, head), [_without_published(head, row) for row in rows])
        for title, head, rows in tables
    ]


def _without_published(head: Sequence[str], row: Sequence[str]) -> list[str]:
    """The cells of a row without those of the paper, which has no figures."""
    return [cell for name, cell in zip(head, row, strict=True) if not name.startswith("published ")]


def _approach(name: str, members: Sequence[str], lines: Sequence[TaskLine], scores: Sequence[str]) -> list[str]:
    """The means over the contenders of an approach: ours over those that were run, the paper's over all."""
    own = [line for line in lines if line.contender in members]
    ours = {
        score: summarize([line.ours[score].mean for line in own if score in line.ours])
        for score in scores
        if any(score in line.ours for line in own)
    }
    published = {
        score: fmean(line.published[score] for line in own if score in line.published)
        for score in scores
        if any(score in line.published for line in own)
    }
    shown = [f"{ours[score].mean:.3f}" if score in ours else "–" for score in scores]
    return [name, str(sum(line.runs for line in own)), *shown, *_figures(published, scores)]


def _test_row(table: PublishedTable, lines: Sequence[TaskLine], scores: Sequence[str]) -> list[str]:
    """The contender with the best mean on dev rows, on test rows."""
    best = max((line for line in lines if line.ours), key=lambda line: line.ours[MEAN].mean, default=None)
    ours = {} if best is None else best.ours
    shown = [_shown(ours.get(f"{score}{TEST}")) for score in scores]
    runs = 0 if best is None else best.runs
    return [best.contender if best is not None else "–", str(runs), *shown, *_figures(table.test, scores)]


def _heads(scores: Sequence[str]) -> list[str]:
    return [f"{whose} {score}" for whose in ("our", "published") for score in scores]


def task_conclusion(table: PublishedTable, lines: Sequence[TaskLine]) -> list[str]:
    """Whether the means put contenders in the order of the paper, and whether the scores of each task do."""
    sentences = []
    for score in [MEAN, *(score for score in table.published if score != MEAN and not score.endswith(TRAIN))]:
        both = [line for line in lines if line.ours and score in line.published]
        pairs = [
            (one.ours[score].mean - other.ours[score].mean, one.published[score] - other.published[score])
            for one, other in combinations(both, 2)
            if one.published[score] != other.published[score]
        ]
        if not pairs:
            continue
        same = sum(ours * theirs > 0 for ours, theirs in pairs)
        names = [
            f"{word}: {_extreme(both, score, sign).contender} here, {_published_extreme(both, score, sign).contender} "
            "in the paper"
            for word, sign in (("best", 1), ("worst", -1))
        ]
        sentences.append(
            f"{'The mean' if score == MEAN else score} has {same} of {counted(len(pairs), 'pair')} of contenders in "
            f"the order of the paper; {'; '.join(names)}."
        )
    runs = min((line.runs for line in lines if line.ours and MEAN in line.published), default=5)
    if sentences and runs < 5:
        sentences.append(f"With {counted(runs, 'run')} of a contender, small differences are chance.")
    return sentences


def _extreme(lines: Sequence[TaskLine], score: str, sign: int) -> TaskLine:
    return max(lines, key=lambda line: sign * line.ours[score].mean)


def _published_extreme(lines: Sequence[TaskLine], score: str, sign: int) -> TaskLine:
    return max(lines, key=lambda line: sign * line.published[score])


def task_markdown(paper: Paper, table: PublishedTable, lines: Sequence[TaskLine], notes: Sequence[str]) -> str:
    """The tables, what they come to, and what is to be known about them."""
    text = [f"# {paper.title}", "", f"Table {table.number}: {table.title}. {paper.cite}."]
    for title, head, rows in task_tables(table, lines):
        rule = "|---|" + "---:|" * (len(head) - 1)
        text += ["", f"## {title[0].upper()}{title[1:]}", "", f"| {' | '.join(head)} |", rule]
        text += [f"| {' | '.join(row)} |" for row in rows]
    if sentences := task_conclusion(table, lines):
        text += ["", *(f"- {sentence}" for sentence in sentences)]
    if notes:
        text += ["", "How this differs from the paper:", "", *(f"- {note}" for note in notes)]
    return "\n".join(text) + "\n"


def _figures(published: Mapping[str, float], scores: Sequence[str]) -> list[str]:
    return [f"{published[score]:.3f}" if score in published else "–" for score in scores]


def _shown(score: Summary | None) -> str:
    """A mean, with the deviation where there are several runs."""
    if score is None:
        return "–"
    return f"{score.mean:.3f}" if score.n < 2 else f"{score.mean:.3f} ± {score.sd:.3f}"
