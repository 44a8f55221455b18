"""The four kinds of runs: texts with classes, pairs, plain texts tested on similarity, and several tasks.

Each is given a study and a run and returns the scores of the test rows in percent, the optimizer steps and the
processor's seconds. The seed of a run draws its training rows and everything random in training; test rows are the
same for all. The weights of the last step are tested, with one exception: several tasks are tested on the dev rows that
choose the weights, as in their paper.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from benchmarks import multitask, pair_objectives, raw_text
from benchmarks.few_labels import pool_and_test
from benchmarks.pair_data import Sizes, write_files
from benchmarks.papers.studies import UNTRAINED, Line, Run, Scores, Study, Values
from nearfar.data import Records, limit, read

TEST_ROWS = 500
ANISOTROPY_TEXTS = 1_000
SINGLE = "single"
"""The contender of several tasks that trains a model for each."""


@dataclass(frozen=True)
class Places:
    """Where data sets and encoders are."""

    source: Path
    models: Path


Measure = Callable[[Study, Run, Places], tuple[Scores, int]]


def measure(study: Study, run: Run, places: Places) -> Line:
    """Train and test."""
    began = time.process_time()
    scores, steps = MEASURES[study.measure](study, run, places)
    return {
        "scores": {name: round(score, 4) for name, score in scores.items()}, "steps": steps,
        "cpu_seconds": round(time.process_time() - began, 1),
    }  # fmt: skip


def classes(study: Study, run: Run, places: Places) -> tuple[Scores, int]:
    """Texts, or pairs that are read together, with classes."""
    pool, test = labeled(study.paper, run.data, places.source)
    rows = {"train": pool.take(limit(pool, run.rows, seed=run.seed)), "test": test}
    with tempfile.TemporaryDirectory(prefix="nearfar-papers-") as scratch:
        summary = trained(study, run, places, Path(scratch) / "model", {"train": "-", "dev": 0}, rows)
    return in_percent(summary.report("test").scores, (study.score,)), summary.progress.step


def pairs(study: Study, run: Run, places: Places) -> tuple[Scores, int]:
    """Pairs of texts, scored by their cosine; for Snopes, a corpus is searched."""
    options = study.options
    sizes = Sizes(run.rows, options.get("dev", 0), options.get("test", 0), options.get("corpus", 0))
    with tempfile.TemporaryDirectory(prefix="nearfar-papers-") as scratch:
        folder = Path(scratch)
        files = write_files(run.data, "rows", places.source, folder, seed=run.seed, sizes=sizes, embed=any_vectors)
        data: Values = {"train": str(files.train), "dev": 0, "invalid": "drop"}
        if files.corpus is None:
            data |= {"test": str(files.test)}
        if options.get("threshold"):  # the dev rows choose it, and nothing else
            data["dev"] = str(files.dev)
        summary = trained(study, run, places, folder / "model", data)
        report = summary.report("test") if files.corpus is None else _searched(folder / "model", files)
        names = options.get("scores", (study.score,))
        return in_percent(report.scores, names), summary.progress.step


def plain(study: Study, run: Run, places: Places) -> tuple[Scores, int]:
    """An encoder, trained on plain texts or as it is, on STS and SimLex-999."""
    from nearfar.encoding import load

    values = study.values(run)
    settings = argparse.Namespace(source=places.source, limit=run.rows)
    steps = 0
    with tempfile.TemporaryDirectory(prefix="nearfar-papers-") as scratch:
        if values.get(UNTRAINED):
            model = load(encoder(run.encoder, places.models))
        else:
            name = "mirror-random" if values.get("random_letters") else "mirror"
            rows = raw_text.drawn(run.data, name, run.seed, settings)
            out = Path(scratch) / "model"
            summary = trained(study, run, places, out, {"train": "-", "dev": 0}, {"train": rows})
            model, steps = load(out), summary.progress.step
        return similarity(model, study, places.source), steps  # a model opens its weights when it is first used


def similarity(model: Any, study: Study, source: Path) -> Scores:
    """Spearman's correlation x 100 on the sets of scored pairs, their mean, and the anisotropy of their texts."""
    from nearfar.encoding import Model
    from nearfar.evaluation import SuiteSet, embed_table, evaluate_suite
    from nearfar.evaluation.geometry import anisotropy

    # whatever length a model was trained with, all read the same of a text
    model = Model(model.model, model.tokenizer, replace(model.card, max_length=raw_text.LENGTH))
    sets = [SuiteSet(name, scored_pairs(source / name, study.options["test"])) for name in study.options["sets"]]
    scores = {name: score.spearman for name, score in evaluate_suite(model, sets).sets.items()}
    texts = list(dict.fromkeys(text for one in sets for side in one.records.texts for text in side))
    spread = anisotropy(embed_table(model.model, model.tokenize(texts[:ANISOTROPY_TEXTS]), batch_size=64))
    assert spread is not None
    return {**scores, "mean": fmean(scores.values()), "anisotropy": spread}


