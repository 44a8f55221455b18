"""The study file: which data, which contenders, which seeds and folds; or one RecipeError with all that is wrong.

::

    [study]
    name = "questions"
    seeds = [2, 16, 128, 2048]
    folds = 5

    [recipe.training]          # what all contenders share
    epochs = 5

    [[data]]
    name = "trec"
    file = "trec.jsonl"
    limit = 1000

    [[contender]]
    name = "cross-entropy"
    objective = { name = "cross-entropy" }

    [[contender]]
    name = "triple-entropy"
    [contender.objective]
    name = "triple-entropy"
    [contender.search]
    method = "tpe"
    trials = 20
    space = { "objective.beta" = [0.5, 0.7, 0.9] }
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

from nearfar.data import SIZES
from nearfar.errors import Problem, RecipeError, did_you_mean
from nearfar.experiments.records import cell_name
from nearfar.recipe import Override, Recipe, read_recipe, resolve_paths
from nearfar.recipe.aliases import present_names, present_override
from nearfar.recipe.keys import Key
from nearfar.recipe.literals import Path as KeyPath
from nearfar.recipe.literals import printable
from nearfar.recipe.parser import parse
from nearfar.recipe.reader import build_table

SHARED = "recipe"
RECIPE_TABLES = ("data", "encoder", "objective", "head", "batches", "training", "stage")
ELSEWHERE = {
    "train": "file in [[data]]", "test": "test in [[data]]", "text": "text in [[data]]", "pair": "pair in [[data]]",
    "label": "label in [[data]]", "score": "score in [[data]]", "columns": "columns in [[data]]",
    "negative": "negative in [[data]]", "query_id": "query_id in [[data]]", "doc_id": "doc_id in [[data]]",
    "invalid": "invalid in [[data]]",
}  # fmt: skip
"""Keys of a recipe's data that a study states once for all contenders."""

Size: TypeAlias = int | Literal["S", "M", "L", "XL"]
Untrained: TypeAlias = Literal["as-is", "whitening", "all-but-the-top"]
Values: TypeAlias = dict[str, Any]
Lines: TypeAlias = dict[KeyPath, int]


@dataclass(frozen=True, kw_only=True)
class StudyTable:
    """What is compared how often, and by which score."""

    name: Annotated[str, Key("What the study is called.")]
    seeds: Annotated[
        tuple[int, ...],
        Key("The numbers that draw texts, folds and trainings, each for a round of its own.", at_least=0,
            at_most=2**31 - 1, distinct=True),
    ] = (2, 16, 128, 2048)  # fmt: skip
    folds: Annotated[
        int, Key("The parts of which each is tested on once; a data set with test has none.", at_least=1)
    ] = 5  # fmt: skip
    metric: Annotated[
        Literal["auto", "accuracy", "f1_macro", "f1_weighted", "spearman", "pearson", "f1", "average_precision", "map",
                "mrr", "p@1", "ndcg@10", "has_positive@1", "has_positive@5"],
        Key('The score that is compared; "auto" is what suits the data.'),
    ] = "auto"  # fmt: skip
    baseline: Annotated[
        str | None, Key("The contender all others are compared with; unset means the first.")
    ] = None  # fmt: skip
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
    suite: Annotated[
        Literal["sts", "all"] | None,
        Key("Which files of a folder to test on, as nearfar evaluate --suite has it; unset means sts."),
    ] = None
    test_limit: Annotated[
        int | None, Key("Scored pairs of each file that are tested on, always the same; unset means all.", at_least=2)
    ] = None  # fmt: skip
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
    columns: Annotated[tuple[str, ...] | None, Key("The column names of a file without a header.", distinct=True)] = (
        None
    )
    negative: Annotated[str | None, Key("The column with the negative of a triplet.")] = None
    query_id: Annotated[str | None, Key("The column with the id of the query.")] = None
    doc_id: Annotated[str | None, Key("The column with the id of the document.")] = None
    invalid: Annotated[Literal["refuse", "drop"], Key("Whether rows that cannot be used stop the study.")] = "refuse"


@dataclass(frozen=True, kw_only=True)
class Range:
    """Numbers between two ends."""

    low: Annotated[float | int, Key("The lowest.")]
    high: Annotated[float | int, Key("The highest.")]
    log: Annotated[bool, Key("Whether their logarithms are drawn evenly.")] = False


