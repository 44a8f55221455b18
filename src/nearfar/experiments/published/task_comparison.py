"""Several tasks by contender, ours beside the published scores, and whether both put the contenders in one order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

from nearfar.errors import counted
from nearfar.experiments.published import Paper, PublishedTable
from nearfar.experiments.published.comparison import markdown
from nearfar.experiments.records import STUDY, read_records
from nearfar.experiments.statistics import Summary, summarize
from nearfar.experiments.trial import MEAN


@dataclass(frozen=True)
class TaskLine:
    """A contender: its scores over the seeds beside those of the paper, as fractions."""

    contender: str
    ours: dict[str, Summary]
    """Score to mean and deviation; empty where nothing was run."""
    published: dict[str, float]

    def cells(self, scores: Sequence[str]) -> list[str]:
        """The contender, its runs, our scores, the published ones."""
        ours = [_shown(self.ours.get(score)) for score in scores]
        published = [f"{self.published[score]:.3f}" if score in self.published else "–" for score in scores]
        return [self.contender, str(self.ours[MEAN].n if self.ours else 0), *ours, *published]


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
        done = [record for record in records if record.contender == name and record.done]
        ours = {score: summarize([record.scores[score] for record in done]) for score in table.published if done}
        lines.append(TaskLine(name, ours, published.get(name, {})))
    return lines


def heads(table: PublishedTable) -> list[str]:
    """The names of the columns."""
    return ["contender", "seeds", *(f"{whose} {score}" for whose in ("our", "published") for score in table.published)]


def conclusion(lines: Sequence[TaskLine]) -> list[str]:
    """Whether the means put contenders in the order of the paper."""
    both = [line for line in lines if line.ours and MEAN in line.published]
    pairs = [
        (one.ours[MEAN].mean - other.ours[MEAN].mean, one.published[MEAN] - other.published[MEAN])
        for one, other in combinations(both, 2)
        if one.published[MEAN] != other.published[MEAN]
    ]
    if not pairs:
        return []
    same = sum(ours * theirs > 0 for ours, theirs in pairs)
    names = [
        f"{word}: {pick(both, key=lambda line: line.ours[MEAN].mean).contender} here, "
        f"{pick(both, key=lambda line: line.published[MEAN]).contender} in the paper"
        for word, pick in (("best", max), ("worst", min))
    ]
    runs = min(line.ours[MEAN].n for line in both)
    few = "" if runs >= 5 else f" With {counted(runs, 'run')} of a contender, small differences are chance."
    return [
        f"The mean has {same} of {counted(len(pairs), 'pair')} of contenders in the order of the paper; "
        f"{'; '.join(names)}.{few}"
    ]


def as_markdown(paper: Paper, table: PublishedTable, lines: Sequence[TaskLine], notes: Sequence[str]) -> str:
    """The table, what it comes to, and what is to be known about it."""
    rows = [line.cells(list(table.published)) for line in lines]
    return markdown(paper, table, (heads(table), rows), conclusion(lines), notes)


def _shown(score: Summary | None) -> str:
    """A mean, with the deviation where there are several runs."""
    if score is None:
        return "–"
    return f"{score.mean:.3f}" if score.n < 2 else f"{score.mean:.3f} ± {score.sd:.3f}"
