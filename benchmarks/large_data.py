"""Training rows and vectors that are larger than memory: seconds, and the peak memory of the process.

    python -m benchmarks.large_data train --rows 10000000 --steps 300
    python -m benchmarks.large_data neighbors --rows 100000 1000000 --memory 2
    python -m benchmarks.large_data mine --rows 100000 1000000 --memory 2

- train: pairs of made-up texts, written to a file that is removed afterwards, and ``nearfar train`` on it with the toy
  encoder, in a process of its own;
- neighbors: one epoch of ``batches.shuffle = "neighbors"`` from vectors on disk;
- mine: the 50 nearest documents of as many anchors, as ``nearfar mine`` ranks them from vectors on disk.

Vectors have width 384 and are clustered: 2,000 centers in 64 dimensions with noise around them, turned into 384 with a
little noise more. Each case has a process of its own. Peak memory is ``ru_maxrss``: all that is resident, pages of
memory-mapped files included.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

WIDTH, TOPICS, INNER, BLOCK = 384, 2_000, 64, 65_536
FIRST, SECOND = ("ba", "de", "ki", "lo", "mu", "ra", "se", "to"), ("lan", "mer", "nos", "rit", "sul", "ven")
WORDS = [first + second for first in FIRST for second in SECOND]


def peak() -> float:
    """GB of the process, at most, so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9


def write_pairs(path: Path, rows: int) -> None:
    """So many pairs of different short texts."""
    source = np.random.default_rng(1)
    with path.open("w", encoding="utf-8") as file:
        for start in range(0, rows, BLOCK):
            size = min(BLOCK, rows - start)
            drawn = source.integers(0, len(WORDS), (size, 8)).tolist()
            for row, words in enumerate(drawn, start):
                one, other = " ".join(WORDS[word] for word in words[:4]), " ".join(WORDS[word] for word in words[4:])
                file.write(f'{{"text_a": "{one} {row}", "text_b": "{other} {row}"}}\n')


def train(rows: int, steps: int) -> dict[str, object]:
    with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR", "/var/tmp")) as folder:
        file = Path(folder) / "pairs.jsonl"
        write_pairs(file, rows)
        size = file.stat().st_size
        words = [
            "train", str(file), "--encoder", "toy", "--out", str(Path(folder) / "model"), "--batch-size", "64",
            "--set", f"training.max_steps={steps}", "--precision", "fp32",
        ]  # fmt: skip
        began = time.perf_counter()
        script = (
            "import resource, sys; from nearfar.cli import main; code = 0\n"
            "try: main()\n"
            "except SystemExit as end: code = end.code or 0\n"
            "open('peak', 'w').write(str(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)); sys.exit(code)"
        )
        subprocess.run([sys.executable, "-c", script, *words], check=True, cwd=folder)
        seconds = time.perf_counter() - began
        memory = int((Path(folder) / "peak").read_text()) / 1e9
    return {
        "rows": rows, "file_gb": round(size / 1e9, 2), "steps": steps, "seconds": round(seconds),
        "peak_gb": round(memory, 2),
    }  # fmt: skip


def vectors_on_disk(rows: int, seed: int):
    from nearfar.batching import VectorFile

    fixed, source = np.random.default_rng(0), np.random.default_rng(seed)
    centers = fixed.standard_normal((TOPICS, INNER)).astype(np.float32)
    turn = np.linalg.qr(fixed.standard_normal((WIDTH, INNER)))[0].T.astype(np.float32)
    file = VectorFile(WIDTH)
    for start in range(0, rows, BLOCK):
        size = min(BLOCK, rows - start)
        inner = centers[source.integers(0, TOPICS, size)] + 0.7 * source.standard_normal((size, INNER), np.float32)
        file.append(inner @ turn + 0.05 * source.standard_normal((size, WIDTH), np.float32))
    return file


def neighbors(rows: int, memory: float) -> dict[str, object]:
    from nearfar.batching import EmbeddingSampler, NearestNeighbors, Search

    file = vectors_on_disk(rows, 1)
    grouping = NearestNeighbors(search=Search(memory=int(memory * 1e9)))
    sampler = EmbeddingSampler(rows=rows, size=64, seed=2, vectors=lambda: file, grouping=grouping)
    began, processor = time.perf_counter(), time.process_time()
    sampler.batches(0)
    seconds, processor = time.perf_counter() - began, time.process_time() - processor
    report = sampler.report
    assert report is not None
    return {
        "rows": rows, "memory_gb": memory, "seconds": round(seconds), "processor": round(processor),
        "peak_gb": round(peak(), 2), "recall": round(report.recall or 1, 3),
        "in_batch": round(report.similarity or 0, 3), "random": round(report.random or 0, 3),
        "in_groups": report.rows_in_groups,
    }  # fmt: skip


def mine(rows: int, memory: float) -> dict[str, object]:
    from nearfar.batching import Search
    from nearfar.batching.cells import Cells

    documents, anchors, source = vectors_on_disk(rows, 1), vectors_on_disk(rows, 2), np.random.default_rng(3)
    began, processor = time.perf_counter(), time.process_time()
    cells = Cells(documents, Search(memory=int(memory * 1e9)), source)
    recall = cells.tune(documents, 50, source, anchors)
    found = sum(len(block.ids) for block in cells.nearest(anchors, 50))
    seconds, processor = time.perf_counter() - began, time.process_time() - processor
    assert found == rows
    return {
        "rows": rows, "memory_gb": memory, "seconds": round(seconds), "processor": round(processor),
        "peak_gb": round(peak(), 2), "recall": round(recall, 3), "probes": cells.probes, "cells": cells.cells,
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("case", choices=["train", "neighbors", "mine"])
    parser.add_argument("--rows", type=int, nargs="+", default=[1_000_000])
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--memory", type=float, default=2.0)
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    for rows in given.rows:
        if given.case == "train":
            print(json.dumps(train(rows, given.steps)), flush=True)
        elif given.here:
            print(json.dumps({"neighbors": neighbors, "mine": mine}[given.case](rows, given.memory)), flush=True)
        else:
            words = [given.case, "--rows", str(rows), "--memory", str(given.memory), "--here"]
            subprocess.run([sys.executable, "-m", "benchmarks.large_data", *words], check=True)


if __name__ == "__main__":
    main()
