"""The tables for papers, against values computed from the records."""

import csv
import io
import re
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from nearfar.errors import SettingError
from nearfar.experiments.records import cell_name
from nearfar.experiments.statistics import holm
from nearfar.report import FORMATS, Source, render
from nearfar.report.tables import CSV_COLUMNS, best, comparisons, conclusion, short_verdict, t_test


def by_hand(source, data, limit, contender):
    """Scores by seed and fold."""
    return {
        (record.seed, record.fold): record.scores["f1_weighted"]
        for record in source.records
        if (record.data, record.limit, record.contender) == (data, limit, contender) and record.status == "done"
    }


def test_the_csv_holds_the_numbers_of_the_records_unrounded(source):
    rows = list(csv.DictReader(io.StringIO(render(source, "csv"))))
    assert len(rows) == 4 * 3
    for row in rows:
        mine = by_hand(source, row["data"], int(row["limit"]), row["contender"])
        assert float(row["mean"]) == pytest.approx(np.mean(list(mine.values())))
        assert float(row["sd"]) == pytest.approx(np.std(list(mine.values()), ddof=1))
        assert int(row["runs"]) == len(mine)
        if row["contender"] == "cross-entropy":
            assert row["difference"] == row["verdict"] == ""
            continue
        base = by_hand(source, row["data"], int(row["limit"]), "cross-entropy")
        shared = sorted(mine.keys() & base.keys())
        d = np.array([mine[pair] - base[pair] for pair in shared])
        error = np.sqrt((1 / len(d) + 1 / 4) * d.var(ddof=1))
        assert float(row["difference"]) == pytest.approx(d.mean())
        assert float(row["p"]) == pytest.approx(2 * stats.t.sf(abs(d.mean() / error), len(d) - 1))
        reach = stats.t.ppf(0.975, len(d) - 1) * error
        assert [float(row["low"]), float(row["high"])] == pytest.approx([d.mean() - reach, d.mean() + reach])
        assert [int(row[name]) for name in ("wins", "ties", "losses")] == [(d > 0).sum(), (d == 0).sum(), (d < 0).sum()]
        assert int(row["pairs"]) + int(row["missing"]) == 10
    for contender in ("triple-entropy", "supcon"):
        family = [row for row in rows if row["contender"] == contender]
        adjusted = holm([float(row["p"]) for row in family])
        assert [float(row["holm_p"]) for row in family] == pytest.approx(list(adjusted))
        for row, p in zip(family, adjusted, strict=True):
            significant = "better" if float(row["difference"]) > 0 else "worse"
            assert row["verdict"] == (significant if p < 0.05 else "no significant difference")


def test_the_failed_trial_is_missing_in_its_pair_and_nowhere_else(source):
    missing = {(one.data, one.contender): one.missing for one in comparisons(source) if one.missing}
    assert missing == {("intents 1,000", "supcon"): 1}


def test_every_form_shows_every_mean_and_the_best_in_bold(source):
    bold = {"markdown": r"\*\*{}", "latex": r"\\textbf\{{{}"}
    for form in ("markdown", "latex"):
        text = render(source, form)
        for data, limit in source.cells:
            means = [100 * np.mean(list(by_hand(source, data, limit, name).values())) for name in source.contenders]
            [line] = [
                line
                for line in text.splitlines()
                if re.match(rf"\|? ?{re.escape(cell_name(data, limit))} [|&] \S*\d", line)
            ]
            for mean in means:
                assert f"{mean:.2f}" in line
            assert re.search(bold[form].format(f"{max(means):.2f}"), line)
            assert len(re.findall(bold[form].format(r"\d"), line)) == 1


def test_values_that_look_the_same_are_best_together(source):
    assert best(source, [0.90001, 0.9, 0.8]) == {0, 1}
    assert best(source, [0.9, None, 0.8]) == {0}
    assert best(source, [0.9, None]) == frozenset()


def test_of_errors_the_lowest_is_best(source):
    lower = Source(replace(source.plan, metric="mse"), source.records)
    assert best(lower, [0.5, 0.2, 0.4]) == {1}
    assert (lower.metric.scale, lower.metric.unit) == (1.0, "mean squared error")


