"""The runs of :mod:`benchmarks.digests`: tiny generated data, and commands of nearfar on the toy encoder.

Every case has a folder of its own, beside the folder ``data``. What its commands leave there is digested. Recipes name
public keys only.
"""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Values = dict[str, Any]
DATA = "../data"
"""The folder of the data, as a case sees it."""
ASKED = "asked.toml"
"""The recipe or study file of a case."""
KINDS = {
    "fruit": ("apple", "pear", "plum", "cherry", "quince", "melon"),
    "tool": ("hammer", "saw", "drill", "file", "wrench", "pliers"),
    "animal": ("horse", "otter", "heron", "badger", "trout", "beetle"),
    "place": ("river", "meadow", "harbor", "village", "forest", "bridge"),
}
NUMBERS = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
FILLERS = ("old", "small", "bright", "heavy", "quiet", "broken", "early", "green")
SMALL: Values = {
    "seed": 3,
    "encoder": {"name": "toy", "max_length": 24},
    "batches": {"size": 12},
    "training": {"epochs": 2, "learning_rate": 1e-3, "precision": "fp32"},
}
"""What all recipes share."""
COMBO: Values = {
    "name": "blend",
    "weights": {"contrast": 0.1, "squares": 0.9},
    "parts": {"contrast": {"name": "batch-softmax", "trainable": True}, "squares": {"name": "cosine-mse"}},
}


@dataclass(frozen=True)
class Command:
    """One call of nearfar."""

    words: tuple[str, ...]
    out: str | None = None
    """The file for its standard output, where that is digested: its ending says how."""


@dataclass(frozen=True)
class Case:
    """Some commands, one after the other in a folder of their own."""

    name: str
    commands: tuple[Command, ...]
    values: Values = field(default_factory=dict)
    """The recipe or the study file, stored as :data:`ASKED`."""

    def objectives(self) -> set[str]:
        """The names of all objectives that the recipe names."""
        return set(_objectives(self.values))


def cases() -> list[Case]:
    """All cases, in the order they run in."""
    found = [*_classes(), *_heads(), *_training(), *_joined(), *_pairs(), *_shuffles(), *_views(), *_stages(),
             *_tasks(), *_commands(), *_studies()]  # fmt: skip
    names = [case.name for case in found]
    assert len(names) == len(set(names)), "two cases have one name"
    return found


# Trainings


def _classes() -> Iterator[Case]:
    """Texts with classes: every objective that reads them, with its variants."""
    objectives: dict[str, Values] = {
        "auto": {"name": "auto"},
        "cross-entropy": {"name": "cross-entropy"},
        "cross-entropy/smoothed": {"name": "cross-entropy", "label_smoothing": 0.1, "class_weights": "balanced"},
        "cross-entropy/weights": {"name": "cross-entropy", "class_weights": {"fruit": 2.0}},
        "triple-entropy": {"name": "triple-entropy", "centers": 3},
        "triple-entropy/text": {"name": "triple-entropy", "centers": 3, "level": "text", "beta": 0.5, "spread": 0.2},
        "triple-entropy/as-published": {"name": "triple-entropy", "preset": "as-published"},
        "soft-triple": {"name": "soft-triple", "centers": 3},
        "soft-triple/tokens": {"name": "soft-triple", "centers": 3, "level": "tokens", "spread": 0.2},
        "cross-entropy+supcon": {"name": "cross-entropy+supcon"},
        "cross-entropy+supcon/half": {"name": "cross-entropy+supcon", "weight": 0.5, "label_smoothing": 0.1},
        "supcon": {"name": "supcon"},
        "label-aware": {"name": "label-aware"},
        "label-aware/spans": {"name": "label-aware", "views": "spans", "weighting": "toy"},
        "label-aware/synonyms": {"name": "label-aware", "views": "synonyms"},
        "proxy-nca": {"name": "proxy-nca", "scale": 3.0},
        "triplet": {"name": "triplet"},
        "triplet/hard": {"name": "triplet", "select": "hard", "distance": "squared"},
        "triplet/semihard": {"name": "triplet", "select": "semihard", "margin": 1.0},
        "contrastive": {"name": "contrastive"},
        "blend": {
            "name": "blend",
            "weights": {"centers": 0.5},
            "parts": {"centers": {"name": "soft-triple", "centers": 2, "learning_rate": 0.5},
                      "proxies": {"name": "proxy-nca"}, "classes": {"name": "cross-entropy"}},
        },
    }  # fmt: skip
    for name, objective in objectives.items():
        yield _classifier(f"classes/{name}", {"objective": objective})
    rated = {"objective": {"name": "score-mse"}, "data": {"score": "score"}}
    for kind in ("trained", "ridge"):
        yield _classifier(f"rated/{kind}", {**rated, "head": {"kind": kind}}, train="rated.jsonl", test="test.jsonl")
    several = {"data": {"label_separator": ";"}}
    for name in ("cross-entropy", "supcon"):
        yield _classifier(f"several-labels/{name}", {**several, "objective": {"name": name}}, train="several.jsonl")
    padded = {"name": "triple-entropy", "centers": 3, "padding": True}
    yield _classifier("classes/triple-entropy/padding", {"objective": padded, "encoder": {"fast": False}})
    for name in ("cross-entropy", "supcon", "triple-entropy"):
        yield _classifier(f"many-classes/{name}", {"objective": {"name": name}}, train="many-classes.jsonl")
    for name in ("cross-entropy", "supcon"):
        yield _classifier(f"few-texts/{name}", {"objective": {"name": name}, "data": {"per_class": 4, "dev": 0}})
    many = {"data": {"dev": "auto"}, "training": {"max_steps": 6}, "batches": {"size": 8}}
    yield _classifier("many-texts/auto", {"objective": {"name": "auto"}, **many}, train="many-texts.jsonl")
    yield _classifier("columns", {"data": {"text": "body", "label": "topic"}}, train="columns.csv", test=None)


