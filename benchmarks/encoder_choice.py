"""Whether ``--encoder NAME,NAME`` chooses the encoder that is the most accurate after training.

    python -m benchmarks.encoder_choice run --encoder minilm --encoder FOLDER
    python -m benchmarks.encoder_choice table

On draws of benchmarks.few_labels, without class names: the choice by the labeled texts, its processor time, and the
accuracy of every candidate on test texts. Every draw is one line of JSON in --results; what is there already is not
measured again. In the lines, an encoder in a folder has the name of the folder.
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

from benchmarks.compare import DATA
from benchmarks.few_labels import Case, Line, Results, cases, pool_and_test
from benchmarks.tables import markdown
from benchmarks.turns import tell
from nearfar.data import Records, per_class

SETS = ("trec", "sst5", "cr", "subj")
TEST_TEXTS = 500
RESULTS = Path(__file__).with_suffix(".jsonl")


def values(encoder: str) -> dict[str, Any]:
    """The recipe of all trainings: defaults, without class names."""
    return {
        "data": {"train": "memory:train", "dev": 0.0, "names": "none"},
        "encoder": {"name": encoder},
        "training": {"estimate": False},
    }


def measure(case: Case, encoders: Sequence[str], source: Path) -> Line:
    """What is chosen by the labeled texts of a draw, and the accuracy of each candidate."""
    from nearfar.pipeline.encoder_choice import choose_encoder
    from nearfar.recipe import build_recipe

    pool, test = pool_and_test(source / case.data, at_most=TEST_TEXTS)
    drawn = pool.take(per_class(pool, case.n, seed=case.seed))
    began = time.process_time()
    plan = choose_encoder(build_recipe(values(",".join(encoders)), where="benchmark"), drawn)
    seconds = time.process_time() - began
    notes = [note for note in plan.notes if note.startswith("encoders by")]
    for name in encoders:
        notes = [note.replace(str(Path(name).resolve()), short(name)) for note in notes]
    return {
        "chosen": short(plan.recipe.encoder.name),
        "cpu_seconds": seconds,
        "note": " ".join(notes),
        "accuracy": {short(name): accuracy_of(name, drawn, test) for name in encoders},
    }


def short(name: str) -> str:
    """A folder by its own name."""
    return Path(name).name if Path(name).is_dir() else name


def accuracy_of(encoder: str, drawn: Records, test: Records) -> float:
    """The accuracy of a model of one encoder."""
    from nearfar.encoding import load
    from nearfar.pipeline import train
    from nearfar.recipe import build_recipe

    with tempfile.TemporaryDirectory() as scratch:
        train(build_recipe(values(encoder), where="benchmark"), Path(scratch) / "model", data=drawn)
        said = load(Path(scratch) / "model").predict(list(test.texts[0]))
    return statistics.fmean(one.label == label for one, label in zip(said, test.labels or (), strict=True))


def table(lines: Sequence[Line]) -> str:
    """Mean accuracies by data set, how often the best encoder was chosen, and what the choice loses to it."""
    names = list(dict.fromkeys(name for line in lines for name in line["accuracy"]))
    groups = [
        (f"{data}, {n}", [line for line in lines if (line["data"], line["n"]) == (data, n)]) for data, n in _keys(lines)
    ]
    groups.append(("all", list(lines)))
    header = ["data, texts a class", "draws", *names, "chosen", "best chosen", "lost to the best", "CPU seconds"]
    return markdown(header, [[name, *row(inside, names)] for name, inside in groups])


def row(lines: Sequence[Line], names: Sequence[str]) -> list[str]:
    """The cells of some draws."""
    means = [statistics.fmean(100 * line["accuracy"][name] for line in lines) for name in names]
    chosen = [100 * line["accuracy"][line["chosen"]] for line in lines]
    best = [100 * max(line["accuracy"].values()) for line in lines]
    lost = [one - other for one, other in zip(best, chosen, strict=True)]
    return [
        str(len(lines)),
        *(f"{mean:.1f}" for mean in means),
        f"{statistics.fmean(chosen):.1f}",
        str(sum(loss == 0 for loss in lost)),
        f"{statistics.fmean(lost):.1f}",
        f"{statistics.fmean(line['cpu_seconds'] for line in lines):.1f}",
    ]


def _keys(lines: Sequence[Line]) -> list[tuple[str, int]]:
    return list(dict.fromkeys((line["data"], line["n"]) for line in lines))


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure what is missing, or print the table."""
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("what", choices=("run", "table"))
    made.add_argument("--source", type=Path, default=DATA, metavar="FOLDER", help="holds the data sets")
    made.add_argument("--results", type=Path, default=RESULTS, metavar="FILE")
    made.add_argument("--encoder", action="append", help="a candidate; repeatable")
    made.add_argument("--data", action="append", help="one data set; repeatable")
    made.add_argument("--n", action="append", type=int, help="texts a class; repeatable; default 8")
    made.add_argument("--seed", action="append", type=int, help="one draw; repeatable; default 0")
    options = made.parse_args(arguments)
    results = Results(options.results)
    if options.what == "table":
        print(table(results.lines()))
        return 0
    if len(options.encoder or ()) < 2:
        made.error("name two encoders or more: --encoder minilm --encoder FOLDER")
    known = results.by_case()
    for case in cases(options.data or SETS, options.n or [8], options.seed or [0]):
        if case not in known:
            line = measure(case, options.encoder, options.source)
            results.add({**case._asdict(), **line})
            tell(f"{case}: {line['note']}; {line['accuracy']}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
