"""Three tasks over one encoder: sentiment, paraphrase and similarity by contender and seed, one line of JSON a run.

    python -m benchmarks.multitask run --limit 600 --contender single --contender sampled ...
    python -m benchmarks.multitask table

The contenders follow the table of the multi-task paper: each adds one idea to the one before. ``--limit`` draws as many
training rows of each task by the seed, twice as many for Quora. With joint heads, which read every pair twice,
``--limit 150 --dev 150 --epochs 2`` took 87 CPU seconds a run on one core of a busy machine.
What is there already is not run again; --share 0/2 and --share 1/2 divide the work.
Peak memory is that of the process, so a run is made in a process of its own.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import resource
import tempfile
import time
from collections import defaultdict
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from nearfar.cli.progress import console_callback
from nearfar.data import Records, limit, read
from nearfar.pipeline.task_run import HEAD_FACTOR

TASKS = {"sst": ("cs224n_sst", "train"), "quora": ("cs224n_quora", "train_proxy"), "sts": ("cs224n_sts", "train")}
SCORES = {"sst": "accuracy", "quora": "accuracy", "sts": "pearson"}
DPHA = {"kind": "joint-difference-activated", "symmetric": False}
TWICE = {"kind": "sampled", "sampling": "proportional"}  # Quora has twice the rows, and so twice the batches

CONTENDERS: dict[str, dict[str, Any]] = {
    "single-sst": {"tasks": ["sst"]},
    "single-quora": {"tasks": ["quora"]},
    "single-sts": {"tasks": ["sts"]},
    "concat": {"schedule": TWICE, "head": {"kind": "concat"}},
    "concat-features": {"schedule": TWICE, "head": {"kind": "concat", "difference": True, "product": True}},
    "cosine": {"schedule": TWICE, "head": {"kind": "cosine"}},
    "sequential": {"schedule": {"kind": "sequential", "order": ["quora", "sst", "sts"]}},
    "round-robin": {"schedule": {"kind": "round-robin", "order": ["sst", "sts", "quora"]}},
    "sampled": {"schedule": TWICE},
    "annealed": {"schedule": {"kind": "annealed"}},
    "sampled+shared": {"schedule": TWICE, "shared_layer": True},
    "sampled+shared+dpha": {"schedule": TWICE, "shared_layer": True, "head": DPHA},
    "sampled+shared+dpha-symmetric": {
        "schedule": TWICE, "shared_layer": True, "head": {"kind": "joint-difference-activated"},
    },
    "sampled+shared+dpha+accumulate": {
        "schedule": TWICE, "shared_layer": True, "head": DPHA, "training": {"accumulate": 3}, "parts": 3,
    },
    "sampled+shared+dpha+surgery": {
        "schedule": TWICE, "shared_layer": True, "head": DPHA, "parts": 3,
        "training": {"gradient_surgery": "pcgrad", "accumulate": 3},
    },
    "sampled+shared+dpha+uncertainty": {
        "schedule": TWICE, "shared_layer": True, "head": DPHA, "training": {"weighting": "uncertainty"},
    },
    "sampled+shared+dpha+simcse": {"schedule": TWICE, "shared_layer": True, "head": DPHA, "simcse": True},
}  # fmt: skip
"""Surgery takes steps of three batches, so its plain counterpart is the one that accumulates three; both have batches
of a third of the size, and so as many steps as the others."""

PAPER = {
    "sequential": (0.327, 0.764, 0.866, 0.652),
    "round-robin": (0.498, 0.874, 0.851, 0.741),
    "sampled+shared": (0.51, 0.851, 0.871, 0.744),
    "sampled+shared+dpha": (0.526, 0.88, 0.879, 0.762),
    "sampled+shared+dpha+surgery": (0.51, 0.876, 0.882, 0.756),
    "sampled+shared+dpha+simcse": (0.508, 0.879, 0.881, 0.756),
}
"""Published dev scores (BERT base, all rows): SST, Quora, STS, mean."""


def main(arguments: list[str] | None = None) -> None:
    settings = parsed(arguments)
    if settings.verb == "table":
        print(table(settings.results))
        return
    names = [
        name
        for chosen in settings.contender or list(CONTENDERS)
        for name in (["single-sst", "single-quora", "single-sts"] if chosen == "single" else [chosen])
    ]
    jobs = [(name, seed) for seed in settings.seed or [2] for name in names]
    mine, of = (int(number) for number in settings.share.split("/"))
    for place, job in enumerate(jobs):
        if place % of == mine and not known(settings.results, job, settings):
            with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
                line = pool.submit(run_one, *job, settings).result()
            with settings.results.open("a") as file:
                file.write(json.dumps(line) + "\n")
            print(line, flush=True)


def run_one(name: str, seed: int, settings: argparse.Namespace) -> dict[str, Any]:
    import torch
    from rich.console import Console

    from nearfar.pipeline import train as train_recipe
    from nearfar.recipe.tasks import build_task_recipe

    torch.set_num_threads(settings.threads)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        values = recipe_values(name, seed, folder, settings)
        began, wall = time.process_time(), time.perf_counter()
        recipe = build_task_recipe(values, where="benchmark")
        summary = train_recipe(
            recipe, folder / "model", callbacks=[console_callback(Console(quiet=not settings.loud, stderr=True))]
        )
        spent, passed = time.process_time() - began, time.perf_counter() - wall
        metrics = json.loads((folder / "model" / "metrics.json").read_text())
    reports = summary.reports["dev"]
    scores = {task: report.scores[SCORES[task]] for task, report in reports.items()}
    return {
        "contender": name, "seed": seed, "limit": settings.limit, "epochs": settings.epochs, "rate": settings.rate,
        "head_rate": settings.head_rate, "encoder": settings.encoder, **scores,
        "mean": float(np.mean(list(scores.values()))), "steps": metrics["training"]["steps"],
        "train_seconds": metrics["training"]["seconds"], "seconds": passed,
        "cpu_seconds": spent, "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        **({"surgery": metrics["surgery"]} if "surgery" in metrics else {}),
        **({"task_weights": metrics["task_weights"]} if "task_weights" in metrics else {}),
    }  # fmt: skip


def recipe_values(name: str, seed: int, folder: Path, settings: argparse.Namespace) -> dict[str, Any]:
    """The contender's recipe, with rows drawn by the seed and written to a folder."""
    chosen = CONTENDERS[name]
    tasks = []
    for task in chosen.get("tasks", TASKS):
        source, train = TASKS[task]
        rows = settings.limit * (2 if task == "quora" else 1)
        few(settings.source / source / f"{train}.jsonl.gz", rows, seed, folder / f"{task}-train.jsonl")
        few(settings.source / source / "dev.jsonl.gz", settings.dev, 0, folder / f"{task}-dev.jsonl")
        own: dict[str, Any] = {
            "name": task,
            "data": {"train": str(folder / f"{task}-train.jsonl"), "dev": str(folder / f"{task}-dev.jsonl")},
        }
        if task != "sst":
            own["head"] = chosen.get("head", {"kind": "joint"})
        if own.get("head", {}).get("kind") == "cosine":
            own["metric"] = SCORES[task]
        tasks.append(own)
    values: dict[str, Any] = {
        "seed": seed,
        "encoder": {"name": settings.encoder, "max_length": 96},
        "batches": {"size": settings.batch_size // chosen.get("parts", 1)},
        "training": {
            "epochs": settings.epochs, "learning_rate": settings.rate, "precision": "fp32",
            "evaluate_every": "epoch", **chosen.get("training", {}),
            **({"head_learning_rate": settings.head_rate} if settings.head_rate else {}),
        },
        "task": tasks,
    }  # fmt: skip
    values |= {key: chosen[key] for key in ("schedule", "shared_layer") if key in chosen}
    if chosen.get("simcse"):
        few(settings.source / "nli_triplets" / "train.jsonl.gz", settings.pretrain, seed, folder / "nli.jsonl")
        data = {"train": str(folder / "nli.jsonl"), "dev": 0}
        values["stage"] = [{"data": data, "objective": {"name": "simcse"}, "batch_size": 64, "epochs": 1}]
    return values


def few(source: Path, rows: int, seed: int, target: Path) -> None:
    """Rows of a file, drawn by the seed, with classes in proportion."""
    records = read(str(source), invalid="drop")
    if rows and rows < len(records):
        records = records.take(limit(records, rows, seed=seed))
    target.write_text("".join(json.dumps(row) + "\n" for row in plain(records)))


def plain(records: Records) -> list[dict[str, Any]]:
    names = {1: ("text",), 2: ("text_a", "text_b"), 3: ("anchor", "positive", "negative")}[len(records.texts)]
    rows: list[dict[str, Any]] = [dict(zip(names, texts, strict=True)) for texts in zip(*records.texts, strict=True)]
    for place, row in enumerate(rows):
        if records.labels is not None:
            row["label"] = records.labels[place]
        if records.scores is not None:
            row["score"] = records.scores[place]
    return rows


def lines(results: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in results.read_text().splitlines()] if results.exists() else []


def known(results: Path, job: tuple[str, int], settings: argparse.Namespace) -> bool:
    same = (*job, settings.limit, settings.epochs, settings.rate, settings.head_rate, settings.encoder)
    keys = ("contender", "seed", "limit", "epochs", "rate", "head_rate", "encoder")
    return any(tuple(line.get(key) for key in keys) == same for line in lines(results))


def table(results: Path) -> str:
    """Means over the seeds; single tasks are one row, with the mean of three runs, as if they were one model."""
    found: dict[tuple[Any, ...], dict[str, list[dict[str, Any]]]] = defaultdict(lambda: defaultdict(list))
    for line in lines(results):
        name = "single tasks" if line["contender"].startswith("single-") else line["contender"]
        head_rate = line.get("head_rate") or HEAD_FACTOR * line["rate"]
        found[line["limit"], line["epochs"], head_rate, line["encoder"]][name].append(line)
    rows = [
        "| rows | epochs | head rate | contender | seeds | SST acc | Quora acc | STS Pearson | mean "
        "| paper (SST / Quora / STS / mean) | CPU s | peak MB | conflicts |",
        "|---" * 13 + "|",
    ]
    for (*setting, _), contenders in sorted(found.items()):
        names = [name for name in ["single tasks", *CONTENDERS] if name in contenders]
        rows += [_row(setting, name, contenders[name]) for name in names]
    return "\n".join(rows)


def _row(setting: list[Any], name: str, runs: list[dict[str, Any]]) -> str:
    own = {task: [100 * run[task] for run in runs if task in run] for task in SCORES}
    means = [f"{np.mean(values):.1f}" if values else "" for values in own.values()]
    seeds = len({run["seed"] for run in runs})
    if all(own.values()):
        by_seed = [
            np.mean([100 * run[task] for run in runs for task in SCORES if task in run and run["seed"] == seed])
            for seed in {run["seed"] for run in runs}
        ]
        spread = f" ± {np.std(by_seed, ddof=1):.1f}" if len(by_seed) > 1 else ""
        means.append(f"{np.mean(by_seed):.1f}{spread}")
    else:
        means.append("")
    paper = " / ".join(f"{100 * value:.1f}" for value in PAPER.get(name, ()))
    meetings = [own for run in runs for own in run.get("surgery", {}).values()]
    met = sum(own["steps"] for own in meetings)
    share = f"{100 * sum(own['conflicts'] for own in meetings) / met:.0f} %" if met else ""
    seconds = sum(run["cpu_seconds"] for run in runs) / seeds
    peak = max(run["peak_mb"] for run in runs)
    cells = [*setting, name, seeds, *means, paper, f"{seconds:.0f}", f"{peak:.0f}", share]
    return "| " + " | ".join(map(str, cells)) + " |"


def parsed(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("verb", choices=["run", "table"])
    parser.add_argument("--contender", action="append", default=[], choices=["single", *CONTENDERS], help="unset: all")
    parser.add_argument("--seed", type=int, action="append", default=[], help="repeatable; unset: 2")
    parser.add_argument("--limit", type=int, default=600, help="training rows of a task, twice for Quora; 0: all")
    parser.add_argument("--dev", type=int, default=400, help="dev rows of a task; 0: all")
    parser.add_argument("--pretrain", type=int, default=2_000, help="triplets of the SimCSE stage")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--rate", type=float, default=5e-5)
    parser.add_argument("--head-rate", type=float, help="of heads and shared layer; unset: the default")
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--encoder", default="minilm")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--loud", action="store_true", help="show the progress of each run")
    parser.add_argument("--share", default="0/1", help="the part of the runs to do, as 0/2")
    parser.add_argument("--source", type=Path, default=Path(os.environ.get("NEARFAR_DATA", "../shared/data")))
    parser.add_argument("--results", type=Path, default=Path("build/multitask.jsonl"))
    settings = parser.parse_args(arguments)
    settings.results.parent.mkdir(parents=True, exist_ok=True)
    return settings


if __name__ == "__main__":
    main()
