"""Runs of every kind that are stopped and continued: what they leave must be what an undisturbed run leaves."""

from __future__ import annotations

import itertools
import os
import random
import shutil
import signal
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.digest_cases import ASKED, Case, as_toml, cases, write_data
from benchmarks.digests import folder_parts
from benchmarks.reliability.commands import SIGNALS, End, Fault, Job, finish, run, start
from nearfar.files import sha256_of

KINDS = (
    "classes/cross-entropy", "classes/supcon", "classes/triple-entropy", "classes/label-aware", "heads/neighbors",
    "several-labels/cross-entropy", "rated/trained", "joined-pairs/cross-entropy", "scores/cosine-mse",
    "positives/batch-softmax", "triplets/pair-triplet", "ranking/mnrl", "plain/simcse", "plain/mirror", "shuffle/words",
    "training/chunk", "training/early-stopping", "stages/classes", "stages/pairs", "tasks/training/pcgrad",
    "tasks/stages/two", "study/classes", "study/search", "tune/classes", "few-texts/cross-entropy", "few-texts/supcon",
    "embed",
)  # fmt: skip
"""Cases of :mod:`benchmarks.digest_cases` whose commands are stopped: each kind of run and of rows."""
AGAIN = {"train": ("--resume",), "predict": ("--resume",), "embed": ("--resume",)}
"""Flags that continue a command; others are called again as they are."""
ATTEMPTS = 6
FRESH = 0.1
"""The share of cases whose command is a new interpreter each time."""
STOPPED = (
    "few-texts/supcon", "classes/cross-entropy", "stages/classes", "tasks/training/pcgrad", "tasks/stages/two",
    "scores/cosine-mse", "embed", "study/classes",
)  # fmt: skip
"""The kinds of runs that are killed at single file operations."""


@dataclass(frozen=True)
class Undisturbed:
    """What a case leaves that nothing has stopped."""

    parts: dict[str, str]
    """The digests of its files."""
    names: set[str]
    """The names of its files."""
    first: End
    """How its first command ended."""


