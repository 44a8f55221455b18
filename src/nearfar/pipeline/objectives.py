"""Objectives by name: the one place that turns an objective's table into modules."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from nearfar import objectives as modules
from nearfar.errors import SettingError, counted
from nearfar.objectives import balanced_weights
from nearfar.pipeline.defaults import check_objective
from nearfar.recipe import Objective
from nearfar.recipe import objectives as tables
from nearfar.training import Term


@dataclass(frozen=True)
class Surroundings:
    """What an objective must know of the run to be made."""

    classes: tuple[str, ...]
    dim: int
    counts: NDArray[np.int64]
    """How many training texts each class has."""
    graded: bool = False
    """Whether pairs have scores rather than yes-or-no labels."""


def build_terms(
    settings: Objective, *, classes: tuple[str, ...], dim: int, labels: NDArray[np.int64], seed: int,
    graded: bool = False,
) -> tuple[list[Term], list[str]]:  # fmt: skip
    """The terms of an objective, and what the user should know about them. ``seed`` draws centers and proxies.

    A cross-entropy of weight zero is none: it needs no class head.
    """
    check_objective(settings, classes)
    around = Surroundings(classes, dim, np.bincount(labels, minlength=len(classes)), graded)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        terms, notes = _blend(settings, around) if isinstance(settings, tables.Blend) else _single(settings, around)
    if settings.learning_rate is not None and not any(_weights_of(term) for term in terms):
        notes.append(_idle("objective.learning_rate", settings))
    return [term for term in terms if term.weight or term.view != "logits"], notes


def _weights_of(term: Term) -> bool:
    return any(True for _ in term.objective.parameters())


def _idle(key: str, settings: Objective) -> str:
    return (
        f"{key} is {settings.learning_rate:g}, but {settings.name} has no weights of its own to learn at it; those of "
        "encoder and head are training.learning_rate and training.head_learning_rate"
    )


def _single(settings: Objective, around: Surroundings) -> tuple[list[Term], list[str]]:
    try:
        build = _BUILDERS[type(settings)]
    except KeyError:
        raise SettingError(f"objective.name {settings.name!r} has not been chosen yet.") from None
    return build(settings, around)


def _blend(settings: tables.Blend, around: Surroundings) -> tuple[list[Term], list[str]]:
    weights = {name: settings.weights.get(name, 1.0) for name in settings.parts}
    terms: list[Term] = []
    notes: list[str] = []
    for name, part in settings.parts.items():
        made, told = _single(part, around)
        notes.extend(told)
        if part.learning_rate is not None and not any(map(_weights_of, made)):
            notes.append(_idle(f"objective.parts.{name}.learning_rate", part))
        for term in made:
            known = _free(name if len(made) == 1 else f"{name}_{term.name}", terms)
            terms.append(
                replace(term, name=known, weight=weights[name] * term.weight, learning_rate=part.learning_rate)
            )
    return terms, notes


def _free(name: str, terms: list[Term]) -> str:
    """The name of a term, with a _ behind it where torch, or another term, has it already."""
    name = name.replace(".", "_")
    while hasattr(nn.ModuleDict(), name) or any(term.name == name for term in terms):
        name += "_"
    return name


def _entropy(settings: Any, around: Surroundings) -> nn.Module:
    chosen, weights = settings.class_weights, None
    if chosen == "balanced":
        weights = balanced_weights(torch.from_numpy(around.counts))
    elif isinstance(chosen, Mapping):
        weights = torch.tensor([chosen.get(name, 1.0) for name in around.classes])
    return modules.CrossEntropy(label_smoothing=settings.label_smoothing, class_weights=weights)


def _cross_entropy(settings: tables.CrossEntropy, around: Surroundings) -> tuple[list[Term], list[str]]:
    return [Term("cross_entropy", 1.0, _entropy(settings, around), "logits")], _lonely(around, THIN)


def _triple_entropy(settings: tables.TripleEntropy, around: Surroundings) -> tuple[list[Term], list[str]]:
    centers = settings.centers or 10
    view: Any = "padded-tokens" if settings.padding else settings.level
    return [
        Term("cross_entropy", settings.beta, _entropy(settings, around), "logits"),
        Term("soft_triple", 1 - settings.beta, _soft(settings, centers, around), view),
    ], _crowded(centers, around)


def _soft_triple(settings: tables.SoftTriple, around: Surroundings) -> tuple[list[Term], list[str]]:
    objective = _soft(settings, settings.centers, around)
    return [Term("soft_triple", 1.0, objective, settings.level)], _crowded(settings.centers, around)


def _soft(settings: Any, centers: int, around: Surroundings) -> nn.Module:
    return modules.SoftTriple(
        len(around.classes), around.dim, centers=centers, gamma=settings.gamma, scale=settings.scale,
        margin=settings.margin, spread=settings.spread,
    )  # fmt: skip


def _crowded(centers: int, around: Surroundings) -> list[str]:
    few = {name: int(n) for name, n in zip(around.classes, around.counts, strict=True) if 0 < n < centers}
    if not few:
        return _lonely(around, THIN)
    smallest = min(few, key=lambda name: few[name])
    texts, usual = counted(few[smallest], "text"), int(np.median(around.counts[around.counts > 0]))
    fewer = f"{len(few)} of {len(around.classes)} classes have fewer texts, such as {smallest!r} with {texts}"
    if len(few) == 1:
        fewer = f"the class {smallest!r} has only {texts}"
    remedy = f"objective.centers = {usual} may do as well" if usual < centers else "some centers there may stay idle"
    return [f"objective.centers is {centers:,}, but {fewer}; {remedy}"]


def _cross_entropy_supcon(settings: tables.CrossEntropySupCon, around: Surroundings) -> tuple[list[Term], list[str]]:
    return [
        Term("cross_entropy", 1 - settings.weight, _entropy(settings, around), "logits"),
        Term("supcon", settings.weight, modules.SupCon(temperature=settings.temperature), "text"),
    ], _lonely(around)


def _supcon(settings: tables.SupCon, around: Surroundings) -> tuple[list[Term], list[str]]:
    return [Term("supcon", 1.0, modules.SupCon(temperature=settings.temperature), "text")], _lonely(around)


def _label_aware(settings: tables.LabelAware, around: Surroundings) -> tuple[list[Term], list[str]]:
    return [
        Term("cross_entropy", settings.weight, _entropy(settings, around), "logits"),
        Term("label_aware", 1 - settings.weight, modules.LabelAware(temperature=settings.temperature), "weighted"),
        Term("weighting", settings.weight, _entropy(settings, around), "weighting"),
    ], _lonely(around, THIN)


def _proxy_nca(settings: tables.ProxyNCA, around: Surroundings) -> tuple[list[Term], list[str]]:
    objective = modules.ProxyNCA(len(around.classes), around.dim, scale=settings.scale)
    return [Term("proxy_nca", 1.0, objective, "text")], _lonely(around, THIN)


def _triplet(settings: tables.Triplet, around: Surroundings) -> tuple[list[Term], list[str]]:
    objective = modules.Triplet(margin=settings.margin, select=settings.select, distance=settings.distance)
    return [Term("triplet", 1.0, objective, "text")], _lonely(around)


def _contrastive(settings: tables.Contrastive, around: Surroundings) -> tuple[list[Term], list[str]]:
    return [Term("contrastive", 1.0, modules.Contrastive(margin=settings.margin), "text")], _lonely(around)


ALONE = "which has no classmate to come near to; give each class two texts at least"
THIN = "which is all there is to know the class by; give each class two texts at least, 8 or more are usual"


def _lonely(around: Surroundings, trouble: str = ALONE) -> list[str]:
    """What a class of one text means for an objective."""
    if not around.classes:  # scores, which an objective of classes is refused for elsewhere
        return []
    lonely = [name for name, count in zip(around.classes, around.counts, strict=True) if count == 1]
    if not lonely:
        return []
    return [
        f"{len(lonely)} of {len(around.classes)} classes {'has' if len(lonely) == 1 else 'have'} a single text "
        f"({', '.join(lonely[:3])}{' ...' if len(lonely) > 3 else ''}), {trouble}"
    ]


def _batch_softmax(settings: tables.BatchSoftmax, around: Surroundings) -> tuple[list[Term], list[str]]:
    threshold = settings.threshold
    if threshold is None and around.graded:
        threshold = 0.5
    objective = modules.BatchSoftmax(
        temperature=settings.temperature, trainable=settings.trainable, symmetric=settings.symmetric,
        normalize=settings.normalize, threshold=threshold, reduction=settings.reduction,
        hard_negative_weight=settings.hard_negative_weight,
    )  # fmt: skip
    return [Term("batch_softmax", 1.0, objective, "grouped-pairs" if settings.groups else "pairs")], []


def _mnrl(settings: tables.MultipleNegatives, around: Surroundings) -> tuple[list[Term], list[str]]:
    threshold = 0.5 if around.graded else None
    objective = modules.BatchSoftmax(temperature=1 / settings.scale, symmetric=False, threshold=threshold)
    return [Term("mnrl", 1.0, objective, "grouped-pairs" if settings.groups else "pairs")], []


def _cosine_mse(_settings: tables.CosineMSE, _around: Surroundings) -> tuple[list[Term], list[str]]:
    return [Term("cosine_mse", 1.0, modules.CosineMSE(), "pairs")], []


def _pearson(_settings: tables.Pearson, _around: Surroundings) -> tuple[list[Term], list[str]]:
    return [Term("pearson", 1.0, modules.Pearson(), "pairs")], []


def _pair_triplet(settings: tables.PairTriplet, _around: Surroundings) -> tuple[list[Term], list[str]]:
    objective = modules.PairTriplet(margin=settings.margin, distance=settings.distance)
    return [Term("pair_triplet", 1.0, objective, "grouped-pairs")], []


def _contrastive_pairs(settings: tables.ContrastivePairs, _around: Surroundings) -> tuple[list[Term], list[str]]:
    return [Term("contrastive_pairs", 1.0, modules.PairContrastive(margin=settings.margin), "pairs")], []


def _simcse(settings: tables.SimCSE, _around: Surroundings) -> tuple[list[Term], list[str]]:
    objective = modules.BatchSoftmax(
        temperature=settings.temperature, symmetric=False, hard_negative_weight=settings.hard_negative_weight
    )
    terms = [Term("simcse", 1.0, objective, "grouped-pairs")]
    if settings.mlm_weight:
        terms.append(Term("mlm", settings.mlm_weight, modules.CrossEntropy(), "masked-words"))
    return terms, []


def _mirror(settings: tables.Mirror, _around: Surroundings) -> tuple[list[Term], list[str]]:
    objective = modules.BatchSoftmax(temperature=settings.temperature or 0.04, symmetric=False)
    return [Term("mirror", 1.0, objective, "grouped-pairs")], []


_BUILDERS: dict[type, Callable[[Any, Surroundings], tuple[list[Term], list[str]]]] = {
    tables.CrossEntropy: _cross_entropy,
    tables.TripleEntropy: _triple_entropy,
    tables.SoftTriple: _soft_triple,
    tables.CrossEntropySupCon: _cross_entropy_supcon,
    tables.SupCon: _supcon,
    tables.LabelAware: _label_aware,
    tables.ProxyNCA: _proxy_nca,
    tables.Triplet: _triplet,
    tables.Contrastive: _contrastive,
    tables.BatchSoftmax: _batch_softmax,
    tables.MultipleNegatives: _mnrl,
    tables.CosineMSE: _cosine_mse,
    tables.Pearson: _pearson,
    tables.PairTriplet: _pair_triplet,
    tables.ContrastivePairs: _contrastive_pairs,
    tables.SimCSE: _simcse,
    tables.Mirror: _mirror,
}
