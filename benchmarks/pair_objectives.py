"""Pair objectives on the same rows: the test score of the weights the dev rows chose, one line of JSON a run.

    OMP_NUM_THREADS=1 python -m benchmarks.pair_objectives run --data stsb --seed 1 --seed 2 --seed 3
    python -m benchmarks.pair_objectives table

A run is a data set, a contender and a seed: the seed draws the training rows and all that is random in training. All
contenders of a data set take the same number of optimizer steps with the same batch size and learning rate; those with
two stages take half of them in each. What is there already is not run again, so several processes may share the work
(--share 0/2 and --share 1/2). Every run has a process of its own, so that its memory is its own. Processor time is that
of training, its evaluations and the test; mining negatives, where a contender needs them, is told apart.

The settings of batch-softmax, temperature, normalization and who sits together, are those of the paper for each data
set: Chernyavskiy et al. 2022, appendix A. Sizes are those of one processor core and a minute or two for a run.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import astuple, dataclass, field, replace
from itertools import combinations
from math import ceil
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.pair_data import Embed, Files, Sizes, write_files
from benchmarks.workers.common import peak_rss_mb

if TYPE_CHECKING:
    from nearfar.evaluation import Report

Line = dict[str, Any]
Values = dict[str, Any]
OURS = "nearfar"
UNTRAINED = "untrained"
"""The encoder as it comes, measured on the same rows."""
WARMUP = 0.1
SAME = ("data", "train", "dev", "test", "corpus", "steps", "batch", "rate", "encoder", "max_length")
"""What runs must share to be compared."""


def bsc(temperature: float = 0.1, **more: Any) -> Values:
    return {"name": "batch-softmax", "temperature": temperature, **more}


MSE = {"name": "cosine-mse"}


def combo(contrast: Values, share: float) -> Values:
    parts = {"contrast": contrast, "squares": MSE}
    return {"name": "blend", "parts": parts, "weights": {"contrast": share, "squares": 1 - share}}


def near(objective: Values, group: int) -> Values:
    """With the paper's example-based batches."""
    return {"objective": objective, "batches": {"shuffle": "neighbors", "group": group}}


def shuffled(objective: Values, shuffle: str, group: int) -> Values:
    return {"objective": objective, "batches": {"shuffle": shuffle, "group": group}}


def staged(*stages: Values, group: int) -> Values:
    return {"stage": list(stages), "batches": {"group": group}}


@dataclass(frozen=True)
class Task:
    """A data set, who trains on it, and what was published about them."""

    scores: tuple[str, ...]
    """What is told of the test rows; contenders are compared by the first."""
    sizes: Sizes
    steps: int
    contenders: dict[str, Values]
    batch: int = 32
    max_length: int = 64
    published: dict[str, tuple[float, ...]] = field(default_factory=dict)
    """In percent, in the order of ``scores``."""
    where: str = ""
    """The table of the paper."""


