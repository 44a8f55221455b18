"""``nearfar predict`` and ``nearfar score``: predictions of a saved model, and cosines of pairs."""

from __future__ import annotations

import json
import math
import sys
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nearfar.cli import options
from nearfar.errors import DataError, Interrupted, OutputError, Problem, SettingError, counted
from nearfar.files import part_of
from nearfar.shards.prediction_fields import REASON, Fields

if TYPE_CHECKING:
    from nearfar.cli.windows import Survey, Windows
    from nearfar.data import Records
    from nearfar.encoding.predictor import Predictor


WINDOW = 2_048
"""Rows that are read, predicted and written together."""


def predict(
    model: options.Model,
    source: Annotated[str, typer.Argument(help=f"{options.DATA_HELP} Or a text in quotes.", metavar="FILE|TEXT")],
    out: Annotated[
        str,
        typer.Option(
            "--out", help="A .csv, .tsv, .xlsx, .parquet or .jsonl file, or - for standard output; FOLDER/ for shards."
        ),
    ] = "-",
    text: options.Text = None,
    pair: options.Pair = None,
    task: options.Task = None,
    only: Annotated[
        bool, typer.Option("--only", help="Write the predictions without the columns of the file.")
    ] = False,
    top: Annotated[int | None, typer.Option("--top", min=1, help="The most likely classes, this many.")] = None,
    min_probability: Annotated[
        float, typer.Option("--min-probability", min=0, max=1, help="No label for a text below this probability.")
    ] = 0.0,
    reject: Annotated[
        float | None,
        typer.Option(
            "--reject",
            min=0,
            max=1,
            metavar="SHARE",
            help="No label for a text that fits none of the classes: 0.05 rejects about 5 % of the texts that fit.",
        ),
    ] = None,
    encoding: options.Encoding = None,
    invalid: options.Invalid = None,
    large: options.Large = False,
    batch_size: options.BatchSize = 64,
    device: options.Device = None,
    precision: options.Precision = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue the file of an interrupted run.")] = False,
    overwrite: options.Overwrite = False,
    form: Annotated[
        str, typer.Option("--format", metavar="jsonl|parquet", help="Of the shards in --out FOLDER/.")
    ] = "jsonl",
    rows_per_shard: options.RowsPerShard = 65_536,
    on: options.On = "local",
    address: options.Address = "auto",
    workers: options.Workers = None,
    threads: options.Threads = 1,
    gpus_per_worker: options.Gpus = 0,
) -> None:
    """Classify texts: every row of the file with its label and probabilities, or the score of a task.

    Rows that --invalid drop leaves out stay in the file, without a label and with the reason. With --reject, every row
    also has its typicality: the share of in-scope texts that fit the classes less well.

    With --out FOLDER/ the input is one file or many (a folder, a pattern in quotes, s3:// or gs://). Shards are
    computed by one process for each core, or by a Ray cluster; the same command continues an interrupted run.
    """
    from nearfar.cli.shards import is_sharded, run_sharded

    if is_sharded(source, out):
        run_sharded(
            ("predict", model, source, out),
            {
                "text": text, "pair": pair, "task": task, "only": only, "top": top, "min_probability": min_probability,
                "reject": reject, "encoding": encoding, "invalid": invalid or "refuse", "large": large,
                "batch_size": batch_size, "device": device, "precision": precision, "file_format": form,
                "rows_per_shard": rows_per_shard,
            },
            (on, workers, address, threads, gpus_per_worker),
            overwrite=overwrite,
        )  # fmt: skip
        return
    from nearfar.cli.columns import remembered
    from nearfar.cli.options import check_target, handling, print_notes
    from nearfar.cli.windows import Windows
    from nearfar.data import Layout
    from nearfar.data.sources import locate
    from nearfar.data.writers import ending_of, line_of
    from nearfar.encoding.digests import folder_digest
    from nearfar.encoding.predictor import open_predictor

    options.use_device(device)
    options.use_precision(precision)
    choice = handling(invalid)
    fields = Fields(only=only, top=top, least=min_probability, reject=reject)
    if quoted(source):
        predictor = open_predictor(model, task, prepare=options.prepared)
        predictor.check_reject(reject)
        _print_text(predictor, source, fields, batch_size)
        return
    locate(source)  # refuses a file that does not exist before the model is opened
    target = None if out == "-" else Path(out)
    if target is None and resume:
        raise OutputError("--resume continues a file, and --out - is none; leave --resume out, or name a file.")
    if target is not None:
        ending_of(out)
        if resume and not overwrite and target.is_file() and not part_of(target).exists():
            sys.stderr.write(f"{out}: the file is complete; there is nothing to resume. Replace it with --overwrite.\n")
            return
        check_target(out, overwrite=overwrite)
    predictor = open_predictor(model, task, prepare=options.prepared)
    predictor.check_reject(reject)
    layout = remembered(model, source, Layout(text=text, pair=pair, encoding=encoding, large=large), task=task)
    rows = Windows(source, layout, invalid=choice, size=WINDOW)
    survey = rows.survey()
    predictor.check(survey.first)
    flat = target is not None and target.suffix.lower() not in (".jsonl", ".ndjson")
    fields = fields.beside(survey.columns, flat=flat, reasons=survey.dropped > 0)
    work = _Work(predictor, rows, survey, fields, batch_size)
    if target is None:
        for lines in work.windows(0):
            sys.stdout.buffer.writelines(map(line_of, lines))
        sys.stdout.buffer.flush()
    else:
        settings = json.dumps([task, only, top, min_probability, reject, WINDOW, *predictor.form])
        origin = {"the model": folder_digest(Path(model)), "the texts": survey.digest, "the settings": settings}
        work.fill(target, origin, resume=resume)
        sys.stderr.write(f"{counted(survey.rows + survey.dropped, 'row')} in {out}\n")
    print_notes([*survey.notes, *fields.notes], source)