def _heads() -> Iterator[Case]:
    """Class heads that are trained, and those that are fitted."""
    for kind in ("trained", "logistic", "nearest-center", "neighbors"):
        recipe = {"objective": {"name": "cross-entropy"}, "head": {"kind": kind, "neighbors": 3}}
        yield _classifier(f"heads/{kind}", recipe)
        if kind != "trained":
            yield _classifier(f"heads/{kind}/supcon", {**recipe, "objective": {"name": "supcon"}})
    for pooling in ("first", "mean", "pooler"):
        recipe = {"objective": {"name": "cross-entropy"}, "encoder": {"pooling": pooling}}
        yield _classifier(f"heads/linear/{pooling}", {**recipe, "training": {"head_learning_rate": 0.05}})


def _training() -> Iterator[Case]:
    """How a run is trained: schedules, accumulation, chunks, the choice of weights, noise inside the encoder."""
    plain, supcon = {"objective": {"name": "cross-entropy"}}, {"objective": {"name": "supcon"}}
    for schedule in ("cosine", "constant"):
        recipe = {**plain, "training": {"schedule": schedule, "warmup": 2, "weight_decay": 0.1}}
        yield _classifier(f"training/{schedule}", recipe)
    yield _classifier("training/no-clipping", {**plain, "training": {"clip": 0.0}})
    yield _classifier("training/accumulate", {**plain, "training": {"accumulate": 2}})
    yield _classifier("training/chunk", {**supcon, "batches": {"chunk": 5}})
    yield _classifier("training/chunk-accumulate", {**supcon, "batches": {"chunk": 5}, "training": {"accumulate": 2}})
    yield _classifier("training/chunk-cross-entropy", {**plain, "batches": {"chunk": 5}})
    yield _classifier("training/max-steps", {**plain, "training": {"max_steps": 4}})
    patience = {"epochs": 6, "patience": 1, "evaluate_every": 1, "metric": "accuracy", "learning_rate": 0.02}
    yield _classifier("training/early-stopping", {**plain, "training": patience})
    yield _classifier("training/dev-file", {**plain, "data": {"dev": f"{DATA}/test.jsonl", "test": 0.2}})
    yield _classifier("training/no-dev", {**plain, "data": {"dev": 0}})
    yield _classifier("training/limit", {**plain, "data": {"limit": 24}, "training": {"metric": "f1_macro"}})
    yield _classifier("training/seed", {**plain, "seed": 4})
    checkpoints = {"checkpoint_every": 1, "keep_checkpoints": 1}
    yield _classifier("training/checkpoints", {**plain, "training": checkpoints})
    yield _classifier("encoder/padded", {**plain, "encoder": {"fast": False}})
    yield _classifier("encoder/noise", {**plain, "encoder": {"dropout": 0.2, "drophead": 0.2, "cutoff": 0.1}})
    yield _encoder("training/chunk-pairs", "positives.jsonl", COMBO["parts"]["contrast"], {"batches": {"chunk": 5}})
    yield _encoder("training/chunk-triplets", "triplets.jsonl", {"name": "pair-triplet"}, {"batches": {"chunk": 5}})
    both = {"batches": {"chunk": 5}, "training": {"accumulate": 2}}
    yield _encoder("training/chunk-blend", "scores.jsonl", COMBO, both)
    stopping = {"data": {"dev": 0.25}, "training": {"epochs": 6, "patience": 2, "evaluate_every": 1}}
    yield _encoder("training/early-stopping-pairs", "scores.jsonl", {"name": "cosine-mse"}, stopping)


def _joined() -> Iterator[Case]:
    """Pairs that the tokenizer joins, with a class each."""
    for name in ("auto", "cross-entropy", "triple-entropy", "cross-entropy+supcon", "supcon"):
        recipe = {"objective": {"name": name}}
        yield _classifier(f"joined-pairs/{name}", recipe, train="joined.jsonl", test="joined-test.jsonl")


