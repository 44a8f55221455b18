"""``nearfar evaluate``, ``predict`` and ``score``: a saved model at work."""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import IO, Any, Literal

from rich.console import Console

from nearfar.cli.tables import report_table
from nearfar.data import Layout, Records, read
from nearfar.encoding import Model, load
from nearfar.errors import DataError, OutputError, Problem, SettingError, counted
from nearfar.evaluation import score_pairs
from nearfar.files import atomic
from nearfar.pipeline.corpora import read_corpus
from nearfar.pipeline.evaluate import card_thresholds, measure, measure_classes, require_vectors
from nearfar.pipeline.rows import distinct


def evaluate_command(
    model_name: str,
    source: str,
    layout: Layout,
    invalid: str | None,
    batch_size: int,
    *,
    corpus: str | None = None,
    corpus_text: str | None = None,
    threshold: float | None = None,
    as_json: bool,
) -> None:
    """Measure what the rows of the file allow, and print it."""
    choice = handling(invalid)
    if corpus_text is not None and corpus is None:
        raise SettingError("--corpus-text names a column of the file in --corpus; give that, too.")
    one_standard_input(source, corpus)
    model = load(model_name)
    records = read(source, layout, invalid=choice)
    notes = _told(records.source, records.notes)
    if model.labels is not None and corpus is None:
        if threshold is not None:
            raise SettingError("--threshold is a cosine of pairs, and a classifier has none; leave it out.")
        if records.labels is None:
            raise DataError([_incomparable(source, "the file has no label column")])
        report = measure_classes(model, texts_for(records, model), records, batch_size=batch_size)
    elif records.shape == "texts":
        who = f"the model {model_name} has no class head" if model.labels is None else "the file has single texts"
        raise DataError([_incomparable(source, who)])
    else:
        require_vectors(model)
        searched = None if corpus is None else read_corpus(corpus, text=corpus_text, invalid=choice)
        notes += [] if searched is None else _told(searched.source, searched.notes)
        given = None if threshold is None else {"threshold": threshold}
        report, told = measure(model, records, corpus=searched, thresholds=given, batch_size=batch_size)
        notes += told
    if as_json:
        sys.stdout.write(json.dumps(report.to_dict(), ensure_ascii=False, indent=2) + "\n")
    else:
        Console().print(report_table(report, f"{source}: {len(records):,} rows"))
    say_notes(notes)


def score_command(
    model_name: str,
    source: str,
    out: str,
    layout: Layout,
    invalid: str | None,
    batch_size: int,
    *,
    threshold: float | None,
    overwrite: bool,
) -> None:
    """Write one JSON object a pair: its texts, their cosine, and whether that is a yes."""
    if threshold is not None and not math.isfinite(threshold):
        raise SettingError(f"--threshold must be a finite number, got {threshold}.")
    check_target(out, overwrite=overwrite)
    model = load(model_name)
    require_vectors(model)
    records = read(source, layout, invalid=handling(invalid), need="text")
    if records.shape != "pairs":
        problem = Problem(source, f"pairs are scored, and the rows have {counted(len(records.texts), 'text')}",
                          "Name both columns: --text and --pair.", line=records.lines[0])  # fmt: skip
        raise DataError([problem])
    if threshold is None:
        threshold = card_thresholds(model).get("threshold")
    texts, (left, right) = distinct(records.texts)
    scores = score_pairs(model.model, model.tokenize(texts), left, right, batch_size=batch_size)

    def write(file: IO[bytes]) -> None:
        for one, other, score in zip(*records.texts, scores.tolist(), strict=True):
            row: dict[str, Any] = {"text_a": one, "text_b": other, "score": round(score, 6)}
            if threshold is not None:
                row["label"] = score >= threshold
            file.write((json.dumps(row, ensure_ascii=False) + "\n").encode())

    write_target(out, write)
    say_notes(_told(source, records.notes))


