"""The data of a run: read, checked against each other, split where a share was asked for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from nearfar.data import (
    SIZES,
    Layout,
    Records,
    RowType,
    columns_of,
    compare,
    contradictions,
    contradictions_message,
    fractions,
    held_out,
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
from nearfar.data.corpora import Corpus, judge, read_corpus
from nearfar.errors import MEMORY, DataError, Problem, SettingError, counted, unit_of
from nearfar.recipe import Data, Objective, Recipe
from nearfar.recipe.objectives import parts_of


def graded_problems(train: Records, objectives: Sequence[Objective]) -> list[Problem]:
    """What is wrong with graded scores for objectives that know positive and negative pairs only."""
    parts = [part for objective in objectives for part in parts_of(objective).values()]
    names = [part.name for part in parts if part.does.binary]
    low, high = score_range(train)
    between = [(score, line) for score, line in zip(train.scores or (), train.lines, strict=True) if low < score < high]
    if not names or not between:
        return []
    score, line = between[0]
    scores = f"{counted(len(between), 'score lies', 'scores lie')} between {low:g} and {high:g}"
    message = f"{names[0]} takes a pair as positive or negative, and {scores}"
    remedy = (
        "Label the pairs 1 or 0, or take an objective for scores: cosine-mse, pearson, or batch-softmax with its "
        "threshold."
    )
    return [Problem(train.source, message, remedy, line=line, value=f"{score:g}")]


def unmeasurable(records: Records, named: str = "the file") -> list[Problem]:
    """Why pairs or a ranking can give no score: to be reported before the training, not after it."""
    ranked = records.shape == "ranking" and records.scores is not None
    if not ranked and row_type_of(records, pairwise=True) is not RowType.BINARY_PAIRS:
        return []
    try:
        targets = pair_targets(records)
    except DataError as error:
        return list(error.problems)
    problems = [*fractions(records), *_repeats(records)] if ranked else []
    if not any(targets):
        remedy = "Add positive pairs (label or relevance 1), or measure on other rows."
        message = f"none of the {counted(len(records), 'pair')} of {named} is positive: there is nothing to find"
        problems.append(Problem(records.source, message, remedy, line=records.lines[0]))
    return problems


def unmeasurable_shares(shares: Mapping[str, Records | None]) -> list[Problem]:
    """The same for dev and test rows that were set aside from the training rows."""
    return [
        problem
        for role, records in shares.items()
        if records is not None and len(records)
        for problem in unmeasurable(records, f"the share set aside as {role} rows")
    ]


def _repeats(records: Records) -> list[Problem]:
    """The rows of a ranking whose document occurs before for the same query."""
    first: dict[tuple[str, str], int] = {}
    problems: list[Problem] = []
    pairs = zip(records.queries or (), records.documents or (), strict=True)
    for pair, line, text in zip(pairs, records.lines, records.texts[1], strict=True):
        if first.setdefault(pair, line) != line:
            message = f"the document is on {unit_of(records.source)} {first[pair]} already, for the same query"
            remedy = "Keep one row of each; without ids, documents that differ in case and blanks only are one."
            problems.append(Problem(records.source, message, remedy, line=line, value=text))
    return problems


def constant_scores(**parts: Records | None) -> list[str]:
    """What to say of scored pairs that tell no model from another."""
    return [
        f"all scores of the {role} rows are {records.scores[0]:g}, so that their correlation is 0 whatever is learned"
        + ("; name other rows as data.dev (--dev), or the pretrained encoder is kept" if role == "dev" else "")
        for role, records in parts.items()
        if records is not None and records.shape == "pairs" and records.scores and len(set(records.scores)) == 1
    ]


AUTO_ROWS = 1_000
"""From this many rows on, ``dev = "auto"`` sets a share aside."""
AUTO_SHARE = 0.1
AUTO_MOST = 10_000
"""Rows that ``dev = "auto"`` sets aside at most: more tell models hardly better apart, and take long to evaluate."""


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
        return min(AUTO_SHARE, AUTO_MOST / rows), []
    return 0.0, [
        f"no dev data: {rows:,} rows are fewer than {AUTO_ROWS:,}, so all of them train and the last "
        "weights are kept; set data.dev (--dev 0.2) to choose by a dev score"
    ]


def _divide(records: Records, fraction: float, seed: int, name: str) -> tuple[Records, Records]:
    held = held_out(records, fraction, seed=seed, name=name)
    return records.take(np.flatnonzero(~held)), records.take(np.flatnonzero(held))


def draw(train: Records, recipe: Recipe) -> tuple[Records, list[str]]:
    """The training rows that data.limit and data.per_class leave, and notes."""
    data, notes = recipe.data, list[str]()
    size = SIZES[data.limit] if isinstance(data.limit, str) else data.limit
    if data.per_class is not None:
        if not train.is_labeled:
            raise SettingError("data.per_class draws texts of each class, and these rows have none; use data.limit.")
        few = sorted(name for name, count in class_sizes(train).items() if count < data.per_class)
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
    absent = sorted(set(classes) - class_sizes(train).keys())
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


def class_sizes(records: Records) -> Counter[str]:
    """How many rows each class has; a row with several labels counts for each of them."""
    return Counter(records.labels or (label for labels in records.label_sets or () for label in labels))


def _first(names: Sequence[str]) -> str:
    return ", ".join(names[:5]) + (" ..." if len(names) > 5 else "")


@dataclass(frozen=True)
class RunData:
    """Training, dev and test rows, what they are, and the names of their classes."""

    train: Records
    dev: Records | None
    test: Records | None
    classes: tuple[str, ...]
    notes: tuple[str, ...]
    row_type: RowType = RowType.LABELED
    corpus: Corpus | None = None
    """What dev and test rows are searched for in; None: the right texts of these rows."""
    names: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The descriptions of classes that may join the training, by their labels."""
    pseudo: int = 0
    """How many of the last training rows have no label of their own, but one that a first model gave them."""

    @property
    def labeled(self) -> Records:
        """The training rows with labels of their own."""
        return self.train.take(range(len(self.train) - self.pseudo)) if self.pseudo else self.train

    def row_type_of(self, records: Records) -> RowType:
        """What these rows are: pairs may be measured on rows of another type than they are trained on."""
        if self.row_type.has_head or records is self.train:
            return self.row_type
        row_type = row_type_of(records, pairwise=True)
        assert not isinstance(row_type, Problem)
        return row_type

    @property
    def measured(self) -> RowType:
        """What the rows are measured as that choose the best weights: a search is measured as a ranking."""
        if self.corpus is not None:
            return RowType.RANKING
        return self.row_type if self.dev is None else self.row_type_of(self.dev)

    def fingerprint(self) -> str:
        """What a resumed run must find unchanged."""
        parts = (self.train, self.dev, self.test, self.corpus)
        return " ".join(part.fingerprint() for part in parts if part is not None)


