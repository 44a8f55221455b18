"""Which encoder suits the texts: a probe without training, and a short training where it leaves two of them level."""

from __future__ import annotations

import importlib.util
import math
import os
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from nearfar.data import RowType, limit
from nearfar.encoding.pretrained import MINILM_PACKAGE
from nearfar.errors import EncoderError, SettingError, counted
from nearfar.pipeline.data import AUTO_ROWS, class_numbers
from nearfar.pipeline.encoder_run import EncoderPlan, plan_encoder_run
from nearfar.pipeline.estimate import fold_accuracy, fold_parts
from nearfar.pipeline.heads import unit_vectors
from nearfar.pipeline.loaders import tokenized
from nearfar.pipeline.plan import open_encoder
from nearfar.recipe import Recipe
from nearfar.seeds import stream

AUTO = "auto"
PROBED = 1_000
"""Most texts that encoders are probed with."""
LARGEST = 1_500_000_000
"""Bytes of the largest encoder of the Hub's cache that ``auto`` tries."""


@dataclass(frozen=True)
class Probe:
    """How well classes can be told apart by the vectors of an encoder that was not trained on them."""

    name: str
    centers: float
    """The leave-one-out accuracy of the nearest class center."""
    errors: NDArray[np.float64]
    """(n,) the squared leave-one-out error of a ridge regression to the classes at each text."""
    spread: float
    """The mean squared error without any vectors."""

    @property
    def score(self) -> float:
        """The share of the classes' variance that the regression explains; below zero if it explains none."""
        return 1 - float(self.errors.mean()) / max(self.spread, 1e-12)

    def is_level(self, other: Probe) -> bool:
        """Whether another probe of the same texts is worse by no more than a standard error of the difference."""
        differences = other.errors - self.errors
        error = float(differences.std()) / math.sqrt(max(len(differences) - 1, 1))
        return float(differences.mean()) <= error

    def __str__(self) -> str:
        """As messages have it.

        >>> str(Probe("minilm", 0.5, np.array([0.2, 0.4]), 0.5))
        'minilm 0.40 (nearest center 0.50)'
        """
        return f"{self.name} {self.score:.2f} (nearest center {self.centers:.2f})"


def is_open(name: str) -> bool:
    """Whether a name leaves the encoder open: ``auto``, or several with commas between them.

    >>> is_open("auto"), is_open("minilm,toy"), is_open("minilm")
    (True, True, False)
    """
    return name == AUTO or "," in name


def candidates(name: str) -> list[str]:
    """The encoders that ``auto`` or a list stands for: those named, or what is installed and in the Hub's cache."""
    if name != AUTO:
        parts = (part.strip() for part in name.split(","))
        return list(dict.fromkeys(os.path.abspath(part) if os.path.isdir(part) else part for part in parts if part))
    installed = ["minilm"] if importlib.util.find_spec(MINILM_PACKAGE) is not None else []
    return [*installed, *_cached()]


def _cached() -> list[str]:
    """The sentence encoders in the cache of the Hugging Face Hub, by their ids."""
    from huggingface_hub import scan_cache_dir
    from huggingface_hub.errors import CacheNotFound

    try:
        repositories = scan_cache_dir().repos
    except (CacheNotFound, OSError):
        return []
    known = [
        each.repo_id
        for each in repositories
        if each.repo_type == "model"
        and each.size_on_disk <= LARGEST
        and any(file.file_name == "modules.json" for revision in each.revisions for file in revision.files)
    ]
    return sorted(name for name in known if name != "sentence-transformers/all-MiniLM-L6-v2")


def choose_encoder(recipe: Recipe, data: object = None) -> EncoderPlan:
    """The plan of a recipe that leaves its encoder open, with the best of the candidates."""
    names = candidates(recipe.encoder.name)
    if not names and recipe.encoder.name != AUTO:
        raise SettingError(f"--encoder {recipe.encoder.name} names no encoder; write --encoder NAME,NAME.")
    if not names:
        raise SettingError(
            "--encoder auto compares encoders that are installed or in the Hub's cache, and there is none; name some: "
            "--encoder minilm,FOLDER."
        )
    plan = plan_encoder_run(replace(recipe, encoder=replace(recipe.encoder, name=names[0])), data)
    name, notes = best_encoder(plan, names)
    chosen = plan.with_encoder(name)
    return replace(chosen, notes=[*notes, *chosen.notes])


