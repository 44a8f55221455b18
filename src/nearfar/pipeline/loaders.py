"""Rows to batches: texts tokenized once, the sampler, the views, and notes on the composition of batches."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Literal, TypeVar

import numpy as np
from numpy.typing import NDArray
from torch.nn import Dropout

from nearfar.batching import (
    ClassBalanced,
    Clusters,
    EmbeddingSampler,
    FileOrder,
    Grouping,
    NearestNeighbors,
    RandomOrder,
    Sampler,
    Search,
    SharedNeighbors,
    ShingleSampler,
    VectorFile,
    count_without_positive,
)
from nearfar.data import (
    Records,
    RowType,
    grades_of,
    pair_targets,
    positive_above,
    relevant_grade,
    score_range,
    unit_scores,
)
from nearfar.data.corpora import Corpus, Judgments, judge
from nearfar.data.disk_columns import DiskTexts, first_rows, joined
from nearfar.encoding import Built, TokenTable, tokenize
from nearfar.encoding.augment import Augment, TokenizedTexts, make_augment
from nearfar.errors import SettingError, counted
from nearfar.evaluation import embed_table
from nearfar.evaluation.evaluators import EvaluationRows, Truth
from nearfar.evaluation.search import Search as SearchRows
from nearfar.evaluation.search import positives_search
from nearfar.pipeline.data import RunData, class_numbers
from nearfar.pipeline.defaults import Stage
from nearfar.recipe import Recipe
from nearfar.recipe.capabilities import Capabilities
from nearfar.recipe.objectives import parts_of
from nearfar.training import Loader

EVALUATION_BATCH = 64
ENCODED = 65_536
"""Texts whose vectors are in memory at a time where they go to disk."""
T = TypeVar("T")


@dataclass(frozen=True)
class Rows:
    """A part of the data, tokenized."""

    row_type: RowType
    table: TokenTable
    """Each distinct text once; for classification each row."""
    columns: tuple[NDArray[np.int64], ...]
    """For each column of texts (n,) where in the table a row's text is; none means row i is text i."""
    labels: NDArray[np.int64]
    """(n,) the class of each row, or (n, c) which labels apply to it."""
    targets: NDArray[np.float32] | None = None
    positive_above: float = 0.5
    """The target above which a pair is positive, unless an objective sets another threshold."""
    origin: NDArray[np.int64] | None = None
    """(n,) the row of the data that each row is made of; None: row i is row i."""
    weights: NDArray[np.float32] | None = None
    """(n,) how much each row counts in cross-entropy and in a fitted head; None: all the same."""
    names: int = 0
    """How many of the last rows are names of classes, which no row of the data has."""

    @property
    def graded(self) -> bool:
        """Whether some targets lie between 0 and 1, or might."""
        return self.row_type.has_scores or (
            self.targets is not None and bool(((self.targets != 0) & (self.targets != 1)).any())
        )

    def groups(self, threshold: float | None = None) -> tuple[NDArray[np.int64], ...]:
        """For each column (n,) ids: texts joined by positive pairs, however many there are between them, share one.

        Pairs with a target above the ``threshold``, or else above ``positive_above``, are positive.
        """
        from scipy.sparse import coo_array  # here: most runs do without
        from scipy.sparse.csgraph import connected_components

        ends, threshold = self.columns, self.positive_above if threshold is None else threshold
        left, right = ends[0], ends[1]
        if self.targets is not None:
            positive = self.targets > threshold
            left, right = left[positive], right[positive]
        size = len(self.table)
        often = np.zeros(size, dtype=np.uint32)
        np.add.at(often, left, 1)
        np.add.at(often, right, 1)
        alone = (often[left] == 1) & (often[right] == 1)  # most pairs, in large data: no other pair has their texts
        del often
        group = np.arange(size)
        group[right[alone]] = left[alone]
        left, right = left[~alone], right[~alone]
        nodes = np.unique(np.concatenate([left, right]))
        edges = np.searchsorted(nodes, left), np.searchsorted(nodes, right)
        graph = coo_array((np.ones(len(left), dtype=np.int8), edges), shape=(len(nodes), len(nodes)))
        _, number = connected_components(graph, directed=False)
        group[nodes] = nodes[np.unique(number, return_index=True)[1]][number]
        return tuple(group[column] for column in ends)


