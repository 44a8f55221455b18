"""Runs that are killed at single file operations and resumed: the folder must be that of a run without a kill.

``python -m benchmarks.reliability.stops --number 400`` spreads as many kills over all file operations of several kinds
of runs: files that are opened to be written, renamed, removed, cut; folders that are made and removed.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.reliability.folders import ROWS

OPERATIONS = ("os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate", "os.chmod")
Run = Callable[..., object]
"""Trains into a folder; ``resume`` says whether to go on with the run in it."""
VARYING = {"seconds", "texts_per_second"}
"""What no two runs share."""


def kinds() -> dict[str, Run]:
    """Runs of several kinds."""
    from nearfar.pipeline import train
    from nearfar.recipe import build_recipe
    from nearfar.recipe.tasks import build_task_recipe

    data = {"train": "memory:train", "dev": 0.4}
    shared: dict[str, Any] = {"encoder": {"name": "toy"}, "batches": {"size": 3}}
    often: dict[str, Any] = {"epochs": 2, "checkpoint_every": 1, "precision": "fp32"}
    rows = [(f"{text} {number}", label) for number in range(2) for text, label in ROWS]
    once = {**often, "estimate": False}
    plain = build_recipe({**shared, "data": data, "objective": {"name": "cross-entropy"}, "training": once}, where="a")
    stages = [{"objective": {"name": "supcon"}, "epochs": 1}, {"objective": {"name": "cross-entropy"}, "epochs": 1}]
    stored = {"checkpoint_every": 1, "precision": "fp32", "estimate": False}
    staged = build_recipe({**shared, "data": data, "stage": stages, "training": stored}, where="b")
    task = {"data": data, "batch_size": 3}
    tasks = build_task_recipe(
        {"encoder": {"name": "toy"}, "training": often, "task": [{**task, "name": "one"}, {**task, "name": "two"}]},
        where="c",
    )
    return {
        "cross-entropy": partial(train, plain, data=rows),
        "stages": partial(train, staged, data=rows),
        "tasks": partial(train, tasks, data={"one": rows, "two": rows}),
    }


def in_child(call: Callable[[], object]) -> int:
    """The exit status of a call in a forked process, negative for a signal."""
    child = os.fork()
    if child == 0:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        try:
            call()
        except BaseException as error:
            sys.stdout.write(f"{type(error).__name__}: {error}\n")
            sys.stdout.flush()
            os._exit(1)
        os._exit(0)
    status = os.waitpid(child, 0)[1]
    return -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


def watch(out: Path, count: Callable[[], object]) -> None:
    """Call ``count`` before every file operation of this process below a folder; it cannot be taken back."""
    place = str(out)

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open":
            name, _, flags = arguments
            if not isinstance(flags, int) or not flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
                return
        elif event not in OPERATIONS:
            return
        else:
            name = arguments[0]
        if isinstance(name, str | os.PathLike) and os.fspath(name).startswith(place):
            count()

    sys.addaudithook(hook)


def operations(run: Run, out: Path) -> int:
    """How many file operations a whole run has; its folder is left."""
    reading, writing = os.pipe()

    def call() -> None:
        watch(out, lambda: os.write(writing, b"."))
        run(out, resume=False)

    child = os.fork()
    if child == 0:
        os.close(reading)
        try:
            call()
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        number = len(pipe.read())
    os.waitpid(child, 0)
    return number


def stopped(run: Run, out: Path, place: int) -> None:
    """A run that is killed before its file operation number ``place``."""
    left = [place]

    def count() -> None:
        left[0] -= 1
        if left[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def call() -> None:
        watch(out, count)
        run(out, resume=False)

    status = in_child(call)
    if status != -signal.SIGKILL:
        raise SystemExit(f"the run was to be killed at operation {place}, and ended with {status}")


def content(folder: Path) -> dict[str, Any]:
    """All files of a folder by name, but for what no two runs share."""
    files: dict[str, Any] = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_dir():
            files[name] = "folder"
        elif path.suffix in (".json", ".jsonl") and path.name.startswith(("metrics", "journal")):
            text = path.read_text(encoding="utf-8")
            lines = [text] if path.suffix == ".json" else text.splitlines()
            files[name] = [_constant(json.loads(line)) for line in lines]
        else:
            files[name] = path.read_bytes()
    return files


def _constant(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _constant(inner) for key, inner in value.items() if key not in VARYING}
    return [_constant(inner) for inner in value] if isinstance(value, list) else value


def campaign(number: int, place: Path, *, names: tuple[str, ...] = ()) -> tuple[int, list[str]]:
    """Kill and resume; how many stops there were, and what was not as it should be."""
    runs = {name: run for name, run in kinds().items() if not names or name in names}
    done, bad = 0, []
    for name, run in runs.items():
        whole = place / name
        total = operations(run, whole)
        expected = content(whole)
        points = min(total, -(-number // len(runs)))
        for point in range(points):
            at = 1 + point * total // points
            out = place / "stopped"
            shutil.rmtree(out, ignore_errors=True)
            stopped(run, out, at)
            status = in_child(lambda run=run, out=out: run(out, resume=True))
            found = content(out) if out.exists() else {}
            done += 1
            if status != 0 or found != expected:
                other = sorted(key for key in expected.keys() | found.keys() if expected.get(key) != found.get(key))
                bad.append(f"{name}, operation {at} of {total}: status {status}, other: {', '.join(other)}")
    return done, bad


def main() -> None:
    """Run the campaign and print what happened."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--number", type=int, default=400)
    options = parser.parse_args()
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # processes are forked
    with tempfile.TemporaryDirectory() as place:
        done, bad = campaign(options.number, Path(place).resolve())
    for line in bad:
        print(line)
    print(f"stops at file operations: {done}; {done - len(bad)} identical")
    raise SystemExit(1 if bad else 0)


if __name__ == "__main__":
    main()
