"""``python -m benchmarks.scale measure|check|speed|plan``: what it costs to embed, index and search large corpora.

``measure`` runs ``nearfar embed``, ``index`` and ``search`` on texts that are made up, and writes the rates to
``benchmarks/scale-rates.json``. ``check`` computes the larger runs from the rates of the smallest one and compares.
``speed`` embeds the same texts in a plain loop, by one worker and by two, in turns; nothing else must run meanwhile.
``plan`` computes a run of any size from the rates, such as 1 billion texts; it needs no machine.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nearfar.shards.run import Options

RATES = Path(__file__).with_name("scale-rates.json")
GB = 1e9
WORDS = "the a of to parcel invoice card lamp saw apple rain train bread paper river stone cloud window".split()  # noqa: SIM905


@dataclass(frozen=True)
class Rates:
    """What one machine does; all for one core unless it says otherwise."""

    texts: float = 400.0
    """Texts that a core embeds in a second."""
    start: float = 6.0
    """Seconds until a worker has opened the model."""
    shard: float = 0.05
    """Seconds of a shard beside its texts: open, check, write, record."""
    read: float = 2e8
    """Bytes of text that a core reads and checks in a second."""
    disk: float = 5e8
    """Bytes that all workers together write in a second, to a disk or an object store."""
    products: float = 3e10
    """Multiplications and additions of matrix products in a second, in faiss."""
    scan: float = 2e9
    """Bytes of inverted lists that a core compares with a query in a second."""


@dataclass(frozen=True)
class Corpus:
    """What is embedded, and how."""

    texts: float = 1e9
    text_bytes: float = 200.0
    dim: int = 384
    number: int = 2
    """Bytes of a number of a vector: 4 for fp32, 2 for fp16, 1 for int8."""
    rows_per_shard: int = 65_536
    cores: int = 256
    queries: float = 1e6
    top: int = 10


@dataclass(frozen=True)
class Cost:
    """What a run costs."""

    shards: int
    core_hours: float
    hours: float
    lost_minutes: float
    """What a killed worker costs: the shard in flight."""
    read_gb: float
    vectors_gb: float
    worker_mb: float
    """Memory of a worker beside the model: the texts and the vectors of a shard."""
    manifest_mb: float
    lists: int
    training_hours: float
    """On one core."""
    assign_core_hours: float
    index_gb: dict[str, float]
    query_ms: float
    """Of one core, if the lists are in memory; 32 lists are searched."""


def cost(corpus: Corpus, rates: Rates) -> Cost:
    """Embed a corpus, build an IVF index, and search it."""
    shards = math.ceil(corpus.texts / corpus.rows_per_shard)
    width = corpus.dim * corpus.number
    computing = corpus.texts / rates.texts + corpus.texts * corpus.text_bytes / rates.read + shards * rates.shard
    rounds = math.ceil(shards / corpus.cores) / (shards / corpus.cores)  # the last shards do not fill all cores
    written = corpus.texts * (width + corpus.text_bytes)
    seconds = max(computing / corpus.cores * rounds, written / rates.disk) + rates.start
    lists = min(65_536, 2 ** round(math.log2(4 * math.sqrt(corpus.texts))))
    training = 64 * lists * lists * corpus.dim * 10 / rates.products  # ten rounds of k-means on 64 vectors a list
    assign = corpus.texts * lists * corpus.dim / rates.products
    probed = corpus.texts / lists * 32
    sizes = {"ivf": 4.0 * corpus.dim + 8, "ivf-sq8": corpus.dim + 8.0, "ivf-pq": corpus.dim / 4 + 8}
    return Cost(
        shards,
        computing / 3600,
        seconds / 3600,
        corpus.rows_per_shard / rates.texts / 60,
        corpus.texts * corpus.text_bytes / GB,
        written / GB,
        corpus.rows_per_shard * (4 * corpus.dim + 3 * corpus.text_bytes) / 1e6,
        shards * 300 / 1e6,
        lists,
        training / 3600,
        assign / 3600,
        {kind: corpus.texts * each / GB for kind, each in sizes.items()},
        (probed * (corpus.dim + 8) / rates.scan + lists * corpus.dim / rates.products) * 1e3,
    )


def limits(corpus: Corpus, rates: Rates) -> list[str]:
    """What is the narrowest place, and what comes next, in words."""
    each = cost(corpus, rates)
    computing = each.core_hours / corpus.cores
    places = {
        f"computing: {each.core_hours:,.0f} core hours, {computing:,.1f} h on {corpus.cores:,} cores": computing,
        f"writing {each.vectors_gb:,.0f} GB at {rates.disk / GB:.1f} GB/s": each.vectors_gb * GB / rates.disk / 3600,
        f"training {each.lists:,} lists on one core": each.training_hours,
        f"assigning vectors to lists on {corpus.cores:,} cores": each.assign_core_hours / corpus.cores,
    }
    return [f"{hours:10,.2f} h  {name}" for name, hours in sorted(places.items(), key=lambda place: -place[1])]


def write_texts(folder: Path, rows: int, files: int = 10) -> int:
    """Short texts in Parquet files; returns their bytes."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(0)
    size = 0
    for number in range(files):
        count = rows // files + (number < rows % files)
        words = random.integers(0, len(WORDS), size=(count, 6))
        texts = [" ".join(WORDS[word] for word in row) for row in words.tolist()]
        size += sum(map(len, texts))
        pq.write_table(pa.table({"text": texts}), folder / f"{number:03}.parquet", row_group_size=65_536)
    return size


