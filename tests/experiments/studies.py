"""Small studies for tests: the toy encoder, a few invented texts, two contenders."""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from nearfar.experiments.records import JOURNAL, MEASURED, RECORD, TRIALS
from nearfar.experiments.worker import LOG
from tests.preloaded import PreloadedCommand

WORDS = {"fruit": ("apple", "pear", "plum", "cherry"), "tool": ("hammer", "saw", "drill", "file")}
CLOCKS = ("seconds", "texts_per_second", "encoding_seconds")
"""Fields of a journal that differ from run to run."""


def texts(folder: Path, *, per_class: int = 12, name: str = "t.jsonl") -> Path:
    rows = [
        {"text": f"{words[n % 4]} number {n} on the table", "label": label}
        for label, words in WORDS.items()
        for n in range(per_class)
    ]
    (folder / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder / name


STUDY = """
[study]
name = "small"
seeds = [2, 16]
folds = 3

[recipe.encoder]
name = "toy"
[recipe.training]
epochs = 1
[recipe.batches]
size = 8

[[data]]
name = "things"
file = "t.jsonl"

[[contender]]
name = "plain"
objective = { name = "cross-entropy" }

[[contender]]
name = "triple"
[contender.objective]
name = "triple-entropy"
centers = 2
"""


def small_study(folder: Path, *edits: tuple[str, str]) -> Path:
    """A study of 12 trials with its data; ``edits`` replace parts of the file, each of which must be there."""
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / "t.jsonl").exists():
        texts(folder)
    content = STUDY
    for before, after in edits:
        assert before in content
        content = content.replace(before, after)
    (folder / "study.toml").write_text(content)
    return folder / "study.toml"


def command(*arguments: str | Path) -> list[str]:
    return [sys.executable, "-m", "nearfar", "study", *map(str, arguments)]


def nearfar(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run the command in this process, which has imported everything; its trials have processes of their own."""
    status, out, err = in_process("study", *arguments)
    return subprocess.CompletedProcess(["nearfar", "study", *map(str, arguments)], status, out, err)


def in_process(*words: str | Path) -> tuple[int, str, str]:
    """Run a command of nearfar in this process: exit status, standard output, standard error."""
    from nearfar.cli import main

    out, err, before = io.StringIO(), io.StringIO(), sys.argv
    status = 0
    sys.argv = ["nearfar", *map(str, words)]
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            main()
    except SystemExit as left:
        status = left.code if isinstance(left.code, int) else int(left.code is not None)
    finally:
        sys.argv = before
    return status, out.getvalue(), err.getvalue()


def start(*arguments: str | Path) -> subprocess.Popen[str]:
    """Start a study as a user does, to be stopped or killed."""
    return subprocess.Popen(command(*arguments), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


def events(study: Path) -> list[dict[str, object]]:
    path = study / LOG
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def wait_for(
    study: Path, number: int, event: str, process: subprocess.Popen[str] | PreloadedCommand, seconds: float = 120
) -> None:
    """Until so many events of a kind are in the log of a study."""
    limit = time.monotonic() + seconds
    while sum(entry["event"] == event for entry in events(study)) < number:
        assert process.poll() is None, process.stderr.read() if process.stderr else ""
        assert time.monotonic() < limit, f"no {number} trials have {event}"
        time.sleep(0.02)


def end(process: subprocess.Popen[str] | PreloadedCommand) -> None:
    """Kill a process that was started here, and let go of its pipe."""
    process.kill()
    process.wait()
    if process.stderr is not None:
        process.stderr.close()


def kill(process: int) -> None:
    os.kill(process, signal.SIGKILL)


def contents(study: Path) -> dict[str, object]:
    """Every file of every trial, without what the clock and the memory of a run decide."""
    found: dict[str, object] = {}
    for path in sorted((study / TRIALS).rglob("*")):
        name = str(path.relative_to(study))
        if path.is_dir():
            continue
        if path.name == RECORD:
            found[name] = {key: value for key, value in json.loads(path.read_text()).items() if key not in MEASURED}
        elif path.name == JOURNAL:
            entries = [json.loads(line) for line in path.read_text().splitlines()]
            found[name] = [{key: value for key, value in entry.items() if key not in CLOCKS} for entry in entries]
        else:
            found[name] = path.read_bytes()
    return found
