"""The figures that sections show, against values computed from the records."""

import json
import re
from dataclasses import replace
from html import unescape

import numpy as np
import pytest
from scipy import stats

from nearfar.evaluation.calibration import calibration_error, log_loss
from nearfar.experiments.records import PREDICTIONS
from nearfar.report import Source
from nearfar.report.comparison import by_classes, by_size, cost, differences, failures, provenance, scores, summary_line
from nearfar.report.embedding_map import embedding_map, geometry
from nearfar.report.predictions import confidence, confused_classes, mistakes, per_class, total_confusion
from nearfar.report.reliability import calibration
from nearfar.report.tables import comparisons


def rows_of(section):
    """The texts of all cells of all body rows, pictures left out."""
    body = re.sub(r"<svg.*?</svg>", "", section.code, flags=re.DOTALL)
    return [
        [unescape(re.sub(r"<[^>]+>", "", cell)).strip() for cell in re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row, re.DOTALL)]
        for row in re.findall(r"<tr>(.*?)</tr>", body, re.DOTALL)
        if "<td" in row
    ]  # fmt: skip


def runs(source, data, limit, contender):
    return [
        one
        for one in source.records
        if (one.data, one.limit, one.contender, one.status) == (data, limit, contender, "done")
    ]


def test_scores_bear_an_arrow_exactly_where_the_difference_is_significant(source):
    shown = {row[0]: row[3:] for row in rows_of(scores(source))}
    for one in comparisons(source):
        cell = shown[one.data][source.contenders.index(one.contender)]
        assert cell.endswith("▲") == (one.significant and one.difference > 0)
        assert not cell.endswith("▼")
        assert cell.startswith(f"{100 * one.contender_scores.mean:.2f}") or one.missing
    assert any(one.significant for one in comparisons(source))
    assert not all(one.significant for one in comparisons(source))


def test_a_worse_contender_bears_the_other_arrow(source):
    turned = Source(replace(source.plan, baseline="supcon"), source.records)
    cells = [cell for row in rows_of(scores(turned)) for cell in row[4:]]
    assert sum(cell.endswith("▼") for cell in cells) > 0
    assert not any(cell.endswith("▲") for cell in cells)
    assert {row[-1] for row in rows_of(differences(turned))[:8]} <= {"worse", "no significant difference"}


def test_classes_are_not_compared_before_a_contender_has_run_on_all_sets_of_a_number(source):
    """Of two data sets with as many classes each, one contender has run on one, and another on the other."""
    sizes = {"cross-entropy": 100, "supcon": 1000}
    records = tuple(
        replace(one, limit=sizes[one.contender])
        for one in source.records
        if one.contender in sizes and one.data != "intents" and one.limit == 1000
    )
    sets = tuple(replace(data, limits=(100, 1000)) for data in source.plan.data)
    found = by_classes(Source(replace(source.plan, data=sets), records))
    assert "No contender has finished on all data sets" in found.reason


def test_runs_with_other_classes_all_count_in_the_confusion(source):
    """The first run, whose seed drew no text of the last class, hides no run that has some."""
    cell, selected = ("trec", 1000), runs(source, "trec", 1000, "supcon")
    fewer = replace(
        selected[0], labels=selected[0].labels[:-1], confusion=[row[:-1] for row in selected[0].confusion[:-1]]
    )
    counts = total_confusion(Source(source.plan, (fewer, *selected[1:])), cell, "supcon")
    assert counts.sum() == sum(map(sum, fewer.confusion)) + sum(sum(map(sum, run.confusion)) for run in selected[1:])
    assert counts[-1].sum() == sum(sum(run.confusion[-1]) for run in selected[1:]) > 0


def test_full_marks_are_the_significant_differences(source):
    pictures = re.findall(r'<td class="plot"><svg.*?</svg>', differences(source).code, re.DOTALL)
    found = list(comparisons(source))
    assert len(pictures) == len(found) == 8
    for picture, one in zip(pictures, found, strict=True):
        assert ("hollow" in picture) == (not one.significant)
    chart = by_size(source).code
    assert chart.count("mark hollow") == sum(not one.significant for one in found)


def test_pairs_that_nobody_ran_are_missing_too(source):
    fewer = Source(source.plan, tuple(one for one in source.records if (one.seed, one.fold) != (2, 3)))
    assert {one.missing for one in comparisons(fewer) if one.contender == "triple-entropy"} == {1}


def test_the_head_counts_what_finished_and_adds_up_each_contender(source):
    figures = dict(summary_line(source))
    assert figures["Trials finished"] == "119 of 120"
    selected = [one for one in comparisons(source) if one.contender == "supcon"]
    assert figures["supcon, won / tied / lost"] == " / ".join(
        str(sum(getattr(one, kind) for one in selected)) for kind in ("wins", "ties", "losses")
    )
    assert figures["supcon, mean difference"] == f"{100 * np.mean([one.difference for one in selected]):+.2f}"


def test_costs_are_means_beside_those_of_the_baseline(source):
    table = {(row[0], row[1]): row[2:] for row in rows_of(cost(source))}
    mine, base = (runs(source, "cr", 1000, name) for name in ("supcon", "cross-entropy"))
    spent, before = (np.mean([one.cpu_seconds for one in group]) for group in (mine, base))
    assert table["cr 1,000", "supcon"] == [
        f"{np.mean([one.seconds for one in mine]):,.1f}", f"{spent:,.1f}", f"{spent / before:.2f}",
        f"{np.mean([one.peak_mb for one in mine]):,.0f}",
    ]  # fmt: skip
    assert table["cr 1,000", "cross-entropy"][2] == "1.00"


