"""What a recipe leaves open, filled in when the data is known; a recipe with stages is a list of recipes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar, cast

from nearfar.encoding.pretrained import is_language_model, stated_pooling, width_of
from nearfar.errors import SettingError, counted, did_you_mean
from nearfar.pipeline.data import RunData, class_sizes
from nearfar.recipe import OBJECTIVES, Batches, Encoder, Objective, Recipe, Training
from nearfar.recipe import Stage as StageTable
from nearfar.recipe.capabilities import Capabilities
from nearfar.recipe.objectives import Auto, parts_of
from nearfar.recipe.schema import HeadKind, Keep, Metric
from nearfar.seeds import stream
from nearfar.training.precision import Precision

T = TypeVar("T", bound=Training)

FEW_ROWS, FEW_A_CLASS = 2_000, 200
"""Up to so many labeled texts, or so many a class on average, ``auto`` trains with supcon and fits a head."""
FEW_STEPS = 30
"""Steps that a small data set gets at least where texts of a class are compared."""
LEAST_STEPS = 80
"""Steps of other objectives of classes, whose heads and centers begin at random: docs/why/defaults.md."""
ONE_BATCH_STEPS = 6
"""Steps of a data set that is smaller still, so that one batch holds all of it."""
LANGUAGE_MODEL_STEPS = {FEW_STEPS: 80, LEAST_STEPS: 160, ONE_BATCH_STEPS: 80, 1: 80}
"""The same on a language model, whose vectors have to learn more than those of a sentence encoder."""
FEW_RATE = 1e-4
"""The learning rate for few labeled texts; twice as much in short runs that compare texts of a class."""
APART_RATE = 3e-5
"""The learning rate where no two texts share a class: texts are then only moved apart, and a low rate is best."""
NARROW, NARROW_ROWS, NARROW_RATE = 256, 500, 2e-4
"""Language models of at most this width learn at this rate at least, from so many rows on: docs/why/defaults.md."""
LONGER = 10
"""Steps from which on a run is longer: docs/why/few-shot-defaults.md has the comparison."""
CENTER_CLASSES, CENTER_TEXTS = 10, 100
"""Up to so many classes, and texts a class on average, the head fitted to compared texts is the nearest center."""
IMBALANCE = 10
"""From this ratio of the largest class to the smallest on, users are told."""
TRAINED: tuple[HeadKind, ...] = ("trained", "native")
"""Heads that are trained with the encoder."""
NATIVE_HEAD, POOLED_HEAD = 20, 100
"""The learning rate of the architecture's own head and of a linear one on the text vector, in rates of the encoder."""
EPOCHS, RATE, WARMUP = 5, 5e-5, 0.06
BATCH, IN_BATCH = 32, 64
"""Rows of a batch, and of one whose rows are compared with each other."""


def choose(recipe: Recipe, data: RunData) -> tuple[Recipe, list[str]]:
    """The recipe with nothing left open, and what the user should know about it."""
    objective, notes = _objective(recipe, data)
    check_objective(objective, data.classes)
    if data.row_type.multilabel and not objective.does.multilabel:
        raise SettingError(
            f"{objective.name} reads one class a text, and these texts have several labels; choose cross-entropy, "
            "supcon or cross-entropy+supcon."
        )
    objective = objective.filled()
    does = objective.does
    if recipe.encoder.frozen:
        _check_frozen(objective, data)
    batches = _batches(recipe.batches, does)
    head = _head(recipe, objective, data)
    if head != recipe.head.kind and _silenced(does):
        notes.append(
            f"{objective.name} gives its cross-entropy no weight here, so no class head is trained; a {head} one is "
            "fitted afterwards"
        )
    notes += _imbalance(objective, head, data) if data.row_type.has_classes else []
    encoder = _encoder(recipe.encoder, does, head, data) if data.row_type.has_head else _encoder(recipe.encoder, does)
    training = _training(recipe, does, data, batches)
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
        if isinstance(part.class_weight, Mapping) and classes:
            _check_weights(part.class_weight, classes, f"{key}.class_weight")


def _check_weights(weights: Mapping[str, float], classes: tuple[str, ...], key: str) -> None:
    strange = [name for name in weights if name not in classes]
    if strange:
        known = ", ".join(classes[:12]) + (" ..." if len(classes) > 12 else "")
        raise SettingError(
            f"{key} names {strange[0]!r}, which is no class.{did_you_mean(strange[0], classes)} There are: {known}."
        )
    if not any(weights.get(name, 1.0) for name in classes):
        raise SettingError(f"{key} is zero for all classes, so nothing would be learned; give some class a weight.")