def best_encoder(plan: EncoderPlan, names: list[str]) -> tuple[str, list[str]]:
    """The best of several encoders for the training texts of a plan, and why, in words."""
    if len(names) == 1:
        return names[0], [f"encoder: {names[0]}, the only candidate; --encoder NAME,NAME compares several"]
    data = plan.data
    if data.row_type is not RowType.LABELED:
        raise SettingError(
            f"several encoders are compared on texts with one class each, and these are {data.row_type.wording}: name "
            "one with --encoder."
        )
    probes, notes = list[Probe](), list[str]()
    for name in names:
        try:
            probes.append(probe_encoder(plan, name))
        except EncoderError as error:
            notes.append(f"encoder {name} is left out: {error}")
    if not probes:
        raise SettingError(f"none of {', '.join(names)} can be opened as an encoder; name others with --encoder.")
    probes.sort(key=lambda each: -each.score)
    texts = min(len(data.train), PROBED)
    listed = ", ".join(map(str, probes))
    words = f"encoders by cross-validation of {counted(texts, 'text')} without training, explained variance: {listed}"
    level = [each for each in probes[:2] if probes[0].is_level(each)]
    if len(level) == 1 or len(data.train) >= AUTO_ROWS or fold_parts(plan) is None:
        return probes[0].name, [*notes, f"{words}; {probes[0].name} is taken"]
    trained = {each.name: fold_accuracy(plan.with_encoder(each.name)) for each in level}
    first, second = (trained[each.name] for each in level)
    best = level[int(second - first > _error(first, texts))].name
    after = ", ".join(f"{name} {accuracy:.2f}" for name, accuracy in trained.items())
    return best, [*notes, f"{words}; the first two after a short training: {after}; {best} is taken"]


def _error(share: float, texts: int) -> float:
    """The standard error of a share."""
    return math.sqrt(max(share * (1 - share), 1e-9) / texts)


def probe_encoder(plan: EncoderPlan, name: str) -> Probe:
    """Tell the classes of the training texts apart by the vectors of a pretrained encoder."""
    recipe, train = plan.recipe, plan.data.train
    if len(train) > PROBED:
        train = train.take(limit(train, PROBED, seed=recipe.seed))
    settings = replace(recipe.encoder, name=name, pooling=plan.given.encoder.pooling)
    built = open_encoder(settings, classes=None, seed=stream(recipe.seed, "head"))
    table = tokenized(built, replace(plan.data, train=train, dev=None, test=None), train, None).table
    vectors, numbers = unit_vectors(built.model, table), class_numbers(train, plan.data.classes)
    spread = float((class_targets(numbers) ** 2).sum(axis=1).mean())
    centers = leave_one_out(vectors, numbers, len(plan.data.classes))
    return Probe(name, centers, ridge_errors(vectors, numbers), spread)


def ridge_errors(vectors: NDArray[np.float32], numbers: NDArray[np.int64]) -> NDArray[np.float64]:
    """(n,) the squared error of a ridge regression to the classes at each text, fitted without this text.

    Vectors and classes are centered once; the penalty is the mean squared length of the centered vectors.
    """
    inputs = vectors.astype(np.float64) - vectors.mean(axis=0, dtype=np.float64)
    targets = class_targets(numbers)
    products = inputs @ inputs.T
    penalty = max(float(np.trace(products)) / len(products), 1e-9)
    hat = np.linalg.solve(products + penalty * np.eye(len(products)), products)
    errors: NDArray[np.float64] = (targets - hat @ targets) / (1 - np.diag(hat))[:, None]
    squared: NDArray[np.float64] = (errors**2).sum(axis=1)
    return squared


def class_targets(numbers: NDArray[np.int64]) -> NDArray[np.float64]:
    """(n, c) one for the class of a text and zero for the others, minus the mean of each column."""
    targets: NDArray[np.float64] = (numbers[:, None] == np.unique(numbers)).astype(np.float64)
    targets -= targets.mean(axis=0)
    return targets


def leave_one_out(vectors: NDArray[np.float32], numbers: NDArray[np.int64], classes: int) -> float:
    """The accuracy of the nearest class center, each computed without the text that is predicted."""
    counts = np.bincount(numbers, minlength=classes).astype(np.float64)
    sums = np.zeros((classes, vectors.shape[1]))
    np.add.at(sums, numbers, vectors)
    centers = sums / np.maximum(counts, 1)[:, None]
    scores = vectors @ centers.T - (centers**2).sum(axis=1) / 2
    scores[:, counts == 0] = -np.inf
    own = (sums[numbers] - vectors) / np.maximum(counts[numbers] - 1, 1)[:, None]
    every = np.arange(len(numbers))
    scores[every, numbers] = np.where(
        counts[numbers] > 1, (vectors * own).sum(axis=1) - (own**2).sum(axis=1) / 2, -np.inf
    )
    return float((scores.argmax(axis=1) == numbers).mean())
