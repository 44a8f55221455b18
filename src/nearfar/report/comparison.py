"""Sections that compare contenders: settings, scores, differences, training set size, cost, failures."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence

import numpy as np

from nearfar.errors import counted
from nearfar.experiments.comparisons import Comparison
from nearfar.experiments.conditions import differing_settings, flat
from nearfar.experiments.records import untrained_notes
from nearfar.experiments.statistics import Summary
from nearfar.report import svg, tables
from nearfar.report.elements import (
    Column,
    Content,
    Markup,
    Missing,
    cut,
    details,
    join,
    note,
    numbers,
    strings,
    table,
    tag,
)
from nearfar.report.metrics import Metric, p_value
from nearfar.report.sources import DataCell, Source


def provenance(source: Source) -> Markup:
    """What is needed to reproduce the results."""
    parts = []
    plan = source.plan
    if not source.single:
        columns = [*strings("Data"), Column("File", "wide"), *numbers("Rows"), *strings("Row type", "Digest")]
        rows: list[list[Content]] = [
            [data.name, data.file, f"{data.rows:,}", data.kind, tag("code", data.digest[:12])] for data in plan.data
        ]
        seeds = f"Seeds {', '.join(map(str, plan.seeds))}; {counted(plan.folds, 'fold')}."
        parts += [tag("p", seeds), table(columns, rows)]
    differing = {} if source.single else differing_settings(source.done)
    if differing:
        names = [name for name in source.contenders if any(record.contender == name for record in source.done)]
        rows = [
            [tag("code", key), *(cut(values.get(name, "–"), 60) for name in names)] for key, values in differing.items()
        ]
        parts += [table(strings("Setting", *names), rows), note("Settings in which the contenders differ.")]
    chosen = Counter(
        (record.cell, record.contender, json.dumps(record.settings, ensure_ascii=False))
        for record in source.done
        if record.settings
    )
    if chosen:
        columns = [*strings("Data", "Contender"), Column("Chosen settings", "wide"), *numbers("Trials")]
        rows = [[cell, name, tag("code", settings), str(count)] for (cell, name, settings), count in chosen.items()]
        parts += [table(columns, rows), note("Chosen by the search on the training part of each fold.")]
    runs = source.records if source.single else source.done  # a single run may have no score
    first = next((record for record in runs if record.recipe), None)
    if first is not None:
        listing = "\n".join(f"{key} = {value}" for key, value in flat(first.recipe))
        title = "Settings of the run" if source.single else "All settings of the first trial"
        parts.append(details(f"{title} ({first.contender})", tag("pre", listing)))
    versions = {f"{name} {value}" for record in runs for name, value in record.versions.items()}
    if versions:
        parts.append(note(f"Computed with {', '.join(sorted(versions))}."))
    return join(*parts)


HEADED = 3
"""Most contenders whose figures are shown in the head of the page."""


def scores(source: Source) -> Markup | Missing:
    """Every contender on every data set."""
    lines, metric = tables.lines(source), source.metric
    if not lines:
        why = "No score was measured: the run had neither dev nor test rows." if source.single else "No trial finished."
        return Missing(why)
    if source.single:
        return _single_scores(source)
    verdicts = {(one.data, one.contender): one for one in tables.comparisons(source)}
    rows: list[list[Content]] = []
    for cell, summaries, top in lines:
        sizes = [record.texts for record in source.runs(cell) if record.texts]
        row = [cell.name, f"{np.mean(sizes):,.0f}" if sizes else "–", str(len(source.labels(cell)) or "–")]
        compared = [verdicts.get((cell.name, name)) for name in source.contenders]
        cells = enumerate(zip(summaries, compared, strict=True))
        rows.append([*row, *(_score(metric, score, one, bold=index in top) for index, (score, one) in cells)])
    foot: list[Content] | None = None
    if len(lines) > 1:
        means = tables.mean_scores(lines)
        top = tables.best(source, means)
        aligned = tag("span", class_="sd") + tag("span", class_="arrow")
        shown = [
            tag("b", metric.shown(mean)) if index in top else metric.shown(mean) for index, mean in enumerate(means)
        ]
        foot = ["Mean", "", "", *(join(mean, aligned) for mean in shown)]
    baseline, *others = source.contenders
    remark = f"{tables.caption(source)}. The best of a row is bold"
    if verdicts:
        remark += f"; ▲ and ▼: significantly better or worse than {baseline}"
    marked = join(baseline, " ", tag("span", "baseline", class_="role"))
    columns = strings("Data") + numbers("Texts", "Classes", marked, *others)
    untrained = map(note, untrained_notes(source.done))
    return join(before_scores(source), table(columns, rows, foot), note(f"{remark}."), *untrained)


def before_scores(source: Source) -> Markup:
    """What contenders share, in what they differ, and which of them did not train well."""
    lines = tables.before_scores(source)
    return join(*(tag("p", line, class_="flag" if line.startswith("Flagged") else "note") for line in lines))


def differences(source: Source) -> Markup | Missing:
    """Contender minus baseline with interval and verdict, and a small chart in each row."""
    compared, metric = list(tables.comparisons(source)), source.metric
    if not compared:
        return Missing(f"No contender has a finished run in common with the baseline {source.plan.baseline}.")
    x = svg.Scale(*svg.padded(_ends(compared, metric.scale), 0.06, least=0.01), 6, 214)
    rows: list[list[Content]] = []
    others = []
    for one in compared:
        *names, p, counts, verdict = tables.difference_row(one, metric)
        chart = _whisker(one, x, metric, source.contenders.index(one.contender))
        colored = tag("span", verdict, class_=f"v-{verdict.split()[0]}")
        rows.append([*names, chart, p, counts.replace("/", " / "), colored])
        values = [str(one.n), p_value(one.p), p_value(one.wilcoxon_p), metric.interval(one.bootstrap)]
        others.append([one.data, one.contender, *values])
    sets = max(len(family.comparisons) for family in source.families)
    holm = f"; p, mark and verdict after Holm’s correction over {sets} data sets, which the interval does not have"
    remark = (
        f"Contender minus {source.plan.baseline} in points of {metric.title}, paired by seed and fold; a full mark is "
        f"significant, a hollow one is not. Interval and p: {tables.t_test(source)}{holm if sets > 1 else ''}."
    )
    named = strings("Data", "Contender")
    columns = named + numbers("Difference", "95 % interval") + [Column(_ruler(x), "plot")]
    columns += numbers("p", "Win / tie / loss") + strings("Verdict")
    tests = table(named + numbers("Pairs of runs", "p, uncorrected", "p, Wilcoxon", "Bootstrap interval"), others)
    words = details("In words", tag("ul", *(tag("li", sentence) for sentence in tables.sentences(source))))
    doubtful = details("Tests that assume independent runs, and so overstate significance", tests)
    return table(columns, rows) + note(remark) + words + doubtful


def by_size(source: Source) -> Markup | Missing:
    """The gain against the number of training texts, as in figure 2 of TripleEntropy."""
    gains = []
    for cell in source.cells:
        texts = float(np.mean([record.texts for record in source.runs(cell)] or [0]))
        gains += [(texts, cell, one) for one in tables.comparisons(source) if texts > 0 and one.data == cell.name]
    if not gains:
        return Missing("Nothing was compared, or the records do not say how many texts were trained on.")
    remark = (
        "Lines join the sizes of one data set; marks of one size are drawn side by side. Bars are 95 % intervals, full "
        "marks are significant."
    )
    if len({round(texts) for texts, _, _ in gains}) == 1:
        remark = "All data sets have the same size; limit = [100, 1000] in the study file gives several sizes."
    return svg.legend(source.contenders[1:], first=1) + _gains(source, gains) + note(remark)


def by_classes(source: Source) -> Markup | Missing:
    """Mean scores against the number of classes."""
    counts: dict[int, list[DataCell]] = {}
    for cell in source.cells:
        if labels := source.labels(cell):
            counts.setdefault(len(labels), []).append(cell)
    if len(counts) < 2:
        have = f"all data sets have {next(iter(counts))} classes" if counts else "no data set has classes"
        return Missing(f"Needs data sets with different numbers of classes; here {have}.")
    order, unit = sorted(counts), source.metric.unit
    means: dict[str, dict[int, float]] = {name: {} for name in source.contenders}
    for number in order:
        for name, known in means.items():
            summaries = [source.summary(cell, name) for cell in counts[number]]
            finished = [summary.mean for summary in summaries if summary is not None]
            if len(finished) == len(summaries):
                known[number] = source.metric.scale * float(np.mean(finished))
    if not any(means.values()):
        return Missing("No contender has finished on all data sets of any number of classes yet.")
    y_range = svg.padded((value for known in means.values() for value in known.values()), 0.1, least=0.5)
    chart = svg.Chart(svg.Scale(0, len(order) - 1, 110, 660), svg.Scale(*y_range, 230, 34))
    chart.axes("", unit, [(index, f"{number} classes") for index, number in enumerate(order)])
    for series, known in enumerate(means.values()):
        dots = [(float(index), known[number]) for index, number in enumerate(order) if number in known]
        chart.line(dots, f"line {svg.color(series)}")
        for dot in dots:
            chart.mark(dot, series)
    rows = []
    for number in order:
        shown = [f"{known[number]:.2f}" if number in known else "–" for known in means.values()]
        rows.append([str(number), ", ".join(cell.name for cell in counts[number]), *shown])
    figures = table(strings("Classes", "Data") + numbers(*source.contenders), rows)
    picture = chart.figure(760, 260, "mean score against the number of classes")
    remark = f"Mean {unit} over the data sets with that many classes; they differ in more than that."
    return svg.legend(source.contenders) + picture + figures + note(remark)


def cost(source: Source) -> Markup | Missing:
    """Time and memory of a trial."""
    ended = source.records if source.single else source.done  # a single run may have no score
    if not any(record.seconds for record in ended):
        return Missing("The records have no times.")
    if source.single:
        return tag("p", f"The run took {max(record.seconds for record in ended):,.1f} s.")
    rows = []
    for cell in source.cells:
        baseline = [one.cpu_seconds for one in source.runs(cell, source.plan.baseline)]
        for name in source.contenders:
            if runs := source.runs(cell, name):
                seconds, cpu, memory = np.mean([(one.seconds, one.cpu_seconds, one.peak_mb) for one in runs], axis=0)
                relative = f"{cpu / np.mean(baseline):.2f}" if any(baseline) else "–"
                rows.append([cell.name, name, f"{seconds:,.1f}", f"{cpu:,.1f}", relative, f"{memory:,.0f}"])
    columns = strings("Data", "Contender") + numbers("Seconds", "CPU seconds", "CPU, × baseline", "Peak memory, MB")
    return table(columns, rows) + note("Means over the trials of a row, training and testing.")


def failures(source: Source) -> Markup | Missing:
    """Trials without a score, with the reason."""
    if source.single:
        return Missing("A single run has no trials.")
    failed = [record for record in source.records if not record.done]
    planned, ended = len(source.plan.cells), len(source.records)
    left, waiting = planned - ended, ""
    if left > 0:
        waiting = f" {counted(left, 'trial')} of {planned:,} {'has' if left == 1 else 'have'} not run yet."
    if not failed:
        return Missing(f"None of {counted(ended, 'trial')} failed.{waiting}")
    rows = [[one.cell, one.contender, str(one.seed), str(one.fold), one.reason or "not known"] for one in failed]
    columns = strings("Data", "Contender") + numbers("Seed", "Fold") + [Column("Reason", "wide")]
    summary = f"{len(failed):,} of {counted(ended, 'trial')} failed; all means are without failed trials.{waiting}"
    return tag("p", summary) + table(columns, rows)


def summary_line(source: Source) -> Sequence[tuple[str, str]]:
    """A few figures for the head of the page: name and value."""
    plan = source.plan
    if source.single:
        scored = [(record, Metric(record.metric)) for record in source.done]
        return [(f"{record.data}, {metric.unit}", metric.shown(record.score)) for record, metric in scored]
    figures = [
        ("Trials finished", f"{len(source.done):,} of {max(len(plan.cells), len(source.records)):,}"),
        ("Seeds × folds", f"{len(plan.seeds)} × {plan.folds}"),
        ("Data sets", str(len(tables.lines(source)))),
    ]
    for family in source.families if len(source.families) <= HEADED else ():
        if family.comparisons:
            mean = float(np.mean([one.difference for one in family.comparisons]))
            figures.append((f"{family.contender}, mean difference", source.metric.change(mean)))
            counts = np.sum([(one.wins, one.ties, one.losses) for one in family.comparisons], axis=0)
            figures.append((f"{family.contender}, won / tied / lost", " / ".join(f"{count:,}" for count in counts)))
    return figures


def _single_scores(source: Source) -> Markup:
    names = dict.fromkeys(name for record in source.done for name in record.scores)
    rows = [
        [name, *(f"{record.scores[name]:.4f}" if name in record.scores else "–" for record in source.done)]
        for name in names
    ]
    scores = table(strings("Score") + numbers(*(record.data for record in source.done)), rows)
    body = before_scores(source) + scores
    if any(record.untrained for record in source.done):
        body += note("The untrained encoder was kept: no trained weights had a better score on the dev rows.")
    if not source.means:
        return body
    means = ", ".join(f"{value:.4f} on the {split} rows" for split, value in source.means.items())
    chosen = ", by which the weights were chosen" if "dev" in source.means else ""
    return body + note(f"Mean over the tasks: {means}{chosen}.")


def _score(metric: Metric, score: Summary | None, one: Comparison | None, *, bold: bool) -> Markup:
    """Mean and deviation, with an arrow where the difference to the baseline is significant."""
    if score is None:
        return tag("span", "no run", class_="none")
    arrow = {"better": " ▲", "worse": " ▼"}.get(tables.short_verdict(one), "") if one is not None else ""
    mean: Content = metric.shown(score.mean)
    deviation = [tag("span", f"± {metric.shown(score.sd)}", class_="sd")] if score.n > 1 else []
    return join(tag("b", mean) if bold else mean, *deviation, tag("span", arrow, class_="arrow"))


def _ends(compared: Sequence[Comparison], scale: float) -> list[float]:
    """Zero, the differences and the ends of their intervals."""
    return [0.0, *(scale * end for one in compared for end in (one.difference, *(one.interval or ())))]


def _ruler(x: svg.Scale) -> Markup:
    ticks = [svg.text(x(value), 11, svg.plain(value), class_="tick", text_anchor="middle") for value in x.ticks(4)]
    return svg.figure(220, 15, *ticks, label="difference in points", class_="mini")


def _whisker(one: Comparison, x: svg.Scale, metric: Metric, series: int) -> Markup:
    parts = [svg.line(x(value), 0, x(value), 26, "grid") for value in x.ticks(4)]
    parts.append(svg.line(x(0), 0, x(0), 26, "zero"))
    if one.interval is not None:
        low, high = (x(metric.scale * end) for end in one.interval)
        parts.append(svg.line(low, 13, high, 13, f"bar {svg.color(series)}"))
    parts.append(svg.mark(x(metric.scale * one.difference), 13, series, class_=_filled(one)))
    label = f"{metric.change(one.difference)}, interval {metric.interval(one.interval)}"
    return svg.figure(220, 26, *parts, label=label, class_="mini")


def _filled(one: Comparison) -> str:
    return "mark" if one.significant else "mark hollow"


def _gains(source: Source, gains: Sequence[tuple[float, DataCell, Comparison]]) -> Markup:
    """A mark with its interval for each comparison, over the number of training texts, and the names of the data."""
    metric, sizes = source.metric, [size for size, _, _ in gains]
    ends = svg.padded(_ends([one for _, _, one in gains], metric.scale), 0.1, least=0.05)
    x, y = svg.Scale(min(sizes) / 1.6, max(sizes) * 1.6, 62, 930, log=True), svg.Scale(*ends, 320, 60)
    chart = svg.Chart(x, y)
    chart.axes("training texts (log scale)", f"difference, points of {metric.title}")
    chart.zero()
    chains: dict[tuple[str, int], list[svg.Point]] = {}
    tops: dict[DataCell, list[svg.Point]] = {}
    marks: list[Markup] = []
    for across, (_, cell, one) in zip(side_by_side([x(size) for size in sizes], x.start, x.end), gains, strict=True):
        series, middle = source.contenders.index(one.contender), y(metric.scale * one.difference)
        chains.setdefault((cell.data, series), []).append((across, middle))
        tops.setdefault(cell, []).append((across, y(max(_ends([one], metric.scale)[1:]))))
        if one.interval is not None:
            low, high = (y(metric.scale * end) for end in one.interval)
            marks.append(svg.line(across, low, across, high, f"bar {svg.color(series)}"))
        title = f"{one.contender} on {one.data}: {metric.change(one.difference)} ({metric.interval(one.interval)})"
        marks.append(svg.mark(across, middle, series, title=title, class_=_filled(one)))
    for (_, series), chain in chains.items():
        if len(chain) > 1:
            chart.content.append(svg.path(sorted(chain), f"thin {svg.color(series)}"))
    chart.content += marks
    for cell, group in tops.items():
        across, top = float(np.mean([across for across, _ in group])), min(top for _, top in group)
        chart.content.append(svg.tilted(across + 3, top - 7, 40, cell.data, "label"))
    return chart.figure(960, 365, "difference to the baseline against the number of training texts")


def side_by_side(positions: Sequence[float], start: float, end: float, gap: float = 16) -> list[float]:
    """Moves equal positions apart, evenly around where they were, inside ``start`` and ``end``.

    >>> side_by_side([100, 100, 300], 0, 400)
    [92.0, 108.0, 300.0]
    """
    columns: dict[int, list[int]] = {}
    for index, position in enumerate(positions):
        columns.setdefault(round(position), []).append(index)
    moved = [0.0] * len(positions)
    for middle, group in columns.items():
        space = min([*(0.8 * abs(middle - other) for other in columns if other != middle), end - start])
        step = min(gap, space / len(group))
        width = step * (len(group) - 1)
        low = max(start, min(middle - width / 2, end - width))
        for offset, index in enumerate(group):
            moved[index] = float(low + step * offset)
    return moved
