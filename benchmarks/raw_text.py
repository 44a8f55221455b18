"""What training on plain texts does to encoders: STS and word similarity before and after, with geometry.

    python -m benchmarks.raw_text run --encoder minilm --encoder tinybert-ner --corpus wiki_plain --contender mirror ...
    python -m benchmarks.raw_text table
    python -m benchmarks.raw_text grid

A run is an encoder, a corpus, a contender and a seed: the seed draws the texts and the training. It ends in one line of
JSON: Spearman's correlation × 100 on a fixed part of each set of the STS suite, and the geometry of a fixed set of
texts. What is there already is not run again, so several processes may share the work (--share 0/2 and --share 1/2).
NAME:random is the control: the architecture and tokenizer of NAME with random weights.

The studies, by their contenders:

* masking and dropout, 2 by 2: mirror, mirror-mask, mirror-dropout, mirror-neither (``grid`` prints it);
* learning from negatives alone: mirror-neither, where both views of a text are the same, so that positives are fixed
  and only negatives teach;
* zero semantics: mirror-random, on random letters of the same lengths;
* granularity: the corpora en_words_10k (words), hpo_synonyms (phrases), wiki_plain and stsb_plain_10k (sentences);
* anisotropy before and after, by layer: in every line; whitening straightens without training, for comparison.
"""

from __future__ import annotations

import argparse
import json
import os
import string
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from nearfar.data import Records, limit, read
from nearfar.seeds import generator

CORPORA = {
    "wiki_plain": "sentences", "stsb_plain_10k": "sentences", "en_words_10k": "words", "hpo_synonyms": "phrases",
    "nli_triplets": "triplets",
}  # fmt: skip
MIRROR = {"name": "mirror"}
CONTENDERS: dict[str, dict[str, Any]] = {
    "before": {},
    "whitening": {},
    "simcse": {"objective": {"name": "simcse"}},
    "mirror": {"objective": MIRROR},
    "mirror-mask": {"objective": MIRROR, "encoder": {"dropout": 0.0}},
    "mirror-dropout": {"objective": {**MIRROR, "masked": 0}},
    "mirror-neither": {"objective": {**MIRROR, "masked": 0}, "encoder": {"dropout": 0.0}},
    "mirror-random": {"objective": MIRROR, "training": {"learning_rate": 5e-5}},
}
GRID = (("mirror-neither", "mirror-dropout"), ("mirror-mask", "mirror"))
MEASURES = ("alignment", "uniformity", "anisotropy", "effective_rank")
LAYER_TEXTS = 200
LENGTH = 128
"""Tokens of a text that are read when a model is measured."""


def main(arguments: list[str] | None = None) -> None:
    settings = parsed(arguments)
    if settings.verb == "table":
        print(table(settings.results))
        return
    if settings.verb == "grid":
        print(grid(settings.results))
        return
    mine, of = (int(number) for number in settings.share.split("/"))
    for place, job in enumerate(jobs(settings)):
        if place % of == mine and not known(settings.results, job, settings):
            line = run_one(*job, settings)
            with settings.results.open("a") as file:
                file.write(json.dumps(line) + "\n")
            print({key: value for key, value in line.items() if key not in ("geometry", "layers")}, flush=True)


def jobs(settings: argparse.Namespace) -> Iterator[tuple[str, str, str, int]]:
    """All runs that make sense: triplets are for simcse, and what nothing is trained on needs no corpus or seed."""
    for encoder in settings.encoder:
        if "before" in settings.contender:
            yield encoder, "-", "before", 0
    for seed in settings.seed:
        for corpus in settings.corpus:
            for encoder in settings.encoder:
                for name in settings.contender:
                    if name != "before" and (name == "simcse" or CORPORA[corpus] != "triplets"):
                        yield encoder, corpus, name, seed


def run_one(encoder: str, corpus: str, name: str, seed: int, settings: argparse.Namespace) -> dict[str, Any]:
    from nearfar.encoding import load
    from nearfar.pipeline.whitened_model import whiten

    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        opened = open_encoder(encoder, settings.models, folder / "control")
        began, texts = time.process_time(), 0
        if name == "before":
            model = load(opened)
        else:
            train = drawn(corpus, name, seed, settings)
            texts = len(train)
            if name == "whitening":
                model, _ = whiten(load(opened), train.texts[0], method="whitening")
            else:
                model = trained(opened, corpus, name, seed, train, folder)
        seconds = time.process_time() - began
        scores, space = measured(model, settings)
    return {
        "encoder": encoder, "corpus": corpus, "contender": name, "seed": seed, "texts": texts,
        "limit": settings.limit, "rows": settings.rows, "sts": scores.mean,
        **{key: score.spearman for key, score in scores.sets.items()},
        "geometry": space.report.scores, "layers": space.layers, "cpu_seconds": seconds,
    }  # fmt: skip


