"""Labels saved: the order in which ``nearfar label`` proposes texts against random order and strategies of small-text.

A simulated annotator labels texts of trec, banking77, sst5, cr and subj with their true labels, ten at a time, five
seeds. After some numbers of labels a head on the vectors of the pretrained encoder is fitted to the labeled texts and
tested on others; with ``--train`` the whole classifier is trained (nearfar without settings).

    python -m benchmarks.labeling run                                   # proposed and random order, frozen vectors
    python3 -m venv .venv-bench/small-text && .venv-bench/small-text/bin/pip install small-text==1.4.1
    python -m benchmarks.labeling run --small-text .venv-bench/small-text/bin/python      # its strategies
    python -m benchmarks.labeling run --train --labels 30,50,60,100     # trained checkpoints
    python -m benchmarks.labeling table --write                         # what came out: benchmarks/LABELING.md

Results are lines of JSON; a run that was stopped continues. ``--sets mr,mpqa,goemotions`` are those that the order was
chosen on. Vectors are kept in ``--cache``. Labels are saved where the proposed order has, with 40 % fewer labels, at
least the accuracy of random order: 30 labels against 50, 60 against 100, 120 against 200.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.compare import DATA
from benchmarks.tables import markdown, paired
from benchmarks.turns import tell
from nearfar.data import Records, read
from nearfar.seeds import generator

SETS = ("trec", "banking77", "sst5", "cr", "subj")
LABELS = (30, 50, 60, 100, 120, 200)
SAVED = ((30, 50), (60, 100), (120, 200))
"""Labels of the proposed order, and of random order."""
SEEDS = 5
BATCH = 10
POOL, TEST = 3_000, 2_000
"""Most texts to choose from, and most texts to test on."""
OWN = ("proposed", "random")
SMALL_TEXT = ("breaking-ties", "prediction-entropy", "greedy-coreset", "lightweight-coreset", "embedding-kmeans")
RESULTS = Path(__file__).parent / "labeling" / "results.jsonl"
PAGE = Path(__file__).parent / "LABELING.md"
HEADING = """# Labels saved by the order of `nearfar label`

