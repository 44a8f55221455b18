"""The conditions that contenders of a study are trained under: made equal where the study leaves them open, and listed.

What a recipe leaves open depends on its objective: batch size, epochs, head, pooling. Two contenders would then differ
in more than what is compared. :func:`equal_conditions` gives all of them the same, and :func:`conditions_of` says of
finished trials what was the same and what was not.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from nearfar.data import Records
from nearfar.errors import NearfarError
from nearfar.experiments.records import Record, read_journal
from nearfar.experiments.study_schema import Contender
from nearfar.experiments.trial import Trial
from nearfar.recipe import Recipe

Changes = dict[str, str | int]
"""Dotted recipe keys to values."""
FITTED = "logistic"
"""The head that every contender can have."""
NATIVE, OF_ENCODER = "the class head's own", "the encoder's own"
"""What an unset pooling is: that of an architecture's own class head, or what the encoder states."""


@dataclass(frozen=True)
class _Own:
    """What a contender would be trained with by itself."""

    recipe: Recipe
    rows: int
    """Texts or pairs that it trains on."""
    stated: frozenset[str]
    """Keys that the study says something about."""

    def steps_per_epoch(self, size: int) -> int:
        return -(-self.rows // (size * self.recipe.training.accumulate))

    @property
    def size(self) -> int:
        return self.recipe.batches.size or 1

    @property
    def steps(self) -> int:
        return (self.recipe.training.epochs or 1) * self.steps_per_epoch(self.size)


def equal_conditions(
    contenders: Sequence[Contender], trial_of: Callable[[Contender], Trial], rows_of: Callable[[Trial], Records]
) -> dict[str, Changes]:
    """What contenders get beyond their recipes, so that they differ in nothing that the study does not say.

    Of all that is left open, the largest batch and the most optimizer steps are given to all, so that none has less
    than by itself. Where some train a head and others cannot, all have one that is fitted afterwards. Contenders with
    stages keep the epochs of their stages; those that cannot be trained are left as they are, and fail with a reason.

    Args:
        contenders: those of the study.
        trial_of: the trial of a contender on one part of a data set.
        rows_of: the training rows of such a trial.
    """
    from nearfar.experiments.search import resolved_recipe  # loads torch, which a report does not need

    own: dict[str, _Own] = {}
    for contender in contenders:
        if contender.untrained is None and not contender.values.get("stage"):
            trial = trial_of(contender)
            try:
                recipe, rows = resolved_recipe(trial, rows_of(trial))
            except NearfarError:
                continue
            own[contender.name] = _Own(recipe, rows, _stated(contender))
    changes: dict[str, Changes] = {name: {} for name in own}
    if len(own) < 2:
        return {}
    _equal_batches(own, changes)
    _equal_steps(own, changes)
    _equal_heads(own, changes)
    _equal_pooling(own, changes)
    return {name: each for name, each in changes.items() if each}


def _stated(contender: Contender) -> frozenset[str]:
    """The dotted keys that a contender, the shared recipe or a search names."""
    keys = {
        f"{table}.{key}" for table, values in contender.values.items() if isinstance(values, dict) for key in values
    }
    keys |= set(contender.search.space) if contender.search is not None else set()
    return frozenset(keys | ({"training.epochs"} if "training.max_steps" in keys else set()))


def _open(own: Mapping[str, _Own], key: str) -> dict[str, _Own]:
    return {name: each for name, each in own.items() if key not in each.stated}


def _equal_batches(own: Mapping[str, _Own], changes: dict[str, Changes]) -> None:
    sizes = {name: each.size for name, each in _open(own, "batches.size").items()}
    for name, size in sizes.items():
        if size != max(sizes.values()):
            changes[name]["batches.size"] = max(sizes.values())
    shuffles = {name: each.recipe.batches.shuffle for name, each in _open(own, "batches.shuffle").items()}
    for name, shuffle in shuffles.items():
        if shuffle != "balanced" and "balanced" in shuffles.values():
            changes[name]["batches.shuffle"] = "balanced"


def _equal_steps(own: Mapping[str, _Own], changes: dict[str, Changes]) -> None:
    """As many steps as the contender with the most has by itself; ended within an epoch where batches differ."""
    left_open = _open(own, "training.epochs")
    if not left_open:
        return
    most = max(each.steps for each in left_open.values())
    taken = {}
    for name, each in left_open.items():
        in_one = each.steps_per_epoch(int(changes[name].get("batches.size", each.size)))
        epochs = -(-most // in_one)
        taken[name] = epochs * in_one
        if epochs != each.recipe.training.epochs:
            changes[name]["training.epochs"] = epochs
    if len(set(taken.values())) > 1:
        for name in taken:
            changes[name]["training.max_steps"] = min(taken.values())


def _equal_heads(own: Mapping[str, _Own], changes: dict[str, Changes]) -> None:
    kinds = {name: each.recipe.head.kind for name, each in _open(own, "head.kind").items()}
    if len(set(kinds.values())) > 1:
        for name, kind in kinds.items():
            if kind != FITTED:
                changes[name]["head.kind"] = FITTED


def _equal_pooling(own: Mapping[str, _Own], changes: dict[str, Changes]) -> None:
    """The same vector for all, but for a head of the architecture's own, which has its own."""
    from nearfar.encoding.pretrained import stated_pooling

    left_open = {
        name: each
        for name, each in _open(own, "encoder.pooling").items()
        if changes[name].get("head.kind", each.recipe.head.kind) != "native"
    }
    pooled = {name: _pooling(each, changes[name]) for name, each in left_open.items()}
    if len(set(pooled.values())) < 2:
        return
    named = {each.recipe.encoder.pooling for each in left_open.values()} - {None}  # by an objective or by the encoder
    for name, each in left_open.items():
        common = next(iter(named)) if len(named) == 1 else stated_pooling(each.recipe.encoder.name) or "mean"
        if common is not None and common != each.recipe.encoder.pooling:
            changes[name]["encoder.pooling"] = common


def _pooling(own: _Own, changes: Changes) -> str | None:
    """How a contender would pool, as its recipe would say it: None for what the encoder states."""
    if own.recipe.encoder.pooling is not None:
        return own.recipe.encoder.pooling
    if not own.recipe.objective.does.trains_head or own.recipe.head.kind == "auto":
        return None
    return NATIVE if changes.get("head.kind", own.recipe.head.kind) == "trained" else "mean"


# What was the same, and what was not


@dataclass(frozen=True)
class Conditions:
    """What finished trials of several contenders share, and in what they differ."""

    same: tuple[str, ...]
    """In words: steps, batches, schedule, head, pooling."""
    differing: dict[str, dict[str, str]]
    """What is not the same for all, with the value of each contender."""

    def lines(self) -> list[str]:
        """What is to be read before the scores, without full stops; nothing for a single contender."""
        shared = [f"the same for all contenders: {', '.join(self.same)}"] if self.same else []
        return [*shared, *(f"not the same: {self._difference(key)}" for key in self.differing)]

    def of(self, contender: str) -> str:
        """In what a contender is not like others, as ``key=value`` with semicolons between."""
        return "; ".join(f"{key}={values[contender]}" for key, values in self.differing.items() if contender in values)

    def _difference(self, key: str) -> str:
        names: dict[str, list[str]] = {}
        for name, value in self.differing[key].items():
            names.setdefault(value, []).append(name)
        shown = [value if each == [value] else f"{value} ({', '.join(each)})" for value, each in names.items()]
        return f"{key}: {', '.join(shown)}"


def flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Nested tables as dotted keys with their values in JSON.

    >>> list(flat({"training": {"epochs": 3}, "seed": 2}))
    [('training.epochs', '3'), ('seed', '2')]
    """
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", json.dumps(value, ensure_ascii=False)


NOT_SETTINGS = ("data.", "seed")
"""Keys that vary from trial to trial and are shown elsewhere."""
UNSET = "–"


def differing_settings(records: Sequence[Record]) -> dict[str, dict[str, str]]:
    """Recipe keys that are not the same for all contenders of finished trials, with the values of each as JSON."""
    values: dict[str, dict[str, dict[str, None]]] = {}
    for record in records:
        for key, value in flat(record.recipe):
            if not key.startswith(NOT_SETTINGS):
                values.setdefault(key, {}).setdefault(record.contender, {})[value] = None
    shown = {key: {name: " | ".join(each) for name, each in by_name.items()} for key, by_name in values.items()}
    names = {record.contender for record in records}
    return {key: each for key, each in shown.items() if len(set(each.values())) > 1 or each.keys() != names}


def conditions_of(records: Sequence[Record]) -> Conditions:
    """What finished trials share and in what they differ, the optimizer steps as their journals have them."""
    done = [record for record in records if record.done and record.recipe]
    trained = [record for record in done if "untrained" not in record.recipe]
    names = list(dict.fromkeys(record.contender for record in trained))
    if len(dict.fromkeys(record.contender for record in done)) < 2:
        return Conditions((), {})
    trained = [replace(record, recipe=_with_pooling(record.recipe)) for record in trained]
    differing = _without_settings_of_objectives(differing_settings(trained)) if len(names) > 1 else {}
    steps = _steps(trained)
    if any(len(set(by_name.values())) > 1 for by_name in steps.values()):
        by_contender = {name: [each[name] for each in steps.values() if name in each] for name in names}
        differing = {
            "optimizer steps": {name: _range(each) for name, each in by_contender.items() if each},
            **differing,
        }
    shown = {key: {name: value.replace('"', "") for name, value in each.items()} for key, each in differing.items()}
    return Conditions(tuple(_shared(trained, steps, differing)), {**shown, **_kinds(done)})


def _with_pooling(recipe: Mapping[str, Any]) -> dict[str, Any]:
    """A recipe that says in words what an unset pooling means: the same key means another thing with another head."""
    encoder, head = recipe.get("encoder", {}), recipe.get("head", {})
    if "pooling" in encoder or "kind" not in head:
        return dict(recipe)
    return {
        **recipe,
        "encoder": {**encoder, "pooling": NATIVE if head["kind"] in ("trained", "native") else OF_ENCODER},
    }


def _kinds(done: Sequence[Record]) -> dict[str, dict[str, str]]:
    """Contenders that are not trained, beside those that are."""
    kinds = {record.contender: str(record.recipe.get("untrained", "trained")) for record in done}
    return {"training": kinds} if len(set(kinds.values())) > 1 else {}


def _without_settings_of_objectives(differing: Mapping[str, dict[str, str]]) -> dict[str, dict[str, str]]:
    """Another objective has other settings: then its name says it; of one objective, the settings that differ."""
    if "objective.name" not in differing:
        return dict(differing)
    others = {key: each for key, each in differing.items() if not key.startswith("objective.")}
    return {"objective": differing["objective.name"], **others}


def _steps(records: Sequence[Record]) -> dict[str, dict[str, int]]:
    """Optimizer steps by data set and contender; the most of its runs."""
    steps: dict[str, dict[str, int]] = {}
    for record in records:
        number = sum(entry.get("kind") == "step" for entry in read_journal(record)) if record.folder else 0
        if number:
            cell = steps.setdefault(record.cell, {})
            cell[record.contender] = max(number, cell.get(record.contender, 0))
    return steps


def _range(numbers: Sequence[int]) -> str:
    low, high = min(numbers), max(numbers)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def _shared(
    records: Sequence[Record], steps: Mapping[str, Mapping[str, int]], differing: Mapping[str, object]
) -> Iterator[str]:
    """The conditions that are equal, in words."""
    if not records:
        return
    everything = [dict(flat(record.recipe)) for record in records]

    def value(key: str) -> str | None:
        """What all trials have; None where they differ, or know no such key."""
        each = {values.get(key) for values in everything}
        only = each.pop() if len(each) == 1 else None
        return None if only is None else only.strip('"')

    if steps and "optimizer steps" not in differing:
        numbers = [number for cell in steps.values() for number in cell.values()]
        yield f"{_range(numbers)} optimizer {'step' if max(numbers) == 1 else 'steps'}"
    if (size := value("batches.size")) is not None:
        shuffle = value("batches.shuffle")
        yield f"batches of {size}" + ("" if shuffle is None else f" ({shuffle})")
    for key, wording in (
        ("training.schedule", "{} schedule"),
        ("training.warmup", "warmup {}"),
        ("training.learning_rate", "learning rate {}"),
        ("head.kind", "{} head"),
        ("encoder.pooling", "{} pooling"),
    ):
        if (shown := value(key)) not in (None, "auto"):
            yield wording.format(shown)
