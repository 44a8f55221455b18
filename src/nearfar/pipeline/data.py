"""The data of a run: read, checked against each other, split where a share was asked for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from nearfar.data import (
    SIZES,
    Layout,
    Records,
    RowType,
    compare,
    contradictions,
    contradictions_message,
    holdout,
    limit,
    pair_targets,
    per_class,
    read,
    read_memory,
    row_type_of,
    score_range,
    target_problems,
    without_contradictions,
)
from nearfar.errors import MEMORY, DataError, Problem, SettingError, counted
from nearfar.recipe import Data, Objective, Recipe
from nearfar.recipe.objectives import parts_of

AUTO_ROWS = 1_000
"""From this many rows on, ``dev = "auto"`` sets a share aside."""
AUTO_SHARE = 0.1


@dataclass(frozen=True)
class RunData:
    """Training, dev and test rows, what they are for, and the classes they are about."""

    train: Records
    dev: Records | None
    test: Records | None
    classes: tuple[str, ...]
    notes: tuple[str, ...]
    row_type: RowType = RowType.LABELED

    def row_type_of(self, records: Records) -> RowType:
        """What these rows are: pairs may be measured on rows of another type than they are trained on."""
        if self.row_type.has_classes or records is self.train:
            return self.row_type
        found = row_type_of(records, pairwise=True)
        assert not isinstance(found, Problem)
        return found

    @property
    def measured(self) -> RowType:
        """What the rows are that choose the best weights."""
        return self.row_type if self.dev is None else self.row_type_of(self.dev)

    def fingerprint(self) -> str:
        """What a resumed run must find unchanged."""
        return " ".join(part.fingerprint() for part in (self.train, self.dev, self.test) if part is not None)


def layout_of(recipe: Recipe) -> Layout:
    """The columns a recipe names."""
    data = recipe.data
    return Layout(
        text=data.text, pair=data.pair, label=data.label, score=data.score, columns=data.columns,
        negative=data.negative, query_id=data.query_id, doc_id=data.doc_id,
    )  # fmt: skip


def in_memory(table: Data, rows: Mapping[str, object]) -> Data:
    """The data table of a recipe, with rows in memory by their names (``memory:train``) in place of its files."""
    names = {name.rpartition("/")[2].removeprefix(MEMORY): name for name in rows}
    return replace(
        table,
        train=names.get("train", table.train),
        dev=names.get("dev", table.dev),
        test=names.get("test", table.test),
    )


def read_rows(
    source: str, recipe: Recipe, memory: Mapping[str, object], *, need: Literal["label", "any"] = "any"
) -> Records:
    """The rows of a source, which is a file or is in memory, in the columns that the recipe names."""
    layout, invalid = layout_of(recipe), recipe.data.invalid
    if source in memory:
        return read_memory(memory[source], source, layout, invalid=invalid, need=need)
    return read(_from_here(source), layout, invalid=invalid, need=need)


def read_data(recipe: Recipe, memory: Mapping[str, object] | None = None, *, measured: bool = True) -> RunData:
    """Read and check everything a run needs; whatever is wrong is raised at once, over all files.

    Args:
        recipe: names the data.
        memory: rows in memory by their names in the recipe, as :func:`nearfar.data.named_splits` has them.
        measured: whether dev and test rows that no score can be had on are refused, too.
    """
    found = _Findings()
    train, files = _read_files(recipe, memory or {}, found)
    row_type = RowType.LABELED
    if train is not None:
        train, row_type = _checked(train, files, recipe, found, measured=measured)
    if found.problems:
        raise DataError(found.problems)
    assert train is not None
    for records in (train, *files.values()):
        found.add(told=() if records is None else records.notes, of=records)
    classes = train.classes() if row_type.has_classes else ()
    if row_type.has_classes and len(classes) < 2:
        raise DataError([_one_class(train)])
    train, dev, test = _shares(train, files, row_type, recipe, found)
    if measured and not row_type.has_classes and (wrong := _unmeasurable_shares(files, dev=dev, test=test)):
        raise DataError(wrong)
    train, told = _sampled(train, recipe)
    if measured and not row_type.has_classes:
        told += _alike(dev=dev, test=test)
    if row_type.has_classes:
        told += _left_out(train, classes, recipe)
    if row_type.views and len(set(train.texts[0])) < 2:
        raise DataError([_one_text(train)])
    if row_type.has_scores and (wrong := in_between(train, _objectives(recipe))):
        raise DataError(wrong)
    return RunData(train, dev, test, classes, (*found.notes, *told), row_type)


@dataclass
class _Findings:
    """What is wrong with the files of a run, and what is to be told about them."""

    problems: list[Problem] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def add(self, wrong: Iterable[Problem] = (), told: Iterable[str] = (), of: Records | None = None) -> None:
        """More of both; notes begin with the file that they are of."""
        self.problems.extend(wrong)
        self.notes.extend(told if of is None else (f"{of.source}: {note}" for note in told))


def _read_files(
    recipe: Recipe, memory: Mapping[str, object], found: _Findings
) -> tuple[Records | None, dict[str, Records | None]]:
    """The training rows, and the dev and test rows that have a source; None for one that cannot be read."""

    def attempt(source: str, need: Literal["label", "any"]) -> Records | None:
        try:
            return read_rows(source, recipe, memory, need=need)
        except DataError as error:
            found.add(error.problems)
            return None

    train = attempt(recipe.data.train, "label" if compares_pairs(recipe) is False else "any")
    named = {"dev": recipe.data.dev, "test": recipe.data.test}
    return train, {
        role: attempt(setting, "any")
        for role, setting in named.items()
        if isinstance(setting, str) and setting != "auto"
    }


def _checked(
    train: Records, files: Mapping[str, Records | None], recipe: Recipe, found: _Findings, *, measured: bool
) -> tuple[Records, RowType]:
    """The training rows without those that contradict others, and what they are for; files are held against them."""
    row_type = row_type_of(train, pairwise=compares_pairs(recipe), plain=views_suffice(recipe))
    if isinstance(row_type, Problem):
        found.add([row_type])
        return train, RowType.LABELED
    if not (row_type.has_classes or row_type.views):
        train, wrong = without_contradictions(train, invalid=recipe.data.invalid)
        found.add(wrong)
        found.add(*target_problems(train), of=train)
    for role, records in files.items():
        if records is not None:
            _check_beside(train, row_type, records, "dev" if role == "dev" else "test", found, measured=measured)
    return train, row_type


def _check_beside(
    train: Records,
    row_type: RowType,
    records: Records,
    role: Literal["dev", "test"],
    found: _Findings,
    *,
    measured: bool,
) -> None:
    """Whether rows can measure what training rows teach; pairs may be measured on pairs of another kind."""
    if not row_type.has_classes:
        other = row_type_of(records, pairwise=True)
        if isinstance(other, Problem):
            found.add([_not_comparable(records, role) if row_type.views else other])
            return
        found.add(unmeasurable(records) if measured else (), _unclear(records))
        if other is not row_type:
            return
    found.add(*compare(train, records, role, classes=row_type.has_classes))


def _shares(
    train: Records, files: Mapping[str, Records | None], row_type: RowType, recipe: Recipe, found: _Findings
) -> tuple[Records, Records | None, Records | None]:
    """Training, dev and test rows, after shares of the training rows have been set aside."""
    dev_setting, test_setting = recipe.data.dev, recipe.data.test
    if row_type.views and any(isinstance(part, float | int) and part > 0 for part in (dev_setting, test_setting)):
        raise SettingError(
            "plain texts have nothing to be measured by, so no share of them can be data.dev or data.test; "
            "name a file of scored pairs instead."
        )
    dev, test = files.get("dev"), files.get("test")
    if isinstance(test_setting, float | int) and test_setting > 0:
        train, test = _divide(train, test_setting, recipe.seed, "test")
    if dev_setting == "auto":
        dev_setting, told = _automatic_dev(train, row_type, recipe)
        found.add(told=told)
    if isinstance(dev_setting, float | int) and dev_setting > 0:
        train, dev = _divide(train, dev_setting, recipe.seed, "dev")
    return train, dev, test


def _automatic_dev(train: Records, row_type: RowType, recipe: Recipe) -> tuple[float, list[str]]:
    """The share of dev rows where none was asked for, and why there is none."""
    if row_type.views:
        return 0.0, [
            "no dev data: plain texts have nothing to be measured by, so the last weights are kept, better or "
            "worse than before; set data.dev (--dev) to a file of scored pairs to choose by"
        ]
    rows = len(_sampled(train, recipe)[0])
    if rows >= AUTO_ROWS:
        return AUTO_SHARE, []
    return 0.0, [
        f"no dev data: {rows:,} rows are fewer than {AUTO_ROWS:,}, so all of them train and the last "
        "weights are kept; set data.dev to choose by a dev score"
    ]


def compares_pairs(recipe: Recipe) -> bool | None:
    """Whether the objectives compare the two texts of a pair, each encoded by itself; None leaves it to the data."""
    reads = {objective.does.reads for objective in _objectives(recipe)} - {"any"}
    if "mixed" in reads or ("classes" in reads and len(reads) > 1):
        names = ", ".join(objective.name for objective in _objectives(recipe))
        raise SettingError(f"these objectives do not read the same kind of rows: {names}; keep to texts or to pairs.")
    return "classes" not in reads if reads else None


def views_suffice(recipe: Recipe) -> bool:
    """Whether all objectives can make pairs of single texts, by two views of each."""
    return all(objective.does.reads == "views" for objective in _objectives(recipe))


def _objectives(recipe: Recipe) -> list[Objective]:
    """The objectives of all stages."""
    return [stage.objective for stage in recipe.stage] or [recipe.objective]


def in_between(train: Records, objectives: Sequence[Objective]) -> list[Problem]:
    """What is wrong with scores for objectives that know positive and negative pairs only."""
    parts = [part for objective in objectives for part in parts_of(objective).values()]
    names = [part.name for part in parts if part.does.binary]
    if not names:
        return []
    low, high = score_range(train)
    found = [(score, line) for score, line in zip(train.scores or (), train.lines, strict=True) if low < score < high]
    if not found:
        return []
    scores = f"{counted(len(found), 'score lies', 'scores lie')} between {low:g} and {high:g}"
    return [
        Problem(
            train.source, f"{names[0]} takes a pair as positive or negative, and {scores}",
            "Label the pairs 1 or 0, or take an objective for scores: cosine-mse, pearson, or batch-softmax with its "
            "threshold.",
            line=found[0][1], value=f"{found[0][0]:g}",
        )
    ]  # fmt: skip


def unmeasurable(records: Records, named: str = "the file") -> list[Problem]:
    """Why pairs or a ranking can give no score: to be told before the training, and not after it."""
    ranked = records.shape == "ranking" and records.scores is not None
    if not ranked and row_type_of(records, pairwise=True) is not RowType.BINARY_PAIRS:
        return []
    try:
        targets = pair_targets(records)
    except DataError as error:
        return list(error.problems)
    problems = [*fractions(records), *_repeats(records)] if ranked else []
    if not any(targets):
        remedy = "Add pairs of texts that belong together (label or relevance 1), or measure on other rows."
        message = f"none of the {counted(len(records), 'pair')} of {named} belong together: there is nothing to find"
        problems.append(Problem(records.source, message, remedy, line=records.lines[0]))
    return problems


def fractions(records: Records) -> list[Problem]:
    """The rows of a ranking whose relevance is no grade."""
    message, remedy = "the relevance is not a whole number", "Map the grades to 0, 1, 2 and so on."
    return [
        Problem(records.source, message, remedy, line=line, value=f"{score:g}")
        for score, line in zip(records.scores or (), records.lines, strict=True)
        if not score.is_integer()
    ]


def _repeats(records: Records) -> list[Problem]:
    """The rows of a ranking whose document has stood there before for the same query."""
    first: dict[tuple[str, str], int] = {}
    problems: list[Problem] = []
    pairs = zip(records.queries or (), records.documents or (), strict=True)
    for pair, line, text in zip(pairs, records.lines, records.texts[1], strict=True):
        if first.setdefault(pair, line) != line:
            message = f"the document stands on line {first[pair]} already, for the same query"
            remedy = "Keep one row of each; without ids, documents that differ in case and blanks only are one."
            problems.append(Problem(records.source, message, remedy, line=line, value=text))
    return problems


def _unmeasurable_shares(files: Mapping[str, Records | None], **shares: Records | None) -> list[Problem]:
    """The same for rows that were set aside from the training rows; files were looked at when they were read."""
    return [
        problem
        for role, records in shares.items()
        if role not in files and records is not None and len(records)
        for problem in unmeasurable(records, f"the share set aside as {role} rows")
    ]


def _alike(**parts: Records | None) -> list[str]:
    """What to say of scored pairs that tell no model from another."""
    return [
        f"all scores of the {role} rows are {records.scores[0]:g}, so that their correlation is 0 whatever is learned"
        + ("; name other rows as data.dev (--dev), or the encoder stays as it is" if role == "dev" else "")
        for role, records in parts.items()
        if records is not None and records.shape == "pairs" and records.scores and len(set(records.scores)) == 1
    ]


def _sampled(train: Records, recipe: Recipe) -> tuple[Records, list[str]]:
    """Few of the training rows, where a recipe asks for so."""
    data, notes = recipe.data, list[str]()
    size = SIZES[data.limit] if isinstance(data.limit, str) else data.limit
    if data.per_class is not None:
        if train.labels is None:
            raise SettingError("data.per_class draws texts of each class, and these rows have none; use data.limit.")
        few = sorted(name for name, count in Counter(train.labels).items() if count < data.per_class)
        if few:
            shown = ", ".join(few[:5]) + (" ..." if len(few) > 5 else "")
            many = counted(len(few), "class has fewer texts and takes", "classes have fewer texts and take")
            notes.append(f"data.per_class is {data.per_class}, but {many} part with all of them: {shown}")
        train = train.take(per_class(train, data.per_class, seed=recipe.seed))
    if size is not None:
        if size > len(train):
            notes.append(f"data.limit is {size:,}, but there are only {len(train):,} training rows; all take part")
        elif size < len(train):
            train = train.take(limit(train, size, seed=recipe.seed))
    return train, notes


def _left_out(train: Records, classes: tuple[str, ...], recipe: Recipe) -> list[str]:
    """What to say of classes that too small a draw has left without training texts."""
    absent = sorted(set(classes) - set(train.labels or ()))
    if len(absent) == len(classes) - 1:
        raise SettingError(
            f"data.limit is {recipe.data.limit}, which leaves training texts of one class only, so there is nothing to "
            f"tell apart; set {8 * len(classes)} or more, or data.per_class = 8 instead."
        )
    if not absent:
        return []
    shown = ", ".join(absent[:5]) + (" ..." if len(absent) > 5 else "")
    return [
        f"data.limit is {recipe.data.limit}, which leaves {len(absent)} of {len(classes)} classes without a training "
        f"text to learn from: {shown}; data.per_class draws texts of each class"
    ]


def _from_here(source: str) -> str:
    """A file below the current folder by its short name, as messages should have it."""
    here = Path.cwd()
    return (
        str(Path(source).relative_to(here)) if source.startswith("/") and Path(source).is_relative_to(here) else source
    )


def class_numbers(records: Records, classes: tuple[str, ...]) -> NDArray[np.int64]:
    """(n,) the number of each row's class; a label that is not among them is refused with its line."""
    numbers = {name: number for number, name in enumerate(classes)}
    labels = records.labels or []
    problems = [
        Problem(
            records.source, "the model does not know this label", f"It knows: {', '.join(classes[:12])}.",
            line=line, value=label,
        )
        for label, line in zip(labels, records.lines, strict=True)
        if label not in numbers
    ]  # fmt: skip
    if problems:
        raise DataError(problems)
    return np.array([numbers[label] for label in labels], dtype=np.int64)