class Workshop:
    """A folder with data, and what undisturbed runs leave."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.known = {case.name: case for case in cases()}
        self.expected: dict[str, Undisturbed] = {}
        self._start: float | None = None
        if not (place / "data").exists():
            write_data(place / "data")

    def folder(self, case: Case, name: str = "run") -> Path:
        """A new folder for a case; always the same one, since files have its name in them."""
        folder = self.place / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        if case.values:
            values = {**case.values}
            if case.commands[0].words[0] == "train":
                values["training"] = {**values.get("training", {}), "checkpoint_every": 1}
            (folder / ASKED).write_text(as_toml(values), encoding="utf-8")
        return folder

    def undisturbed(self, name: str) -> Undisturbed:
        """What a case leaves that nothing has stopped."""
        if name not in self.expected:
            case = self.known[name]
            folder = self.folder(case)
            ends = []
            for command in case.commands:
                ends.append(run(Job(command.words, folder)))
                if ends[-1].status:
                    raise RuntimeError(f"{name}: {' '.join(command.words)} fails: {ends[-1].errors}")
            self.expected[name] = Undisturbed(left_in(folder), files(folder), ends[0])
        return self.expected[name]

    def start_seconds(self) -> float:
        """The processor time that a new interpreter takes until a command begins."""
        if self._start is None:
            case = self.known["embed"]
            end = run(Job(case.commands[0].words, self.folder(case), fresh=True))
            self._start = max(0.0, end.seconds - self.undisturbed("embed").first.own)
        return self._start

    def compare(self, name: str, folder: Path) -> str | None:
        """What differs from an undisturbed run; None where nothing does."""
        whole, now = self.undisturbed(name), left_in(folder)
        differing = sorted(part for part in {*whole.parts, *now} if whole.parts.get(part) != now.get(part))
        if differing:
            return f"other content: {', '.join(differing)[:300]}"
        more = sorted(files(folder) ^ whole.names)
        return f"other files: {', '.join(more)[:300]}" if more else None


def left_in(folder: Path) -> dict[str, str]:
    """The digests of what a case left: of every file, or of what it says where it also says how long things took."""
    whole = {
        f"bytes:{path.relative_to(folder)}": sha256_of(path)
        for path in folder.rglob("*")
        if path.is_file() and not path.name.startswith(TIMED) and "trials" not in path.parts
    }
    return folder_parts(folder, hide=folder) | whole


TIMED = ("metrics", "journal", "study.json", "log.jsonl", "tune.json", "report.html")
"""Files with times in them."""


def files(folder: Path) -> set[str]:
    """The names of all files; a study's trials and logs are in its digests."""
    names = (str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
    return {name for name in names if "/trials/" not in name and not name.endswith("log.jsonl")}


def stopped(shop: Workshop, name: str, seed: str) -> tuple[str, str]:
    """Stop the first command of a case one to three times, and continue it: the verdict, and details."""
    chance = random.Random(seed)
    case, seconds = shop.known[name], shop.undisturbed(name).first.own
    fresh = chance.random() < FRESH
    least, most = 0.0, seconds
    if fresh:
        least, most = 0.8 * shop.start_seconds(), shop.start_seconds() + seconds
    folder = shop.folder(case)
    job = Job(case.commands[0].words, folder, fresh=fresh)
    faults = [Fault(chance.choice(list(SIGNALS)), chance.uniform(least, most))
              for _ in range(chance.choice((1, 1, 2, 3)))]  # fmt: skip
    how = ", ".join(f"{fault.signal} after {fault.after:.2f} s" for fault in faults)
    return continued(shop, name, job, faults, f"{how}{', new processes' if fresh else ''}")


def killed(shop: Workshop, name: str, seed: str) -> tuple[str, str]:
    """Kill the first command of a case before the file operation that ends the seed, and continue it."""
    case, at = shop.known[name], int(seed.split()[-1])
    job = Job(case.commands[0].words, shop.folder(case))
    how = f"before operation {at} of {shop.undisturbed(name).first.operations}"
    return continued(shop, name, job, [Fault(operation=at)], how)


def points(shop: Workshop, kinds: tuple[str, ...], number: int) -> list[tuple[str, str]]:
    """So many file operations, spread over those of all kinds: the kind, and its name with the operation."""
    found = [(kind, f"{kind} {1 + at}") for kind in kinds for at in range(shop.undisturbed(kind).first.operations)]
    return [found[place * len(found) // number] for place in range(min(number, len(found)))]


def filled(shop: Workshop, name: str, seed: str) -> tuple[str, str]:
    """Let the disk be full at some moment of the first command, and continue it with room."""
    chance = random.Random(seed)
    case = shop.known[name]
    shop.undisturbed(name)
    folder = shop.folder(case)
    if chance.random() < 0.5:
        fault = Fault(disk=chance.randint(0, 60))
        how = f"no room after {fault.disk} files"
    else:
        fault = Fault(file_size=int(10 ** chance.uniform(1, 6.3)))
        how = f"no room in files above {fault.file_size} bytes"
    return continued(shop, name, Job(case.commands[0].words, folder), [fault], how)


def continued(shop: Workshop, name: str, job: Job, faults: list[Fault], how: str) -> tuple[str, str]:
    """Run a command with each fault in turn, then without any until it succeeds, then the others of its case."""
    folder, words = job.folder, job.words
    again = (*words, *AGAIN.get(words[0], ()))
    ends: list[End] = []
    for place, fault in enumerate([*faults, *[Fault()] * ATTEMPTS]):
        begun = any(folder.iterdir()) and place > 0
        ends.append(run(replace(job, words=again if begun else words), fault))
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
        end = run(Job(command.words, folder))
        if end.status:
            return "not usable", f"{how}: {end.errors[-500:]}"
    difference = shop.compare(name, folder)
    return ("identical", how) if difference is None else ("different", f"{how}: {difference}")


def lost_process(shop: Workshop, _name: str, seed: str) -> tuple[str, str]:
    """Kill one of two processes of a training; the other must end soon, with a message, and the run be resumable."""
    chance = random.Random(seed)
    case = shop.known["classes/cross-entropy"]
    folder = shop.folder(case, "two")
    dead, steps = chance.randrange(2), chance.randint(0, 7)
    how = f"process {dead} after {steps} steps"
    words = case.commands[0].words
    children = _two(words, folder)
    journal = folder / "model" / "journal.jsonl"
    until = time.monotonic() + 300 * slowness()
    while not journal.exists() or journal.read_bytes().count(b"\n") < steps:
        if time.monotonic() > until or _ended(children[0][0]):
            for child, _ in children:
                os.kill(child, signal.SIGKILL)
            ends = [finish(child, errors) for child, errors in children]
            return "hang", f"{how}: it did not begin: {[(end.status, end.seconds, end.errors[-500:]) for end in ends]}"
        time.sleep(0.002)
    slow = slowness()
    os.kill(children[dead][0], signal.SIGKILL)
    began = time.monotonic()
    ends = [finish(child, errors, 60 * slow) for child, errors in children]
    other = ends[1 - dead]
    if other.status == 0:
        return "not hit", how
    if other.late or time.monotonic() - began > 20 * slow:
        return "hang", f"{how}: the other ended after {time.monotonic() - began:.0f} s"
    if "another process of this run has ended" not in other.errors or "Traceback" in other.errors:
        return "traceback", f"{how}: {other.errors[-1000:]}"
    again = [finish(child, errors) for child, errors in _two((*words, "--resume"), folder)]
    if any(end.status for end in again):
        return "not resumed", f"{how}: {again[0].errors[-500:]}"
    if "two" not in shop.expected:
        shop.expected["two"] = _undisturbed_two(shop, case)
    return ("identical", how) if shop.compare("two", folder) is None else ("different", how)


def _ended(child: int) -> bool:
    """Whether a process has ended; it can still be waited for."""
    return os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def slowness() -> float:
    """How many times longer than on a machine without other work something takes now."""
    began, spent = time.monotonic(), time.process_time()
    while time.process_time() - spent < 0.1:
        pass
    return max(1.0, (time.monotonic() - began) / 0.1)


def _undisturbed_two(shop: Workshop, case: Case) -> Undisturbed:
    folder = shop.folder(case, "two")
    ends = [finish(child, errors) for child, errors in _two(case.commands[0].words, folder)]
    assert not any(end.status for end in ends), ends
    return Undisturbed(left_in(folder), files(folder), ends[0])


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


def rounds(kinds: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """Cases of kinds in turn, without an end: the kind, and the seed of what happens."""
    for turn in itertools.count():
        yield from ((kind, f"{kind} {turn}") for kind in kinds)