STSB, CQA_A, CQA_B = bsc(threshold=0.6), bsc(0.055), bsc(0.07)
TASKS = {
    "stsb": Task(
        ("spearman", "pearson"), Sizes(1_000, 400, 0), 62,
        {
            "mse": {"objective": MSE},
            "bsc": near(STSB, 8),
            "combo": near(combo(STSB, 0.1), 8),
            "mse-then-bsc": staged({"objective": MSE}, {"objective": STSB, "shuffle": "neighbors"}, group=8),
            "bsc-then-mse": staged({"objective": STSB, "shuffle": "neighbors"}, {"objective": MSE}, group=8),
            "pearson": {"objective": {"name": "pearson"}},
        },
        published={"mse": (84.80,), "bsc": (83.26,), "combo": (84.59,), "mse-then-bsc": (84.95,),
                   "bsc-then-mse": (85.71,), "pearson": (85.57,)},
        where="table 5, Pearson in the text",
    ),
    "stsb_positives": Task(
        ("spearman", "pearson"), Sizes(1_000, 400, 0), 62,
        {"mnrl": {"objective": {"name": "mnrl"}}, "bsc": {"objective": bsc()}},
    ),
    "mrpc": Task(
        ("f1", "accuracy", "average_precision"), Sizes(640, 0, 0), 30,
        {"mse": {"objective": MSE}, "bsc": near(bsc(), 4), "combo": near(combo(bsc(), 0.1), 4)},
        published={"mse": (89.08,), "bsc": (86.73,), "combo": (89.46,)}, where="table 4",
    ),
    "qqp": Task(
        ("f1", "accuracy", "average_precision"), Sizes(1_000, 500, 2_000), 48,
        {
            "mse": {"objective": MSE},
            "bsc": near(bsc(1.2, normalize="minmax"), 8),
            "combo": near(combo(bsc(1.2, normalize="minmax"), 0.1), 8),
        },
        published={"mse": (74.29,), "bsc": (73.13,), "combo": (75.07,)}, where="table 4",
    ),
    "snopes": Task(
        ("has_positive@1", "has_positive@5", "has_positive@50"), Sizes(0, 0, 0, corpus=2_500), 24,
        {
            "mse": {"objective": MSE, "form": "pairs"},
            "triplet": {"objective": {"name": "pair-triplet", "margin": 0.6}, "form": "triplets"},
            "bsc-row": near(bsc(), 8),
            "bsc-coordinate": near(bsc(1.2, normalize="coordinate"), 8),
            "bsc-minmax": near(bsc(1.2, normalize="minmax"), 8),
            "bsc-none": near(bsc(1.2, normalize="none"), 8),
        },
        published={"mse": (36.2, 50.8, 70.9), "triplet": (66.8, 79.4, 89.9), "bsc-row": (58.8, 76.4, 89.9),
                   "bsc-minmax": (67.3, 84.4, 89.9), "bsc-none": (60.8, 74.4, 88.4)},
        where="table 3, with a corpus of 10,369",
    ),
    "cqa_a": Task(
        ("map", "mrr"), Sizes(480, 300, 800), 15,
        {
            "bsc-file-order": shuffled(CQA_A, "file-order", 8),
            "bsc-random": shuffled(CQA_A, "random", 8),
            "bsc-clusters": shuffled(CQA_A, "clusters", 8),
            "bsc-neighbors": near(CQA_A, 8),
            "mse": {"objective": MSE},
            "combo": near(combo(CQA_A, 0.1), 8),
        },
        max_length=128,
        published={"bsc-file-order": (81.6, 88.4), "bsc-random": (76.3, 82.8), "bsc-clusters": (78.7, 85.9),
                   "bsc-neighbors": (80.1, 86.7), "mse": (86.9, 91.1), "combo": (87.2, 91.2)},
        where="table 2, on 14,110 rows",
    ),
    "cqa_b": Task(
        ("map", "mrr"), Sizes(480, 300, 0), 15,
        {
            "bsc-file-order": shuffled(CQA_B, "file-order", 5),
            "bsc-random": shuffled(CQA_B, "random", 5),
            "bsc-clusters": shuffled(CQA_B, "clusters", 5),
            "bsc-neighbors": near(CQA_B, 5),
            "mse": {"objective": MSE},
            "combo": near(combo(CQA_B, 0.9), 5),
        },
        max_length=128,
        published={"bsc-file-order": (48.1, 53.2), "bsc-random": (48.7, 53.0), "bsc-clusters": (49.3, 53.4),
                   "bsc-neighbors": (49.5, 53.4), "mse": (47.1, 51.3), "combo": (49.6, 54.0)},
        where="table 2, on 19,990 rows",
    ),
    "wikiqa": Task(
        ("map", "mrr", "p@1"), Sizes(1_000, 500, 1_500), 31,
        {"bsc": near(bsc(), 8), "mse": {"objective": MSE}, "combo": near(combo(bsc(), 0.9), 8)},
        published={"bsc": (float("nan"), 80.4, 68.0), "mse": (float("nan"), 78.1, 66.0),
                   "combo": (float("nan"), 82.2, 71.0)},
        where="table 1, which is of Antique",
    ),
}  # fmt: skip


