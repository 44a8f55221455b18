"""What the defaults reach, against a small search: one line of JSON a run, for every objective, data size and encoder.

    python -m benchmarks.defaults run                     # all cells, the most important ones first; some hours
    python -m benchmarks.defaults run --minutes 60 --encoder minilm --rows 100
    python -m benchmarks.defaults table                   # what is there, as Markdown
    python -m benchmarks.defaults page                    # writes it into docs/why/defaults.md

A cell is an encoder, a data set, a number of rows and an objective. In a cell the defaults and every setting of the
search are trained on the development draw. If the defaults reach 95 % of the best setting there, the cell is done: the
best of several on one draw is favored, so the share can only be higher on average. Otherwise the defaults and the best
setting are trained on two other draws, and the table is of these. Runs that are in benchmarks/defaults already are not
repeated: the command can be stopped and started again, and several of them can share the work (--share 0/2 and
--share 1/2).

Not every combination is a cell: DESIGN says which encoder meets which data. Every objective meets every number of
rows; objectives of classes meet 2, 6, 20 and 77 classes; large data sets are left to small encoders.

Classes are scored by accuracy, pairs by the metric of their row type, plain texts by Spearman's correlation on STS-B.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.bench import ROOT
from benchmarks.compare import DATA
from benchmarks.few_labels import Results, pool_and_test
from benchmarks.tables import markdown
from benchmarks.turns import tell
from nearfar.data import Records, limit, per_class, read

LINES = Path(__file__).with_name("defaults")
TEST_ROWS = 500
DEVELOPMENT, DRAWS = 0, (10, 11)
"""The draw that settings are chosen on, and those they are compared on."""
DEFAULT = "default"
ENOUGH = 0.95
"""The share of the search's score that the defaults are to reach."""
PRECISION = "bf16"
PAGE = ROOT / "docs" / "why" / "defaults.md"
BEGIN, END = "<!-- table of benchmarks/defaults.py -->", "<!-- end of table -->"
Values = dict[str, Any]
Line = dict[str, Any]


@dataclass(frozen=True)
class DataSet:
    """Rows to draw from, and rows to test on."""

    objectives: tuple[str, ...]
    metric: str
    rows: Callable[[Path], tuple[Records, Records]]
    classes: int = 0


HEADED = ("cross-entropy", "triple-entropy", "cross-entropy+supcon", "label-aware")
FITTED = ("supcon", "soft-triple", "proxy-nca", "triplet", "contrastive")
SCORED = ("cosine-mse", "pearson", "batch-softmax", "mnrl")
BINARY = ("contrastive-pairs", "pair-triplet", "batch-softmax", "cosine-mse")
POSITIVE = ("batch-softmax", "mnrl", "pair-triplet")
PLAIN = ("simcse", "mirror")
RATED = ("score-mse",)


def _labeled(folder: Path, classes: int = 0) -> tuple[Records, Records]:
    pool, test = pool_and_test(folder, at_most=10 * TEST_ROWS)
    if classes:
        kept = set(sorted(set(pool.labels or ()))[:classes])
        pool, test = (part.take([row for row, label in enumerate(part.labels or ()) if label in kept])
                      for part in (pool, test))  # fmt: skip
    return pool, test


def _split(folder: Path, train: str, test: str, **needs: Any) -> tuple[Records, Records]:
    return read(str(folder / f"{train}.jsonl.gz"), **needs), read(str(folder / f"{test}.jsonl.gz"), **needs)


def _plain(source: Path) -> tuple[Records, Records]:
    return read(str(source / "stsb_plain_10k" / "train.jsonl.gz")), _split(source / "stsb", "train", "test")[1]


