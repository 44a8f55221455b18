"""The tables of a study file, and their checks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

from nearfar.data import SIZES
from nearfar.data.row_types import Score
from nearfar.errors import Problem, RecipeError, did_you_mean
from nearfar.experiments.records import cell_name
from nearfar.recipe import Recipe, resolve_paths
from nearfar.recipe.keys import Key, KeyPath
from nearfar.recipe.reader import build_table

COLUMNS = ("text", "pair", "label", "score", "columns", "negative", "query_id", "doc_id")
"""Keys of a data set that name columns."""
LAYOUT = (*COLUMNS, "scale", "relevant", "label_separator", "label_columns", "large")
"""Keys of a data set that say how its files are read."""
ELSEWHERE = {"train": "file"} | {key: key for key in ("test", "corpus", *LAYOUT, "invalid")}
"""Keys of a recipe's data that a study states once for all contenders, and the keys of [[data]] for them."""
Size: TypeAlias = int | Literal["S", "M", "L", "XL"]
Untrained: TypeAlias = Literal["as-is", "whitening", "all-but-the-top"]
Values: TypeAlias = dict[str, Any]
"""Tables of a recipe, as TOML has them."""
Lines: TypeAlias = dict[KeyPath, int]


@dataclass(frozen=True, kw_only=True)
class StudyTable:
    """What is compared how often, and by which score."""

    name: Annotated[str, Key("What the study is called.")]
    seeds: Annotated[
        tuple[int, ...],
        Key(
            "The numbers that draw texts, folds and trainings, each for a round of its own.",
            at_least=0,
            at_most=2**31 - 1,
            distinct=True,
        ),
    ] = (2, 16, 128, 2048)
    folds: Annotated[
        int, Key("The parts of which each is tested on once; a data set with test has none.", at_least=1)
    ] = 5
    metric: Annotated[Literal["auto"] | Score, Key('The score that is compared; "auto" is what suits the data.')] = (
        "auto"
    )
    baseline: Annotated[str | None, Key("The contender all others are compared with; unset means the first.")] = None
    defaults: Annotated[
        Literal["equal", "own"],
        Key(
            'What recipes leave open: "equal" gives all contenders the same optimizer steps, batches, head and '
            'pooling, "own" gives each the defaults of its objective.'
        ),
    ] = "equal"
    runs: Annotated[
        Literal["all", "best"],
        Key(
            'Which runs count: all, or of the seeds of a fold only the run with the "best" dev score, as in papers '
            "that print the best of several runs."
        ),
    ] = "all"
    rare: Annotated[
        Literal["refuse", "keep"],
        Key("What to do with a class that has fewer texts than there are folds: some folds test without it."),
    ] = "refuse"


@dataclass(frozen=True, kw_only=True)
class DataTable:
    """Texts to compare the contenders on."""

    name: Annotated[str, Key("What tables call the data.")]
    file: Annotated[str, Key("The texts: a file, hub:NAME or sample:NAME; #SPLIT picks a split.")]
    test: Annotated[
        str | tuple[str, ...] | None,
        Key(
            "Rows to test on in place of folds, such as an official test set; for plain texts files of scored pairs, "
            "or a folder of them.",
            distinct=True,
        ),
    ] = None
    corpus: Annotated[
        str | None,
        Key("Texts to search for the right text of each pair; unset means the right texts of the test rows."),
    ] = None
    suite: Annotated[
        Literal["sts", "all"] | None,
        Key("Which files of a folder to test on, as nearfar evaluate --suite has it; unset means sts."),
    ] = None
    test_limit: Annotated[
        int | None, Key("Scored pairs of each file that are tested on, always the same; unset means all.", at_least=2)
    ] = None
    limit: Annotated[
        Size | tuple[Size, ...] | None,
        Key(
            "The texts that are used, drawn by the seed with the classes in proportion; a list compares several sizes. "
            "S, M, L and XL are 1,000, 4,000, 10,000 and all.",
            at_least=2,
            distinct=True,
        ),
    ] = None
    text: Annotated[str | None, Key("The column with the text.")] = None
    pair: Annotated[str | None, Key("The column with the second text.")] = None
    label: Annotated[str | None, Key("The column with the class.")] = None
    score: Annotated[str | None, Key("The column with a graded similarity.")] = None
    columns: Annotated[tuple[str, ...] | None, Key("The columns of a file without a header.", distinct=True)] = None
    label_separator: Annotated[
        str | None, Key("What separates the labels of a text in the label column, if a text has several.")
    ] = None
    label_columns: Annotated[
        tuple[str, ...] | None, Key("Columns of 0 and 1, one for each label, if a text has several.", distinct=True)
    ] = None
    negative: Annotated[str | None, Key("The column with the negative of a triplet.")] = None
    query_id: Annotated[str | None, Key("The column with the id of the query.")] = None
    doc_id: Annotated[str | None, Key("The column with the id of the document.")] = None
    scale: Annotated[tuple[float, ...] | None, Key("The lowest and the highest score or grade.")] = None
    relevant: Annotated[float | None, Key("The lowest grade of a relevant document, for ranking.", above=0)] = None
    invalid: Annotated[Literal["refuse", "drop"], Key("Whether rows that cannot be used stop the study.")] = "refuse"
    large: Annotated[bool, Key("Whether files are read whatever their size, as data.large of a recipe.")] = False


