"""The campaign of ``make torture``: its table, its generators, and a small fixed part of it."""

from __future__ import annotations

import itertools
import subprocess
import sys
from pathlib import Path

import pytest
from benchmarks.digest_cases import cases
from benchmarks.reliability import inputs, table
from benchmarks.reliability.__main__ import NUMBERS, PARTS, SMALL
from benchmarks.reliability.commands import MEMORY, SECONDS, End
from benchmarks.reliability.runs import KINDS, STOPPED, rounds

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("end", "verdict"),
    [
        (End(0), "accepted"),
        (End(1, "error: a.csv:3: ..."), "refused"),
        (End(1, answered=True), "refused"),
        (End(1), "without a message"),
        (End(1, "Traceback (most recent call last):\nValueError"), "traceback"),
        (End(-6), "crash"),
        (End(-9, late=True), "hang"),
        (End(0, seconds=SECONDS + 1), "hang"),
        (End(1, "error: x", memory=MEMORY + 1), "memory"),
    ],
)
def test_what_is_said_of_a_malformed_input(end, verdict):
    assert end.verdict == verdict
    assert (verdict in table.GOOD) == (verdict in ("accepted", "refused"))


def test_outcomes_are_kept_and_counted(tmp_path):
    results = table.Results(tmp_path / "results.jsonl")
    for case, verdict in enumerate(["identical"] * 3 + ["not hit", "different"]):
        results.add("kills", str(case), verdict, "details")
    results.add("inputs", "0", "refused")
    again = table.Results(tmp_path / "results.jsonl")
    assert again.known == results.known
    lines = table.rows(again)
    assert f"| 4 | the same bytes as without interruption | 3 | 1 different | {again.commit} |" in lines[2]
    assert lines[3].endswith(
        f"| 1 | accepted or refused within 20 s and 2 GB, no traceback | 1 | none | {again.commit} |"
    )
    assert list(again.broken()) == [("kills", "4", "different", "details")]
    assert "\n".join(lines) in table.page(again)


def test_every_part_has_a_promise_and_every_kind_of_run_exists():
    assert set(NUMBERS) == set(PARTS) == set(table.ABOUT) == set(table.PROMISES)
    assert set(SMALL) <= set(NUMBERS)
    assert set(KINDS) <= {case.name for case in cases()}
    assert set(STOPPED) <= set(KINDS)
    assert len(dict.fromkeys(case for _, case in itertools.islice(rounds(KINDS), 500))) == 500


def test_malformed_inputs_are_the_same_for_the_same_number(tmp_path):
    made = []
    for place in (tmp_path / "one", tmp_path / "two"):
        (place / "input").mkdir(parents=True)
        jobs = [inputs.job(place, Path("model"), number, 0) for number in range(40)]
        files = {path.name: path.read_bytes() for path in (place / "input").iterdir() if path.suffix != ".xlsx"}
        made.append(([job.words for job in jobs], files))  # workbooks have the time of day in them
    assert made[0] == made[1]
    assert {words[0] for words in made[0][0]} >= {"check", "train"}


@pytest.mark.slow
def test_a_small_part_of_the_campaign_keeps_every_promise(tmp_path):
    """Some malformed inputs and some stopped runs, in processes with bounds on time and memory."""
    parts = [word for part in ("inputs", "kills", "disk", "stops") for word in ("--only", part)]
    command = [sys.executable, "-m", "benchmarks.reliability", "--small", "--minutes", "14", *parts]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert "malformed data files, recipes and flags | 100 |" in done.stdout
    assert "runs killed at single file operations and resumed | 6 |" in done.stdout
