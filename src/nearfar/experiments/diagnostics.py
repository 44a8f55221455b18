"""What is kept of a model on some rows: predictions of a classifier line by line, figures, and how its vectors moved.

Trials of a study and reports on a single model keep the same.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from nearfar.experiments.records import Record, Space
from nearfar.seeds import generator

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nearfar.data import Records
    from nearfar.encoding import Built, Card, Model
    from nearfar.evaluation import ClassReport, MultiLabelReport
    from nearfar.pipeline.geometry import Positives

MAPPED = 500
"""Texts whose vectors are measured before and after training, and kept for the map."""
POSITIVES = 2_000
"""Positive pairs at most, for the alignment."""
LAYER_TEXTS = 200
"""Texts that every layer is measured with."""

Pairs = tuple["NDArray[np.int64]", "NDArray[np.int64]"]


def map_sample(rows: int, seed: int, *names: str | int) -> list[int]:
    """Which of so many rows are on the map."""
    return sorted(generator(seed, "map", *names).permutation(rows)[:MAPPED].tolist())


def prediction_lines(
    records: Records,
    rows: Sequence[int],
    truth: Sequence[str],
    answers: Iterable[tuple[str, Mapping[str, float]]],
    typicality: Sequence[float | None] | None = None,
) -> bytes:
    """One JSON object for each row, with its number in the file; an answer is a label and all probabilities."""
    names = ("text",) if len(records.texts) == 1 else ("text_a", "text_b")
    lines = [
        {
            "row": row,
            **dict(zip(names, texts, strict=True)),
            "label": label,
            "predicted": predicted,
            "probabilities": {name: round(float(value), 6) for name, value in probabilities.items()},
            **({} if typical is None else {"typicality": round(typical, 6)}),
        }
        for row, texts, label, (predicted, probabilities), typical in zip(
            rows, zip(*records.texts, strict=True), truth, answers, typicality or [None] * len(truth), strict=True
        )
    ]
    return "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines).encode()


def with_class_figures(record: Record, report: ClassReport, labels: Sequence[str]) -> Record:
    """The record with scores, figures of each class and the confusion."""
    per_class = {
        name: {key if key != "texts" else "support": value for key, value in row.items()}
        for name, row in report.per_class.items()
    }
    confusion: list[list[int]] = report.confusion.tolist()
    return replace(record, scores=report.scores, per_class=per_class, labels=list(labels), confusion=confusion)


def with_label_figures(record: Record, report: MultiLabelReport) -> Record:
    """The record with scores and the figures of each label, where a text has several."""
    per_class = {
        name: {key if key != "texts" else "support": value for key, value in row.items()}
        for name, row in report.per_class.items()
    }
    return replace(record, scores=dict(report.scores), per_class=per_class)


def pretrained_vectors(encoder: str, card: Card, records: Records, *, batch_size: int) -> NDArray[np.float32]:
    """(m, d) vectors of the encoder a training started from, pooled and cut as the trained model does."""
    from nearfar.encoding import tokenize
    from nearfar.encoding.model import in_batches

    model = pretrained(encoder, card)
    table = tokenize(model.tokenizer, records.texts, max_length=card.max_length)
    return in_batches(model.model, table, batch_size, lambda output: output.embedding, width=model.model.dim).numpy()


def same_class_pairs(truth: NDArray[np.int64], seed: int) -> Pairs:
    """Pairs of rows of one class, in a random order, few enough to be measured."""
    left, right = np.triu_indices(len(truth), k=1)
    same = truth[left] == truth[right]
    left, right = left[same], right[same]
    order = generator(seed, "classmates").permutation(len(left))[:POSITIVES]
    return left[order], right[order]


def pretrained(encoder: str, card: Card) -> Model:
    """The encoder a training started from, pooled and cut as the trained model does.

    Of ``toy``, whose weights each run draws for itself, it is the one that :func:`nearfar.load` opens.
    """
    from nearfar.encoding import build

    pooling: Any = card.pooling
    return embedding_model(build(encoder, classes=None, seed=0, pooling=pooling, max_length=card.max_length))


def embedding_model(built: Built) -> Model:
    """An encoder without a head, as a model of single texts."""
    from nearfar.encoding import Card, Model

    card = Card(pooling=built.model.pooling, max_length=built.max_length, native=False, normalize=built.normalize)
    return Model(built.model, built.tokenizer, card)


def space_of(
    model: Model, texts: Sequence[str], positives: Positives | None, *, batch_size: int
) -> tuple[dict[str, float], Space]:
    """The geometry of a fixed sample of texts, and what pictures of it need: cosines and layers."""
    from nearfar.evaluation import embed_table
    from nearfar.pipeline.geometry import measure_space

    sample = [texts[place] for place in map_sample(len(texts), 0)]
    vectors = embed_table(model.model, model.tokenize(sample), batch_size=batch_size)
    measured = measure_space(
        "", model, vectors, positives=positives, layer_texts=sample[:LAYER_TEXTS], batch_size=batch_size
    )
    histogram = measured.report.histogram
    return measured.report.scores, {
        "histogram": {
            "edges": list(histogram.edges),
            "positive": list(histogram.positive),
            "random": list(histogram.random),
        },
        "layers": list(measured.layers or ()),
        "texts": len(sample),
        "positives": measured.report.positives,
    }


def geometry(vectors: NDArray[np.float32], pairs: Pairs) -> dict[str, float]:
    """Alignment of these pairs, uniformity, anisotropy and effective rank, as far as they are defined."""
    from nearfar.evaluation import alignment, anisotropy, effective_rank, uniformity

    left, right = pairs
    measures = {
        "alignment": alignment(vectors[left], vectors[right]),
        "uniformity": uniformity(vectors).value,
        "anisotropy": anisotropy(vectors),
        "effective_rank": effective_rank(vectors),
    }
    return {name: value for name, value in measures.items() if value is not None}
