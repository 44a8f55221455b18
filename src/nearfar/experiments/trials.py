"""One trial: rows are drawn, a model is trained on one part of them and measured on the other."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from nearfar.data import Records
from nearfar.experiments import diagnostics
from nearfar.experiments.records import MAP, PREDICTIONS, Files, Record, map_bytes
from nearfar.experiments.rows import Split, columns_of
from nearfar.experiments.suites import Examined, examine
from nearfar.experiments.trial import Trial

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nearfar.encoding import Model

import math
import os
import resource
import time
import tomllib
import traceback
from contextlib import suppress
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING

from nearfar.errors import NearfarError
from nearfar.experiments.records import JOURNAL, journals
from nearfar.experiments.rows import corpus_of, digest_of, rows_of, split
from nearfar.experiments.search import choose_settings, recipe_of, train, train_tasks
from nearfar.experiments.study_schema import Values
from nearfar.experiments.suites import random_letters
from nearfar.experiments.trial import MEAN, TASKS, Rows, Source

if TYPE_CHECKING:
    from nearfar.encoding import Model


BATCH = 64
METRICS = "metrics.json"
KEPT = 4
"""Test sets whose vectors under pretrained encoders are remembered: contenders on one fold share them."""

Key = tuple[object, ...]
Value = TypeVar("Value")
_VECTORS: dict[Key, NDArray[np.float32]] = {}
_EXAMINED: dict[Key, Examined] = {}


def measure_classes(record: Record, trial: Trial, model: Model, part: Split) -> tuple[Record, Files]:
    """Predictions, what they are worth, and how the vectors of the test texts moved from the pretrained encoder."""
    import torch

    from nearfar.encoding import tokenize
    from nearfar.encoding.model import in_batches
    from nearfar.evaluation import class_report
    from nearfar.pipeline import class_numbers

    labels, test, card = model.labels, part.test, model.card
    assert labels is not None
    truth = class_numbers(test, labels)
    table = tokenize(model.tokenizer, test.texts, max_length=card.max_length)
    width = len(labels) + model.model.dim
    both = in_batches(
        model.model, table, BATCH, lambda output: torch.cat([output.logits, output.embedding], dim=1), width=width
    )
    probabilities = both[:, : len(labels)].softmax(dim=1).numpy()
    predicted = probabilities.argmax(axis=1)
    answers = (
        (labels[place], dict(zip(labels, line, strict=True)))
        for place, line in zip(predicted, probabilities, strict=True)
    )
    files = {PREDICTIONS: diagnostics.prediction_lines(test, part.rows, [labels[number] for number in truth], answers)}
    sample = diagnostics.map_sample(len(test), trial.seed, trial.fold)
    after, rows, encoder = both[sample, len(labels) :].numpy(), test.take(sample), record.recipe["encoder"]["name"]
    before = _remembered(
        _VECTORS,
        _key(model, encoder, rows),
        lambda: diagnostics.pretrained_vectors(encoder, card, rows, batch_size=BATCH),
    )
    pairs = diagnostics.same_class_pairs(truth[sample], trial.seed)
    if trial.keeps_map:
        files[MAP] = map_bytes([part.rows[place] for place in sample], before, after)
    moved = {"before": diagnostics.geometry(before, pairs), "after": diagnostics.geometry(after, pairs)}
    return replace(
        diagnostics.with_class_figures(record, class_report(truth, predicted, labels), labels), geometry=moved
    ), files


def measure_head(record: Record, model: Model, part: Split) -> tuple[Record, Files]:
    """What predicted label sets or scores are worth, and the predictions of the rows."""
    from nearfar.encoding.predictor import predictor_of
    from nearfar.evaluation import MultiLabelReport
    from nearfar.pipeline import evaluate

    test, predictor = part.test, predictor_of(model)
    texts = predictor.texts(test.texts)
    measure = evaluate.measure_classes if model.multilabel else evaluate.measure_text_scores
    report = measure(model, texts, test, batch_size=BATCH)
    if isinstance(report, MultiLabelReport):
        record = diagnostics.with_label_figures(record, report)
    answers = model.predict(texts, batch_size=BATCH)
    columns: dict[str, Sequence[object]] = {"row": part.rows}
    columns |= {name: values for key, (name, values) in columns_of(test).items() if not key.endswith("_id")}
    columns["predicted"] = [answer.score if answer.labels is None else list(answer.labels) for answer in answers]
    entries = (dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True))
    lines = "".join(json.dumps(entry, ensure_ascii=False) + "\n" for entry in entries)
    return replace(record, scores=dict(report.scores)), {PREDICTIONS: lines.encode()}


def measure_pairs(record: Record, trial: Trial, model: Model, part: Split) -> tuple[Record, Files]:
    """What an encoder is worth on pairs, triplets or a ranking, and the cosines of its rows."""
    from nearfar.evaluation import PairReport, score_pairs
    from nearfar.pipeline.evaluate import card_thresholds, measure
    from nearfar.pipeline.loaders import distinct

    test, thresholds, notes = part.test, None, list(record.notes)
    if test.labels is not None and not card_thresholds(model):
        report, _ = measure(model, part.train, batch_size=BATCH)
        if isinstance(report, PairReport):
            thresholds = report.thresholds
            notes.append(
                "the decision threshold is the best threshold of the training rows, for there were no dev rows"
            )
    report, more = measure(
        model,
        test,
        corpus=corpus_of(trial.source),
        invalid=trial.source.invalid,
        thresholds=thresholds,
        batch_size=BATCH,
    )
    texts, (first, *others) = distinct(test.texts)
    both = score_pairs(
        model.model, model.tokenize(texts), np.tile(first, len(others)), np.concatenate(others), batch_size=BATCH
    )
    cosines = [[round(cosine, 6) for cosine in row] for row in both.reshape(len(others), -1).T.tolist()]
    columns: dict[str, Sequence[object]] = {"row": part.rows}
    columns |= {name: values for key, (name, values) in columns_of(test).items() if not key.endswith("_id")}
    columns["predicted"] = [row[0] if len(row) == 1 else row for row in cosines]
    entries = (dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True))
    lines = "".join(json.dumps(entry, ensure_ascii=False) + "\n" for entry in entries)
    scores = {name: float(value) for name, value in report.scores.items()}
    return replace(record, scores=scores, notes=[*notes, *more]), {PREDICTIONS: lines.encode()}


def examine_pretrained(model: Model, encoder: str, test: Records) -> Examined:
    """The pretrained encoder of a model on scored pairs, pooled and cut as the model does."""
    return _remembered(
        _EXAMINED,
        _key(model, encoder, test),
        lambda: examine(diagnostics.pretrained(encoder, model.card), test, batch_size=BATCH),
    )


def _key(model: Model, encoder: str, test: Records) -> Key:
    return encoder, model.card.pooling, model.card.max_length, test.fingerprint()


def _remembered(memory: dict[Key, Value], key: Key, make: Callable[[], Value]) -> Value:
    """The value of a key, made where it is not among the last few."""
    if key not in memory:
        while len(memory) >= KEPT:
            del memory[next(iter(memory))]
        memory[key] = make()
    return memory[key]


def perform(trial: Trial, scratch: Path, rows: Rows | None = None) -> tuple[Record, Files]:
    """Run a trial in an empty folder; whatever goes wrong with it becomes its record.

    Args:
        trial: what to run.
        scratch: a folder for the model, which is of no use afterwards.
        rows: those of the data set and of its official test set; None reads them.
    """
    began, spent = time.perf_counter(), time.process_time()
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")  # lets the peak of the memory begin anew
    files: Files = {}
    try:
        record, files = _perform(trial, scratch, rows)
    except NearfarError as error:
        record = trial.failed(reason_of(error, scratch))
    except Exception as error:  # a fault of the trial must not be the end of the others
        frame = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{Path(frame.filename).name}, line {frame.lineno}"
        record = trial.failed(f"{type(error).__name__}: {error} ({place})")
    import torch

    from nearfar.pipeline.card import versions

    return replace(
        record,
        versions=versions(),
        threads=torch.get_num_threads(),
        seconds=time.perf_counter() - began,
        cpu_seconds=time.process_time() - spent,
        peak_mb=_peak(),
    ), files


@cache
def warm_up() -> None:
    """Load the libraries that trials need, once in a process: the time of that is not the first trial's."""
    from nearfar.encoding import build

    build("toy", classes=("a", "b"), seed=0)


