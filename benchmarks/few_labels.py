"""Classifiers from few labels: nearfar without any setting and SetFit with its defaults, on the same draws.

8, 16 and 64 texts a class of trec, sst5, banking77, cr and subj, five draws of each. Both tools read the same files and
are tested on the same texts, so that results pair up by draw: one draw can be 25 points from another one.

    python -m benchmarks.few_labels draw           # writes the files of texts
    python -m benchmarks.few_labels_peers          # SetFit, some hours; can be stopped and started again
    python -m benchmarks.few_labels train          # nearfar; the same
    python -m benchmarks.few_labels table          # what came out, as Markdown

``--untuned`` takes the data sets that no default was chosen on: goemotions, empathetic_dialogues, trec_fine and imdb, 8
and 16 a class, three draws.

``train --names given`` gives nearfar the names of the classes in benchmarks/few_label_names.py, other variants wrong
ones; ``train --unlabeled`` also gives 1,000 texts without labels; ``train --n 0`` gives these and the names and no
labels (zero-shot). The peers have ``--names`` and ``--n 0`` as well. Each of them is a file of results of its own.

The lines behind STUDIES.md are in benchmarks/few-labels, those with given names in nearfar-names.jsonl; --results (and
--peer of the table) names a file to continue. A table of any two files compares them draw by draw.

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
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks import machine
from benchmarks.compare import DATA
from benchmarks.few_label_names import VARIANTS, names_of, spelled
from benchmarks.tables import markdown, number, paired, ratios, spread
from benchmarks.turns import tell
from nearfar.data import Records, holdout, limit, per_class, read

DATASETS = ("trec", "sst5", "cr", "subj", "banking77")
"""The one with 77 classes last: it takes longer than all others together."""
SIZES = (8, 16, 64)
SEEDS = (0, 1, 2, 3, 4)
UNTUNED = ("imdb", "trec_fine", "goemotions", "empathetic_dialogues")
"""Data sets that no default was chosen on, measured beside the others."""
UNTUNED_SIZES, UNTUNED_SEEDS = (8, 16), (0, 1, 2)
NO_LABELS = 0
"""The size of a draw without labels: class names, and unlabeled texts."""
UNLABELED = 1_000
LATER = 64
"""Sizes from here on come after all draws of the smaller ones."""
TEST_TEXTS = 2_000
SPLIT_SEED = 0
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

    @staticmethod
    def unlabeled(train: Path) -> Path:
        """The unlabeled texts beside a file to learn from: those of a draw are the same for all its sizes."""
        return train.with_name(f"{NO_LABELS}-{train.stem.partition('-')[2]}.jsonl")

    def test(self, data: str) -> Path:
        """The texts to be right about."""
        return self.folder / data / "test.jsonl"

    def smallest(self) -> tuple[Path, Path]:
        """The files of the draw that takes least: to train on, and to test on."""
        train = min(self.folder.glob("*/[1-9]*-*.jsonl"), key=lambda path: (path.stat().st_size, path))
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
        pool, test = (read(str(_part(folder, part)), need="label") for part in ("train", "test"))
    test = test.take(limit(test, at_most, seed=SPLIT_SEED))
    seen = set(test.normalized_texts())
    fresh = []
    for row, key in enumerate(pool.normalized_texts()):
        if key not in seen:
            fresh.append(row)
            seen.add(key)
    return pool.take(fresh), test


def _part(folder: Path, name: str) -> Path:
    """The file of a part: of a data set that is a sample, its name says so."""
    whole = folder / f"{name}.jsonl.gz"
    return whole if whole.is_file() else next(iter(sorted(folder.glob(f"{name}_*.jsonl.gz"))), whole)


def draw(source: Path, draws: Draws, wanted: Sequence[Case]) -> None:
    """Write the files of these cases, and those they are tested on."""
    for data in dict.fromkeys(case.data for case in wanted):
        pool, test = pool_and_test(source / data)
        _write(draws.test(data), test)
        for case in wanted:
            if case.data != data:
                continue
            path = draws.train(case)
            if case.n != NO_LABELS:
                _write(path, pool.take(per_class(pool, case.n, seed=case.seed)))
            order = np.random.default_rng(case.seed).permutation(len(pool))
            _write(draws.unlabeled(path), replace(pool.take(sorted(order[:UNLABELED].tolist())), labels=None))


def _write(path: Path, records: Records) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    rows: list[dict[str, str]] = [{"text": text} for text in records.texts[0]]
    if records.labels is not None:
        rows = [{**row, "label": label} for row, label in zip(rows, records.labels, strict=True)]
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")


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


def data_table(train: Path, test: Path, names: str, *, unlabeled: bool) -> dict[str, Any]:
    """The table ``data`` of nearfar's recipe for a draw; without labels, every class has a name."""
    data, beside = train.parent.name, Draws.unlabeled(train)
    if train == beside:
        return {"train": str(beside), "unlabeled": True, "names": spelled(data, texts_and_labels(test)[1])}
    given = "auto" if names == "auto" else names_of(data, names)
    return {"train": str(train), "names": given, **({"unlabeled": str(beside)} if unlabeled else {})}