def trained(encoder: str, corpus: str, name: str, seed: int, train: Records, folder: Path) -> Any:
    """A model trained on plain texts, with the weights of the last step: nothing is chosen by what is measured."""

    from nearfar.encoding import load
    from nearfar.pipeline import train as train_recipe
    from nearfar.recipe import build_recipe

    write(train, folder / "train.jsonl")
    recipe = CONTENDERS[name]
    objective = dict(recipe["objective"])
    if objective["name"] == "mirror":
        objective["granularity"] = CORPORA[corpus]
    values: dict[str, Any] = {
        "seed": seed,
        "data": {"train": str(folder / "train.jsonl"), **({"dev": 0} if len(train.texts) > 1 else {})},
        "encoder": {"name": encoder, "max_length": 50, "pooling": "mean", **recipe.get("encoder", {})},
        "objective": objective,
        "training": {"epochs": 1, **recipe.get("training", {})},
    }
    train_recipe(build_recipe(values, [], where="benchmark"), folder / "model")
    return load(folder / "model")


def open_encoder(name: str, models: Path, control: Path) -> str:
    """An encoder of the folder of models or by its own name; NAME:random has weights of its own making."""
    base, _, random = name.partition(":")
    found = str(models / base) if (models / base).is_dir() else base
    if not random:
        return found
    import torch
    from transformers import AutoModel

    from nearfar.encoding.pretrained import find, open_config, open_tokenizer, quiet_transformers

    source = find(found)
    with torch.random.fork_rng(devices=[]), quiet_transformers():
        torch.manual_seed(1)  # the toy encoder is that of 0
        AutoModel.from_config(open_config(source)).save_pretrained(control)
        open_tokenizer(source).save_pretrained(control)
    return str(control)


def drawn(corpus: str, name: str, seed: int, settings: argparse.Namespace) -> Records:
    """The texts to train on: a sample of distinct ones, or random letters of the same lengths."""
    folder = settings.source / corpus
    whole = folder / "all.jsonl.gz"
    rows = read(str(whole if whole.exists() else folder / "train.jsonl.gz"))
    plain = Records(rows.texts, None, None, rows.lines, rows.source)
    first = {text: place for place, text in reversed(list(enumerate(plain.texts[0])))}
    plain = plain.take(sorted(first.values()))
    plain = plain.take(limit(plain, settings.limit, seed=seed))
    if name != "mirror-random":
        return plain
    source = generator(seed, "random strings")
    return Records(([scrambled(text, source) for text in plain.texts[0]],), None, None, plain.lines, plain.source)


def scrambled(text: str, source: np.random.Generator) -> str:
    """Random letters where the text has signs, blanks where it has blanks: lengths are all that is left of it."""
    letters = np.array(list(string.ascii_lowercase))
    return "".join(sign if sign.isspace() else str(source.choice(letters)) for sign in text)


def measured(model: Any, settings: argparse.Namespace) -> tuple[Any, Any]:
    """The suite, and the geometry of the texts of STS-B, whose pairs of score 4 or more are the positives."""
    from nearfar.encoding import Model
    from nearfar.evaluation import SuiteSet, embed_table, evaluate_suite, read_suite
    from nearfar.pipeline.geometry import measure_space, positive_pairs

    # whatever length a model was trained with, all read the same of a text
    model = Model(model.model, model.tokenizer, replace(model.card, max_length=LENGTH))
    sets, _ = read_suite(str(settings.source), "sts")
    sets = [SuiteSet(one.name, one.records.take(limit(one.records, settings.rows, seed=0))) for one in sets]
    scores = evaluate_suite(model, sets)
    pairs = next(one.records for one in sets if one.name == "stsb")
    texts = list(dict.fromkeys(text for side in pairs.texts for text in side))
    vectors = embed_table(model.model, model.tokenize(texts), batch_size=64)
    sample = texts[:LAYER_TEXTS]
    return scores, measure_space("", model, vectors, positives=positive_pairs(pairs), layer_texts=sample)


def write(records: Records, path: Path) -> None:
    names = {1: ("text",), 3: ("anchor", "positive", "negative")}[len(records.texts)]
    rows = zip(*records.texts, strict=True)
    path.write_text("".join(json.dumps(dict(zip(names, row, strict=True))) + "\n" for row in rows))


def lines(results: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in results.read_text().splitlines()] if results.exists() else []


def known(results: Path, job: tuple[str, str, str, int], settings: argparse.Namespace) -> bool:
    keys = ("encoder", "corpus", "contender", "seed", "rows")
    same = (*job, settings.rows)
    return any(
        tuple(line[key] for key in keys) == same and (line["limit"] == settings.limit or line["contender"] == "before")
        for line in lines(results)
    )