def reason_of(error: NearfarError, scratch: Path) -> str:
    """What went wrong, without the name of a folder that is gone."""
    return str(error).replace(f"{scratch}/", "")


def _perform(trial: Trial, scratch: Path, rows: Rows | None) -> tuple[Record, Files]:
    out = scratch / "model"
    if trial.kind == TASKS:
        record, files = _tasks(trial, out)
    else:
        records, official = rows if rows is not None else rows_of(trial.source)
        if rows is None and digest_of(records, official, corpus_of(trial.source)) != trial.digest:
            message = "the rows have changed since the study began; run the study again."
            raise NearfarError(f"{trial.source.file}: {message}")
        records = replace(records, source=trial.source.given)  # as the study has it, which is what messages name
        part = split((records, official), trial)
        record, files = (_trained if trial.source.pairs is None else _encoder)(trial, part, out)
    for name, score in record.scores.items():
        if not math.isfinite(score):
            raise NearfarError(f"the score {name} is {score}; the model computes no numbers.")
    return record, files


def _trained(trial: Trial, part: Split, out: Path) -> tuple[Record, Files]:
    """A model that is trained and tested on rows of one kind, with the settings that its search chooses."""
    from nearfar.encoding import load

    if trial.untrained is not None:
        model, recipe, notes = _untrained(trial, part.train)
        texts = 0 if trial.untrained == "as-is" else len(part.train)
        record = replace(trial.done(), texts=texts, test=len(part.test), recipe=recipe, notes=notes)
        record, files = measure_pairs(record, trial, model, part)
        return record, {JOURNAL: b"", **files}
    record = replace(trial.done(), texts=len(part.train), test=len(part.test))
    if trial.search is not None:
        settings, points = choose_settings(trial, part.train, out.parent)
        record = replace(record, settings=settings, searched=points)
    reports = train(trial, record.settings, part.train, out)
    record = replace(record, recipe=_recipe(out, trial.source), dev=reports.get("dev", {}))
    record, model = replace(record, untrained=_kept_untrained(out)), load(out)
    if model.multilabel or model.predicts_scores:
        record, files = measure_head(record, model, part)
    elif model.labels is not None:
        record, files = measure_classes(record, trial, model, part)
    else:
        record, files = measure_pairs(record, trial, model, part)
    return record, {JOURNAL: _journal(out), **files}


