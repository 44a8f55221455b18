"""Classifiers from few labels: nearfar without any setting and SetFit with its defaults, on the same draws.

8, 16 and 64 texts a class of trec, sst5, banking77, cr and subj, five draws of each. Both tools read the same files and
are tested on the same texts, so that results pair up by draw: one draw can be 25 points from another one.

    python -m benchmarks.few_labels draw           # writes the files of texts
    python -m benchmarks.few_labels_peers          # SetFit, some hours; can be stopped and started again
    python -m benchmarks.few_labels train          # nearfar; the same
    python -m benchmarks.few_labels table          # what came out, as Markdown

``train --names given`` gives nearfar the names of the classes that are written down here, other variants wrong ones.

The lines behind RESULTS.md are in benchmarks/few-labels, those with given names in nearfar-names.jsonl; --results (and
--peer of the table) names a file to continue.

Give both sides the same number of threads (OMP_NUM_THREADS=1). Every result is one line of JSON:

- seconds: the training, with the class head; of nearfar as its metrics.json has them, of SetFit ``Trainer.train``;
- whole_seconds, cpu_seconds: loading the encoder, training and saving the model, by the clock and by the processor;
  without the estimate of the accuracy that nearfar ends with, and SetFit does not have.
  Where others compute on the machine, the processor's seconds are the ones to compare;
- machine: the processor. Accuracies pair up whatever it is, times only if it is the same for both.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import json
import statistics
import sys
import tempfile
import time
import tomllib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks import machine
from benchmarks.compare import DATA, tell
from benchmarks.tables import markdown, number, paired, ratios, spread
from nearfar.data import Records, holdout, limit, per_class, read

DATASETS = ("trec", "sst5", "cr", "subj", "banking77")
"""The one with 77 classes last: it takes longer than all others together."""
SIZES = (8, 16, 64)
SEEDS = (0, 1, 2, 3, 4)
LATER = 64
"""Sizes from here on come after all draws of the smaller ones."""
TEST_TEXTS = 2_000
SPLIT_SEED = 0
NAMES: dict[str, dict[str, str]] = {
    "trec": {
        "ABBR": "abbreviation", "DESC": "description or definition", "ENTY": "entity or thing",
        "HUM": "person or human being", "LOC": "location or place", "NUM": "number or quantity",
    },
    "sst5": {"0": "very negative", "1": "negative", "2": "neutral", "3": "positive", "4": "very positive"},
    "cr": {"0": "negative", "1": "positive"},
    "subj": {"0": "subjective opinion", "1": "objective description"},
}  # fmt: skip
"""What the classes are called whose labels are codes; the labels of the other data sets are words."""
FOREIGN: dict[str, dict[str, str]] = {
    "trec": {
        "ABBR": "Abkürzung", "DESC": "Beschreibung oder Definition", "ENTY": "Sache", "HUM": "Mensch oder Person",
        "LOC": "Ort", "NUM": "Zahl oder Menge",
    },
    "sst5": {"0": "sehr negativ", "1": "negativ", "2": "neutral", "3": "positiv", "4": "sehr positiv"},
    "cr": {"0": "schlecht", "1": "gut"},
    "subj": {"0": "subjektive Meinung", "1": "objektive Beschreibung"},
}  # fmt: skip
"""The same in German, which the encoder has hardly read."""
VARIANTS = ("given", "none", "permuted", "letters", "foreign", "one-wrong")
FOLDER = Path(tempfile.gettempdir()) / "nearfar-few-labels"
OURS, THEIRS = "nearfar", "setfit"

Line = dict[str, Any]


class Case(NamedTuple):
    """One draw: ``n`` texts a class of a data set."""

    data: str
    n: int
    seed: int

    def __str__(self) -> str:
        return f"{self.data}, {self.n} a class, draw {self.seed}"


def cases(datasets: Sequence[str] = DATASETS, sizes: Sequence[int] = SIZES, seeds: Sequence[int] = SEEDS) -> list[Case]:
    """Everything to measure, in an order that has whole draws early: by seed, the largest sizes after all others."""
    early, late = [n for n in sizes if n < LATER], [n for n in sizes if n >= LATER]
    return [Case(data, n, seed) for part in (early, late) for seed in seeds for data in datasets for n in part]


@dataclass(frozen=True)
class Draws:
    """The folder with the files that both tools read."""

    folder: Path

    def train(self, case: Case) -> Path:
        """The texts to learn from."""
        return self.folder / case.data / f"{case.n}-{case.seed}.jsonl"

    def test(self, data: str) -> Path:
        """The texts to be right about."""
        return self.folder / data / "test.jsonl"

    def smallest(self) -> tuple[Path, Path]:
        """The files of the draw that takes least: to train on, and to test on."""
        train = min(self.folder.glob("*/*-*.jsonl"), key=lambda path: (path.stat().st_size, path))
        return train, self.test(train.parent.name)

    def fingerprint(self, case: Case) -> str:
        """Changes with any byte of the two files."""
        digest = hashlib.sha256()
        for path in (self.train(case), self.test(case.data)):
            if not path.is_file():
                raise SystemExit(f"{path} is missing; write it with: python -m benchmarks.few_labels draw")
            digest.update(hashlib.sha256(path.read_bytes()).digest())
        return digest.hexdigest()[:16]


def pool_and_test(folder: Path, *, at_most: int = TEST_TEXTS) -> tuple[Records, Records]:
    """The texts of a data set to draw from, and those to test on; no text is in both, and the pool has each once.

    A folder with ``train`` and ``test`` is taken as it is, one with ``all`` is split in two (half, or less where half
    is more than is tested). Both choices are stratified and follow from one fixed seed.
    """
    everything = folder / "all.jsonl.gz"
    if everything.is_file():
        records = read(str(everything), need="label")
        stay, apart = holdout(records, min(0.5, at_most / len(records)), seed=SPLIT_SEED, name="test")
        pool, test = records.take(stay), records.take(apart)
    else:
        pool, test = (read(str(folder / f"{part}.jsonl.gz"), need="label") for part in ("train", "test"))
    test = test.take(limit(test, at_most, seed=SPLIT_SEED))
    seen = set(test.normalized_texts())
    fresh = []
    for row, key in enumerate(pool.normalized_texts()):
        if key not in seen:
            fresh.append(row)
            seen.add(key)
    return pool.take(fresh), test


def draw(source: Path, draws: Draws, wanted: Sequence[Case]) -> None:
    """Write the files of these cases, and those they are tested on."""
    for data in dict.fromkeys(case.data for case in wanted):
        pool, test = pool_and_test(source / data)
        _write(draws.test(data), test)
        for case in wanted:
            if case.data == data:
                _write(draws.train(case), pool.take(per_class(pool, case.n, seed=case.seed)))


def _write(path: Path, records: Records) -> None:
    assert records.labels is not None
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = [
        json.dumps({"text": text, "label": label}, ensure_ascii=False) + "\n"
        for text, label in zip(records.texts[0], records.labels, strict=True)
    ]
    path.write_text("".join(rows), encoding="utf-8")


def texts_and_labels(path: Path) -> tuple[list[str], list[str]]:
    """What a written file holds."""
    rows = [json.loads(line) for line in path.read_bytes().split(b"\n") if line]
    return [row["text"] for row in rows], [row["label"] for row in rows]


class Results:
    """A file of results, one line each, that grows until everything is measured."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def lines(self) -> list[Line]:
        """All whole lines; one that was cut off in writing does not count."""
        if not self.path.is_file():
            return []
        *whole, _ = self.path.read_bytes().split(b"\n")
        return [json.loads(line) for line in whole]

    def by_case(self) -> dict[Case, Line]:
        """The results by what they are of."""
        return {Case(line["data"], line["n"], line["seed"]): line for line in self.lines()}

    def add(self, line: Line) -> None:
        """One more, in place of what may have been cut off; other processes wait."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("ab+") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.seek(0)
            file.truncate(file.read().rfind(b"\n") + 1)
            file.write(json.dumps(line, ensure_ascii=False).encode() + b"\n")


Measure = Callable[[Path, Path], Line]
"""From a file to train on and a file to test on to accuracy, times, steps and settings."""


def drive(measure: Measure, wanted: Sequence[Case], draws: Draws, results: Results) -> int:
    """Measure what is not there yet; returns how many failed.

    The smallest draw of the folder is measured before all others and forgotten: what a process does only the first
    time, imports above all, is in no result.
    """
    there = results.by_case()
    pending = []
    for case in wanted:
        fingerprint = draws.fingerprint(case)
        if case not in there:
            pending.append((case, fingerprint))
        elif there[case]["draw"] != fingerprint:
            raise SystemExit(f"{results.path} has a result of other texts for {case}; give another --results file.")
    if pending:
        measure(*draws.smallest())
    name, flags = machine.cpu()
    failed, processor = 0, ", ".join([name, *flags])
    for case, fingerprint in pending:
        load = machine.load()
        try:
            line = measure(draws.train(case), draws.test(case.data))
        except Exception as problem:  # the hours after this case are not to be lost with it
            failed += 1
            tell(f"{case}: {type(problem).__name__}: {problem}")
            continue
        results.add({**case._asdict(), **line, "draw": fingerprint, "load": round(load, 2), "machine": processor})
        seconds = "" if line["seconds"] is None else f", {line['seconds']:.1f} s"
        tell(f"{case}: accuracy {line['accuracy']:.3f}{seconds}, {line['steps']:,} steps")
    return failed


def accuracy(truth: Sequence[str], found: Sequence[str]) -> float:
    """The share of equal labels."""
    return sum(one == other for one, other in zip(truth, found, strict=True)) / len(truth)


def names_of(data: str, variant: str) -> dict[str, str] | str:
    """The setting ``data.names`` of a variant: names as they are written down here, or wrong in one of several ways."""
    given = NAMES.get(data, {})
    labels, names = list(given), list(given.values())
    match variant:
        case "none":
            return "none"
        case "permuted":
            names = [*names[1:], *names[:1]]
        case "letters":
            names = [chr(ord("A") + place) for place in range(len(names))]
        case "foreign":
            names = list(FOREIGN.get(data, {}).values())
        case "one-wrong":
            names = [names[-1], *names[1:-1], "furniture"] if names else []
    return dict(zip(labels, names, strict=True)) or "auto"


def train_and_test(train: Path, test: Path, *, names: str = "auto") -> Line:
    """``nearfar train FILE --out FOLDER`` without a setting but class names, and the saved model on the test texts."""
    import torch

    from nearfar import __version__
    from nearfar.encoding import load
    from nearfar.pipeline import train as train_recipe
    from nearfar.recipe import build_recipe
    from nearfar.training import Callback

    messages: list[str] = []

    class Messages(Callback):
        def message(self, text: str) -> None:
            messages.append(text)

    with tempfile.TemporaryDirectory(prefix="nearfar-few-") as scratch:
        out = Path(scratch) / "model"
        began, cpu = time.perf_counter(), time.process_time()
        given = "auto" if names == "auto" else names_of(train.parent.name, names)
        values = {"data": {"train": str(train), "names": given}, "training": {"estimate": False}}
        recipe = build_recipe(values, where="benchmark")
        summary = train_recipe(recipe, out, callbacks=[Messages()])
        whole, cpu = time.perf_counter() - began, time.process_time() - cpu
        settings = tomllib.loads((out / "recipe.toml").read_text(encoding="utf-8"))
        training = json.loads((out / "metrics.json").read_text(encoding="utf-8"))["training"]
        texts, truth = texts_and_labels(test)
        found = [prediction.label for prediction in load(out).predict(texts)]
    assert summary.progress is not None
    return {
        "tool": OURS, "version": __version__, "accuracy": accuracy(truth, found), "seconds": training["seconds"],
        "whole_seconds": whole, "cpu_seconds": cpu, "steps": training["steps"], "threads": torch.get_num_threads(),
        "settings": {key: value for key, value in settings.items() if key != "data"}, "names": names,
        "names_note": next((text for text in messages if "class names" in text), None),
    }  # fmt: skip


class Pair(NamedTuple):
    """The results of both tools for one draw."""

    case: Case
    ours: Line
    theirs: Line

    @property
    def difference(self) -> float:
        """In accuracy."""
        return float(self.ours["accuracy"] - self.theirs["accuracy"])


def pairs(ours: Results, theirs: Results) -> list[Pair]:
    """The draws that both tools have finished."""
    mine, others = ours.by_case(), theirs.by_case()
    both = [Pair(case, mine[case], others[case]) for case in mine if case in others]
    for pair in both:
        if pair.ours["draw"] != pair.theirs["draw"]:
            raise SystemExit(
                f"{pair.case}: {ours.path} and {theirs.path} are of different texts; draw and train again."
            )
    return both


def groups(found: Sequence[Pair]) -> Iterator[tuple[str, list[Pair]]]:
    """The pairs of each data set and size, of each size, and all of them."""
    for data in DATASETS:
        for n in SIZES:
            if inside := [pair for pair in found if pair.case[:2] == (data, n)]:
                yield f"{data}, {n}", inside
    for n in SIZES:
        if inside := [pair for pair in found if pair.case.n == n]:
            yield f"all, {n}", inside
    if found:
        yield "all", list(found)


def accuracy_table(found: Sequence[Pair]) -> str:
    """Mean and standard deviation over draws, and the paired difference with its standard error, in percent."""
    rows = []
    for name, inside in groups(found):
        sides = [[100 * line["accuracy"] for line in side] for side in _sides(inside)]
        mean, error = paired(*sides)
        signs = [(pair.difference > 0) - (pair.difference < 0) for pair in inside]
        record = " / ".join(str(signs.count(sign)) for sign in (1, 0, -1))
        rows.append([name, str(len(inside)), *map(_mean_and_deviation, sides), f"{mean:+.1f} ± {error:.1f}", record])
    return markdown(["data, texts a class", "draws", OURS, THEIRS, "difference", "won / tied / lost"], rows)


def time_table(found: Sequence[Pair]) -> str:
    """Medians over draws; ratios are theirs over ours, draw by draw, where both had the same threads and processor."""
    rows = []
    for name, inside in groups(found):
        mine, others = _sides(inside)
        row = [
            name,
            *(_median([line[key] for line in side]) for key in ("steps", "seconds") for side in (mine, others)),
        ]
        for clock in ("seconds", "whole_seconds", "cpu_seconds"):
            times = [
                ratio if all(one.get(key) == other.get(key) for key in ("threads", "machine")) else None
                for one, other, ratio in zip(
                    mine, others, ratios([line[clock] for line in others], [line[clock] for line in mine]), strict=True
                )
            ]
            row.append(_median(times, " x"))
        rows.append(row)
    header = ["data, texts a class", *(f"{who} {what}" for what in ("steps", "seconds") for who in (OURS, THEIRS))]
    return markdown([*header, "training faster by", "whole run faster by", "processor time"], rows)


def report(found: Sequence[Pair]) -> str:
    """Both tables, and where the peer did not have its defaults."""
    limited = dict.fromkeys(
        f"- {pair.case.data}, {pair.case.n} a class: {pair.theirs['note']}" for pair in found if pair.theirs.get("note")
    )
    notes = ["\n".join([f"{THEIRS} had its defaults, but for:", "", *limited])] if limited else []
    return "\n\n".join([accuracy_table(found), time_table(found), *notes])


def _sides(inside: Sequence[Pair]) -> tuple[list[Line], list[Line]]:
    return [pair.ours for pair in inside], [pair.theirs for pair in inside]


def _mean_and_deviation(values: Sequence[float]) -> str:
    deviation = statistics.stdev(values) if len(values) > 1 else 0.0
    return f"{statistics.mean(values):.1f} ± {deviation:.1f}"


def _median(values: Sequence[float | None], unit: str = "") -> str:
    found = spread(values)
    return "-" if found is None else f"{number(found.median)}{unit}"


def parser(about: str | None, tool: str) -> argparse.ArgumentParser:
    """What both command lines have."""
    made = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--folder", type=Path, default=FOLDER, metavar="FOLDER", help="holds the drawn texts")
    made.add_argument(
        "--results", type=Path, metavar="FILE", help=f"the lines of {tool}; default: {tool}.jsonl in the folder"
    )
    made.add_argument("--data", action="append", choices=DATASETS, help="one data set; repeatable")
    made.add_argument("--n", action="append", type=int, choices=SIZES, help="one size; repeatable")
    made.add_argument("--seed", action="append", type=int, choices=SEEDS, help="one draw; repeatable")
    return made


def chosen(options: argparse.Namespace) -> list[Case]:
    """The cases that were asked for, all by default."""
    return cases(
        [data for data in DATASETS if data in (options.data or DATASETS)], options.n or SIZES, options.seed or SEEDS
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """0 when everything is there, 1 when some case failed."""
    made = parser(__doc__, OURS)
    made.add_argument("what", choices=("draw", "train", "table"))
    made.add_argument("--names", choices=("auto", *VARIANTS), default="auto", help="class names to train with")
    made.add_argument("--source", type=Path, default=DATA, metavar="FOLDER", help="holds the data sets")
    made.add_argument("--peer", type=Path, metavar="FILE", help=f"the lines of {THEIRS}, for the table")
    options = made.parse_args(arguments)
    draws = Draws(options.folder)
    ours = Results(options.results or options.folder / f"{OURS}.jsonl")
    wanted = chosen(options)
    if options.what == "draw":
        draw(options.source, draws, wanted)
        return 0
    if options.what == "train":
        return int(drive(partial(train_and_test, names=options.names), wanted, draws, ours) > 0)
    theirs = Results(options.peer or options.folder / f"{THEIRS}.jsonl")
    print(report([pair for pair in pairs(ours, theirs) if pair.case in wanted]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
