"""Unlabeled texts beside labeled ones: one round of self-training, if the labeled texts show that it is right.

A first model is trained on the labeled texts and labels the others. A label counts only if the nearest other unlabeled
texts, by the vectors of the pretrained encoder, agree on it. The surest texts of each class, as many as it has labeled
ones at most, join the training with a lower weight in the class head. Whether they do is decided by folds of the
labeled texts: models that were trained without a text label it in the same way, and these labels have to be right.
docs/why/unlabeled-texts.md has the figures.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from nearfar.data import Records
from nearfar.encoding import tokenize
from nearfar.errors import counted
from nearfar.evaluation import embed_table
from nearfar.evaluation.inference import logits_and_vectors
from nearfar.evaluation.vectors import directions
from nearfar.pipeline.data import AUTO_ROWS, class_numbers
from nearfar.pipeline.encoder_run import EncoderPlan, EncoderRun
from nearfar.pipeline.estimate import Part, fold_budget, fold_parts, fold_run
from nearfar.pipeline.loaders import EVALUATION_BATCH
from nearfar.pipeline.plan import Messages, open_encoder
from nearfar.pipeline.unlabeled import nearest
from nearfar.seeds import stream

A_CLASS = 64
"""Unlabeled texts of a class that join the training at most."""
WEIGHT = 0.5
"""The labeled texts that an unlabeled one counts as in the class head."""
LEAST_RIGHT = 0.7
"""The share of right labels among held-out labeled texts from which on unlabeled texts join the training."""


@dataclass(frozen=True)
class Decision:
    """Whether unlabeled texts join the training, and why."""

    rows: NDArray[np.int64]
    """The unlabeled texts that do."""
    labels: NDArray[np.int64]
    """Their classes."""
    right: float
    """The share of right labels among held-out labeled texts that are sure of their class."""
    sure: int
    """How many of these there are."""

    @property
    def note(self) -> str:
        """The decision and its figures, in one sentence."""
        figures = (
            f"the labels of {counted(self.sure, 'held-out text')} on which neighbors agree are right by "
            f"{100 * self.right:.0f} %, at least {100 * LEAST_RIGHT:.0f} % needed"
        )
        if not len(self.rows):
            return f"unlabeled texts: not used, {figures}"
        return f"unlabeled texts: {len(self.rows):,} join the training with the class they were given ({figures})"


def label_pool(plan: EncoderPlan, messages: Messages) -> EncoderPlan:
    """The plan with the surest unlabeled texts among its training rows, or as it is.

    Args:
        plan: with the unlabeled texts of its recipe.
        messages: reports the decision.
    """
    parts, pool = fold_parts(plan), plan.pool
    assert pool is not None
    if parts is None or len(plan.data.train) >= AUTO_ROWS:
        reason = "too few labeled texts to decide by" if parts is None else f"{AUTO_ROWS:,} or more labeled texts"
        messages.notes([f"unlabeled texts: not used, there are {reason}"])
        return plan
    texts, train = _Pool.of(plan, pool), plan.data.train
    right = np.concatenate([texts.held_out(plan, part) for part in parts])
    share = float(right.mean()) if len(right) else 0.0
    none = np.zeros(0, dtype=np.int64)
    if share < LEAST_RIGHT:
        messages.notes([Decision(none, none, share, len(right)).note])
        return plan
    teacher = fold_run(plan, (list(range(len(train))), [0]), len(train) * 10**6)
    sizes = np.bincount(class_numbers(train, plan.data.classes), minlength=teacher.model.classes)
    probabilities = texts.probabilities(teacher)
    agreement = probabilities[texts.neighbors].mean(axis=1)
    rows, labels = surest(probabilities, agreement, np.minimum(sizes, A_CLASS))
    messages.notes([Decision(rows, labels, share, len(right)).note])
    return _joined(plan, pool, rows, labels) if len(rows) else plan


def surest(
    probabilities: NDArray[np.float64], agreement: NDArray[np.float64], sizes: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The rows that are surest of a class, and their classes.

    Args:
        probabilities: (n, c) what a model says of unlabeled texts.
        agreement: (n, c) the mean of that over the nearest other texts.
        sizes: (c,) how many texts a class gets at most.
    """
    labels, sure = _agreed(probabilities, agreement)
    score = (probabilities * agreement).max(axis=1)
    chosen = []
    for number, size in enumerate(sizes.tolist()):
        of_class = np.flatnonzero(sure & (labels == number))
        chosen.append(of_class[np.argsort(-score[of_class], kind="stable")][:size])
    rows = np.concatenate(chosen)
    return rows, labels[rows]


