"""A single run on a labeled file: predictions, geometry and a map, as a study's trials have them. Loads torch."""

from __future__ import annotations

import json
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearfar.assembly.data import class_numbers
from nearfar.data import Records
from nearfar.encoding import Model, build, load, tokenize
from nearfar.encoding.model import in_batches
from nearfar.errors import DataError, NearfarError, Problem, SettingError
from nearfar.evaluation import alignment, anisotropy, class_report, uniformity
from nearfar.protocol.records import MAP, PREDICTIONS, DataSet, Record, find_record, map_bytes, write_record
from nearfar.report.sources import Source
from nearfar.seeding import generator

MAPPED = 500
"""Texts on the map."""
PAIRS = 20_000
"""Pairs of classmates that the alignment is measured on."""


def probe(source: Source, records: Records, scratch: Path, *, batch_size: int = 64) -> tuple[Source, list[str]]:
    """The run with one more data set in front: what it predicts for these rows. Notes say what could not be done.

    Args:
        source: a single run of a classifier.
        records: rows with labels.
        scratch: a folder for the predictions, which must outlive the source.
        batch_size: texts computed at once.
    """
    if source.home is None:
        raise SettingError("--data is for the report of a single model; the trials of a study have their predictions.")
    model = load(source.home)
    if model.labels is None:
        raise SettingError(f"{source.home}: the model has no class head, and --data shows predicted classes.")
    if records.labels is None:
        raise DataError([Problem(records.source, "the file has no label column", "Name it in the file: label.")])
    labels, truth, texts = model.labels, class_numbers(records, model.labels), _rows(records, model)
    chances = model.probabilities(texts, batch_size=batch_size)
    report = class_report(truth, chances.argmax(axis=1), labels)
    shown = sorted(generator(0, "map").permutation(len(records))[:MAPPED].tolist())
    after = model.embed([texts[place] for place in shown], batch_size=batch_size)
    before, notes = _before(source.home, model, records.take(shown), batch_size)
    files = {PREDICTIONS: _predictions(records, labels, truth, chances)}
    geometry = {"after": _geometry(after, truth[shown])}
    if before is not None:
        geometry["before"] = _geometry(before, truth[shown])
        files[MAP] = map_bytes(shown, before, after)
    per_class = {
        name: {key if key != "texts" else "support": value for key, value in row.items()}
        for name, row in report.per_class.items()
    }
    metric = source.plan.metric if source.plan.metric in report.scores else "f1_weighted"
    name = Path(records.source).name
    record = Record(
        id="data", data=name, limit=None, contender=source.plan.baseline, seed=0, fold=0, status="done", metric=metric,
        scores=report.scores, per_class=per_class, labels=list(labels), confusion=report.confusion.tolist(),
        geometry=geometry, test=len(records),
    )  # fmt: skip
    write_record(scratch, record, files)
    written = find_record(scratch, record.id)
    assert written is not None
    added = DataSet(name=name, file=records.source, limits=(None,), digest=records.fingerprint(), rows=len(records),
                    kind="classes", labels=tuple(labels))  # fmt: skip
    plan = replace(source.plan, data=(added, *source.plan.data), metric=metric)
    others = tuple(replace(other, metric=metric) for other in source.records)
    return Source(plan, (written, *others), source.home), notes


def _rows(records: Records, model: Model) -> list[Any]:
    if model.card.joined and len(records.texts) == 2:
        return list(zip(*records.texts, strict=True))
    if model.card.joined or len(records.texts) != 1:
        wanted = "pairs of texts" if model.card.joined else "single texts"
        raise DataError(
            [Problem(records.source, f"the model reads {wanted}, and the file has others", "Give its rows.")]
        )
    return records.texts[0]


def _before(
    folder: Path, model: Model, records: Records, batch_size: int
) -> tuple[NDArray[np.float32] | None, list[str]]:
    """(m, d) vectors of the encoder the run started from, pooled and cut as the trained model does."""
    try:
        name = tomllib.loads((folder / "recipe.toml").read_text(encoding="utf-8"))["encoder"]["name"]
        pooling: Any = model.card.pooling
        built = build(name, classes=None, seed=0, pooling=pooling, max_length=model.card.max_length)
    except (OSError, KeyError, ValueError, NearfarError) as cause:
        return None, [f"no map: the encoder the run started from cannot be opened ({cause})"]
    table = tokenize(built.tokenizer, records.texts, max_length=model.card.max_length)
    vectors = in_batches(built.model, table, batch_size, lambda output: output.embedding, width=built.model.dim)
    return vectors.numpy(), []


def _predictions(
    records: Records, labels: tuple[str, ...], truth: NDArray[np.int64], chances: NDArray[np.float32]
) -> bytes:
    names = ("text",) if len(records.texts) == 1 else ("text_a", "text_b")
    lines = []
    for row, (texts, right, line) in enumerate(
        zip(zip(*records.texts, strict=True), truth.tolist(), chances, strict=True)
    ):
        entry = {
            "row": row,
            **dict(zip(names, texts, strict=True)),
            "label": labels[right],
            "predicted": labels[int(line.argmax())],
            "probabilities": dict(zip(labels, (round(float(chance), 6) for chance in line), strict=True)),
        }
        lines.append(json.dumps(entry, ensure_ascii=False) + "\n")
    return "".join(lines).encode()


def _geometry(vectors: NDArray[np.float32], truth: NDArray[np.int64]) -> dict[str, float]:
    left, right = np.triu_indices(len(truth), k=1)
    same = np.flatnonzero(truth[left] == truth[right])
    same = generator(0, "classmates").permutation(same)[:PAIRS]
    found = {
        "alignment": alignment(vectors[left[same]], vectors[right[same]]),
        "uniformity": uniformity(vectors).value,
        "anisotropy": anisotropy(vectors),
    }
    return {name: value for name, value in found.items() if value is not None}
