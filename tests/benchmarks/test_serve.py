"""The load on a server: what is counted, when memory is constant, and a few clients that misbehave."""

from __future__ import annotations

import asyncio
import random

import pytest
from benchmarks.serve import hostile, servers, soak, speed
from benchmarks.serve.clients import Load, request


def loads(*seconds: float, took: float = 1.0) -> Load:
    load = Load(took=took)
    for one in seconds:
        load.add(200, one)
    return load


def test_times_and_rates_count_what_was_answered():
    load = loads(*(number / 1000 for number in range(1, 101)), took=2.0)
    load.add(429, 9.0)
    assert load.rate == 50
    assert load.quantile(0.5) == pytest.approx(51)
    assert load.quantile(0.99) == pytest.approx(100)
    assert load.statuses == {200: 100, 429: 1}


def test_the_table_compares_with_the_plain_server():
    found = {(speed.OURS, 8): [loads(0.1, 0.1, 0.1)], (speed.PLAIN, 8): [loads(0.3)]}
    ours, plain = speed.table(found).splitlines()[2:]
    assert "3.00 x" in ours
    assert "x |" not in plain


def test_growth_is_measured_after_the_first_tenth():
    """What is allocated at the start does not count; what grows later does."""
    flat = soak.Soak(memory=[(0, 100), (10, 200), (50, 200), (100, 204)])
    grows = soak.Soak(memory=[(0, 100), (10, 200), (50, 230), (100, 260)])
    assert flat.growth() == pytest.approx(0.02)
    assert grows.growth() > soak.GROWTH
    draw = random.Random(0)
    paths = {soak.mixed(["a text"], draw).split()[1] for _ in range(300)}
    assert paths == {b"/embed", b"/v1/embeddings", b"/similarity", b"/tokenize"}


def test_a_status_that_was_not_expected_is_a_fault():
    result = hostile.Hostile(memory=[1.0] * 11)
    result.add("malformed JSON", 400)
    result.add("malformed JSON", 500)
    assert result.faults == ["malformed JSON: status 500"]
    assert "Faults: 1" in hostile.describe(result)
    assert set(hostile.SHARES) == set(hostile.EXPECTED)
    assert request("/embed", {"a": 1}).endswith(b'Content-Length: 8\r\n\r\n{"a": 1}')


@pytest.mark.slow
def test_a_few_clients_that_misbehave_break_nothing():
    """A small part of the campaign, against a process of its own."""
    with servers.nearfar("toy", *hostile.FLAGS) as server:
        result = asyncio.run(hostile.attack(server, ["a text", "another one"], 150))
        assert server.stop() == 0
    assert result.faults == []
    assert sum(seen.total() for seen in result.statuses.values()) == 150
