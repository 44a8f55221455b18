"""What a study file may say: its tables, and a study that was read from one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

from nearfar.data import SIZES
from nearfar.data.row_types import Score
from nearfar.recipe import Recipe, resolve_paths
from nearfar.recipe.keys import Key
from nearfar.recipe.literals import Path as KeyPath
from nearfar.recipe.reader import build_table

COLUMNS = ("text", "pair", "label", "score", "columns", "negative", "query_id", "doc_id")
"""Keys of a data set that name columns."""
ELSEWHERE = {"train": "file"} | {key: key for key in ("test", *COLUMNS, "invalid")}
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
    ] = None
    untrained: Annotated[
        Untrained | None,
        Key(
            "What is tested in place of a training, where scored pairs are the test: the pretrained encoder as it is, "
            "or whitened by the texts."
        ),
    ] = None
    random_letters: Annotated[
        bool, Key("Whether all letters of the plain texts are drawn anew, so that only their lengths are left.")
    ] = False
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