def _pairs() -> Iterator[Case]:
    """Pairs with scores, with yes or no and with nothing, triplets and rankings: every objective that reads them."""
    for kind in ("scores", "labels"):
        for name in ("batch-softmax", "mnrl", "cosine-mse", "pearson"):
            yield _encoder(f"{kind}/{name}", f"{kind}.jsonl", {"name": name})
    for name in ("pair-triplet", "contrastive-pairs"):  # they refuse graded scores
        yield _encoder(f"labels/{name}", "labels.jsonl", {"name": name})
    yield _encoder("scores/auto", "scores.jsonl", {"name": "auto"})
    for kind in ("scores", "labels", "positives", "triplets", "ranking"):
        yield _encoder(f"{kind}/dev", f"{kind}.jsonl", {"name": "batch-softmax"}, {"data": {"dev": 0.25}})
    for kind in ("positives", "triplets", "ranking"):
        for name in ("auto", "batch-softmax", "mnrl", "pair-triplet"):
            yield _encoder(f"{kind}/{name}", f"{kind}.jsonl", {"name": name})
    yield _encoder("scores/blend", "scores.jsonl", COMBO)
    variants: dict[str, Values] = {
        "one-direction": {"symmetric": False, "temperature": 0.3},
        "trainable": {"trainable": True},
        "coordinate": {"normalize": "coordinate", "temperature": 2.0},
        "minmax": {"normalize": "minmax", "temperature": 2.0},
        "unscaled": {"normalize": "none", "temperature": 5.0},
        "threshold": {"threshold": 0.3, "reduction": "all"},
        "no-groups": {"groups": False},
    }
    for name, settings in variants.items():
        yield _encoder(f"scores/batch-softmax/{name}", "scores.jsonl", {"name": "batch-softmax", **settings})
    yield _encoder("positives/mnrl/groups", "positives.jsonl", {"name": "mnrl", "groups": True, "scale": 10.0})
    hard = {"name": "batch-softmax", "hard_negative_weight": 0.7}
    yield _encoder("triplets/batch-softmax/hard", "triplets.jsonl", hard)
    for distance in ("squared", "cosine"):
        objective = {"name": "pair-triplet", "distance": distance, "margin": 0.3}
        yield _encoder(f"positives/pair-triplet/{distance}", "positives.jsonl", objective)
    for pooling in ("first", "pooler"):
        recipe = {"encoder": {"pooling": pooling}}
        yield _encoder(f"scores/pooling-{pooling}", "scores.jsonl", {"name": "cosine-mse"}, recipe)
    measured = {"data": {"dev": f"{DATA}/ranking.jsonl", "test": f"{DATA}/scores.jsonl"}}
    yield _encoder("positives/other-dev", "positives.jsonl", {"name": "mnrl"}, measured)


def _shuffles() -> Iterator[Case]:
    """Every way to put rows into batches."""
    contrast = {"name": "batch-softmax"}
    for shuffle in ("random", "file-order", "neighbors", "words", "clusters", "neighbor-ids"):
        batches = {"shuffle": shuffle, "group": 4, "clusters": 3}
        recipe = {"batches": batches, "training": {"epochs": 3}}
        yield _encoder(f"shuffle/{shuffle}", "labels.jsonl", contrast, recipe)
        if shuffle not in ("random", "file-order"):
            more = {**batches, "by": "right", "reverse": False, "refresh": 2, "apart": True, "candidates": 10}
            recipe = {"batches": more, "training": {"epochs": 3}}
            yield _encoder(f"shuffle/{shuffle}/right", "positives.jsonl", contrast, recipe)
    for name in ("cross-entropy", "supcon"):
        for shuffle in ("random", "file-order", "balanced"):
            recipe = {"objective": {"name": name}, "batches": {"shuffle": shuffle, "per_class": 2}}
            yield _classifier(f"shuffle/{shuffle}/{name}", recipe)


def _views() -> Iterator[Case]:
    """Plain texts, of which two views are compared, and simcse on pairs and triplets."""
    objectives: dict[str, Values] = {
        "simcse": {"name": "simcse"},
        "simcse/no-projection": {"name": "simcse", "projection": False},
        "simcse/masked-words": {"name": "simcse", "mlm_weight": 0.1},
        "simcse/dropped-words": {"name": "simcse", "views": "words"},
        "simcse/synonyms": {"name": "simcse", "views": "synonyms"},
        "mirror": {"name": "mirror"},
        "mirror/words": {"name": "mirror", "granularity": "words"},
        "mirror/characters": {"name": "mirror", "unit": "characters", "masked": 4},
        "mirror/as-published": {"name": "mirror", "granularity": "phrases", "preset": "as-published"},
        "blend": {"name": "blend", "parts": {"one": {"name": "simcse"}, "other": {"name": "mirror"}}},
    }
    dev = {"data": {"dev": f"{DATA}/scores.jsonl"}}
    for name, objective in objectives.items():
        yield _encoder(f"plain/{name}", "plain.txt", objective)
    yield _encoder("plain/simcse/dev", "plain.txt", {"name": "simcse"}, dev)
    yield _encoder("plain/mirror/dev", "plain.txt", {"name": "mirror"}, dev)
    yield _encoder("plain/simcse/chunk", "plain.txt", {"name": "simcse"}, {"batches": {"chunk": 5}})
    masked = {"name": "simcse", "mlm_weight": 0.1}
    yield _encoder("plain/masked-words/chunk", "plain.txt", masked, {"batches": {"chunk": 5}})
    noise = {"encoder": {"dropout": 0.0, "drophead": 0.2, "cutoff": 0.1}}
    yield _encoder("plain/mirror/noise", "plain.txt", {"name": "mirror"}, noise)
    yield _encoder("positives/simcse", "positives.jsonl", {"name": "simcse"})
    hard = {"name": "simcse", "hard_negative_weight": 0.3, "mlm_weight": 0.1}
    yield _encoder("triplets/simcse", "triplets.jsonl", hard, {"encoder": {"pooling": "pooler"}})


