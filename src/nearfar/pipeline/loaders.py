"""Rows to batches: the sampler, the views in which the model sees texts, and notes on the composition of batches."""

from __future__ import annotations

from collections.abc import Callable

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
    SharedNeighbors,
    ShingleSampler,
    count_without_positive,
)
from nearfar.encoding import Built
from nearfar.encoding.augment import Augment, TokenizedTexts, make_augment
from nearfar.errors import SettingError
from nearfar.evaluation import embed_table
from nearfar.pipeline.data import RunData
from nearfar.pipeline.rows import EVALUATION_BATCH, Rows, distinct
from nearfar.pipeline.stages import Stage
from nearfar.recipe import Recipe
from nearfar.recipe.capabilities import Capabilities
from nearfar.recipe.objectives import parts_of
from nearfar.training import Loader


def make_loader(stage: Stage, built: Built, data: RunData, rows: Rows) -> Loader:
    """The training rows of a stage, ready to train on."""
    recipe, does = stage.recipe, stage.recipe.objective.does
    columns, groups = rows.columns, None
    if does.two_views:
        every = np.arange(len(rows.labels))
        columns = (every, every)
    if not data.row_type.has_classes and does.in_batch:
        _check_negatives(recipe, rows)
        groups = rows.groups(does.positive_above)
    return Loader(
        tokens=rows.table,
        labels=rows.labels,
        sampler=_sampler(stage, built, data, rows),
        lines=tuple(data.train.lines),
        source=data.train.source,
        columns=columns,
        targets=rows.targets,
        groups=groups,
        augment=_augment(does, built, data, rows),
    )


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
    drops = any(isinstance(part, Dropout) and part.p > 0 for part in built.model.network.modules())
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
    notes, size, classes = list[str](), recipe.batches.size or 0, len(np.unique(loader.labels))
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
    alone = count_without_positive(loader.labels, loader.sampler.batches(0))
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
    singles = int((np.unique(loader.labels, return_counts=True)[1] == 1).sum())
    if alone > singles:
        size = min(2 * (recipe.batches.size or 1), len(loader))
        return f"larger batches (batches.size, {size} for one) or more texts of a class would help"
    if recipe.data.per_class == 1:
        return "data.per_class leaves one text of each: set 2 or more, 8 is usual"
    return "more texts of a class would help, two of each at least"


def texts_per_class(per_class: int, size: int) -> int:
    """How many texts of a class share a batch: as asked for, but half the batch at most, and two at least."""
    return min(per_class, max(2, size // 2))


def _sampler(stage: Stage, built: Built, data: RunData, rows: Rows) -> Sampler:
    settings, seed, n = stage.recipe.batches, stage.seed, len(rows.labels)
    size, shuffle = settings.size, settings.shuffle
    assert size is not None
    if shuffle == "random":
        return RandomOrder(rows=n, size=size, seed=seed)
    if shuffle == "file-order":
        return FileOrder(rows=n, size=size)
    if shuffle == "balanced":
        if not data.row_type.has_classes:
            raise SettingError('batches.shuffle = "balanced" needs classes, and these rows are pairs; use "random".')
        if size < 2:
            raise SettingError(
                f"batches.size is {size}, and {stage.recipe.objective.name} compares the texts of a batch; "
                "set 2 or more, 64 is usual."
            )
        together = texts_per_class(settings.per_class, size)
        return ClassBalanced(labels=rows.labels, size=size, per_class=together, seed=seed)
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
            texts=texts, size=size, group=settings.group, shingle=settings.shingle_size, seed=seed, same=same
        )

    def vectors() -> NDArray[np.float32]:
        chosen: NDArray[np.float32] = embed_table(built.model, rows.table, batch_size=EVALUATION_BATCH)[side]
        return chosen

    groupings: dict[str, Callable[[], Grouping]] = {
        "neighbors": lambda: NearestNeighbors(
            group=settings.group, candidates=settings.candidates, reverse=settings.reverse
        ),
        "clusters": lambda: Clusters(group=settings.group, clusters=settings.clusters),
        "neighbor-ids": lambda: SharedNeighbors(group=settings.group, shingle=settings.shingle_size),
    }
    grouping, every = groupings[shuffle](), settings.refresh
    return EmbeddingSampler(rows=n, size=size, seed=seed, vectors=vectors, grouping=grouping, every=every, same=same)