def _divide(records: Records, fraction: float, seed: int, name: str) -> tuple[Records, Records]:
    rest, chosen = holdout(records, fraction, seed=seed, name=name)
    return records.take(rest), records.take(chosen)


def _unclear(records: Records) -> list[str]:
    """Dev and test rows stay as they are, so that scores are comparable with those of others."""
    found = contradictions(records)
    told = "no model gets all of these rows right"
    return [f"{records.source}: {contradictions_message(records, found)}: {told}"] if found else []


def _one_class(records: Records) -> Problem:
    return Problem(
        records.source, "all rows have the same label, so there is nothing to tell apart",
        "Add rows of another class, or name another column with data.label (--label).",
        value=records.labels[0] if records.labels else None,
    )  # fmt: skip


def _one_text(records: Records) -> Problem:
    return Problem(
        records.source, "there is only one training text, and no other that it could be told from",
        "Give two different texts at least, and better thousands.", value=records.texts[0][0],
    )  # fmt: skip


def _not_comparable(records: Records, role: str) -> Problem:
    return Problem(
        records.source, f"the {role} rows of plain texts are pairs, and the file has single texts",
        f"Name a file of scored pairs, such as one of STS (data.{role}, or --{role}), or leave it out.",
        line=records.lines[0] if records.lines else None,
    )  # fmt: skip