COLUMNS = ("text", "pair", "label", "score", "negative", "query_id", "doc_id")
"""The keys of a recipe that name a column."""


def layout_of(recipe: Recipe) -> Layout:
    """The columns a recipe names."""
    return Layout(**{column.name: getattr(recipe.data, column.name) for column in fields(Layout)})


def in_memory(table: Data, rows: Mapping[str, object]) -> Data:
    """The data table of a recipe, with rows in memory by their names (``memory:train``) in place of its files."""
    names = {name.rpartition("/")[2].removeprefix(MEMORY): name for name in rows}
    return replace(
        table,
        train=names.get("train", table.train),
        dev=names.get("dev", table.dev),
        test=names.get("test", table.test),
        unlabeled=names.get("unlabeled", table.unlabeled),
    )


def read_rows(
    source: str, recipe: Recipe, memory: Mapping[str, object], *, need: Literal["label", "any"] = "any"
) -> Records:
    """The rows of a source, which is a file or is in memory, in the columns that the recipe names.

    Dev and test files may be of another kind: where one lacks a column that the recipe names, its columns are
    recognized by their usual names.
    """
    layout, invalid = layout_of(recipe), recipe.data.invalid
    if source != recipe.data.train:
        layout = replace(layout, weight=None)  # training rows alone are weighted
    if source in memory:
        return read_memory(memory[source], source, layout, invalid=invalid, need=need)
    source = from_here(source)
    if source != from_here(recipe.data.train) and source != "-" and not layout.columns:
        named = {name for key in COLUMNS if (name := getattr(layout, key)) is not None}
        known = columns_of(source, layout) if named else set()
        if known and not known >= named:
            layout = Layout(encoding=layout.encoding, max_chars=layout.max_chars, large=layout.large, disk=layout.disk)
    return read(source, layout, invalid=invalid, need=need)