def main(arguments: list[str] | None = None) -> None:
    settings = parsed(arguments)
    if settings.verb == "table":
        print(table(lines(settings.results)))
        return
    for data in settings.data:
        print(described(data, settings), flush=True)
    work(OURS, run_one, chosen(settings), settings)


def chosen(settings: argparse.Namespace) -> list[tuple[str, str, int]]:
    """Data sets, contenders and seeds, seed by seed; what is not trained needs one seed only."""
    return [
        (data, name, seed)
        for place, seed in enumerate(settings.seed)
        for data in settings.data
        for name in (UNTRAINED, *TASKS[data].contenders)
        if name in (settings.contender or (UNTRAINED, *TASKS[data].contenders))
        if name != UNTRAINED or place == 0
    ]


def work(tool: str, measure: Any, jobs: list[tuple[str, str, int]], settings: argparse.Namespace) -> None:
    """Measure what is not known yet, each run in a process of its own."""
    mine, of = (int(number) for number in settings.share.split("/"))
    for place, job in enumerate(jobs):
        if place % of != mine or known(lines(settings.results), tool, job, settings):
            continue
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
            line = pool.submit(measure, *job, settings).result()
        with settings.results.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
        print(line, flush=True)


def run_one(data: str, name: str, seed: int, settings: argparse.Namespace) -> Line:
    """Train, choose by dev, test."""
    import nearfar.pipeline  # noqa: F401  # so that loading torch counts for nobody

    task = TASKS[data]
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        values = dict(task.contenders.get(name, {}))
        start = time.process_time()
        files = written(data, values.pop("form", "rows"), folder, seed, settings)
        began = time.process_time()
        if name == UNTRAINED:
            dev, test, more = *untrained(files, task, settings), {"best_step": 0}
        else:
            dev, test, more = train(values, files, folder / "model", seed, task, settings)
        spent = time.process_time() - began
    return {
        **about(data, name, seed, files, settings), "tool": OURS, **more, "dev_scores": of_interest(dev, task),
        "scores": of_interest(test, task), "cpu_seconds": spent, "data_seconds": began - start,
        "peak_mb": peak_rss_mb(),
    }  # fmt: skip


def written(data: str, form: str, folder: Path, seed: int, settings: argparse.Namespace) -> Files:
    return write_files(
        data, form, settings.source, folder, seed=seed, sizes=sizes(data, settings), embed=remembered(settings.encoder)
    )


def about(data: str, name: str, seed: int, files: Files, settings: argparse.Namespace) -> Line:
    """Which run this is."""
    task, rows = TASKS[data], files.rows
    return {
        "data": data, "contender": name, "seed": seed, "asked": asked(data, settings),
        "train": sizes(data, settings).train, "train_rows": rows["train"], "dev": rows["dev"],
        "test": rows["test"], "corpus": rows.get("corpus", 0), "steps": steps(data, settings), "batch": task.batch,
        "rate": settings.rate, "encoder": settings.encoder, "max_length": task.max_length,
    }  # fmt: skip


def train(
    values: Values, files: Files, out: Path, seed: int, task: Task, settings: argparse.Namespace
) -> tuple[Report, Report, Line]:
    """A run of nearfar, with its scores on dev and test and what it took."""
    from torch import get_num_threads

    from nearfar.encoding import load
    from nearfar.pipeline import train
    from nearfar.recipe import build_recipe

    recipe = recipe_values(values, files, seed, task, settings)
    summary = train(build_recipe(recipe, [], where="benchmark"), out)
    assert summary.progress is not None
    best = summary.progress.best
    more = {"best_step": best["step"] if best else summary.progress.step, "threads": get_num_threads()}
    dev = summary.report("dev")
    return dev, summary.report("test") if files.corpus is None else searched(load(str(out)), files), more