@dataclass(frozen=True, kw_only=True)
class Range:
    """Numbers between two ends."""

    low: Annotated[float | int, Key("The lowest.")]
    high: Annotated[float | int, Key("The highest.")]
    log: Annotated[bool, Key("Whether their logarithms are drawn evenly.")] = False


Choices: TypeAlias = tuple[str | int | float | bool | dict[str, float], ...] | Range
"""Values to choose from; a table sets several keys at once, such as the weights of a blend."""


@dataclass(frozen=True, kw_only=True)
class Search:
    """Settings that are chosen on the training texts of each fold; its test texts take no part."""

    method: Annotated[Literal["grid", "random", "tpe"], Key("How the points are chosen.")] = "tpe"
    trials: Annotated[int | None, Key("How many points; unset means 20, and for a grid all.", at_least=1)] = None
    folds: Annotated[int | None, Key("The inner folds a point is judged by; unset means 3.", at_least=2)] = None
    dev: Annotated[
        float | Literal["recipe"] | None,
        Key(
            "What points are judged by in place of inner folds: a share of the training texts, or the dev rows of the "
            '"recipe".',
            above=0,
            below=1,
        ),
    ] = None
    space: Annotated[
        dict[str, Choices],
        Key("Recipe keys to a list of values (numbers, strings or tables), or to { low, high, log }."),
    ]

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Search:
        """The search that ``dataclasses.asdict`` took apart."""
        space = {
            key: Range(**choices) if isinstance(choices, Mapping) else tuple(choices)
            for key, choices in values["space"].items()
        }
        return cls(**{**values, "space": space})


@dataclass(frozen=True, kw_only=True)
class Mined:
    """Negatives for positive pairs, mined by the pretrained encoder in each trial, as nearfar mine does."""

    rows: Annotated[
        Literal["pairs", "triplets"], Key("What is trained on: pairs with labels 1 and 0, or triplets.")
    ] = "triplets"
    positions: Annotated[
        Literal["window", "powers"],
        Key("The ranks of negatives: five drawn from 10 to 50, or the powers 101, 102, 104, 108 and so on."),
    ] = "window"
    oversample: Annotated[bool, Key("Whether positive pairs are repeated to be as many as negative ones.")] = False
    encoder: Annotated[str | None, Key("The encoder that ranks texts; unset means that of the contender.")] = None


@dataclass(frozen=True, kw_only=True)
class ContenderTable:
    """A way to train, under a name."""

    name: Annotated[str, Key("What tables call the contender.")]
    recipe: Annotated[
        str | None, Key("A recipe file to begin with; its rows, its limit and its seed do not count, its dev does.")
    ] = None
    untrained: Annotated[
        Untrained | None,
        Key(
            "What is tested in place of a training, on pairs, triplets or a ranking: the encoder as it is, or whitened "
            "by the training texts."
        ),
    ] = None
    random_letters: Annotated[
        bool, Key("Whether all letters of the plain texts are drawn anew, so that only their lengths are left.")
    ] = False
    mined: Annotated[
        Mined | None, Key("Negatives of positive pairs that are mined from the corpus, or from the right texts.")
    ] = None
    search: Annotated[Search | None, Key("Settings to choose on the training texts.")] = None


@dataclass(frozen=True, kw_only=True)
class StudyFile:
    """The whole file, but for the recipe that contenders share."""

    study: Annotated[StudyTable, Key("What is compared how often, and by which score.")]
    data: Annotated[tuple[DataTable, ...], Key("Texts to compare the contenders on.")]
    contender: Annotated[tuple[ContenderTable, ...], Key("Ways to train.")]


@dataclass(frozen=True)
class Contender:
    """A way to train: its recipe, without data and seed, and the lines of its keys in the file."""

    name: str
    values: Values
    """The shared recipe with ``changes`` on top."""
    changes: Values
    """What it says itself."""
    search: Search | None = None
    lines: Lines = field(default_factory=dict, repr=False)
    untrained: Untrained | None = None
    random_letters: bool = False
    mined: Mined | None = None


