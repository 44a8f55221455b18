"""What a recipe leaves open, filled in when the data is known: objective, batches, how long and how fast to learn.

The figures behind these choices are in docs/why/few-shot-defaults.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from nearfar.errors import SettingError, did_you_mean
from nearfar.pipeline.data import RunData
from nearfar.recipe import Batches, CrossEntropy, Encoder, Objective, Recipe, Training, TripleEntropy
from nearfar.recipe.objectives import (
    OBJECTIVES,
    Auto,
    BatchSoftmax,
    Blend,
    Contrastive,
    CrossEntropySupCon,
    LabelAware,
    Mirror,
    MultipleNegatives,
    PairTriplet,
    SimCSE,
    SupCon,
    Triplet,
)
from nearfar.recipe.schema import HeadKind, Metric

FEW_ROWS, FEW_A_CLASS = 2_000, 200
"""Up to so many labeled texts, or so many a class on average, ``auto`` trains with supcon and fits a head."""
FEW_STEPS = 30
"""Steps that a small data set gets at least."""
ONE_BATCH_STEPS = 6
"""Steps of a data set that is smaller still, so that one batch holds all of it."""
FEW_RATE = 1e-4
"""The learning rate where classmates are compared and the head is fitted; twice as much in runs that are not longer."""
LONGER = 10
"""Steps from which on a run is longer: docs/why/few-shot-defaults.md has the comparison."""
CENTER_CLASSES, CENTER_TEXTS = 10, 100
"""Up to so many classes, and texts a class on average, what is fitted to compared classmates is the nearest center."""
COMPARING = (SupCon, CrossEntropySupCon, LabelAware, Triplet, Contrastive)
"""Objectives that need classmates in the batch."""
IN_BATCH = (*COMPARING, BatchSoftmax, MultipleNegatives, PairTriplet, SimCSE, Mirror)
"""Objectives that compare the rows of a batch with each other, and so gain from larger ones."""
HEADED = (CrossEntropy, TripleEntropy, CrossEntropySupCon, LabelAware)
"""Objectives with a cross-entropy, which trains a class head."""


def choose(recipe: Recipe, data: RunData) -> tuple[Recipe, list[str]]:
    """The recipe with nothing left open, and what the user should know about it."""
    notes: list[str] = []
    objective, told = _objective(recipe, data)
    notes.extend(told)
    check_objective(objective, data.classes)
    published = any(isinstance(part, TripleEntropy) and part.preset == "as-published" for part in parts_of(objective))
    if published:
        objective = _published(objective)
    elif isinstance(objective, TripleEntropy) and objective.centers is None:
        objective = replace(objective, centers=10)
    batches = _batches(recipe.batches, objective, published=published)
    encoder = recipe.encoder
    head = _head(recipe, objective, data)
    if head != recipe.head.kind and _silenced(objective):
        notes.append(
            f"{objective.name} gives its cross-entropy no weight here, so no class head is trained; a {head} one is "
            "fitted afterwards"
        )
    if encoder.pooling is None and published:
        encoder = replace(encoder, pooling="first")
    elif encoder.pooling is None and data.row_type.has_classes and head != "trained" and trains_head(objective):
        encoder = replace(encoder, pooling="mean")  # the head that is fitted and the one that trains see one vector
    _check_padding(objective, encoder)
    mirrors = [part for part in parts_of(objective) if isinstance(part, Mirror)]
    if mirrors:
        objective, encoder = _mirrored(objective), _encoder_of(mirrors[0], encoder)
    training = _training(recipe.training, objective, data, batches, published=published)
    chosen = replace(
        recipe, objective=objective, batches=batches, encoder=encoder, training=training,
        head=replace(recipe.head, kind=head),
    )  # fmt: skip
    return chosen, notes


def parts_of(objective: Objective) -> tuple[Objective, ...]:
    """The objectives of a blend, or the one itself."""
    return tuple(objective.parts.values()) if isinstance(objective, Blend) else (objective,)


def positive_from(objective: Objective) -> float:
    """Above which target two texts belong together: where parts of a blend differ, as soon as one of them says so."""
    asked = [part.threshold for part in parts_of(objective) if isinstance(part, BatchSoftmax)]
    return min((0.5 if value is None else value for value in asked), default=0.5)


def are_few(rows: int, classes: int) -> bool:
    """Whether labeled texts are too few to teach a class head what comparing classmates teaches the encoder.

    >>> are_few(2_000, 2), are_few(2_001, 2), are_few(15_400, 77)
    (True, False, True)
    """
    return rows <= max(FEW_ROWS, FEW_A_CLASS * classes)


def needs_classmates(objective: Objective) -> bool:
    """Whether the objective compares texts of one class with each other."""
    return any(isinstance(part, COMPARING) for part in parts_of(objective))


def trains_head(objective: Objective) -> bool:
    """Whether the objective has a cross-entropy that counts, which trains a class head."""
    if isinstance(objective, Blend):
        return any(objective.weights.get(name, 1.0) and trains_head(part) for name, part in objective.parts.items())
    match objective:
        case CrossEntropy():
            return True
        case TripleEntropy():
            return objective.beta > 0
        case CrossEntropySupCon():
            return objective.weight < 1
        case LabelAware():
            return objective.weight > 0
    return False


def _check_padding(objective: Objective, encoder: Encoder) -> None:
    """Refuse padding tokens where there are none to count."""
    padded = [part for part in parts_of(objective) if isinstance(part, TripleEntropy) and part.padding]
    if padded and encoder.fast:
        raise SettingError(
            "objective.padding counts padding tokens, which the fast path has not: set encoder.fast = false."
        )
    if any(part.level == "text" for part in padded):
        raise SettingError(
            'objective.padding counts padding tokens, and objective.level = "text" counts none: set '
            'objective.level = "tokens", or objective.padding = false.'
        )


def _silenced(objective: Objective) -> bool:
    """Whether there is a cross-entropy, but none that counts."""
    return any(isinstance(part, HEADED) for part in parts_of(objective)) and not trains_head(objective)


def check_objective(objective: Objective, classes: tuple[str, ...]) -> None:
    """Refuse an objective that speaks of parts or classes that are not there."""
    if isinstance(objective, Blend):
        _check_blend(objective)
    named = objective.parts if isinstance(objective, Blend) else {None: objective}
    for name, part in named.items():
        weights = part.class_weights if isinstance(part, HEADED) else None
        if isinstance(weights, Mapping) and classes:
            _check_weights(weights, classes, f"objective.{'' if name is None else f'parts.{name}.'}class_weights")


def _check_blend(objective: Blend) -> None:
    if not objective.parts:
        raise SettingError(
            'objective.name is "blend", which needs parts: [objective.parts.NAME] with a name = "..." for each.'
        )
    strange = sorted(set(objective.weights) - set(objective.parts))
    if strange:
        raise SettingError(
            f"objective.weights names {strange[0]!r}, which is no part; the parts are {', '.join(objective.parts)}."
        )
    if not any(objective.weights.get(name, 1.0) for name in objective.parts):
        raise SettingError("objective.weights are all zero, so nothing would be learned; give some part a weight.")


def _check_weights(weights: Mapping[str, float], classes: tuple[str, ...], key: str) -> None:
    strange = [name for name in weights if name not in classes]
    if strange:
        known = ", ".join(classes[:12]) + (" ..." if len(classes) > 12 else "")
        raise SettingError(
            f"{key} names {strange[0]!r}, which is no class.{did_you_mean(strange[0], classes)} There are: {known}."
        )
    if not any(weights.get(name, 1.0) for name in classes):
        raise SettingError(f"{key} are all zero, so nothing would be learned; give some class a weight.")


def _objective(recipe: Recipe, data: RunData) -> tuple[Objective, list[str]]:
    objective = recipe.objective
    if not isinstance(objective, Auto):
        return objective, []
    rate = objective.learning_rate
    if data.row_type.has_classes:
        few = are_few(len(data.train), len(data.classes)) and recipe.head.kind != "trained"
        chosen: Objective = SupCon(learning_rate=rate) if few else CrossEntropy(learning_rate=rate)
        many = "many" if not few else "few" if len(data.train) <= FEW_ROWS else f"few for {len(data.classes)} classes"
        reason = f"{len(data.train):,} labeled {'pairs' if data.train.shape == 'pairs' else 'texts'} are {many}"
    else:
        chosen = OBJECTIVES[data.row_type.objective](learning_rate=rate)
        reason = f"the rows are {data.row_type.wording}"
    return chosen, [f"objective: {chosen.name}, because {reason}; --objective chooses another"]


def _published(objective: Objective) -> Objective:
    if isinstance(objective, Blend):
        parts = {name: _published(part) for name, part in objective.parts.items()}
        return replace(objective, parts=parts)  # type: ignore[arg-type]
    if isinstance(objective, TripleEntropy):
        return replace(
            objective, centers=objective.centers or 2_000, learning_rate=objective.learning_rate or PUBLISHED_RATE
        )
    return objective


PUBLISHED_RATE = 1e-5


def _mirrored(objective: Objective) -> Objective:
    """What the paper sets by the kind of the texts, in the objective."""
    if isinstance(objective, Blend):
        parts = {name: _mirrored(part) for name, part in objective.parts.items()}
        return replace(objective, parts=parts)  # type: ignore[arg-type]
    if not isinstance(objective, Mirror):
        return objective
    sentences, published = objective.granularity == "sentences", objective.preset == "as-published"
    masked = objective.masked
    if masked is None:
        masked = 5 if sentences else 0 if published else 2
    return replace(
        objective, temperature=objective.temperature or (0.04 if sentences else 0.2), masked=masked,
        unit=objective.unit or ("characters" if published else "tokens"),
    )  # fmt: skip


def _encoder_of(mirror: Mirror, encoder: Encoder) -> Encoder:
    """What the paper sets by the kind of the texts, in the encoder."""
    sentences = mirror.granularity == "sentences"
    pooling = encoder.pooling
    if pooling is None and mirror.preset == "as-published":
        pooling = "mean" if sentences else "first"
    return replace(encoder, pooling=pooling, max_length=encoder.max_length or (50 if sentences else 25))


def _batches(batches: Batches, objective: Objective, *, published: bool) -> Batches:
    comparing = any(isinstance(part, IN_BATCH) for part in parts_of(objective))
    views = any(isinstance(part, (SimCSE, Mirror)) for part in parts_of(objective))
    mirror = any(isinstance(part, Mirror) and part.preset == "as-published" for part in parts_of(objective))
    size = batches.size or (200 if mirror else 128 if views else 64 if comparing or published else 32)
    shuffle = batches.shuffle
    if shuffle == "auto":
        shuffle = "balanced" if needs_classmates(objective) else "random"
    return replace(batches, size=size, shuffle=shuffle)


def _head(recipe: Recipe, objective: Objective, data: RunData) -> HeadKind:
    kind = recipe.head.kind
    trains = trains_head(objective)
    if not data.row_type.has_classes:
        return kind
    if kind == "auto":
        return "trained" if trains else _fitted(objective, data)
    if kind == "trained" and _silenced(objective):
        raise SettingError(
            f'head.kind is "trained", but {objective.name} gives its cross-entropy no weight here, so no head would '
            'learn: give it some, or set head.kind = "logistic".'
        )
    if kind == "trained" and not trains:
        raise SettingError(
            f'head.kind is "trained", but {objective.name} has no cross-entropy to train a head with: '
            'set head.kind = "logistic", or objective.name = "cross-entropy+supcon".'
        )
    return kind


def _fitted(objective: Objective, data: RunData) -> HeadKind:
    """The head to fit where none is asked for: docs/why/few-shot-defaults.md has the comparison."""
    classes = len(data.classes)
    few = classes <= CENTER_CLASSES and len(data.train) <= CENTER_TEXTS * classes
    return "nearest-center" if few and needs_classmates(objective) else "logistic"


def _training(
    training: Training, objective: Objective, data: RunData, batches: Batches, *, published: bool
) -> Training:
    few = needs_classmates(objective) and not trains_head(objective)
    views = any(isinstance(part, (SimCSE, Mirror)) for part in parts_of(objective))
    per_epoch = -(-len(data.train) // ((batches.size or 1) * training.accumulate))
    epochs = training.epochs
    if epochs is None:
        short = any(isinstance(part, Mirror) and part.granularity != "sentences" for part in parts_of(objective))
        least = ONE_BATCH_STEPS if len(data.train) <= (batches.size or 1) else FEW_STEPS
        epochs = 2 if short else 1 if views else max(3, -(-least // per_epoch)) if few else 5
    steps = epochs * per_epoch
    if few:
        usual = FEW_RATE if min(steps, training.max_steps or steps) >= LONGER else 2 * FEW_RATE
    else:
        usual = 2e-5 if views else 5e-5
    rate = training.learning_rate or (PUBLISHED_RATE if published else usual)
    metric = _metric(training, data)
    every = training.evaluate_every
    if every == "auto":
        every = "epoch" if epochs <= 10 else max(1, steps // 10)
    head_rate = training.head_learning_rate or (PUBLISHED_RATE if published else None)
    return replace(
        training, learning_rate=rate, epochs=epochs, metric=metric, head_learning_rate=head_rate, evaluate_every=every
    )


def _metric(training: Training, data: RunData) -> Metric:
    known = data.measured.metrics
    if training.metric == "auto":
        return next(iter(known), "auto")
    if data.dev is not None and training.metric not in known:
        raise SettingError(
            f"training.metric is {training.metric!r}, which the dev rows ({data.dev.source}) are not measured by; "
            f'choose one of {", ".join(known)}, or "auto".'
        )
    return training.metric
