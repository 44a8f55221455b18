"""What is wrong with a study file, with the lines: names, searches, and every recipe that a trial could have."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from nearfar.errors import Problem, RecipeError, did_you_mean
from nearfar.experiments.records import cell_name
from nearfar.experiments.study_schema import (
    ELSEWHERE,
    Choices,
    Contender,
    DataTable,
    Lines,
    Range,
    Study,
    StudyFile,
    sizes_of,
)
from nearfar.recipe.literals import Path as KeyPath


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
        study.recipe(contender)
    except RecipeError as error:
        return list(error.problems)
    if contender.untrained is not None:
        exclusive = {
            "objective": "objective" in contender.changes or "stage" in contender.changes,
            "search": contender.search is not None,
            "random_letters": contender.random_letters,
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