@dataclass(frozen=True)
class Study:
    """A study file, read and checked."""

    path: Path
    where: str
    settings: StudyTable
    data: tuple[DataTable, ...]
    contenders: tuple[Contender, ...]

    @property
    def baseline(self) -> str:
        """The contender that the others are compared with."""
        return self.settings.baseline or self.contenders[0].name

    def recipe(self, contender: Contender, settings: Mapping[str, object] | None = None) -> Recipe:
        """The checked recipe of a contender at a point of its search, on data that is still to be put in."""
        values = contender.values
        for key, value in (settings or {}).items():
            values = with_key(values, key, value)
        data = values.get("data", {})
        data = {**data, "train": "-"} if isinstance(data, dict) else data  # what is no table is refused as such
        recipe: Recipe = build_table(Recipe, {**values, "data": data}, where=self.where, lines=dict(contender.lines))
        return resolve_paths(recipe, self.path.absolute().parent)


def sizes_of(table: DataTable) -> tuple[int | None, ...]:
    """The limits of a data set as numbers; None for all rows."""
    limits = table.limit if isinstance(table.limit, tuple) else (table.limit,)
    return tuple(dict.fromkeys(SIZES[size] if isinstance(size, str) else size for size in limits))


def with_key(values: Mapping[str, Any], key: str, value: object) -> Values:
    """The values with one dotted key set.

    >>> with_key({"training": {"epochs": 3}}, "training.warmup", 0.1)
    {'training': {'epochs': 3, 'warmup': 0.1}}
    """
    first, _, rest = key.partition(".")
    inner = values.get(first)
    return {**values, first: with_key(inner if isinstance(inner, Mapping) else {}, rest, value) if rest else value}


def with_paths(values: Mapping[str, Any], recipe: Recipe) -> Values:
    """The values of a recipe, but with the paths that it was resolved to: folders of encoders, and a dev file."""
    resolved = {**values}
    if "name" in values.get("encoder", {}):
        resolved["encoder"] = {**values["encoder"], "name": recipe.encoder.name}
    if isinstance(values.get("data", {}).get("dev"), str):
        resolved["data"] = {**values["data"], "dev": recipe.data.dev}
    if "objective" in values:
        resolved["objective"] = _with_folders(values["objective"], recipe.objective)
    if "stage" in values:
        resolved["stage"] = [
            table | {key: _with_folders(value, stage.objective) for key, value in table.items() if key == "objective"}
            for table, stage in zip(values["stage"], recipe.stage, strict=True)
        ]
    return resolved


def _with_folders(values: Mapping[str, Any], objective: Any) -> Values:
    """The values of an objective, and of the parts of a blend, with the folder of its weighting encoder."""
    resolved = {**values}
    if "weighting" in values:
        resolved["weighting"] = objective.weighting
    if "parts" in values:
        resolved["parts"] = {name: _with_folders(part, objective.parts[name]) for name, part in values["parts"].items()}
    return resolved


@dataclass
class Problems:
    """What is wrong with a file."""

    where: str
    lines: Lines
    entries: list[Problem] = field(default_factory=list)

    def add(self, message: str, remedy: str, *paths: KeyPath) -> None:
        """One more problem, on the line of the first of these keys that has one."""
        line = next((self.lines[path] for path in paths if self.lines.get(path)), None)
        self.entries.append(Problem(self.where, message, remedy, line))


def check_file(file: StudyFile, problems: Problems) -> None:
    """What is wrong with names, and with keys that do not fit each other."""
    _check_names("data", "data sets", [table.name for table in file.data], problems)
    known = [table.name for table in file.contender]
    _check_names("contender", "contenders", known, problems)
    _check_confusable(file.data, problems)
    baseline = file.study.baseline
    if baseline is not None and baseline not in known:
        remedy = f"Name one of {', '.join(map(repr, known))}.{did_you_mean(baseline, known)}"
        problems.add(f"no contender is called {baseline!r}", remedy, ("study", "baseline"))
    untested = next((table for table in file.data if table.test is None), None)
    if file.study.folds < 2 and untested is not None:
        message = f"study.folds must be at least 2: {untested.name!r} has no test, so its own folds are tested on"
        problems.add(message, f"Set more folds, or test in [[data]] {untested.name!r}.", ("study", "folds"))
    for place, table in enumerate(file.data):
        for key in ("suite", "test_limit"):
            if getattr(table, key) is not None and table.test is None:
                message = f"{key} of {table.name!r} is about scored pairs to test on, and there is no test"
                problems.add(message, f"Name them with test, or remove {key}.", ("data", place, key))
    if not file.study.seeds:
        problems.add("study.seeds is empty", "Try seeds = [2].", ("study", "seeds"))


