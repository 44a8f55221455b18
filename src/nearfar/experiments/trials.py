"""One trial: rows are drawn, a model is trained on one part of them and measured on the other."""

from __future__ import annotations

import json
import math
import os
import resource
import time
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from nearfar.data import Layout, Records, folds, limit, read
from nearfar.errors import NearfarError
from nearfar.experiments.diagnostics import (
    as_it_was,
    classmates,
    figures,
    geometry,
    mapped,
    prediction_lines,
    untrained,
    vectors_before,
)
from nearfar.experiments.multitask_runs import TASKS, perform_tasks
from nearfar.experiments.records import JOURNAL, MAP, PREDICTIONS, Record, journals, map_bytes
from nearfar.experiments.runs import Source, Trial, recipe_of, train
from nearfar.experiments.search import choose_settings
from nearfar.experiments.suites import examine, merged, plain_rows, random_letters, require_scored

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nearfar.encoding import Model

BATCH = 64

Files = dict[str, bytes]


@dataclass(frozen=True)
class Split:
    """The rows of a trial, and where the test rows stand in their file."""

    train: Records
    test: Records
    rows: Sequence[int]


@lru_cache(maxsize=16)
def _read(source: str, layout: tuple[tuple[str, Any], ...], invalid: Any, _state: tuple[int, int] | None) -> Records:
    """The rows of a file; trials in a row on the same file, in the same state, read it once."""
    return read(source, layout_of(dict(layout)), invalid=invalid)


def layout_of(values: Mapping[str, Any]) -> Layout:
    """Columns, as JSON has them."""
    columns = values.get("columns")
    return Layout(**{**values, "columns": None if columns is None else tuple(columns)})


def rows_of(source: Source) -> tuple[Records, Records | None]:
    """All rows of a data set, and those of its official test set or its scored pairs, if it has some."""
    layout = tuple((key, tuple(value) if isinstance(value, list) else value) for key, value in source.layout.items())
    records = _read(source.file, layout, source.invalid, _state(source.file))
    if source.pairs is not None:
        sets = {
            name: require_scored(_read(file, (), source.invalid, _state(file))) for name, file in source.pairs.items()
        }
        return plain_rows(records), merged(sets, source.pairs_limit)
    return records, None if source.test is None else _read(source.test, layout, source.invalid, _state(source.test))


def digest_of(records: Records, test: Records | None) -> str:
    """What rows are called after."""
    return records.fingerprint() if test is None else f"{records.fingerprint()} {test.fingerprint()}"


def split(records: Records, test: Records | None, *, size: int | None, seed: int, k: int, fold: int) -> Split:
    """The rows that are drawn, and which of them this fold tests on."""
    chosen = list(range(len(records))) if size is None else limit(records, size, seed=seed)
    drawn = records.take(chosen)
    if test is not None:
        return Split(drawn, test, range(len(test)))
    inside, outside = folds(drawn, k, seed=seed)[fold]
    return Split(drawn.take(inside), drawn.take(outside), [chosen[place] for place in outside])


def perform(trial: Trial, scratch: Path, rows: tuple[Records, Records | None] | None = None) -> tuple[Record, Files]:
    """Run a trial in an empty folder; whatever goes wrong with it becomes its record.

    Args:
        trial: what to run.
        scratch: a folder for the model, which is of no use afterwards.
        rows: those of the data set and of its official test set; None reads them.
    """
    began, spent = time.perf_counter(), time.process_time()
    _forget_peak()
    files: Files = {}
    try:
        found, files = _perform(trial, scratch, rows)
        values: dict[str, Any] = {"status": "done", **found}
    except NearfarError as error:
        values = {"status": "failed", "reason": reason_of(error, scratch)}
    except Exception as error:  # a fault of the trial must not be the end of the others
        values = {"status": "failed", "reason": f"{type(error).__name__}: {error}{_where(error)}"}
    import torch

    from nearfar.pipeline.card import versions

    record = Record(
        id=trial.id, data=trial.source.name, limit=trial.limit, contender=trial.contender, seed=trial.seed,
        fold=trial.fold, metric=trial.metric, kind=trial.kind, versions=versions(),
        threads=torch.get_num_threads(), seconds=time.perf_counter() - began,
        cpu_seconds=time.process_time() - spent, peak_mb=_peak(), **values,
    )  # fmt: skip
    return record, files


@cache
def warm_up() -> None:
    """Load the libraries that trials need, once in a process: the time of that is not the first trial's."""
    from nearfar.encoding import build

    build("toy", classes=("a", "b"), seed=0)


def reason_of(error: NearfarError, scratch: Path) -> str:
    """What went wrong, without the name of a folder that is gone."""
    return str(error).replace(f"{scratch}/", "")


