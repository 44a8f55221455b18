"""What the machinery of studies costs, how cores are best shared out, and whether kills change anything.

    python -m benchmarks.study overhead            20 small trials by a study against a plain loop over the same trials
    python -m benchmarks.study threads             processes x 1 thread against 1 process x all threads
    python -m benchmarks.study kills --rounds 20   kill the driver or a trial at random points, then compare

The machine should be idle for the first two. ``kills`` needs no quiet: it compares records and no times.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.machine import cores

STUDY = """
[study]
name = "small"
seeds = [2, 16]
folds = 5
[recipe.encoder]
name = "{encoder}"
[recipe.training]
epochs = {epochs}
[[data]]
name = "help desk"
file = "sample:helpdesk"
limit = {limit}
[[contender]]
name = "cross-entropy"
objective = {{ name = "cross-entropy" }}
[[contender]]
name = "triple-entropy"
objective = {{ name = "triple-entropy", centers = 10 }}
"""
MEASURED = ("seconds", "cpu_seconds", "peak_mb")


def main(arguments: list[str] | None = None) -> None:
    settings = parsed(arguments)
    with tempfile.TemporaryDirectory() as place:
        file = Path(place) / "study.toml"
        file.write_text(STUDY.format(encoder=settings.encoder, epochs=settings.epochs, limit=settings.limit))
        result = {"overhead": overhead, "threads": threads, "kills": kills}[settings.verb](file, settings)
    print(json.dumps(result, indent=1))


def overhead(file: Path, _settings: argparse.Namespace) -> dict[str, Any]:
    """One process of one thread each: the study, and a loop that calls the same function on the same trials."""
    began = time.perf_counter()
    run(file, "--out", str(file.parent / "study"), "--workers", "1", "--threads", "1")
    whole = time.perf_counter() - began
    own = sum(record["seconds"] for record in records(file.parent / "study"))
    began = time.perf_counter()
    subprocess.run(
        [sys.executable, "-m", "benchmarks.study", "loop", "--file", str(file)], check=True, stdout=subprocess.DEVNULL,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    loop = time.perf_counter() - began
    return {
        "trials": len(records(file.parent / "study")), "study_seconds": whole, "loop_seconds": loop,
        "trials_own_seconds": own, "study_against_loop": whole / loop - 1, "outside_of_trials": whole / own - 1,
    }  # fmt: skip


def loop(file: Path) -> None:
    from nearfar.experiments.plan import plan_study
    from nearfar.experiments.study import read_study
    from nearfar.experiments.trials import perform

    for trial in plan_study(read_study(file)).trials.values():
        with tempfile.TemporaryDirectory() as scratch:
            record, _ = perform(trial, Path(scratch))
        assert record.done, record.reason


def threads(file: Path, _settings: argparse.Namespace) -> dict[str, Any]:
    """The same study with the cores shared out in two ways."""
    result: dict[str, Any] = {"cores": cores()}
    for workers, own in ((cores(), 1), (1, cores())):
        began = time.perf_counter()
        run(file, "--out", str(file.parent / f"{workers}x{own}"), "--workers", str(workers), "--threads", str(own))
        result[f"{workers} processes x {own} threads"] = time.perf_counter() - began
    return result


def kills(file: Path, settings: argparse.Namespace) -> dict[str, Any]:
    """A study in peace and one under fire: every file of every trial must be the same, clocks and memory aside."""
    peace, fire = file.parent / "peace", file.parent / "fire"
    run(file, "--out", str(peace), "--workers", "1", "--threads", "1")
    chance = random.Random(settings.seed)
    shots = {"driver": 0, "process": 0, "too late": 0}
    for number in range(settings.rounds):
        if number and shots["driver"] and len(list((fire / "trials").glob("[!.]*"))) >= settings.keep:
            shutil.rmtree(chance.choice(sorted((fire / "trials").glob("[!.]*"))))  # so that something is left to do
            forget(fire)
        driver = start(file, "--out", str(fire), "--workers", "2", "--threads", "1")
        begun = len(events(fire, "started"))
        while driver.poll() is None and len(events(fire, "started")) == begun:
            time.sleep(0.02)
        time.sleep(chance.random() * settings.longest)
        if driver.poll() is not None:
            shots["too late"] += 1
        elif number % 2:
            victim = int(events(fire, "started")[-1]["process"])
            try:
                os.kill(victim, signal.SIGKILL)
                shots["process"] += 1
            except ProcessLookupError:
                shots["too late"] += 1
            time.sleep(0.5)
            driver.kill()
            driver.wait()
        else:
            driver.kill()
            driver.wait()
            shots["driver"] += 1
    run(file, "--out", str(fire), "--workers", "2", "--threads", "1")
    one, other = contents(peace), contents(fire)
    return {
        "shots": shots, "trials": len(records(fire)), "same": one == other,
        "repeated": len(events(fire, "repeated")),
        "finished_twice": len(events(fire, "finished")) - len({entry["id"] for entry in events(fire, "finished")}),
    }  # fmt: skip


def forget(study: Path) -> None:
    """Leave out of the log what was removed by hand, so that it does not count as run twice."""
    there = {path.name for path in (study / "trials").glob("[!.]*")}
    path = study / "log.jsonl"
    lines = [line for line in path.read_text().splitlines() if json.loads(line)["id"] in there]
    path.write_text("".join(f"{line}\n" for line in lines))


def run(file: Path, *arguments: str) -> None:
    subprocess.run(command(file, *arguments), check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def start(file: Path, *arguments: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(command(file, *arguments), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def command(file: Path, *arguments: str) -> list[str]:
    return [sys.executable, "-m", "nearfar", "study", "run", str(file), *arguments]


def events(study: Path, kind: str) -> list[dict[str, Any]]:
    path = study / "log.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    return [entry for entry in map(json.loads, lines) if entry["event"] == kind]


def records(study: Path) -> list[dict[str, Any]]:
    return [json.loads(path.read_text()) for path in sorted((study / "trials").glob("[!.]*/record.json"))]


def contents(study: Path) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for path in sorted((study / "trials").glob("[!.]*/*")):
        name = str(path.relative_to(study))
        if path.name == "record.json":
            found[name] = {key: value for key, value in json.loads(path.read_text()).items() if key not in MEASURED}
        elif path.name == "journal.jsonl":
            lines = map(json.loads, path.read_text().splitlines())
            found[name] = [[line.get("step"), line.get("loss"), line.get("scores")] for line in lines]
        else:
            found[name] = path.read_bytes()
    return found


def parsed(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("verb", choices=["overhead", "threads", "kills"])
    parser.add_argument("--encoder", default="minilm")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--limit", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=20, help="kills")
    parser.add_argument("--keep", type=int, default=15, help="trials beyond which one is removed before a kill")
    parser.add_argument("--longest", type=float, default=2.0, help="seconds after the start of a trial, at most")
    parser.add_argument("--seed", type=int, default=2)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    if sys.argv[1:2] == ["loop"]:
        loop(Path(sys.argv[3]))
    else:
        main()