Written by `python -m benchmarks.labeling table --write` from `labeling/results.jsonl`. Accuracy in percent, mean of
five data sets and five draws of at most 3,000 texts each; a simulated annotator labels ten texts at a time.
Frozen is a logistic head on the vectors of the pretrained encoder (minilm). ± is the standard error over the draws.
"""


@dataclass(frozen=True)
class Draw:
    """The texts of one seed: those to label and those to test on."""

    texts: list[str]
    labels: np.ndarray[Any, Any]
    vectors: np.ndarray[Any, Any]
    test_texts: list[str]
    test_labels: np.ndarray[Any, Any]
    test_vectors: np.ndarray[Any, Any]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.labeling", description=__doc__.splitlines()[0])
    parser.add_argument("command", choices=["run", "table"])
    parser.add_argument("--sets", default=",".join(SETS))
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--labels", default=",".join(map(str, LABELS)))
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--cache", type=Path, default=Path(tempfile.gettempdir()) / "nearfar-labeling")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--encoder", default="minilm")
    parser.add_argument("--train", action="store_true", help="train the whole classifier")
    parser.add_argument("--small-text", metavar="PYTHON", help="a Python that has small-text")
    parser.add_argument("--write", action="store_true", help=f"table: write {PAGE.name}")
    asked = parser.parse_args(arguments)
    if asked.command == "table":
        text = table(read_lines(asked.results))
        sys.stdout.write(text + "\n")
        if asked.write:
            PAGE.write_text(f"{HEADING}\n{text}\n", encoding="utf-8")
        return 0
    run(asked)
    return 0


def run(asked: argparse.Namespace) -> None:
    """Measure what is missing from the results."""
    asked.results.parent.mkdir(parents=True, exist_ok=True)
    asked.cache.mkdir(parents=True, exist_ok=True)
    done = {key(line) for line in read_lines(asked.results)}
    kind, numbers = "trained" if asked.train else "frozen", [int(each) for each in asked.labels.split(",")]
    orders = SMALL_TEXT if asked.small_text else OWN
    for name in asked.sets.split(","):
        for seed in range(asked.seeds):
            missing = [order for order in orders if any((name, seed, order, kind, n) not in done for n in numbers)]
            if not missing:
                continue
            draw = drawn(asked, name, seed)
            for order in missing:
                began = time.perf_counter()
                rows = ordered(draw, order, max(numbers), seed, asked.small_text)
                for n in numbers:
                    if (name, seed, order, kind, n) in done:
                        continue
                    score = trained(draw, rows[:n], asked.encoder, seed) if asked.train else frozen(draw, rows[:n])
                    line = {"set": name, "seed": seed, "order": order, "kind": kind, "labels": n, "accuracy": score}
                    with asked.results.open("a", encoding="utf-8") as file:
                        file.write(json.dumps(line) + "\n")
                tell(f"{name} {seed} {order} {kind}: {time.perf_counter() - began:.1f} s")


def drawn(asked: argparse.Namespace, name: str, seed: int) -> Draw:
    """The texts of a seed, with vectors of length 1."""
    folder = asked.data / name
    if (folder / "test.jsonl.gz").is_file():
        train, test = read(str(folder / "train.jsonl.gz")), read(str(folder / "test.jsonl.gz"))
    else:
        every = read(str(folder / "all.jsonl.gz"))
        order = generator(0, "labeling", name).permutation(len(every)).tolist()
        train, test = every.take(order[len(order) // 3 :]), every.take(order[: len(order) // 3])
    pool = generator(seed, "labeling", name, "pool").permutation(len(train))[:POOL].tolist()
    rest = generator(0, "labeling", name, "test").permutation(len(test))[:TEST].tolist()
    found, tested = vectors(asked, train)[pool], vectors(asked, test)[rest]
    train, test = train.take(pool), test.take(rest)
    assert train.labels is not None
    assert test.labels is not None
    numbers = {label: number for number, label in enumerate(sorted({*train.labels, *test.labels}))}
    return Draw(
        train.texts[0], np.array([numbers[label] for label in train.labels]), found,
        test.texts[0], np.array([numbers[label] for label in test.labels]), tested,
    )  # fmt: skip


def vectors(asked: argparse.Namespace, records: Records) -> np.ndarray[Any, Any]:
    """Of the pretrained encoder, computed once for all draws of a set."""
    import nearfar

    path = asked.cache / f"{Path(asked.encoder).name}-{records.fingerprint()[:16]}.npy"
    if not path.is_file():
        np.save(path, nearfar.load(asked.encoder).encode(records.texts[0], normalize=True))
    found: np.ndarray[Any, Any] = np.load(path)
    return found


def ordered(draw: Draw, order: str, count: int, seed: int, python: str | None) -> list[int]:
    """The first rows that are labeled."""
    n = len(draw.labels)
    first = generator(seed, "labeling", "random").permutation(n)
    if order == "random":
        return first[:count].tolist()
    if order == "proposed":
        return list(proposed(draw, count, seed))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "draw.npz"
        values = {"vectors": draw.vectors, "labels": draw.labels, "first": _two_classes(draw, first)}
        np.savez(path, **values, seed=seed, batch=BATCH, count=count)
        worker = Path(__file__).parent / "workers" / "query_order.py"
        done = subprocess.run([str(python), str(worker), str(path), order], capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"{order}: {done.stderr[-2000:]}")
        rows: list[int] = json.loads(done.stdout.splitlines()[-1])
        return rows


def _two_classes(draw: Draw, order: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The first batch of a random order; longer, if all its texts are of one class."""
    many = BATCH
    while len(np.unique(draw.labels[order[:many]])) < 2:
        many += BATCH
    return order[:many]


