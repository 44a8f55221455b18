"""The cost model: what it says of simple cases, and that runs which follow it are predicted."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from benchmarks.scale import Corpus, Rates, Run, check, cost, fitted, limits, main, predicted, write_texts


def test_costs_follow_from_the_rates():
    """Hours from texts per second, bytes from widths."""
    corpus = Corpus(texts=3.6e6 * 100, text_bytes=0, dim=100, number=4, rows_per_shard=100_000, cores=10)
    rates = Rates(texts=1000, start=0, shard=0, read=math.inf, disk=math.inf)
    each = cost(corpus, rates)
    assert each.shards == 3600
    assert each.core_hours == pytest.approx(100)
    assert each.hours == pytest.approx(10)
    assert each.vectors_gb == pytest.approx(3.6e8 * 400 / 1e9)
    assert each.lost_minutes == pytest.approx(100 / 60)
    slow = cost(corpus, replace(rates, disk=1e6))
    assert slow.hours == pytest.approx(3.6e8 * 400 / 1e6 / 3600)
    assert "writing 144 GB" in limits(corpus, replace(rates, disk=1e6))[0]


def run(rows, seconds):
    return Run(rows, 2, seconds, seconds, 100.0, [], 0, 0, 0)


def test_runs_that_follow_the_model_are_predicted():
    """A start of each process, and a time for each text."""
    runs = [run(rows, 9 + rows / 2000) for rows in (100_000, 1_000_000, 10_000_000)]
    rates = fitted(*runs[:2])
    assert rates.start == pytest.approx(3)
    assert predicted(runs[2], rates) == pytest.approx(runs[2].core_seconds)
    assert check(runs)[-1] == "| 10,000,000 | 5,009.0 s | 5,009.0 s | +0% | 100 MB |"


def test_texts_are_written_and_the_plan_is_printed(tmp_path, capsys):
    """The texts in several files; the plan with its narrowest place."""
    assert write_texts(tmp_path, 105, 10) > 105
    assert len(list(tmp_path.glob("*.parquet"))) == 10
    main(["plan", "--texts", "1e9", "--texts-rate", "400", "--cores", "512"])
    printed = capsys.readouterr().out
    assert "core hours" in printed
    assert "shards" in printed


@pytest.mark.parametrize("form", ["parquet", "npy"])
def test_shards_are_compared_with_a_plain_loop(tmp_path, capsys, form):
    """By their rates once they are at work."""
    words = ["speed", "--rows", "400", "--rows-per-shard", "20", "--turns", "1", "--format", form]
    main([*words, "--folder", str(tmp_path)])
    assert len(list((tmp_path / "speed-out").glob(f"shard-*.{form}"))) == 20
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(":")[0] for line in lines[:3]] == ["plain", "1", "2"]
    assert lines[3].startswith("| Plain loop | One worker |")
    assert lines[-1].count("/s") == 3