def test_names_cannot_break_a_table(source):
    names = {"cross-entropy": "a|b_c", "triple-entropy": "50% & more", "supcon": "{x}\\y"}
    renamed = Source(
        replace(source.plan, baseline="a|b_c", contenders={new: {} for new in names.values()}),
        tuple(replace(record, contender=names[record.contender]) for record in source.records),
    )
    head = next(line for line in render(renamed, "markdown").splitlines() if line.startswith("| data"))
    assert head == r"| data | a\|b\_c | 50% & more | {x}\\y |"
    assert r"data & a|b\_c & 50\% \& more & \{x\}\textbackslash{}y \\" in render(renamed, "latex")
    assert next(iter(csv.reader(io.StringIO(render(renamed, "csv"))))) == list(CSV_COLUMNS)


def test_the_means_of_latex_have_its_own_signs(source):
    """A minus and a dash, as in the rows above."""
    records = tuple(
        replace(one, scores={name: -score for name, score in one.scores.items()})
        for one in source.records
        if (one.contender, one.data) != ("supcon", "cr")
    )
    [mean] = [row for row in render(Source(source.plan, records), "latex").splitlines() if row.startswith("mean")]
    assert re.fullmatch(r"mean & \\textbf\{\$-\$[\d.]+\} & \$-\$[\d.]+ & -- \\\\", mean)


def test_one_run_has_no_mean_over_its_splits_and_no_deviation(source, tmp_path):
    """Dev and test rows are not two data sets, and each task has its own metric."""
    shared = replace(source.records[0], contender="run", seed=0, fold=0, limit=None, texts=0)
    records = tuple(
        replace(shared, data=f"{task}, {split} rows", metric=metric, scores={metric: 0.5})
        for split in ("test", "dev") for task, metric in (("a_b", "accuracy"), ("close", "pearson"))
    )  # fmt: skip
    sets = tuple(replace(source.plan.data[0], name=one.data, limits=(None,)) for one in records)
    plan = replace(source.plan, metric="mean", baseline="run", contenders={"run": {}}, data=sets, seeds=(0,), folds=1)
    run = Source(plan, records, tmp_path, {"a_b": "accuracy", "close": "pearson"})
    text = render(run, "markdown")
    assert "One run; a\\_b: accuracy × 100, close: Pearson’s r × 100.\n" in text
    assert "| mean |" not in text
    rows = list(csv.DictReader(io.StringIO(render(run, "csv"))))
    assert [row["metric"] for row in rows] == ["accuracy", "pearson"] * 2
    assert {row["sd"] + row["training_texts"] for row in rows} == {""}


def test_the_verdict_words_are_no_more_certain_than_the_runs(source):
    words = {(one.data, one.contender): short_verdict(one) for one in comparisons(source)}
    assert words["trec 100", "triple-entropy"] == "no significant difference"
    assert words["trec 100", "supcon"] == "better"
    few = Source(source.plan, tuple(record for record in source.records if record.seed == 2 and record.fold < 3))
    assert {short_verdict(one) for one in comparisons(few)} == {"too few runs"}
    assert all("oo few runs" in sentence for sentence in conclusion(few))


def test_a_single_data_set_is_concluded_by_its_own_verdict(source):
    only = Source(
        replace(source.plan, data=source.plan.data[1:2]), tuple(one for one in source.records if one.data == "cr")
    )
    assert len(only.families) == 2
    assert [sentence.split(" on ")[1].split(" ")[0] for sentence in conclusion(only)] == ["cr", "cr"]


def test_both_tests_are_named_where_some_data_sets_have_no_folds(source):
    """One data set has only the first fold, as with an official test set."""
    records = tuple(record for record in source.records if record.data != "cr" or record.fold == 0)
    cells = tuple(cell for cell in source.plan.cells if cell.data != "cr" or cell.fold == 0)
    mixed = Source(replace(source.plan, cells=cells), records)
    assert "corrected resampled t-test (Nadeau and Bengio); where there are no folds, paired t-test" in t_test(mixed)
    assert t_test(source) == "corrected resampled t-test (Nadeau and Bengio)"


def test_an_unknown_form_is_refused(source):
    with pytest.raises(SettingError, match="markdown, csv or latex"):
        render(source, "word")
    assert len(FORMATS) == 3
