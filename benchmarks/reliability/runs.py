"""Runs of every kind that are stopped and continued: what they leave must be what an undisturbed run leaves."""

from __future__ import annotations

import os
import random
import shutil
import signal
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from benchmarks.digest_cases import ASKED, Case, as_toml, cases, write_data
from benchmarks.digests import folder_parts
from benchmarks.reliability.commands import SIGNALS, End, Fault, Job, finish, run, start

KINDS = (
    "classes/cross-entropy", "classes/supcon", "classes/triple-entropy", "classes/label-aware", "heads/neighbors",
    "several-labels/cross-entropy", "rated/trained", "joined-pairs/cross-entropy", "scores/cosine-mse",
    "positives/batch-softmax", "triplets/pair-triplet", "ranking/mnrl", "plain/simcse", "plain/mirror", "shuffle/words",
    "training/chunk", "training/early-stopping", "stages/classes", "stages/pairs", "tasks/training/pcgrad",
    "tasks/stages/two", "study/classes", "study/search", "tune/classes",
)  # fmt: skip
"""Cases of :mod:`benchmarks.digest_cases` whose commands are stopped: each kind of run and of rows."""
AGAIN = {"train": ("--resume",), "predict": ("--resume",), "embed": ("--resume",)}
"""Flags that continue a command; others are called again as they are."""
ATTEMPTS = 6


