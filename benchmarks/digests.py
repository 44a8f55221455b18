"""Digests of small runs: whether two revisions compute the same weights, predictions, scores and records.

    python -m benchmarks.digests --out digests.json          run the set with the nearfar of this checkout
    python -m benchmarks.digests --against REV               run it with REV as well, and compare
    python -m benchmarks.digests --compare A.json B.json     compare two files

The set of :mod:`benchmarks.digest_cases` runs through the command line only, on the toy encoder in fp32 with one
thread, all commands in one process. A file has a SHA-256 for each part of each case: ``weights:FILE``,
``embeddings:FILE``, ``predictions:FILE``, ``metrics:FILE``, ``journal:FILE``, ``recipe:FILE``, ``card:FILE``,
``config:FILE``, ``report:FILE``; of a study ``plan``, ``ids``, ``records``, ``recipes``, ``predictions``, ``journals``
and ``maps``. Times, versions, paths and texts for people are left out. Numbers depend on the processor and on the
version of torch, so that only digests of one machine and environment can be compared.

The exit status is 0 if all parts are equal, 1 if a part differs or a command failed, 2 if nothing could be run.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from fnmatch import fnmatch
from pathlib import Path
from shutil import rmtree
from typing import Any

from benchmarks.digest_cases import ASKED, Case, Command, as_toml, cases, write_data

ROOT = Path(__file__).parents[1]
WORKER = Path(__file__).parent / "workers" / "commands.py"
LONGEST = 600
"""Seconds after which a command is given up."""
ERROR = "error"
"""The only part of a case of which a command failed: its last line on standard error."""
LEFT_OUT = frozenset(
    ("seconds", "cpu_seconds", "encoding_seconds", "texts_per_second", "peak_mb", "spent", "time",  # measured
     "versions", "transformers_version",
     "notes", "reason", "problems")  # for people
)  # fmt: skip
"""Keys of JSON objects, at any depth, that are no part of a digest."""
PLACES = ("id", "data", "limit", "contender", "seed", "fold", "metric")
"""Keys of a record that its cell in the plan has, too."""

Digests = dict[str, dict[str, str]]
"""Parts and their digests, by case."""


class CannotRun(Exception):
    """Nothing can be compared; the message says why."""


def main(arguments: Sequence[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    try:
        if options.compare:
            one, other = (_read(path) for path in options.compare)
            return compare(_chosen(one, options.only), _chosen(other, options.only), options.ignore)
        wanted = [case for case in cases() if _matches(case.name, options.only)]
        if not wanted:
            raise CannotRun(f"no case matches {' or '.join(options.only)}; --list has all names.")
        if options.list:
            print(*(case.name for case in wanted), sep="\n")
            return 0
        return _run(wanted, options)
    except CannotRun as cause:
        sys.stderr.write(f"error: {cause}\n")
        return 2


def parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(prog="python -m benchmarks.digests", description=__doc__.partition("\n")[0])
    found.add_argument("--out", type=Path, metavar="FILE", help="write the digests of this checkout as JSON")
    found.add_argument("--against", metavar="REV", help="run a revision of the repository, too, and compare")
    found.add_argument("--compare", nargs=2, type=Path, metavar=("A", "B"), help="compare two files, and run nothing")
    many: dict[str, Any] = {"action": "append", "default": [], "metavar": "PATTERN"}
    found.add_argument("--only", **many, help="cases whose name has or matches it, such as tasks/; may be repeated")
    found.add_argument("--ignore", **many, help="parts that may differ, such as recipe; may be repeated")
    found.add_argument("--list", action="store_true", help="print the names of the cases, and stop")
    return found


def _run(wanted: Sequence[Case], options: argparse.Namespace) -> int:
    if options.out is None and options.against is None:
        raise CannotRun("give --out FILE, --against REV or --compare A B.")
    before = None
    if options.against is not None:
        with checkout(options.against) as tree:
            before = digests(tree / "src", wanted, options.against)
    now = digests(ROOT / "src", wanted, "this checkout")
    if options.out is not None:
        options.out.write_text(json.dumps(now, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    if before is not None:
        return compare(before, now, options.ignore)
    failed = {name: parts[ERROR] for name, parts in now.items() if ERROR in parts}
    for name, told in failed.items():
        print(f"ERROR    {name}: {told}")
    print(f"{len(now)} cases, {sum(len(parts) for parts in now.values())} parts, {len(failed)} errors")
    return int(bool(failed))


def _matches(name: str, patterns: Sequence[str]) -> bool:
    return not patterns or any(pattern in name or fnmatch(name, pattern) for pattern in patterns)


def _chosen(found: Digests, patterns: Sequence[str]) -> Digests:
    return {name: parts for name, parts in found.items() if _matches(name, patterns)}


def _read(path: Path) -> Digests:
    try:
        found: Digests = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as cause:
        raise CannotRun(f"{path}: this cannot be read: {cause}") from cause
    return found


# Comparing


def compare(one: Digests, other: Digests, ignore: Sequence[str] = ()) -> int:
    """Print what became of each case; 0 where all parts are equal, 1 otherwise."""
    counts = {"same": 0, "DIFFERS": 0, "ERROR": 0}
    for name in dict.fromkeys([*one, *other]):
        verdict, told = _judged(one.get(name), other.get(name), ignore)
        counts[verdict] += 1
        print(f"{verdict:8} {name}{': ' if told else ''}{told}")
    print(f"{counts['same']} cases are the same, {counts['DIFFERS']} differ, {counts['ERROR']} fail in both")
    return int(counts["same"] < sum(counts.values()) or not counts["same"])


def _judged(one: dict[str, str] | None, other: dict[str, str] | None, ignore: Sequence[str]) -> tuple[str, str]:
    """The verdict on a case, and what is to be told of it."""
    if one is None or other is None:
        return "DIFFERS", f"only in the {'second' if one is None else 'first'}"
    failed = [parts.get(ERROR) for parts in (one, other)]
    if failed[0] is not None and failed[0] == failed[1]:
        return "ERROR", str(failed[0])
    if any(failed):
        told = zip(("first", "second"), failed, strict=True)
        return "DIFFERS", "; ".join(f"the {place} fails: {error}" for place, error in told if error)
    wrong = []
    for part in sorted({*one, *other}):
        kind = part.partition(":")[0]
        if one.get(part) == other.get(part) or any(fnmatch(part, each) or kind == each for each in ignore):
            continue
        missing = "" if part in one and part in other else f" (only in the {'first' if part in one else 'second'})"
        wrong.append(f"{part}{missing}")
    return ("DIFFERS", ", ".join(wrong)) if wrong else ("same", "")


# Running


@contextmanager
def checkout(revision: str) -> Iterator[Path]:
    """A temporary worktree of a revision."""
    with tempfile.TemporaryDirectory(prefix="nearfar-digests-") as place:
        tree = Path(place) / "tree"
        done = subprocess.run(
            ["git", "-C", str(ROOT), "worktree", "add", "--quiet", "--detach", str(tree), revision],
            capture_output=True, text=True,
        )  # fmt: skip
        if done.returncode:
            raise CannotRun(f"{revision} cannot be checked out: {done.stderr.strip()}")
        try:
            yield tree
        finally:
            subprocess.run(["git", "-C", str(ROOT), "worktree", "remove", "--force", str(tree)], check=True)


def digests(source: Path, wanted: Sequence[Case], name: str) -> Digests:
    """Run the cases with the package in a folder ``src``, and digest what they leave."""
    found: Digests = {}
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="nearfar-digests-") as place:
        scratch = Path(place).resolve()
        write_data(scratch / "data")
        with Session(source, scratch) as session:
            for number, case in enumerate(wanted, 1):
                since = time.monotonic()
                folder = scratch / case.name.replace("/", "--")
                folder.mkdir()
                found[case.name] = run_case(case, folder, session.run)
                rmtree(folder)
                seconds = time.monotonic() - since
                sys.stderr.write(f"{name}: {number}/{len(wanted)} {case.name}, {seconds:.1f} s\n")
    sys.stderr.write(f"{name}: {len(wanted)} cases in {time.monotonic() - began:.0f} s\n")
    return found


def run_case(case: Case, folder: Path, run: Callable[[Command, Path], str | None]) -> dict[str, str]:
    """The digests of what the commands of a case leave in a folder, or the error of the first that fails."""
    if case.values:
        (folder / ASKED).write_text(as_toml(case.values), encoding="utf-8")
    for command in case.commands:
        error = run(command, folder)
        if error is not None:
            return {ERROR: error}
    return folder_parts(folder, hide=folder.parent)


class Session:
    """A process that runs commands; it is started anew if a command ends it.

    Args:
        source: the folder ``src`` of the nearfar that is run.
        scratch: a folder for what commands print.
    """

    def __init__(self, source: Path, scratch: Path) -> None:
        self.source, self.scratch = source.resolve(), scratch
        self.process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def run(self, command: Command, folder: Path) -> str | None:
        """Run a command in a folder; its last line on standard error where it fails, else None."""
        process = self.process or self.start()
        out = self.scratch / "out" if command.out is None else folder / command.out
        err = self.scratch / "err"
        job = {"words": command.words, "folder": str(folder), "out": str(out), "err": str(err)}
        answer = self.ask(process, json.dumps(job) + "\n")
        if answer is not None and answer["status"] == 0:
            return None
        lines = [line.strip() for line in err.read_text(encoding="utf-8", errors="replace").splitlines()]
        last = next((line for line in reversed(lines) if line), "without a word")
        what = f"the process of nearfar {command.words[0]} ended: " if answer is None else f"{command.words[0]}: "
        if answer is None:
            self.end()
        return (what + last).replace(str(self.scratch), "")[:500]

    def start(self) -> subprocess.Popen[str]:
        """A process with one thread and no network; CannotRun where it has another nearfar."""
        environment = {key: value for key, value in os.environ.items() if not key.startswith(("NEARFAR_", "RANK"))}
        environment |= dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
        environment |= dict.fromkeys(("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_DATASETS_OFFLINE"), "1")
        environment |= {"TOKENIZERS_PARALLELISM": "false", "PYTHONPATH": str(self.source), "COLUMNS": "160"}
        self.process = subprocess.Popen(
            [sys.executable, "-P", str(WORKER)], cwd=self.scratch, env=environment, stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        answer = self.ask(self.process, "")
        if answer is None or not Path(answer["nearfar"]).resolve().is_relative_to(self.source):
            raise CannotRun(f"{self.source}: nearfar cannot be imported from there; found: {answer}")
        return self.process

    def ask(self, process: subprocess.Popen[str], line: str) -> dict[str, Any] | None:
        """Send a line and wait for the answer; None where the process has ended, or takes too long and is killed."""
        assert process.stdin is not None
        assert process.stdout is not None
        timer = threading.Timer(LONGEST, process.kill)
        timer.start()
        try:
            process.stdin.write(line)
            process.stdin.flush()
            answer = process.stdout.readline()
        except BrokenPipeError:
            return None
        finally:
            timer.cancel()
        return json.loads(answer) if answer else None

    def end(self) -> None:
        """Stop the process."""
        if self.process is not None:
            self.process.kill()
            self.process.communicate()
            self.process = None


# Digesting


def folder_parts(folder: Path, *, hide: Path) -> dict[str, str]:
    """The digests of all files in a folder that a run is judged by; ``hide`` is left out of paths in them."""
    parts: dict[str, str] = {}
    studies = sorted(path.parent for path in folder.rglob("study.json"))
    for study in studies:
        name = study.relative_to(folder)
        parts |= {f"{part}:{name}": digest for part, digest in study_parts(study, hide=hide).items()}
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path != folder / ASKED and not any(_of_study(path, study) for study in studies):
            found = _file(path, hide)
            if found is not None:
                parts[f"{found[0]}:{path.relative_to(folder)}"] = found[1]
    return parts


def _of_study(path: Path, study: Path) -> bool:
    """Whether a file is digested with its study, or tells when what was begun."""
    return path.is_relative_to(study / "trials") or path in (study / "study.json", study / "log.jsonl")


def _file(path: Path, hide: Path) -> tuple[str, str] | None:
    """What a file is, and its digest; None where it is for people or for other tools."""
    name = path.name
    if path.suffix == ".safetensors":
        return "weights", weights(path)
    if path.suffix == ".npy":
        return "embeddings", hashlib.sha256(path.read_bytes()).hexdigest()  # its head has type and shape
    if path.suffix == ".toml":
        return "recipe", plain(tomllib.loads(path.read_text(encoding="utf-8")), hide)
    if path.suffix == ".csv":
        return "report", plain(list(csv.reader(path.read_text(encoding="utf-8").splitlines())), hide)
    if path.suffix == ".jsonl":
        return "journal" if name.startswith("journal") else "predictions", plain(_rows(path), hide)
    if path.suffix == ".json" and not _of_tools(name):
        kinds = {"metrics.json": "metrics", "nearfar.json": "card", "config.json": "config"}
        return kinds.get(name, "report"), plain(_json(path), hide)
    return None


def _of_tools(name: str) -> bool:
    """Whether a file of a model folder is written by tokenizers, or has names of classes of other packages."""
    return name.startswith(("tokenizer", "special_tokens", "modules", "sentence_", "config_sentence"))


def study_parts(study: Path, *, hide: Path) -> dict[str, str]:
    """The digests of a study: its plan, and all its trials by their places in it."""
    plan = _json(study / "study.json")
    ids = {" ".join(str(cell[key]) for key in PLACES[1:-1]): cell["id"] for cell in plan["cells"]}
    records, recipes, maps = dict[str, Any](), dict[str, Any](), dict[str, Any]()
    predictions, journals = dict[str, Any](), dict[str, Any]()
    for place, name in ids.items():
        trial = study / "trials" / name
        record = _json(trial / "record.json")
        recipes[place] = record.pop("recipe", None)
        records[place] = {key: value for key, value in record.items() if key not in PLACES}
        for path in sorted(trial.iterdir()):
            if path.suffix == ".safetensors":
                maps[f"{place} {path.name}"] = weights(path)
            elif path.suffix == ".jsonl":
                kept = journals if path.name.startswith("journal") else predictions
                kept[f"{place} {path.name}"] = _rows(path)
    plan["cells"] = [{key: value for key, value in cell.items() if key != "id"} for cell in plan["cells"]]
    found = {"plan": plan, "ids": ids, "records": records, "recipes": recipes, "predictions": predictions,
             "journals": journals, "maps": maps}  # fmt: skip
    return {name: plain(values, hide) for name, values in found.items()}


def weights(path: Path) -> str:
    """The digest of all tensors of a safetensors file: names, types, shapes and bytes, whatever their order."""
    content = path.read_bytes()
    start = 8 + int.from_bytes(content[:8], "little")
    head: dict[str, Any] = json.loads(content[8:start])
    digest = hashlib.sha256()
    for name in sorted(head.keys() - {"__metadata__"}):
        tensor = head[name]
        digest.update(json.dumps([name, tensor["dtype"], tensor["shape"]]).encode())
        first, last = tensor["data_offsets"]
        digest.update(content[start + first : start + last])
    return digest.hexdigest()


def plain(values: Any, hide: Path) -> str:
    """The digest of JSON values without what is measured, versions, texts for people and the folder ``hide``."""
    told = json.dumps(_kept(values), sort_keys=True, ensure_ascii=False, default=str)
    return hashlib.sha256(told.replace(str(hide), "").encode()).hexdigest()


def _kept(values: Any) -> Any:
    if isinstance(values, Mapping):
        return {key: _kept(value) for key, value in values.items() if key not in LEFT_OUT}
    if isinstance(values, Iterable) and not isinstance(values, str):
        return [_kept(value) for value in values]
    return values


def _json(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def _rows(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


if __name__ == "__main__":
    sys.exit(main())
