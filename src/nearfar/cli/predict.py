"""``nearfar predict`` and ``nearfar score``: predictions of a saved model, and cosines of pairs."""

from __future__ import annotations

import math
from typing import Any

from nearfar.cli import options
from nearfar.errors import DataError, Problem, SettingError, counted


def predict(
    model: options.Model,
    source: options.Data,
    out: options.OutLines = "-",
    text: options.Text = None,
    pair: options.Pair = None,
    task: options.Task = None,
    encoding: options.Encoding = None,
    invalid: options.Invalid = None,
    batch_size: options.BatchSize = 64,
    overwrite: options.Overwrite = False,
) -> None:
    """Classify texts: one JSON object per line with text, label and probabilities, or the score of a task."""
    from nearfar.cli.options import check_target, handling, print_notes, write_lines
    from nearfar.data import Layout, read
    from nearfar.encoding.predictor import open_predictor

    check_target(out, overwrite=overwrite)
    predictor = open_predictor(model, task)
    records = read(source, Layout(text=text, pair=pair, encoding=encoding), invalid=handling(invalid), need="text")
    predictor.check(records)
    predictions = predictor.predict(records.texts, batch_size=batch_size)
    names = ("text_a", "text_b") if predictor.paired else ("text",)

    def rows() -> Any:
        for place, prediction in enumerate(predictions):
            row: dict[str, object] = {name: column[place] for name, column in zip(names, records.texts, strict=False)}
            if prediction.label is not None:
                row["label"] = prediction.label
            if prediction.probabilities:
                row["probabilities"] = {name: round(chance, 6) for name, chance in prediction.probabilities.items()}
            if prediction.score is not None:
                row["score"] = round(prediction.score, 6)
            yield row

    write_lines(out, rows())
    print_notes(records.notes, source)


def score(
    model: options.Model,
    source: options.Data,
    out: options.OutLines = "-",
    text: options.Text = None,
    pair: options.Pair = None,
    threshold: options.Threshold = None,
    encoding: options.Encoding = None,
    invalid: options.Invalid = None,
    batch_size: options.BatchSize = 64,
    overwrite: options.Overwrite = False,
) -> None:
    """Compute the cosine similarity of pairs: one JSON object per line with both texts and their cosine."""
    from nearfar.cli.options import check_target, handling, print_notes, write_lines
    from nearfar.data import Layout, read
    from nearfar.encoding import load
    from nearfar.evaluation import score_pairs
    from nearfar.pipeline.evaluate import card_thresholds, require_vectors
    from nearfar.pipeline.loaders import distinct

    if threshold is not None and not math.isfinite(threshold):
        raise SettingError(f"--threshold must be a finite number, got {threshold}.")
    check_target(out, overwrite=overwrite)
    encoder = load(model)
    require_vectors(encoder)
    records = read(source, Layout(text=text, pair=pair, encoding=encoding), invalid=handling(invalid), need="text")
    if records.shape != "pairs":
        message = f"pairs are scored, and the rows have {counted(len(records.texts), 'text')}"
        raise DataError([Problem(source, message, "Name both columns: --text and --pair.", line=records.lines[0])])
    if threshold is None:
        threshold = card_thresholds(encoder).get("threshold")
    texts, (left, right) = distinct(records.texts)
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
