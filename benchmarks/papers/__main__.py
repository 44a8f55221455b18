"""Judge the claims of the papers.

    python -m benchmarks.papers list                                   # studies, with how many runs are missing
    python -m benchmarks.papers run mirror-words --minutes 20          # what is missing of a study
    python -m benchmarks.papers page                                   # tables and verdicts into docs/papers

A run is never repeated: its line is in benchmarks/papers/lines, and the command can be stopped and started again.
Studies may run side by side, one process each.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.bench import ROOT
from benchmarks.compare import DATA
from benchmarks.few_labels import Results
from benchmarks.papers.studies import ALL, LINES, Known, Line, Part, Run, all_studies, pending
from benchmarks.turns import tell

MODELS = ROOT.parent / "shared" / "models"


def drive(
    known: Known, measured: Callable[[Run], Line], *, part: Part = ALL, seconds: float = float("inf"),
    runs: int | None = None,
) -> int:  # fmt: skip
    """Measure what is missing, for so long or so many runs; returns how many failed."""
    began, failed, done = time.monotonic(), set[Run](), 0
    while time.monotonic() - began < seconds and (runs is None or done < runs):
        run = next((run for run in pending(known, part) if run not in failed), None)
        if run is None:
            break
        done += 1
        try:
            line = measured(run)
        except Exception as problem:  # the hours after this run are not to be lost with it
            failed.add(run)
            tell(f"{known.study.name}: {run}: {type(problem).__name__}: {problem}")
            continue
        known.add(run, line)
        tell(f"{known.study.name}: {run}: {line['scores'][known.study.score]:.2f}, {line['cpu_seconds']} s")
    return len(failed)


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="python -m benchmarks.papers", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("what", choices=("run", "page", "list"))
    made.add_argument("names", nargs="*", metavar="NAME", help="studies, in the order in which they run")
    made.add_argument("--minutes", type=float, default=float("inf"), help="begin no run after so many minutes")
    made.add_argument("--runs", type=int, help="begin no more than so many runs of each study")
    made.add_argument("--contender", action="append", default=[], help="one contender; repeatable")
    made.add_argument("--encoder", action="append", default=[], help="one encoder; repeatable")
    made.add_argument("--rows", type=int, action="append", default=[], help="one number of training rows; repeatable")
    made.add_argument("--seeds", type=int, help="only the first so many seeds of each study")
    made.add_argument("--source", type=Path, default=DATA, metavar="FOLDER", help="holds the data sets")
    made.add_argument("--models", type=Path, default=MODELS, metavar="FOLDER", help="holds the encoders")
    made.add_argument("--results", type=Path, default=LINES, metavar="FOLDER", help="one file of lines for each study")
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    """0 when all went well, 1 when some runs failed."""
    options = parser().parse_args(arguments)
    studies = all_studies()
    if options.what == "page":
        from benchmarks.quoted import QUOTES

        for quote in QUOTES:
            if quote.page.startswith("papers/"):
                quote.path.write_text(quote.inserted(quote.path.read_text(encoding="utf-8")), encoding="utf-8")
        return 0
    unknown = [name for name in options.names if name not in studies]
    if unknown or (options.what == "run" and not options.names):
        tell(f"name some of: {', '.join(studies)}")
        return 2
    known = {
        name: Known(studies[name], Results(options.results / f"{name}.jsonl")) for name in options.names or studies
    }
    part = Part(contenders=options.contender, encoders=options.encoder, rows=options.rows, seeds=options.seeds)
    if options.what == "list":
        for name, each in known.items():
            missing = sum(1 for _ in pending(each, part))
            print(f"{name}: {len(each.scores):,} runs there, {missing:,} known to be missing; {each.study.title}")
        return 0
    from benchmarks.papers.measures import Places, measure

    places, failed, ends = Places(options.source, options.models), 0, time.monotonic() + 60 * options.minutes
    for each in known.values():
        failed += drive(
            each, lambda run, study=each.study: measure(study, run, places), part=part,
            seconds=ends - time.monotonic(), runs=options.runs,
        )  # fmt: skip
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
