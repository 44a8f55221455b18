"""A run of a plain recipe: one task, trained in one or more stages; the model is the encoder, maybe with a head."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np
import torch
from accelerate import Accelerator

from nearfar.data import Records, RowType, limit, named_splits
from nearfar.encoding import Built, Card, Head, ScoreHead, TextModel, save
from nearfar.encoding.masked_lm import make_masked_lm_head
from nearfar.encoding.model_folder import Calibration, TaskSpec, read_card, update
from nearfar.encoding.pretrained import MULTI_LABEL
from nearfar.encoding.tokens import foreign_texts
from nearfar.errors import SettingError, counted
from nearfar.evaluation import MultiLabelReport, PairReport, Report
from nearfar.evaluation.evaluators import EvaluationRows, evaluate
from nearfar.evaluation.multi_label import THRESHOLD, choose_thresholds
from nearfar.pipeline.adaptation import adaptation_recipe, domain_of
from nearfar.pipeline.calibration import HeldOut, TrainedOn, calibrate, held_out
from nearfar.pipeline.card import model_card, versions
from nearfar.pipeline.class_names import ChosenNames, Names, choose_names, class_names, unsuitable
from nearfar.pipeline.data import RunData, in_memory, read_data
from nearfar.pipeline.defaults import (
    NATIVE_HEAD,
    POOLED_HEAD,
    TRAINED,
    Stage,
    are_few,
    has_dev,
    plan_stages,
    unstored,
    written,
)
from nearfar.pipeline.heads import TrainingRows, cross_validated, fit_head, unit_vectors
from nearfar.pipeline.loaders import (
    EVALUATION_BATCH,
    Rows,
    Scale,
    batch_notes,
    by_anchor,
    check_targets,
    evaluation_rows,
    make_loader,
    scale_of,
    searches,
    tokenized,
    view_notes,
    with_names,
)
from nearfar.pipeline.objectives import build_terms
from nearfar.pipeline.output import JOURNAL, Measure, Reports, evaluators
from nearfar.pipeline.plan import Prepared, decided, open_encoder, try_out
from nearfar.pipeline.unlabeled import pool_of
from nearfar.pipeline.zero_shot import zero_shot_rows
from nearfar.recipe import Recipe, Training, to_toml
from nearfar.seeds import stream
from nearfar.training import FitSettings, LossModule, Scores, TaskLoss, plan_run
from nearfar.training.optimizer import Part, freeze_encoder
from nearfar.training.precision import Precision

CENTER_TEXTS = 5_000
"""Most training texts that class centers are computed from."""
VECTORS = {
    "first": "that of the first token",
    "last": "that of the last token, which is the class token",
    "mean": "the mean of the tokens, as the encoder pools",
    "pooler": "that of the encoder's pooler",
}
"""The poolings in words."""


def plan_encoder_run(recipe: Recipe, data: object = None) -> EncoderPlan:
    """Read the data of a recipe, from its files or from memory, and choose what it leaves open."""
    rows = {} if data is None else named_splits(data)
    recipe = replace(recipe, data=in_memory(recipe.data, rows))
    if recipe.data.unlabeled is True:
        rows = {**rows, recipe.data.train: zero_shot_rows(recipe, rows)}
    read = read_data(recipe, rows)
    check_targets(read)
    plan = replace(_plan(recipe, read), domain=domain_of(recipe, rows))
    if recipe.data.unlabeled and recipe.data.unlabeled is not True:
        plan = replace(plan, pool=_pool(plan, rows))
    return plan


def _pool(plan: EncoderPlan, memory: Mapping[str, object]) -> Records | None:
    """The unlabeled texts beside the training rows; refused where labels that they get would be of no use."""
    problem = unsuitable(plan.given, plan.recipe, plan.data)
    if problem is None and plan.recipe.head.kind == "neighbors":
        problem = "a neighbors head does not weigh texts"
    if problem is not None:
        raise SettingError(
            f"data.unlabeled (--unlabeled) joins training texts with one class each, and {problem}; leave it out."
        )
    return pool_of(plan.given, memory, plan.data.train)


def _plan(recipe: Recipe, data: RunData) -> EncoderPlan:
    stages, notes = plan_stages(recipe, data)
    notes += _row_weights(data, stages)
    names = class_names(recipe, stages[-1].recipe, data)
    if names:
        data = replace(data, names=names)
        stages = [_with_names(stage, names) for stage in stages]
    return EncoderPlan(recipe, data, stages, [*data.notes, *notes])


def _with_names(stage: Stage, names: Names) -> Stage:
    """The stage with the names that may join it in its recipe: whoever reads it runs the same training."""
    short: dict[str, str | tuple[str, ...]] = {
        label: phrases[0] if len(phrases) == 1 else phrases for label, phrases in names.items()
    }
    return replace(stage, recipe=replace(stage.recipe, data=replace(stage.recipe.data, names=short)))


def _row_weights(data: RunData, stages: Sequence[Stage]) -> list[str]:
    """Refuse weights of rows that nothing reads; a note where the head reads them and the objective does not."""
    weights, recipe = data.train.weights, stages[-1].recipe
    if weights is None or data.pseudo:  # those of unlabeled texts are not the user's
        return []
    if data.row_type is not RowType.LABELED:
        raise SettingError(
            f"weights of rows are for texts with one class each, and these are {data.row_type.wording}: remove "
            "data.weight (sample_weight)."
        )
    if not any(weights):
        raise SettingError("the weights of all rows are 0, so nothing would be learned: give some a weight above 0.")
    read = any(stage.recipe.objective.does.trains_head for stage in stages)
    if not read and recipe.head.kind == "neighbors":
        raise SettingError(
            f"neither {recipe.objective.name} nor a neighbors head reads weights of rows: choose cross-entropy or "
            "another head.kind, or remove data.weight (sample_weight)."
        )
    name = recipe.objective.name
    return [] if name == "cross-entropy" else [f"weights of rows count in the class head, not in the pairs of {name}"]


@dataclass(frozen=True)
class EncoderPlan:
    """A plain recipe with nothing left open, and its data."""

    given: Recipe
    """As it was written."""
    data: RunData
    parts: list[Stage]
    notes: list[str]
    pool: Records | None = None
    """Texts without labels, which may join the training rows."""
    domain: Records | None = None
    """Texts without labels, which the encoder is adapted to first."""
    adapted: str | None = None
    """The folder of the adapted encoder, once there is one."""

    @property
    def recipe(self) -> Recipe:
        """That of the last stage."""
        return self.parts[-1].recipe

    @property
    def training(self) -> Training:
        """The training table of the last stage."""
        return self.recipe.training

    @property
    def earlier(self) -> Sequence[Callable[[str | None], Recipe]]:
        """The adaptation to unlabeled texts, where there is one: the encoder it begins with to its recipe."""
        if self.domain is None:
            return []
        return [lambda encoder: adaptation_recipe(self.recipe, encoder or self.encoder)]

    @property
    def metrics(self) -> dict[str, str]:
        """The score that picks the model, of the one task."""
        return {"": self.training.metric}

    @property
    def stages(self) -> int:
        """How many trainings follow each other."""
        return len(self.parts)

    @property
    def classifies(self) -> bool:
        """Whether the model predicts classes or scores; else it embeds texts."""
        return self.data.row_type.has_head

    @property
    def one_vector(self) -> bool:
        """Whether text vectors are compared and a class head is trained, which then read the same vector."""
        stages = [stage.recipe.objective.does for stage in self.parts]
        heads = self.classifies and any(does.trains_head for does in stages)
        return heads and any(does.text_vector for does in stages)

    def with_encoder(self, name: str) -> EncoderPlan:
        """The same rows with another encoder; what the recipe leaves open is chosen again."""
        recipe = replace(self.given, encoder=replace(self.given.encoder, name=name))
        return replace(_plan(recipe, self.data), pool=self.pool, domain=self.domain)

    def reads(self) -> list[object]:
        """The files and folders that the run reads, among other values."""
        recipe = self.given
        objectives = [recipe.objective, *(stage.objective for stage in recipe.stage)]
        data = recipe.data
        return [
            data.train,
            data.dev,
            data.test,
            data.corpus,
            data.names,
            data.unlabeled,
            recipe.encoder.name,
            *(one.does.encoder for one in objectives),
        ]

    def saved_recipe(self) -> Recipe:
        """One recipe for all stages."""
        return written(self.parts)

    def recipe_text(self) -> str:
        """The recipe as it is saved."""
        return to_toml(self.saved_recipe())

    def config(self) -> dict[str, Any]:
        """The settings as trackers show them."""
        return asdict(self.recipe)

    def identity(self, number: int, processes: int) -> str:
        """What must be equal for a checkpoint of a stage to be continued; how often it is stored does not matter."""
        text = "\n".join(to_toml(unstored(stage.recipe)) for stage in self.parts[: number + 1])
        return hashlib.sha256(f"{text}\n{self.data.fingerprint()}\n{processes}".encode()).hexdigest()

    def journal(self, number: int) -> str:
        """The file of a stage's journal."""
        return self.parts[number].journal(JOURNAL)

    @property
    def encoder(self) -> str:
        """The name of the encoder."""
        return self.recipe.encoder.name

    def in_precision(self, precision: Precision) -> EncoderPlan:
        """The same with what was decided for ``training.precision``."""
        return replace(self, parts=[stage.in_precision(precision) for stage in self.parts])

    def open(self, accelerator: Accelerator, encoder: str | None = None) -> EncoderRun:
        """Open the encoder, with a class head where some stage trains one, and tokenize the data."""
        data, recipe = self.data, self.recipe
        headed = self.classifies and any(stage.recipe.objective.does.trains_head for stage in self.parts)
        classes = data.classes if headed and data.row_type.has_classes else None
        one, seed = self.one_vector, stream(recipe.seed, "head")
        name = encoder or self.adapted
        built = open_encoder(recipe.encoder, classes=classes, seed=seed, name=name, one_vector=one)
        if data.row_type.multilabel and built.model.native:
            built.model.network.config.problem_type = MULTI_LABEL
        if data.row_type.has_text_scores:
            built.model.head = _score_head(built.model.dim, data.train, stream(recipe.seed, "head"))
        built.model.to(accelerator.device)
        scale = scale_of(data)
        rows = {
            name: tokenized(built, data, records, scale)
            for name, records in (("train", data.train), ("dev", data.dev), ("test", data.test))
            if records is not None
        }
        names = None
        if data.names:
            own = len(data.train) - data.pseudo
            texts, labels = data.train.texts[0][:own], rows["train"].labels[:own]
            names = choose_names(built, texts, labels, dict(data.names), data.classes)
            rows["train"] = with_names(rows["train"], built, names.used, data.classes)
        found = searches(built, data, recipe.data.invalid)
        run = EncoderRun(self, built, rows, scale, accelerator, found, names=names)
        mapped = [scale.note] if scale is not None and scale.note else []
        mapped += [] if names is None else [names.note]
        run.notes.extend([*mapped, *built.notes, *run.vector_notes(), *run.unused_pooling(), *run.truncation()])
        return run


