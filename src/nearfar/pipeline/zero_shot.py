"""Training texts without labels: class names choose the texts of each class.

The names of the classes and the unlabeled texts are encoded, both are centered, and a text belongs to the class whose
name it is nearest to, as far as its nearest neighbors agree. The texts that are surest of their class become the
training texts of it; docs/why/class-names.md has the figures.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from nearfar.data import Records
from nearfar.encoding import Built, tokenize
from nearfar.errors import DataError, Problem, SettingError, counted
from nearfar.evaluation import embed_table
from nearfar.evaluation.vectors import directions
from nearfar.pipeline.class_names import Names, class_means, described, read_names
from nearfar.pipeline.data import from_here
from nearfar.pipeline.plan import open_encoder
from nearfar.pipeline.unlabeled import nearest, sample
from nearfar.recipe import Recipe
from nearfar.seeds import stream

A_CLASS = 16
"""Texts that a class gets."""


def zero_shot_rows(recipe: Recipe, memory: Mapping[str, object]) -> Records:
    """The unlabeled texts that are surest of their class, with their labels."""
    names = recipe.data.names
    if names in ("auto", "none"):
        raise SettingError(
            "data.unlabeled is true (--unlabeled), so nothing but class names tells the classes: describe them with "
            "data.names (--names)."
        )
    phrases = read_names(Path(names)) if isinstance(names, str) else described(names, "data.names")
    if len(phrases) < 2:
        raise SettingError(f"data.names describes {counted(len(phrases), 'class', 'classes')}; two or more are needed.")
    texts, lines, total = sample(recipe, recipe.data.train, memory)
    if len(texts) < 2 * len(phrases):
        message = f"there are {counted(len(texts), 'unlabeled text')} for {len(phrases)} classes, fewer than two each"
        raise DataError([Problem(from_here(recipe.data.train), message, "Give more texts, hundreds are usual.")])
    built = open_encoder(recipe.encoder, classes=None, seed=stream(recipe.seed, "head"))
    chosen = surest(_embedded(built, texts), *_named(built, phrases), a_class=A_CLASS)
    labels = list(phrases)
    rows = [(row, labels[number]) for number, rows in enumerate(chosen) for row in rows]
    missing = [label for label, rows in zip(labels, chosen, strict=True) if not rows]
    if missing:
        message = f"no unlabeled text is nearest to the name of {missing[0]!r}"
        raise DataError(
            [Problem(from_here(recipe.data.train), message, "Describe the class in other words, or leave it out.")]
        )
    compared = f"; {len(texts):,} different ones were compared" if total > len(texts) else ""
    note = (
        f"no labels: {len(rows):,} of {total:,} unlabeled texts train, {A_CLASS} a class at most, chosen by class names"
        f"{compared}"
    )
    return Records(
        ([texts[row] for row, _ in rows],), [label for _, label in rows], None, [lines[row] for row, _ in rows],
        from_here(recipe.data.train), (note,),
    )  # fmt: skip


def surest(
    vectors: NDArray[np.float64], names: NDArray[np.float64], owners: NDArray[np.int64], *, a_class: int
) -> list[list[int]]:
    """The rows of each class that are surest of it, by (n, d) vectors of texts and (m, d) vectors of names.

    The score of a text for a class is its inner product with the name, both centered and in standard deviations, plus
    the mean of that of its nearest neighbors. It is sure of the class by the distance to the next best one.
    """
    classes = int(owners.max()) + 1
    of_class = class_means(names, owners, classes)
    scores = (vectors - vectors.mean(axis=0)) @ directions(of_class - of_class.mean(axis=0)).T  # (n, c)
    scores /= np.maximum(scores.std(axis=0), 1e-12)
    scores = scores + scores[nearest(vectors, vectors, same=True)].mean(axis=1)
    order = np.sort(scores, axis=1)
    best, margin = scores.argmax(axis=1), order[:, -1] - order[:, -2]
    chosen = []
    for number in range(classes):
        rows = np.flatnonzero(best == number)
        chosen.append(rows[np.argsort(-margin[rows], kind="stable")][:a_class].tolist())
    return chosen


def _named(built: Built, phrases: Names) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    flat = [(number, phrase) for number, of_class in enumerate(phrases.values()) for phrase in of_class]
    return _embedded(built, [phrase for _, phrase in flat]), np.array([number for number, _ in flat])


def _embedded(built: Built, texts: Sequence[str]) -> NDArray[np.float64]:
    table = tokenize(built.tokenizer, [list(texts)], max_length=built.max_length)
    return directions(embed_table(built.model, table, batch_size=64))
