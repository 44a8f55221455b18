"""The results as tables in the papers' form: Markdown, CSV and LaTeX, and the numbers the page is made from."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from nearfar.errors import SettingError, counted
from nearfar.experiments.records import cell_name
from nearfar.experiments.statistics import Comparison, Summary
from nearfar.experiments.verdicts import overall, verdict
from nearfar.report.sources import Source, unit

FORMATS = ("markdown", "csv", "latex")

CSV_COLUMNS = (
    "data", "limit", "training_texts", "classes", "metric", "contender", "baseline", "runs", "mean", "sd", "pairs",
    "difference", "low", "high", "p", "holm_p", "wilcoxon_p", "bootstrap_low", "bootstrap_high", "wins", "ties",
    "losses", "missing", "verdict",
)  # fmt: skip


class Line(NamedTuple):
    """A data set, and the score of each contender on it."""

    name: str
    cell: tuple[str, int | None]
    scores: tuple[Summary | None, ...]
    best: frozenset[int]
    """Places of the contenders with the best mean, as it is shown."""


def lines(source: Source) -> list[Line]:
    """A line for each data set with a finished run."""
    found = []
    for cell in source.cells:
        scores = tuple(source.summary(cell, contender) for contender in source.contenders)
        if any(score is not None for score in scores):
            means = [None if score is None else score.mean for score in scores]
            found.append(Line(cell_name(*cell), cell, scores, best(source, means)))
    return found


def means(table: Sequence[Line]) -> list[float | None]:
    """The mean over the data sets of each contender; None for one that lacks some."""
    columns = zip(*(line.scores for line in table), strict=True)
    found: list[float | None] = []
    for column in columns:
        values = [score.mean for score in column if score is not None]
        found.append(float(np.mean(values)) if len(values) == len(column) else None)
    return found


def best(source: Source, values: Sequence[float | None]) -> frozenset[int]:
    """The places of the best values, as they are shown; nobody is best alone.

    Values that look the same are best together.
    """
    shown = [None if value is None else round(source.scale * value, 2) for value in values]
    there = [value for value in shown if value is not None]
    if len(there) < 2:
        return frozenset()
    top = max(there) if source.better == "higher" else min(there)
    return frozenset(place for place, value in enumerate(shown) if value == top)


def comparisons(source: Source) -> Iterator[Comparison]:
    """Every comparison, data set by data set."""
    for cell in source.cells:
        for family in source.families:
            yield from (one for one in family.comparisons if one.data == cell_name(*cell))


def word(comparison: Comparison) -> str:
    """The verdict in short."""
    if not comparison.enough:
        return "too few runs"
    if not comparison.significant:
        return "no significant difference"
    return "better" if (comparison.difference > 0) == (comparison.better == "higher") else "worse"


def points(value: float, scale: float, *, sign: bool = False) -> str:
    """A score or a difference as it is shown; a typographic minus, and none before a zero.

    >>> points(0.95123, 100), points(-0.0031, 100, sign=True), points(-0.00001, 100, sign=True)
    ('95.12', '−0.31', '0.00')
    """
    shown = round(value * scale, 2) + 0.0
    return f"{shown:{'+' if sign and shown else ''}.2f}".replace("-", "−")


def chance(p: float) -> str:
    """A p-value as it is shown.

    >>> chance(0.0004), chance(0.0312)
    ('< 0.001', '0.031')
    """
    return "< 0.001" if p < 0.001 else f"{p:.3f}"


def spread(comparison: Comparison, scale: float) -> str:
    """The interval of the difference; a dash where there is none."""
    if comparison.interval is None:
        return "–"
    low, high = comparison.interval
    return f"{points(low, scale, sign=True)} to {points(high, scale, sign=True)}"


def sentences(source: Source) -> list[str]:
    """What may be said: over all data sets first, then of each."""
    return [
        *(_sentence(overall(family)) for family in source.families),
        *(_sentence(verdict(one, scale=source.scale)) for one in comparisons(source)),
    ]


def conclusion(source: Source) -> list[str]:
    """The sentences over all data sets, one for each contender; of a single data set, its verdict."""
    if len(source.cells) == 1:
        return [_sentence(verdict(one, scale=source.scale)) for one in comparisons(source)]
    return [_sentence(overall(family)) for family in source.families]


def render(source: Source, form: str) -> str:
    """The table as text in one of the ``FORMATS``."""
    if form not in FORMATS:
        raise SettingError(f"a table is {', '.join(FORMATS[:-1])} or {FORMATS[-1]}, got {form!r}.")
    return {"markdown": markdown, "csv": as_csv, "latex": latex}[form](source)


def caption(source: Source) -> str:
    """What the numbers are."""
    if source.single:
        own = source.tasks or {record.data: record.metric for record in source.done}
        units = {name: unit(metric) for name, metric in own.items()}
        kinds = set(units.values())
        told = kinds if len(kinds) < 2 else [f"{name}: {words}" for name, words in units.items()]
        return f"One run; {', '.join(told) or 'no score'}"
    runs = f"{counted(len(source.plan.seeds), 'seed')} × {counted(source.plan.folds, 'fold')}"
    return f"{source.unit[:1].upper()}{source.unit[1:]}: mean ± standard deviation over {runs}"


def t_test(source: Source) -> str:
    """Which test intervals and p-values are of."""
    corrected = {bool(one.test_to_train) for one in comparisons(source)}
    if len(corrected) == 2:
        return (
            "corrected resampled t-test (Nadeau and Bengio); where there are no folds, paired t-test over the seeds, "
            "which says nothing about other texts"
        )
    if corrected == {True}:
        return "corrected resampled t-test (Nadeau and Bengio)"
    return "paired t-test over the seeds; there are no folds, so nothing is said about other texts"


def markdown(source: Source) -> str:
    """Scores, differences and sentences."""
    table = lines(source)
    said = [f"# {_md(source.plan.name)}", "", _md(_legend(source)), ""]
    said += _md_table(
        ["data", *map(_md, source.contenders)], [
            [_md(line.name), *(_bold(_score(score, source.scale), place in line.best, "**{}**")
                               for place, score in enumerate(line.scores))]
            for line in table
        ] + _mean_row(source, table, "**{}**", _md),
    )  # fmt: skip
    found = list(comparisons(source))
    if found:
        said += ["", f"Difference to {_md(source.plan.baseline)}, paired by seed and fold, with its 95 % interval "
                 f"({t_test(source)}; p after Holm's correction over the data sets).", ""]  # fmt: skip
        said += _md_table(
            ["data", "contender", "difference", "interval", "p", "win/tie/loss", "verdict"],
            [[_md(one.data), _md(one.contender), points(one.difference, source.scale, sign=True),
              spread(one, source.scale), chance(one.adjusted_p), f"{one.wins}/{one.ties}/{one.losses}", word(one)]
             for one in found],
        )  # fmt: skip
        said += ["", *(f"- {_md(sentence)}" for sentence in sentences(source))]
    return "\n".join(said) + "\n"


def as_csv(source: Source) -> str:
    """One line for each data set and contender, numbers as they are."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(CSV_COLUMNS)
    known = {(one.data, one.contender): one for one in comparisons(source)}
    for line in lines(source):
        for contender, score in zip(source.contenders, line.scores, strict=True):
            if score is None:
                continue
            runs = source.of(line.cell, contender)
            one = known.get((line.name, contender))
            writer.writerow(
                [line.cell[0], line.cell[1], round(float(np.mean([record.texts for record in runs]))) or None,
                 len(source.labels(line.cell)) or None, runs[0].metric, contender, source.plan.baseline, score.n,
                 score.mean, score.sd if score.n > 1 else None, *([None] * 14 if one is None else _numbers(one))]
            )  # fmt: skip
    return out.getvalue()