def predict_command(
    model_name: str, source: str, out: str, layout: Layout, invalid: str | None, batch_size: int, *, overwrite: bool
) -> None:
    """Write one JSON object a row."""
    check_target(out, overwrite=overwrite)
    model = load(model_name)
    records = read(source, layout, invalid=handling(invalid), need="text")
    predictions = model.predict(texts_for(records, model), batch_size=batch_size)

    def write(file: IO[bytes]) -> None:
        for place, prediction in enumerate(predictions):
            named = ("text_a", "text_b") if model.card.joined else ("text",)
            row: dict[str, Any] = {name: column[place] for name, column in zip(named, records.texts, strict=False)}
            row["label"] = prediction.label
            row["probabilities"] = {name: round(chance, 6) for name, chance in prediction.probabilities.items()}
            file.write((json.dumps(row, ensure_ascii=False) + "\n").encode())

    write_target(out, write)
    say_notes(_told(source, records.notes))


def handling(invalid: str | None) -> Literal["refuse", "drop"]:
    """What was asked to be done with bad rows."""
    if invalid not in (None, "refuse", "drop"):
        raise SettingError(f"--invalid is refuse or drop, got {invalid!r}.")
    return "drop" if invalid == "drop" else "refuse"


def check_target(out: str, *, overwrite: bool) -> None:
    """Refuse an output that cannot be written, before the work."""
    if out == "-":
        return
    path = Path(out)
    if path.is_dir():
        raise OutputError(f"{out}: this is a folder; give the name of a file.")
    if path.exists() and not overwrite:
        raise OutputError(f"{out}: the file exists. Replace it with --overwrite, or choose another --out.")
    if not path.parent.is_dir():
        raise OutputError(f"{out}: there is no folder {path.parent}; make it first.")
    if not os.access(path.parent, os.W_OK):
        raise OutputError(f"{out}: nothing can be written to the folder {path.parent}.")


def write_target(out: str, write: Callable[[IO[bytes]], None]) -> None:
    """Write to standard output, or to a file that is there whole or not at all."""
    if out == "-":
        write(sys.stdout.buffer)
        sys.stdout.buffer.flush()
        return
    try:
        with atomic(Path(out)) as temporary, temporary.open("wb") as file:
            write(file)
    except OSError as cause:
        raise OutputError(f"{out}: writing failed: {cause.strerror}.") from cause


def texts_for(records: Records, model: Model) -> Any:
    """The texts of the records as the model reads them: single, or in pairs."""
    has = "single texts" if records.shape == "texts" else records.shape
    if model.card.joined:
        if records.shape not in ("pairs", "ranking"):
            problem = Problem(records.source, f"the model reads pairs of texts, and the file has {has}",
                              "Name both columns: --text and --pair.")  # fmt: skip
            raise DataError([problem])
        return list(zip(*records.texts, strict=True))
    if records.shape != "texts":
        problem = Problem(records.source, f"the model reads single texts, and the file has {has}",
                          "Name the column to read: --text.")  # fmt: skip
        raise DataError([problem])
    return records.texts[0]


def one_standard_input(*sources: str | None) -> None:
    """Refuse to read two files from standard input, which comes only once."""
    if sources.count("-") > 1:
        raise SettingError("only one file can come from standard input: name the others.")


def file_or_suite(source: str | None, suite: str | None, data: str | None, others: dict[str, Any]) -> str:
    """The file to measure on, empty for a suite; refuses both, neither, and flags that say nothing to a suite."""
    if suite is None:
        if source is None:
            raise SettingError("name a FILE to measure on, or a folder of scored pairs: --suite sts --data FOLDER.")
        return source
    if source is not None:
        raise SettingError(f"--suite measures on the files of --data, so {source} has no part in it; leave one out.")
    if data is None:
        raise SettingError("--suite needs the folder of its files: --data FOLDER, or the variable NEARFAR_DATA.")
    idle = [flag for flag, value in others.items() if value is not None]
    if idle:
        raise SettingError(f"{', '.join(idle)} says nothing to --suite, which compares scored pairs; leave it out.")
    return ""


def say_notes(notes: Iterable[str]) -> None:
    """What should be known about the data, on standard error."""
    for note in notes:
        sys.stderr.write(f"note: {note}\n")


def _told(source: str, notes: Iterable[str]) -> list[str]:
    return [f"{source}: {note}" for note in notes]


def _incomparable(source: str, who: str) -> Problem:
    remedy = "Evaluation needs a classifier and labeled rows, or an encoder and pairs, triplets or a ranking."
    return Problem(source, f"nothing can be compared: {who}", remedy)