def _stages() -> Iterator[Case]:
    """Trainings in a row."""
    stages = [{"objective": {"name": "supcon"}, "epochs": 1}, {"objective": {"name": "cross-entropy"}, "epochs": 2}]
    yield _classifier("stages/classes", {"stage": stages})
    stages = [
        {"objective": {"name": "batch-softmax"}, "epochs": 1, "shuffle": "words", "batch_size": 8},
        {"objective": {"name": "cosine-mse"}, "learning_rate": 5e-4},
    ]
    yield _encoder("stages/pairs", "scores.jsonl", None, {"stage": stages})
    yield _encoder("stages/pairs/dev", "scores.jsonl", None, {"stage": stages, "data": {"dev": 0.25}})
    stages = [{"objective": {"name": "simcse"}, "epochs": 1}, {"objective": {"name": "pair-triplet"}}]
    yield _encoder("stages/triplets", "triplets.jsonl", None, {"stage": stages})


# Several tasks


def _tasks() -> Iterator[Case]:
    """Several tasks on one encoder: turns, heads, surgery, weights, objectives, stages."""
    turns: dict[str, Values] = {
        "sampled": {"kind": "sampled"},
        "square-root": {"kind": "sampled", "by": "square-root", "steps": 8},
        "temperature": {"kind": "sampled", "by": "temperature", "temperature": 3.0},
        "weights": {"kind": "sampled", "by": "weights", "weights": {"same": 2.0}},
        "round-robin": {"kind": "round-robin"},
        "round-robin-ordered": {"kind": "round-robin", "order": ["kind", "close", "kind", "close", "same"]},
        "sequential": {"kind": "sequential"},
        "sequential-ordered": {"kind": "sequential", "order": ["close", "kind", "same"]},
        "annealed": {"kind": "annealed", "steps": 8, "drop": 0.9},
    }
    for name, table in turns.items():
        yield _many(f"tasks/turns/{name}", {"turns": table})
    surgery = {"surgery": "pcgrad"}
    trainings: dict[str, Values] = {
        "pcgrad": surgery,
        "pcgrad-sum": {**surgery, "combine": "sum", "accumulate": 3},
        "uncertainty": {"weighting": "uncertainty"},
        "pcgrad-uncertainty": {**surgery, "weighting": "uncertainty"},
        "accumulate": {"accumulate": 2},
        "early-stopping": {"epochs": 6, "patience": 1, "evaluate_every": 2, "learning_rate": 0.02},
        "max-steps": {"max_steps": 5, "schedule": "constant", "head_learning_rate": 0.01},
    }
    for name, table in trainings.items():
        yield _many(f"tasks/training/{name}", {"training": table})
    for kind in ("round-robin", "annealed"):  # sequential turns have one task a step, and refuse surgery
        yield _many(f"tasks/training/pcgrad/{kind}", {"training": surgery, "turns": {"kind": kind}})
    yield _many("tasks/chunk", {"batches": {"chunk": 3}})
    yield _many("tasks/chunk-pcgrad", {"batches": {"chunk": 3}, "training": surgery, "shared_layer": True})
    yield _many("tasks/no-dev", {}, data={"dev": 0})
    yield _many("tasks/test", {}, data={"dev": 0.2, "test": 0.2})
    yield _many("tasks/shared-layer", {"shared_layer": True})
    yield _many("tasks/pooling-first", {"shared_layer": True, "encoder": {"pooling": "first"}})
    heads: dict[str, Values] = {
        "concat": {"kind": "concat"},
        "concat-more": {"kind": "concat", "difference": True, "product": True, "dropout": 0.3},
        "joint": {"kind": "joint"},
        "joint-ordered": {"kind": "joint", "symmetric": False},
        "joint-difference": {"kind": "joint-difference"},
        "joint-difference-activated": {"kind": "joint-difference-activated", "symmetric": False},
        "cosine": {"kind": "cosine"},
    }
    for name, head in heads.items():
        own = {"kind": {"head": {"kind": "linear", "dropout": 0.2}}, "same": {"head": head}, "close": {"head": head}}
        yield _many(f"tasks/heads/{name}", {"shared_layer": True}, own=own)
    apart = {"kind": "concat"}
    objectives: dict[str, dict[str, Values]] = {
        "contrast": {"kind": {"objective": {"name": "supcon"}, "head_weight": 0.5},
                     "same": {"objective": {"name": "batch-softmax"}, "head": apart},
                     "close": {"objective": {"name": "pearson"}, "head": apart}},
        "cross-entropies": {"kind": {"objective": {"name": "cross-entropy+supcon"}, "weight": 2.0},
                            "same": {"objective": {"name": "cross-entropy", "label_smoothing": 0.1}}},
        "centers": {"kind": {"objective": {"name": "triple-entropy", "centers": 3}},
                    "close": {"objective": COMBO, "head": {"kind": "cosine"}, "batch_size": 10}},
        "pairs": {"same": {"objective": {"name": "contrastive-pairs"}, "head": {"kind": "cosine"}},
                  "close": {"objective": {"name": "cosine-mse"}, "head": apart, "metric": "spearman"}},
    }  # fmt: skip
    for name, own in objectives.items():
        yield _many(f"tasks/objectives/{name}", {}, own=own)
    uncertain = {"weighting": "uncertainty", "surgery": "pcgrad"}
    yield _many("tasks/objectives/contrast/pcgrad", {"training": uncertain}, own=objectives["contrast"])
    stages: dict[str, list[Values]] = {
        "triplets": [_stage("triplets.jsonl", "simcse", epochs=1)],
        "plain": [_stage("plain.txt", "mirror", learning_rate=5e-4)],
        "two": [_stage("positives.jsonl", "batch-softmax", shuffle="words", batch_size=8), _stage("scores.jsonl")],
        "dev": [{"data": {"train": f"{DATA}/scores.jsonl", "dev": 0.25}, "objective": {"name": "auto"}, "epochs": 2}],
    }
    for name, before in stages.items():
        yield _many(f"tasks/stages/{name}", {"stage": before, "shared_layer": True})
    one = _many("tasks/one", {}, tasks=("kind",))
    yield Case(one.name, (*one.commands, _call("evaluate", "model", "--json", out="own-rows.json")), one.values)
    pooled = _many("tasks/export", {"encoder": {"pooling": "pooler"}})
    more = (_call("export", "model", "--task", "kind", "--out", "classifier"),)
    yield Case(pooled.name, (*pooled.commands, *more), pooled.values)