def recipe_values(values: Values, files: Files, seed: int, task: Task, settings: argparse.Namespace) -> Values:
    """A recipe of so many steps over all stages, with an evaluation in the middle of each and at its end."""
    stages = len(values.get("stage", [0]))
    each = max(1, (settings.steps or task.steps) // stages)
    batch = {"size": task.batch, **values.get("batches", {})}
    data: Values = {"train": str(files.train), "dev": str(files.dev), "invalid": "drop"}
    if files.corpus is None:
        data["test"] = str(files.test)
    return {
        "seed": seed,
        "data": data,
        "encoder": {"name": settings.encoder, "max_length": task.max_length},
        "training": {
            "epochs": ceil(each / ceil(files.rows["train"] / task.batch)), "max_steps": each,
            "learning_rate": settings.rate, "warmup": WARMUP, "evaluate_every": ceil(each / 2),
        },
        **values,
        "batches": batch,
    }  # fmt: skip


def untrained(files: Files, task: Task, settings: argparse.Namespace) -> tuple[Report, Report]:
    """The scores of the encoder itself."""
    from nearfar.data import read
    from nearfar.encoding import load
    from nearfar.evaluation import PairReport
    from nearfar.pipeline.evaluate import measure

    model = load(settings.encoder)
    model.card = replace(model.card, max_length=task.max_length)
    dev, _ = measure(model, read(str(files.dev)))
    if files.corpus is not None:
        return dev, searched(model, files)
    thresholds = dev.thresholds if isinstance(dev, PairReport) else None
    return dev, measure(model, read(str(files.test)), thresholds=thresholds)[0]


def searched(model: Any, files: Files) -> Report:
    """How high the right claims stand among all claims of the corpus."""
    from nearfar.data import read
    from nearfar.data.corpora import read_corpus
    from nearfar.pipeline.evaluate import measure

    return measure(model, read(str(files.test)), corpus=read_corpus(str(files.corpus)))[0]


def remembered(encoder: str) -> Embed:
    """Vectors of the encoder as it comes; it is opened when it is first asked, and no text is encoded twice."""
    vectors: dict[str, Any] = {}

    def embed(texts: list[str]) -> Any:
        from nearfar.encoding import load

        new = [text for text in dict.fromkeys(texts) if text not in vectors]
        if new:
            vectors.update(zip(new, load(encoder).embed(new), strict=True))
        return np.stack([vectors[text] for text in texts])

    return embed


def of_interest(report: Report, task: Task) -> dict[str, float]:
    return {name: report.scores[name] for name in task.scores}


def sizes(data: str, settings: argparse.Namespace) -> Sizes:
    usual = TASKS[data].sizes
    return Sizes(
        *(
            given if given is not None else had
            for given, had in (
                (settings.limit, usual.train), (settings.dev, usual.dev), (settings.test, usual.test),
                (settings.corpus, usual.corpus),
            )
        )
    )  # fmt: skip


def asked(data: str, settings: argparse.Namespace) -> list[int]:
    """How many rows of each kind, as a line of results has it."""
    return [*astuple(sizes(data, settings))]


def steps(data: str, settings: argparse.Namespace) -> int:
    return int(settings.steps or TASKS[data].steps)


def described(data: str, settings: argparse.Namespace) -> str:
    """What was chosen for a data set, in a line."""
    task, rows = TASKS[data], sizes(data, settings)

    def so_many(number: int) -> str:
        return f"{number:,}" if number else "all"

    searched = f", {so_many(rows.corpus)} claims searched" if data == "snopes" else ""
    return (
        f"{data}: {so_many(rows.train)} training rows by seed, dev {so_many(rows.dev)}, test {so_many(rows.test)}"
        f"{searched}; {steps(data, settings)} steps of {task.batch}, learning rate {settings.rate:g}, at most "
        f"{task.max_length} tokens"
    )


def lines(results: Path) -> list[Line]:
    return [json.loads(line) for line in results.read_text(encoding="utf-8").splitlines()] if results.exists() else []


def known(found: list[Line], tool: str, job: tuple[str, str, int], settings: argparse.Namespace) -> bool:
    same = (tool, *job, asked(job[0], settings), steps(job[0], settings), settings.rate, settings.encoder)
    keys = ("tool", "data", "contender", "seed", "asked", "steps", "rate", "encoder")
    return any(tuple(line[key] for key in keys) == same for line in found)


def table(found: list[Line]) -> str:
    """For each data set its contenders beside what was published, the order of both, and our time beside theirs."""
    groups: dict[tuple[Any, ...], dict[str, dict[int, Line]]] = defaultdict(lambda: defaultdict(dict))
    peers: dict[tuple[Any, ...], dict[str, dict[int, Line]]] = defaultdict(lambda: defaultdict(dict))
    for line in found:
        into = groups if line["tool"] == OURS else peers
        into[tuple(line[key] for key in SAME)][line["contender"]][line["seed"]] = line
    blocks = [block for group in sorted(groups) for block in _data_set(group, groups[group])]
    blocks.extend(_beside(group, groups.get(group, {}), peers[group]) for group in sorted(peers))
    return "\n\n".join(blocks)


def _data_set(group: tuple[Any, ...], contenders: dict[str, dict[int, Line]]) -> Iterator[str]:
    told = dict(zip(SAME, group, strict=True))
    task = TASKS[told["data"]]
    names = [name for name in (UNTRAINED, *task.contenders) if name in contenders]
    trained = [name for name in names if name != UNTRAINED]
    corpus = f", {told['corpus']:,} claims searched" if told["corpus"] else ""
    yield (
        f"### {told['data']}: {told['steps']} steps of {told['batch']}, learning rate {told['rate']:g}, "
        f"{told['train'] or 'all'} training rows, {told['dev']:,} dev, {told['test']:,} test{corpus}"
    )
    where = f"published ({task.where})" if task.where else "published"
    heads = ["contender", "seeds", *task.scores, f"{task.scores[0]}, difference", "CPU s", "peak MB", where]
    rows = [_row(heads), "|" + "---|" * len(heads)]
    for name in names:
        runs = list(contenders[name].values())
        cells = [
            name,
            str(len(runs)),
            *(_spread([100 * run["scores"][score] for run in runs]) for score in task.scores),
        ]
        differences = _differences(contenders, trained[:1], name, task.scores[0])
        cells.append(_spread(differences, sign=True) if differences else "")
        cells += [
            f"{np.mean([run['cpu_seconds'] for run in runs]):.0f}",
            f"{np.max([run['peak_mb'] for run in runs]):,.0f}",
        ]
        said = ["-" if np.isnan(value) else f"{value:g}" for value in task.published.get(name, ())]
        rows.append(_row([*cells, " / ".join(said)]))
    yield "\n".join(rows)
    if order := _order(contenders, task):
        yield order


def _differences(contenders: dict[str, dict[int, Line]], first: list[str], name: str, score: str) -> list[float]:
    """Of a contender to the first one, seed by seed."""
    if not first or first == [name]:
        return []
    one, other = contenders[first[0]], contenders[name]
    return [100 * (other[seed]["scores"][score] - one[seed]["scores"][score]) for seed in sorted(set(one) & set(other))]


def _order(contenders: dict[str, dict[int, Line]], task: Task) -> str:
    """Whether contenders are in the published order: of all pairs of them, and of those that differ clearly here."""
    score = task.scores[0]
    column = next(
        (place for place, value in enumerate(next(iter(task.published.values()), ())) if value == value), None
    )
    if column is None:
        return ""
    score = task.scores[column]
    agree = clear = agree_clearly = pairs = 0
    for one, other in combinations([name for name in task.published if name in contenders], 2):
        differences = _differences(contenders, [one], other, score)
        if not differences:
            continue
        same = np.mean(differences) * (task.published[other][column] - task.published[one][column]) > 0
        error = np.std(differences, ddof=1) / len(differences) ** 0.5 if len(differences) > 1 else np.inf
        pairs, agree = pairs + 1, agree + int(same)
        if abs(np.mean(differences)) > 2 * error:
            clear, agree_clearly = clear + 1, agree_clearly + int(same)
    if not pairs:
        return ""
    return (
        f"By {score}, {agree} of {pairs} pairs of contenders are in the published order; of the {clear} that differ by "
        f"more than two standard errors here, {agree_clearly}."
    )


def _beside(group: tuple[Any, ...], ours: dict[str, dict[int, Line]], theirs: dict[str, dict[int, Line]]) -> str:
    """A peer on the same rows, seed by seed."""
    told = dict(zip(SAME, group, strict=True))
    score = TASKS[told["data"]].scores[0]
    heads = ["contender", "seeds", f"{OURS}, {score}", "peer", "difference", f"{OURS}, CPU s", "peer, CPU s",
             "faster by", "peak MB", "peer, peak MB"]  # fmt: skip
    tools = sorted({run["tool"] for runs in theirs.values() for run in runs.values()})
    rows = [f"### {told['data']} beside {', '.join(tools)}: {told['steps']} steps of {told['batch']}", "",
            _row(heads), "|" + "---|" * len(heads)]  # fmt: skip
    for name, runs in theirs.items():
        seeds = sorted(set(runs) & set(ours.get(name, {})))
        if not seeds:
            continue
        mine, other = [ours[name][seed] for seed in seeds], [runs[seed] for seed in seeds]
        values = [[100 * run["scores"][score] for run in side] for side in (mine, other)]
        spent = [[run["cpu_seconds"] for run in side] for side in (mine, other)]
        ratio = np.median(np.array(spent[1]) / np.array(spent[0]))
        peaks = [max(run["peak_mb"] for run in side) for side in (mine, other)]
        rows.append(
            _row(
                [name, str(len(seeds)), *map(_spread, values),
                 _spread((np.array(values[0]) - np.array(values[1])).tolist(), sign=True),
                 *(f"{np.mean(side):.0f}" for side in spent), f"{ratio:.2f} x", *(f"{peak:,.0f}" for peak in peaks)]
            )
        )  # fmt: skip
    return "\n".join(rows)


def _spread(values: list[float], *, sign: bool = False) -> str:
    mean = f"{np.mean(values):+.2f}" if sign else f"{np.mean(values):.2f}"
    return mean if len(values) == 1 else f"{mean} ± {np.std(values, ddof=1):.2f}"


def _row(cells: list[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def parsed(arguments: list[str] | None, description: str | None = __doc__) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("verb", choices=["run", "table"])
    parser.add_argument("--data", action="append", default=[], choices=list(TASKS), help="a data set; repeatable")
    parser.add_argument("--contender", action="append", default=[], help="repeatable; default: all of a data set")
    parser.add_argument("--seed", action="append", type=int, default=[], help="repeatable; default: 1, 2 and 3")
    parser.add_argument("--limit", type=int, help="training rows; 0 for all; default: chosen for the data set")
    parser.add_argument("--dev", type=int, help="dev rows, likewise")
    parser.add_argument("--test", type=int, help="test rows, likewise")
    parser.add_argument("--corpus", type=int, help="claims that are searched, likewise")
    parser.add_argument("--steps", type=int, help="optimizer steps; default: chosen for the data set")
    parser.add_argument("--rate", type=float, default=5e-5)
    parser.add_argument("--encoder", default="minilm")
    parser.add_argument("--share", default="0/1", help="which part of the runs this process does")
    parser.add_argument("--source", type=Path, default=Path(os.environ.get("NEARFAR_DATA", "../shared/data")))
    parser.add_argument("--results", type=Path, default=Path("pair_objectives.jsonl"))
    settings = parser.parse_args(arguments)
    settings.data = settings.data or list(TASKS)
    settings.seed = settings.seed or [1, 2, 3]
    return settings


if __name__ == "__main__":
    main()