def read_data(recipe: Recipe, memory: Mapping[str, object] | None = None, *, measured: bool = True) -> RunData:
    """Read and check everything a run needs; whatever is wrong is raised at once, over all files.

    Args:
        recipe: names the data.
        memory: rows in memory by their names in the recipe, as :func:`nearfar.data.named_splits` has them.
        measured: whether dev and test rows that no score can be had on are refused, too.
    """
    issues = _Issues()
    train, files = _read_files(recipe, memory or {}, issues)
    corpus = _read_corpus(recipe, issues)
    row_type = RowType.LABELED
    if train is not None:
        train, row_type = _checked(train, files, recipe, issues, measured=measured)
    issues.refuse()
    assert train is not None
    for records in (train, *files.values()):
        issues.add(notes=() if records is None else records.notes, of=records)
    classes = train.classes() if row_type.has_classes else ()
    if row_type.has_classes and len(classes) < 2:
        raise DataError([_one_class(train)])
    train, dev, test, notes = set_aside(train, files, row_type, recipe)
    issues.add(notes=notes)
    if row_type.has_text_scores and len(set(train.scores or ())) < 2:
        raise DataError([_one_score(train)])
    compared = measured and not row_type.has_head
    shares = {role: part for role, part in (("dev", dev), ("test", test)) if role not in files}
    issues.add(unmeasurable_shares(shares) if compared else ())
    if corpus is not None:
        issues.add(notes=corpus.notes)
        issues.add(*_searchable((dev, test), corpus, row_type, recipe))
    if recipe.data.positives_only:
        train, notes = _positives(train, row_type)
        issues.add(notes=notes)
    train, notes = draw(train, recipe)
    issues.add(graded_problems(train, _objectives(recipe)) if row_type.has_scores else (), notes)
    issues.add(notes=constant_scores(dev=dev, test=test) if compared else ())
    issues.add(notes=classes_left_out(train, classes, recipe) if row_type.has_classes else ())
    if row_type.views and all(text == train.texts[0][0] for text in train.texts[0]):
        issues.add([_one_text(train)])
    issues.refuse()
    return RunData(train, dev, test, classes, tuple(issues.notes), row_type, corpus)


@dataclass
class _Issues:
    """Problems and notes about the files of a run."""

    problems: list[Problem] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def add(self, problems: Iterable[Problem] = (), notes: Iterable[str] = (), of: Records | None = None) -> None:
        """Notes begin with the file that they are of."""
        self.problems.extend(problems)
        self.notes.extend(notes if of is None else (f"{of.source}: {note}" for note in notes))

    def refuse(self) -> None:
        """Raise the problems, if there are any."""
        if self.problems:
            raise DataError(self.problems)


def _read_files(
    recipe: Recipe, memory: Mapping[str, object], issues: _Issues
) -> tuple[Records | None, dict[str, Records | None]]:
    """The training rows, and the dev and test rows that have a source; None for one that cannot be read."""

    def attempt(source: str, need: Literal["label", "any"]) -> Records | None:
        try:
            return read_rows(source, recipe, memory, need=need)
        except DataError as error:
            issues.add(error.problems)
            return None

    train = attempt(recipe.data.train, "label" if compares_pairs(recipe) is False else "any")
    named = {"dev": recipe.data.dev, "test": recipe.data.test}
    return train, {
        role: attempt(setting, "any")
        for role, setting in named.items()
        if isinstance(setting, str) and setting != "auto"
    }


