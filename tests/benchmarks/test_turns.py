"""Turns: their order, their length, and which of them are repeated. The workers are not what is tested here."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest
from benchmarks.bench import Bench, Contender
from benchmarks.machine import Activity
from benchmarks.texts import Texts
from benchmarks.turns import ATTEMPTS, Plan, Turns
from benchmarks.workers.clock import Clock

from benchmarks import machine


class Fake(Bench):
    """Works at a fixed rate; the disturbances of turns are given by contender, first turn first."""

    def work(self, contender: Contender) -> dict[str, object]:
        self.asked = [*getattr(self, "asked", []), (contender.name, contender.job.get("count"))]
        count, rate = contender.job.get("count", 100), contender.job.get("rate", 10.0)
        queue = contender.job.get("others", [])
        return {"texts_per_second": rate, "seconds": count / rate, "others": queue.pop(0) if queue else 0.0,
                "steal": contender.job.get("steal", 0.0), "quality": {}}  # fmt: skip


@pytest.fixture
def bench(tmp_path):
    return Fake(texts=Texts(tmp_path / "nothing", seed=1), scratch=tmp_path)


def turns(bench, lines, **settings) -> Turns:
    planned = settings.pop("planned", 0.0)
    plan = Plan(**{"rounds": 1, "most": 1, "seconds": 0.0, "quiet": lambda **_: "", **settings})
    return Turns(bench, plan, "test", lines.append, planned=planned)


def test_every_round_has_all_contenders_in_an_order_of_its_own(bench):
    contenders = [Contender(name, "none", {"rate": 10.0}) for name in "abcdef"]
    lines: list[dict[str, object]] = []
    turns(bench, lines, rounds=8, most=8).take(contenders)
    rounds = [[line["contender"] for line in lines if line["round"] == number] for number in range(1, 9)]
    assert all(sorted(order) == list("abcdef") for order in rounds)
    assert len({tuple(order) for order in rounds}) > 5
    again: list[dict[str, object]] = []
    turns(bench, again, rounds=8, most=8).take(contenders)
    assert [line["contender"] for line in again] == [line["contender"] for line in lines]
    other: list[dict[str, object]] = []
    turns(bench, other, rounds=8, most=8, seed=2).take(contenders)
    assert [line["contender"] for line in other] != [line["contender"] for line in lines]


def test_a_turn_is_as_long_as_it_has_to_be(bench):
    """A first short one finds how much work that is, in multiples of the grain."""
    lines: list[dict[str, object]] = []
    slow = Contender("slow", "none", {"rate": 10.0, "count": 64}, amount="count", grain=64)
    fast = Contender("fast", "none", {"rate": 100.0, "count": 64}, amount="count", grain=64)
    turns(bench, lines, seconds=30.0).take([slow, fast])
    assert {line["contender"]: line["seconds"] for line in lines} == {"slow": 38.4, "fast": 34.56}
    assert all(line["kept"] for line in lines)
    assert dict(bench.asked) == {"slow": 384, "fast": 3_456}


def test_a_turn_that_was_too_short_is_repeated_with_more_work(bench):
    lines: list[dict[str, object]] = []
    faster = Contender("faster", "none", {"rate": 10.0, "count": 100}, amount="count", grain=10)
    taken = turns(bench, lines, seconds=30.0)
    after = taken.turn(faster, 1, 0)
    assert [(line["kept"], line["why"]) for line in lines] == [(False, "10.0 s are too short"), (True, "")]
    assert after.job["count"] == 350
    assert taken.speeds == {"faster": {1: 10.0}}


def test_a_disturbed_turn_is_repeated(bench):
    lines: list[dict[str, object]] = []
    disturbed = Contender("disturbed", "none", {"others": [0.3, 0.0]})
    turns(bench, lines).take([disturbed])
    assert [(line["attempt"], line["kept"], line["why"]) for line in lines] == [
        (1, False, "others used 30% of the cores"), (2, True, "")
    ]  # fmt: skip
    assert all({"load_before", "load_after"} <= set(line) for line in lines)


def test_a_contender_that_is_always_disturbed_goes_without_its_turn(bench):
    lines: list[dict[str, object]] = []
    taken = turns(bench, lines)
    taken.take([Contender("stolen", "none", {"steal": 0.04})])
    assert [line["why"] for line in lines] == ["the host kept 4%"] * ATTEMPTS
    assert not any(line["kept"] for line in lines)
    assert taken.speeds == {}


def test_beside_other_work_the_turn_counts_and_says_so(bench):
    lines: list[dict[str, object]] = []
    turns(bench, lines, busy=True).take([Contender("beside", "none", {"others": [0.3]})])
    assert [(line["kept"], line["why"]) for line in lines] == [(True, "others used 30% of the cores")]


def test_a_neighbor_that_is_meant_to_be_there_disturbs_nobody(bench):
    lines: list[dict[str, object]] = []
    turns(bench, lines, planned=0.5).take([Contender("beside", "none", {"others": [0.52, 0.6]})])
    turns(bench, lines, planned=0.5).take([Contender("beside", "none", {"others": [0.6]})])
    assert [line["kept"] for line in lines] == [True, False, True]


class Uneven(Fake):
    """Its rates are those of a list, one after the other."""

    def work(self, contender: Contender) -> dict[str, object]:
        rates = contender.job["rates"]
        return {**super().work(contender), "texts_per_second": rates.pop(0) if len(rates) > 1 else rates[0]}


@pytest.mark.parametrize(
    ("rates", "rounds"),
    [([10.0], 3), ([10.0, 14.0, 10.0, 10.0, 10.0], 6), ([10.0, 20.0] * 9, 9)],
)  # fmt: skip
def test_rounds_are_added_while_a_ratio_cannot_be_stated(tmp_path, rates, rounds):
    bench = Uneven(texts=Texts(tmp_path, seed=1), scratch=tmp_path)
    lines: list[dict[str, object]] = []
    contenders = [Contender("nearfar", "none", {"rates": [30.0]}), Contender("peer", "none", {"rates": list(rates)})]
    turns(bench, lines, rounds=3, most=9).take(contenders)
    assert max(line["round"] for line in lines) == rounds


# The machine

STAT = """cpu  100 0 100 1000 0 0 0 50 0 0
cpu0 40 10 20 500 5 1 2 30 0 0
cpu1 60 0 80 500 5 0 0 20 0 0
intr 1
"""


def test_busy_and_stolen_time_are_those_of_the_own_cores(monkeypatch):
    monkeypatch.setattr("os.sysconf", lambda _name: 10)
    assert machine.parse_stat(STAT, {0, 1}) == (21.3, 5.0)
    assert machine.parse_stat(STAT, {1}) == (14.0, 2.0)
    assert machine.parse_stat("", {0}) == (None, None)


def test_what_others_use_is_what_is_left():
    before, after = Activity(0.0, 100.0, 1.0), Activity(10.0, 116.0, 1.5)
    assert machine.shares(before, after, 14.0, 2) == (0.1, 0.025)
    assert machine.shares(before, Activity(10.0, None, None), 1.0, 2) == (None, None)
    assert machine.disturbance(None, None) == ""
    assert machine.disturbance(0.1, 0.025) == "others used 10% of the cores and the host kept 2%"


def test_waiting_ends_when_it_is_quiet_or_patience_does():
    looks = iter([(0.4, 0.0), (0.4, 0.0), (0.0, 0.0)])
    assert machine.wait_until_quiet(look=lambda: next(looks)) == ""
    assert next(looks, None) is None
    assert machine.wait_until_quiet(patience=0.0, look=lambda: (0.4, 0.0)) == "others used 40% of the cores"


def test_the_clock_counts_this_process_and_those_it_waited_for():
    clock = Clock()
    deadline = time.process_time() + 0.1
    while time.process_time() < deadline:
        pass
    code = "import time\nend = time.process_time() + 0.2\nwhile time.process_time() < end: pass"
    subprocess.run([sys.executable, "-c", code], check=True)
    clock.stop()
    found = clock.readings()
    assert found["cpu_seconds"] >= 0.28
    assert found["seconds"] >= 0.2
    assert found["others"] is None or found["others"] >= 0
    clock.start()
    clock.stop()
    assert clock.seconds < 0.1