def table(results: Path) -> str:
    """Each contender beside the encoder before: means over seeds, and the change with its deviation."""
    found: dict[tuple[str, str, int, int], dict[str, list[dict[str, Any]]]] = defaultdict(lambda: defaultdict(list))
    before: dict[tuple[str, int], dict[str, Any]] = {}
    for line in lines(results):
        if line["contender"] == "before":
            before[line["encoder"], line["rows"]] = line
        else:
            found[line["encoder"], line["corpus"], line["texts"], line["rows"]][line["contender"]].append(line)
    rows = [
        "| encoder | corpus | texts | contender | runs | STS mean | change | SimLex | change | "
        + " | ".join(name.replace("_", " ") for name in MEASURES)
        + " | CPU s |",
        "|---" * (10 + len(MEASURES)) + "|",
    ]
    for encoder, evaluated in sorted(before):
        line = before[encoder, evaluated]
        rows.append(_row([encoder, "-", 0, "before", 1], [line], None))
        for key in sorted(key for key in found if (key[0], key[3]) == (encoder, evaluated)):
            for name in (name for name in CONTENDERS if name in found[key]):
                runs = found[key][name]
                rows.append(_row([encoder, key[1], key[2], name, len(runs)], runs, line))
    return "\n".join(rows)


def _row(head: list[Any], runs: list[dict[str, Any]], base: dict[str, Any] | None) -> str:
    cells = list(head)
    for key in ("sts", "simlex999"):
        values = [run[key] for run in runs]
        change = "" if base is None else f"{np.mean(values) - base[key]:+.2f}{_spread(values)}"
        cells += [f"{np.mean(values):.2f}", change]
    cells += [f"{np.mean([run['geometry'][name] for run in runs]):.3f}" for name in MEASURES]
    cells.append(f"{np.mean([run['cpu_seconds'] for run in runs]):.0f}")
    return "| " + " | ".join(map(str, cells)) + " |"


def _spread(values: list[float]) -> str:
    return f" ± {np.std(values, ddof=1):.2f}" if len(values) > 1 else ""


def grid(results: Path) -> str:
    """Masking by dropout for each encoder and corpus, and what both together bring beyond the sum of each alone."""
    found: dict[tuple[str, str], dict[str, dict[int, float]]] = defaultdict(lambda: defaultdict(dict))
    for line in lines(results):
        if line["contender"].startswith("mirror"):
            score = line["simlex999" if CORPORA[line["corpus"]] == "words" else "sts"]
            found[line["encoder"], line["corpus"]][line["contender"]][line["seed"]] = score
    rows = ["| encoder | corpus | score | neither | dropout | mask | both | synergy | runs |", "|---" * 9 + "|"]
    for (encoder, corpus), runs in sorted(found.items()):
        names = [name for pair in GRID for name in pair]
        seeds = sorted(set.intersection(*(set(runs[name]) for name in names)))
        if not seeds:
            continue
        neither, dropout, mask, both = (np.array([runs[name][seed] for seed in seeds]) for name in names)
        synergy = both - dropout - mask + neither
        cells = [f"{part.mean():.2f}" for part in (neither, dropout, mask, both)]
        told = f"{synergy.mean():+.2f}{_spread(synergy.tolist())}"
        score = "SimLex" if CORPORA[corpus] == "words" else "STS mean"
        rows.append("| " + " | ".join([encoder, corpus, score, *cells, told, str(len(seeds))]) + " |")
    return "\n".join(rows)


def parsed(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("verb", choices=["run", "table", "grid"])
    parser.add_argument("--encoder", action="append", default=[], help="minilm, or a folder of --models; NAME:random")
    parser.add_argument("--corpus", action="append", default=[], choices=list(CORPORA))
    parser.add_argument("--contender", action="append", default=[], choices=list(CONTENDERS))
    parser.add_argument("--seed", action="append", type=int, default=[])
    parser.add_argument("--limit", type=int, default=1500, help="texts to train on")
    parser.add_argument("--rows", type=int, default=500, help="pairs of each set that are measured, always the same")
    parser.add_argument("--share", default="0/1", help="which part of the runs this process does")
    parser.add_argument("--source", type=Path, default=Path(os.environ.get("NEARFAR_DATA", "../shared/data")))
    parser.add_argument("--models", type=Path, default=Path(os.environ.get("NEARFAR_MODELS", "../shared/models")))
    parser.add_argument("--results", type=Path, default=Path("raw_text.jsonl"))
    settings = parser.parse_args(arguments)
    settings.seed = settings.seed or [2, 16, 128]
    settings.encoder = settings.encoder or ["minilm"]
    settings.corpus = settings.corpus or ["stsb_plain_10k"]
    settings.contender = settings.contender or list(CONTENDERS)
    return settings


if __name__ == "__main__":
    main()