class Workshop:
    """A folder with data, and what undisturbed runs leave."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.known = {case.name: case for case in cases()}
        self.expected: dict[str, tuple[dict[str, str], set[str], list[float]]] = {}
        if not (place / "data").exists():
            write_data(place / "data")

    def folder(self, case: Case, name: str) -> Path:
        """A new folder for a case."""
        folder = self.place / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        if case.values:
            values = {**case.values}
            if case.commands[0].words[0] == "train":
                values["training"] = {**values.get("training", {}), "checkpoint_every": 1}
                if "task" not in values:  # what is stopped in the estimate is complete without it
                    values["training"]["estimate"] = False
            (folder / ASKED).write_text(as_toml(values), encoding="utf-8")
        return folder

    def undisturbed(self, name: str) -> tuple[dict[str, str], set[str], list[float]]:
        """The digests and files that a case leaves, and the processor time of each of its commands."""
        if name not in self.expected:
            case = self.known[name]
            folder = self.folder(case, "undisturbed")
            seconds = []
            for command in case.commands:
                end = run(Job(command.words, folder), patience=900)
                if end.status:
                    raise RuntimeError(f"{name}: {' '.join(command.words)} fails: {end.errors}")
                seconds.append(end.seconds)
            self.expected[name] = left_in(folder), files(folder), seconds
        return self.expected[name]

    def compare(self, name: str, folder: Path) -> str | None:
        """What differs from an undisturbed run; None where nothing does."""
        parts, names, _ = self.undisturbed(name)
        now = left_in(folder)
        differing = sorted(part for part in {*parts, *now} if parts.get(part) != now.get(part))
        if differing:
            return f"other content: {', '.join(differing)[:300]}"
        more = sorted(files(folder) ^ names)
        return f"other files: {', '.join(more)[:300]}" if more else None


def left_in(folder: Path) -> dict[str, str]:
    """The digests of what a case left; names of folders do not count."""
    return folder_parts(folder, hide=folder)


def files(folder: Path) -> set[str]:
    """The names of all files; a study's trials and logs are in its digests."""
    names = (str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
    return {name for name in names if "/trials/" not in name and not name.endswith("log.jsonl")}


def stopped(shop: Workshop, name: str, seed: str) -> tuple[str, str]:
    """Stop the first command of a case one to three times, and continue it: the verdict, and details."""
    chance = random.Random(seed)
    case = shop.known[name]
    seconds = shop.undisturbed(name)[2][0]
    folder = shop.folder(case, "stopped")
    words = case.commands[0].words
    faults = [Fault(chance.choice(list(SIGNALS)), chance.uniform(0.0, 1.05) * seconds)
              for _ in range(chance.choice((1, 1, 2, 3)))]  # fmt: skip
    how = ", ".join(f"{fault.signal} after {fault.after:.2f} s" for fault in faults)
    return continued(shop, name, folder, words, faults, how)


def filled(shop: Workshop, name: str, seed: str) -> tuple[str, str]:
    """Let the disk be full at some moment of the first command, and continue it with room."""
    chance = random.Random(seed)
    case = shop.known[name]
    shop.undisturbed(name)
    folder = shop.folder(case, "filled")
    if chance.random() < 0.5:
        fault = Fault(disk=chance.randint(0, 60))
        how = f"no room after {fault.disk} files"
    else:
        fault = Fault(file_size=int(10 ** chance.uniform(1, 6.3)))
        how = f"no room in files above {fault.file_size} bytes"
    return continued(shop, name, folder, case.commands[0].words, [fault], how)


def continued(
    shop: Workshop, name: str, folder: Path, words: tuple[str, ...], faults: list[Fault], how: str
) -> tuple[str, str]:
    """Run a command with each fault in turn, then without any until it succeeds, then the others of its case."""
    again = (*words, *AGAIN.get(words[0], ()))
    ends: list[End] = []
    for place, fault in enumerate([*faults, *[Fault()] * ATTEMPTS]):
        begun = any(folder.iterdir()) and place > 0
        ends.append(run(Job(again if begun else words, folder), fault, patience=900))
        end = ends[-1]
        if "Traceback (most recent call last)" in end.errors and end.status != -signal.SIGKILL:
            return "traceback", f"{how}: {end.errors[-1500:]}"
        if end.late:
            return "hang", how
        if end.status == 0:
            break
        if fault == Fault() and end.status == 1 and "holds no run to resume" in end.errors:
            again = words
        elif fault == Fault():
            return "not resumed", f"{how}: {end.errors[-500:]}"
    if not any(end.status for end in ends):
        return "not hit", how
    for command in shop.known[name].commands[1:]:
        end = run(Job(command.words, folder), patience=900)
        if end.status:
            return "not usable", f"{how}: {end.errors[-500:]}"
    difference = shop.compare(name, folder)
    return ("identical", how) if difference is None else ("different", f"{how}: {difference}")


def lost_process(shop: Workshop, _name: str, seed: str) -> tuple[str, str]:
    """Kill one of two processes of a training; the other must end soon, with a message, and the run be resumable."""
    chance = random.Random(seed)
    case = shop.known["classes/cross-entropy"]
    folder = shop.folder(case, "two")
    dead, steps = chance.randrange(2), chance.randint(0, 9)
    how = f"process {dead} after {steps} steps"
    words = case.commands[0].words
    children = _two(words, folder)
    journal = folder / "model" / "journal.jsonl"
    until = time.monotonic() + 300
    while not journal.exists() or journal.read_bytes().count(b"\n") < steps:
        if time.monotonic() > until:
            return "hang", f"{how}: it did not begin"
        time.sleep(0.002)
    os.kill(children[dead][0], signal.SIGKILL)
    began = time.monotonic()
    ends = [finish(child, errors, 60) for child, errors in children]
    other = ends[1 - dead]
    if other.status == 0:
        return "not hit", how
    if other.late or time.monotonic() - began > 20:
        return "hang", f"{how}: the other ended after {time.monotonic() - began:.0f} s"
    if "another process of this run has ended" not in other.errors or "Traceback" in other.errors:
        return "traceback", f"{how}: {other.errors[-1000:]}"
    again = [finish(child, errors, 600) for child, errors in _two((*words, "--resume"), folder)]
    if any(end.status for end in again):
        return "not resumed", f"{how}: {again[0].errors[-500:]}"
    shop.expected.setdefault("two", _undisturbed_two(shop, case))
    return ("identical", how) if shop.compare("two", folder) is None else ("different", how)


def _undisturbed_two(shop: Workshop, case: Case) -> tuple[dict[str, str], set[str], list[float]]:
    folder = shop.folder(case, "two-undisturbed")
    ends = [finish(child, errors, 600) for child, errors in _two(case.commands[0].words, folder)]
    assert not any(end.status for end in ends), ends
    return left_in(folder), files(folder), []


def _two(words: tuple[str, ...], folder: Path) -> list[tuple[int, Path]]:
    """Two processes of one run, and the files of their messages."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    shared = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "CUDA_VISIBLE_DEVICES": ""}
    job = Job(words, folder)
    return [
        (start(replace(job, environment={**shared, "RANK": rank, "LOCAL_RANK": rank}), Fault(), errors), errors)
        for rank, errors in ((rank, folder.parent / f"errors-rank-{rank}") for rank in ("0", "1"))
    ]


def rounds(kinds: tuple[str, ...], number: int) -> Iterator[tuple[str, str]]:
    """So many cases of kinds in turn: the kind, and the seed of what happens."""
    for place in range(number):
        kind = kinds[place % len(kinds)]
        yield kind, f"{kind} {place // len(kinds)}"


Try = Callable[[Workshop, str, str], tuple[str, str]]