def _stage(train: str, objective: str = "auto", **settings: Any) -> Values:
    return {"data": {"train": f"{DATA}/{train}", "dev": 0}, "objective": {"name": objective}, **settings}


# Other commands


def _commands() -> Iterator[Case]:
    """The commands that use a model, on the toy encoder or on one that is trained for it."""
    yield _simple("embed", _call("embed", "toy", f"{DATA}/plain.txt", "--out", "toy.npy", "--batch-size", "7"))
    scored = [
        _call("score", "toy", f"{DATA}/{kind}.jsonl", "--out", f"{kind}.jsonl", "--threshold", "0.5")
        for kind in ("scores", "labels", "positives")
    ]
    yield _simple("score", *scored)
    kinds = ("scores", "labels", "positives", "triplets", "ranking")
    measured = [_call("evaluate", "toy", f"{DATA}/{kind}.jsonl", "--json", out=f"{kind}.json") for kind in kinds]
    yield _simple("evaluate", *measured)
    yield _simple(
        "evaluate/corpus",
        _call("evaluate", "toy", f"{DATA}/ranking.jsonl", "--corpus", f"{DATA}/corpus.jsonl", "--json", out="a.json"),
        _call("evaluate", "toy", f"{DATA}/positives.jsonl", "--corpus", f"{DATA}/rights.txt", "--json", out="b.json"),
    )
    suites = [
        _call("evaluate", "toy", "--suite", suite, "--data", f"{DATA}/suite", "--json", out=f"{suite}.json")
        for suite in ("sts", "all")
    ]
    yield _simple("evaluate/suite", *suites)
    yield _simple("serve", _call("serve", "toy", "--openapi", out="openapi.json"))
    yield _simple("label", _call("label", f"{DATA}/texts.jsonl", "--files", "--out", "project"))
    yield _simple("explore", _call("explore", "toy", f"{DATA}/texts.jsonl", "--map", "pca", "--files", "--out", "map"))
    corpus, queries = f"{DATA}/corpus.jsonl", f"{DATA}/ranking.jsonl"
    yield _simple("search", _call("search", "toy", corpus, queries, "--top", "4", "--out", "found.jsonl"))
    yield _simple(
        "index",
        _call("index", "toy", corpus, "--out", "index"),
        _call("search", "toy", "index", queries, "--top", "4", "--out", "found.jsonl"),
    )
    fitted = _classifier("extend", {"objective": {"name": "supcon"}})
    more = (_call("extend", "model", f"{DATA}/texts.jsonl", "--out", "extended"),)
    yield Case(fitted.name, (*fitted.commands, *more), fitted.values)
    near = ("--positions", "1-8", "--per-anchor", "2")
    rows = ("mine", "toy", f"{DATA}/positives.jsonl")
    yield _simple(
        "mine",
        _call(*rows, *near, "--out", "triplets.jsonl"),
        _call(*rows, *near, "--as", "pairs", "--oversample", "--margin", "0.001", "--out", "pairs.jsonl"),
        _call(*rows, *near, "--corpus", f"{DATA}/plain.txt", "--max-score", "0.999", "--out", "corpus.jsonl"),
    )
    maps = {"whitening": ("--dims", "16"), "all-but-the-top": ("--remove", "2")}
    for method, flags in maps.items():
        yield _simple(
            f"whiten/{method}",
            _call("whiten", "toy", f"{DATA}/plain.txt", "--method", method, *flags, "--out", "model"),
            _call("embed", "model", f"{DATA}/test.jsonl", "--text", "text", "--out", "vectors.npy"),
            _call("evaluate", "model", f"{DATA}/scores.jsonl", "--json", out="scores.json"),
        )
    trained = _encoder("geometry", "scores.jsonl", {"name": "cosine-mse"})
    seen = (
        _call("geometry", "model", f"{DATA}/plain.txt", "--layers", "--before", "toy", "--json", out="layers.json"),
        _call("geometry", "model", f"{DATA}/plain.txt", "--pairs", f"{DATA}/scores.jsonl", "--json", out="pairs.json"),
        _call("geometry", "toy", f"{DATA}/labels.jsonl", "--seed", "1", "--json", out="labels.json"),
    )
    yield Case(trained.name, (*trained.commands, *seen), trained.values)
    yield _simple(
        "check",
        *[
            _call("check", f"{DATA}/{name}", "--encoder", "toy", "--json", out=f"{name.partition('.')[0]}.json")
            for name in ("texts.jsonl", "scores.jsonl", "triplets.jsonl", "ranking.jsonl", "plain.txt")
        ],
    )
    planned = _classifier("dry-run", {"objective": {"name": "auto"}})
    yield Case(planned.name, (_call("train", ASKED, "--dry-run", out="planned.toml"),), planned.values)
    planned = _many("dry-run/tasks", {})
    yield Case(planned.name, (_call("train", ASKED, "--dry-run", out="planned.toml"),), planned.values)
    given = ("--encoder", "toy", "--objective", "supcon", "--epochs", "1", "--batch-size", "16", "--precision", "fp32",
             "--learning-rate", "1e-3", "--dev", "0.25", "--max-length", "16", "--pooling", "first", "--seed", "5",
             "--set", "head.kind=logistic")  # fmt: skip
    yield _simple("flags", _call("train", f"{DATA}/texts.jsonl", *given, "--out", "model"), _predict("test.jsonl"))
    first = _encoder("encoder/trained-before", "positives.jsonl", {"name": "mnrl"})
    again = ("train", f"{DATA}/texts.jsonl", "--encoder", "model", "--objective", "cross-entropy", "--epochs", "1")
    more = (_call(*again, "--precision", "fp32", "--learning-rate", "1e-3", "--out", "second"),)
    yield Case(first.name, (*first.commands, *more), first.values)