def train_and_test(train: Path, test: Path, *, names: str = "auto", unlabeled: bool = False) -> Line:
    """``nearfar train FILE --out FOLDER`` without a setting but class names, and the saved model on the test texts.

    A file of a draw without labels is that of its unlabeled texts.
    """
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
        values = {"data": data_table(train, test, names, unlabeled=unlabeled), "training": {"estimate": False}}
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
        "names_note": next((text for text in messages if "class names" in text), None), "unlabeled": unlabeled,
        "unlabeled_note": next((text for text in messages if "unlabeled texts" in text), None),
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
    for data in (*DATASETS, *UNTUNED):
        for n in (NO_LABELS, *SIZES):
            if inside := [pair for pair in found if pair.case[:2] == (data, n)]:
                yield f"{data}, {n}", inside
    for n in (NO_LABELS, *SIZES):
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
        worst = f"{100 * min(pair.difference for pair in inside):+.1f}"
        difference = f"{mean:+.1f} ± {error:.1f}"
        rows.append([name, str(len(inside)), *map(_mean_and_deviation, sides), difference, worst, record])
    header = ["data, texts a class", "draws", *titles(found), "difference", "worst draw", "won / tied / lost"]
    return markdown(header, rows)


def titles(found: Sequence[Pair]) -> tuple[str, str]:
    """What both sides are: the tool, and what it had beside the labeled texts."""
    return _title([pair.ours for pair in found], OURS), _title([pair.theirs for pair in found], THEIRS)


def _title(lines: Sequence[Line], tool: str) -> str:
    more = {(line.get("tool", tool), line.get("names") or "auto", bool(line.get("unlabeled"))) for line in lines}
    if len(more) != 1:
        return tool
    ((tool, names, unlabeled),) = more
    return tool + (f", names: {names}" if names != "auto" else "") + (", unlabeled texts" if unlabeled else "")


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
    header = ["data, texts a class", *(f"{who} {what}" for what in ("steps", "seconds") for who in titles(found))]
    return markdown([*header, "training faster by", "whole run faster by", "processor time"], rows)


def report(found: Sequence[Pair]) -> str:
    """Both tables, and where the peer did not have its defaults."""
    limited = dict.fromkeys(
        f"- {pair.case.data}, {pair.case.n} a class: {pair.theirs['note']}" for pair in found if pair.theirs.get("note")
    )
    peer = titles(found)[1]
    notes = ["\n".join([f"{peer} had its defaults, but for:", "", *limited])] if limited else []
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
    made.add_argument("--data", action="append", choices=(*DATASETS, *UNTUNED), help="one data set; repeatable")
    made.add_argument(
        "--n", action="append", type=int, choices=(NO_LABELS, *SIZES), help="one size, 0 for no labels; repeatable"
    )
    made.add_argument("--untuned", action="store_true", help="the data sets that no default was chosen on")
    made.add_argument("--seed", action="append", type=int, choices=SEEDS, help="one draw; repeatable")
    return made


def chosen(options: argparse.Namespace) -> list[Case]:
    """The cases that were asked for; by default all of the five data sets, or of those that nothing was chosen on."""
    usual = UNTUNED if options.untuned else DATASETS
    sizes, seeds = (UNTUNED_SIZES, UNTUNED_SEEDS) if options.untuned else (SIZES, SEEDS)
    data = [name for name in (*DATASETS, *UNTUNED) if name in (options.data or usual)]
    return cases(data, options.n or sizes, options.seed or seeds)


def main(arguments: Sequence[str] | None = None) -> int:
    """0 when everything is there, 1 when some case failed."""
    made = parser(__doc__, OURS)
    made.add_argument("what", choices=("draw", "train", "table"))
    made.add_argument("--names", choices=("auto", *VARIANTS), default="auto", help="class names to train with")
    made.add_argument("--unlabeled", action="store_true", help="give 1,000 texts without labels beside those with one")
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
        measure = partial(train_and_test, names=options.names, unlabeled=options.unlabeled)
        return int(drive(measure, wanted, draws, ours) > 0)
    theirs = Results(options.peer or options.folder / f"{THEIRS}.jsonl")
    print(report([pair for pair in pairs(ours, theirs) if pair.case in wanted]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