def _check_names(kind: str, noun: str, names: list[str], problems: Problems) -> None:
    for place, name in enumerate(names):
        first = names.index(name)
        if first < place:
            line = problems.lines.get((kind, first, "name"))
            message = f"two {noun} are called {name!r} (the first is on line {line})"
            problems.add(message, "Rename one of them.", (kind, place, "name"))
    if not names:
        problems.add(f"there is no [[{kind}]]", f"Add one or more [[{kind}]] tables.")


def _check_confusable(tables: tuple[DataTable, ...], problems: Problems) -> None:
    """Data sets that tables would call the same, such as ``trec`` with a limit of 20 and one named ``trec 20``."""
    taken: dict[str, str] = {}
    for place, table in enumerate(tables):
        for size in sizes_of(table):
            shown = cell_name(table.name, size)
            if taken.setdefault(shown, table.name) != table.name:
                message = f"tables would call {taken[shown]!r} and {table.name!r} the same: {shown!r}, name and limit"
                problems.add(message, "Rename one of them.", ("data", place, "name"))


def check_contender(study: Study, contender: Contender) -> list[Problem]:
    """What is wrong with a contender's recipe, as it is and at every end of its search space."""
    problems, data = Problems(study.where, contender.lines), contender.values.get("data")
    for key in data if isinstance(data, dict) else ():
        if key in ELSEWHERE:
            message = f"data.{key} is not for a contender: all are compared on the same rows"
            problems.add(message, f"Write {ELSEWHERE[key]} in [[data]].", ("data", key))
    if problems.entries:
        return problems.entries
    try:
        dev = study.recipe(contender).data.dev
    except RecipeError as error:
        return list(error.problems)
    chooses = study.settings.runs == "best" or (contender.search is not None and contender.search.dev == "recipe")
    if dev == 0 and chooses and contender.untrained is None:
        what = 'study.runs is "best"' if study.settings.runs == "best" else 'search.dev is "recipe"'
        message = f"{what}, which chooses by dev rows, and {contender.name!r} has none"
        problems.add(message, "Set data.dev of its recipe, a share or a file.", ("data", "dev"), ("search",))
    if contender.untrained is not None:
        exclusive = {
            "objective": "objective" in contender.changes or "stage" in contender.changes,
            "search": contender.search is not None,
            "random_letters": contender.random_letters,
            "mined": contender.mined is not None,
        }
        for key in (key for key, stated in exclusive.items() if stated):
            message = f"{contender.name}: untrained and {key} exclude each other"
            problems.add(message, "Keep one.", (key,), ("untrained",))
    if contender.search is not None and not problems.entries:
        _check_search(study, contender, problems)
    return problems.entries


def _check_search(study: Study, contender: Contender, problems: Problems) -> None:
    search = contender.search
    assert search is not None

    def add(message: str, remedy: str, *keys: str) -> None:
        paths = (*(("search", "space", key) for key in keys), ("search", "space"), ("search",))
        problems.add(f"{contender.name}: {message}", remedy, *paths)

    if search.folds is not None and search.dev is not None:
        add("search.folds and search.dev exclude each other", "Keep one.")
    if not search.space:
        add("search.space is empty", "Name keys, or remove the search.")
    for key, choices in search.space.items():
        wrong = _wrong_choices(key, choices, search.method)
        if wrong is not None:
            add(f"search.space of {contender.name!r}: {key}{wrong[0]}", wrong[1], key)
            continue
        paths = (("search", "space", key), ("search", "space"), ("search",))
        line = next((contender.lines[path] for path in paths if contender.lines.get(path)), 0)
        placed = replace(contender, lines={**contender.lines, tuple(key.split(".")): line})
        for value in (choices.low, choices.high) if isinstance(choices, Range) else choices:
            try:
                study.recipe(placed, {key: value})
            except RecipeError as error:
                problems.entries += error.problems
    if not problems.entries and all(not isinstance(one, Range) and len(one) == 1 for one in search.space.values()):
        remedy = "Name more values, or write these into the contender and remove the search."
        add("search.space has a single point, so there is nothing to choose", remedy)


def _wrong_choices(key: str, choices: Choices, method: str) -> tuple[str, str] | None:
    """Why a key cannot be searched in these values, and what to do instead."""
    if key == "seed" or key.startswith(("data.", "stage")):
        return " cannot be searched", "Search settings of the training."
    if isinstance(choices, Range):
        if choices.low >= choices.high:
            return ": low is not below high", "Swap the two."
        if choices.log and choices.low <= 0:
            return ": log needs low above 0", "Raise low."
        if method == "grid":
            return ": a grid needs a list of values", 'List the values, or choose method = "random".'
        return None
    if not choices:
        return ": the list is empty", "Name a value."
    twice = [value for place, value in enumerate(choices) if value in choices[:place]]
    return (f": the list has {twice[0]!r} twice", "Name each value only once.") if twice else None
