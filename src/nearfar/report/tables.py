"""The results as tables for papers: Markdown, CSV and LaTeX, and the numbers that the page shows."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from nearfar.errors import SettingError, counted
from nearfar.experiments.comparisons import Comparison, overall, verdict
from nearfar.experiments.statistics import Summary
from nearfar.report.metrics import Metric, p_value
from nearfar.report.sources import DataCell, Source

FORMATS = ("markdown", "csv", "latex")
CSV_COLUMNS = (
    "data", "limit", "training_texts", "classes", "metric", "contender", "baseline", "settings", "flags", "runs",
    "mean", "sd", "pairs",
    "difference", "low", "high", "p", "holm_p", "wilcoxon_p", "bootstrap_low", "bootstrap_high", "wins", "ties",
    "losses", "missing", "verdict",
)  # fmt: skip
TEX_SIGNS = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "−": "$-$", "±": r"$\pm$", "×": r"$\times$", "–": "--",
    "<": "$<$", ">": "$>$", "’": "'", "ρ": r"$\rho$",
}  # fmt: skip


class Line(NamedTuple):
    """A data set and the score of each contender on it."""

    cell: DataCell
    scores: tuple[Summary | None, ...]
    best: frozenset[int]
    """Which contenders have the best mean, as it is shown."""


def lines(source: Source) -> list[Line]:
    """A line for each data set with a finished run."""
    rows = []
    for cell in source.cells:
        scores = tuple(source.summary(cell, contender) for contender in source.contenders)
        if any(score is not None for score in scores):
            rows.append(Line(cell, scores, best(source, [score and score.mean for score in scores])))
    return rows


def mean_scores(table: Sequence[Line]) -> list[float | None]:
    """The mean over the data sets for each contender; None where it lacks some."""
    means = []
    for column in zip(*(line.scores for line in table), strict=True):
        known = [score.mean for score in column if score is not None]
        means.append(float(np.mean(known)) if len(known) == len(table) else None)
    return means


def best(source: Source, values: Sequence[float | None]) -> frozenset[int]:
    """The indices of the best values; those that look the same on the page are best together, a lone value is not."""
    shown = [None if value is None else round(source.metric.scale * value, 2) for value in values]
    known = [value for value in shown if value is not None]
    if len(known) < 2:
        return frozenset()
    top = max(known) if source.metric.better == "higher" else min(known)
    return frozenset(index for index, value in enumerate(shown) if value == top)


def comparisons(source: Source) -> Iterator[Comparison]:
    """Every comparison, data set by data set."""
    for cell in source.cells:
        for family in source.families:
            yield from (one for one in family.comparisons if one.data == cell.name)


def short_verdict(comparison: Comparison) -> str:
    """The verdict in a few words."""
    if not comparison.enough:
        return "too few runs"
    if not comparison.significant:
        return "no significant difference"
    return "better" if (comparison.difference > 0) == (comparison.better == "higher") else "worse"


def difference_row(one: Comparison, metric: Metric) -> list[str]:
    """Data, contender, difference, interval, p, wins/ties/losses and verdict of a comparison."""
    difference, interval = metric.change(one.difference), metric.interval(one.interval)
    counts = f"{one.wins}/{one.ties}/{one.losses}"
    return [one.data, one.contender, difference, interval, p_value(one.adjusted_p), counts, short_verdict(one)]


def sentences(source: Source) -> list[str]:
    """The verdicts in words: over all data sets first, then on each."""
    verdicts = [verdict(one, scale=source.metric.scale, doubts=source.doubts(one)) for one in comparisons(source)]
    families = [
        overall(family, [one.data for one in family.comparisons if source.doubts(one)]) for family in source.families
    ]
    return [sentence(text) for text in [*families, *verdicts]]


def conclusion(source: Source) -> list[str]:
    """The verdict over all data sets, one sentence for each contender; for a single data set, its own verdict."""
    verdicts, families = sentences(source), len(source.families)
    return verdicts[families:] if len(source.cells) == 1 else verdicts[:families]


def caption(source: Source) -> str:
    """What the numbers are."""
    if source.single:
        metrics = source.tasks or {record.data: record.metric for record in source.done}
        units = {name: Metric(metric).unit for name, metric in metrics.items()}
        distinct = set(units.values())
        shown = distinct if len(distinct) < 2 else [f"{name}: {words}" for name, words in units.items()]
        return f"One run; {', '.join(shown) or 'no score'}"
    unit = source.metric.unit
    runs = f"{counted(len(source.plan.seeds), 'seed')} × {counted(source.plan.folds, 'fold')}"
    return f"{unit[:1].upper()}{unit[1:]}: mean ± standard deviation over {runs}"


def t_test(source: Source) -> str:
    """The test behind intervals and p-values."""
    corrected = {bool(one.test_to_train) for one in comparisons(source)}
    if len(corrected) == 2:
        return (
            "corrected resampled t-test (Nadeau and Bengio); where there are no folds, paired t-test over the seeds, "
            "which says nothing about other texts"
        )
    if corrected == {True}:
        return "corrected resampled t-test (Nadeau and Bengio)"
    return "paired t-test over the seeds; there are no folds, so nothing is said about other texts"


@dataclass(frozen=True)
class _Grid:
    """A table before it is written in a format; a cell is a text, and whether it is bold."""

    align: str
    """``l`` or ``r`` for each column."""
    head: list[str]
    rows: list[list[tuple[str, bool]]]
    means: bool = False
    """Whether the last row has the means."""

    def lines(self, escape: Callable[[str], str], bold: str) -> list[list[str]]:
        """The rows as escaped texts."""
        return [[bold.format(escape(text)) if strong else escape(text) for text, strong in row] for row in self.rows]


def _score_grid(source: Source) -> _Grid:
    """Contenders as columns; the mean below, where several data sets are compared."""
    table = lines(source)
    rows = [(line.cell.name, map(source.metric.mean_sd, line.scores), line.best) for line in table]
    several = len(table) > 1 and not source.single
    if several:
        means = mean_scores(table)
        rows.append(("mean", map(source.metric.shown, means), best(source, means)))
    cells = [[(name, False), *((text, at in top) for at, text in enumerate(texts))] for name, texts, top in rows]
    return _Grid("l" + "r" * len(source.contenders), ["data", *source.contenders], cells, several)


def _difference_grid(source: Source) -> _Grid | None:
    """One row for each comparison with the baseline; None without any."""
    rows = [[(text, False) for text in difference_row(one, source.metric)] for one in comparisons(source)]
    head = ["data", "contender", "difference", "interval", "p", "win/tie/loss", "verdict"]
    return _Grid("llrrrrl", head, rows) if rows else None


def render(source: Source, form: str) -> str:
    """The table as text in one of the ``FORMATS``."""
    if form not in FORMATS:
        raise SettingError(f"a table is {', '.join(FORMATS[:-1])} or {FORMATS[-1]}, got {form!r}.")
    return {"markdown": markdown, "csv": as_csv, "latex": latex}[form](source)


def before_scores(source: Source) -> list[str]:
    """What contenders share, in what they differ, and which of them did not train well."""
    flags = dict.fromkeys(flag.what if source.single else flag.sentence for flag in source.flags)
    return [*map(sentence, source.conditions.lines()), *(f"Flagged: {text}." for text in flags)]


def markdown(source: Source) -> str:
    """Conditions, scores, differences and verdicts."""
    before = [f"- {_md(line)}" for line in before_scores(source)]
    text = [f"# {_md(source.plan.name)}", "", *before, *([""] if before else []), _md(_legend(source)), ""]
    text += _md_table(_score_grid(source))
    differences = _difference_grid(source)
    if differences is not None:
        about = (
            f"Difference to {_md(source.plan.baseline)}, paired by seed and fold, with its 95 % interval "
            f"({t_test(source)}; p after Holm's correction over the data sets)."
        )
        verdicts = [f"- {_md(line)}" for line in sentences(source)]
        text += ["", about, "", *_md_table(differences), "", *verdicts]
    return "\n".join(text) + "\n"


def latex(source: Source) -> str:
    """Two tabulars for the booktabs package."""
    text = [f"% {_tex(line)}" for line in before_scores(source)]
    text += [f"% {_tex(_legend(source))} Needs \\usepackage{{booktabs}}.", *_tabular(_score_grid(source))]
    differences = _difference_grid(source)
    if differences is not None:
        about = f"% Difference to {_tex(source.plan.baseline)}, 95 \\% interval: {t_test(source)},"
        text += ["", about, "% p after Holm's correction over the data sets.", *_tabular(differences, {"p": "$p$"})]
    return "\n".join(text) + "\n"


def as_csv(source: Source) -> str:
    """One line for each data set and contender, with unrounded numbers."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(CSV_COLUMNS)
    known = {(one.data, one.contender): one for one in comparisons(source)}
    for line in lines(source):
        for contender, score in zip(source.contenders, line.scores, strict=True):
            if score is not None:
                runs = source.runs(line.cell, contender)
                texts = round(float(np.mean([record.texts for record in runs]))) or None
                classes = len(source.labels(line.cell)) or None
                row: list[object] = [*line.cell, texts, classes, runs[0].metric, contender, source.plan.baseline]
                row += [source.conditions.of(contender), _signs(source, line.cell.name, contender)]
                row += [score.n, score.mean, score.sd if score.n > 1 else None]
                one = known.get((line.cell.name, contender))
                writer.writerow(row + ([None] * (len(CSV_COLUMNS) - len(row)) if one is None else _numbers(one)))
    return out.getvalue()