def _agreed(
    probabilities: NDArray[np.float64], agreement: NDArray[np.float64]
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """(n,) the most probable class of each text, and whether its neighbors have the same."""
    labels = probabilities.argmax(axis=1)
    return labels, agreement.argmax(axis=1) == labels


@dataclass(frozen=True)
class _Pool:
    """The unlabeled texts of a plan, and their nearest neighbors by the pretrained encoder."""

    texts: Sequence[str]
    neighbors: NDArray[np.int64]
    """(n, k) those of each unlabeled text, without itself."""
    of_labeled: NDArray[np.int64]
    """(m, k) those of each labeled text."""

    @classmethod
    def of(cls, plan: EncoderPlan, pool: Records) -> _Pool:
        seed = stream(plan.recipe.seed, "head")
        built = open_encoder(plan.recipe.encoder, classes=None, seed=seed, name=plan.adapted)
        tables = [
            tokenize(built.tokenizer, records.texts, max_length=built.max_length) for records in (pool, plan.data.train)
        ]
        vectors, labeled = (
            directions(embed_table(built.model, table, batch_size=EVALUATION_BATCH)) for table in tables
        )
        return cls(pool.texts[0], nearest(vectors, vectors, same=True), nearest(labeled, vectors))

    def probabilities(self, run: EncoderRun, rows: NDArray[np.int64] | None = None) -> NDArray[np.float64]:
        """(n, c) what a trained model says of the unlabeled texts, or of some of them."""
        texts = list(self.texts) if rows is None else [self.texts[row] for row in rows]
        table = tokenize(run.built.tokenizer, [texts], max_length=run.built.max_length)
        return _softmax(logits_and_vectors(run.model, table, batch_size=EVALUATION_BATCH)[0])

    def held_out(self, plan: EncoderPlan, part: Part) -> NDArray[np.bool_]:
        """Whether held-out labeled texts, those on whose label neighbors agree, are labeled right."""
        run = fold_run(plan, part, fold_budget(plan))
        rows = run.rows["test"]
        own = _softmax(logits_and_vectors(run.model, rows.table, batch_size=EVALUATION_BATCH)[0])
        asked, places = np.unique(self.of_labeled[np.array(part[1])], return_inverse=True)
        beside = self.probabilities(run, asked)[places.reshape(len(own), -1)].mean(axis=1)
        labels, sure = _agreed(own, beside)
        return np.asarray((labels == rows.labels)[sure])


def _softmax(logits: NDArray[np.float32]) -> NDArray[np.float64]:
    values = np.exp(logits.astype(np.float64) - logits.max(axis=1, keepdims=True))
    return np.asarray(values / values.sum(axis=1, keepdims=True))


def _joined(plan: EncoderPlan, pool: Records, rows: NDArray[np.int64], labels: NDArray[np.int64]) -> EncoderPlan:
    """The plan with some unlabeled texts among its training rows; they make its batches larger, not more."""
    train = plan.data.train
    of_labeled = [1.0] * len(train) if train.weights is None else train.weights
    joined = replace(
        train,
        texts=([*train.texts[0], *(pool.texts[0][row] for row in rows)],),
        labels=[*(train.labels or ()), *(plan.data.classes[number] for number in labels)],
        lines=[*train.lines, *(pool.lines[row] for row in rows)],
        weights=[*of_labeled, *(WEIGHT for _ in rows)],
    )
    return replace(plan, data=replace(plan.data, train=joined, pseudo=len(rows)))
