"""Ratios with their intervals, the lines of results, and the page that is written from them."""

from __future__ import annotations

import pytest
from benchmarks.ratios import Ratio, interval, ratio

from benchmarks import lines, results_page

HEADER = {
    "run": "2026-11-18T09:40:00+00:00", "processor": "A Chip, 2 cores; avx512_bf16, avx2", "memory_gb": 24,
    "versions": {"torch": "2.13"}, "commit": "abc", "threads_asked": None, "quick": False, "busy": False,
    "texts": "SST-2", "comparison": "finetune",
}  # fmt: skip


def turn(contender: str, number: int, speed: float, **more: object) -> dict[str, object]:
    return {**HEADER, "kind": "turn", "contender": contender, "base": None, "round": number, "kept": True, "why": "",
            "texts_per_second": speed, "cpu_ms_per_text": 1_000 / speed, "peak_rss_mb": 900.0, "threads": 2,
            "quality": {}, "others": 0.0, "steal": 0.01, **more}  # fmt: skip


def notes(*contenders: str, **more: object) -> dict[str, object]:
    return {**HEADER, "kind": "notes", "contenders": list(contenders), "notes": ["Batches of 64."], **more}


def cells(table: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines() if line[:1] == "|"]


# Ratios


def test_a_ratio_is_the_median_of_those_of_the_same_round():
    found = ratio({1: 10.0, 2: 30.0, 3: 90.0, 4: 7.0}, {1: 5.0, 2: 10.0, 3: 22.5, 5: 1.0})
    assert found is not None
    assert (found.median, found.rounds) == (3.0, 3)
    assert (found.low, found.high) == (2.0, 4.0)
    assert ratio({1: 1.0}, {2: 1.0}) is None
    assert ratio({1: None}, {1: 1.0}) is None


def test_the_interval_leaves_out_one_outlier_of_seven_and_none_of_three():
    """Four of seven draws must hit the outlier for the median to be it: 1 % of the samples; 2 of 3: 26 %."""
    assert interval([2.0, 2.1, 2.2, 2.3, 2.4, 2.5, 9.0]) == (2.1, 2.5)
    assert interval([2.0, 2.1, 9.0]) == (2.0, 9.0)
    assert interval([2.0]) == (2.0, 2.0)
    values = [2.0, 2.3, 2.2, 2.6, 2.1]
    assert interval(values) == interval(values)


@pytest.mark.parametrize(
    ("found", "value", "ends"),
    [
        (Ratio(2.0, 1.9, 2.1, 5), "2.00 x", "1.90 to 2.10"),
        (Ratio(2.0, 1.85, 2.15, 5), "2.00 x", "1.85 to 2.15"),
        (Ratio(2.0, 1.8, 2.2, 5), "not stated", "1.80 to 2.20, 20% wide"),
        (Ratio(2.0, 2.0, 2.0, 2), "not stated", "2.00 to 2.00, 2 rounds only"),
        (Ratio(2.0, 2.0, 2.0, 1), "not stated", "2.00 to 2.00, 1 round only"),
    ],
)
def test_a_ratio_with_a_wide_interval_is_not_stated(found, value, ends):
    assert found.value() == value
    assert found.interval() == ends


# Lines


def test_lines_are_read_as_they_were_written(tmp_path):
    path = tmp_path / "folder" / "results.jsonl"
    assert lines.read(path) == []
    lines.append(path, {"a": "ü"})
    lines.append(path, {"b": 1})
    assert lines.read(path) == [{"a": "ü"}, {"b": 1}]


def test_older_runs_go_to_the_archive(tmp_path):
    """Only those of the same comparison on the same processor with the same threads."""
    path, old = tmp_path / "r.jsonl", tmp_path / "a.jsonl"
    later = "2026-11-19T00:00:00+00:00"
    first = [turn("nearfar", 1, 1.0), turn("nearfar", 1, 1.0, comparison="embed"), turn("nearfar", 1, 1.0, processor="B"),
             turn("nearfar", 1, 1.0, threads_asked=1), turn("nearfar", 1, 1.0, quick=True)]  # fmt: skip
    second = [turn("nearfar", 1, 2.0, run=later), turn("nearfar", 2, 2.0, run=later)]
    for line in [*first, *second]:
        lines.append(path, line)
    assert lines.archive(path, old) == 1
    assert lines.read(old) == first[:1]
    assert lines.read(path) == [*first[1:], *second]
    assert lines.archive(path, old) == 0


# Page


def several(**more: object) -> list[dict[str, object]]:
    found = [notes("nearfar", "Trainer", "noisy", "nearfar, fp32", **more)]
    for number in range(1, 6):
        found += [
            turn("Trainer", number, 20.0, peak_rss_mb=1_800.0, **more), turn("nearfar", number, 100.0 + number, **more),
            turn("noisy", number, 10.0 * number, **more), turn("nearfar, fp32", number, 50.0, **more),
        ]  # fmt: skip
    return found


def test_the_summary_has_what_against_whom_ratio_interval_processor_and_date():
    table = cells(results_page.summary(results_page.sections(several())))
    assert table[0] == ["what", "against", "nearfar is faster by", "95 % interval", "by processor time", "memory",
                        "processor", "date"]  # fmt: skip
    assert table[2] == ["fine-tuning MiniLM with cross-entropy", "Trainer", "5.15 x", "5.05 to 5.25", "5.15 x", "50%",
                        "A Chip, 2 cores, avx512_bf16", "2026-11-18"]  # fmt: skip
    assert table[3][1:4] == ["noisy", "not stated", "2.10 to 10.10, 233% wide"]
    assert len(table) == 4