def _read_corpus(recipe: Recipe, issues: _Issues) -> Corpus | None:
    """The texts to search, if the recipe names some that can be read."""
    if recipe.data.corpus is None:
        return None
    try:
        return read_corpus(from_here(recipe.data.corpus), invalid=recipe.data.invalid, large=recipe.data.large)
    except DataError as error:
        issues.add(error.problems)
        return None


def _searchable(
    parts: Iterable[Records | None], corpus: Corpus, row_type: RowType, recipe: Recipe
) -> tuple[list[Problem], list[str]]:
    """Why dev and test rows cannot be searched for in a corpus, and what should be known about that."""
    if row_type.has_head:
        has = "classes" if row_type.has_classes else "scores"
        raise SettingError(f"data.corpus is searched for the right texts of pairs, and these rows have {has}.")
    problems, notes = list[Problem](), list[str]()
    for records in parts:
        try:
            notes += judge(records, corpus, invalid=recipe.data.invalid).notes if records is not None else ()
        except DataError as error:
            problems += error.problems
    return problems, notes


def _positives(train: Records, row_type: RowType) -> tuple[Records, list[str]]:
    """The training rows that are positive pairs, and how many are not."""
    if row_type.has_head or row_type.has_scores or row_type.views:
        raise SettingError(f"data.positives_only keeps positive pairs, and these are {row_type.wording}; leave it out.")
    kept = [place for place, target in enumerate(pair_targets(train)) if target]
    left_out = len(train) - len(kept)
    return train.take(kept), [f"data.positives_only leaves out {counted(left_out, 'negative pair')}"]


def _unsuitable(train: Records, recipe: Recipe) -> list[Problem]:
    """Keys about scores and grades that training rows do not have."""
    problems = []
    if recipe.data.scale is not None and train.scores is None:
        remedy = "Leave it out, or name the column with the scores: data.score (--score)."
        problems.append(Problem(train.source, "data.scale is the range of scores, and these rows have none", remedy))
    if recipe.data.relevant is not None and train.shape != "ranking":
        message = f"data.relevant is a grade of a ranking, and these rows are {train.shape}"
        problems.append(Problem(train.source, message, "Leave it out; a ranking has query ids and a relevance."))
    return problems


def _checked(
    train: Records, files: Mapping[str, Records | None], recipe: Recipe, issues: _Issues, *, measured: bool
) -> tuple[Records, RowType]:
    """The training rows without those that contradict others, and what they are; files are checked against them."""
    row_type = row_type_of(
        train, pairwise=compares_pairs(recipe), plain=views_suffice(recipe), scores=predicts_scores(recipe)
    )
    if isinstance(row_type, Problem):
        issues.add([row_type])
        return train, RowType.LABELED
    issues.add(_unsuitable(train, recipe))
    if not (row_type.has_head or row_type.views):
        train, problems = without_contradictions(train, invalid=recipe.data.invalid)
        issues.add(problems)
        issues.add(*target_problems(train), of=train)
    for role, records in files.items():
        if records is not None:
            part: Literal["dev", "test"] = "dev" if role == "dev" else "test"
            fits = row_type.has_head or _check_measured(row_type, records, part, issues, measured=measured)
            if fits:
                issues.add(*compare(train, records, part, classes=row_type.has_classes))
    return train, row_type


def _check_measured(row_type: RowType, records: Records, role: str, issues: _Issues, *, measured: bool) -> bool:
    """Check that rows can measure what pairs teach; whether they are of the same type as the training rows."""
    other = row_type_of(records, pairwise=True)
    if isinstance(other, Problem):
        if row_type.views:
            message = f"the {role} rows of plain texts are pairs, and the file has single texts"
            remedy = f"Name a file of scored pairs, such as one of STS (data.{role}, or --{role}), or leave it out."
            other = replace(other, message=message, remedy=remedy)
        issues.add([other])
        return False
    conflicts = contradictions(records)  # dev and test rows keep them, so that scores are comparable
    if conflicts:
        message = contradictions_message(records, conflicts)
        issues.add(notes=[f"{message}: no model gets all of these rows right"], of=records)
    issues.add(unmeasurable(records) if measured else ())
    return other is row_type


