"""``python -m benchmarks.reliability``: everything that is tried to break nearfar, in one table.

It runs until all cases are done or the time is over, and goes on where it was when it is started again. The page
``benchmarks/RELIABILITY.md`` is written with ``--write``. The exit status is 1 where a promise was broken.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.reliability.table import GOOD, PAGE, Results, page, rows

NUMBERS = {"kills": 500, "disk": 60, "processes": 20, "inputs": 10_000, "bombs": 1, "stops": 400, "damaged": 5_000,
           "malicious": 2_000}  # fmt: skip
"""Cases of each part in a whole campaign."""
SMALL = {"kills": 3, "disk": 2, "stops": 6, "inputs": 100, "damaged": 20, "malicious": 20}
"""Cases of each part that CI runs."""


def main(arguments: Sequence[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    numbers = SMALL if options.small else NUMBERS
    numbers = {part: number for part, number in numbers.items() if not options.only or part in options.only}
    until = time.monotonic() + 60 * options.minutes
    with tempfile.TemporaryDirectory(prefix="nearfar-torture-") as scratch:
        results = Results(options.results or Path(scratch) / "results.jsonl")
        if options.render:
            numbers = {}
        campaign(results, numbers, Path(scratch).resolve(), until, options.seed)
        print("\n".join(rows(results)))
        for part, case, verdict, details in results.broken():
            print(f"\n{part} {case}: {verdict}\n{details}")
        if options.write:
            PAGE.write_text(page(results), encoding="utf-8")
        return int(any(True for _ in results.broken()))


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="python -m benchmarks.reliability", description=__doc__.partition("\n")[0])
    made.add_argument("--minutes", type=float, default=30, help="when to stop; 30")
    made.add_argument("--only", action="append", default=[], choices=list(NUMBERS), help="a part; may be repeated")
    made.add_argument("--results", type=Path, metavar="FILE", help="where outcomes are kept, to go on later")
    made.add_argument("--seed", type=int, default=0, help="of all random choices; 0")
    made.add_argument("--small", action="store_true", help="the few cases that CI runs")
    made.add_argument("--write", action="store_true", help=f"write the table to {PAGE.name}")
    made.add_argument("--render", action="store_true", help="try nothing, only print or write what is known")
    return made


def campaign(results: Results, numbers: dict[str, int], scratch: Path, until: float, seed: int) -> None:
    """Try all cases of all parts, each part with its share of the time that is left."""
    from benchmarks.reliability.commands import preload

    if numbers:
        preload()
    for place, (part, number) in enumerate(numbers.items()):
        now = time.monotonic()
        end = now + (until - now) / (len(numbers) - place)
        PARTS[part](results, part, number, scratch, end, seed)
        shown(part, results)


def shown(part: str, results: Results) -> None:
    counts = results.counts(part)
    bad = {verdict: count for verdict, count in counts.items() if verdict not in GOOD}
    sys.stderr.write(f"{part}: {sum(counts.values()):,} cases, broken: {bad or 'none'}\n")


def try_runs(results: Results, part: str, number: int, scratch: Path, until: float, seed: int) -> None:
    """Runs that are stopped and continued."""
    from benchmarks.reliability import runs

    attempt = {"kills": runs.stopped, "disk": runs.filled, "processes": runs.lost_process, "stops": runs.killed}[part]
    shop = runs.Workshop(scratch / "runs")
    cases = runs.rounds(("two processes",) if part == "processes" else runs.KINDS)
    if part == "stops":
        cases = iter(runs.points(shop, runs.STOPPED, number))
    for kind, case in cases:
        if results.hits(part) >= number or time.monotonic() > until:
            break
        if case in results.known.get(part, {}):
            continue
        verdict, details = attempt(shop, kind, f"{seed} {case}")
        results.add(part, case, verdict, details)
        if verdict not in GOOD:
            sys.stderr.write(f"{part} {case}: {verdict}: {details}\n")


def try_inputs(results: Results, part: str, number: int, scratch: Path, until: float, seed: int) -> None:
    """Malformed inputs, some in one process."""
    from benchmarks.digest_cases import write_data
    from benchmarks.reliability import inputs
    from benchmarks.reliability.commands import Job, run, run_many

    place = scratch / "inputs"
    folder = place / "input"
    place.mkdir(exist_ok=True)
    if not (place / "data").exists():
        write_data(place / "data")
    model = place / "model"
    words = ("train", "data/texts.jsonl", "--encoder", "toy", "--epochs", "1", "--out", "model", "--overwrite")
    end = run(Job(words, place))
    assert end.status == 0, end.errors
    if part == "bombs":
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        for name, command in inputs.bombs(folder).items():
            if name not in results.known.get(part, {}) and time.monotonic() < until:
                (end,) = run_many([Job(command, folder)], scratch)
                kept = f"{' '.join(command)}: {end.seconds:.1f} s, {end.memory / 2**20:.0f} MB: {end.errors[-300:]}"
                results.add(part, name, end.verdict, kept)
        return
    for first in range(0, number, BATCH):
        wanted = [case for case in range(first, first + BATCH) if str(case) not in results.known.get(part, {})]
        if not wanted or time.monotonic() > until:
            continue
        jobs = _Jobs(place, model, wanted, seed)
        for case, end in zip(wanted, run_many(jobs, scratch), strict=True):
            told = f"{' '.join(end.words)}: {end.seconds:.1f} s, {end.errors[-1500:]}"
            details = "" if end.verdict in GOOD else told
            results.add(part, str(case), end.verdict, details)


BATCH = 50


class _Jobs(Sequence):  # type: ignore[type-arg]
    """Jobs whose files are written when their turn comes, in the process that runs them."""

    def __init__(self, place: Path, model: Path, cases: Sequence[int], seed: int) -> None:
        self.place, self.model, self.cases, self.seed = place, model, cases, seed

    def __len__(self) -> int:
        return len(self.cases)

    def __getitem__(self, place):  # type: ignore[no-untyped-def]
        from benchmarks.reliability.inputs import job

        if isinstance(place, slice):
            return _Jobs(self.place, self.model, self.cases[place], self.seed)
        folder = self.place / "input"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        return job(self.place, self.model, self.cases[place], self.seed)


def try_folders(results: Results, part: str, number: int, scratch: Path, until: float, seed: int) -> None:
    """Model folders that are damaged or malicious."""
    from benchmarks.reliability import folders

    place = scratch / "folders"
    place.mkdir(exist_ok=True)
    for first in range(0, number, FOLDERS):
        size = min(FOLDERS, number - first)
        if f"{first} 0" in results.known.get(part, {}) or time.monotonic() > until:
            continue
        ends, bad = folders.run(part, size, 1_000 * seed + first, place)
        broken = [(outcome.end, f"{about}: {outcome.answer[-1000:]}") for about, outcome in bad]
        kept = [(end, "") for end, count in ends.items() if end in GOOD for _ in range(count)]
        for case, (verdict, details) in enumerate([*broken, *kept]):
            results.add(part, f"{first} {case}", verdict, details)


FOLDERS = 250
"""Folders that are tried between two looks at the clock."""


PARTS = {
    "kills": try_runs, "disk": try_runs, "processes": try_runs, "inputs": try_inputs, "bombs": try_inputs,
    "stops": try_runs, "damaged": try_folders, "malicious": try_folders,
}  # fmt: skip

if __name__ == "__main__":
    sys.exit(main())