def _perform(trial: Trial, scratch: Path, rows: tuple[Records, Records | None] | None) -> tuple[dict[str, Any], Files]:
    if trial.kind == TASKS:
        return perform_tasks(trial, scratch)
    records, official = rows if rows is not None else rows_of(trial.source)
    if rows is None and digest_of(records, official) != trial.digest:
        raise NearfarError(f"{trial.source.file}: the rows have changed since the study began; run the study again.")
    records = replace(records, source=trial.source.given)  # as the study has it, which is what messages name
    part = split(records, official, size=trial.limit, seed=trial.seed, k=trial.folds, fold=trial.fold)
    if trial.source.pairs is not None:
        return _encoders(trial, part, scratch)
    settings: dict[str, Any] = {}
    searched: list[dict[str, Any]] = []
    if trial.search is not None:
        settings, searched = choose_settings(trial, part.train, scratch)
    from nearfar.encoding import load

    out = scratch / "model"
    train(trial, settings, part.train, out)
    model = load(out)
    recipe = _told(out, trial.source)
    found: dict[str, Any] = {
        "settings": settings, "searched": searched, "texts": len(part.train), "test": len(part.test),
        "recipe": recipe,
    }  # fmt: skip
    files: Files = {JOURNAL: _journal(out)}
    if model.labels is not None:
        measured, kept = _classes(trial, model, part, recipe)
    else:
        measured, kept = _pairs(model, part)
    files |= kept
    _refuse_no_numbers(measured["scores"])
    return {**found, **measured}, files


def _refuse_no_numbers(scores: Mapping[str, float]) -> None:
    wrong = [name for name, score in scores.items() if not math.isfinite(score)]
    if wrong:
        raise NearfarError(f"the score {wrong[0]} is {scores[wrong[0]]}; the model computes no numbers.")


def _encoders(trial: Trial, part: Split, scratch: Path) -> tuple[dict[str, Any], Files]:
    """An encoder, trained or not, on scored pairs: scores and geometry beside those from before."""
    rows = random_letters(part.train, trial.seed) if trial.random_letters else part.train
    files: Files = {PREDICTIONS: b"", JOURNAL: b""}
    if trial.untrained is None:
        from nearfar.encoding import load

        out = scratch / "model"
        train(trial, {}, rows, out)
        model, recipe, told = load(out), _told(out, trial.source), list[str]()
        files[JOURNAL] = _journal(out)
    else:
        model, recipe, told = _untrained(trial, rows)
    before = _examined_before(model, recipe, part.test)
    after = before if trial.untrained == "as-is" else examine(model, part.test, batch_size=BATCH)
    _refuse_no_numbers(after["scores"])
    found: dict[str, Any] = {
        "texts": 0 if trial.untrained == "as-is" else len(rows), "test": len(part.test), "recipe": recipe,
        "scores": after["scores"], "before": before["scores"], "notes": [*told, *after["notes"]],
        **{key: {"before": before[key], "after": after[key]} for key in ("geometry", "space")},
    }  # fmt: skip
    return found, files


def _untrained(trial: Trial, rows: Records) -> tuple[Model, dict[str, Any], list[str]]:
    """The encoder of a contender as it is, or straightened by the texts; its recipe, and what is to be known."""
    from nearfar.pipeline.runtime import open_encoder
    from nearfar.pipeline.whitened_model import check_method, straightened

    settings = recipe_of(trial, {}, {"train": trial.source.given}).encoder
    model, told = untrained(open_encoder(settings, classes=None, seed=0)), list[str]()
    if trial.untrained != "as-is":
        method = check_method(str(trial.untrained), dims=None, remove=None)
        texts = list(dict.fromkeys(text for column in rows.texts for text in column))
        model, told = straightened(model, texts, method=method, batch_size=BATCH)
    encoder = {"name": settings.name, "pooling": model.card.pooling, "max_length": model.card.max_length}
    return model, {"encoder": encoder, "untrained": trial.untrained}, told


def _classes(trial: Trial, model: Model, part: Split, recipe: Mapping[str, Any]) -> tuple[dict[str, Any], Files]:
    """Predictions, what they are worth, and how the vectors of the test texts moved."""
    import torch

    from nearfar.encoding import tokenize
    from nearfar.encoding.model import in_batches
    from nearfar.evaluation import class_report
    from nearfar.pipeline import class_numbers

    labels, test = model.labels, part.test
    assert labels is not None
    truth = class_numbers(test, labels)
    table = tokenize(model.tokenizer, test.texts, max_length=model.card.max_length)
    width = len(labels) + model.model.dim
    both = in_batches(
        model.model, table, BATCH, lambda output: torch.cat([output.logits, output.embedding], dim=1), width=width
    )
    chances = both[:, : len(labels)].softmax(dim=1).numpy()
    predicted = chances.argmax(axis=1)
    said = (
        (labels[place], dict(zip(labels, line, strict=True))) for place, line in zip(predicted, chances, strict=True)
    )
    files = {PREDICTIONS: prediction_lines(test, part.rows, [labels[right] for right in truth], said)}
    shown = mapped(len(test), trial.seed, trial.fold)
    after = both[shown, len(labels) :].numpy()
    before = _before(model, recipe, test.take(shown))
    pairs = classmates(truth[shown], trial.seed)
    measured = {
        **figures(class_report(truth, predicted, labels), labels),
        "geometry": {"before": geometry(before, pairs), "after": geometry(after, pairs)},
    }
    if trial.keeps_map:
        files[MAP] = map_bytes([part.rows[place] for place in shown], before, after)
    return measured, files