@dataclass(frozen=True)
class Scale:
    """The range of the training scores, by which all scores become numbers from 0 to 1."""

    low: float
    high: float
    note: str | None = None
    """How scores are mapped, in words."""


def scale_of(data: RunData) -> Scale | None:
    """The range of the scores of the training rows, or of the first rows that have some."""
    for records in (data.train, data.dev, data.test):
        if records is not None and data.row_type_of(records).has_scores:
            low, high = score_range(records)
            _, note = unit_scores(records, low=low, high=high)
            return Scale(low, high, note)
    return None


def tokenized(built: Built, data: RunData, records: Records, scale: Scale | None) -> Rows:
    """A part of the data as the model reads it."""
    row_type, disk = data.row_type_of(records), isinstance(records.texts[0], DiskTexts)
    if row_type.has_head:
        table = tokenize(built.tokenizer, records.texts, max_length=built.max_length, disk=disk)
        if row_type.has_text_scores:
            scores = np.array(records.scores, dtype=np.float32)
            return Rows(row_type, table, (), np.zeros(len(records), dtype=np.int64), scores)
        weights = None if records.weights is None else np.array(records.weights, dtype=np.float32)
        return Rows(row_type, table, (), class_numbers(records, data.classes, row_type), weights=weights)
    texts, columns = distinct(records.texts)
    if row_type.views:
        columns = (columns[0], columns[0])
    table = tokenize(built.tokenizer, [texts], max_length=built.max_length, disk=disk)
    targets, labels = targets_of(row_type, records, scale), np.zeros(len(records), dtype=np.int64)
    return Rows(row_type, table, columns, labels, targets, positive_above(records))


def with_names(rows: Rows, built: Built, names: Mapping[str, Sequence[str]], classes: Sequence[str]) -> Rows:
    """The labeled texts, and after them the names of classes as texts of their classes."""
    phrases = [(number, phrase) for number, label in enumerate(classes) for phrase in names.get(label, ())]
    if not phrases:
        return rows
    table = tokenize(built.tokenizer, [[phrase for _, phrase in phrases]], max_length=built.max_length)
    labels = np.array([number for number, _ in phrases], dtype=np.int64)
    weights = None
    if rows.weights is not None:
        weights = np.concatenate([rows.weights, np.ones(len(phrases), dtype=np.float32)])
    return replace(
        rows,
        table=rows.table.join(table),
        labels=np.concatenate([rows.labels, labels]),
        weights=weights,
        names=len(phrases),
    )


def distinct(columns: Sequence[Sequence[str]]) -> tuple[Sequence[str], tuple[NDArray[np.int64], ...]]:
    """Every text once, in the order they come, and for each column where the text of a row is.

    >>> distinct([["a", "b"], ["b", "c"]])
    (['a', 'b', 'c'], (array([0, 1]), array([1, 2])))
    """
    on_disk = [column for column in columns if isinstance(column, DiskTexts)]
    if on_disk and len(on_disk) == len(columns):
        every = joined(on_disk)
        first = first_rows(every)
        own = first == np.arange(len(first))
        place = np.cumsum(own)
        place -= 1
        numbers = place[first]
        del place, first
        cuts = np.cumsum([len(column) for column in columns])[:-1]
        return every.pick(np.flatnonzero(own)), tuple(np.split(numbers, cuts))
    places: dict[str, int] = {}
    rows = tuple(
        np.array([places.setdefault(text, len(places)) for text in column], dtype=np.int64) for column in columns
    )
    return list(places), rows


def targets_of(row_type: RowType, records: Records, scale: Scale | None) -> NDArray[np.float32] | None:
    """(n,) what each pair should be, from 0 to 1; None where all rows are positives."""
    if row_type.has_scores:
        assert scale is not None
        values, _ = unit_scores(records, low=scale.low, high=scale.high)
        return np.array(values, dtype=np.float32)
    if row_type.has_binary_labels:
        return np.array(pair_targets(records), dtype=np.float32)
    if row_type.has_grades and records.scores is not None:
        return np.array(unit_scores(records)[0], dtype=np.float32)
    return None