def _imbalance(objective: Objective, head: HeadKind, data: RunData) -> list[str]:
    """What to say of classes of very different sizes that count by their frequency."""
    sizes = class_sizes(data.train)
    if len(sizes) < 2 or objective.class_weight != "none":
        return []
    (large, most), *_, (small, least) = sizes.most_common()
    if most <= IMBALANCE * least:
        return []
    remedy = {
        "nearest-center": "the nearest-center head gives all classes the same weight",
        "neighbors": 'with head.kind = "logistic", --class-weight balanced gives all classes the same weight',
    }.get(head, "--class-weight balanced (objective.class_weight) gives all classes the same weight")
    return [
        f"the classes differ {round(most / least)}:1 in size ({large!r} has {counted(most, 'text')}, {small!r} "
        f"{least:,}); {remedy}"
    ]


def _check_frozen(objective: Objective, data: RunData) -> None:
    if not (data.row_type.has_classes and objective.does.trains_head):
        remedy = 'set objective.name = "cross-entropy", or' if data.row_type.has_classes else "for these rows,"
        raise SettingError(
            f"encoder.frozen is true, and {objective.name} trains no class head, so nothing would be learned: {remedy} "
            "remove encoder.frozen."
        )


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
        few = are_few(rows, classes) and recipe.head.kind not in TRAINED and not recipe.encoder.frozen
        name = "supcon" if few else name
        many = "many" if not few else "few" if rows <= FEW_ROWS else f"few for {classes} classes"
        reason = f"{rows:,} labeled {data.train.shape} are {many}"
        if recipe.encoder.frozen:
            reason = "the encoder is frozen"
    settings: dict[str, Any] = {"learning_rate": objective.learning_rate}
    if objective.class_weight != "none":
        if not row_type.has_classes:
            raise SettingError(
                f"objective.class_weight weights classes, and the rows are {row_type.wording}; leave it out."
            )
        settings["class_weight"] = objective.class_weight
    table: Any = OBJECTIVES[name]
    return table(**settings), [f"objective: {name}, because {reason}; --objective chooses another"]


def _encoder(
    encoder: Encoder, does: Capabilities, head: HeadKind | None = None, data: RunData | None = None
) -> Encoder:
    if does.counts_padding and encoder.fast:
        raise SettingError(
            "objective.padding counts padding tokens, which the fast path has not: set encoder.fast = false."
        )
    pooling = encoder.pooling or does.defaults.pooling
    if head == "native" and pooling is not None:
        raise SettingError(
            f'head.kind is "native", which reads what the architecture\'s own head reads, and encoder.pooling is '
            f'"{pooling}": leave one of them out.'
        )
    if does.trains_head and pooling is None and head is not None and head != "native":
        few = data is not None and are_few(len(data.train), len(data.classes))
        pooling = stated_pooling(encoder.name, otherwise="mean" if few else None)
        if head != "trained":
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
    if data.row_type.has_text_scores:
        return _score_head(kind, data)
    if not data.row_type.has_classes:
        return kind
    match kind:
        case "ridge":
            raise SettingError(
                'head.kind is "ridge", which predicts scores, and these rows have classes; set head.kind = "logistic".'
            )
        case "auto":
            return "trained" if does.trains_head else _fitted(does, data)
        case "trained" | "native" if _silenced(does):
            raise SettingError(
                f'head.kind is "{kind}", but {objective.name} gives its cross-entropy no weight here, so no head '
                'would learn: give it some, or set head.kind = "logistic".'
            )
        case "trained" | "native" if not does.trains_head:
            raise SettingError(
                f'head.kind is "{kind}", but {objective.name} has no cross-entropy to train a head with: '
                'set head.kind = "logistic", or objective.name = "cross-entropy+supcon".'
            )
        case "nearest-center" | "neighbors" if data.row_type.multilabel:
            raise SettingError(
                f'head.kind is "{kind}", which predicts one class a text, and these texts have several labels; set '
                'head.kind = "logistic" (one-vs-rest), or "trained" with a cross-entropy.'
            )
        case "neighbors" if objective.class_weight != "none" and not does.trains_head:
            raise SettingError(
                'objective.class_weight has no effect under head.kind = "neighbors", whose votes have no weights: set '
                'head.kind = "logistic".'
            )
    return kind