def quoted(source: str) -> bool:
    """Whether an argument is a text rather than the name of a file.

    Letters without upper and lower case, as in Chinese, make a text without spaces.

    >>> quoted("where is my parcel?"), quoted("我的包裹在哪里"), quoted("my tickets.csv"), quoted("-")
    (True, True, False, False)
    """
    from nearfar.data.sources import format_of

    spaced = " " in source.strip() or any(unicodedata.category(letter) == "Lo" for letter in source)
    if not spaced or source.startswith(("hub:", "sample:")) or format_of(Path(source)) is not None:
        return False
    try:
        return not Path(source).exists()
    except OSError:  # too long for a path
        return True


def _print_text(predictor: Predictor, text: str, fields: Fields, batch_size: int) -> None:
    """Predict one text from the command line."""
    from nearfar.data.writers import line_of

    if predictor.paired:
        raise SettingError("this model reads pairs of texts; put them into a file with two columns, text_a and text_b.")
    typicality = fields.reject is not None
    (prediction,) = predictor.predict([[text]], batch_size=batch_size, typicality=typicality)
    row = {} if fields.only else {"text": text}
    sys.stdout.buffer.write(line_of(row | fields.of(prediction)))
    sys.stdout.buffer.flush()


@dataclass(frozen=True)
class _Work:
    """All rows of a file to predict."""

    predictor: Predictor
    rows: Windows
    survey: Survey
    fields: Fields
    batch_size: int

    def windows(self, done: int) -> Iterator[list[dict[str, object]]]:
        """The rows of each window with their predictions, without the windows of the first rows, which are done."""
        from nearfar.cli.progress import EmbeddingProgress

        place = texts = 0
        reason = self.fields.name(REASON)
        with EmbeddingProgress(self.survey.rows) as progress:
            for every, records, reasons in self.rows.whole(self.survey):
                place, texts = place + len(every), texts + len(records)
                if place > done:
                    predicted = dict(zip(records.lines, self._predicted(records), strict=True))
                    kept = ({} if self.fields.only else dict(values) for _, values in every)
                    yield [
                        values | predicted.get(line, {reason: reasons.get(line, "cannot be used")})
                        for values, (line, _) in zip(kept, every, strict=True)
                    ]
                progress.reach(texts)

    def _predicted(self, records: Records) -> list[dict[str, object]]:
        if not len(records):
            return []
        typicality = self.fields.reject is not None
        answers = self.predictor.predict(records.texts, batch_size=self.batch_size, typicality=typicality)
        return [self.fields.of(answer) for answer in answers]

    def fill(self, target: Path, origin: Mapping[str, str], *, resume: bool) -> None:
        """Write all rows to a file, or those that are missing from it."""
        from nearfar.data.writers import RowFile

        total, columns = (
            self.survey.rows + self.survey.dropped,
            self.fields.names(self._predicted(self.survey.first)[0]),
        )
        with RowFile(target, columns, total, origin) as file:
            done = file.open(resume=resume)
            try:
                for lines in self.windows(done):
                    file.append(lines)
            except KeyboardInterrupt:
                message = f"stopped after {file.done:,} of {counted(total, 'row')}; continue with --resume."
                raise Interrupted(message) from None
            except DataError:  # the source has changed, so some of the predictions may be of other texts
                file.discard()
                raise
            file.finish()


def score(
    model: options.Model,
    source: options.Data,
    out: options.OutLines = "-",
    text: options.Text = None,
    pair: options.Pair = None,
    threshold: options.Threshold = None,
    encoding: options.Encoding = None,
    invalid: options.Invalid = None,
    large: options.Large = False,
    batch_size: options.BatchSize = 64,
    device: options.Device = None,
    precision: options.Precision = None,
    overwrite: options.Overwrite = False,
) -> None:
    """Compute the cosine similarity of pairs: one JSON object per line with both texts and their cosine."""
    from nearfar.cli.options import check_target, handling, print_notes, write_lines
    from nearfar.cli.progress import embedding_progress
    from nearfar.data import Layout, read
    from nearfar.encoding import load
    from nearfar.evaluation import score_pairs
    from nearfar.pipeline.evaluate import card_thresholds, require_vectors
    from nearfar.pipeline.loaders import distinct

    options.use_device(device)
    options.use_precision(precision)
    if threshold is not None and not math.isfinite(threshold):
        raise SettingError(f"--threshold must be a finite number, got {threshold}.")
    check_target(out, overwrite=overwrite)
    encoder = options.prepared(load(model))
    require_vectors(encoder)
    records = read(
        source, Layout(text=text, pair=pair, encoding=encoding, large=large), invalid=handling(invalid), need="text"
    )
    if records.shape != "pairs":
        message = f"pairs are scored, and the rows have {counted(len(records.texts), 'text')}"
        raise DataError([Problem(source, message, "Name both columns: --text and --pair.", line=records.lines[0])])
    if threshold is None:
        threshold = card_thresholds(encoder).get("threshold")
    texts, (left, right) = distinct(records.texts)
    with embedding_progress(encoder.model, len(texts)):
        scores = score_pairs(encoder.model, encoder.tokenize(texts), left, right, batch_size=batch_size)
    write_lines(
        out,
        (
            {"text_a": one, "text_b": other, "score": round(cosine, 6)}
            | ({} if threshold is None else {"label": cosine >= threshold})
            for one, other, cosine in zip(*records.texts, scores.tolist(), strict=True)
        ),
    )
    print_notes(records.notes, source)
