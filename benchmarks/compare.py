"""Compare nearfar with its peers on this machine: ``make bench``, or one comparison of it with
``make bench BENCH="--only embed"``.

Every contender works in a process of its own, and they take turns, so that whatever slows the machine down for a while
slows all of them. The tables are printed and appended to a file, with a description of the machine.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks import machine
from benchmarks.bench import ROOT, Bench, Contender, WorkerFailed, start
from benchmarks.comparisons import COMPARISONS, Comparison
from benchmarks.tables import Result, detail_table, number

RESULTS = Path(__file__).with_name("RESULTS.md")
HEADING = """# Results

Appended by `make bench`, one section a run. Texts per second count the timed texts only, after a warm-up and without
starting the process, loading the model or saving it. "Faster by" is the ratio within one turn, so that a slow minute of
the machine meets both sides. Peak MB is the most resident memory of the process.
"""
DATA = ROOT.parent / "shared" / "data"


def main(arguments: Sequence[str] | None = None) -> int:
    """0 when everything was measured, 1 when some worker failed, 2 when nothing was begun."""
    options = parser().parse_args(arguments)
    if options.list:
        width = max(map(len, COMPARISONS))
        for name, comparison in COMPARISONS.items():
            print(f"{name:{width}}  {comparison.about}")
        return 0
    load = machine.load()
    if machine.busy(load, machine.cores()) and not options.busy:
        tell(
            f"the load average is {load:.2f} on {machine.cores()} cores: somebody computes here, and timings would say "
            "little. Wait until it is quiet, or measure all the same with --busy."
        )
        return 2
    with tempfile.TemporaryDirectory(prefix="nearfar-bench-") as scratch:
        bench = start(
            options.data, Path(scratch), quick=options.quick, threads=options.threads, quality=options.quality,
            seeds=options.seeds,
        )  # fmt: skip
        if bench.texts.note:
            tell(f"note: {bench.texts.note}")
        output = Output(options.out)
        output.add(opening(bench, load))
        failed = False
        for name in options.only or COMPARISONS:
            text, complete = compare(name, COMPARISONS[name], bench, options.repeats)
            output.add(text)
            failed |= not complete
    tell(f"written to {options.out}")
    return int(failed)


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(prog="python -m benchmarks.compare", description=__doc__)
    made.add_argument("--only", action="append", choices=COMPARISONS, metavar="NAME", help="one comparison; repeatable")
    made.add_argument("--list", action="store_true", help="name the comparisons and stop")
    made.add_argument("--repeats", type=positive, default=3, metavar="N", help="turns of each contender (3)")
    made.add_argument("--quick", action="store_true", help="fewer texts: a trial, no measurement")
    made.add_argument("--threads", type=positive, metavar="N", help="threads of every contender; default: their own")
    made.add_argument("--quality", action="store_true", help="finetune: F1 after a whole epoch, over seeds")
    made.add_argument("--seeds", type=positive, default=5, metavar="N", help="how many seeds --quality takes (5)")
    made.add_argument(
        "--data", type=Path, default=DATA, metavar="FOLDER", help="holds sst2, sst2_sentences, stsb, trec"
    )
    made.add_argument("--out", type=Path, default=RESULTS, metavar="FILE", help="where the tables are appended")
    made.add_argument("--busy", action="store_true", help="measure although others compute here")
    return made


def positive(text: str) -> int:
    """A number from 1 on."""
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not 1 or more")
    return value


class Output:
    """What is said goes to the screen and, piece by piece, to the end of a file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.path.parent.mkdir(parents=True, exist_ok=True)
        if not self.path.exists():
            self.path.write_text(HEADING, encoding="utf-8")

    def add(self, text: str) -> None:
        """One more piece of Markdown."""
        print(f"\n{text}", flush=True)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(f"\n{text}\n")


def opening(bench: Bench, load: float) -> str:
    """The heading of a run: the machine and the texts."""
    facts = machine.describe(threads=bench.threads, load=load)
    title = f"## {facts[0][1]}{', a quick trial' if bench.quick else ''}"
    lines = [f"- {key}: {value}" for key, value in facts[1:]]
    lines.append(f"- texts: {bench.texts.name}")
    return "\n".join([title, "", *lines])


def compare(name: str, comparison: Comparison, bench: Bench, repeats: int) -> tuple[str, bool]:
    """Run all contenders of a comparison in turn; returns its Markdown and whether nothing failed."""
    bench.notes.clear()
    complaints: list[str] = []
    standing: list[tuple[Contender, Result]] = []
    more: list[str] = []
    repeats = min(repeats, comparison.repeats or repeats)
    try:
        tell(f"{name}: {comparison.about}")
        standing = [(contender, Result(contender.name)) for contender in comparison.contenders(bench)]
        with comparison.surroundings(bench):
            take_turns(name, standing, bench, repeats, complaints)
        more = comparison.finish(bench, standing)
    except WorkerFailed as failure:
        complaints.append(str(failure))
        tell(f"  {failure}")
    return section(name, comparison, repeats, standing, [*more, *bench.notes], complaints), not complaints


def take_turns(
    name: str, standing: list[tuple[Contender, Result]], bench: Bench, repeats: int, complaints: list[str]
) -> None:
    """A B C A B C ...; a failure costs a contender its turn, and it gets no other one."""
    lost: set[str] = set()
    for turn in range(1, repeats + 1):
        for contender, result in standing:
            if contender.name in lost:
                result.runs.append(None)
                continue
            try:
                run = bench.work(contender)
            except WorkerFailed as failure:
                lost.add(contender.name)
                complaints.append(str(failure))
                result.runs.append(None)
                tell(f"  {failure}")
                continue
            result.runs.append(run)
            tell(f"  {name} {turn}/{repeats} {contender.name}: {number(run['texts_per_second'])} a second")


def section(
    name: str,
    comparison: Comparison,
    repeats: int,
    standing: list[tuple[Contender, Result]],
    more: Sequence[str],
    complaints: Sequence[str],
) -> str:
    """The Markdown of one comparison."""
    results = [result for _, result in standing]
    turns = "one turn" if repeats == 1 else f"median of {repeats} turns, least and greatest in brackets"
    parts = [f"### {name}: {comparison.about}", f"{turns[0].upper()}{turns[1:]}."]
    timed = [any(result.values("texts_per_second")) for result in results]
    if timed and timed[0]:
        parts.append(
            comparison.table([one for one, was in zip(standing, timed, strict=True) if was or not any(one[1].runs)])
        )
    if any(result.keys("details") for result in results):
        parts.append(detail_table(results))
    parts += more
    parts += [f"Failed: {complaint}" for complaint in complaints]
    return "\n\n".join(parts)


def tell(text: str) -> None:
    """News for whoever waits; not part of the result."""
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main())
