"""Objectives by name: the one place that turns an objective's table into modules."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from nearfar import objectives as modules
from nearfar.errors import SettingError, counted
from nearfar.objectives import balanced_weights, positive_weights
from nearfar.pipeline.defaults import check_objective
from nearfar.recipe import Objective
from nearfar.recipe import class_objectives as classes
from nearfar.recipe import pair_objectives as pairs
from nearfar.recipe.capabilities import ClassWeight, add_table, remove_table
from nearfar.recipe.objectives import Blend
from nearfar.training import Term
from nearfar.training.loss_module import ScoreError


@dataclass(frozen=True)
class BuildContext:
    """What an objective must know of the run to be built."""

    classes: tuple[str, ...]
    dim: int
    counts: NDArray[np.int64]
    """How many training texts each class has."""
    rows: int = 0
    """How many training texts there are."""
    multilabel: bool = False
    """Whether texts have several labels."""
    deviation: float = 1.0
    """The standard deviation of the training scores, where texts have scores."""
    positive_above: float | None = None
    """The target above which a pair is positive, where pairs have scores or grades; None for binary labels."""


Terms: TypeAlias = tuple[list[Term], list[str]]
"""The terms of a loss, and what the user should know about them."""
Builder: TypeAlias = Callable[[Any, BuildContext], Terms]
"""Makes the terms of an objective of its table."""


def register(table: type[Objective], build: Builder) -> None:
    """Let recipes and commands of this process name an objective that is not part of nearfar.

    Args:
        table: a frozen dataclass of its settings, derived from :class:`nearfar.recipe.capabilities.Single`.
        build: makes its terms.
    """
    add_table(table)
    _BUILDERS[table] = build


def unregister(table: type[Objective]) -> None:
    """Undo :func:`register`."""
    remove_table(table)
    del _BUILDERS[table]


def build_terms(
    settings: Objective,
    *,
    classes: tuple[str, ...],
    dim: int,
    labels: NDArray[np.int64],
    seed: int,
    positive_above: float | None = None,
    deviation: float = 1.0,
) -> Terms:
    """The terms of an objective, and notes. ``seed`` draws centers and proxies.

    A cross-entropy of weight zero is none: it needs no class head.
    """
    check_objective(settings, classes)
    multilabel = labels.ndim == 2
    counts = labels.sum(axis=0) if multilabel else np.bincount(labels, minlength=len(classes))
    context = BuildContext(classes, dim, counts, len(labels), multilabel, deviation, positive_above)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        terms, notes = _build(settings, context)
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


def _build(settings: Objective, context: BuildContext) -> Terms:
    try:
        build = _BUILDERS[type(settings)]
    except KeyError:
        raise SettingError(f"objective.name {settings.name!r} has not been chosen yet.") from None
    return build(settings, context)


def _blend(settings: Blend, context: BuildContext) -> Terms:
    weights = {name: settings.weights.get(name, 1.0) for name in settings.parts}
    terms: list[Term] = []
    notes: list[str] = []
    for name, part in settings.parts.items():
        made, part_notes = _build(part, context)
        notes.extend(part_notes)
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


def class_weights(
    chosen: ClassWeight, classes: tuple[str, ...], counts: NDArray[np.int64], *, rows: int | None = None
) -> torch.Tensor | None:
    """(c,) the weight of each class for its number of training texts; None where all weigh the same.

    With ``rows``, texts have several labels, and the weights are those of the positives of each label.
    """
    if chosen == "balanced" and rows is not None:
        return positive_weights(torch.from_numpy(counts), rows)
    if chosen == "balanced":
        return balanced_weights(torch.from_numpy(counts))
    return torch.tensor([chosen.get(name, 1.0) for name in classes]) if isinstance(chosen, Mapping) else None


def _entropy(settings: Any, context: BuildContext) -> nn.Module:
    if context.multilabel:
        positives = class_weights(settings.class_weight, context.classes, context.counts, rows=context.rows)
        return modules.BinaryCrossEntropy(label_smoothing=settings.label_smoothing, class_weights=positives)
    weights = class_weights(settings.class_weight, context.classes, context.counts)
    return modules.CrossEntropy(label_smoothing=settings.label_smoothing, class_weights=weights)


def _cross_entropy(settings: classes.CrossEntropy, context: BuildContext) -> Terms:
    return [Term("cross_entropy", 1.0, _entropy(settings, context), "logits")], _single_texts(context, THIN)


def _score_mse(_settings: classes.ScoreMSE, context: BuildContext) -> Terms:
    return [Term("score_mse", 1.0, ScoreError(unit=context.deviation), "logits")], []


def _triple_entropy(settings: classes.TripleEntropy, context: BuildContext) -> Terms:
    centers = settings.centers or 10
    view: Any = "padded-tokens" if settings.padding else settings.level
    return [
        Term("cross_entropy", settings.beta, _entropy(settings, context), "logits"),
        Term("soft_triple", 1 - settings.beta, _soft(settings, centers, context), view),
    ], _crowded(centers, context)


def _soft_triple(settings: classes.SoftTriple, context: BuildContext) -> Terms:
    objective = _soft(settings, settings.centers, context)
    return [Term("soft_triple", 1.0, objective, settings.level)], _crowded(settings.centers, context)


def _soft(settings: Any, centers: int, context: BuildContext) -> nn.Module:
    return modules.SoftTriple(
        len(context.classes),
        context.dim,
        centers=centers,
        gamma=settings.gamma,
        scale=settings.scale,
        margin=settings.margin,
        spread=settings.spread,
    )


def _crowded(centers: int, context: BuildContext) -> list[str]:
    few = {name: int(n) for name, n in zip(context.classes, context.counts, strict=True) if 0 < n < centers}
    if not few:
        return _single_texts(context, THIN)
    smallest = min(few, key=lambda name: few[name])
    texts, usual = counted(few[smallest], "text"), int(np.median(context.counts[context.counts > 0]))
    fewer = f"{len(few)} of {len(context.classes)} classes have fewer texts, such as {smallest!r} with {texts}"
    if len(few) == 1:
        fewer = f"the class {smallest!r} has only {texts}"
    remedy = f"objective.centers = {usual} may do as well" if usual < centers else "some of its centers may stay unused"
    return [f"objective.centers is {centers:,}, but {fewer}; {remedy}"]


def _cross_entropy_supcon(settings: classes.CrossEntropySupCon, context: BuildContext) -> Terms:
    return [
        Term("cross_entropy", 1 - settings.weight, _entropy(settings, context), "logits"),
        Term("supcon", settings.weight, _contrast(settings, context), "text"),
    ], _single_texts(context)


def _supcon(settings: classes.SupCon, context: BuildContext) -> Terms:
    return [Term("supcon", 1.0, _contrast(settings, context), "text")], _single_texts(context)


def _contrast(settings: Any, context: BuildContext) -> nn.Module:
    module = modules.MultiLabelSupCon if context.multilabel else modules.SupCon
    return module(temperature=settings.temperature)


def _label_aware(settings: classes.LabelAware, context: BuildContext) -> Terms:
    return [
        Term("cross_entropy", settings.weight, _entropy(settings, context), "logits"),
        Term("label_aware", 1 - settings.weight, modules.LabelAware(temperature=settings.temperature), "weighted"),
        Term("weighting", settings.weight, _entropy(settings, context), "weighting"),
    ], _single_texts(context, THIN)


def _proxy_nca(settings: classes.ProxyNCA, context: BuildContext) -> Terms:
    objective = modules.ProxyNCA(len(context.classes), context.dim, scale=settings.scale, distance=settings.distance)
    return [Term("proxy_nca", 1.0, objective, "text")], _single_texts(context, THIN)


def _triplet(settings: classes.Triplet, context: BuildContext) -> Terms:
    objective = modules.Triplet(margin=settings.margin, select=settings.select, distance=settings.distance)
    return [Term("triplet", 1.0, objective, "text")], _single_texts(context)


def _contrastive(settings: classes.Contrastive, context: BuildContext) -> Terms:
    return [Term("contrastive", 1.0, modules.Contrastive(margin=settings.margin), "text")], _single_texts(context)


ALONE = "which has no positive to come near to; give each class two texts at least"
THIN = "which is all there is to know the class by; give each class two texts at least, 8 or more are usual"


def _single_texts(context: BuildContext, trouble: str = ALONE) -> list[str]:
    """What a class of one text means for an objective."""
    if not context.classes:  # scores, which an objective of classes is refused for elsewhere
        return []
    single = [name for name, count in zip(context.classes, context.counts, strict=True) if count == 1]
    if not single:
        return []
    return [
        f"{len(single)} of {len(context.classes)} classes {'has' if len(single) == 1 else 'have'} a single text "
        f"({', '.join(single[:3])}{' ...' if len(single) > 3 else ''}), {trouble}"
    ]


def _batch_softmax(settings: pairs.BatchSoftmax, context: BuildContext) -> Terms:
    threshold = context.positive_above if settings.threshold is None else settings.threshold
    objective = modules.BatchSoftmax(
        temperature=settings.temperature,
        trainable=settings.trainable,
        symmetric=settings.symmetric,
        normalize=settings.normalize,
        threshold=threshold,
        reduction=settings.reduction,
        hard_negative_weight=settings.hard_negative_weight,
    )
    return [Term("batch_softmax", 1.0, objective, "grouped-pairs" if settings.groups else "pairs")], []


def _mnrl(settings: pairs.MultipleNegatives, context: BuildContext) -> Terms:
    objective = modules.BatchSoftmax(temperature=1 / settings.scale, symmetric=False, threshold=context.positive_above)
    return [Term("mnrl", 1.0, objective, "grouped-pairs" if settings.groups else "pairs")], []


def _cosine_mse(_settings: pairs.CosineMSE, _context: BuildContext) -> Terms:
    return [Term("cosine_mse", 1.0, modules.CosineMSE(), "pairs")], []


def _pearson(_settings: pairs.Pearson, _context: BuildContext) -> Terms:
    return [Term("pearson", 1.0, modules.Pearson(), "pairs")], []


def _pair_triplet(settings: pairs.PairTriplet, context: BuildContext) -> Terms:
    objective = modules.PairTriplet(
        margin=settings.margin, distance=settings.distance, threshold=context.positive_above
    )
    return [Term("pair_triplet", 1.0, objective, "grouped-pairs")], []


def _contrastive_pairs(settings: pairs.ContrastivePairs, context: BuildContext) -> Terms:
    objective = modules.PairContrastive(margin=settings.margin, threshold=context.positive_above)
    return [Term("contrastive_pairs", 1.0, objective, "pairs")], []


def _simcse(settings: pairs.SimCSE, context: BuildContext) -> Terms:
    objective = modules.BatchSoftmax(
        temperature=settings.temperature,
        symmetric=False,
        threshold=context.positive_above,
        hard_negative_weight=settings.hard_negative_weight,
    )
    terms = [Term("simcse", 1.0, objective, "grouped-pairs")]
    if settings.mlm_weight:
        terms.append(Term("mlm", settings.mlm_weight, modules.CrossEntropy(), "masked-words"))
    return terms, []


def _mirror(settings: pairs.Mirror, _context: BuildContext) -> Terms:
    temperature = settings.temperature or 0.04
    objective: nn.Module = modules.BatchSoftmax(temperature=temperature, symmetric=False)
    if settings.negatives == "both-views":
        objective = modules.NTXent(temperature=temperature)
    return [Term("mirror", 1.0, objective, "grouped-pairs")], []


_BUILDERS: dict[type, Builder] = {
    classes.CrossEntropy: _cross_entropy,
    classes.ScoreMSE: _score_mse,
    classes.TripleEntropy: _triple_entropy,
    classes.SoftTriple: _soft_triple,
    classes.CrossEntropySupCon: _cross_entropy_supcon,
    classes.SupCon: _supcon,
    classes.LabelAware: _label_aware,
    classes.ProxyNCA: _proxy_nca,
    classes.Triplet: _triplet,
    classes.Contrastive: _contrastive,
    pairs.BatchSoftmax: _batch_softmax,
    pairs.MultipleNegatives: _mnrl,
    pairs.CosineMSE: _cosine_mse,
    pairs.Pearson: _pearson,
    pairs.PairTriplet: _pair_triplet,
    pairs.ContrastivePairs: _contrastive_pairs,
    pairs.SimCSE: _simcse,
    pairs.Mirror: _mirror,
    Blend: _blend,
}