def test_geometry_stands_before_and_after(source):
    table = {(row[0], row[1]): row[2:] for row in rows_of(geometry(source))}
    mine = runs(source, "trec", 1000, "supcon")
    expected = [
        np.mean([one.geometry[when][measure] for one in mine])
        for measure in ("alignment", "uniformity", "anisotropy", "effective_rank")
        for when in ("before", "after")
    ]
    assert table["trec 1,000", "supcon"] == [f"{value:.3f}".replace("-", "−") for value in expected]


def test_confidence_is_that_of_all_predictions(source):
    rows = rows_of(confidence(source))[:3]
    lines = [
        json.loads(line)
        for one in runs(source, "trec", 100, "supcon")
        for line in (one.folder / PREDICTIONS).read_text().splitlines()
    ]
    bits = {right: [stats.entropy(list(line["probabilities"].values()), base=2) for line in lines
                    if (line["label"] == line["predicted"]) is right] for right in (True, False)}  # fmt: skip
    sure = np.mean([line["probabilities"][line["predicted"]] for line in lines])
    assert rows[2] == [
        "supcon", f"{100 * len(bits[True]) / len(lines):.2f}", f"{100 * sure:.2f}",
        f"{np.mean(bits[True] + bits[False]):.3f}", f"{np.mean(bits[True]):.3f}", f"{np.mean(bits[False]):.3f}",
    ]  # fmt: skip


def test_calibration_is_that_of_all_predictions(source):
    """Against the metrics of evaluations, which load torch."""
    lines = [
        json.loads(line)
        for one in runs(source, "trec", 100, "supcon")
        for line in (one.folder / PREDICTIONS).read_text().splitlines()
    ]
    names = sorted({name for line in lines for name in line["probabilities"]})
    chances = np.array([[line["probabilities"].get(name, 0.0) for name in names] for line in lines])
    truth = np.array([names.index(line["label"]) for line in lines])
    row = rows_of(calibration(source))[2]
    assert row[0] == "supcon"
    assert row[3:] == [f"{100 * calibration_error(chances, truth):.2f}", f"{log_loss(chances, truth):.3f}"]


def test_f1_of_a_class_is_the_mean_over_the_runs_that_have_it(source):
    row = next(row for row in rows_of(per_class(source)) if row[0] == "location")
    selected = [one.per_class["location"] for one in runs(source, "trec", 100, "supcon")]
    assert row[-1] == f"{100 * np.mean([entry['f1'] for entry in selected if entry['support']]):.2f}"
    assert int(row[1].replace(",", "")) == sum(
        one.per_class["location"]["support"] for one in runs(source, "trec", 100, "cross-entropy")
    )


def test_numbers_of_classes_come_in_order_with_the_means_of_their_data_sets(source):
    rows = rows_of(by_classes(source))
    assert [row[0] for row in rows] == ["2", "6", "24"]
    means = [np.mean([one.score for one in runs(source, "trec", limit, "supcon")]) for limit in (100, 1000)]
    assert rows[1][1:] == ["trec 100, trec 1,000", *rows[1][2:4], f"{100 * np.mean(means):.2f}"]


def test_hard_labels_are_four_and_easier_for_the_better_contender(source):
    rows = rows_of(confused_classes(source))
    assert [row[0] for row in rows] == ["trec 100", "trec 1,000", "intents 1,000"]
    for row in rows:
        assert len(row[1].split(", ")) == 4
        assert float(row[2]) < float(row[4])


def test_mistakes_are_ordered_by_confidence(source):
    found = [float(row[3]) for row in rows_of(mistakes(source))[:10]]
    assert found == sorted(found, reverse=True)
    assert found[0] > found[-1]


def test_the_map_has_a_mark_for_each_text_and_a_rim_for_each_mistake(source):
    first = re.findall(r"<svg.*?</svg>", embedding_map(source).code.split('data-title="trec 1,000"')[0], re.DOTALL)
    pictures = [picture for picture in first if "map of the test texts" in picture]
    assert len(pictures) == 4
    for picture, name in zip(pictures[1:], source.contenders, strict=True):
        assert len(re.findall(r'class="dot', picture)) == 60
        trial = next(one for one in runs(source, "trec", 100, name) if (one.seed, one.fold) == (2, 0))
        assert picture.count("dot missed") == 60 - np.trace(trial.confusion)
    assert "missed" not in pictures[0]


def test_settings_that_differ_are_told_and_those_that_do_not_are_not(source):
    rows = [row for row in rows_of(provenance(source)) if "." in row[0]]
    assert rows == [["objective.name", '"cross-entropy"', '"triple-entropy"', '"supcon"']]


def test_what_a_search_chose_is_counted(source):
    chosen = Source(
        source.plan, tuple(replace(one, settings={"training.epochs": 3 + one.fold % 2}) for one in source.records)
    )
    rows = [row for row in rows_of(provenance(chosen)) if row[:2] == ["cr 1,000", "supcon"]]
    assert sorted((row[2], int(row[3])) for row in rows) == [
        ('{"training.epochs": 3}', 6),
        ('{"training.epochs": 4}', 4),
    ]


@pytest.mark.parametrize("left", [0, 1, 7])
def test_trials_that_have_not_run_are_counted(source, left):
    fewer = Source(source.plan, source.records[: 120 - left])
    text = str(failures(fewer))
    assert ("have not run yet" in text or "has not run yet" in text) == (left > 0)
    if left:
        assert f"{left} trial{'s' if left > 1 else ''} of 120" in text