def _signs(source: Source, data: str, contender: str) -> str:
    return "; ".join(flag.sign for flag in source.flags if (flag.data, flag.contender) == (data, contender))


def _numbers(one: Comparison) -> list[object]:
    ends, bootstrap = one.interval or (None, None), one.bootstrap or (None, None)
    row = [one.n, one.difference, *ends, one.p, one.adjusted_p, one.wilcoxon_p, *bootstrap]
    return [*row, one.wins, one.ties, one.losses, one.missing, short_verdict(one)]


def sentence(text: str) -> str:
    """With a capital and a full stop; a contender's name keeps its spelling."""
    ours = text.startswith(("of ", "no ", "too ", "flagged ", "the same ", "not the "))
    return f"{text[0].upper() if ours else text[0]}{text[1:]}."


def _legend(source: Source) -> str:
    return f"{caption(source)}." + ("" if source.single else " The best is bold.")


def _md_table(grid: _Grid) -> list[str]:
    rule = "|" + "".join("---|" if align == "l" else "---:|" for align in grid.align)
    head, *rows = (f"| {' | '.join(line)} |" for line in [list(map(_md, grid.head)), *grid.lines(_md, "**{}**")])
    return [head, rule, *rows]


def _tabular(grid: _Grid, heads: Mapping[str, str] | None = None) -> list[str]:
    head = [(heads or {}).get(title, _tex(title)) for title in grid.head]
    first, *rows = (" & ".join(line) + r" \\" for line in [head, *grid.lines(_tex, "\\textbf{{{}}}")])
    if grid.means:
        rows.insert(-1, "\\midrule")
    begin = [f"\\begin{{tabular}}{{{grid.align}}}", "\\toprule", first, "\\midrule"]
    return [*begin, *rows, "\\bottomrule", "\\end{tabular}"]


def _md(text: str) -> str:
    return re.sub(r"([\\`*_|>\[\]]|<(?! ))", r"\\\1", " ".join(text.split()))


def _tex(text: str) -> str:
    return "".join(TEX_SIGNS.get(sign, sign) for sign in " ".join(text.split()))