def check_targets(data: RunData) -> None:
    """Raise what :func:`tokenized` would of labels that are not binary, and of scores off their scale."""
    scale = scale_of(data)
    for records in (data.train, data.dev, data.test):
        if records is not None:
            targets_of(data.row_type_of(records), records, scale)


def truth_of(
    row_type: RowType, records: Records, columns: tuple[NDArray[np.int64], ...], targets: NDArray[np.float32] | None
) -> Truth | SearchRows:
    """What the cosines of pairs, triplets or a ranking are compared with."""
    if row_type is RowType.TRIPLETS:
        return Truth(row_type, np.zeros(len(records)))
    if targets is None:
        return positives_search(*columns)
    if row_type.has_grades:
        return Truth(
            row_type,
            np.array(grades_of(records), dtype=np.int64),
            queries=records.queries or (),
            documents=records.documents,
            positive=relevant_grade(records),
        )
    return Truth(row_type, targets)


def evaluation_rows(rows: Rows, records: Records, classes: tuple[str, ...]) -> EvaluationRows:
    """The rows with the truth to compare a model with."""
    if rows.row_type.has_text_scores:
        return EvaluationRows(rows.table, (), Truth(rows.row_type, np.array(records.scores, dtype=np.float64)))
    if rows.row_type.has_classes:
        return EvaluationRows(rows.table, (), Truth(rows.row_type, rows.labels, classes))
    return EvaluationRows(rows.table, rows.columns, truth_of(rows.row_type, records, rows.columns, rows.targets))


def corpus_rows(
    judgments: Judgments, corpus: Corpus, tokenize_texts: Callable[[Sequence[str]], TokenTable]
) -> EvaluationRows:
    """A search of a corpus for the relevant texts of each query. Documents with equal texts are one."""
    texts, (queries, documents) = distinct([judgments.queries, corpus.texts])
    searched = np.unique(documents)  # (m,) rows of the table
    places = {texts[row]: place for place, row in enumerate(searched.tolist())}
    numbers = {query: number for number, query in enumerate(judgments.queries)}
    judged = sorted((numbers[query], places[text], grade) for (query, text), grade in judgments.grades.items())
    known = np.array(judged, dtype=np.int64).reshape(-1, 3)
    return EvaluationRows(
        tokenize_texts(texts), (), SearchRows(queries, searched, known[:, :2], known[:, 2], judgments.positive)
    )


def searches(built: Built, data: RunData, invalid: Literal["refuse", "drop"]) -> dict[str, EvaluationRows]:
    """The dev and test rows of a run as searches of its corpus; none where it has no corpus."""
    corpus = data.corpus
    if corpus is None:
        return {}
    return {
        split: corpus_rows(
            judge(records, corpus, invalid=invalid),
            corpus,
            lambda texts: tokenize(built.tokenizer, [texts], max_length=built.max_length),
        )
        for split, records in (("dev", data.dev), ("test", data.test))
        if records is not None
    }


def by_anchor(rows: Rows, threshold: float | None = None) -> tuple[Rows, list[str]]:
    """Triplets of labeled pairs: each positive pair with each negative pair of the same left text; and notes.

    Triplets stay as they are. Pairs with a target above the ``threshold``, or that of the rows, are positive.
    """
    if len(rows.columns) > 2:
        return rows, []
    if rows.targets is None:
        raise SettingError(
            'objective.negatives = "anchor" takes labeled negative pairs, and all of these pairs are positive; set '
            '"batch", or mine negatives (nearfar mine).'
        )
    positive = rows.targets > (rows.positive_above if threshold is None else threshold)
    anchors: dict[int, tuple[list[int], list[int]]] = {}
    for row, (anchor, good) in enumerate(zip(rows.columns[0].tolist(), positive.tolist(), strict=True)):
        anchors.setdefault(anchor, ([], []))[0 if good else 1].append(row)
    pairs = [pair for both in anchors.values() for pair in product(*both)]
    used = sum(bool(goods and bads) for goods, bads in anchors.values())
    if not pairs:
        raise SettingError(
            'objective.negatives = "anchor" makes triplets of positive and negative pairs with the same left text, and '
            f'none of the {counted(len(anchors), "left text")} has both; set "batch".'
        )
    good, bad = np.array(pairs, dtype=np.int64).T
    left, right = rows.columns
    triplets = Rows(
        RowType.TRIPLETS, rows.table, (left[good], right[good], right[bad]), np.zeros(len(good), dtype=np.int64),
        origin=good,
    )  # fmt: skip
    note = f"{counted(len(pairs), 'triplet')} of {counted(used, 'left text')}"
    rest = len(anchors) - used
    return triplets, [note + (f"; {rest:,} without a positive or without a negative pair do not train" if rest else "")]


