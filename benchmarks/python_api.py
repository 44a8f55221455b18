"""The cost of Python's estimators beside that of the command: time of a small fit, memory of a large one.

    python -m benchmarks.python_api time      # 64 short texts, MiniLM
    python -m benchmarks.python_api memory    # 200,000 rows, the toy encoder, a few steps

Every measurement is a process of its own. Times are processor time after all imports, the best of some rounds, so that
a busy machine costs little; memory is the largest resident size of the process.
"""

from __future__ import annotations

import argparse
import csv
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROWS, CLASSES = 200_000, 10
WORDS = ("parcel", "invoice", "refund", "login", "stock", "coupon", "address", "phone", "courier", "warranty")
LIMIT = 1.3


def write_rows(path: Path, rows: int, classes: int) -> None:
    """A file of short texts in which words tell the class."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["text", "label"])
        for row in range(rows):
            word = WORDS[row % classes]
            other = WORDS[(row // classes) % 10]
            writer.writerow([f"question {row} about the {word}, and not about the {other}", word])


def measured(kind: str, path: Path) -> dict[str, float]:
    """Train once in this process, from the file or from Python's objects."""
    import nearfar.estimators
    import nearfar.pipeline
    from nearfar.recipe import build_recipe

    small = kind.endswith("time")
    settings = {"encoder": "minilm"} if small else {"encoder": "toy", "max_steps": 3, "objective": "cross-entropy"}
    if kind.startswith("python"):
        import pandas

        frame = pandas.read_csv(path)
        clf = nearfar.Classifier(**settings)
        rows = (frame["text"].tolist(), frame["label"].tolist()) if small else (frame,)
        began, spent = time.perf_counter(), time.process_time()
        clf.fit(*rows, validation=0)
    else:
        tables = {"seed": 0, "data": {"train": str(path), "dev": 0.0}, "encoder": {"name": settings["encoder"]}}
        if not small:
            tables |= {"training": {"max_steps": 3}, "objective": {"name": "cross-entropy"}}
        recipe = build_recipe(tables, where="benchmark")
        began, spent = time.perf_counter(), time.process_time()
        nearfar.pipeline.train(recipe, path.parent / kind)
    seconds, processor = time.perf_counter() - began, time.process_time() - spent
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"seconds": seconds, "processor": processor, "mebibytes": memory}


def run(kind: str, path: Path) -> dict[str, float]:
    """The same in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.python_api", "measure", kind, str(path)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def compare(what: str, rounds: int) -> float:
    """Python over the command: processor time, or memory."""
    figure = "processor" if what == "time" else "mebibytes"
    best: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.csv"
        write_rows(path, *((64, 8) if what == "time" else (ROWS, CLASSES)))
        for number in range(rounds):
            for who in ("command", "python"):
                home = Path(folder) / f"{who}-{number}"
                home.mkdir()
                copied = home / "rows.csv"
                copied.write_bytes(path.read_bytes())
                figures = run(f"{who}-{what}", copied)
                best[who] = min(best.get(who, figures[figure]), figures[figure])
                print(who, {name: round(value, 2) for name, value in figures.items()}, flush=True)
    ratio = best["python"] / best["command"]
    print(f"{what}: python / command = {ratio:.2f} of {figure} (limit {LIMIT})")
    return ratio


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["time", "memory", "measure"])
    parser.add_argument("rest", nargs="*")
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    if arguments.what == "measure":
        kind, path = arguments.rest
        print(json.dumps(measured(kind, Path(path))))
        return
    sys.exit(compare(arguments.what, arguments.rounds) > LIMIT)


if __name__ == "__main__":
    main()
