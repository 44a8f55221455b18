"""Our figures beside the published ones, of studies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from nearfar.errors import counted
from nearfar.experiments.comparisons import Comparison, compare_all, verdict
from nearfar.experiments.published import Paper, PublishedTable
from nearfar.experiments.records import STUDY, Record, read_results, untrained_notes
from nearfar.experiments.statistics import corrected_t_test
from nearfar.experiments.training_checks import doubts, flags_of

HEAD = (
    *("data", "score", "contender", "our baseline", "our contender", "our difference"),
    *("published baseline", "published contender", "published difference", "same sign", "ours is"),
)
WORDS = ("data", "score", "contender", "same sign", "ours is")
"""Columns that hold no numbers."""


@dataclass(frozen=True)
class Line:
    """A contender on a data set: ours beside the published figures, all as the paper prints them."""

    data: str
    metric: str
    contender: str
    baseline: str
    scale: int
    comparison: Comparison | None
    """Ours, as fractions; None where it was not run."""
    published: tuple[float, float] | None
    """Of the baseline and of the contender; None where the paper has none."""
    doubts: tuple[str, ...] = ()
    """What is known against our comparison: a side that did not train well."""

    @property
    def ours(self) -> tuple[float, float] | None:
        """Our means of the baseline and of the contender."""
        if self.comparison is None:
            return None
        one = self.comparison
        return self.scale * one.baseline_scores.mean, self.scale * one.contender_scores.mean

    @property
    def difference(self) -> float | None:
        """Ours: contender minus baseline."""
        return None if self.comparison is None else self.scale * self.comparison.difference

    @property
    def published_difference(self) -> float | None:
        """That of the paper."""
        return None if self.published is None else self.published[1] - self.published[0]

    @property
    def agrees(self) -> bool | None:
        """Whether both differences have the same sign; None where one is missing, or is none at all."""
        ours, theirs = self.difference, self.published_difference
        if ours is None or theirs is None or not round(ours, 9) or not round(theirs, 9):
            return None
        return (ours > 0) == (theirs > 0)

    @property
    def word(self) -> str:
        """What may be said of our difference."""
        one = self.comparison
        if one is None:
            return "not run"
        if not one.enough:
            return "too few runs"
        if not one.significant:
            return "no significant difference"
        return "better" if one.difference > 0 else "worse"

    def cells(self) -> list[str]:
        """As ``HEAD`` has them."""
        return [
            *(self.data, self.metric, self.contender, *_pair(self.ours, self.scale)),
            *(_number(self.difference, self.scale, sign=True), *_pair(self.published, self.scale)),
            _number(self.published_difference, self.scale, sign=True),
            "–" if self.agrees is None else "yes" if self.agrees else "no",
            f"{self.word} (flagged)" if self.doubts else self.word,
        ]


def beside(table: PublishedTable, folders: Sequence[Path]) -> list[Line]:
    """Our figures beside the published ones, by score, data set and contender; Holm's correction is over the table.

    Args:
        table: what was done again.
        folders: those of its studies, finished or not; one that is not there counts as not run.
    """
    records: list[Record] = []
    planned: dict[str, set[tuple[int, int]]] = {}
    for folder in folders:
        if (folder / STUDY).is_file():
            plan, counted_records = read_results(folder)
            records += counted_records
            for cell in plan.cells:
                planned.setdefault(cell.data, set()).add((cell.seed, cell.fold))
    lines: list[Line] = []
    flags = flags_of(records)
    for metric, rows in table.published.items():
        scores = {
            (record.data, record.contender, record.seed, record.fold): record.scores[metric]
            for record in records
            if record.done and metric in record.scores
        }
        compared: dict[tuple[str, str], Comparison] = {}
        if any(key[1] == table.baseline for key in scores):
            for family in compare_all(scores, baseline=table.baseline, planned=planned):
                compared |= {(one.data, one.contender): one for one in family.comparisons}
        for data in dict.fromkeys([*rows, *(key[0] for key in scores)]):
            theirs = rows.get(data, {})
            for name in dict.fromkeys([*theirs, *(key[1] for key in scores if key[0] == data)]):
                if name != table.baseline:
                    figures = (theirs[table.baseline], theirs[name]) if name in theirs else None
                    one = compared.get((data, name))
                    cells = {record.cell for record in records if record.data == data}
                    known = tuple(each for cell in cells for each in doubts(flags, cell, name, table.baseline))
                    lines.append(Line(data, metric, name, table.baseline, table.scale, one, figures, known))
    return lines


def averages(lines: Sequence[Line]) -> list[list[str]]:
    """The means over the data sets, of each side, as cells under ``HEAD``: where there are two data sets or more.

    Ours are over the data sets that were run, with the published figures of the same ones; where some were not, another
    line has the published means over all.
    """
    rows = []
    for metric, name in dict.fromkeys((line.metric, line.contender) for line in lines):
        same = [line for line in lines if (line.metric, line.contender) == (metric, name)]
        ran = [line for line in same if line.ours is not None]
        printed = [line for line in same if line.published is not None]
        if len(ran) > 1:
            rows.append(_average(ran, ours=True))
        if len(printed) > 1 and len(printed) != len(ran):
            rows.append(_average(printed, ours=False))
    return rows


def _average(lines: Sequence[Line], *, ours: bool) -> list[str]:
    """One line of cells; the published side is left out where one of the data sets has no published figure."""
    first = lines[0]
    sides: list[tuple[float, float] | None] = []
    for values in ([line.ours if ours else None for line in lines], [line.published for line in lines]):
        known = [value for value in values if value is not None]
        complete = len(known) == len(lines)
        sides.append((fmean(base for base, _ in known), fmean(other for _, other in known)) if complete else None)
    gains = [None if side is None else side[1] - side[0] for side in sides]
    mine, theirs = gains
    both = mine is not None and theirs is not None and bool(round(mine, 9)) and bool(round(theirs, 9))
    agree = "–" if not both else "yes" if (mine or 0) * (theirs or 0) > 0 else "no"
    cells = [f"mean of {len(lines)}", first.metric, first.contender]
    for side, gain in zip(sides, gains, strict=True):
        cells += [*_pair(side, first.scale), _number(gain, first.scale, sign=True)]
    return [*cells, agree, "–"]


def cells_of(
    data: str, contender: str, scale: int, ours: tuple[float | None, float], published: tuple[float, float]
) -> list[str]:
    """The cells under ``HEAD`` of a contender that has one score and no runs: baseline and contender, of each side."""
    before, mine = ours
    difference, theirs = None if before is None else mine - before, published[1] - published[0]
    agree = "–" if not difference or not theirs else "yes" if (difference > 0) == (theirs > 0) else "no"
    return [
        *(data, "spearman", contender, _number(before, scale), _number(mine, scale)),
        *(_number(difference, scale, sign=True), *_pair(published, scale), _number(theirs, scale, sign=True)),
        *(agree, "not trained"),
    ]


def conclusion(lines: Sequence[Line]) -> list[str]:
    """What the table comes to: in how many differences the signs agree, and the means of the differences."""
    both = [line for line in lines if line.difference is not None and line.published_difference is not None]
    signed = [line for line in both if line.agrees is not None]
    sentences = []
    if signed:
        agree = sum(bool(line.agrees) for line in signed)
        certain = sum(line.word in ("better", "worse") for line in signed)
        sentences.append(
            f"The sign agrees in {agree} of {counted(len(signed), 'difference')} that both have; {certain} of ours "
            f"{'is' if certain == 1 else 'are'} significant."
        )
    elif any(line.difference is not None for line in lines):
        sentences.append("There is no difference of which both signs are known.")
    for metric, name in dict.fromkeys((line.metric, line.contender) for line in both):
        same = [line for line in both if (line.metric, line.contender) == (metric, name)]
        if len(same) > 1:
            ours = fmean(line.difference or 0.0 for line in same)
            theirs = fmean(line.published_difference or 0.0 for line in same)
            scale = same[0].scale
            sentences.append(
                f"Mean difference of {name} in {metric} over {len(same)} data sets: {_number(ours, scale, sign=True)}; "
                f"published: {_number(theirs, scale, sign=True)}."
            )
    return sentences


def beyond(table: PublishedTable, folders: Sequence[Path]) -> list[str]:
    """What else there is to say: untrained encoders that were kept, what two settings bring together, and spaces."""
    records = [
        record
        for folder in folders
        if (folder / STUDY).is_file()
        for record in read_results(folder)[1]
        if record.done and record.metric in record.scores
    ]
    sentences = untrained_notes(records)
    for data in dict.fromkeys(record.data for record in records):
        if table.square:
            sentences += _synergy(table, data, [record for record in records if record.data == data])
        for name in dict.fromkeys(record.contender for record in records if record.data == data):
            runs = [record for record in records if (record.data, record.contender) == (data, name) and record.space]
            moved = [
                f"{measure.replace('_', ' ')} {before:.3f} before, {after:.3f} after"
                for measure in ("alignment", "uniformity", "anisotropy", "effective_rank")
                if (before := _mean_of(runs, "before", measure)) is not None
                and (after := _mean_of(runs, "after", measure)) is not None
            ]
            if moved:
                sentences.append(f"Space of {name} on {data}: {'; '.join(moved)}.")
    return sentences


def _synergy(table: PublishedTable, data: str, records: Sequence[Record]) -> list[str]:
    """What both settings bring beyond the sum of what each brings alone, seed by seed."""
    scores = {name: {r.seed: table.scale * r.score for r in records if r.contender == name} for name in table.square}
    seeds = sorted(set.intersection(*(set(runs) for runs in scores.values())))
    if not seeds:
        return []
    neither, one, other, both = ([scores[name][seed] for seed in seeds] for name in table.square)
    extra = [b - x - y + n for n, x, y, b in zip(neither, one, other, both, strict=True)]
    test = corrected_t_test(extra, test_to_train=0)
    interval = test.interval
    reach = "" if interval is None else f" (95 % interval {interval.low:+.2f} to {interval.high:+.2f})"
    names = " and ".join(table.square[1:3])
    return [
        f"Synergy on {data}: {names} together bring {fmean(extra):+.2f}{reach} beyond the sum of each alone, over "
        f"{counted(len(seeds), 'seed')}."
    ]


def _mean_of(runs: Sequence[Record], when: str, measure: str) -> float | None:
    values = [run.geometry[when][measure] for run in runs if measure in run.geometry.get(when, {})]
    return fmean(values) if values else None


def verdicts(lines: Sequence[Line]) -> list[str]:
    """What may be said of each of our differences."""
    return [
        f"{line.metric}: {verdict(line.comparison, scale=line.scale, doubts=line.doubts)}."
        for line in lines
        if line.comparison
    ]


def as_markdown(
    paper: Paper,
    table: PublishedTable,
    lines: Sequence[Line],
    notes: Sequence[str],
    more: Sequence[str] = (),
    rows: Sequence[list[str]] = (),
) -> str:
    """The table with further rows, what it comes to, what else there is to say, and what is to be known about it."""
    sentences = (*conclusion(lines), *verdicts(lines), *more)
    cells = [*(line.cells() for line in lines), *rows, *averages(lines)]
    return markdown(paper, table, (HEAD, cells), sentences, notes)


def markdown(
    paper: Paper,
    table: PublishedTable,
    cells: tuple[Sequence[str], Sequence[Sequence[str]]],
    sentences: Sequence[str],
    notes: Sequence[str],
) -> str:
    """A page of a head and lines of cells, of sentences, and of notes."""
    head, rows = cells
    rule = "|" + "".join("---|" if name in WORDS else "---:|" for name in head)
    lines = [f"# {paper.title}", "", f"Table {table.number}: {table.title}. {paper.cite}.", ""]
    lines += [f"| {' | '.join(head)} |", rule, *(f"| {' | '.join(row)} |" for row in rows)]
    lines += ["", *(f"- {sentence}" for sentence in sentences)]
    if notes:
        lines += ["", "How this differs from the paper:", "", *(f"- {note}" for note in notes)]
    return "\n".join(lines) + "\n"


def _pair(values: tuple[float, float] | None, scale: int) -> tuple[str, str]:
    return ("–", "–") if values is None else (_number(values[0], scale), _number(values[1], scale))


def _number(value: float | None, scale: int, *, sign: bool = False) -> str:
    """Two decimals of points, three of fractions; no minus before a zero.

    >>> _number(82.0949, 100), _number(-0.0004, 1, sign=True), _number(0.0214, 1, sign=True), _number(None, 1)
    ('82.09', '0.000', '+0.021', '–')
    """
    if value is None:
        return "–"
    decimals = 2 if scale == 100 else 3
    shown = round(value, decimals) + 0.0
    return f"{shown:{'+' if sign and shown else ''}.{decimals}f}"