@dataclass(frozen=True)
class Run:
    """A real run."""

    rows: int
    workers: int
    seconds: float
    core_seconds: float
    peak_mb: float
    """The largest resident memory of one process."""
    memory_mb: list[float]
    """Of all processes together, over time."""
    text_bytes: int
    bytes_written: int
    shards: int
    index_seconds: float = 0.0
    recall: float = 0.0
    kind: str = ""


class Memory:
    """The resident memory of a process and its children, while they run."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process, self.totals, self.peak = process, list[float](), 0.0
        self.thread = threading.Thread(target=self._watch, daemon=True)
        self.thread.start()

    def _watch(self) -> None:
        import psutil

        parent = psutil.Process(self.process.pid)
        while self.process.poll() is None:
            total = 0.0
            try:
                for each in (parent, *parent.children(recursive=True)):
                    used = each.memory_info().rss / 1e6
                    total, self.peak = total + used, max(self.peak, used)
            except psutil.Error:
                continue
            self.totals.append(round(total, 1))
            time.sleep(0.5)


def measure(rows: int, workers: int, folder: Path, *, index: bool) -> Run:
    """Embed so many texts with the toy encoder, and index them."""
    corpus, out = folder / f"texts-{rows}", folder / f"out-{rows}-{workers}"
    size = sum(path.stat().st_size for path in corpus.glob("*")) if corpus.is_dir() else write_texts(corpus, rows)
    shutil.rmtree(out, ignore_errors=True)
    command = [sys.executable, "-m", "nearfar"]
    before, began = os.times(), time.perf_counter()
    process = subprocess.Popen(
        [*command, "embed", "toy", str(corpus), "--out", f"{out}/", "--workers", str(workers)],
        stderr=subprocess.DEVNULL, env=os.environ | {"OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    memory = Memory(process)
    if process.wait():
        raise SystemExit(f"nearfar embed ended with {process.returncode}")
    seconds, after = time.perf_counter() - began, os.times()
    spent = after.children_user + after.children_system - before.children_user - before.children_system
    files = list(out.glob("shard-*"))
    run = Run(
        rows, workers, round(seconds, 2), round(spent, 2), round(memory.peak, 1), _thinned(memory.totals), size,
        sum(path.stat().st_size for path in files), len(files),
    )  # fmt: skip
    if index:
        shutil.rmtree(folder / "index", ignore_errors=True)
        began = time.perf_counter()
        subprocess.run(
            [*command, "index", str(out), "--out", str(folder / "index")], check=True, stderr=subprocess.DEVNULL
        )
        values = json.loads((folder / "index" / "index.json").read_text())
        seconds = round(time.perf_counter() - began, 2)
        run = replace(run, index_seconds=seconds, recall=values["recall"], kind=values["kind"])
    return run


def _thinned(values: list[float], most: int = 20) -> list[float]:
    return values if len(values) <= most else [values[place * (len(values) - 1) // (most - 1)] for place in range(most)]


def fitted(small: Run, large: Run) -> Rates:
    """The rates that explain two runs in processor time: a start, and a time for each text."""
    each = (large.core_seconds - small.core_seconds) / (large.rows - small.rows)
    start = max(0.0, small.core_seconds - small.rows * each) / (small.workers + 1)
    return Rates(texts=1 / each, start=start, shard=0.0, read=math.inf)


def predicted(run: Run, rates: Rates) -> float:
    """The processor time of a run: every process starts once, the texts take their time."""
    return (run.workers + 1) * rates.start + run.rows / rates.texts + run.shards * rates.shard


def check(runs: Sequence[Run]) -> list[str]:
    """A table: the processor time of each run, and what the rates of the two smallest say."""
    ordered = sorted(runs, key=lambda run: run.rows)
    if len(ordered) < 2:
        return ["two runs of different sizes are needed: python -m benchmarks.scale measure --rows 1e5 1e6"]
    rates = fitted(*ordered[:2])
    lines = [
        "| Rows | Processor time | Computed from the first two | Difference | Largest process |",
        "|--:|--:|--:|--:|--:|",
    ]
    for run in ordered:
        said = predicted(run, rates)
        lines.append(
            f"| {run.rows:,} | {run.core_seconds:,.1f} s | {said:,.1f} s | {said / run.core_seconds - 1:+.0%} | "
            f"{run.peak_mb:,.0f} MB |"
        )
    return lines


@dataclass(frozen=True)
class Turn:
    """How fast one way of embedding was, once it was at work."""

    rate: float
    """Texts in a second."""
    core_rate: float
    """Texts in a second of the processor, of this process; 0 where others computed."""


def turn(way: str, files: Sequence[Path], out: Path, options: Options) -> Turn:
    """Embed all files: ``plain`` reads each and saves a .npy file for every ``rows_per_shard`` texts; or by workers."""
    from nearfar.encoding import load
    from nearfar.encoding.formats import use_precision
    from nearfar.shards.executors import LocalExecutor
    from nearfar.shards.run import run_files

    done: list[tuple[int, float, float]] = []  # texts, seconds, seconds of the processor

    def note(texts: int) -> None:
        done.append((texts, time.perf_counter(), time.process_time()))

    shutil.rmtree(out, ignore_errors=True)
    workers, rows_per_shard = 1, options.rows_per_shard
    if way == "plain":
        import numpy as np
        import pyarrow.parquet as pq

        out.mkdir(parents=True)
        model, texts = load("toy"), 0
        use_precision(model, None)
        for file in files:
            column = pq.read_table(file)["text"].to_pylist()
            for start in range(0, len(column), rows_per_shard):
                some = column[start : start + rows_per_shard]
                np.save(out / f"{texts}.npy", model.embed(some))
                texts += len(some)
                note(texts)
    else:
        workers = int(way)
        names = [str(file) for file in files]
        run_files("embed", "toy", names, str(out), options, LocalExecutor(workers), report=lambda some, _: note(some))
        done = [each for each in done if each[0]]
    first, last = done[2 * workers - 1], done[-1]  # every worker has opened the model, and computes at its pace
    texts = last[0] - first[0]
    return Turn(texts / (last[1] - first[1]), texts / (last[2] - first[2]) if workers == 1 else 0.0)


def speed(rows: int, options: Options, turns: int, folder: Path) -> list[str]:
    """A table of medians: a plain loop, one worker, two workers."""
    from statistics import median

    import torch

    torch.set_num_threads(1)
    corpus = folder / f"speed-{rows}"
    if not corpus.is_dir():
        write_texts(corpus, rows, files=2)
    files = sorted(corpus.glob("*.parquet"))
    taken: dict[str, list[Turn]] = {"plain": [], "1": [], "2": []}
    for _ in range(turns):
        for way, every in taken.items():
            every.append(turn(way, files, folder / "speed-out", options))
            print(
                f"{way}: {every[-1].rate:,.0f} texts/s, {every[-1].core_rate:,.0f} a second of the processor",
                flush=True,
            )
    rates = {way: median(each.rate for each in every) for way, every in taken.items()}
    cores = {way: median(each.core_rate for each in every) for way, every in taken.items()}
    return [
        "| Plain loop | One worker | Two workers | Cost of shards | The same in processor time | Two workers to one |",
        "|--:|--:|--:|--:|--:|--:|",
        f"| {rates['plain']:,.0f}/s | {rates['1']:,.0f}/s | {rates['2']:,.0f}/s "
        f"| {rates['plain'] / rates['1'] - 1:+.1%} "
        f"| {cores['plain'] / cores['1'] - 1:+.1%} | {rates['2'] / rates['1']:.2f} |",
    ]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scale", description=__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True)
    run = verbs.add_parser("measure")
    run.add_argument("--rows", type=float, nargs="+", default=[1e5, 1e6])
    run.add_argument("--workers", type=int, default=2)
    run.add_argument("--folder", type=Path, default=Path("scale-runs"))
    run.add_argument("--index", action="store_true")
    verbs.add_parser("check")
    compared = verbs.add_parser("speed")
    compared.add_argument("--rows", type=float, default=262_144)
    compared.add_argument("--rows-per-shard", type=int, default=8_192)
    compared.add_argument("--format", choices=["parquet", "npy"], default="parquet", help="of shards; npy as the loop")
    compared.add_argument("--turns", type=int, default=5)
    compared.add_argument("--folder", type=Path, default=Path("scale-runs"))
    plan = verbs.add_parser("plan")
    for kind in (Corpus, Rates):
        for each in fields(kind):
            name = each.name.replace("_", "-") + ("-rate" if kind is Rates else "")
            plan.add_argument(f"--{name}", type=type(each.default), default=each.default)
    given = parser.parse_args(arguments)
    if given.verb == "plan":
        corpus = Corpus(**{each.name: getattr(given, each.name) for each in fields(Corpus)})
        rates = Rates(**{each.name: getattr(given, f"{each.name}_rate") for each in fields(Rates)})
        for name, value in asdict(cost(corpus, rates)).items():
            print(f"{name:20} {value:,.2f}" if isinstance(value, float) else f"{name:20} {value}")
        print("\n".join(limits(corpus, rates)))
        return
    if given.verb == "speed":
        from nearfar.shards.run import Options

        options = Options(rows_per_shard=given.rows_per_shard, file_format=given.format)
        print("\n".join(speed(int(given.rows), options, given.turns, given.folder)))
        return
    known = [Run(**each) for each in json.loads(RATES.read_text())] if RATES.exists() else []
    if given.verb == "measure":
        for rows in given.rows:
            done = measure(int(rows), given.workers, given.folder, index=given.index)
            print(json.dumps(asdict(done)))
            known = [each for each in known if (each.rows, each.workers) != (done.rows, done.workers)] + [done]
            RATES.write_text(json.dumps([asdict(each) for each in known], indent=1) + "\n")
    print("\n".join(check(known)))


if __name__ == "__main__":
    main()