@lru_cache(maxsize=8)
def scored_pairs(folder: Path, rows: int) -> Records:
    """The test pairs of a set, so many of them, always the same."""
    records = read(str(folder / "test.jsonl.gz"))
    return records.take(limit(records, rows, seed=0))


def tasks(study: Study, run: Run, places: Places) -> tuple[Scores, int]:
    """Sentiment, paraphrase and similarity in one model, or in one each."""
    values = study.values(run)
    name, training = values["task"], values["training"]
    settings = argparse.Namespace(
        **study.options, limit=run.rows, epochs=training["epochs"], rate=training["learning_rate"], head_rate=None,
        encoder=encoder(run.encoder, places.models), source=places.source, threads=1, loud=False,
    )  # fmt: skip
    names = [f"{SINGLE}-{task}" for task in multitask.TASKS] if name == SINGLE else [name]
    lines = [multitask.run_one(each, run.seed, settings) for each in names]
    scores = {task: line[task] for line in lines for task in multitask.TASKS if task in line}
    return in_percent({**scores, "mean": fmean(scores.values())}, (*scores, "mean")), sum(
        line["steps"] for line in lines
    )


MEASURES: dict[str, Measure] = {"classes": classes, "pairs": pairs, "plain": plain, "tasks": tasks}


def trained(
    study: Study, run: Run, places: Places, out: Path, data: Values, rows: dict[str, Records] | None = None
) -> Any:
    """The summary of a training."""
    from benchmarks.papers import reweighted
    from nearfar.pipeline import train
    from nearfar.recipe import build_recipe

    reweighted.register_once()
    values = {key: value for key, value in study.values(run).items() if key not in (UNTRAINED, "random_letters")}
    values["encoder"] = {**values.get("encoder", {}), "name": encoder(run.encoder, places.models)}
    values["training"] = {"estimate": False, "keep": "last", **values.get("training", {})}
    recipe = build_recipe({**values, "seed": run.seed, "data": data}, where=f"study {study.name}")
    return train(recipe, out, data=rows)


@cache
def encoder(name: str, models: Path) -> str:
    """The folder of an encoder, or its name; NAME:random has random weights."""
    control = Path(tempfile.mkdtemp(prefix="nearfar-control-")) if name.endswith(":random") else Path()
    return raw_text.open_encoder(name, models, control)


@lru_cache(maxsize=8)
def labeled(paper: str, data: str, source: Path) -> tuple[Records, Records]:
    """The texts of a data set to draw from, and those to test on; of some, the classes that the paper chose."""
    from nearfar.experiments.published import find_paper

    chosen = find_paper(paper).data.get(data)
    if chosen is None or not chosen.labels:
        folder = data if chosen is None or chosen.dev is None else Path(chosen.dev).parent.name
        pool, test = pool_and_test(source / folder, at_most=TEST_ROWS)
        return pool, test
    assert chosen.dev is not None
    pool, test = pool_and_test(source / Path(chosen.dev).parent.name, at_most=10 * TEST_ROWS)
    pool, test = (
        part.take([row for row, label in enumerate(part.labels or ()) if label in chosen.labels])
        for part in (pool, test)
    )
    return pool, test.take(limit(test, TEST_ROWS, seed=0))


def any_vectors(texts: list[str]) -> Any:
    """Vectors that mean nothing: dev rows of Snopes are chosen by vectors, and are not read here."""
    return np.random.default_rng(0).normal(size=(len(texts), 8)).astype(np.float32)


def _searched(model: Path, files: Any) -> Any:
    from nearfar.encoding import load

    return pair_objectives.searched(load(str(model)), files)


def in_percent(scores: dict[str, float], names: tuple[str, ...]) -> Scores:
    return {name: 100 * float(scores[name]) for name in names}