def make_loader(stage: Stage, built: Built, data: RunData, rows: Rows) -> Loader:
    """The training rows of a stage, ready to train on."""
    recipe, does = stage.recipe, stage.recipe.objective.does
    columns, groups = rows.columns, None
    if does.two_views:
        every = np.arange(len(rows.labels))
        columns = (every, every)
    if not data.row_type.has_classes and does.in_batch:
        _check_negatives(recipe, rows)
        groups = rows.groups(does.threshold)
    lines = _of_rows(rows, data.train.lines)
    return Loader(
        tokens=rows.table,
        labels=rows.labels,
        sampler=_sampler(stage, built, data, rows),
        lines=[*lines, *[0] * rows.names] if rows.names else lines,
        source=data.train.source,
        columns=columns,
        targets=rows.targets,
        groups=groups,
        augment=_augment(does, built, data, rows),
        weights=rows.weights,
    )


def _of_rows(rows: Rows, values: Sequence[T]) -> Sequence[T]:
    """The values of the data that the rows are made of."""
    return values if rows.origin is None else [values[row] for row in rows.origin.tolist()]


def _check_negatives(recipe: Recipe, rows: Rows) -> None:
    """Refuse rows and batches in which a text has no negatives."""
    if len(rows.columns) > 2:  # each row has a negative of its own
        return
    if recipe.objective.does.needs_negatives:
        raise SettingError(
            "objective.hard_negative_weight is for rows that have a negative each (triplets), and these have none; "
            "set it to 0."
        )
    if len(rows.labels) == 1:
        raise SettingError(
            f"there is one training row, and {recipe.objective.name} compares rows with each other; give two or more, "
            "and better thousands."
        )
    if recipe.batches.size == 1:
        raise SettingError(
            f"batches.size is 1, and {recipe.objective.name} compares the rows of a batch with each other; set 2 "
            "or more, 64 is usual."
        )


def _augment(does: Capabilities, built: Built, data: RunData, rows: Rows) -> Augment | None:
    """What happens to the second view of a text, beside dropout: one thing for all parts of a blend."""
    if not does.second_views:
        return None
    view, *others = does.second_views
    labeled, shape = data.row_type.has_classes, data.train.shape
    if labeled and view.method == "synonyms" and shape == "pairs":
        raise SettingError('objective.views = "synonyms" reads single texts, and these are pairs; use "spans".')
    if not data.row_type.views and any(each.plain_only for each in does.second_views):
        raise SettingError(
            "objective.views changes the second view of plain texts, and these rows have more than one text "
            'each; set objective.views = "dropout".'
        )
    if shape == "triplets":
        raise SettingError(
            "mirror masks the second view of a text, and these rows are triplets; use simcse, or set objective.masked "
            "to 0."
        )
    if not labeled and any(other != view for other in others):
        raise SettingError(
            "the parts of this blend change the second view of a text in different ways, and they share it: give them "
            "the same objective.parts.NAME.views or masked, or leave all but one out."
        )
    texts = data.train.texts[0] if labeled else distinct(data.train.texts)[0]
    return make_augment(
        view.method,
        TokenizedTexts(texts=texts, table=rows.table, tokenizer=built.tokenizer, max_length=built.max_length),
        **view.settings,
    )