Choices: TypeAlias = tuple[str | int | float | bool, ...] | Range


@dataclass(frozen=True, kw_only=True)
class Search:
    """Settings that are chosen on the training texts of each fold; its test texts take no part."""

    method: Annotated[Literal["grid", "random", "tpe"], Key("How the points are chosen.")] = "tpe"
    trials: Annotated[int | None, Key("How many points; unset means 20, and for a grid all.", at_least=1)] = None
    folds: Annotated[int | None, Key("The inner folds a point is judged by; unset means 3.", at_least=2)] = None
    dev: Annotated[
        float | None,
        Key("A share of the training texts to judge points by, in place of inner folds.", above=0, below=1),
    ] = None
    space: Annotated[dict[str, Choices], Key("Recipe keys to a list of values, or to { low, high, log }.")]

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Search:
        """The search that ``dataclasses.asdict`` took apart."""
        space = {
            key: Range(**choices) if isinstance(choices, Mapping) else tuple(choices)
            for key, choices in values["space"].items()
        }
        return cls(**{**values, "space": space})


@dataclass(frozen=True, kw_only=True)
class ContenderTable:
    """A way to train, under a name."""

    name: Annotated[str, Key("What tables call the contender.")]
    recipe: Annotated[
        str | None, Key("A recipe file to begin with; its rows, its limit and its seed do not count, its dev does.")
    ] = None  # fmt: skip
    untrained: Annotated[
        Untrained | None,
        Key(
            "What is tested in place of a training, where scored pairs are the test: the encoder as it is, or "
            "straightened by the texts."
        ),
    ] = None
    random_letters: Annotated[
        bool, Key("Whether all letters of the plain texts are drawn anew, so that only their lengths are left.")
    ] = False
    search: Annotated[Search | None, Key("Settings to choose on the training texts.")] = None


@dataclass(frozen=True, kw_only=True)
class _File:
    study: Annotated[StudyTable, Key("What is compared how often, and by which score.")]
    data: Annotated[tuple[DataTable, ...], Key("Texts to compare the contenders on.")]
    contender: Annotated[tuple[ContenderTable, ...], Key("Ways to train.")]


@dataclass(frozen=True)
class Contender:
    """A way to train: its recipe, without data and seed, and where that stands in the file."""

    name: str
    values: Values
    """The shared recipe with its own on top."""
    own: Values
    """What it says itself."""
    search: Search | None
    lines: Lines = field(repr=False)
    untrained: Untrained | None = None
    random_letters: bool = False


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
        """Whom the others are compared with."""
        return self.settings.baseline or self.contenders[0].name

    def recipe(self, contender: Contender, settings: Mapping[str, object] | None = None) -> Recipe:
        """The checked recipe of a contender at a point of its search, on data that is still to be put in."""
        values, lines = contender.values, dict(contender.lines)
        for key, value in (settings or {}).items():
            values = with_key(values, key, value)
        data = values.get("data", {})
        data = {**data, "train": "-"} if isinstance(data, dict) else data  # what is no table is refused as such
        recipe: Recipe = build_table(Recipe, {**values, "data": data}, where=self.where, lines=lines)
        return resolve_paths(recipe, self.path.absolute().parent)