def _one_class(train: Records) -> Problem:
    if train.label_sets is not None:
        message = f"texts with several labels need two labels at least, and there are {len(train.classes())}"
        remedy = "Write texts with and without the label as two classes, or name another column with data.label."
        return Problem(train.source, message, remedy)
    message = "all rows have the same label, so there is nothing to tell apart"
    remedy = "Add rows of another class, or name another column with data.label (--label)."
    return Problem(train.source, message, remedy, value=train.labels[0] if train.labels else None)


def _one_score(train: Records) -> Problem:
    message = "all rows have the same score, so there is nothing to predict"
    remedy = "Add rows with other scores, or name another column with data.score (--score)."
    return Problem(train.source, message, remedy, line=train.lines[0], value=f"{(train.scores or [0.0])[0]:g}")


def _one_text(train: Records) -> Problem:
    message = "there is only one training text, and no other that it could be told from"
    remedy = "Give two different texts at least, and better thousands."
    return Problem(train.source, message, remedy, value=train.texts[0][0])


def compares_pairs(recipe: Recipe) -> bool | None:
    """Whether the objectives compare the two texts of a pair, each encoded by itself; None leaves it to the data."""
    reads = {objective.does.reads for objective in _objectives(recipe)} - {"any"}
    heads = reads & {"classes", "text-scores"}
    if "mixed" in reads or (heads and len(reads) > 1):
        names = ", ".join(objective.name for objective in _objectives(recipe))
        raise SettingError(f"these objectives do not read the same kind of rows: {names}; keep to texts or to pairs.")
    return not heads if reads else None


def predicts_scores(recipe: Recipe) -> bool | None:
    """Whether the objectives predict the score of a text; None leaves it to the data."""
    reads = {objective.does.reads for objective in _objectives(recipe)} - {"any"}
    return "text-scores" in reads if reads else None


def views_suffice(recipe: Recipe) -> bool:
    """Whether all objectives can make pairs of single texts, by two views of each."""
    return all(objective.does.reads == "views" for objective in _objectives(recipe))


def _objectives(recipe: Recipe) -> list[Objective]:
    """The objectives of all stages."""
    return [stage.objective for stage in recipe.stage] or [recipe.objective]


def from_here(source: str) -> str:
    """A file below the current folder by its short name, as messages should have it."""
    here = Path.cwd()
    return (
        str(Path(source).relative_to(here)) if source.startswith("/") and Path(source).is_relative_to(here) else source
    )


def remedied(error: DataError, remedy: str) -> DataError:
    """The same problems; where the remedy is to name the columns of the labeled texts, this one takes its place.

    Args:
        error: of another source than the labeled texts.
        remedy: a sentence.
    """
    keys = ("data.text", "data.label")
    changed = [replace(one, remedy=remedy) if any(key in one.remedy for key in keys) else one for one in error.problems]
    return DataError(changed)


def class_numbers(records: Records, classes: tuple[str, ...], row_type: RowType = RowType.LABELED) -> NDArray[np.int64]:
    """(n,) the number of each row's class, or (n, c) which labels apply to a row that may have several.

    A label that is not among the classes is refused with its line.
    """
    numbers = {name: number for number, name in enumerate(classes)}
    labels = ((label,) for label in records.labels) if records.labels is not None else records.row_labels()
    message, remedy = "the model does not know this label", f"It knows: {', '.join(classes[:12])}."
    problems = [
        Problem(records.source, message, remedy, line=line, value=label)
        for names, line in zip(labels, records.lines, strict=True)
        for label in names
        if label not in numbers
    ]
    if problems:
        raise DataError(problems)
    if not row_type.multilabel:
        return np.fromiter((numbers[label] for label in records.labels or ()), dtype=np.int64)
    indicators = np.zeros((len(records), len(classes)), dtype=np.int64)
    for row, names in enumerate(records.row_labels()):
        indicators[row, [numbers[name] for name in names]] = 1
    return indicators
