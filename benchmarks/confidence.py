"""Whether a model knows what it does not know: calibration, rejection and extension.

    python -m benchmarks.confidence calibration   # ECE and log-loss with and without the temperature
    python -m benchmarks.confidence scope         # Banking77 with 20 classes held back, and then added
    python -m benchmarks.confidence table

Draws are those of benchmarks.few_labels (seed 0 and up); thresholds and priors were chosen on other ones. Every result
is one line of JSON in --results; what is there already is not measured again.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.compare import DATA
from benchmarks.few_labels import Results, pool_and_test
from benchmarks.tables import markdown
from benchmarks.turns import tell
from nearfar.data import Records, per_class

SETS = ("trec", "sst5", "cr", "subj", "mr", "mpqa", "goemotions", "banking77")
HELD = 20
"""Classes of Banking77 that are held back."""
TEST_TEXTS = 1_000
RESULTS = Path(__file__).with_suffix(".jsonl")

Line = dict[str, Any]


def train(records: Records, folder: Path, **settings: Any) -> Path:
    """``nearfar train`` without settings, on rows in memory."""
    from nearfar.pipeline import train as run
    from nearfar.recipe import build_recipe

    recipe = build_recipe({"data": {"train": "memory:train", "dev": 0.0}, **settings}, where="benchmark")
    run(recipe, folder, data=records)
    return folder


def calibration(data: str, n: int, seed: int, source: Path) -> Line:
    """A model on a draw, with its temperature and with a temperature of 1."""
    from nearfar.encoding import load
    from nearfar.evaluation.calibration import calibration_error, log_loss
    from nearfar.pipeline.data import class_numbers

    pool, test = pool_and_test(source / data, at_most=TEST_TEXTS)
    with tempfile.TemporaryDirectory() as scratch:
        model = load(train(pool.take(per_class(pool, n, seed=seed)), Path(scratch) / "model"))
    texts: Any = test.texts[0]
    truth, temperature = class_numbers(test, model.labels or ()), model.model.temperature
    line: Line = {"temperature": temperature}
    for name, value in (("before", 1.0), ("after", temperature)):
        model.model.temperature = value
        chances = model.probabilities(texts)
        line |= {f"ece_{name}": calibration_error(chances, truth), f"log_loss_{name}": log_loss(chances, truth)}
    return {**line, "accuracy": float((chances.argmax(axis=1) == truth).mean())}


def held_back(seed: int, source: Path) -> tuple[Records, Records, list[str]]:
    """The pool of Banking77, its test texts, and the classes of this draw that are held back."""
    pool, test = pool_and_test(source / "banking77", at_most=TEST_TEXTS)
    classes = sorted(set(pool.labels or ()))
    return pool, test, np.random.default_rng(seed).permutation(classes)[:HELD].tolist()


def of_classes(records: Records, labels: Sequence[str], *, inside: bool) -> Records:
    """The rows whose label is among these, or is not."""
    return records.take([row for row, label in enumerate(records.labels or ()) if (label in labels) == inside])


def scope(n: int, seed: int, source: Path) -> list[Line]:
    """Rejection of texts of the classes held back, beside baselines; and the model extended by these classes."""
    from nearfar.encoding import load
    from nearfar.evaluation.out_of_scope import scope_report
    from nearfar.pipeline.extension import extend

    pool, test, held = held_back(seed, source)
    drawn = of_classes(pool, held, inside=False)
    drawn = drawn.take(per_class(drawn, n, seed=seed))
    with tempfile.TemporaryDirectory() as scratch:
        model = load(train(drawn, Path(scratch) / "model", head={"keep_vectors": True}))
        inside, outside = (of_classes(test, held, inside=within) for within in (False, True))
        lines = []
        texts: list[Any] = [rows.texts[0] for rows in (inside, outside)]
        chances, typical = zip(*(model.typical_probabilities(one) for one in texts), strict=True)
        kept = model.model.scope
        assert kept is not None
        assert kept.vectors is not None
        known = kept.vectors.numpy()
        nearest = [(_unit(model.embed(one)) @ known.T).max(axis=1) for one in texts]
        for name, scores in (
            ("typicality", typical),
            ("maximum softmax", [one.max(axis=1) for one in chances]),
            ("nearest neighbor", nearest),
        ):
            lines.append({"what": "scope", "score": name, **scope_report(*scores, 0.05).scores})
        more = of_classes(pool, held, inside=True)
        more = more.take(per_class(more, n, seed=seed))
        lines += [
            _extended(model, extend, drawn, more, (inside, outside), vectors=vectors) for vectors in (True, False)
        ]
    every = pool.take(per_class(pool, n, seed=seed))
    with tempfile.TemporaryDirectory() as scratch:
        began = time.process_time()
        again = load(train(every, Path(scratch) / "model"))
        seconds = time.process_time() - began
    scores = {name: _accuracy(again, rows) for name, rows in (("old", inside), ("new", outside))}
    return [*lines, {"what": "extension", "how": "trained again on all", "cpu_seconds": seconds, **scores}]


def _extended(
    model: Any, extend: Any, drawn: Records, more: Records, tests: tuple[Records, Records], *, vectors: bool
) -> Line:
    """The accuracy on old and new classes of a model that is extended, with or without the vectors of its texts."""
    kept = model.model.scope
    both = kept.vectors, kept.labels
    if not vectors:
        kept.vectors = kept.labels = None
    began = time.process_time()
    extended = extend(model, more).model
    seconds = time.process_time() - began
    kept.vectors, kept.labels = both
    scores = {name: _accuracy(extended, rows) for name, rows in zip(("old", "new"), tests, strict=True)}
    how = "extended, vectors kept" if vectors else "extended, centers alone"
    before = _accuracy(model, tests[0])
    return {"what": "extension", "how": how, "cpu_seconds": seconds, "before": before, "texts": len(drawn), **scores}


def _accuracy(model: Any, rows: Records) -> float:
    said = [one.label for one in model.predict(rows.texts[0])]
    return float(np.mean([one == label for one, label in zip(said, rows.labels or (), strict=True)]))


def _unit(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    unit: NDArray[np.float32] = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return unit


def table(lines: Sequence[Line]) -> str:
    """All results as Markdown."""
    parts = []
    calibrated = [line for line in lines if line["what"] == "calibration"]
    if calibrated:
        rows = [_calibration_row(f"{line['data']}, {line['n']}, draw {line['seed']}", [line]) for line in calibrated]
        rows.append(_calibration_row(f"mean of {len(calibrated)}", calibrated))
        header = ["data, texts a class", "accuracy", "temperature", "ECE before", "after", "log-loss before", "after"]
        parts.append(markdown(header, rows))
    rejected = [line for line in lines if line["what"] == "scope"]
    if rejected:
        keys = ("auroc", "fpr_95", "rejected_in_scope", "rejected_out_of_scope")
        rows = [
            [f"{line['n']}, draw {line['seed']}", line["score"], *(f"{100 * line[key]:.1f}" for key in keys)]
            for line in rejected
        ]
        parts.append(markdown(["Banking77, texts a class", "score", *keys], rows))
    extended = [line for line in lines if line["what"] == "extension"]
    if extended:
        rows = [[f"{line['n']}, draw {line['seed']}", *_extension_row([line])] for line in extended]
        for how in dict.fromkeys(line["how"] for line in extended):
            same = [line for line in extended if line["how"] == how]
            rows.append([f"mean of {len(same)}", *_extension_row(same)])
        header = ["Banking77, texts a class", "model", "57 old classes before", "after", "20 new", "CPU seconds"]
        parts.append(markdown(header, rows))
    return "\n\n".join(parts)


def _extension_row(lines: Sequence[Line]) -> list[str]:
    before = [line["before"] for line in lines if "before" in line]
    shares = [before, *([line[key] for line in lines] for key in ("old", "new"))]
    cells = [f"{100 * statistics.mean(values):.1f}" if values else "" for values in shares]
    return [lines[0]["how"], *cells, f"{statistics.mean(line['cpu_seconds'] for line in lines):.1f}"]


def _calibration_row(name: str, lines: Sequence[Line]) -> list[str]:
    def mean(key: str) -> float:
        return statistics.mean(line[key] for line in lines)

    shares = [f"{100 * mean(key):.1f}" for key in ("ece_before", "ece_after")]
    losses = [f"{mean(key):.3f}" for key in ("log_loss_before", "log_loss_after")]
    return [name, f"{100 * mean('accuracy'):.1f}", f"{mean('temperature'):.2f}", *shares, *losses]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure what is missing, or print the table."""
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("what", choices=("calibration", "scope", "table"))
    made.add_argument("--source", type=Path, default=DATA, metavar="FOLDER", help="holds the data sets")
    made.add_argument("--results", type=Path, default=RESULTS, metavar="FILE")
    made.add_argument("--data", action="append", choices=SETS, help="one data set; repeatable")
    made.add_argument("--n", action="append", type=int, help="texts a class; repeatable; default 8")
    made.add_argument("--seed", action="append", type=int, help="one draw; repeatable; default 0")
    options = made.parse_args(arguments)
    results = Results(options.results)
    if options.what == "table":
        print(table(results.lines()))
        return 0
    known = {tuple(line.get(key) for key in ("what", "data", "n", "seed")) for line in results.lines()}
    for n in options.n or [8]:
        for seed in options.seed or [0]:
            for data in (options.data or SETS) if options.what == "calibration" else ["banking77"]:
                case = {"data": data, "n": n, "seed": seed}
                if (options.what, *case.values()) in known:
                    continue
                if options.what == "calibration":
                    lines = [{"what": "calibration", **calibration(data, n, seed, options.source)}]
                else:
                    lines = scope(n, seed, options.source)
                for line in lines:
                    results.add({**case, **line})
                tell(f"{options.what}: {data}, {n} a class, draw {seed}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
