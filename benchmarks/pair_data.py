"""The data of :mod:`benchmarks.pair_objectives`: which rows train, which choose the weights, which are reported.

Dev and test rows are drawn with one seed for all runs, so that all of them are compared on the same rows; the seed of a
run draws its training rows.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearfar.data import Records, limit, queries_without_positive, read
from nearfar.seeds import generator

FIXED = 0
"""Draws what all runs share."""
NEGATIVES = 2
"""Documents that are not relevant, for each question of WikiQA that is trained on."""
SNOPES_TEST, SNOPES_DEV = 200, 80
NEAREST = 3
"""Claims beside the right one for each dev claim of Snopes, which all dev claims are compared with."""
POSITIVE_SCORE = 4.0
"""STSb pairs of at least this score are taken to belong together."""

Row = dict[str, Any]
Embed = Callable[[list[str]], NDArray[np.float32]]


@dataclass(frozen=True)
class Sizes:
    """At most so many rows of each kind; 0 means all."""

    train: int
    dev: int
    test: int
    corpus: int = 0
    """Claims that are searched, for Snopes."""


@dataclass(frozen=True)
class Files:
    """What a run reads, and how many rows are in it."""

    train: Path
    dev: Path
    test: Path
    rows: dict[str, int]
    corpus: Path | None = None
    """What is searched for the test rows; None: they say themselves what is compared."""


def write_files(data: str, form: str, source: Path, folder: Path, *, seed: int, sizes: Sizes, embed: Embed) -> Files:
    """The rows of a data set for one run, as files of ``folder``.

    Args:
        data: one of the data sets.
        form: ``rows`` as the data set has them; for Snopes also ``pairs`` or ``triplets`` with mined negatives.
        source: the folder of all data sets.
        folder: where to write.
        seed: draws the training rows.
        sizes: how many rows.
        embed: gives the vectors by which negatives are mined.
    """
    if data == "snopes":
        return _snopes(form, source, folder, seed=seed, sizes=sizes, embed=embed)
    train, dev, test = SPLITS[data](source, seed)
    parts = {
        "train": _drawn(train, sizes.train, seed),
        "dev": _drawn(dev, sizes.dev, FIXED),
        "test": _drawn(test, sizes.test, FIXED),
    }
    for name, records in parts.items():
        write_rows(folder / f"{name}.jsonl", rows_of(records))
    return Files(
        *(folder / f"{name}.jsonl" for name in parts), rows={name: len(records) for name, records in parts.items()}
    )


def rows_of(records: Records) -> Iterator[Row]:
    """Records as a file has them."""
    names = ("query", "doc") if records.shape == "ranking" else ("text_a", "text_b")
    beside = {
        "label": records.labels,
        "relevance" if records.shape == "ranking" else "score": records.scores,
        "query_id": records.queries,
        "doc_id": records.documents,
    }
    for place, texts in enumerate(zip(*records.texts, strict=True)):
        told = {name: column[place] for name, column in beside.items() if column is not None}
        yield dict(zip(names, texts, strict=True)) | told


def write_rows(path: Path, rows: Iterable[Row]) -> int:
    """Write a file of JSON Lines, whole or not at all; how many rows it has."""
    lines = [json.dumps(row, ensure_ascii=False) + "\n" for row in rows]
    draft = path.with_name(f"{path.name}.{os.getpid()}")
    draft.write_text("".join(lines), encoding="utf-8")
    draft.replace(path)
    return len(lines)


def _drawn(records: Records, number: int, seed: int) -> Records:
    return records.take(limit(records, number, seed=seed)) if number else records


def _official(name: str) -> Callable[[Path, int], tuple[Records, Records, Records]]:
    return lambda source, _seed: (_read(source, name, "train"), _read(source, name, "dev"), _read(source, name, "test"))


def _stsb_positives(source: Path, _seed: int) -> tuple[Records, Records, Records]:
    """Pairs of a high score, without it, to train on; all kinds of pairs with their scores to measure."""
    train, dev, test = _official("stsb")(source, _seed)
    high = [place for place, score in enumerate(train.scores or ()) if score >= POSITIVE_SCORE]
    return replace(train.take(high), scores=None), dev, test


def _qqp(source: Path, _seed: int) -> tuple[Records, Records, Records]:
    """There is no dev file, so 1,000 training rows, the same for all runs, are set apart."""
    everything = _read(source, "qqp", "train")
    apart = limit(everything, 1_000, seed=FIXED)
    rest = np.setdiff1d(np.arange(len(everything)), apart)
    return everything.take(rest.tolist()), everything.take(apart), _read(source, "qqp", "test")


def _cqa_a(source: Path, _seed: int) -> tuple[Records, Records, Records]:
    """Only good answers are relevant, as the task has it."""
    parts = (_read(source, "semeval_cqa_a", name) for name in ("train_part2", "dev", "test2016"))
    train, dev, test = (replace(part, scores=[float(grade == 2) for grade in part.scores or ()]) for part in parts)
    return train, dev, test


def _cqa_b(source: Path, _seed: int) -> tuple[Records, Records, Records]:
    train, dev, test = (_read(source, "semeval_cqa_b", name) for name in ("train", "dev", "test2016"))
    return train, dev, test


def _wikiqa(source: Path, seed: int) -> tuple[Records, Records, Records]:
    """Questions that have an answer; of those to train on, the answers and few other sentences."""
    train, dev, test = (_answered(part) for part in _official("wikiqa")(source, seed))
    return _thinned(train, seed), dev, test


def _answered(records: Records) -> Records:
    without = set(queries_without_positive(records))
    return records.take([place for place, query in enumerate(records.queries or ()) if query not in without])


def _thinned(records: Records, seed: int) -> Records:
    """All relevant documents of a query, and ``NEGATIVES`` of the others."""
    assert records.queries is not None
    assert records.scores is not None
    others: dict[str, list[int]] = {}
    kept: list[int] = []
    for place, (query, grade) in enumerate(zip(records.queries, records.scores, strict=True)):
        (kept if grade > 0 else others.setdefault(query, [])).append(place)
    for query, places in others.items():
        drawn = generator(seed, "wikiqa", query).permutation(len(places))[:NEGATIVES]
        kept.extend(places[place] for place in drawn.tolist())
    return records.take(sorted(kept))


SPLITS: dict[str, Callable[[Path, int], tuple[Records, Records, Records]]] = {
    "stsb": _official("stsb"),
    "stsb_positives": _stsb_positives,
    "mrpc": _official("mrpc"),
    "qqp": _qqp,
    "cqa_a": _cqa_a,
    "cqa_b": _cqa_b,
    "wikiqa": _wikiqa,
}


def _snopes(form: str, source: Path, folder: Path, *, seed: int, sizes: Sizes, embed: Embed) -> Files:
    """Claims with the claims that were checked before; which of a corpus it is, is searched.

    The corpus has all claims that belong to some pair, and others drawn to fill it up.
    """
    pairs = replace(_read(source, "known_lie_snopes", "pairs"), queries=None, documents=None, scores=None)
    order = generator(FIXED, "snopes").permutation(len(pairs)).tolist()
    test = _drawn(pairs.take(sorted(order[:SNOPES_TEST])), sizes.test, FIXED)
    dev = _drawn(pairs.take(sorted(order[SNOPES_TEST : SNOPES_TEST + SNOPES_DEV])), sizes.dev, FIXED)
    train = _drawn(pairs.take(sorted(order[SNOPES_TEST + SNOPES_DEV :])), sizes.train, seed)
    corpus = _claims(source, pairs, sizes.corpus)
    rows = train_rows(form, train, corpus, embed)
    counts = {
        "train": write_rows(folder / "train.jsonl", rows),
        "dev": write_rows(folder / "dev.jsonl", _crossed(dev, corpus, embed)),
        "test": write_rows(folder / "test.jsonl", rows_of(test)),
        "corpus": write_rows(folder / "corpus.jsonl", ({"text": text} for text in corpus)),
    }
    names = (folder / f"{name}.jsonl" for name in counts)
    *parts, claims = names
    return Files(*parts, rows=counts, corpus=claims)


def train_rows(form: str, train: Records, corpus: list[str], embed: Embed) -> Iterator[Row]:
    """The training pairs of Snopes, alone or with mined negatives: those at the ranks 100 + 2^j of the corpus."""
    from nearfar.pipeline.mining import Mining, mine

    if form == "rows":
        yield from rows_of(train)
        return
    found = mine(train, embed, Mining(window=None), corpus=corpus)
    if form == "triplets":
        for anchor, positive, negative in found.triplets():
            yield {"anchor": anchor, "positive": positive, "negative": negative}
    else:
        for left, right, label in found.pairs(oversample=True):
            yield {"text_a": left, "text_b": right, "label": label}


def _claims(source: Path, pairs: Records, number: int) -> list[str]:
    everything = list(dict.fromkeys(_read(source, "known_lie_snopes", "corpus").texts[0]))
    found = dict.fromkeys(pairs.texts[1])
    order = generator(FIXED, "snopes", "corpus").permutation(len(everything)).tolist()
    for place in order:
        if number and len(found) >= number:
            break
        found.setdefault(everything[place])
    return list(found)


def _crossed(dev: Records, corpus: list[str], embed: Embed) -> Iterator[Row]:
    """A ranking of the same few documents for every dev claim: the right ones of all and those nearest to them."""
    from nearfar.pipeline.mining import Mining, mine

    near = mine(dev, embed, Mining(window=(1, NEAREST), per_anchor=NEAREST), corpus=corpus)
    documents = dict.fromkeys(dev.texts[1]) | dict.fromkeys(text for found in near.negatives.values() for text in found)
    for number, (claim, right) in enumerate(near.positives.items()):
        for place, text in enumerate(documents):
            yield {"query_id": f"q{number}", "query": claim, "doc_id": f"d{place}", "doc": text,
                   "relevance": int(text in right)}  # fmt: skip


def _read(source: Path, name: str, part: str) -> Records:
    return read(str(source / name / f"{part}.jsonl.gz"))
