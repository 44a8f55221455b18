"""The unlabeled texts of a recipe: a bounded sample of a source of any size, and their nearest neighbors."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from nearfar.data import Layout, Records, Stream, read_memory
from nearfar.errors import DataError, Problem, counted
from nearfar.evaluation.vectors import side_at_once
from nearfar.pipeline.data import from_here, remedied
from nearfar.recipe import Recipe
from nearfar.seeds import generator

MOST_TEXTS = 10_000
"""Unlabeled texts that are encoded; of more than that, so many are drawn while they are read."""
MOST_BESIDE = 2_000
"""The same where there are labeled texts beside them, so that several models are to label them."""
FEWEST_BESIDE = 50
"""Fewer unlabeled texts have no neighbors that could agree."""
SAME_COLUMN = "Give the column the name that it has in the labeled data, or write a text file with a text a line."
WINDOW = 4_096
"""Rows in memory at a time beside those that are drawn."""
NEIGHBORS = 10
"""Nearest unlabeled texts that have a say in the class of a text."""


def pool_of(recipe: Recipe, memory: Mapping[str, object], labeled: Records) -> Records | None:
    """The texts that a recipe has beside its labeled ones, without these; None where it has none."""
    source = recipe.data.unlabeled
    if isinstance(source, bool):
        return None
    try:
        texts, lines, _ = sample(recipe, source, memory, MOST_BESIDE)
    except DataError as error:
        raise remedied(error, SAME_COLUMN) from None
    known = set(labeled.normalized_texts())
    pool = Records((texts,), None, None, lines, from_here(source))
    pool = pool.take([row for row, key in enumerate(pool.normalized_texts()) if key not in known])
    if len(pool) < FEWEST_BESIDE:
        message = f"there are {counted(len(pool), 'unlabeled text')} beside the labeled ones, which are too few"
        remedy = f"Give {FEWEST_BESIDE} at least, hundreds are usual, or leave data.unlabeled (--unlabeled) out."
        raise DataError([Problem(pool.source, message, remedy)])
    return pool


def sample(
    recipe: Recipe, source: str, memory: Mapping[str, object], most: int | None = None
) -> tuple[list[str], list[int], int]:
    """At most ``most`` distinct texts of a source, drawn by the seed while it is read, and how many it has."""
    data, random = recipe.data, generator(recipe.seed, "unlabeled")
    layout = Layout(text=data.text, encoding=data.encoding, max_chars=data.max_chars, large=data.large)
    if source in memory:
        records = read_memory(memory[source], source, layout, invalid=recipe.data.invalid, need="text")
        return draw([records], random, most)
    windows = Stream(from_here(source), layout, size=WINDOW, invalid=recipe.data.invalid)
    found = draw(windows, random, most)
    windows.finish()
    return found


def draw(
    windows: Iterable[Records], random: np.random.Generator, most: int | None = None
) -> tuple[list[str], list[int], int]:
    """A sample of at most ``most`` texts without repetitions, their lines, and how many texts there are."""
    most = MOST_TEXTS if most is None else most
    kept: list[tuple[str, int]] = []
    known: set[str] = set()
    total = 0
    for text, line in _texts(windows):
        total += 1
        if text in known:
            continue
        if len(kept) < most:
            kept.append((text, line))
            known.add(text)
        elif (place := int(random.integers(total))) < most:
            known.remove(kept[place][0])
            kept[place] = (text, line)
            known.add(text)
    return [text for text, _ in kept], [line for _, line in kept], total


def _texts(windows: Iterable[Records]) -> Iterator[tuple[str, int]]:
    for records in windows:
        if len(records.texts) != 1:
            message = f"unlabeled texts are single texts, and these are {records.shape}"
            raise DataError([Problem(records.source, message, "Name the column with the text: data.text (--text).")])
        yield from zip(records.texts[0], records.lines, strict=True)


def nearest(vectors: NDArray[np.float64], others: NDArray[np.float64], *, same: bool = False) -> NDArray[np.int64]:
    """(n, k) the rows of ``others`` with the largest inner products, block by block.

    Args:
        vectors: (n, d) those that are compared.
        others: (m, d) those that they are compared with.
        same: whether both are the same texts, of which none is its own neighbor.
    """
    count, step = min(NEIGHBORS, len(others) - 1), side_at_once(vectors.shape[1])
    found = np.empty((len(vectors), count), dtype=np.int64)
    for start in range(0, len(vectors), step):
        cosines = vectors[start : start + step] @ others.T
        if same:
            cosines[np.arange(len(cosines)), start + np.arange(len(cosines))] = -np.inf
        found[start : start + step] = np.argpartition(-cosines, count - 1, axis=1)[:, :count]
    return found
