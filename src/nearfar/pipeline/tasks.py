"""One of several tasks: its data, head and objective, the outputs of its head, and its rows measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from nearfar.batching import ClassBalanced, RandomOrder, Sampler
from nearfar.data import Records, RowType, pair_targets, read, score_range, unit_scores
from nearfar.encoding import Built
from nearfar.encoding.pair_heads import ConcatHead, JointHead
from nearfar.encoding.task_model import TaskCard, TaskModel, TaskNetwork, lay_out
from nearfar.errors import DataError, Problem, SettingError, counted
from nearfar.evaluation import Report, ScoreReport, Truth, embed_table, report_on
from nearfar.pipeline.data import RunData, class_numbers, graded_problems, layout_of, read_data, read_rows
from nearfar.pipeline.defaults import check_objective
from nearfar.pipeline.loaders import EVALUATION_BATCH, Rows, texts_per_class
from nearfar.pipeline.objectives import build_terms
from nearfar.pipeline.output import RECIPE, Measure, Reports
from nearfar.recipe import Recipe
from nearfar.recipe.class_objectives import CrossEntropy
from nearfar.recipe.objectives import Auto
from nearfar.recipe.pair_objectives import CosineMSE
from nearfar.recipe.tasks import Task, TaskRecipe, read_task_recipe
from nearfar.seeds import stream
from nearfar.training import Loader, TaskLoss, Term
from nearfar.training.loss_module import TASK_VIEWS, ScoreError

LEVEL_ROWS = 64
"""Training rows by which the outputs of a score are centered."""


def check_measured(planned: PlannedTask) -> list[str]:
    """Refuse dev and test rows that the task cannot be measured by, before it is trained; what to know of others."""
    notes = []
    for split, records in (("dev", planned.data.dev), ("test", planned.data.test)):
        if records is None or not len(records):
            continue
        nothing = np.zeros((len(records), planned.card.outputs), dtype=np.float32)
        try:
            report = judge(planned.card, nothing, truth_of(planned.card, records))
        except SettingError as error:
            raise SettingError(f"task {planned.name!r}, its {split} rows: {error}") from None
        if isinstance(report, ScoreReport) and "truth" in report.constant:
            notes.append(
                f"task {planned.name}: all scores of its {split} rows are alike, so that its correlation is 0 whatever "
                "is learned"
            )
    return notes


def center_scores(planned: PlannedTask, built: Built, network: TaskNetwork) -> None:
    """Let the outputs of a task with scores begin around the mean of its training scores.

    A head of random weights may begin far beside them. What then moves first is what all pairs have in common, and a
    head with tanh inside can end where it gives the same for every pair.
    """
    card, train = planned.card, planned.data.train
    head = network.head.of(card.name)
    if card.labels is not None or not isinstance(head, ConcatHead | JointHead):
        return
    some = train.take(range(min(LEVEL_ROWS, len(train))))
    table, columns = lay_out(built.tokenizer, some.texts, card.reads, built.max_length)
    outputs = network.answers(card.name, embed_table(network.encoder, table, batch_size=EVALUATION_BATCH), columns)
    beside = float(task_targets(planned, train).mean()) - float(outputs.mean())
    with torch.no_grad():
        head.last.bias.add_(round(beside, 3))  # the same on machines that differ in the last digits


def judge(
    card: TaskCard, outputs: NDArray[np.float32], truth: NDArray[Any], thresholds: Mapping[str, float] | None = None
) -> Report:
    """(n, k) outputs of a head against (n,) classes, binary labels, or scores from 0 to 1."""
    measured = Truth(measured_as(card.kind, card.head["kind"]), truth, card.labels or ())
    if measured.row_type is RowType.LABELED:  # probabilities, whose calibration is measured, too
        outputs = np.exp(outputs - outputs.max(axis=1, keepdims=True), dtype=np.float64)
        outputs /= outputs.sum(axis=1, keepdims=True)
    return report_on(outputs, measured, thresholds)


def truth_of(card: TaskCard, records: Records) -> NDArray[Any]:
    """(n,) what the outputs of a task should be, of rows with labels or scores."""
    wanted = "score" if card.labels is None else "label"
    if (records.scores if card.labels is None else records.labels) is None:
        message = f"task {card.name!r} is measured by {wanted}s, and the file has no {wanted} column"
        remedy = f"Name the column: --{wanted}, or {wanted} in [task.data]."
        raise DataError([Problem(records.source, message, remedy, line=records.lines[0] if records.lines else None)])
    if card.labels is None:
        inside = all(card.low <= score <= card.high for score in records.scores or ())
        values, _ = unit_scores(records, low=card.low, high=card.high) if inside else unit_scores(records)
        return np.array(values, dtype=np.float32)
    if card.head["kind"] == "cosine":
        return np.array(pair_targets(records), dtype=np.int64)
    _check_labels(card, card.labels, records)
    return class_numbers(records, card.labels)


def _check_labels(card: TaskCard, known: tuple[str, ...], records: Records) -> None:
    """Refuse labels that the task does not have, each of them once."""
    unknown: dict[str, list[int]] = {}
    for label, line in zip(records.labels or (), records.lines, strict=True):
        if label not in known:
            unknown.setdefault(label, []).append(line)
    remedy = f"It knows: {', '.join(known[:12])}{' ...' if len(known) > 12 else ''}."
    problems = []
    for label, lines in unknown.items():
        message = f"task {card.name!r} does not know this label, in {counted(len(lines), 'row')}"
        problems.append(Problem(records.source, message, remedy, line=lines[0], value=label))
    if problems:
        raise DataError(problems)


def task_measure(planned: PlannedTask, built: Built, network: TaskNetwork, records: Records) -> Measure:
    """How a task does on these rows, whenever it is asked; under a cosine head, by ``thresholds`` if given."""
    card = planned.card
    table, columns = lay_out(built.tokenizer, records.texts, card.reads, built.max_length)
    truth = truth_of(card, records)

    def measure(thresholds: Mapping[str, float] | None = None) -> Report:
        vectors = embed_table(network.encoder, table, batch_size=EVALUATION_BATCH)
        return judge(card, network.answers(card.name, vectors, columns), truth, thresholds)

    return measure


def worst(
    card: TaskCard, outputs: NDArray[np.float32], truth: NDArray[Any], records: Records, count: int
) -> list[dict[str, Any]]:
    """The most confident mistakes, the worst first: wrong labels by their probability, scores by how far off they are.

    ``sure`` is the probability of the wrong label, the distance of the cosine from the threshold, or the error of the
    score in the range of the training scores.
    """
    said: list[Any]
    right: list[Any]
    if card.labels is None:
        wide = card.high - card.low
        sure = np.abs(outputs[:, 0] - truth) * wide
        wrong = sure > 0
        said, right = (card.low + outputs[:, 0] * wide).tolist(), (card.low + truth * wide).tolist()
    elif card.head["kind"] == "cosine":
        numbers = (outputs[:, 0] >= card.cut).astype(np.int64)
        sure, wrong = np.abs(outputs[:, 0] - card.cut), numbers != truth
        said, right = [card.labels[place] for place in numbers], [card.labels[int(place)] for place in truth]
    else:
        chances = np.exp(outputs - outputs.max(axis=1, keepdims=True))
        chances /= chances.sum(axis=1, keepdims=True)
        numbers = outputs.argmax(axis=1)
        sure, wrong = chances.max(axis=1), numbers != truth
        said, right = [card.labels[place] for place in numbers], [card.labels[int(place)] for place in truth]
    places = np.flatnonzero(wrong)
    places = places[np.argsort(-sure[places], kind="stable")][:count]
    return [
        {
            "line": records.lines[place], "texts": [column[place] for column in records.texts],
            "truth": right[place], "said": said[place], "sure": float(sure[place]),
        }
        for place in places.tolist()
    ]  # fmt: skip


PAIR_HEADS = ("concat", "joint", "joint-difference", "joint-difference-activated", "cosine")


@dataclass(frozen=True)
class PlannedTask:
    """A task whose data is known, with nothing left open."""

    task: Task
    row_type: RowType
    card: TaskCard
    data: RunData
    notes: tuple[str, ...]

    @property
    def name(self) -> str:
        """What it is called."""
        return self.task.name


def read_task(recipe: TaskRecipe, task: Task, memory: Mapping[str, object] | None = None) -> PlannedTask:
    """Read the data of a task, from files or ``memory``, and refuse a kind or a head that does not fit it."""
    head = task.head.kind
    plain = replace(recipe.plain(task), objective=CosineMSE() if head == "cosine" else Auto())
    try:
        for key in ("corpus", "weight"):
            if getattr(plain.data, key) is not None:
                raise SettingError(f"data.{key} is for a recipe without [[task]] tables; leave it out.")
        data = read_data(plain, memory, measured=False)  # tasks have measures of their own: check_measured
    except SettingError as error:
        raise SettingError(f"task {task.name!r}: {error}") from None
    except DataError:
        _check_purpose(task, plain, memory or {})
        raise
    row_type = _row_type(task, data.train)
    if head == "auto":
        head = "linear" if row_type.has_classes else "joint"
    _check_head(task, head, data.train)
    metric = _metric(task, row_type, head)
    kind: Any = row_type.value
    chosen = replace(task, kind=kind, head=replace(task.head, kind=head), metric=metric)
    low, high, notes = 0.0, 1.0, list(data.notes)
    labels: tuple[str, ...] | None = None
    if row_type.has_scores:
        low, high = score_range(data.train)
        _, note = unit_scores(data.train, low=low, high=high)
        notes += [note] if note else []
    elif head == "cosine":
        labels = _binary_labels(data.train)
    else:
        labels = data.classes  # those that data.limit leaves out, too: dev and test rows have them
    _check_single_logit(task, head, labels)
    card = TaskCard(task.name, kind, _described(chosen), metric, labels, low, high)
    return PlannedTask(chosen, row_type, card, data, tuple(f"task {task.name}: {note}" for note in notes))


def check_dev(tasks: list[PlannedTask]) -> bool:
    """Whether the dev rows pick the model; refused where some tasks have such rows and others have none."""
    without = [task for task in tasks if task.data.dev is None or not len(task.data.dev)]
    if without and len(without) < len(tasks):
        having = next(task for task in tasks if task not in without)
        rows = len(without[0].data.train)
        raise SettingError(
            f"task {without[0].name!r} has no dev data ({rows:,} training rows), but the mean over all tasks picks the "
            f"model, and task {having.name!r} has some: set dev in its [task.data] to a file or a share such as 0.1, "
            "or dev = 0 for all tasks."
        )
    return not without


def _check_purpose(task: Task, plain: Recipe, memory: Mapping[str, object]) -> None:
    """Of rows that cannot be read for a task, say first that they are for no task."""
    try:
        train = read_rows(plain.data.train, plain, memory)
    except DataError:
        return
    if train.labels is None and train.scores is None:
        _row_type(task, train)


def measured_as(kind: str, head: str) -> RowType:
    """What the outputs of a task are measured like: pairs with labels under a class head are measured like classes."""
    row_type = RowType(kind)
    return RowType.LABELED if row_type.has_binary_labels and head != "cosine" else row_type


def _row_type(task: Task, train: Records) -> RowType:
    found = None
    if train.shape == "texts" and train.labels is not None:
        found = RowType.LABELED
    elif train.shape == "pairs" and train.target is not None:
        found = RowType.BINARY_PAIRS if train.target == "label" else RowType.SCORED_PAIRS
    if found is None:
        problem = Problem(
            train.source, f"task {task.name!r} needs texts with a class, or pairs with a label or a score",
            "Name the columns in [task.data]: text, pair, label, score. Other data can train a [[stage]] before.",
            line=train.lines[0] if train.lines else None,
        )  # fmt: skip
        raise DataError([problem])
    if task.kind not in ("auto", found):
        stated = RowType(task.kind).wording
        raise SettingError(
            f"task {task.name!r}: kind is {task.kind!r}, {stated}, but {train.source} has {found.wording}; "
            f'write kind = "{found}", or name other columns in [task.data].'
        )
    return found


def _check_head(task: Task, head: str, train: Records) -> None:
    pairs = train.shape == "pairs"
    if head == "linear" and pairs:
        raise SettingError(
            f"task {task.name!r}: head.kind is 'linear', which reads single texts, and {train.source} has pairs; "
            f"choose one of {', '.join(PAIR_HEADS)}."
        )
    if head != "linear" and not pairs:
        raise SettingError(
            f"task {task.name!r}: head.kind is {head!r}, which reads pairs of texts, and {train.source} has single "
            "texts; choose 'linear', or name both columns in [task.data]: text and pair."
        )
    if not task.head.symmetric and not head.startswith("joint"):
        raise SettingError(
            f"task {task.name!r}: head.symmetric is a setting of the joint heads, and head.kind is {head!r}; remove it."
        )
    if head == "cosine" and task.head.hidden_layers:
        raise SettingError(
            f"task {task.name!r}: head.hidden_layers is {task.head.hidden_layers}, and the cosine has no layers; "
            "remove it, or choose 'concat'."
        )
    if head != "concat" and (task.head.difference or task.head.product):
        key = "difference" if task.head.difference else "product"
        raise SettingError(
            f"task {task.name!r}: head.{key} is a setting of 'concat', and head.kind is {head!r}; remove it."
        )


def _check_single_logit(task: Task, head: str, labels: tuple[str, ...] | None) -> None:
    if not task.head.single_logit:
        return
    why = None
    if head == "cosine":
        why = "a cosine head has no logits"
    elif labels is None:
        why = "the task has scores"
    elif len(labels) != 2:
        why = f"there are {len(labels)}: {', '.join(labels[:6])}{' ...' if len(labels) > 6 else ''}"
    if why is not None:
        raise SettingError(f"task {task.name!r}: head.single_logit is for two classes, and {why}; remove it.")


def _metric(task: Task, row_type: RowType, head: str) -> Any:
    known = measured_as(row_type, head).metrics
    if task.metric == "auto":
        return known[0]
    if task.metric not in known:
        raise SettingError(
            f"task {task.name!r}: metric is {task.metric!r}, which {row_type.wording} do not have under the head "
            f"{head!r}; choose one of {', '.join(known)}."
        )
    return task.metric


def _described(task: Task) -> dict[str, Any]:
    """The head as the card has it."""
    settings = {"cosine": (), "linear": ("dropout",), "concat": ("dropout", "difference", "product")}
    names = settings.get(task.head.kind, ("dropout", "symmetric"))  # the others are joint heads
    more = [name for name in ("hidden_layers", "single_logit") if getattr(task.head, name)]
    return {"kind": task.head.kind, **{name: getattr(task.head, name) for name in (*names, *more)}}


def _binary_labels(records: Records) -> tuple[str, str]:
    """The labels of negative and of positive pairs."""
    names = dict(zip(pair_targets(records), records.labels or (), strict=True))
    return names.get(0.0, "0"), names.get(1.0, "1")


def build_loss(planned: PlannedTask, dim: int, seed: int) -> tuple[TaskLoss, list[str]]:
    """What the task is trained for, and what the user should know about it."""
    task, card, graded = planned.task, planned.card, planned.row_type.has_scores
    headed = card.head["kind"] != "cosine"
    labels = _labels(planned, planned.data.train)
    notes: list[str] = []
    terms: list[Term] = []
    _check_class_weight(planned)
    if not isinstance(task.objective, Auto) or not headed:
        objective = CosineMSE() if isinstance(task.objective, Auto) else task.objective
        try:
            terms, notes = build_terms(
                objective, classes=card.labels or (), dim=dim, labels=labels, seed=stream(seed, "objective", task.name),
                positive_above=0.5 if graded else None,
            )  # fmt: skip
        except SettingError as error:
            raise SettingError(f"task {task.name!r}: {error}") from None
        rate = objective.learning_rate
        terms = [replace(term, learning_rate=term.learning_rate or rate) for term in terms]
        if objective.does.by_anchor:
            raise SettingError(f'task {task.name!r}: objective.negatives = "anchor" is not for tasks; set "batch".')
        _check_views(planned, terms)
        if graded and (wrong := graded_problems(planned.data.train, [objective])):
            raise DataError(wrong)
    if headed and not any(term.view == "logits" for term in terms):
        if terms:
            notes.append(f"{task.objective.name} does not train the head, so the head's own loss is added to it")
        weight = task.head_weight if terms else 1.0
        if graded:
            terms = [Term("mse", weight, ScoreError(), "logits"), *terms]
        else:
            entropy = CrossEntropy(class_weight=task.objective.class_weight)
            made, _ = build_terms(entropy, classes=card.labels or (), dim=dim, labels=labels, seed=seed)
            terms = [replace(made[0], weight=weight), *terms]
    columns = 1 if card.reads == "texts" else 2
    loss = TaskLoss(
        tuple(terms), task.name, columns, 0 if card.reads == "apart" else columns, task.weight, graded=graded
    )
    return loss, [f"task {task.name}: {note}" for note in notes]


def _check_class_weight(planned: PlannedTask) -> None:
    """Refuse weights of classes that the task does not have."""
    card, objective = planned.card, planned.task.objective
    try:
        if objective.class_weight != "none" and (card.labels is None or card.head["kind"] == "cosine"):
            what = "scores" if card.labels is None else "a cosine head"
            raise SettingError(f"objective.class_weight weights classes, and the task has {what}; leave it out.")
        check_objective(objective, card.labels or ())
    except SettingError as error:
        raise SettingError(f"task {planned.name!r}: {error}") from None


def _check_views(planned: PlannedTask, terms: list[Term]) -> None:
    card, name = planned.card, planned.task.objective.name
    for term in terms:
        why = None
        if term.view not in TASK_VIEWS:
            why = "it cannot serve one of several tasks; choose another"
        elif term.view == "logits" and card.labels is None:
            why = "it needs classes, and the pairs have scores; leave the objective out for the squared error"
        elif term.view == "logits" and card.head["kind"] == "cosine":
            why = "it trains a head, and a cosine has nothing to train; choose the head concat or joint"
        elif term.view in ("text", "tokens") and (card.labels is None or card.reads == "apart"):
            why = "it compares texts of classes; choose a joint head and labels, or an objective for pairs"
        elif term.view in ("pairs", "grouped-pairs") and card.reads == "texts":
            why = "it compares pairs of texts, and the task has single ones; simcse and mirror can train a [[stage]]"
        if why is not None:
            raise SettingError(f"task {planned.name!r}: the objective {name} does not fit: {why}.")


def make_task_loader(planned: PlannedTask, loss: TaskLoss, built: Built, recipe: TaskRecipe) -> Loader:
    """The training rows of a task, in as many columns as its head and its objectives look at."""
    card, train = planned.card, planned.data.train
    table, columns = lay_out(built.tokenizer, train.texts, card.reads, built.max_length)
    targets, groups = None, None
    compared = any(term.view in ("pairs", "grouped-pairs") for term in loss.terms)
    if compared or card.labels is None:
        targets = task_targets(planned, train)
    if compared:
        singles, own = lay_out(built.tokenizer, train.texts, "apart", built.max_length)
        if any(term.view == "grouped-pairs" for term in loss.terms):
            groups = Rows(RowType.BINARY_PAIRS, singles, own, np.zeros(len(train), dtype=np.int64), targets).groups(
                planned.task.objective.does.threshold
            )
        if card.reads == "joined":
            columns = (*columns, *(len(table) + column for column in own))
            table = table.join(singles)
    labels = _labels(planned, train)
    return Loader(
        tokens=table, labels=labels, sampler=make_sampler(planned, recipe), lines=train.lines,
        source=train.source, columns=columns if len(columns) > 1 else (), targets=targets, groups=groups,
    )  # fmt: skip


def make_sampler(planned: PlannedTask, recipe: TaskRecipe) -> Sampler:
    """Which training rows of a task sit together in a batch."""
    labels = _labels(planned, planned.data.train)
    size = planned.task.batch_size or recipe.batches.size
    seed = stream(recipe.seed, "task", planned.name)
    if planned.card.labels is not None and planned.task.objective.does.needs_positives:
        if size < 2:
            raise SettingError(
                f"task {planned.name!r}: its batches have {size} row, and {planned.task.objective.name} compares the "
                "texts of a batch; set batch_size to 2 or more, 32 is usual."
            )
        return ClassBalanced(
            labels=labels, size=size, per_class=texts_per_class(recipe.batches.per_class, size), seed=seed
        )
    return RandomOrder(rows=len(labels), size=size, seed=seed)


def _labels(planned: PlannedTask, records: Records) -> NDArray[np.int64]:
    """(n,) class numbers; zeros for scores."""
    if planned.card.labels is None:
        return np.zeros(len(records), dtype=np.int64)
    if planned.card.head["kind"] == "cosine":
        return np.array(pair_targets(records), dtype=np.int64)
    return class_numbers(records, planned.card.labels)


def task_targets(planned: PlannedTask, records: Records) -> NDArray[np.float32]:
    """(n,) what each pair should be, from 0 to 1."""
    if planned.card.labels is None:
        values, _ = unit_scores(records, low=planned.card.low, high=planned.card.high)
        return np.array(values, dtype=np.float32)
    return np.array(pair_targets(records), dtype=np.float32)


def evaluate_saved(
    folder: Path, model: TaskModel, task: str | None = None, *, batch_size: int = 64, train: bool = False
) -> tuple[Reports, list[str]]:
    """All tasks of a saved model, or one, on the dev and test rows that its own recipe names; and what to know.

    With ``train``, on the rows they were trained on instead.
    """
    recipe = read_task_recipe(folder / RECIPE)
    notes: list[str] = []
    reports: Reports = {}
    for table in recipe.task:
        if task not in (None, table.name):
            continue
        card = model.card(table.name)
        rows, row_notes = _measured_rows(recipe, table) if not train else _trained_rows(recipe, table)
        notes += row_notes
        thresholds = card.thresholds
        for split, records in rows.items():
            outputs = model.outputs(card.name, records.texts, batch_size=batch_size)
            report = judge(card, outputs, truth_of(card, records), thresholds)
            reports.setdefault(split, {})[card.name] = report
    if not reports:
        raise SettingError(
            f"{folder}: its recipe names no dev or test rows; give --task and FILE to measure a task on others."
        )
    return reports, notes


def _trained_rows(recipe: TaskRecipe, task: Task) -> tuple[dict[str, Records], list[str]]:
    """The training rows of a task, and what to know."""
    planned = read_task(recipe, task)
    return {"train": planned.data.train}, list(planned.notes)


def _measured_rows(recipe: TaskRecipe, task: Task) -> tuple[dict[str, Records], list[str]]:
    """The dev and test rows of a task, and what to know. Files suffice; a share is drawn from the training rows."""
    named = {"dev": task.data.dev, "test": task.data.test}
    try:
        planned = read_task(recipe, task)
    except DataError as error:
        if any(part == "auto" or (isinstance(part, int | float) and part > 0) for part in named.values()):
            elsewhere = f"Other rows: --task {task.name} FILE."
            raise DataError(
                [
                    replace(
                        problem,
                        message=f"task {task.name!r}: {problem.message}",
                        remedy=f"{problem.remedy} {elsewhere}",
                    )
                    for problem in error.problems
                ]
            ) from None
        layout = layout_of(recipe.plain(task))
        files = {split: read(str(part), layout, invalid=task.data.invalid) for split, part in named.items() if part}
        return files, [f"task {task.name}: its training rows cannot be read: {error.problems[0]}"]
    parts = {"dev": planned.data.dev, "test": planned.data.test}
    return {split: part for split, part in parts.items() if part is not None and len(part)}, list(planned.notes)