def read_study(path: Path) -> Study:
    """Read a study file and check every recipe in it, at every end of its search space; nothing is run."""
    where = printable(str(path))
    values, lines = parse(_content(path, where), where)
    problems: list[Problem] = []
    shared = values.pop(SHARED, {})
    if not isinstance(shared, dict):
        problems.append(Problem(where, "recipe is a table", "Write [recipe.training] and so on.", lines.get((SHARED,))))
        shared = {}
    for kind in ("data", "contender"):
        values.setdefault(kind, [])  # that there is none is said below, in the words of a study
    tables = values["contender"]
    owns: list[tuple[Values, Lines]] = []
    for place, table in enumerate(tables if isinstance(tables, list) else ()):
        if isinstance(table, dict):
            _flatten_space(table, lines, ("contender", place, "search", "space"))
            owns.append(_own(table, lines, ("contender", place)))
    file: _File = build_table(_File, values, where=where, lines=lines)
    problems += _names(file, where, lines)
    base = path.absolute().parent
    common = (shared, {line[1:]: number for line, number in lines.items() if line[0] == SHARED and len(line) > 1})
    contenders = []
    for table, own in zip(file.contender, owns, strict=True):
        layers = [common, own]
        if table.recipe is not None:
            layers.insert(1, (_foreign((base / table.recipe).absolute()), {}))
        merged, found = _merged(layers)
        contenders.append(
            Contender(table.name, merged, own[0], table.search, found, table.untrained, table.random_letters)
        )
    study = Study(path, where, file.study, file.data, tuple(contenders))
    study = replace(study, contenders=tuple(_with_fractions(study, each) for each in contenders))
    for contender in study.contenders:
        problems += _check(study, contender)
    if problems:
        unique = dict.fromkeys(problems)
        raise RecipeError(sorted(unique, key=lambda problem: (problem.line is None, problem.line or 0)))
    return study


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
    told = {**values}
    if "name" in told.get("encoder", {}):
        told["encoder"] = {**told["encoder"], "name": recipe.encoder.name}
    if isinstance(told.get("data", {}).get("dev"), str):
        told["data"] = {**told["data"], "dev": recipe.data.dev}
    if "objective" in told:
        told["objective"] = _with_folders(told["objective"], recipe.objective)
    if "stage" in told:
        told["stage"] = [
            {**table, **({"objective": _with_folders(own, stage.objective)} if (own := table.get("objective")) else {})}
            for table, stage in zip(told["stage"], recipe.stage, strict=True)
        ]
    return told


def _with_folders(values: Mapping[str, Any], objective: Any) -> Values:
    """The values of an objective, and of the parts of a blend, with the folder of its own encoder."""
    told = {**values}
    if "weighting" in told:
        told["weighting"] = objective.weighting
    if "parts" in told:
        told["parts"] = {name: _with_folders(part, objective.parts[name]) for name, part in told["parts"].items()}
    return told


def _content(path: Path, where: str) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        problem = Problem(where, "there is no such file", "Name a study file, such as study.toml.")
    except IsADirectoryError:
        problem = Problem(where, "this is a folder", "Name the study file; 'nearfar study show' takes a folder.")
    except OSError as error:
        problem = Problem(where, f"the file cannot be read: {error.strerror}", "Name a study file, such as study.toml.")
    raise RecipeError([problem])


def _own(table: Values, lines: Lines, path: KeyPath) -> tuple[Values, Lines]:
    """Take the recipe tables out of a contender, with their lines."""
    own = {name: table.pop(name) for name in RECIPE_TABLES if name in table}
    depth = len(path)
    return own, {line[depth:]: number for line, number in lines.items() if line[:depth] == path and len(line) > depth}


def _flatten_space(table: Values, lines: Lines, path: KeyPath) -> None:
    """``objective.beta = [...]`` without quotes is a table in a table; a search has dotted keys."""
    search = table.get("search")
    space = search.get("space") if isinstance(search, dict) else None
    if not isinstance(space, dict):
        return
    flat: Values = {}

    def visit(values: Values, keys: tuple[str, ...]) -> None:
        for name, value in values.items():
            inner = (*keys, name)
            if isinstance(value, dict) and not {"low", "high", "log"} & value.keys():
                visit(value, inner)
            else:
                key = ".".join(present_override(Recipe, Override(inner, None, "")).path)
                flat[key] = value
                lines.setdefault((*path, key), lines.get((*path, *inner), 0))

    visit(space, ())
    assert isinstance(search, dict)
    search["space"] = flat


def _foreign(path: Path) -> Values:
    """The values of a recipe file that a contender begins with; its paths count from its own folder."""
    import tomllib

    recipe = resolve_paths(read_recipe(path), path.parent)  # says what is wrong in that file
    values = with_paths(tomllib.loads(path.read_text(encoding="utf-8-sig")), recipe)
    values.pop("seed", None)
    data = {key: value for key, value in values.pop("data", {}).items() if key not in ELSEWHERE and key != "limit"}
    return {**values, "data": data} if data else values