def _studies() -> Iterator[Case]:
    """Studies, tunes and published tables; their trials run in a process of their own."""
    contenders = [_contender("plain", "cross-entropy"), _contender("triple", "triple-entropy", centers=2)]
    study = _study("texts.jsonl", contenders, seeds=[2, 16], folds=2)
    yield _studied("study/classes", study, _call("report", "study", "--format", "csv", "--out", "table.csv"))
    combo = {"name": "combo", "objective": COMBO}
    yield _studied("study/scores", _study("scores.jsonl", [_contender("mse", "cosine-mse"), combo], folds=2))
    pairs = [_contender("contrast", "contrastive-pairs"), _contender("softmax", "batch-softmax")]
    yield _studied("study/labels", _study("labels.jsonl", pairs, folds=2))
    ranked = _study("ranking.jsonl", [_contender("mnrl", "mnrl"), _contender("softmax", "batch-softmax")], folds=2)
    yield _studied("study/ranking", ranked)
    grid = {"method": "grid", "folds": 2, "space": {"objective.beta": [0.5, 0.9]}}
    rates = {"low": 1e-4, "high": 1e-2, "log": True}
    tpe = {"method": "tpe", "trials": 3, "dev": 0.3, "space": {"training.learning_rate": rates}}
    searched = [
        {**_contender("grid", "triple-entropy", centers=2), "search": grid},
        {**_contender("tpe", "cross-entropy"), "search": tpe},
    ]
    yield _studied("study/search", _study("texts.jsonl", searched, folds=2))
    views = [
        {"name": "before", "untrained": "as-is"},
        {"name": "whitened", "untrained": "whitening"},
        _contender("mirror", "mirror"),
        {**_contender("letters", "mirror"), "random_letters": True},
    ]
    plain = _study("plain.txt", views, test=[f"{DATA}/scores.jsonl", f"{DATA}/suite/stsb.jsonl"])
    yield _studied("study/plain", plain)
    fixed = ("--encoder", "toy", "--folds", "2", "--rounds", "1", "--minutes", "60", "--workers", "1", "--set",
             "training.epochs=1", "--set", "batches.size=8", "--set", "training.precision=fp32")  # fmt: skip
    yield _simple(
        "tune/classes",
        _call("tune", f"{DATA}/texts.jsonl", *fixed, "--out", "tuned"),
        _call("predict", "tuned/model", f"{DATA}/test.jsonl", "--out", "predictions.jsonl"),
    )
    yield _simple("tune/scores", _call("tune", f"{DATA}/scores.jsonl", *fixed, "--out", "tuned"))
    wishes = ("--data", f"{DATA}/published", "--encoder", "toy", "--seeds", "2", "--workers", "1", "--out", "out")
    yield _simple(
        "reproduce/classes",
        _call("reproduce", "triple-entropy", "--table", "3", *wishes, "--folds", "2", "--limit", "24"),
    )
    yield _simple(
        "reproduce/tasks",
        _call("reproduce", "multi-task", "--table", "3", *wishes, "--limit", "20", "--epochs", "1", "--settings",
              "trained"),
    )  # fmt: skip


# How cases are put together


def _call(*words: str, out: str | None = None) -> Command:
    return Command(words, out)


def _simple(name: str, *commands: Command) -> Case:
    return Case(name, commands)


def _train() -> Command:
    return _call("train", ASKED, "--out", "model")


def _predict(test: str) -> Command:
    return _call("predict", "model", f"{DATA}/{test}", "--out", "predictions.jsonl")


def _classifier(name: str, recipe: Values, *, train: str = "texts.jsonl", test: str | None = "test.jsonl") -> Case:
    """A training on rows with classes, and what it predicts."""
    values = laid_over(SMALL, {"data": {"train": f"{DATA}/{train}", "dev": 0.25}}, recipe)
    own = _call("predict", "model", f"{DATA}/{train}", "--text", "body", "--out", "predictions.jsonl")
    return Case(name, (_train(), own if test is None else _predict(test)), values)