def view_notes(loader: Loader, recipe: Recipe, data: RunData, built: Built) -> list[str]:
    """What a user should know where both views of a text are the same."""
    settings = recipe.encoder
    aware = recipe.objective.does.two_views
    drops = any(isinstance(part, Dropout) and part.p > 0 for part in built.model.held.modules())
    two = data.row_type.views or aware
    if not two or loader.augment is not None or drops or settings.drophead or settings.cutoff:
        return []
    change = (
        'objective.views = "spans" or "synonyms"' if aware else "objective.views of simcse, objective.masked of mirror"
    )
    return [
        f"{settings.name} has no dropout here, so both views of a text are the same, and only other texts teach; "
        f"set encoder.dropout (0.1 is usual), or change the second view: {change}"
    ]


def batch_notes(loader: Loader, recipe: Recipe) -> list[str]:
    """What a user should know about the composition of batches."""
    does = recipe.objective.does
    if not does.needs_positives:
        return []
    notes, size, classes = list[str](), recipe.batches.size or 0, int((class_counts(loader.labels) > 0).sum())
    wanted, fitting = recipe.batches.per_class, texts_per_class(recipe.batches.per_class, size)
    if recipe.batches.shuffle == "balanced" and size < 4:
        notes.append(
            f"batches.size is {size}, so texts of one class fill a batch, which leaves no negatives; set 4 or "
            "more, 64 is usual"
        )
    elif recipe.batches.shuffle == "balanced" and fitting < wanted:
        notes.append(
            f"batches.per_class is {wanted}, but {fitting} texts of a class share a batch, so that two classes fit "
            f"into a batch of {size} (batches.size)"
        )
    if classes > size // 2:
        notes.append(
            f"batches.size is {size}, so a batch holds two texts of at most {size // 2} of the {classes} classes; "
            f"{2 * classes} or more have room for all of them"
        )
    alone = _without_positive(loader.labels, loader.sampler.batches(0))
    parts = [part.does for part in parts_of(recipe.objective).values()]
    if alone and any(part.needs_positives and not part.two_views for part in parts):
        nothing = alone == len(loader) and does.idle_without_positives
        help_is = _remedy(loader, recipe, alone)
        notes.append(
            f"{recipe.objective.name} learns nothing here, since no training text has a positive in its batch, and "
            f"only the head is fitted; {help_is}"
            if nothing
            else f"{alone:,} of {len(loader):,} training texts {'has' if alone == 1 else 'have'} no positive in "
            f"{'its' if alone == 1 else 'their'} batch, so nothing pulls {'it' if alone == 1 else 'them'} closer; "
            f"{help_is}"
        )
    return notes


def _remedy(loader: Loader, recipe: Recipe, alone: int) -> str:
    """What gives anchors without a positive one: other batches, unless there is none in all of the texts."""
    singles = int((class_counts(loader.labels) == 1).sum())
    if alone > singles:
        size = min(2 * (recipe.batches.size or 1), len(loader))
        return f"larger batches (batches.size, {size} for one) or more texts of a class would help"
    if recipe.data.per_class == 1:
        return "data.per_class leaves one text of each: set 2 or more, 8 is usual"
    return "more texts of a class would help, two of each at least"


def class_counts(labels: NDArray[np.int64]) -> NDArray[np.int64]:
    """How many rows each class has, of (n,) class numbers or (n, c) indicators."""
    counts: NDArray[np.int64] = labels.sum(axis=0) if labels.ndim == 2 else np.bincount(labels)
    return counts


def rarest_label(indicators: NDArray[np.int64]) -> NDArray[np.int64]:
    """(n, c) indicators -> (n,) the rarest label of each row, c where it has none: what balanced batches count by.

    >>> rarest_label(np.array([[1, 1], [1, 0], [0, 0]])).tolist()
    [1, 0, 2]
    """
    c = indicators.shape[1]
    sizes = np.where(indicators > 0, indicators.sum(axis=0), len(indicators) + 1)
    rarest: NDArray[np.int64] = np.where(indicators.any(axis=1), sizes.argmin(axis=1), c).astype(np.int64)
    return rarest


def _without_positive(labels: NDArray[np.int64], batches: Sequence[NDArray[np.int64]]) -> int:
    """How many rows share no label with another row of their batch; rows without labels do not count."""
    if labels.ndim == 1:
        return count_without_positive(labels, list(batches))
    alone = 0
    for batch in batches:
        own = labels[batch]
        shared = own @ own.T
        np.fill_diagonal(shared, 0)
        alone += int((own.any(axis=1) & ~shared.any(axis=1)).sum())
    return alone