DATASETS: dict[str, DataSet] = {
    "trec": DataSet((*HEADED, *FITTED), "accuracy", lambda source: _labeled(source / "trec"), 6),
    "mpqa": DataSet((*HEADED, *FITTED), "accuracy", lambda source: _labeled(source / "mpqa"), 2),
    "banking20": DataSet((*HEADED, *FITTED), "accuracy", lambda source: _labeled(source / "banking77", 20), 20),
    "banking77": DataSet((*HEADED, *FITTED), "accuracy", lambda source: _labeled(source / "banking77"), 77),
    "stsb": DataSet(SCORED, "spearman", lambda source: _split(source / "stsb", "train", "test")),
    "mrpc": DataSet(BINARY, "average_precision", lambda source: _split(source / "mrpc", "train", "test")),
    "duplicates": DataSet(POSITIVE, "mrr", lambda source: _halves(source / "qqp_duplicates/all.jsonl.gz")),
    "ratings": DataSet(RATED, "spearman", lambda source: _halves(source / "vader_snippets/tweets.jsonl.gz")),
    "plain": DataSet(PLAIN, "spearman", _plain),
}


def _halves(file: Path) -> tuple[Records, Records]:
    records = replace(read(str(file)), labels=None)  # all duplicates have the same label: they are positive pairs
    half = len(records) // 2
    return records.take(range(half)), records.take(range(half, len(records)))


ENCODERS: dict[str, str] = {
    "minilm": "minilm",
    "minilm-l3": str(ROOT.parent / "shared" / "models" / "paraphrase-minilm-l3"),
    "bert-tiny": str(ROOT.parent / "shared" / "models" / "bert-tiny-questions"),
    "tinybert": str(ROOT.parent / "shared" / "models" / "tinybert-ner"),
    "distilbert": str(ROOT.parent / "shared" / "models" / "distilbert-gec"),
}
"""Two sentence encoders, and bodies of language models of three sizes."""
SENTENCE_ENCODERS = ("minilm", "minilm-l3")
PAIRS = ("stsb", "mrpc", "duplicates", "ratings")
DESIGN: dict[int, dict[str, tuple[str, ...]]] = {
    100: {
        "minilm": ("trec",),
        "tinybert": ("trec", "banking77"),
        "bert-tiny": ("trec", "banking77", *PAIRS, "plain"),
        "minilm-l3": ("banking77", "stsb", "duplicates"),
    },
    20: {
        "tinybert": ("banking20",),
        "bert-tiny": ("mpqa", "trec", "banking20", *PAIRS),
        "minilm-l3": ("banking20", "mrpc", "duplicates"),
    },
    1_000: {"bert-tiny": ("mpqa", "banking77", *PAIRS, "plain"), "minilm-l3": ("mpqa", "ratings")},
    10_000: {"bert-tiny": ("mpqa", "banking77", "duplicates", "plain")},
}
"""Which encoder meets which data, by the number of rows."""
MAIN = ("cross-entropy", "cross-entropy+supcon", "supcon", "batch-softmax", "simcse")
SLOW = ("minilm", "tinybert")
"""The slower encoders, and 10,000 rows, are measured with the main objectives alone."""
SIZES = tuple(DESIGN)


class Cell(NamedTuple):
    """What the defaults are compared for."""

    encoder: str
    data: str
    rows: int
    objective: str

    def __str__(self) -> str:
        return f"{self.encoder}, {self.data}, {self.rows:,} rows, {self.objective}"


class Run(NamedTuple):
    """One training."""

    cell: Cell
    setting: str
    draw: int


def cells(
    encoders: Sequence[str] = tuple(ENCODERS), data: Sequence[str] = tuple(DATASETS), sizes: Sequence[int] = SIZES,
    objectives: Sequence[str] = (),
) -> list[Cell]:  # fmt: skip
    """The cells in the order of their importance: small before large, classes before pairs."""
    return [
        Cell(encoder, name, rows, objective)
        for rows in sizes
        for classes in (True, False)
        for encoder, names in DESIGN[rows].items()
        if encoder in encoders
        for name in names
        if name in data and bool(DATASETS[name].classes) == classes
        for objective in DATASETS[name].objectives
        if (not objectives or objective in objectives)
        and (objective in MAIN or (encoder not in SLOW and rows < 10_000))
    ]


