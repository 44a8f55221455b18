"""What a recipe leaves open, filled in when the data is known: objective, batches, how long and how fast to learn.

The figures behind these choices are in docs/why/few-shot-defaults.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from nearfar.errors import SettingError, did_you_mean
from nearfar.pipeline.data import RunData
from nearfar.recipe import OBJECTIVES, Batches, Encoder, Objective, Recipe, Training
from nearfar.recipe.capabilities import Capabilities
from nearfar.recipe.objectives import Auto, parts_of
from nearfar.recipe.schema import HeadKind, Metric

FEW_ROWS, FEW_A_CLASS = 2_000, 200
"""Up to so many labeled texts, or so many a class on average, ``auto`` trains with supcon and fits a head."""
FEW_STEPS = 30
"""Steps that a small data set gets at least."""
ONE_BATCH_STEPS = 6
"""Steps of a data set that is smaller still, so that one batch holds all of it."""
FEW_RATE = 1e-4
"""The learning rate where texts of a class are compared and the head is fitted; twice as much in shorter runs."""
LONGER = 10
"""Steps from which on a run is longer: docs/why/few-shot-defaults.md has the comparison."""
CENTER_CLASSES, CENTER_TEXTS = 10, 100
"""Up to so many classes, and texts a class on average, the head fitted to compared texts is the nearest center."""
EPOCHS, RATE = 5, 5e-5
BATCH, IN_BATCH = 32, 64
"""Rows of a batch, and of one whose rows are compared with each other."""


def choose(recipe: Recipe, data: RunData) -> tuple[Recipe, list[str]]:
    """The recipe with nothing left open, and what the user should know about it."""
    objective, notes = _objective(recipe, data)
    check_objective(objective, data.classes)
    objective = objective.filled()
    does = objective.does
    batches = _batches(recipe.batches, does)
    head = _head(recipe, objective, data)
    if head != recipe.head.kind and _silenced(does):
        notes.append(
            f"{objective.name} gives its cross-entropy no weight here, so no class head is trained; a {head} one is "
            "fitted afterwards"
        )
    both_heads = data.row_type.has_classes and head != "trained" and does.trains_head
    encoder = _encoder(recipe.encoder, does, both_heads=both_heads)
    training = _training(recipe.training, does, data, batches)
    chosen = replace(
        recipe,
        objective=objective,
        batches=batches,
        encoder=encoder,
        training=training,
        head=replace(recipe.head, kind=head),
    )
    return chosen, notes


def are_few(rows: int, classes: int) -> bool:
    """Whether labeled texts are too few to teach a class head what comparing them teaches the encoder.

    >>> are_few(2_000, 2), are_few(2_001, 2), are_few(15_400, 77)
    (True, False, True)
    """
    return rows <= max(FEW_ROWS, FEW_A_CLASS * classes)


def check_objective(objective: Objective, classes: tuple[str, ...]) -> None:
    """Refuse an objective whose settings contradict each other, or name classes that do not exist."""
    problem = objective.does.problem
    if problem is not None:
        raise SettingError(problem)
    for key, part in parts_of(objective).items():
        weights = part.does.class_weights
        if isinstance(weights, Mapping) and classes:
            _check_weights(weights, classes, f"{key}.class_weights")


def _check_weights(weights: Mapping[str, float], classes: tuple[str, ...], key: str) -> None:
    strange = [name for name in weights if name not in classes]
    if strange:
        known = ", ".join(classes[:12]) + (" ..." if len(classes) > 12 else "")
        raise SettingError(
            f"{key} names {strange[0]!r}, which is no class.{did_you_mean(strange[0], classes)} There are: {known}."
        )
    if not any(weights.get(name, 1.0) for name in classes):
        raise SettingError(f"{key} are all zero, so nothing would be learned; give some class a weight.")


def _silenced(does: Capabilities) -> bool:
    """Whether there is a cross-entropy, but none that counts."""
    return does.head_weight is not None and not does.trains_head


def _objective(recipe: Recipe, data: RunData) -> tuple[Objective, list[str]]:
    objective, row_type = recipe.objective, data.row_type
    if not isinstance(objective, Auto):
        return objective, []
    name, reason = row_type.objective, f"the rows are {row_type.wording}"
    if row_type.has_classes:
        rows, classes = len(data.train), len(data.classes)
        few = are_few(rows, classes) and recipe.head.kind != "trained"
        name = "supcon" if few else name
        many = "many" if not few else "few" if rows <= FEW_ROWS else f"few for {classes} classes"
        reason = f"{rows:,} labeled {data.train.shape} are {many}"
    table: Any = OBJECTIVES[name]
    return table(learning_rate=objective.learning_rate), [
        f"objective: {name}, because {reason}; --objective chooses another"
    ]


def _encoder(encoder: Encoder, does: Capabilities, *, both_heads: bool) -> Encoder:
    if does.counts_padding and encoder.fast:
        raise SettingError(
            "objective.padding counts padding tokens, which the fast path has not: set encoder.fast = false."
        )
    pooling = encoder.pooling or does.defaults.pooling
    if both_heads:
        pooling = pooling or "mean"  # the head that is fitted and the one that trains see one vector
    return replace(encoder, pooling=pooling, max_length=encoder.max_length or does.defaults.max_length)


def _batches(batches: Batches, does: Capabilities) -> Batches:
    size = batches.size or does.defaults.batch_size or (IN_BATCH if does.in_batch else BATCH)
    shuffle = batches.shuffle
    if shuffle == "auto":
        shuffle = "balanced" if does.needs_positives else "random"
    return replace(batches, size=size, shuffle=shuffle)


def _head(recipe: Recipe, objective: Objective, data: RunData) -> HeadKind:
    kind, does = recipe.head.kind, objective.does
    if not data.row_type.has_classes:
        return kind
    match kind:
        case "auto":
            return "trained" if does.trains_head else _fitted(does, data)
        case "trained" if _silenced(does):
            raise SettingError(
                f'head.kind is "trained", but {objective.name} gives its cross-entropy no weight here, so no head '
                'would learn: give it some, or set head.kind = "logistic".'
            )
        case "trained" if not does.trains_head:
            raise SettingError(
                f'head.kind is "trained", but {objective.name} has no cross-entropy to train a head with: '
                'set head.kind = "logistic", or objective.name = "cross-entropy+supcon".'
            )
    return kind


def _fitted(does: Capabilities, data: RunData) -> HeadKind:
    """The head to fit where none is asked for: docs/why/few-shot-defaults.md has the comparison."""
    classes = len(data.classes)
    few = classes <= CENTER_CLASSES and len(data.train) <= CENTER_TEXTS * classes
    return "nearest-center" if few and does.needs_positives else "logistic"


def _training(training: Training, does: Capabilities, data: RunData, batches: Batches) -> Training:
    few = does.needs_positives and not does.trains_head
    size = batches.size or 1
    per_epoch = -(-len(data.train) // (size * training.accumulate))
    epochs = training.epochs or does.defaults.epochs
    if epochs is None:
        least = ONE_BATCH_STEPS if len(data.train) <= size else FEW_STEPS
        epochs = max(3, -(-least // per_epoch)) if few else EPOCHS
    steps = epochs * per_epoch
    rate = RATE
    if few:
        rate = FEW_RATE if min(steps, training.max_steps or steps) >= LONGER else 2 * FEW_RATE
    every = training.evaluate_every
    if every == "auto":
        every = "epoch" if epochs <= 10 else max(1, steps // 10)
    return replace(
        training,
        learning_rate=training.learning_rate or does.defaults.learning_rate or rate,
        epochs=epochs,
        metric=_metric(training, data),
        head_learning_rate=training.head_learning_rate or does.defaults.head_learning_rate,
        evaluate_every=every,
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