def _encoder(name: str, train: str, objective: Values | None, recipe: Values | None = None) -> Case:
    """A training on other rows, and the vectors it gives to texts.

    Dev rows may choose the encoder as it was, whose digest says nothing. So there are none unless a recipe names some.
    """
    asked = {} if objective is None else {"objective": objective}
    test = f"{DATA}/scores.jsonl" if train == "plain.txt" else 0.25
    values = laid_over(SMALL, {"data": {"train": f"{DATA}/{train}", "dev": 0, "test": test}}, asked, recipe or {})
    return Case(name, (_train(), _call("embed", "model", f"{DATA}/plain.txt", "--out", "vectors.npy")), values)


def _many(
    name: str,
    recipe: Values,
    *,
    tasks: Sequence[str] = ("kind", "same", "close"),
    data: Values | None = None,
    own: Mapping[str, Values] | None = None,
) -> Case:
    """A training of several tasks, what each predicts, and the vectors; ``own`` is laid over tasks by their names."""
    files = {"kind": "texts.jsonl", "same": "labels.jsonl", "close": "scores.jsonl"}
    rows = [
        laid_over({"name": task, "data": {"train": f"{DATA}/{files[task]}", "dev": 0.25, **(data or {})},
                   "metric": "pearson" if task == "close" else "accuracy"},
                  (own or {}).get(task, {}))
        for task in tasks
    ]  # fmt: skip
    values = laid_over(SMALL, {"batches": {"size": 8}}, recipe, {"task": rows})
    used = [
        _call("predict", "model", "--task", task, f"{DATA}/{files[task]}", "--out", f"{task}.jsonl") for task in tasks
    ]
    used.append(_call("embed", "model", f"{DATA}/plain.txt", "--out", "vectors.npy"))
    return Case(name, (_train(), *used), values)


def _contender(name: str, objective: str, **settings: Any) -> Values:
    return {"name": name, "objective": {"name": objective, **settings}}


def _study(
    train: str,
    contenders: Sequence[Values],
    *,
    seeds: Sequence[int] = (2,),
    folds: int | None = None,
    test: list[str] | None = None,
) -> Values:
    settings: Values = {"name": "small", "seeds": list(seeds), **({} if folds is None else {"folds": folds})}
    recipe = laid_over({key: SMALL[key] for key in ("encoder", "batches", "training")}, {"training": {"epochs": 1}})
    data: Values = {"name": "rows", "file": f"{DATA}/{train}", **({} if test is None else {"test": test})}
    return {"study": settings, "recipe": recipe, "data": [data], "contender": list(contenders)}


def _studied(name: str, study: Values, *more: Command) -> Case:
    ran = _call("study", "run", ASKED, "--out", "study", "--workers", "1", "--threads", "1")
    return Case(name, (ran, *more), study)


def laid_over(*tables: Mapping[str, Any]) -> Values:
    """The tables in one; what comes later wins, key by key, but an objective replaces the one before."""
    found: Values = {}
    for table in tables:
        for key, value in table.items():
            merged = isinstance(value, dict) and isinstance(found.get(key), dict) and key != "objective"
            found[key] = laid_over(found[key], value) if merged else value
    return found


def _objectives(values: Any) -> Iterator[str]:
    if isinstance(values, list):
        for value in values:
            yield from _objectives(value)
    if isinstance(values, dict):
        for key, value in values.items():
            if key == "objective":
                yield value["name"]
                for part in value.get("parts", {}).values():
                    yield part["name"]
            else:
                yield from _objectives(value)