def latex(source: Source) -> str:
    """Two tabulars for the booktabs package."""
    table = lines(source)
    said = [f"% {_tex(_legend(source))} Needs \\usepackage{{booktabs}}.",
            f"\\begin{{tabular}}{{l{'r' * len(source.contenders)}}}", "\\toprule",
            " & ".join(["data", *map(_tex, source.contenders)]) + r" \\", "\\midrule"]  # fmt: skip
    said += [
        " & ".join([_tex(line.name), *(_bold(_tex_score(score, source.scale), place in line.best, "\\textbf{{{}}}")
                                       for place, score in enumerate(line.scores))]) + r" \\"
        for line in table
    ]  # fmt: skip
    mean = _mean_row(source, table, "\\textbf{{{}}}", _tex)
    said += ["\\midrule", *(" & ".join(row) + r" \\" for row in mean)] if mean else []
    said += ["\\bottomrule", "\\end{tabular}"]
    found = list(comparisons(source))
    if found:
        said += [
            "",
            f"% Difference to {_tex(source.plan.baseline)}, 95 \\% interval: {t_test(source)},",
            "% p after Holm's correction over the data sets.",
            "\\begin{tabular}{llrrrrl}",
            "\\toprule",
            r"data & contender & difference & interval & $p$ & win/tie/loss & verdict \\",
            "\\midrule",
        ]
        said += [
            " & ".join([_tex(one.data), _tex(one.contender), _tex(points(one.difference, source.scale, sign=True)),
                        _tex(spread(one, source.scale)), _tex(chance(one.adjusted_p)),
                        f"{one.wins}/{one.ties}/{one.losses}", word(one)]) + r" \\"
            for one in found
        ]  # fmt: skip
        said += ["\\bottomrule", "\\end{tabular}"]
    return "\n".join(said) + "\n"