def _encoder(trial: Trial, part: Split, out: Path) -> tuple[Record, Files]:
    """An encoder, trained or not, on scored pairs: scores and geometry beside those of the pretrained encoder."""
    rows = random_letters(part.train, trial.seed) if trial.random_letters else part.train
    notes, journal, untrained = list[str](), b"", False
    if trial.untrained is None:
        from nearfar.encoding import load

        train(trial, {}, rows, out)
        model, recipe, journal = load(out), _recipe(out, trial.source), _journal(out)
        untrained = _kept_untrained(out)
    else:
        model, recipe, notes = _untrained(trial, rows)
    before = examine_pretrained(model, recipe["encoder"]["name"], part.test)
    after = before if trial.untrained == "as-is" else examine(model, part.test, batch_size=BATCH)
    record = replace(
        trial.done(),
        texts=0 if trial.untrained == "as-is" else len(rows),
        test=len(part.test),
        recipe=recipe,
        scores=after.scores,
        before=before.scores,
        untrained=untrained,
        notes=[*notes, *after.notes],
        geometry={"before": before.geometry, "after": after.geometry},
        space={"before": before.space, "after": after.space},
    )
    return record, {PREDICTIONS: b"", JOURNAL: journal}


def _untrained(trial: Trial, rows: Records) -> tuple[Model, Values, list[str]]:
    """The pretrained encoder of a contender, whitened by the texts where asked for; its recipe, and notes."""
    from nearfar.experiments.diagnostics import embedding_model
    from nearfar.pipeline.plan import open_encoder
    from nearfar.pipeline.whitened_model import check_method, whiten

    settings = recipe_of(trial, {}, {"train": trial.source.given}).encoder
    model, notes = embedding_model(open_encoder(settings, classes=None, seed=0)), list[str]()
    if trial.untrained != "as-is":
        method = check_method(str(trial.untrained), dims=None, remove=None)
        texts = list(dict.fromkeys(text for column in rows.texts for text in column))
        model, notes = whiten(model, texts, method=method, batch_size=BATCH)
    encoder = {"name": settings.name, "pooling": model.card.pooling, "max_length": model.card.max_length}
    return model, {"encoder": encoder, "untrained": trial.untrained}, notes


def _tasks(trial: Trial, out: Path) -> tuple[Record, Files]:
    """Several tasks, in one model or in one for each: the scores of each, and the mean over those on dev rows."""
    scores, rows, folders = train_tasks(trial, out)
    names = [task["name"] for task in trial.values["task"]]
    scores[MEAN] = fmean(scores[name] for name in names)
    if all(f"{name} test" in scores for name in names):
        scores[f"{MEAN} test"] = fmean(scores[f"{name} test"] for name in names)
    journal = _joined([folder / JOURNAL for folder in folders])
    return replace(trial.done(), scores=scores, test=rows, recipe=trial.values), {JOURNAL: journal}


def _recipe(out: Path, source: Source) -> Values:
    """The recipe of a finished run with nothing left open, and with the rows as the study names them."""
    recipe = tomllib.loads((out / "recipe.toml").read_text(encoding="utf-8"))
    kept = {
        key: value for key, value in recipe["data"].items() if key in ("dev", "limit", "per_class", "positives_only")
    }
    recipe["data"] = {"train": source.given, **source.layout, **kept}
    return recipe


def _kept_untrained(out: Path) -> bool:
    """Whether a finished run kept the weights that it began with."""
    return bool(json.loads((out / METRICS).read_text(encoding="utf-8"))["training"]["untrained"])


def _journal(out: Path) -> bytes:
    """The journal of a run; of several stages one after the other, each entry with its stage."""
    return _joined(journals(out))


def _joined(paths: Sequence[Path]) -> bytes:
    """Journals one after the other, each entry with the number of its journal as its stage."""
    if len(paths) == 1:
        return paths[0].read_bytes()
    lines = []
    for number, path in enumerate(paths, 1):
        with path.open(encoding="utf-8") as file:
            lines += [json.dumps({"stage": number, **json.loads(line)}, ensure_ascii=False) for line in file]
    return "".join(f"{line}\n" for line in lines).encode()


def _peak() -> float:
    """The highest memory of this process in MB, since it was reset where the system can do that."""
    try:
        status = Path(f"/proc/{os.getpid()}/status").read_text()
        line = next(line for line in status.splitlines() if line.startswith("VmHWM:"))
        return int(line.split()[1]) / 1024
    except (OSError, StopIteration):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
