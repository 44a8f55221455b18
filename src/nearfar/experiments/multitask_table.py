"""Several tasks by contender, ours beside the published scores, and whether both put the contenders in one order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

from nearfar.errors import counted
from nearfar.experiments.multitask_runs import MEAN
from nearfar.experiments.published import Paper, PublishedTable
from nearfar.experiments.records import STUDY, read_records
from nearfar.experiments.statistics import Summary, summarize


@dataclass(frozen=True)
class TaskLine:
    """A contender: its scores over the seeds beside those of the paper, as fractions."""

    contender: str
    ours: dict[str, Summary]
    """Score to mean and deviation; empty where nothing was run."""
    published: dict[str, float]

    def cells(self, scores: Sequence[str]) -> list[str]:
        """The contender, its runs, our scores, the published ones."""
        runs = self.ours[MEAN].n if self.ours else 0
        return [
            self.contender, str(runs), *(_shown(self.ours.get(score)) for score in scores),
            *(f"{self.published[score]:.3f}" if score in self.published else "–" for score in scores),
        ]  # fmt: skip


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
    """What stands above the columns."""
    return ["contender", "seeds", *(f"our {score}" for score in table.published),
            *(f"published {score}" for score in table.published)]  # fmt: skip


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
    names, scores = heads(table), list(table.published)
    said = [f"# {paper.title}", "", f"Table {table.number}: {table.title}. {paper.cite}.", "",
            f"| {' | '.join(names)} |", "|---" + "|---:" * (len(names) - 1) + "|"]  # fmt: skip
    said += [f"| {' | '.join(line.cells(scores))} |" for line in lines]
    said += ["", *(f"- {sentence}" for sentence in conclusion(lines))]
    if notes:
        said += ["", "How this differs from the paper:", "", *(f"- {note}" for note in notes)]
    return "\n".join(said) + "\n"


def _shown(score: Summary | None) -> str:
    """A mean, with the deviation where there are several runs."""
    if score is None:
        return "–"
    return f"{score.mean:.3f}" if score.n < 2 else f"{score.mean:.3f} ± {score.sd:.3f}"