def _numbers(one: Comparison) -> list[object]:
    low, high = one.interval or (None, None)
    bootstrap_low, bootstrap_high = one.bootstrap or (None, None)
    return [one.n, one.difference, low, high, one.p, one.adjusted_p, one.wilcoxon_p, bootstrap_low, bootstrap_high,
            one.wins, one.ties, one.losses, one.missing, word(one)]  # fmt: skip


def _sentence(text: str) -> str:
    """With a capital and a full stop; a contender's name stays as it is written."""
    ours = text.startswith(("of ", "no ", "too "))
    return f"{text[0].upper() if ours else text[0]}{text[1:]}."


def _score(score: Summary | None, scale: float) -> str:
    if score is None:
        return "–"
    return points(score.mean, scale) + (f" ± {points(score.sd, scale)}" if score.n > 1 else "")


def _tex_score(score: Summary | None, scale: float) -> str:
    return "--" if score is None else _tex(_score(score, scale))


def _legend(source: Source) -> str:
    return f"{caption(source)}." + ("" if source.single else " The best is bold.")


def _mean_row(source: Source, table: Sequence[Line], form: str, escaped: Callable[[str], str]) -> list[list[str]]:
    """The last row, where there are several data sets; the dev and test rows of one run are none."""
    if len(table) < 2 or source.single:
        return []
    values = means(table)
    top = best(source, values)
    shown = [escaped("–" if value is None else points(value, source.scale)) for value in values]
    return [["mean", *(_bold(text, place in top, form) for place, text in enumerate(shown))]]


def _bold(text: str, bold: bool, form: str) -> str:
    return form.format(text) if bold else text


def _md_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    rule = "|" + "".join("---|" if name in ("data", "contender", "verdict") else "---:|" for name in head)
    return [f"| {' | '.join(head)} |", rule, *(f"| {' | '.join(row)} |" for row in rows)]


def _md(text: str) -> str:
    return re.sub(r"([\\`*_|<>\[\]])", r"\\\1", " ".join(text.split()))


def _tex(text: str) -> str:
    """Escaped; signs that LaTeX has in its own way."""
    signs = {
        "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
        "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "−": "$-$", "±": r"$\pm$", "×": r"$\times$",
        "–": "--", "<": "$<$", ">": "$>$", "’": "'", "ρ": r"$\rho$",
    }  # fmt: skip
    return "".join(signs.get(sign, sign) for sign in " ".join(text.split()))
