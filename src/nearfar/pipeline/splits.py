"""Dev and test rows that are set aside from the training rows, and training rows that are drawn."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from nearfar.data import SIZES, Records, RowType, holdout, limit, per_class
from nearfar.errors import SettingError, counted
from nearfar.recipe import Recipe

AUTO_ROWS = 1_000
"""From this many rows on, ``dev = "auto"`` sets a share aside."""
AUTO_SHARE = 0.1


def set_aside(
    train: Records, files: Mapping[str, Records | None], row_type: RowType, recipe: Recipe
) -> tuple[Records, Records | None, Records | None, list[str]]:
    """Training, dev and test rows, after shares of the training rows have been set aside, and notes."""
    shares: dict[str, float] = {
        role: setting
        for role, setting in (("test", recipe.data.test), ("dev", recipe.data.dev))
        if isinstance(setting, float | int) and setting > 0
    }
    if row_type.views and shares:
        raise SettingError(
            "plain texts have nothing to be measured by, so no share of them can be data.dev or data.test; "
            "name a file of scored pairs instead."
        )
    dev, test, notes = files.get("dev"), files.get("test"), list[str]()
    if "test" in shares:
        train, test = _divide(train, shares["test"], recipe.seed, "test")
    if recipe.data.dev == "auto":
        shares["dev"], notes = _automatic_dev(train, row_type, recipe)
    if shares.get("dev"):
        train, dev = _divide(train, shares["dev"], recipe.seed, "dev")
    return train, dev, test, notes


def _automatic_dev(train: Records, row_type: RowType, recipe: Recipe) -> tuple[float, list[str]]:
    """The share of dev rows where none was asked for, and why there is none."""
    if row_type.views:
        return 0.0, [
            "no dev data: plain texts have nothing to be measured by, so the last weights are kept, better or "
            "worse than before; set data.dev (--dev) to a file of scored pairs to choose by"
        ]
    rows = len(draw(train, recipe)[0])
    if rows >= AUTO_ROWS:
        return AUTO_SHARE, []
    return 0.0, [
        f"no dev data: {rows:,} rows are fewer than {AUTO_ROWS:,}, so all of them train and the last "
        "weights are kept; set data.dev to choose by a dev score"
    ]


def _divide(records: Records, fraction: float, seed: int, name: str) -> tuple[Records, Records]:
    rest, chosen = holdout(records, fraction, seed=seed, name=name)
    return records.take(rest), records.take(chosen)


def draw(train: Records, recipe: Recipe) -> tuple[Records, list[str]]:
    """The training rows that data.limit and data.per_class leave, and notes."""
    data, notes = recipe.data, list[str]()
    size = SIZES[data.limit] if isinstance(data.limit, str) else data.limit
    if data.per_class is not None:
        if train.labels is None:
            raise SettingError("data.per_class draws texts of each class, and these rows have none; use data.limit.")
        few = sorted(name for name, count in Counter(train.labels).items() if count < data.per_class)
        if few:
            many = counted(len(few), "class has fewer texts and takes", "classes have fewer texts and take")
            notes.append(f"data.per_class is {data.per_class}, but {many} part with all of them: {_first(few)}")
        train = train.take(per_class(train, data.per_class, seed=recipe.seed))
    if size is not None:
        if size > len(train):
            notes.append(f"data.limit is {size:,}, but there are only {len(train):,} training rows; all take part")
        elif size < len(train):
            train = train.take(limit(train, size, seed=recipe.seed))
    return train, notes


def classes_left_out(train: Records, classes: tuple[str, ...], recipe: Recipe) -> list[str]:
    """What to say of classes that too small a draw has left without training texts."""
    absent = sorted(set(classes) - set(train.labels or ()))
    if len(absent) == len(classes) - 1:
        raise SettingError(
            f"data.limit is {recipe.data.limit}, which leaves training texts of one class only, so there is nothing to "
            f"tell apart; set {8 * len(classes)} or more, or data.per_class = 8 instead."
        )
    if not absent:
        return []
    return [
        f"data.limit is {recipe.data.limit}, which leaves {len(absent)} of {len(classes)} classes without a training "
        f"text to learn from: {_first(absent)}; data.per_class draws texts of each class"
    ]


def _first(names: Sequence[str]) -> str:
    return ", ".join(names[:5]) + (" ..." if len(names) > 5 else "")