def settings_of(cell: Cell) -> dict[str, Values]:
    """The defaults and the settings of the search, by their names: tables of a recipe."""
    if cell.rows > 1_000:
        pooling = "mean" if cell.objective in HEADED else None
        return {
            DEFAULT: {},
            "1e-4 x 2 epochs": _epochs(1e-4, 2, pooling),
            "3e-4 x 3 epochs": _epochs(3e-4, 3, pooling),
            "2e-5 x 3 epochs": _epochs(2e-5, 3, pooling),
        }
    if cell.rows == 1_000:
        pooling = "mean" if cell.objective in HEADED else None
        return {
            DEFAULT: {},
            "1e-4 x 60": _setting(1e-4, 60, pooling=pooling),
            "2e-4 x 60": _setting(2e-4, 60, pooling=pooling),
            "3e-5 x 60": _setting(3e-5, 60, pooling=pooling),
        }
    short, long = 30, 80
    if cell.objective in HEADED:
        rate, steps, name = (2e-4, short, "2e-4") if cell.encoder in SENTENCE_ENCODERS else (1e-4, 2 * long, "1e-4")
        return {
            DEFAULT: {},
            f"mean, 1e-4 x {short}": _setting(1e-4, short, pooling="mean"),
            f"mean, 5e-5 x {long}": _setting(5e-5, long, pooling="mean"),
            f"mean, {name} x {steps}": _setting(rate, steps, pooling="mean"),
            f"native, 1e-4 x {long}": _setting(1e-4, long, head_rate=1e-4),
        }
    longer = {} if cell.encoder in SENTENCE_ENCODERS else {f"1e-4 x {long}": _setting(1e-4, long)}
    return {
        DEFAULT: {},
        f"1e-4 x {short}": _setting(1e-4, short),
        f"2e-4 x {short}": _setting(2e-4, short),
        f"3e-5 x {short}": _setting(3e-5, short),
        **longer,
    }


def _setting(rate: float, steps: int, *, pooling: str | None = None, head_rate: float | None = None) -> Values:
    """So many steps at a learning rate; a learning rate of the head is for the architecture's own."""
    training: Values = {"learning_rate": rate, "max_steps": steps, "epochs": steps}  # as many epochs as there can be
    if head_rate is not None:
        return {"training": {**training, "head_learning_rate": head_rate}, "head": {"kind": "native"}}
    return {"training": training, **({"encoder": {"pooling": pooling}} if pooling else {})}


def _epochs(rate: float, epochs: int, pooling: str | None) -> Values:
    training: Values = {"learning_rate": rate, "epochs": epochs}
    return {"training": training, **({"encoder": {"pooling": pooling}} if pooling else {})}


@cache
def _encoder(name: str) -> str:
    """The folder of an encoder; the copy of a sentence encoder states its pooling, as its original does."""
    folder = Path(ENCODERS[name])
    if name not in SENTENCE_ENCODERS or not folder.is_dir():
        return ENCODERS[name]
    stated = Path(tempfile.mkdtemp(prefix="nearfar-encoder-"))
    for file in folder.iterdir():
        shutil.copy(file, stated)
    kinds = (("", "Transformer"), ("1_Pooling", "Pooling"))
    modules = [{"path": path, "type": f"sentence_transformers.models.{kind}"} for path, kind in kinds]
    (stated / "modules.json").write_text(json.dumps(modules))
    (stated / "1_Pooling").mkdir()
    (stated / "1_Pooling" / "config.json").write_text('{"pooling_mode_mean_tokens": true}')
    return str(stated)


@lru_cache(maxsize=2)
def _rows(data: str, source: Path) -> tuple[Records, Records]:
    return DATASETS[data].rows(source)