def _merged(layers: list[tuple[Values, Lines]]) -> tuple[Values, Lines]:
    """Later layers over earlier ones, table by table; another objective, or stages, replace what was there."""
    values: Values = {}
    lines: Lines = {}
    for layer, found in layers:
        layer, found, _ = present_names(Recipe, layer, found)  # one layer may have a key under its former name
        if "objective" in layer and "stage" not in layer:  # stages would be trained in place of it
            values.pop("stage", None)
            lines = {path: line for path, line in lines.items() if path[0] != "stage"}
        for name, table in layer.items():
            before = values.get(name)
            other = name == "objective" and isinstance(table, dict) and "name" in table
            if not (isinstance(before, dict) and isinstance(table, dict)) or (
                other and table["name"] != before.get("name", table["name"])
            ):
                values[name] = table
                lines = {path: line for path, line in lines.items() if path[0] != name}
            else:
                values[name] = {**before, **table}
        lines.update(found)
    return values, lines


def _names(file: _File, where: str, lines: Lines) -> list[Problem]:
    problems = []
    called = {"data": [table.name for table in file.data], "contender": [table.name for table in file.contender]}
    for kind, names in called.items():
        for place, name in enumerate(names):
            first = names.index(name)
            if first < place:
                what = "data sets" if kind == "data" else "contenders"
                told = f"two {what} are called {name!r} (the first is on line {lines.get((kind, first, 'name'))})"
                problems.append(Problem(where, told, "Rename one of them.", lines.get((kind, place, "name"))))
        if not names:
            problems.append(Problem(where, f"there is no [[{kind}]]", f"Add one or more [[{kind}]] tables."))
    problems += _confusable(file.data, where, lines)
    known, baseline = called["contender"], file.study.baseline
    if baseline is not None and baseline not in known:
        remedy = f"Name one of {', '.join(map(repr, known))}.{did_you_mean(baseline, known)}"
        line = lines.get(("study", "baseline"))
        problems.append(Problem(where, f"no contender is called {baseline!r}", remedy, line))
    endless = next((table for table in file.data if table.test is None), None)
    if file.study.folds < 2 and endless is not None:
        message = f"study.folds must be at least 2: {endless.name!r} has no test, so its own folds are tested on"
        line = lines.get(("study", "folds"))
        problems.append(Problem(where, message, f"Set more folds, or test in [[data]] {endless.name!r}.", line))
    for place, table in enumerate(file.data):
        for key in ("suite", "test_limit"):
            if getattr(table, key) is not None and table.test is None:
                message = f"{key} of {table.name!r} is about scored pairs to test on, and there is no test"
                remedy = f"Name them with test, or remove {key}."
                problems.append(Problem(where, message, remedy, lines.get(("data", place, key))))
    if not file.study.seeds:
        problems.append(Problem(where, "study.seeds is empty", "Try seeds = [2].", lines.get(("study", "seeds"))))
    return problems


def _confusable(tables: tuple[DataTable, ...], where: str, lines: Lines) -> list[Problem]:
    """Data sets that tables would call the same, such as ``trec`` with a limit of 20 and one named ``trec 20``."""
    problems, taken = [], dict[str, str]()
    for place, table in enumerate(tables):
        for size in sizes_of(table):
            shown = cell_name(table.name, size)
            if taken.setdefault(shown, table.name) != table.name:
                message = f"tables would call {taken[shown]!r} and {table.name!r} the same: {shown!r}, name and limit"
                problems.append(Problem(where, message, "Rename one of them.", lines.get(("data", place, "name"))))
    return problems


def sizes_of(table: DataTable) -> tuple[int | None, ...]:
    """The limits of a data set as numbers; None for all rows."""
    given = table.limit if isinstance(table.limit, tuple) else (table.limit,)
    return tuple(dict.fromkeys(SIZES[size] if isinstance(size, str) else size for size in given))


def _with_fractions(study: Study, contender: Contender) -> Contender:
    """The contender with its ranges as they are meant: from 0 to 1 there are fractions, where a key takes them."""
    if contender.search is None:
        return contender

    def meant(key: str, choices: Choices) -> Any:
        if not (isinstance(choices, Range) and isinstance(choices.low, int) and isinstance(choices.high, int)):
            return choices
        try:
            study.recipe(contender, {key: choices.low + 0.5})
        except RecipeError:
            return choices
        return replace(choices, low=float(choices.low), high=float(choices.high))

    space = {key: meant(key, choices) for key, choices in contender.search.space.items()}
    return replace(contender, search=replace(contender.search, space=space))


