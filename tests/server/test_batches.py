"""Batches: what waits is computed together within the budget, nobody waits for others without need, nothing is lost."""

from __future__ import annotations

import asyncio
import os
import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearfar.server.batches import Batches, Timing, Work, pieces
from nearfar.server.errors import RequestError
from nearfar.server.memory import resident_memory, return_freed
from nearfar.server.metrics import Counter, Histogram, Metrics
from nearfar.server.models import Prepared
from nearfar.server.worker_files import WorkerFiles


def texts(*lengths: int, name: str = "") -> Prepared:
    return Prepared([f"{name}{place}" for place in range(len(lengths))], np.array(lengths), 0)


class Recorder:
    """Computes the lengths of texts, in batches that it remembers; waits until it may begin."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.go = threading.Event()
        self.begun = threading.Event()

    def __call__(self, parts):
        self.begun.set()
        assert self.go.wait(10)
        self.batches.append([int(part.lengths.sum()) for part in parts])
        if any("bad" in row for part in parts for row in part.rows):
            raise ValueError("a text that nobody should read in a log")
        return np.concatenate([part.lengths for part in parts]).astype(np.float32)[:, None]


@pytest.fixture
def recorder():
    return Recorder()


def run(batches, recorder, *groups, keys=None):
    """Submit groups of texts while the first one is being computed; what each of them gave."""

    async def all_of_them():
        works = [Work(key, recorder) for key in (keys or ["same"] * len(groups))]
        tasks = []
        for work, group in zip(works, groups, strict=True):
            tasks.append(asyncio.create_task(batches.run(work, group, Timing())))
            await asyncio.sleep(0)
            while not recorder.begun.is_set():
                await asyncio.sleep(0.001)
        recorder.go.set()
        return await asyncio.gather(*tasks, return_exceptions=True)

    try:
        return asyncio.run(all_of_them())
    finally:
        batches.close()


def test_what_waits_is_computed_together_within_the_budget(recorder):
    results = run(Batches(10, 100, Metrics()), recorder, texts(3), texts(4), texts(5), texts(6), texts(1))
    assert recorder.batches == [[3], [4, 5, 1], [6]]
    assert [result.tolist() for result in results] == [[[3]], [[4]], [[5]], [[6]], [[1]]]


def test_a_large_request_lets_others_in_between(recorder):
    results = run(Batches(10, 100, Metrics()), recorder, texts(9, 9, 9, 12), texts(2, name="small"))
    assert recorder.batches == [[9], [2], [9], [9], [12]]
    assert results[0].ravel().tolist() == [9, 9, 9, 12]


def test_different_works_are_computed_apart_and_in_order(recorder):
    run(Batches(10, 100, Metrics()), recorder, texts(1), texts(2), texts(3), texts(4), keys=["a", "a", "b", "a"])
    assert recorder.batches == [[1], [2, 4], [3]]


def test_texts_that_fail_do_not_fail_those_of_others(recorder, caplog):
    results = run(Batches(10, 100, Metrics()), recorder, texts(1), texts(2, name="bad"), texts(3))
    assert results[2].tolist() == [[3]]
    assert isinstance(results[1], RequestError)
    assert results[1].status == 424
    assert "nobody should read" not in caplog.text


def test_cancelled_requests_are_not_computed(recorder):
    async def cancel_one():
        first = asyncio.create_task(batches.run(Work("a", recorder), texts(1), Timing()))
        while not recorder.begun.is_set():
            await asyncio.sleep(0.001)
        second = asyncio.create_task(batches.run(Work("a", recorder), texts(2), Timing()))
        third = asyncio.create_task(batches.run(Work("a", recorder), texts(3), Timing()))
        await asyncio.sleep(0)
        second.cancel()
        await asyncio.sleep(0)
        recorder.go.set()
        await first
        await third

    batches = Batches(10, 100, Metrics())
    asyncio.run(cancel_one())
    batches.close()
    assert recorder.batches == [[1], [3]]


def test_the_queue_is_bounded_and_says_when_to_come_back():
    batches = Batches(10, 5, Metrics())
    with batches.accept(3):
        with pytest.raises(RequestError) as refused, batches.accept(3):
            pass
        assert refused.value.status == 429
        assert 1 <= int(refused.value.headers["retry-after"]) <= 60
        with batches.accept(2):
            assert batches.accepted == 5
    assert batches.accepted == 0
    batches.close()
    with pytest.raises(RequestError, match="shutting down"), batches.accept(1):
        pass


def test_what_is_queued_is_computed_before_the_end(recorder):
    async def close_early():
        tasks = [asyncio.create_task(batches.run(Work("a", recorder), texts(n), Timing())) for n in (8, 9, 7)]
        await asyncio.sleep(0.05)
        threading.Timer(0.1, recorder.go.set).start()
        await asyncio.to_thread(batches.close)
        return await asyncio.gather(*tasks)

    batches = Batches(10, 100, Metrics())
    assert [result.item() for result in asyncio.run(close_early())] == [8, 9, 7]


@given(st.lists(st.integers(1, 20), min_size=1, max_size=50), st.integers(1, 30))
def test_pieces_cover_all_texts_within_the_budget(lengths, budget):
    spans = pieces(np.array(lengths), budget)
    assert [place for start, stop in spans for place in range(start, stop)] == list(range(len(lengths)))
    assert all(sum(lengths[start:stop]) <= budget or stop - start == 1 for start, stop in spans)


def test_metrics_in_the_format_of_prometheus():
    counter = Counter("seen_total", "Seen.", ("path",))
    counter.add(2, 'a"b\\c\nd')
    assert counter.lines() == [r'seen_total{path="a\"b\\c\nd"} 2']
    histogram = Histogram("seconds", "Time.", (0.1, 1))
    for value in (0.05, 0.1, 0.5, 7):
        histogram.observe(value)
    assert histogram.lines() == [
        'seconds_bucket{le="0.1"} 2', 'seconds_bucket{le="1"} 3', 'seconds_bucket{le="+Inf"} 4', "seconds_sum 7.65",
        "seconds_count 4",
    ]  # fmt: skip
    text = Metrics().text()
    assert text.endswith("\n")
    assert "# TYPE nearfar_requests_total counter\n" in text


def test_metrics_of_several_processes_are_added(tmp_path, monkeypatch):
    """Counters and histograms are sums, which an ended process does not make smaller; gauges stand side by side."""
    first, second = (Metrics() for _ in range(2))
    for metrics, count in ((first, 2), (second, 3)):
        metrics.requests.add(count, "/embed", "200")
        metrics.batch_texts.observe(count)
        metrics.gauge("nearfar_queue_texts", "Texts.", lambda: 1.0)
    second.requests.add(1, "/embed", "413")
    monkeypatch.setattr("os.getpid", iter((11, 12)).__next__)
    files = WorkerFiles(tmp_path), WorkerFiles(tmp_path)
    files[0].write(first)
    lines = files[1].text(second).splitlines()
    assert 'nearfar_requests_total{path="/embed",status="200"} 5' in lines
    assert 'nearfar_requests_total{path="/embed",status="413"} 1' in lines
    assert lines.count("# TYPE nearfar_requests_total counter") == 1
    assert {'nearfar_batch_texts_bucket{le="2"} 1', 'nearfar_batch_texts_bucket{le="4"} 2'} < set(lines)
    assert {"nearfar_batch_texts_sum 5", "nearfar_batch_texts_count 2"} < set(lines)
    assert {'nearfar_queue_texts{worker="11"} 1', 'nearfar_queue_texts{worker="12"} 1'} < set(lines)

    first.requests.add(10, "/embed", "200")  # not written yet: what others show must not fall behind it later
    assert 'nearfar_requests_total{path="/embed",status="200"} 5' in files[1].text(second)
    (own,) = tmp_path.glob("11-*.json")
    os.utime(own, (0, 0))
    lines = files[1].text(second).splitlines()
    assert 'nearfar_requests_total{path="/embed",status="200"} 5' in lines
    assert 'nearfar_queue_texts{worker="12"} 1' in lines
    assert not any('worker="11' in line for line in lines)


def test_freed_memory_is_given_back():
    """What was allocated in small pieces and freed is not held for long."""
    if return_freed():  # first what earlier tests have freed
        before = resident_memory()
        pieces_of_memory = [bytearray(40_000) for _ in range(2_000)]
        assert resident_memory() > before + 60_000_000
        del pieces_of_memory
        assert return_freed()
        assert resident_memory() < before + 40_000_000
