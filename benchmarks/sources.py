"""Pairs, questions and texts of many lengths: from the data folder, or else made of the sample that nearfar ships."""

from __future__ import annotations

import gzip
import itertools
import json
import random
from pathlib import Path

from benchmarks.texts import Rows, Texts

POSITIVE = 4.0
"""STSb goes from 0 to 5; from here on two sentences say the same."""
PLAIN = 20_000
"""As many plain texts are read; the file has far more."""
REVIEW = 230
"""Words of a text that stands for a movie review."""
WORDS = (3, 45)
"""The fewest and the most words of a text of :func:`varying`: about 5 to 60 tokens."""


def positives(texts: Texts) -> tuple[Rows, str]:
    """Pairs that belong together, without scores, and what they are."""
    rows = _rows(texts.folder / "stsb" / "train.jsonl.gz")
    if rows is None:
        return _classmates(texts), "pairs of one class of sample:helpdesk"
    return _pairs([row for row in rows if row["score"] >= POSITIVE], texts.seed), "STSb pairs with a score from 4 on"


def all_pairs(texts: Texts) -> tuple[Rows, str]:
    """As many pairs as there are, each taken to belong together, and what they are."""
    rows = _rows(texts.folder / "stsb" / "train.jsonl.gz")
    if rows is None:
        return _classmates(texts), "pairs of one class of sample:helpdesk, repeated"
    return _pairs(rows, texts.seed), "STSb pairs of any score"


def plain(texts: Texts) -> tuple[Rows, str]:
    """Sentences without any label, and what they are."""
    rows = _rows(texts.folder / "wiki_plain" / "train.jsonl.gz", PLAIN)
    if rows is None:
        return [{"text": row["text"]} for row in texts.training()], f"texts of {texts.name} without their labels"
    random.Random(texts.seed).shuffle(rows)
    return rows, "sentences of Wikipedia"


def graded(texts: Texts) -> Rows:
    """Pairs with scores that nobody trains on; none without the data folder."""
    return _rows(texts.folder / "stsb" / "dev.jsonl.gz") or []


def questions(texts: Texts) -> tuple[Rows, str]:
    """Short texts of six classes, and what they are."""
    rows = _rows(texts.folder / "trec" / "train.jsonl.gz")
    if rows is None:
        return texts.training(), f"{texts.name}, since there is no TREC here"
    random.Random(texts.seed).shuffle(rows)
    return rows, "TREC"


def reviews(texts: Texts, split: str = "train") -> tuple[Rows, str]:
    """Long texts of two classes, and what they are."""
    rows = _rows(texts.folder / "imdb" / f"{split}_sample5k.jsonl.gz")
    if rows is None:
        short = texts.training() if split == "train" else texts.dev()
        texts_of = " ".join(row["text"] for row in short).split()
        made = [
            {"text": " ".join(texts_of[start : start + REVIEW]), "label": short[start % len(short)]["label"]}
            for start in range(0, max(1, len(texts_of) - REVIEW), REVIEW // 4)
        ]
        return made, f"texts of {REVIEW} words made of {texts.name}, since there is no IMDb here"
    random.Random(texts.seed).shuffle(rows)
    return rows, "IMDb reviews"


def varying(texts: Texts) -> Rows:
    """Texts whose lengths are drawn evenly, which those of sentences are not."""
    draw, rows = random.Random(texts.seed), texts.training()
    words = [word for row in rows for word in row["text"].split()]
    longest = min(WORDS[1], len(words))
    made = []
    for row in rows:
        length = draw.randint(WORDS[0], longest)
        start = draw.randrange(len(words) - length + 1)
        made.append({"text": " ".join(words[start : start + length]), "label": row["label"]})
    return made


def _pairs(rows: Rows, seed: int) -> Rows:
    random.Random(seed).shuffle(rows)
    return [{"text_a": row["text_a"], "text_b": row["text_b"]} for row in rows]


def _classmates(texts: Texts) -> Rows:
    by_class: dict[str, list[str]] = {}
    for row in texts.training():
        by_class.setdefault(str(row["label"]), []).append(row["text"])
    rows = [
        {"text_a": left, "text_b": right}
        for mates in by_class.values()
        for left, right in zip(mates[::2], mates[1::2], strict=False)
    ]
    return _pairs(rows, texts.seed)


def _rows(path: Path, most: int | None = None) -> Rows | None:
    if not path.is_file():
        return None
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in itertools.islice(file, most)]
