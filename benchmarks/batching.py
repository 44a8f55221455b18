"""Batch construction by likeness: seconds and peak memory of planning one epoch, as a Markdown table.

- neighbors: :class:`nearfar.batching.NearestNeighbors` as it is: exact up to 50,000 rows, approximate above;
- brute force: the same with every row compared with every row;
- words: :class:`nearfar.batching.ShingleSampler`, eight words a text, which are made from numbers as they are read.

Vectors have width 384 and as many topics as texts of a large data set may have: 2,000 centers in 64 dimensions with
noise around them, turned into 384 with a little noise more. Points without any such structure are found worse by every
approximate search; the recall is measured on each run. Each case has a process of its own; memory is the peak of the
whole process, with the vectors or texts in it. CPU seconds are what a busy machine does not change much.

    python benchmarks/batching.py --threads 2
    python benchmarks/batching.py --threads 2 --full
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import overload

import numpy as np

from nearfar.batching import EmbeddingSampler, NearestNeighbors, Search, ShingleSampler
from nearfar.batching.groups import Vectors

WIDTH, TOPICS, INNER, SIZE = 384, 2000, 64, 32
VOCABULARY, LENGTH = 50_000, 8
QUICK = [
    ("neighbors", 10_000), ("brute force", 10_000), ("neighbors", 30_000), ("brute force", 30_000),
    ("neighbors", 100_000), ("brute force", 100_000), ("words", 1_000_000),
]  # fmt: skip
FULL = [("neighbors", 1_000_000), ("words", 10_000_000)]


class Texts(Sequence[str]):
    """Texts that exist only while they are read: row numbers of words, frequent words more often, as in language."""

    def __init__(self, rows: int) -> None:
        source = np.random.default_rng(0)
        self.words = [f"word{number}" for number in range(VOCABULARY)]
        self.numbers = np.empty((rows, LENGTH), dtype=np.uint16)
        for start in range(0, rows, 100_000):
            part = self.numbers[start : start + 100_000]
            part[:] = VOCABULARY ** source.random(part.shape) - 1

    def __len__(self) -> int:
        return len(self.numbers)

    @overload
    def __getitem__(self, at: int) -> str: ...
    @overload
    def __getitem__(self, at: slice) -> list[str]: ...
    def __getitem__(self, at: int | slice) -> str | list[str]:
        if isinstance(at, slice):
            return [" ".join([self.words[number] for number in row]) for row in self.numbers[at].tolist()]
        return " ".join([self.words[number] for number in self.numbers[at].tolist()])


def topics(rows: int) -> Vectors:
    """Vectors as of texts about some topics, made in parts."""
    source = np.random.default_rng(0)
    centers = source.standard_normal((TOPICS, INNER), dtype=np.float32)
    turn = source.standard_normal((INNER, WIDTH), dtype=np.float32) / 8
    vectors = np.empty((rows, WIDTH), dtype=np.float32)
    for start in range(0, rows, 20_000):
        part = vectors[start : start + 20_000]
        inner = centers[source.integers(0, TOPICS, len(part))]
        inner += 0.8 * source.standard_normal(inner.shape, dtype=np.float32)
        np.matmul(inner, turn, out=part)
        part += 0.3 * source.standard_normal(part.shape, dtype=np.float32)
    return vectors


def measure(case: str, rows: int) -> dict[str, object]:
    """Plan one epoch; to be called in a process of its own."""
    sampler: EmbeddingSampler | ShingleSampler
    if case == "words":
        sampler = ShingleSampler(texts=Texts(rows), size=SIZE, seed=0)
    else:
        vectors = topics(rows)
        search = Search(exact_rows=rows) if case == "brute force" else Search()
        grouping = NearestNeighbors(search=search)
        sampler = EmbeddingSampler(rows=rows, size=SIZE, seed=0, vectors=lambda: vectors, grouping=grouping)
    before, start, cpu = peak(), time.perf_counter(), time.process_time()
    batches = sampler.batches(0)
    seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
    assert sampler.report is not None
    assert len(batches) == len(sampler)
    return {"wall": seconds, "cpu": cpu, "peak": peak(), "before": before, **asdict(sampler.report)}


def peak() -> float:
    """Largest memory of this process until now, in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def measure_elsewhere(case: str, rows: int, threads: int) -> dict[str, object]:
    command = [sys.executable, __file__, "--case", case, str(rows)]
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    answer: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
    return answer


HEADER = (
    "| rows | case | wall (s) | CPU (s) | peak (MiB) | before (MiB) | groups | rows in groups | in-batch | random | "
    "recall |\n|--:|:--|--:|--:|--:|--:|--:|--:|--:|--:|--:|"
)


def line(case: str, rows: int, result: dict[str, object]) -> str:
    """A row of the table."""
    recall = "exact" if result["exact"] else f"{result['recall']:.2f}"
    cells = [
        f"{rows:,}", case, f"{result['wall']:.1f}", f"{result['cpu']:.1f}", f"{result['peak']:,.0f}",
        f"{result['before']:,.0f}", f"{result['groups']:,}", f"{result['rows_in_groups']:,}",
        f"{result['similarity']:.3f}", f"{result['random']:.3f}", recall,
    ]  # fmt: skip
    return f"| {' | '.join(cells)} |"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--full", action="store_true", help="1,000,000 vectors and 10,000,000 texts as well")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--only", nargs=2, metavar=("CASE", "ROWS"), help="one case, such as: neighbors 20000")
    parser.add_argument("--case", nargs=2, metavar=("CASE", "ROWS"), help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.case:
        print(json.dumps(measure(options.case[0], int(options.case[1]))))
        return
    cases = QUICK + (FULL if options.full else [])
    if options.only:
        cases = [(options.only[0], int(options.only[1]))]
    print(f"width {WIDTH}, batches of {SIZE}, groups of 8, {options.threads} threads\n\n{HEADER}")
    for case, rows in cases:
        print(line(case, rows, measure_elsewhere(case, rows, options.threads)), flush=True)


if __name__ == "__main__":
    main()
