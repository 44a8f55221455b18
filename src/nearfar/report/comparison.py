"""Sections that compare: the tables, the gain against the size of the data, numbers of classes, cost, failures."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from nearfar.errors import counted
from nearfar.experiments.records import cell_name
from nearfar.experiments.statistics import Comparison, Summary
from nearfar.report import svg
from nearfar.report.markup import Column, Section, folded, legend, missing, note, paragraph, said, section, table
from nearfar.report.sources import Source, scale_of, unit
from nearfar.report.tables import (
    best,
    caption,
    chance,
    comparisons,
    lines,
    means,
    points,
    sentences,
    spread,
    t_test,
    word,
)

HEADED = 3
"""Contenders whose figures stand in the head of the page."""
ALONE = "One run is no comparison; 'nearfar study run' compares contenders over seeds and folds."


def scores(source: Source) -> Section:
    """Every contender on every data set, as papers have it."""
    found = lines(source)
    if not found:
        why = "No score was measured: the run had neither dev nor test rows." if source.single else "No trial finished."
        return missing("scores", "Scores", why)
    if source.single:
        return _single_scores(source)
    verdicts = {(one.data, one.contender): one for one in comparisons(source)}
    columns = [Column("Data"), Column("Texts", "num"), Column("Classes", "num")]
    columns += [Column(_headed(name, place), "num") for place, name in enumerate(source.contenders)]
    rows = [
        [said(line.name), _texts(source, line.cell), f"{len(source.labels(line.cell)) or '–'}",
         *(_score(score, source.scale, bold=place in line.best, one=verdicts.get((line.name, name)))
           for place, (name, score) in enumerate(zip(source.contenders, line.scores, strict=True)))]
        for line in found
    ]  # fmt: skip
    foot = None
    if len(found) > 1:
        values = means(found)
        top = best(source, values)
        shown = ["–" if value is None else points(value, source.scale) for value in values]
        shown = [f"<b>{cell}</b>" if place in top else cell for place, cell in enumerate(shown)]
        foot = ["Mean", "", "", *(f'{cell}<span class="sd"></span><span class="arrow"></span>' for cell in shown)]
    remark = f"{caption(source)}. The best of a row is bold"
    if verdicts:
        remark += f"; ▲ and ▼: significantly better or worse than {source.plan.baseline}"
    return section("scores", "Scores", table(columns, rows, foot=foot), note(f"{remark}."))


def differences(source: Source) -> Section:
    """Contender minus baseline with interval and verdict, a picture in each row."""
    title = f"Differences to {source.plan.baseline}"
    if source.single:
        return missing("differences", "Differences", ALONE)
    found = list(comparisons(source))
    if not found:
        return missing(
            "differences", title, f"No contender has a finished run in common with the baseline {source.plan.baseline}."
        )
    scale = source.scale
    ends = [0.0, *(scale * end for one in found for end in (one.difference, *(one.interval or ())))]
    low, high = svg.padded(ends, 0.06, least=0.01)
    x = svg.Scale(low, high, 6, 214)
    columns = [Column("Data"), Column("Contender"), Column("Difference", "num"), Column("95 % interval", "num"),
               Column(_ruler(x), "plot"), Column("p", "num"), Column("Win / tie / loss", "num"),
               Column("Verdict")]  # fmt: skip
    rows = [
        [said(one.data), said(one.contender), points(one.difference, scale, sign=True), spread(one, scale),
         _whisker(one, x, scale, source.contenders.index(one.contender)), chance(one.adjusted_p),
         f"{one.wins} / {one.ties} / {one.losses}", f'<span class="v-{word(one).split()[0]}">{said(word(one))}</span>']
        for one in found
    ]  # fmt: skip
    sets = max(len(family.comparisons) for family in source.families)
    remark = (
        f"Contender minus baseline in points of {source.metric}, paired by seed and fold; a full mark is significant, "
        f"a hollow one is not. Interval and p: {t_test(source)}"
        + (
            f"; p, mark and verdict after Holm’s correction over {sets} data sets, which the interval does not have."
            if sets > 1
            else "."
        )
    )
    others = table(
        [Column("Data"), Column("Contender"), Column("Pairs of runs", "num"), Column("p, uncorrected", "num"),
         Column("p, Wilcoxon", "num"), Column("Bootstrap interval", "num")],
        [[said(one.data), said(one.contender), str(one.n), chance(one.p), chance(one.wilcoxon_p),
          "–" if one.bootstrap is None else
          f"{points(one.bootstrap.low, scale, sign=True)} to {points(one.bootstrap.high, scale, sign=True)}"]
         for one in found],
    )  # fmt: skip
    words = "<ul>" + "".join(f"<li>{said(sentence)}</li>" for sentence in sentences(source)) + "</ul>"
    return section(
        "differences", title, table(columns, rows), note(remark), folded("In words", words),
        folded("Other tests, which take the runs to be independent and are too sure of themselves", others),
    )  # fmt: skip


def by_size(source: Source) -> Section:
    """The gain against the number of training texts, as figure 2 of TripleEntropy has it."""
    title = "Gain against the size of the data"
    if source.single:
        return missing("size", title, ALONE)
    found = [
        (float(np.mean([record.texts for record in source.of(cell)])), one)
        for cell in source.cells
        for one in comparisons(source)
        if one.data == cell_name(*cell)
    ]
    found = [(texts, one) for texts, one in found if texts > 0]
    if not found:
        return missing("size", title, "Nothing was compared, or the records do not say how many texts were trained on.")
    if len({round(texts) for texts, _ in found}) == 1:
        remark = (
            "All data sets have the same size here; sizes such as limit = [100, 1000] in the study file spread them."
        )
    else:
        remark = (
            "Lines join sizes of one data set; marks of one size stand beside each other. Bars are 95 % intervals, "
            "full marks are significant."
        )
    return section("size", title, legend(source.contenders[1:], first=1), _gains(source, found), note(remark))


def by_classes(source: Source) -> Section:
    """Scores against the number of classes."""
    title = "By number of classes"
    if source.single:
        return missing("classes", title, ALONE)
    counts: dict[int, list[tuple[str, int | None]]] = {}
    for cell in source.cells:
        if source.of(cell) and source.labels(cell):
            counts.setdefault(len(source.labels(cell)), []).append(cell)
    if len(counts) < 2:
        have = f"all data sets have {next(iter(counts))} classes" if counts else "no data set has classes"
        return missing("classes", title, f"Needs data sets with different numbers of classes; here {have}.")
    order = sorted(counts)
    values: dict[tuple[int, int], float] = {}
    for number in order:
        for place, name in enumerate(source.contenders):
            found = [summary.mean for cell in counts[number] if (summary := source.summary(cell, name)) is not None]
            if len(found) == len(counts[number]):
                values[number, place] = source.scale * float(np.mean(found))
    if not values:
        return missing("classes", title, "No contender has finished on all data sets of any number of classes yet.")
    x = svg.Scale(0, len(order) - 1, 110, 660)
    y = svg.Scale(*svg.padded(values.values(), 0.1, least=0.5), 230, 34)
    ticks = [(float(at), f"{number} classes") for at, number in enumerate(order)]
    parts = [svg.axes(x, y, x_title="", y_title=source.unit, x_ticks=ticks)]
    for place in range(len(source.contenders)):
        dots = [(x(at), y(values[n, place])) for at, n in enumerate(order) if (n, place) in values]
        parts.append(svg.path(dots, f"line {svg.color(place)}"))
        parts += [svg.mark(across, down, place) for across, down in dots]
    rows = [
        [str(number), said(", ".join(cell_name(*cell) for cell in counts[number])),
         *(f"{values[number, place]:.2f}" if (number, place) in values else "–"
           for place in range(len(source.contenders)))]
        for number in order
    ]  # fmt: skip
    columns = [Column("Classes"), Column("Data"), *(Column(said(name), "num") for name in source.contenders)]
    picture = svg.figure(760, 260, "".join(parts), label="mean score against the number of classes")
    remark = f"Mean {source.unit} over the data sets with so many classes; they differ in more than that."
    return section("classes", title, legend(source.contenders), picture, table(columns, rows), note(remark))


def cost(source: Source) -> Section:
    """Time and memory of a trial."""
    ended = source.records if source.single else source.done  # a single run need not have a score
    if not any(record.seconds for record in ended):
        return missing("cost", "Cost", "The records have no times.")
    if source.single:
        spent = max(record.seconds for record in ended)
        return section("cost", "Cost", paragraph(f"The run took {spent:,.1f} s."))
    columns = [Column("Data"), Column("Contender"), Column("Seconds", "num"), Column("CPU seconds", "num"),
               Column("CPU, × baseline", "num"), Column("Peak memory, MB", "num")]  # fmt: skip
    rows = []
    for cell in source.cells:
        base = source.of(cell, source.plan.baseline)
        for name in source.contenders:
            runs = source.of(cell, name)
            if not runs:
                continue
            spent, own = (
                float(np.mean([one.cpu_seconds for one in group])) if group else 0.0 for group in (base, runs)
            )
            rows.append(
                [said(cell_name(*cell)), said(name), f"{np.mean([one.seconds for one in runs]):,.1f}", f"{own:,.1f}",
                 f"{own / spent:.2f}" if spent else "–", f"{np.mean([one.peak_mb for one in runs]):,.0f}"]
            )  # fmt: skip
    return section("cost", "Cost", table(columns, rows), note("Means over the trials of a cell, training and testing."))


def failures(source: Source) -> Section:
    """Trials without a score, each with its reason."""
    if source.single:
        return missing("failed", "Failed trials", "A single run has no trials.")
    failed = [record for record in source.records if not record.done]
    planned, ended = len(source.plan.cells), len(source.records)
    left = planned - ended
    waiting = (
        f" {counted(left, 'trial')} of {planned:,} {'has' if left == 1 else 'have'} not run yet." if left > 0 else ""
    )
    if not failed:
        return missing("failed", "Failed trials", f"None of {counted(ended, 'trial')} failed.{waiting}")
    columns = [
        Column("Data"),
        Column("Contender"),
        Column("Seed", "num"),
        Column("Fold", "num"),
        Column("Reason", "wide"),
    ]
    rows = [
        [said(record.cell), said(record.contender), str(record.seed), str(record.fold),
         said(record.reason or "not known")]
        for record in failed
    ]  # fmt: skip
    told = f"{len(failed):,} of {counted(ended, 'trial')} failed; all means are without failed trials.{waiting}"
    return section("failed", "Failed trials", paragraph(said(told)), table(columns, rows))


def _single_scores(source: Source) -> Section:
    names = list(dict.fromkeys(name for record in source.done for name in record.scores))
    columns = [Column("Score"), *(Column(said(record.data), "num") for record in source.done)]
    rows = [
        [said(name), *(f"{record.scores[name]:.4f}" if name in record.scores else "–" for record in source.done)]
        for name in names
    ]
    told = ", ".join(f"{value:.4f} on the {split} rows" for split, value in source.means.items())
    chose = ", by which the weights were chosen" if "dev" in source.means else ""
    return section(
        "scores", "Scores", table(columns, rows), *([note(f"Mean over the tasks: {told}{chose}.")] * bool(told))
    )


def _headed(name: str, place: int) -> str:
    return said(name) + (' <span class="role">baseline</span>' if place == 0 else "")


def _texts(source: Source, cell: tuple[str, int | None]) -> str:
    sizes = [record.texts for record in source.of(cell) if record.texts]
    return f"{np.mean(sizes):,.0f}" if sizes else "–"


def _score(score: Summary | None, scale: float, *, bold: bool, one: Comparison | None) -> str:
    if score is None:
        return '<span class="none">no run</span>'
    arrow = ""
    if one is not None and one.significant:
        arrow = " ▲" if word(one) == "better" else " ▼"
    mean = points(score.mean, scale)
    deviation = f'<span class="sd">± {points(score.sd, scale)}</span>' if score.n > 1 else ""
    return f'{f"<b>{mean}</b>" if bold else mean}{deviation}<span class="arrow">{arrow}</span>'


def _ruler(x: svg.Scale) -> str:
    ticks = "".join(
        svg.text(x(value), 11, svg.plain(value), class_="tick", text_anchor="middle") for value in x.ticks(4)
    )
    return svg.figure(220, 15, ticks, label="difference in points", class_="mini")


def _whisker(one: Comparison, x: svg.Scale, scale: float, place: int) -> str:
    parts = [svg.line(x(value), 0, x(value), 26, "grid") for value in x.ticks(4)]
    parts.append(svg.line(x(0), 0, x(0), 26, "zero"))
    if one.interval is not None:
        low, high = (x(scale * end) for end in one.interval)
        parts.append(svg.line(low, 13, high, 13, f"bar {svg.color(place)}"))
    full = "mark" if one.significant else "mark hollow"
    parts.append(svg.mark(x(scale * one.difference), 13, place, class_=full))
    told = f"{points(one.difference, scale, sign=True)}, interval {spread(one, scale)}"
    return svg.figure(220, 26, "".join(parts), label=told, class_="mini")


def _gains(source: Source, found: Sequence[tuple[float, Comparison]]) -> str:
    """A mark for each number of training texts and its comparison, and the names of the data sets above them."""
    scale, sizes = source.scale, [texts for texts, _ in found]
    ends = [0.0, *(scale * end for _, one in found for end in (one.difference, *(one.interval or ())))]
    x = svg.Scale(min(sizes) / 1.6, max(sizes) * 1.6, 62, 930, log=True)
    y = svg.Scale(*svg.padded(ends, 0.1, least=0.05), 320, 60)
    parts = [svg.axes(x, y, x_title="training texts (log scale)", y_title=f"difference, points of {source.metric}"),
             svg.line(x.start, y(0), x.end, y(0), "zero")]  # fmt: skip
    places = beside([x(texts) for texts in sizes], x.start, x.end)
    spots: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for across, (_, one) in zip(places, found, strict=True):
        spots.setdefault((_named(source, one.data), one.contender), []).append((across, y(scale * one.difference)))
    for (_, name), chain in spots.items():
        if len(chain) > 1:
            parts.append(svg.path(sorted(chain), f"thin {svg.color(source.contenders.index(name))}"))
    tops: dict[str, list[tuple[float, float]]] = {}
    for across, (_, one) in zip(places, found, strict=True):
        parts.append(_gain(across, one, y, scale, source.contenders.index(one.contender)))
        highest = max(scale * end for end in (one.difference, *(one.interval or ())))
        tops.setdefault(one.data, []).append((across, y(highest)))
    for cell in source.cells:
        if group := tops.get(cell_name(*cell)):
            across, above = float(np.mean([place for place, _ in group])), min(top for _, top in group) - 7
            turned = f"translate({svg.number(across + 3)} {svg.number(above)}) rotate(-40)"
            parts.append(svg.text(0, 0, cell[0], class_="label", transform=turned))
    label = "difference to the baseline against the number of training texts"
    return svg.figure(960, 365, "".join(parts), label=label)


def _gain(across: float, one: Comparison, y: svg.Scale, scale: float, place: int) -> str:
    bar = ""
    if one.interval is not None:
        low, high = (y(scale * end) for end in one.interval)
        bar = svg.line(across, low, across, high, f"bar {svg.color(place)}")
    told = f"{one.contender} on {one.data}: {points(one.difference, scale, sign=True)} ({spread(one, scale)})"
    full = "mark" if one.significant else "mark hollow"
    return bar + svg.mark(across, y(scale * one.difference), place, title=told, class_=full)


def beside(places: Sequence[float], start: float, end: float, gap: float = 16) -> list[float]:
    """Places that are the same, moved beside each other around where they were; never out of the picture.

    >>> beside([100, 100, 300], 0, 400)
    [92.0, 108.0, 300.0]
    """
    columns: dict[int, list[int]] = {}
    for at, place in enumerate(places):
        columns.setdefault(round(place), []).append(at)
    middles = sorted(columns)
    moved = [0.0] * len(places)
    for middle in middles:
        group = columns[middle]
        others = [abs(middle - other) for other in middles if other != middle]
        room = min([*(0.8 * other for other in others), end - start])
        step = min(gap, room / len(group))
        low = middle - step * (len(group) - 1) / 2
        low = max(start, min(low, end - step * (len(group) - 1)))
        for place, at in enumerate(group):
            moved[at] = float(low + step * place)
    return moved


def _named(source: Source, cell: str) -> str:
    return next(data for data, limit in source.cells if cell_name(data, limit) == cell)


def summary_line(source: Source) -> Sequence[tuple[str, str]]:
    """A few figures for the head of the page: what, and how much."""
    plan = source.plan
    if source.single:
        return [(f"{record.data}, {unit(record.metric)}", points(record.score, scale_of(record.metric)))
                for record in source.done]  # fmt: skip
    done, ended = len(source.done), max(len(plan.cells), len(source.records))
    figures = [
        ("Trials finished", f"{done:,} of {ended:,}"),
        ("Seeds × folds", f"{len(plan.seeds)} × {plan.folds}"),
        ("Data sets", str(len(lines(source)))),
    ]
    for family in source.families if len(source.families) <= HEADED else ():
        if family.comparisons:
            mean = float(np.mean([one.difference for one in family.comparisons]))
            figures.append((f"{family.contender}, mean difference", points(mean, source.scale, sign=True)))
            kinds = zip(*((one.wins, one.ties, one.losses) for one in family.comparisons), strict=True)
            figures.append((f"{family.contender}, won / tied / lost", " / ".join(f"{sum(kind):,}" for kind in kinds)))
    return figures