def texts_per_class(per_class: int, size: int) -> int:
    """How many texts of a class share a batch: as asked for, but half the batch at most, and two at least."""
    return min(per_class, max(2, size // 2))


def _sampler(stage: Stage, built: Built, data: RunData, rows: Rows) -> Sampler:
    settings, seed, n = stage.recipe.batches, stage.seed, len(rows.labels)
    size, shuffle = settings.size, settings.shuffle
    assert size is not None
    if more := rows.names + data.pseudo:  # names and texts without labels make batches larger, not more
        size = max(size, -(-n // -(-(n - more) // size)))
    if shuffle == "random":
        return RandomOrder(rows=n, size=size, seed=seed)
    if shuffle == "file-order":
        return FileOrder(rows=n, size=size)
    if shuffle == "balanced":
        if not data.row_type.has_classes:
            has = "texts with scores" if data.row_type.has_text_scores else "pairs"
            raise SettingError(f'batches.shuffle = "balanced" needs classes, and these rows are {has}; use "random".')
        if size < 2:
            raise SettingError(
                f"batches.size is {size}, and {stage.recipe.objective.name} compares the texts of a batch; "
                "set 2 or more, 64 is usual."
            )
        together = texts_per_class(settings.per_class, size)
        labels = rarest_label(rows.labels) if rows.labels.ndim == 2 else rows.labels
        return ClassBalanced(labels=labels, size=size, per_class=together, seed=seed)
    if data.row_type.has_text_scores:
        raise SettingError(
            f'batches.shuffle = "{shuffle}" puts similar pairs together, and these are single texts; use "random".'
        )
    if data.row_type.has_classes:
        raise SettingError(
            f'batches.shuffle = "{shuffle}" puts similar pairs together, and these rows have classes; use "balanced".'
        )
    side = rows.columns[0 if settings.neighbor_text == "left" else 1]
    same = side if settings.separate_duplicates else None
    texts = data.train.texts[
        0 if settings.neighbor_text == "left" or data.row_type.views else 1
    ]  # both views are of one text
    if shuffle == "shingles":
        return ShingleSampler(
            texts=_of_rows(rows, texts),
            size=size,
            group=settings.group,
            shingle=settings.shingle_size,
            seed=seed,
            same=same,
        )

    def vectors() -> NDArray[np.float32] | VectorFile:
        if 4 * built.model.dim * (n + len(rows.table)) > settings.memory * 1e9:
            return _vectors_on_disk(built, rows, side)
        chosen: NDArray[np.float32] = embed_table(built.model, rows.table, batch_size=EVALUATION_BATCH)[side]
        return chosen

    search = Search(memory=int(settings.memory * 1e9))
    groupings: dict[str, Callable[[], Grouping]] = {
        "neighbors": lambda: NearestNeighbors(
            group=settings.group, candidates=settings.candidates, reverse=settings.reverse, search=search
        ),
        "clusters": lambda: Clusters(group=settings.group, clusters=settings.clusters),
        "neighbor-ids": lambda: SharedNeighbors(
            group=settings.group, neighbors=settings.neighbors, shingle=settings.shingle_size, search=search
        ),
    }
    grouping, every = groupings[shuffle](), settings.refresh
    return EmbeddingSampler(rows=n, size=size, seed=seed, vectors=vectors, grouping=grouping, every=every, same=same)


def _vectors_on_disk(built: Built, rows: Rows, side: NDArray[np.int64]) -> VectorFile:
    """The vectors of the texts on one side, row by row; texts that other rows have, too, are encoded once."""
    texts, places = np.unique(side, return_inverse=True)
    file = VectorFile(built.model.dim)
    for start in range(0, len(texts), ENCODED):
        some = rows.table.take(texts[start : start + ENCODED])
        file.append(embed_table(built.model, some, batch_size=EVALUATION_BATCH))
    if np.array_equal(places, np.arange(len(texts))):
        return file
    by_row = VectorFile(built.model.dim)
    for start in range(0, len(places), ENCODED):
        by_row.append(file.gather(places[start : start + ENCODED]))
    return by_row
