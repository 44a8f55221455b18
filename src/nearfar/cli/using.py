"""``nearfar evaluate`` and ``predict``: a saved model at work."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any, Literal

from rich.console import Console

from nearfar.assembly import class_numbers
from nearfar.cli.tables import class_table
from nearfar.data import Layout, Records, read
from nearfar.encoding import Model, load
from nearfar.errors import DataError, OutputError, Problem, SettingError
from nearfar.evaluation import class_report


def evaluate_command(
    model_name: str, source: str, layout: Layout, invalid: str | None, batch_size: int, *, as_json: bool
) -> None:
    """Predict all rows and print what that is worth."""
    model = load(model_name)
    labels = model.labels
    records = read(source, layout, invalid=handling(invalid))
    if labels is None or records.labels is None:
        who = f"the model {model_name} has no class head" if labels is None else "the file has no label column"
        raise DataError(
            [Problem(source, f"nothing can be compared: {who}", "Evaluation needs a classifier and labeled rows.")]
        )
    truth = class_numbers(records, labels)
    chances = model.probabilities(texts_for(records, model), batch_size=batch_size)
    report = class_report(truth, chances.argmax(axis=1), labels)
    if as_json:
        sys.stdout.write(json.dumps(report.to_dict(), ensure_ascii=False, indent=2) + "\n")
    else:
        Console().print(class_table(report, f"{source}: {len(records):,} rows"))
    _notes(records)


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
    _notes(records)


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
    path = Path(out)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    try:
        with os.fdopen(handle, "wb") as file:
            write(file)
        os.chmod(name, 0o644)
        os.replace(name, path)
    except OSError as cause:
        Path(name).unlink(missing_ok=True)
        raise OutputError(f"{out}: writing failed: {cause.strerror}.") from cause
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


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


def _notes(records: Records) -> None:
    for note in records.notes:
        sys.stderr.write(f"note: {records.source}: {note}\n")