def _check(study: Study, contender: Contender) -> list[Problem]:
    """What is wrong with a contender's recipe, as it stands and at every end of its search space."""
    problems: list[Problem] = []
    for key in contender.values.get("data", {}) if isinstance(contender.values.get("data"), dict) else ():
        if key in ELSEWHERE:
            line = contender.lines.get(("data", key))
            message = f"data.{key} is not for a contender: all are compared on the same rows"
            problems.append(Problem(study.where, message, f"Write {ELSEWHERE[key]}.", line))
    if problems:
        return problems
    try:
        study.recipe(contender)
    except RecipeError as error:
        return list(error.problems)
    problems += _check_untrained(study, contender)
    search = contender.search
    if search is None or problems:
        return problems
    if search.folds is not None and search.dev is not None:
        problems.append(
            _search_problem(study, contender, "search.folds and search.dev exclude each other", "Keep one.")
        )
    if not search.space:
        problems.append(_search_problem(study, contender, "search.space is empty", "Name keys, or remove the search."))
    for key, choices in search.space.items():
        problems += _check_choices(study, contender, key, choices)
    lists = [choices for choices in search.space.values() if not isinstance(choices, Range)]
    if not problems and len(lists) == len(search.space) and all(len(choices) == 1 for choices in lists):
        message = "search.space has a single point, so there is nothing to choose"
        remedy = "Name more values, or write these into the contender and remove the search."
        problems.append(_search_problem(study, contender, message, remedy))
    return problems


def _check_untrained(study: Study, contender: Contender) -> list[Problem]:
    """Settings of a training that there is none of."""
    if contender.untrained is None:
        return []
    said = {
        "objective": "objective" in contender.own or "stage" in contender.own, "search": contender.search is not None,
        "random_letters": contender.random_letters,
    }  # fmt: skip
    return [
        Problem(
            study.where, f"{contender.name}: untrained and {key} exclude each other", "Keep one.",
            contender.lines.get((key,)) or contender.lines.get(("untrained",)),
        )
        for key, stated in said.items()
        if stated
    ]  # fmt: skip


def _check_choices(study: Study, contender: Contender, key: str, choices: Choices) -> list[Problem]:
    assert contender.search is not None
    said = f"search.space of {contender.name!r}: {key}"
    if key == "seed" or key.startswith(("data.", "stage")):
        return [
            _search_problem(study, contender, f"{said} cannot be searched", "Search settings of the training.", key)
        ]
    if isinstance(choices, Range):
        if choices.low >= choices.high:
            return [_search_problem(study, contender, f"{said}: low is not below high", "Swap the two.", key)]
        if choices.log and choices.low <= 0:
            return [_search_problem(study, contender, f"{said}: log needs low above 0", "Raise low.", key)]
        if contender.search.method == "grid":
            remedy = 'List the values, or choose method = "random".'
            return [_search_problem(study, contender, f"{said}: a grid needs a list of values", remedy, key)]
        values: tuple[object, ...] = (choices.low, choices.high)
    else:
        values = choices
        if not choices:
            return [_search_problem(study, contender, f"{said}: the list is empty", "Name a value.", key)]
        twice = [value for place, value in enumerate(choices) if value in choices[:place]]
        if twice:
            message = f"{said}: the list has {twice[0]!r} twice"
            return [_search_problem(study, contender, message, "Name each value only once.", key)]
    problems = []
    for value in values:
        placed = replace(
            contender, lines={**contender.lines, tuple(key.split(".")): _line(contender, key) or 0}
        )  # fmt: skip
        try:
            study.recipe(placed, {key: value})
        except RecipeError as error:
            problems += list(error.problems)
    return problems


def _search_problem(study: Study, contender: Contender, message: str, remedy: str, key: str | None = None) -> Problem:
    return Problem(study.where, f"{contender.name}: {message}", remedy, _line(contender, key))


def _line(contender: Contender, key: str | None) -> int | None:
    paths: list[KeyPath] = [("search", "space", key)] if key is not None else []
    found = (contender.lines.get(path) for path in (*paths, ("search", "space"), ("search",)))
    return next((line for line in found if line), None)