def test_turns_that_do_not_count_do_not_count():
    found = several()
    for number in range(1, 6):
        found.append(turn("nearfar", number, 1.0, kept=False, why="others used 30% of the cores"))
    [section] = results_page.sections(found)
    assert section.speed_ratio("Trainer").median == 5.15
    assert "5 turns repeated" in results_page.circumstances(section)


def test_trials_and_runs_with_a_number_of_threads_are_not_summarized():
    assert results_page.summary_rows(results_page.sections(several(quick=True))) == []
    assert results_page.summary_rows(results_page.sections(several(threads_asked=1))) == []
    rows = results_page.summary_rows(results_page.sections(several(busy=True)))
    assert rows[0][6].endswith(", beside other work")


def test_details_are_grouped_by_processor():
    other = several(processor="B Chip, 4 cores; avx2")
    embed = [notes("nearfar", comparison="embed"), turn("nearfar", 1, 5.0, comparison="embed")]
    text = results_page.page([*other, *embed, *several()])
    headings = [line for line in text.splitlines() if line.startswith("#")]
    assert [heading.partition(":")[0] for heading in headings] == [
        "# Speed", "## Summary", "## A Chip, 2 cores; avx512_bf16, avx2, 24 GB", "### finetune", "### embed",
        "## B Chip, 4 cores; avx2, 24 GB", "### finetune",
    ]  # fmt: skip
    assert "Batches of 64." in text


def test_the_latest_run_is_shown():
    later = several(run="2026-11-20T00:00:00+00:00")
    assert results_page.page([*later, *several()]) == results_page.page(later)


def test_the_table_of_contenders_has_rates_times_memory_and_quality():
    found = [notes("nearfar", "gone", "Trainer"),
             {**HEADER, "kind": "quality", "contender": "nearfar", "seed": None, "quality": {"1 - cosine, mean": 0.25}}]  # fmt: skip
    for number in (1, 2, 3):
        found += [turn("nearfar", number, 100.0, quality={"loss": 0.5}), turn("Trainer", number, 50.0)]
    found.append({**HEADER, "kind": "failure", "contender": "gone", "why": "gone: out of luck"})
    [section] = results_page.sections(found)
    table = cells(results_page.contender_table(section))
    assert table[0] == ["contender", "texts/s", "nearfar is faster by", "processor ms", "by processor time", "peak MB",
                        "threads", "loss", "1 - cosine, mean", "turns"]  # fmt: skip
    assert table[2] == ["nearfar", "100", "", "10", "", "900", "2", "0.5", "0.25", "3"]
    assert table[3] == [
        "Trainer",
        "50",
        "2.00 x (2.00 to 2.00)",
        "20",
        "2.00 x (2.00 to 2.00)",
        "900",
        "2",
        "-",
        "-",
        "3",
    ]
    assert "Failed: gone: out of luck" in results_page.details(section)


def test_requests_are_compared_by_their_milliseconds():
    more = {"comparison": "one-text"}
    found = [notes("nearfar", "SetFit", **more)]
    for number in (1, 2, 3):
        found += [turn("nearfar", number, 1.0, milliseconds=5.0, slow_milliseconds=8.0, **more),
                  turn("SetFit", number, 1.0, milliseconds=20.0, slow_milliseconds=25.0, **more)]  # fmt: skip
    [section] = results_page.sections(found)
    table = cells(results_page.contender_table(section))
    assert table[0][:4] == ["contender", "ms", "slowest percent", "nearfar is faster by"]
    assert table[3][:4] == ["SetFit", "20", "25", "4.00 x (4.00 to 4.00)"]


def test_costs_are_measured_against_the_base():
    more = {"comparison": "triple-entropy"}
    found = [notes("plain 32", "costly 32", "plain 64", "costly 64", **more)]
    for number in (1, 2, 3):
        for size, speed in ((32, 60.0), (64, 75.0)):
            found += [turn(f"plain {size}", number, 120.0, **more),
                      turn(f"costly {size}", number, speed, base=f"plain {size}", peak_rss_mb=990.0, **more)]  # fmt: skip
    [section] = results_page.sections(found)
    assert [row[:6] for row in results_page.summary_rows([section])] == [
        ["costly 32", "plain 32", "2.00 x the time", "2.00 to 2.00", "2.00 x", "110%"],
        ["costly 64", "plain 64", "1.60 x the time", "1.60 to 1.60", "1.60 x", "110%"],
    ]
    assert cells(results_page.contender_table(section))[0][2] == "time a text"


def test_scores_are_paired_by_seed():
    found = several()
    for seed, mine, theirs in ((1, 0.9, 0.8), (2, 0.8, 0.8)):
        for name, score in (("nearfar", mine), ("Trainer", theirs)):
            found.append({**HEADER, "kind": "quality", "contender": name, "seed": seed, "quality": {"f1_macro": score}})
    [section] = results_page.sections(found)
    about, table = results_page.paired_quality(section)
    assert about.startswith("F1 (macro)")
    assert cells(table)[2] == ["1", "0.9000", "0.8000", "+0.1000"]
    assert cells(table)[-1][-1] == "+0.0500 ± 0.0500"
    [section] = results_page.sections(found[:-3])
    assert results_page.paired_quality(section) == []


def test_the_page_of_results_is_that_of_its_lines():
    expected = results_page.page(lines.read(results_page.lines_file(results_page.PAGE)))
    assert results_page.PAGE.read_text(encoding="utf-8") == expected, "run make pages"