def _score_head(kind: HeadKind, data: RunData) -> HeadKind:
    if kind == "auto":
        return "ridge" if are_few(len(data.train), 0) else "trained"
    if kind not in ("trained", "ridge"):
        raise SettingError(
            f'head.kind is "{kind}", which predicts classes, and these texts have scores; set "ridge" or "trained".'
        )
    return kind


def _fitted(does: Capabilities, data: RunData) -> HeadKind:
    """The head to fit where none is asked for: docs/why/few-shot-defaults.md has the comparison."""
    classes = len(data.classes)
    if data.row_type.multilabel:
        return "logistic"  # one-vs-rest
    few = classes <= CENTER_CLASSES and len(data.train) <= CENTER_TEXTS * classes
    return "nearest-center" if few and does.needs_positives else "logistic"


def _training(recipe: Recipe, does: Capabilities, data: RunData, batches: Batches) -> Training:
    training, defaults = recipe.training, does.defaults
    compares = does.needs_positives and not does.trains_head
    has_head = data.row_type.has_head
    language_model = not defaults.published and is_language_model(recipe.encoder.name)
    size = batches.size or 1
    per_epoch = -(-len(data.train) // (size * training.accumulate))
    epochs = training.epochs or (defaults.epochs if defaults.published else None)
    if epochs is None:
        least = LEAST_STEPS if has_head else 1
        if compares:
            least = ONE_BATCH_STEPS if len(data.train) <= size else FEW_STEPS
        if language_model:
            least = LANGUAGE_MODEL_STEPS[least]
        epochs = max(defaults.epochs or (3 if compares else EPOCHS), -(-least // per_epoch))
    steps = epochs * per_epoch
    rate = RATE
    if has_head and (compares or are_few(len(data.train), len(data.classes))):
        rate = FEW_RATE
    if compares and min(steps, training.max_steps or steps) < LONGER:
        rate = 2 * FEW_RATE
    if compares and max(class_sizes(data.train).values(), default=0) < 2:
        rate = APART_RATE
    rate = defaults.learning_rate or rate
    if language_model and not has_head and len(data.train) <= FEW_ROWS:
        rate = FEW_RATE
    if language_model and len(data.train) >= NARROW_ROWS and width_of(recipe.encoder.name) <= NARROW:
        rate = max(rate, NARROW_RATE)
    every = training.evaluate_every
    if every == "auto":
        every = "epoch" if epochs <= 10 else max(1, steps // 10)
    return replace(
        training,
        learning_rate=training.learning_rate or rate,
        epochs=epochs,
        warmup=stated(training.warmup, defaults.warmup, WARMUP),
        schedule=training.schedule if training.schedule != "auto" else defaults.schedule or "linear",
        metric=_metric(training, data),
        head_learning_rate=training.head_learning_rate or defaults.head_learning_rate,
        evaluate_every=every,
        keep=training.keep if training.keep != "auto" else "best" if has_dev(data) else "last",
        keep_untrained=_keep_untrained(training, data),
    )


def _keep_untrained(training: Training, data: RunData) -> bool:
    """An encoder of pairs can be used as it is; one that classifies has to learn its classes."""
    if training.keep_untrained is None:
        return not data.row_type.has_head
    return training.keep_untrained


def stated(*values: float | None) -> float | None:
    """The first that is set, zero included."""
    return next((value for value in values if value is not None), None)


def check_keep(keep: str | None, data: RunData, key: str) -> None:
    """Refuse to keep the best weights where no dev rows tell which these are."""
    if keep == "best" and not has_dev(data):
        raise SettingError(
            f'{key} is "best", and there are no dev rows to tell which weights are best: set data.dev, or "last".'
        )


def has_dev(data: RunData) -> bool:
    """Whether there are dev rows to evaluate."""
    return data.dev is not None and len(data.dev) > 0


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


@dataclass(frozen=True)
class Stage:
    """One training, with nothing left open."""

    number: int
    """From 1."""
    of: int
    recipe: Recipe

    @property
    def seed(self) -> int:
        """The first stage has the recipe's seed, so that one stage is the same as none."""
        return self.recipe.seed if self.number == 1 else stream(self.recipe.seed, "stage", self.number)

    def stream(self, name: str) -> int:
        """A number for one kind of randomness in this stage."""
        return stream(self.seed, name)

    def in_precision(self, precision: Precision) -> Stage:
        """The same with what was decided for ``training.precision``."""
        return replace(self, recipe=replace(self.recipe, training=replace(self.recipe.training, precision=precision)))

    @property
    def title(self) -> str:
        """How it is announced."""
        return f"stage {self.number} of {self.of}: " if self.of > 1 else ""

    @property
    def folder(self) -> str:
        """Where its checkpoints are, below the folder for all of them."""
        return f"stage-{self.number}" if self.of > 1 else "."

    def journal(self, name: str) -> str:
        """The file of its journal."""
        return name.replace(".", f"-{self.number}.", 1) if self.of > 1 else name


def plan_stages(recipe: Recipe, data: RunData) -> tuple[list[Stage], list[str]]:
    """The stages of a recipe, one if it names none, and what the user should know about them."""
    plain = [_of_stage(recipe, place) for place in range(len(recipe.stage))] or [recipe]
    check_keep(recipe.training.keep, data, "training.keep")
    for number, table in enumerate(recipe.stage, 1):
        check_keep(table.keep, data, f"stage {number}: keep")
    notes: list[str] = []
    if recipe.stage and not isinstance(recipe.objective, Auto) and recipe.objective != recipe.stage[-1].objective:
        notes.append(
            f"objective.name {recipe.objective.name!r} is not used: every [[stage]] has an objective of its own"
        )
    chosen: list[Recipe] = []
    for one in plain:
        found, told = choose(one, data)
        chosen.append(found)
        notes.extend(note for note in told if note not in notes)
    encoder = _shared_encoder(chosen)
    chosen = [replace(one, encoder=encoder) for one in chosen]
    return [Stage(number, len(chosen), one) for number, one in enumerate(chosen, 1)], notes


def written(stages: list[Stage]) -> Recipe:
    """One recipe that says what all stages were, with nothing left open but what was chosen for each in its own way."""
    last = stages[-1].recipe
    if len(stages) == 1:
        return last
    head, training = last.head, last.training
    if any(stage.recipe.head != head for stage in stages):
        head = replace(head, kind="auto")
    if any(stage.recipe.training.evaluate_every != training.evaluate_every for stage in stages):
        training = replace(training, evaluate_every="auto")
    if any(stage.recipe.training.head_learning_rate != training.head_learning_rate for stage in stages):
        training = replace(training, head_learning_rate=None)
    tables = tuple(
        StageTable(
            objective=stage.recipe.objective,
            epochs=stage.recipe.training.epochs,
            learning_rate=stage.recipe.training.learning_rate,
            batch_size=stage.recipe.batches.size,
            shuffle=stage.recipe.batches.shuffle,
            keep=cast(Keep, stage.recipe.training.keep),
        )
        for stage in stages
    )
    return replace(last, head=head, training=training, stage=tables)


def unstored(recipe: Recipe) -> Recipe:
    """The recipe but for what is stored and measured, which changes nothing in a run, and what checkpoints state."""
    data = replace(recipe.data, disk="auto")
    return replace(recipe, data=data, training=replace(unstored_training(recipe.training), estimate=True))


def unstored_training(training: T) -> T:
    """A training table but for where and how often things are stored, and for the precision."""
    return replace(training, trackers=(), keep_checkpoints=1, checkpoint_every="epoch", precision="auto")


def _shared_encoder(chosen: list[Recipe]) -> Encoder:
    """That of the last stage. Where some heads are trained and others fitted, both read one pooled vector."""
    encoder = chosen[-1].encoder
    trained = [one.objective.does.trains_head for one in chosen]
    fitted = [one.head.kind not in (*TRAINED, "auto") for one in chosen]
    if encoder.pooling is None and any(trained) and any(fitted):
        asked = [one.encoder.pooling for one in chosen if one.encoder.pooling is not None]
        return replace(encoder, pooling=asked[-1] if asked else "mean")
    return encoder


def _of_stage(recipe: Recipe, place: int) -> Recipe:
    training, batches, table = recipe.training, recipe.batches, recipe.stage[place]
    is_last = place + 1 == len(recipe.stage)
    return replace(
        recipe,
        stage=(),
        objective=table.objective,
        training=replace(
            training,
            epochs=table.epochs or training.epochs,
            learning_rate=table.learning_rate or training.learning_rate,
            keep=table.keep or (training.keep if is_last else "last"),
        ),
        batches=replace(batches, size=table.batch_size or batches.size, shuffle=table.shuffle or batches.shuffle),
    )