def as_toml(values: Mapping[str, Any]) -> str:
    """A recipe or study file: one line for each key, with tables in braces.

    >>> as_toml({"seed": 3, "data": {"train": "a.csv", "columns": ["text"]}})
    '"seed" = 3\\n"data" = {"train" = "a.csv", "columns" = ["text"]}\\n'
    """
    return "".join(f"{json.dumps(key)} = {_toml(value)}\n" for key, value in values.items())


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(key)} = {_toml(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(_toml(inner) for inner in value) + "]"
    return json.dumps(value)


# The data


def write_data(folder: Path) -> None:
    """All files that the cases read; the same every time."""
    folder.mkdir(parents=True)
    _lines(folder / "texts.jsonl", _texts(48, "texts"))
    _lines(folder / "test.jsonl", _texts(20, "test"))
    _lines(folder / "many-texts.jsonl", _texts(2_100, "many texts"))
    _lines(folder / "many-classes.jsonl", _by_word(72))
    texts = _texts(48, "rated")
    _lines(folder / "rated.jsonl", [{"text": row["text"], "score": n % 7 / 2} for n, row in enumerate(texts)])
    second = ("", ";sweet", ";sharp")
    _lines(
        folder / "several.jsonl", [{**row, "label": f"{row['label']}{second[n % 3]}"} for n, row in enumerate(texts)]
    )
    rows = "".join(f"{row['text']},{row['label']}\n" for row in _texts(24, "columns"))
    (folder / "columns.csv").write_text(f"body,topic\n{rows}", encoding="utf-8")
    _lines(folder / "joined.jsonl", _judged(40, "joined"))
    _lines(folder / "joined-test.jsonl", _judged(16, "joined test"))
    _lines(folder / "scores.jsonl", _scored(40, "scores"))
    _lines(folder / "labels.jsonl", _labeled(40, "labels"))
    together = _together(40, "positives")
    _lines(folder / "positives.jsonl", together)
    rights = dict.fromkeys([*(row["text_b"] for row in together), *(_text(n, "rights") for n in range(12))])
    (folder / "rights.txt").write_text("".join(f"{text}\n" for text in rights), encoding="utf-8")
    _lines(folder / "triplets.jsonl", _triplets(40, "triplets"))
    ranking = _ranking(12, "ranking")
    _lines(folder / "ranking.jsonl", ranking)
    corpus = {row["doc_id"]: row["doc"] for row in ranking} | {f"more-{n}": _text(n, "corpus") for n in range(12)}
    _lines(folder / "corpus.jsonl", [{"doc_id": name, "doc": text} for name, text in corpus.items()])
    (folder / "plain.txt").write_text("".join(f"{_text(n, 'plain')}\n" for n in range(40)), encoding="utf-8")
    for name in ("stsb", "sts12", "others"):
        _lines(folder / "suite" / f"{name}.jsonl", _scored(24, name))
    published = folder / "published"
    _lines(published / "cr" / "all.jsonl.gz", [{**row, "label": n % 2} for n, row in enumerate(_texts(24, "cr"))])
    for split in ("train", "dev"):
        kinds = [{**row, "label": n % 3} for n, row in enumerate(_texts(30, f"sst {split}"))]
        _lines(published / "cs224n_sst" / f"{split}.jsonl.gz", kinds)
        _lines(published / "cs224n_quora" / f"{split}.jsonl.gz", _labeled(30, f"quora {split}"))
        _lines(published / "cs224n_sts" / f"{split}.jsonl.gz", _scored(30, f"sts {split}"))
    _lines(published / "nli_triplets" / "train.jsonl.gz", _triplets(30, "nli"))


def _lines(path: Path, rows: Sequence[Values]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    content = "".join(json.dumps(row) + "\n" for row in rows).encode()
    path.write_bytes(gzip.compress(content, mtime=0) if path.suffix == ".gz" else content)


def _source(*names: object) -> random.Random:
    return random.Random(" ".join(map(str, names)))  # a text seeds it through SHA-512, the same in every process


def _words(kind: str, source: random.Random) -> str:
    """A thing of a kind, with some words around it."""
    return f"the {source.choice(FILLERS)} {source.choice(KINDS[kind])} of {source.choice(FILLERS)} people"


def _text(number: int, name: str) -> str:
    source = _source(name, number)
    more = " ".join(source.sample(FILLERS, source.randint(0, 4)))
    return f"{_words(source.choice(list(KINDS)), source)} number {NUMBERS[number % 10]} {number} {more}".strip()


def _texts(rows: int, name: str) -> list[Values]:
    """Texts of three classes, which are told apart by their words."""
    kinds = list(KINDS)[:3]
    return [
        {"text": f"{_words(kinds[n % 3], _source(name, n))} number {n}", "label": kinds[n % 3]} for n in range(rows)
    ]


def _by_word(rows: int) -> list[Values]:
    """Texts of a dozen classes."""
    words = [word for kind in list(KINDS)[:2] for word in KINDS[kind]]
    return [
        {"text": f"{NUMBERS[n % 10]} {words[n % 12]} {_source('many', n).choice(FILLERS)} {n}", "label": words[n % 12]}
        for n in range(rows)
    ]


def _two(n: int, name: str) -> tuple[str, str, bool]:
    """Two texts, and whether they are of one kind."""
    source = _source(name, n)
    one = source.choice(list(KINDS))
    other = one if n % 3 else source.choice([kind for kind in KINDS if kind != one])
    return f"{_words(one, source)} number {n}", f"number {n} is {_words(other, source)}", one == other


def _judged(rows: int, name: str) -> list[Values]:
    """Pairs of three classes."""
    found = []
    for n in range(rows):
        left, right, same = _two(n, name)
        label = "neutral" if n % 4 == 1 else "same" if same else "other"
        found.append({"premise": left, "hypothesis": right, "label": label})
    return found


def _scored(rows: int, name: str) -> list[Values]:
    pairs = [(*_two(n, name), _source(name, n, "score").randint(0, 4) / 2) for n in range(rows)]
    return [{"text_a": left, "text_b": right, "score": more + 3 * same} for left, right, same, more in pairs]


def _labeled(rows: int, name: str) -> list[Values]:
    pairs = [_two(n, name) for n in range(rows)]
    return [{"text_a": left, "text_b": right, "label": int(same)} for left, right, same in pairs]


def _together(rows: int, name: str) -> list[Values]:
    """Pairs that belong together; every fifth right text comes twice."""
    pairs = [_two(3 * n + 1, name) for n in range(rows)]
    return [
        {"text_a": left, "text_b": pairs[n - 1][1] if n % 5 == 4 else right} for n, (left, right, _) in enumerate(pairs)
    ]


def _triplets(rows: int, name: str) -> list[Values]:
    return [
        {"anchor": _two(3 * n + 1, name)[0], "positive": _two(3 * n + 1, name)[1], "negative": _two(3 * n, name)[1]}
        for n in range(rows)
    ]


def _ranking(queries: int, name: str) -> list[Values]:
    """Four documents for each query, of which one or two are relevant."""
    return [
        {"query_id": f"q{q}", "query": f"where is {_words(list(KINDS)[q % 4], _source(name, q))} {q}",
         "doc_id": f"q{q}d{n}", "doc": f"{_words(list(KINDS)[(q + n // 2) % 4], _source(name, q, n))} {q} {n}",
         "relevance": (2, q % 2, 0, 0)[n]}
        for q in range(queries)
        for n in range(4)
    ]  # fmt: skip