@dataclass(frozen=True)
class EncoderRun:
    """The encoder and the tokenized data of a plain recipe."""

    plan: EncoderPlan
    built: Built
    rows: dict[str, Rows]
    """Of train, dev and test, where there are some."""
    scale: Scale | None
    accelerator: Accelerator
    searches: dict[str, EvaluationRows]
    """Dev and test rows as searches of a corpus, where there is one."""
    notes: list[str] = field(default_factory=list)
    thresholds: dict[str, float] = field(default_factory=dict)
    """From which probability on a label applies, where texts have several labels and there are no dev rows."""
    names: ChosenNames | None = None
    """Which names of classes join the training, where there are some."""
    calibration: dict[str, Any] = field(default_factory=dict)
    """How the probabilities were calibrated; empty where they were not."""

    @property
    def model(self) -> TextModel:
        """The encoder, with its head where it has one."""
        return self.built.model

    def opening(self, precision: str) -> str:
        """What is trained on what, in words."""
        data, accelerator = self.plan.data, self.accelerator
        weights = sum(weight.numel() for weight in self.model.parameters())
        name = self.plan.recipe.encoder.name
        name = "minilm (English)" if name == "minilm" else name
        parts = (("train", data.train), ("dev", data.dev), ("test", data.test))
        sizes = ", ".join(f"{name} {len(records):,}" for name, records in parts if records is not None)
        sizes += f" ({data.pseudo:,} of the training rows without a label)" if data.pseudo else ""
        what = f"{len(data.classes)} classes" if data.row_type.has_classes else data.row_type.wording
        several = f" x {accelerator.num_processes}" if accelerator.num_processes > 1 else ""
        return (
            f"rows: {sizes}; {what}\n"
            f"encoder: {name}, {weights / 1e6:.1f}M weights, {self.built.max_length} tokens; "
            f"{precision} on {accelerator.device.type}{several}"
        )

    def untrained_scores(self) -> dict[str, Scores]:
        """The scores of the untrained encoder, where texts are compared; those of dev rows alone are in the journal."""
        measured = self.evaluators()
        if self.plan.classifies or "test" not in measured:
            return {}
        return {split: evaluate()[""].scores for split, evaluate in measured.items()}

    def prepare(self, number: int) -> Prepared:
        """The training of a stage."""
        stage, data = self.plan.parts[number], self.plan.data
        recipe = stage.recipe
        for weight in self.model.parameters():
            weight.requires_grad = True  # an earlier stage may have had no use for it
        module, notes = self._loss_module(stage)
        if recipe.encoder.frozen:
            freeze_encoder(module)
        rows, does = self.rows["train"], recipe.objective.does
        if does.by_anchor:
            rows, more = by_anchor(rows, does.threshold)
            notes += more
        loader = make_loader(stage, self.built, data, rows)
        notes += [*batch_notes(loader, recipe), *view_notes(loader, recipe, data, self.built)]
        settings = FitSettings(
            training=recipe.training,
            rates=_rates(recipe, native=self.model.native),
            seed=stage.seed,
            chunk=recipe.batches.chunk,
            evaluate_at_start=not data.row_type.has_head or recipe.training.keep_untrained is True,
        )
        trial = try_out(module, loader, settings, {"": recipe.batches.size or 1}, self.accelerator)
        if unused := [name for name in trial.frozen if ".pooler." not in name]:  # many encoders have one for nothing
            notes.append(f"weights that this objective does not use stay as they are: {', '.join(unused[:4])}")
        plan, limit = plan_run(loader, recipe.training), recipe.training.max_steps
        stop = "" if limit is None else f", at most {counted(limit, 'step')}"
        line = (
            f"{stage.title}objective: {recipe.objective.name}; "
            f"{counted(len(loader.sampler), 'batch', 'batches')} of {recipe.batches.size} an epoch, "
            f"{counted(recipe.training.epochs or 0, 'epoch')}{stop}; {counted(plan.steps, 'step')}{trial.estimate}"
        )
        dev = self.evaluators(fit=recipe).get("dev")
        return Prepared(
            module=module,
            loader=loader,
            settings=settings,
            plan=plan,
            evaluate=None if dev is None else lambda: dev()[""].scores,
            identity=self.plan.identity(number, self.accelerator.num_processes),
            lines=[line],
            notes=notes,
        )

    def _loss_module(self, stage: Stage) -> tuple[LossModule, list[str]]:
        """The model under the objective of a stage, with what takes part in training only."""
        recipe, data, rows = stage.recipe, self.plan.data, self.rows["train"]
        terms, notes = build_terms(
            recipe.objective,
            classes=data.classes,
            dim=self.model.dim,
            labels=rows.labels,
            seed=stage.stream("objective"),
            positive_above=rows.positive_above if rows.graded else None,
            deviation=_deviation(data.train) if data.row_type.has_text_scores else 1.0,
        )
        does = recipe.objective.does
        weighting, projection, masked = None, None, None
        if does.weighting:
            weighting = self._weighting(recipe, does.encoder or recipe.encoder.name, stage.stream("weighting"))
        if data.row_type.views and does.projection:
            projection = _projection(self.model.dim, stage.stream("projection"))
        if does.masked_words:
            masked, note = make_masked_lm_head(recipe.encoder.name, self.built, seed=stage.stream("masked-words"))
            notes += [note] if note else []
        task = TaskLoss(tuple(terms), graded=data.row_type.has_text_scores)
        module = LossModule(
            self.model,
            [task],
            precision=decided(recipe.training),
            weighting=weighting,
            projection=projection,
            masked=masked,
        )
        return module.to(self.accelerator.device), notes

    def _weighting(self, recipe: Recipe, name: str, seed: int) -> TextModel:
        """The weighting network of label-aware contrastive."""
        classes, one = self.plan.data.classes, self.plan.one_vector
        helper = open_encoder(recipe.encoder, classes=classes, seed=seed, name=name, one_vector=one)
        if name != recipe.encoder.name and helper.tokenizer.get_vocab() != self.built.tokenizer.get_vocab():
            raise SettingError(
                f"objective.weighting is {name!r}, whose vocabulary is not that of encoder.name "
                f"{recipe.encoder.name!r}: both read the same tokens; leave objective.weighting out, or name an "
                "encoder of the same family."
            )
        return helper.model

    def fit_head(self) -> None:
        """Fit the class head to the trained encoder, where it is not trained with it."""
        if self._fits_head(self.plan.recipe):
            self.model.head = self._fitted_head(self.plan.recipe)
        if self.plan.data.row_type.multilabel and self.plan.data.dev is None:
            self.thresholds.update(self._thresholds())
        if self.plan.training.estimate and has_dev(self.plan.data) and self.calibrates:
            self.calibrate(self.held_out("dev", by="dev"))

    @property
    def calibrates(self) -> bool:
        """Whether the model predicts one class a text, so that its probabilities can be calibrated."""
        return self.plan.data.row_type is RowType.LABELED

    def held_out(self, split: str, *, by: Literal["folds", "dev"]) -> HeldOut:
        """What the model says of dev or test rows."""
        rows = self.rows[split]
        return held_out(self.model, rows.table, rows.labels, self.trained_on, by=by)

    def calibrate(self, held: HeldOut) -> None:
        """Set the temperature of the probabilities, and what texts are rejected by."""
        keep = self.plan.recipe.head.keep_vectors
        named = self.plan.given.data.unlabeled is True and held.by == "folds"
        self.calibration.update(calibrate(self.model, held, self.trained_on, keep_vectors=keep, named=named))

    @cached_property
    def trained_on(self) -> TrainedOn:
        """The training texts as the trained model sees them; of many texts a sample, unless all are to be kept."""
        train, data = self.rows["train"], self.plan.data.labeled
        rows = np.arange(len(data))  # texts without labels and names of classes, which may follow, are no texts
        if not self.plan.recipe.head.keep_vectors and len(data) > CENTER_TEXTS:
            rows = np.array(limit(data, CENTER_TEXTS, seed=self.plan.recipe.seed))
        counts = np.bincount(train.labels[: len(data)], minlength=len(self.plan.data.classes))
        return TrainedOn.of(self.model, train.table.take(rows), train.labels[rows], counts)

    def _thresholds(self) -> dict[str, float]:
        """The thresholds of labels without dev rows: by cross-validation of a fitted head, a half for a trained one."""
        recipe, classes = self.plan.recipe, self.plan.data.classes
        if not self._fits_head(recipe):
            return dict.fromkeys(classes, THRESHOLD)
        rows = self.training_rows(recipe)
        vectors = unit_vectors(self.model, rows.table, batch_size=EVALUATION_BATCH)
        probabilities, _ = cross_validated(vectors, rows, seed=recipe.seed)
        return choose_thresholds(rows.labels, probabilities, classes)

    def _fits_head(self, recipe: Recipe) -> bool:
        return self.plan.classifies and recipe.head.kind not in (*TRAINED, "auto")

    def _fitted_head(self, recipe: Recipe) -> Head:
        kind: Any = recipe.head.kind
        rows = self.training_rows(recipe)
        head = fit_head(kind, self.model, rows, neighbors=recipe.head.neighbors, batch_size=EVALUATION_BATCH)
        return head.to(next(self.model.parameters()).device)

    def training_rows(self, recipe: Recipe) -> TrainingRows:
        """The training texts as heads are fitted to them."""
        train = self.rows["train"]
        scores = train.targets if self.plan.data.row_type.has_text_scores else None
        weight = recipe.objective.class_weight
        classes = self.plan.data.classes
        return TrainingRows(train.table, train.labels, classes, weight, scores, train.weights, train.names)

    def evaluators(self, *, fit: Recipe | None = None) -> dict[str, Callable[[], dict[str, Report]]]:
        """What measures the model on dev and test rows; with ``fit``, under the head that this recipe fits first."""
        data = self.plan.data
        measures: dict[str, dict[str, Measure]] = {}
        for split, records in (("dev", data.dev), ("test", data.test)):
            if records is not None and len(records):
                measures[split] = {"": self._measure(split, records, fit)}
        return evaluators(measures)

    def _measure(self, split: str, records: Records, fit: Recipe | None) -> Measure:
        rows = self.searches.get(split) or evaluation_rows(self.rows[split], records, self.plan.data.classes)

        def measure(thresholds: Mapping[str, float] | None) -> Report:
            thresholds = thresholds or self.thresholds or None
            if fit is None or not self._fits_head(fit):
                return evaluate(self.model, rows, batch_size=EVALUATION_BATCH, thresholds=thresholds)
            trained, self.model.head = self.model.head, self._fitted_head(fit)
            try:
                return evaluate(self.model, rows, batch_size=EVALUATION_BATCH, thresholds=thresholds)
            finally:
                self.model.head = trained

        return measure

    def save(self, out: Path, module: LossModule, reports: Reports, metrics: dict[str, Any]) -> None:
        """Write the model folder."""
        data, head, recipe = self.plan.data, self.model.head, self.plan.recipe
        task: TaskSpec = {"kind": str(data.row_type)}
        if self.scale is not None:
            task |= {"low": self.scale.low, "high": self.scale.high}
        report = reports.get("dev", {}).get("")
        if isinstance(report, PairReport):
            task |= {"threshold": report.threshold, "accuracy_threshold": report.accuracy_threshold}
        if data.row_type.multilabel:
            task["thresholds"] = report.thresholds if isinstance(report, MultiLabelReport) else self.thresholds
        if self.calibration:
            task["calibration"] = cast(Calibration, dict(self.calibration))
        card = Card(
            pooling=self.model.pooling,
            max_length=self.built.max_length,
            native=self.model.native,
            labels=data.classes if data.row_type.has_classes else None,
            normalize=self.built.normalize,
            joined=data.row_type.has_classes and data.train.shape == "pairs",
            head=None if head is None else head.describe(),
            objective={**asdict(recipe.objective), "weights": sorted(module.objectives.state_dict())},
            precision=decided(recipe.training),
            versions=versions(),
            task=task,
        )
        readme = self._readme(card, metrics)
        weights = dict(module.objectives.state_dict())
        save(out, self.model, self.built.tokenizer, card, readme=readme, objective=weights)

    def _readme(self, card: Card, metrics: dict[str, Any]) -> str:
        data = replace(self.plan.data, names={} if self.names is None else self.names.used)
        return model_card(self.plan.recipe, self.plan.recipe_text(), data, card, metrics)

    def describe(self, out: Path, metrics: dict[str, Any]) -> None:
        """Write the card and the README of the saved model again, with what is known now."""
        card = read_card(out)
        assert card is not None
        if self.calibration:
            card = replace(card, task={**card.task, "calibration": cast(Calibration, dict(self.calibration))})
        update(out, self.model, card, readme=self._readme(card, metrics))

    def vector_notes(self) -> list[str]:
        """Which vector both the head and the contrastive term read, where the recipe does not say."""
        if not self.plan.one_vector or self.plan.given.encoder.pooling is not None:
            return []
        return [
            f"the class head and the contrastive term read one vector, {VECTORS[self.model.pooling]}; encoder.pooling "
            "sets another"
        ]

    def unused_pooling(self) -> list[str]:
        """What is lost where few texts are to train the architecture's own head on a sentence encoder."""
        data, pooling = self.plan.data, self.model.pooling
        if not (self.model.native and self.built.pools) or not are_few(len(data.train), len(data.classes)):
            return []
        better = 'head.kind = "trained"' if self.plan.recipe.head.kind == "native" else f"--pooling {pooling}"
        return [
            f"the architecture's own class head does not read the {pooling}-pooled vectors of this sentence encoder; "
            f"with few texts, {better} learns faster"
        ]

    def truncation(self) -> list[str]:
        """How many training texts are cut, and whether the encoder knows their language."""
        table = self.rows["train"].table
        toy = self.plan.recipe.encoder.name == "toy"  # whose vocabulary has nothing but pairs of letters
        foreign = None if toy else foreign_texts(self.built.tokenizer, table)
        notes = [] if foreign is None else [foreign]
        if not table.truncated:
            return notes
        are = "is" if table.truncated == 1 else "are"
        return [
            *notes,
            f"{counted(table.truncated, 'training text')} ({100 * table.truncated / len(table):.1f} %) {are} longer "
            f"than {self.built.max_length} tokens and {are} cut there; encoder.max_length sets the limit",
        ]


def _score_head(dim: int, train: Records, seed: int) -> ScoreHead:
    """A head that begins with the mean of the training scores, and predicts in their units."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        head = ScoreHead(dim)
    head.mean.fill_(float(np.mean(train.scores or [0.0])))
    head.deviation.fill_(_deviation(train))
    return head


def _deviation(train: Records) -> float:
    """The standard deviation of the training scores; 1 where a draw has left equal ones."""
    return float(np.std(train.scores or [0.0])) or 1.0


def _rates(recipe: Recipe, *, native: bool) -> dict[Part, float]:
    rate = recipe.training.learning_rate
    assert rate is not None
    factor = NATIVE_HEAD if native and not recipe.encoder.frozen else POOLED_HEAD
    return {
        "encoder": rate,
        "head": recipe.training.head_learning_rate or factor * rate,
        "objective": recipe.objective.learning_rate or 100 * rate,
    }


def _projection(dim: int, seed: int) -> torch.nn.Module:
    """SimCSE's layer between vectors and objective: it takes part in training only, and is not saved."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return torch.nn.Sequential(torch.nn.Linear(dim, dim), torch.nn.Tanh())