def proposed(draw: Draw, count: int, seed: int) -> Iterator[int]:
    """The rows that ``nearfar label`` proposes, as an annotator labels them."""
    from nearfar.workbench.proposal import Pool, propose

    labels, given = np.full(len(draw.labels), -1), 0
    classes = int(draw.labels.max()) + 1
    while given < count:
        rows = propose(Pool(draw.vectors, labels, labels < 0, classes), BATCH, seed=seed)
        labels[rows] = draw.labels[rows]
        given += len(rows)
        yield from rows.tolist()


def frozen(draw: Draw, rows: Sequence[int]) -> float:
    """The accuracy of a logistic head on frozen vectors."""
    from sklearn.linear_model import LogisticRegression

    known = draw.labels[list(rows)]
    if len(np.unique(known)) < 2:
        return float((draw.test_labels == known[0]).mean())
    head = LogisticRegression(C=10.0, max_iter=500, class_weight="balanced")
    return float(head.fit(draw.vectors[list(rows)], known).score(draw.test_vectors, draw.test_labels))


def trained(draw: Draw, rows: Sequence[int], encoder: str, seed: int) -> float:
    """The accuracy of the classifier that the page trains."""
    import nearfar

    known = [str(draw.labels[row]) for row in rows]
    if len(set(known)) < 2:
        return float(np.mean([str(label) == known[0] for label in draw.test_labels]))
    model = nearfar.Classifier(encoder, label_names=None, estimate=False, random_state=seed)
    model.fit([draw.texts[row] for row in rows], known)
    return float(np.mean(model.predict(draw.test_texts) == draw.test_labels.astype(str)))


def key(line: dict[str, Any]) -> tuple[Any, ...]:
    """What a line is the result of."""
    return line["set"], line["seed"], line["order"], line["kind"], line["labels"]


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The results so far."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.is_file() else []


def table(lines: Sequence[dict[str, Any]]) -> str:
    """Mean accuracies by order and number of labels, and whether labels are saved."""
    scores = {key(line): 100 * line["accuracy"] for line in lines}
    parts = []
    for kind in sorted({line["kind"] for line in lines}):
        mine = [line for line in lines if line["kind"] == kind]
        numbers = sorted({line["labels"] for line in mine})
        places = sorted({(line["set"], line["seed"]) for line in mine})
        rows = []
        for order in sorted({line["order"] for line in mine}, key=[*OWN, *SMALL_TEXT].index):
            cells = []
            for n in numbers:
                every = [scores.get((*place, order, kind, n)) for place in places]
                there = [score for score in every if score is not None]
                cells.append(f"{statistics.mean(there):.1f} ({len(there)})" if there else "-")
            rows.append([order, *cells])
        parts.append(f"Accuracy, {kind} (draws):\n\n" + markdown(["Order", *(f"{n} labels" for n in numbers)], rows))
        saved = []
        for few, many in SAVED:
            both = [
                (scores[(*place, "proposed", kind, few)], scores[(*place, "random", kind, many)])
                for place in places
                if {(*place, "proposed", kind, few), (*place, "random", kind, many)} <= scores.keys()
            ]
            if both:
                mean, error = paired([one for one, _ in both], [other for _, other in both])
                saved.append([f"{few} proposed against {many} random", f"{mean:+.1f} ± {error:.1f}", str(len(both))])
        parts.append(markdown(["40 % fewer labels", "Difference", "Draws"], saved))
        for name in sorted({line["set"] for line in mine}):
            cells = [
                [order, *(_mean([scores.get((name, seed, order, kind, n)) for seed in range(SEEDS)]) for n in numbers)]
                for order in sorted({line["order"] for line in mine}, key=[*OWN, *SMALL_TEXT].index)
            ]
            parts.append(f"{name}, {kind}:\n\n" + markdown(["Order", *map(str, numbers)], cells))
    return "\n\n".join(parts)


def _mean(values: Sequence[float | None]) -> str:
    there = [value for value in values if value is not None]
    return f"{statistics.mean(there):.1f}" if there else "-"


if __name__ == "__main__":
    sys.exit(main())