def drawn(cell: Cell, draw: int, source: Path) -> dict[str, Records]:
    """The training rows of a draw, each class at least once, and the test rows, which all draws share."""
    pool, test = _rows(cell.data, source)
    classes = DATASETS[cell.data].classes
    if classes and cell.rows < 3 * classes:
        train = pool.take(per_class(pool, cell.rows // classes, seed=draw))
    else:
        train = pool.take(limit(pool, cell.rows, seed=draw))
    return {"train": train, "test": test.take(limit(test, TEST_ROWS, seed=0))}


def measure(run: Run, source: Path) -> Line:
    """Train as the setting says, and test."""
    from nearfar.pipeline import train as train_recipe
    from nearfar.recipe import build_recipe

    cell, given = run.cell, settings_of(run.cell)[run.setting]
    rows = drawn(cell, run.draw, source)
    values: Values = {
        "seed": run.draw,
        "data": {"train": "-"},
        "encoder": {"name": _encoder(cell.encoder), **given.get("encoder", {})},
        "objective": {"name": cell.objective},
        "head": given.get("head", {}),
        "training": {"precision": PRECISION, "estimate": False, **given.get("training", {})},
    }
    with tempfile.TemporaryDirectory(prefix="nearfar-defaults-") as scratch:
        began = time.process_time()
        summary = train_recipe(build_recipe(values, where="benchmark"), Path(scratch) / "model", data=rows)
        seconds = time.process_time() - began
    assert summary.progress is not None
    return {
        **cell._asdict(), "setting": run.setting, "draw": run.draw,
        "score": summary.report("test").scores[DATASETS[cell.data].metric],
        "steps": summary.progress.step, "cpu_seconds": round(seconds, 1),
    }  # fmt: skip


class Lines:
    """The results of all runs: one file for each encoder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def file(self, encoder: str) -> Results:
        """The file of an encoder."""
        return Results(self.folder / f"{encoder}.jsonl")

    def scores(self) -> dict[Run, float]:
        """The score of every run."""
        return {
            Run(Cell(line["encoder"], line["data"], line["rows"], line["objective"]), line["setting"], line["draw"]):
            line["score"]
            for path in sorted(self.folder.glob("*.jsonl"))
            for line in Results(path).lines()
        }  # fmt: skip


def best_setting(cell: Cell, scores: Mapping[Run, float]) -> str | None:
    """The setting that was best on the development draw; None as long as some of them are missing."""
    found = {name: scores.get(Run(cell, name, DEVELOPMENT)) for name in settings_of(cell)}
    if any(score is None for score in found.values()):
        return None
    return max(found, key=lambda name: found[name] or 0.0)


def is_enough(cell: Cell, best: str, scores: Mapping[Run, float]) -> bool:
    """Whether the defaults reach their share of the best setting on the very draw that it was chosen on."""
    return scores[Run(cell, DEFAULT, DEVELOPMENT)] >= ENOUGH * scores[Run(cell, best, DEVELOPMENT)]


def pending(cell: Cell, scores: Mapping[Run, float], draws: Sequence[int] = DRAWS) -> Iterator[Run]:
    """The runs of a cell that are not there yet, as far as they are known: the search before what it decides."""
    best = best_setting(cell, scores)
    wanted = [Run(cell, name, DEVELOPMENT) for name in settings_of(cell)]
    if best is not None and not is_enough(cell, best, scores):
        wanted += [Run(cell, name, draw) for draw in draws for name in dict.fromkeys((DEFAULT, best))]
    yield from (run for run in wanted if run not in scores)


def drive(
    wanted: Sequence[Cell], lines: Lines, source: Path, *, seconds: float = float("inf"), draws: Sequence[int] = DRAWS,
    measured: Callable[[Run, Path], Line] = measure,
) -> int:  # fmt: skip
    """Measure what is not there yet, for so long; returns how many runs failed."""
    began, failed = time.monotonic(), set[Run]()
    for cell in wanted:
        while time.monotonic() - began < seconds:
            run = next((run for run in pending(cell, lines.scores(), draws) if run not in failed), None)
            if run is None:
                break
            try:
                line = measured(run, source)
            except Exception as problem:  # the hours after this run are not to be lost with it
                failed.add(run)
                tell(f"{cell}, {run.setting}, draw {run.draw}: {type(problem).__name__}: {problem}")
                continue
            lines.file(cell.encoder).add(line)
            tell(f"{cell}, {run.setting}, draw {run.draw}: {line['score']:.3f}, {line['steps']} steps")
    return len(failed)


class Compared(NamedTuple):
    """The defaults of a cell against the setting that a search found."""

    cell: Cell
    default: float
    best: float
    setting: str
    draws: int

    @property
    def share(self) -> float:
        """How much of the search's score the defaults reach."""
        return self.default / self.best if self.best > 0 else 1.0


def compared(scores: Mapping[Run, float], draws: Sequence[int] = DRAWS) -> list[Compared]:
    """The cells whose search is complete, on the draws that both sides have."""
    found = []
    for cell in dict.fromkeys(run.cell for run in scores):
        best = best_setting(cell, scores)
        if best is None:
            continue
        counted = (DEVELOPMENT,) if is_enough(cell, best, scores) else draws
        both = [
            (scores[Run(cell, DEFAULT, draw)], scores[Run(cell, best, draw)])
            for draw in counted
            if Run(cell, DEFAULT, draw) in scores and Run(cell, best, draw) in scores
        ]
        if both:
            default, other = (statistics.mean(side) for side in zip(*both, strict=True))
            found.append(Compared(cell, default, other, best, len(both)))
    return found


def table(found: Sequence[Compared]) -> str:
    """One row a cell; the share is bold where the defaults fall short."""
    rows = []
    for one in sorted(found, key=lambda one: (one.cell.encoder, list(DATASETS).index(one.cell.data), one.cell.rows)):
        share = f"{100 * one.share:.0f} %"
        classes = DATASETS[one.cell.data].classes
        rows.append([
            f"{one.cell.encoder}, {one.cell.data}" + (f" ({classes} classes)" if classes else ""),
            f"{one.cell.rows:,}", one.cell.objective, f"{100 * one.default:.1f}", f"{100 * one.best:.1f}", one.setting,
            share if one.share >= ENOUGH else f"**{share}**",
        ])  # fmt: skip
    return markdown(["encoder, data", "rows", "objective", "defaults", "search", "its setting", "share"], rows)


def summary(found: Sequence[Compared]) -> str:
    """How many cells there are, and in how many the defaults fall short."""
    short = [one for one in found if one.share < ENOUGH]
    return (
        f"{len(found)} of {len(cells())} cells are measured; in {len(short)} of them the defaults reach less than "
        f"{100 * ENOUGH:.0f} %."
    )


def with_table(page: str, lines: str) -> str:
    """The page with the table between its two marks."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise SystemExit(f"{PAGE.name} has no place for the table: it begins at {BEGIN} and ends at {END}.")
    return f"{before}{BEGIN}\n\n{lines}\n\n{END}{after}"


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("what", choices=("run", "table", "page"))
    made.add_argument("--results", type=Path, default=LINES, metavar="FOLDER", help="one file of lines an encoder")
    made.add_argument("--source", type=Path, default=DATA, metavar="FOLDER", help="holds the data sets")
    made.add_argument("--encoder", action="append", choices=ENCODERS, help="one encoder; repeatable")
    made.add_argument("--data", action="append", choices=DATASETS, help="one data set; repeatable")
    made.add_argument("--rows", action="append", type=int, help="one size; repeatable")
    made.add_argument("--objective", action="append", help="one objective; repeatable")
    made.add_argument("--minutes", type=float, default=float("inf"), help="stop after so many minutes")
    made.add_argument("--share", default="0/1", metavar="I/N", help="every N-th cell from the I-th on")
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    """0 when all runs went well, 1 when some failed."""
    options = parser().parse_args(arguments)
    lines = Lines(options.results)
    wanted = cells(
        options.encoder or tuple(ENCODERS), options.data or tuple(DATASETS), options.rows or SIZES,
        options.objective or (),
    )  # fmt: skip
    if options.what in ("table", "page"):
        found = [one for one in compared(lines.scores()) if one.cell in wanted]
        text = f"{summary(found)}\n\n{table(found)}"
        if options.what == "table":
            print(text)
        else:
            PAGE.write_text(with_table(PAGE.read_text(encoding="utf-8"), text), encoding="utf-8")
        return 0
    first, step = map(int, options.share.split("/"))
    return int(drive(wanted[first::step], lines, options.source, seconds=60 * options.minutes) > 0)


if __name__ == "__main__":
    sys.exit(main())