def _pairs(model: Model, part: Split) -> tuple[dict[str, Any], Files]:
    """What an encoder is worth on pairs, triplets or a ranking, and the cosines of its rows."""
    from nearfar.evaluation import PairReport, score_pairs
    from nearfar.pipeline.evaluate import card_thresholds, measure
    from nearfar.pipeline.rows import distinct

    test, thresholds, told = part.test, None, list[str]()
    if test.labels is not None and not card_thresholds(model):
        seen, _ = measure(model, part.train, batch_size=BATCH)
        if isinstance(seen, PairReport):
            thresholds = seen.thresholds
            told.append("where a yes begins is the best threshold of the training rows, for there were no dev rows")
    report, notes = measure(model, test, thresholds=thresholds, batch_size=BATCH)
    measured = {"scores": {name: float(value) for name, value in report.scores.items()}, "notes": [*told, *notes]}
    texts, columns = distinct(test.texts)
    first, *others = columns
    both = score_pairs(
        model.model, model.tokenize(texts), np.tile(first, len(others)), np.concatenate(others), batch_size=BATCH
    )
    names = ("text_a", "text_b") if len(others) == 1 else ("anchor", "positive", "negative")
    predictions: list[dict[str, Any]] = []
    for place, (row, cosines) in enumerate(zip(part.rows, both.reshape(len(others), -1).T.tolist(), strict=True)):
        line: dict[str, Any] = {"row": row, **{name: test.texts[at][place] for at, name in enumerate(names)}}
        if test.labels is not None:
            line["label"] = test.labels[place]
        if test.scores is not None:
            line["score"] = test.scores[place]
        said = [round(cosine, 6) for cosine in cosines]
        predictions.append({**line, "predicted": said[0] if len(said) == 1 else said})
    lines = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in predictions)
    return measured, {PREDICTIONS: lines.encode()}


_BEFORE: dict[tuple[object, ...], NDArray[np.float32]] = {}
"""Vectors of the last few test sets under encoders as they are: contenders on one fold share them."""


_EXAMINED: dict[tuple[object, ...], dict[str, Any]] = {}
"""The same of scored pairs."""


def _examined_before(model: Model, recipe: Mapping[str, Any], test: Records) -> dict[str, Any]:
    name = recipe["encoder"]["name"]
    key = (name, model.card.pooling, model.card.max_length, test.fingerprint())
    if key not in _EXAMINED:
        while len(_EXAMINED) >= 4:
            del _EXAMINED[next(iter(_EXAMINED))]
        _EXAMINED[key] = examine(as_it_was(name, model.card), test, batch_size=BATCH)
    return _EXAMINED[key]


def _before(model: Model, recipe: Mapping[str, Any], test: Records) -> NDArray[np.float32]:
    name = recipe["encoder"]["name"]
    key = (name, model.card.pooling, model.card.max_length, test.fingerprint())
    if key not in _BEFORE:
        while len(_BEFORE) >= 4:
            del _BEFORE[next(iter(_BEFORE))]
        _BEFORE[key] = vectors_before(name, model.card, test, batch_size=BATCH)
    return _BEFORE[key]


def _state(source: str) -> tuple[int, int] | None:
    """When a file was changed, and its size; None for what is no file."""
    path = Path(source)
    if not path.is_file():
        return None
    found = path.stat()
    return found.st_mtime_ns, found.st_size


def _journal(out: Path) -> bytes:
    """The journal of a run; of several stages one after the other, each entry with its stage."""
    paths = journals(out)
    if len(paths) == 1:
        return paths[0].read_bytes()
    lines = []
    for number, path in enumerate(paths, 1):
        with path.open(encoding="utf-8") as file:
            lines += [json.dumps({"stage": number, **json.loads(line)}, ensure_ascii=False) for line in file]
    return "".join(f"{line}\n" for line in lines).encode()


def _told(out: Path, source: Source) -> dict[str, Any]:
    """The recipe of a finished run with nothing left open, and without the folder it ran in."""
    recipe = tomllib.loads((out / "recipe.toml").read_text(encoding="utf-8"))
    columns = {key: value for key, value in source.layout.items() if value is not None}
    kept = {key: value for key, value in recipe["data"].items() if key in ("dev", "limit", "per_class")}
    recipe["data"] = {"train": source.given, **columns, **kept}
    return recipe


def _where(error: BaseException) -> str:
    """The innermost line of an unforeseen fault."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return ""
    return f" ({Path(trace.tb_frame.f_code.co_filename).name}, line {trace.tb_lineno})"


def _forget_peak() -> None:
    """Let the peak of the memory begin anew, where the system can do that."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return


def _peak() -> float:
    """The highest memory of this process in MB, since :func:`_forget_peak` where that is known."""
    try:
        status = Path(f"/proc/{os.getpid()}/status").read_text()
        line = next(line for line in status.splitlines() if line.startswith("VmHWM:"))
        return int(line.split()[1]) / 1024
    except (OSError, StopIteration):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
