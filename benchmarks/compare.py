"""Compare nearfar with its peers on this machine: ``make bench``, or one comparison of it with
``make bench BENCH="--only embed"``.

Every contender works in a process of its own. They take turns in a random order, a turn is at least 30 seconds of timed
work, and one that others disturbed is repeated. Each turn is appended at once to a file of JSON Lines, from which the
page of results is written: benchmarks/RESULTS.jsonl and RESULTS.md, unless --out names another page.
"""

from __future__ import annotations

import argparse
import datetime
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks import lines, machine, results_page
from benchmarks.bench import ROOT, Bench, WorkerFailed, start
from benchmarks.comparison import Comparison, Contenders
from benchmarks.comparisons import COMPARISONS
from benchmarks.lines import Line
from benchmarks.turns import SECONDS, Plan, Turns, tell

DATA = ROOT.parent / "shared" / "data"


def main(arguments: Sequence[str] | None = None) -> int:
    """0 when everything was measured, 1 when some worker failed, 2 when nothing was begun."""
    options = parser().parse_args(arguments)
    if options.list:
        width = max(map(len, COMPARISONS))
        for name, comparison in COMPARISONS.items():
            print(f"{name:{width}}  {comparison.about}")
        return 0
    disturbing = machine.disturbance(*machine.watch())
    if disturbing and not options.busy:
        tell(
            f"{disturbing}: somebody computes here, and timings would say little. Wait until it is quiet, or measure "
            "all the same with --busy."
        )
        return 2
    with tempfile.TemporaryDirectory(prefix="nearfar-bench-") as scratch:
        bench = start(
            options.data, Path(scratch), quick=options.quick, threads=options.threads, quality=options.quality,
            seeds=options.seeds,
        )  # fmt: skip
        if bench.texts.note:
            tell(f"note: {bench.texts.note}")
        page = options.out or (Path(scratch) / "trial.md" if options.quick else results_page.PAGE)
        header = run_header(bench, busy=options.busy)
        complete = True
        for name in options.only or COMPARISONS:
            comparison, write = leave_out(COMPARISONS[name], options.without), writer(page, name, header)
            complete &= compare(name, comparison, bench, plan(options), write)
            written = [line for line in lines.read(results_page.lines_file(page)) if line["run"] == header["run"]]
            shown = [section for section in results_page.sections(written) if section.name == name]
            print("\n".join(f"\n{results_page.details(section)}" for section in shown), flush=True)
        lines.archive(results_page.lines_file(page), results_page.archive_file(page))
        results_page.write(page)
        print(f"\n{results_page.summary(results_page.sections(lines.read(results_page.lines_file(page))))}")
    if options.out or not options.quick:
        tell(f"written to {page}; its source is {results_page.lines_file(page)}")
    return int(not complete)


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(prog="python -m benchmarks.compare", description=__doc__)
    made.add_argument("--only", action="append", choices=COMPARISONS, metavar="NAME", help="one comparison; repeatable")
    made.add_argument(
        "--without", action="append", default=[], metavar="CONTENDER", help="leave out a row of the tables; repeatable"
    )
    made.add_argument("--list", action="store_true", help="name the comparisons and stop")
    made.add_argument("--repeats", type=positive, default=5, metavar="N", help="turns of each contender (5)")
    made.add_argument(
        "--most", type=positive, default=9, metavar="N", help="turns at most, while a ratio cannot be stated (9)"
    )
    made.add_argument("--seconds", type=float, default=SECONDS, metavar="S", help="least seconds of a turn (30)")
    made.add_argument("--order", type=int, default=1, metavar="SEED", help="seed of the order of turns (1)")
    made.add_argument("--quick", action="store_true", help="little work a turn: a trial, kept only with --out")
    made.add_argument("--threads", type=positive, metavar="N", help="threads of every contender; default: their own")
    made.add_argument("--quality", action="store_true", help="also train over seeds and compare scores")
    made.add_argument("--seeds", type=positive, default=5, metavar="N", help="how many seeds --quality takes (5)")
    made.add_argument(
        "--data", type=Path, default=DATA, metavar="FOLDER", help="holds sst2, sst2_sentences, stsb, trec, imdb"
    )
    made.add_argument("--out", type=Path, metavar="FILE", help="the page (.md); its lines are beside it (.jsonl)")
    made.add_argument("--busy", action="store_true", help="measure although others compute here; repeat no turn")
    return made


def positive(text: str) -> int:
    """A number from 1 on."""
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not 1 or more")
    return value


def plan(options: argparse.Namespace) -> Plan:
    """How often and how long; a trial neither waits nor goes on."""
    most = options.repeats if options.quick else max(options.repeats, options.most)
    seconds = 0.0 if options.quick else options.seconds
    return Plan(options.repeats, most, seconds, options.order, busy=options.busy or options.quick)


def leave_out(comparison: Comparison, names: Sequence[str]) -> Comparison:
    """The comparison without the contenders of these names, where it has them."""

    def contenders(bench: Bench) -> Contenders:
        everybody = list(comparison.contenders(bench))
        for name in set(names) - {one.name for one in everybody}:
            tell(f"  --without {name!r}: no contender has this name; they are {', '.join(x.name for x in everybody)}")
        yield from (one for one in everybody if one.name not in names)

    return replace(comparison, contenders=contenders)


def run_header(bench: Bench, *, busy: bool) -> Line:
    """What all lines of a run share."""
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    return {"run": now, **machine.facts(), "threads_asked": bench.threads, "quick": bench.quick, "busy": busy,
            "texts": bench.texts.name}  # fmt: skip


def writer(page: Path, name: str, header: Line) -> Callable[[Line], None]:
    """Appends the lines of one comparison."""
    return lambda line: lines.append(results_page.lines_file(page), {**header, "comparison": name, **line})


def compare(name: str, comparison: Comparison, bench: Bench, plan: Plan, write: Callable[[Line], None]) -> bool:
    """All turns of a comparison, and what is known when they are there; False when some worker failed."""
    tell(f"{name}: {comparison.about}")
    bench.notes.clear()
    if comparison.rounds is not None:
        plan = replace(plan, rounds=min(plan.rounds, comparison.rounds), most=min(plan.most, comparison.rounds))
    try:
        contenders = list(comparison.contenders(bench))
        names = [contender.name for contender in contenders]
        write({"kind": "notes", "contenders": names, "notes": list(bench.notes)})
        turns = Turns(bench, plan, name, write, planned=comparison.others / machine.cores())
        with comparison.surroundings(bench):
            complete = turns.take(contenders)
        for line in comparison.finish(bench, contenders):
            write(line)
        for line in comparison.quality.lines(bench) if bench.quality and comparison.quality else ():
            write(line)
    except WorkerFailed as failure:
        write({"kind": "failure", "contender": None, "why": str(failure)})
        tell(f"  {failure}")
        return False
    return complete


if __name__ == "__main__":
    sys.exit(main())
