"""From a study file to trials, under names that say what determines the numbers; checks before anything runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, TypeAlias

from nearfar.data import Records, RowType, compare, folds, holdout, limit, row_type_of
from nearfar.data.corpora import judge
from nearfar.errors import DataError, NearfarError, Problem, RecipeError, SettingError, counted
from nearfar.experiments.conditions import Changes, equal_conditions
from nearfar.experiments.identity import trial_id
from nearfar.experiments.records import Cell, DataSet, Plan, cell_name
from nearfar.experiments.rows import corpus_of, digest_of, rows_of, split
from nearfar.experiments.search import FOLDS
from nearfar.experiments.study_schema import (
    LAYOUT,
    Contender,
    DataTable,
    Mined,
    Range,
    Search,
    Study,
    sizes_of,
    with_key,
    with_paths,
)
from nearfar.experiments.suites import find_sets
from nearfar.experiments.trial import Planned, Rows, Source, Trial
from nearfar.recipe import Recipe
from nearfar.recipe.reader import ELSEWHERE

FOLDERS: dict[str, Callable[[Any], str]] = {
    "encoder.name": lambda recipe: recipe.encoder.name,
    "objective.weighting": lambda recipe: recipe.objective.weighting,
}
"""Keys that may be paths, and how a recipe has them."""
RowTypes: TypeAlias = Mapping[tuple[str, str], RowType]
"""What rows are, by data set and contender."""


def plan_study(study: Study) -> Planned:
    """Read the data, divide it in every way the study needs, and name the trials; all that is wrong is raised here."""
    base = study.path.absolute().parent
    rows: dict[str, Rows] = {}
    sources: dict[str, Source] = {}
    problems: list[Problem] = []
    notes: list[str] = []
    for table in study.data:
        try:
            sources[table.name] = source = _source(study, table, base)
            rows[table.name] = rows_of(source)
            notes += _check_corpus(table, source, rows[table.name])
        except DataError as error:
            problems.extend(error.problems)
    if problems:
        raise DataError(problems)
    row_types = {
        (table.name, contender.name): _row_type(study, contender, sources[table.name], rows[table.name][0])
        for table in study.data
        for contender in study.contenders
    }
    metric = _metric(study, row_types)
    sets = []
    for table in study.data:
        read_as = {row_types[table.name, contender.name] for contender in study.contenders}
        wrong, more = check_test_rows(table, rows[table.name], read_as, metric)
        problems += wrong or check_division(study, table, rows[table.name], read_as)
        notes += more
        records, official = rows[table.name]
        data_set = DataSet(
            name=table.name,
            file=table.file,
            limits=sizes_of(table),
            rows=len(records),
            digest=digest_of(records, official, corpus_of(sources[table.name])),
            test=", ".join(table.test) if isinstance(table.test, tuple) else table.test,
            kind=row_types[table.name, study.baseline].value,
            labels=records.classes(),
        )
        sets.append(data_set)
    if problems:
        raise DataError(list(dict.fromkeys(problems)))
    trials, cells = dict[str, Trial](), list[Cell]()
    for data_set, size in ((each, size) for each in sets for size in each.limits):
        part = _Part(study, data_set, size, sources[data_set.name], row_types, metric)
        contenders = study.contenders
        if study.settings.defaults == "equal":
            contenders, more = part.equalized(rows[data_set.name])
            notes += more
        for seed, fold, contender in product(study.settings.seeds, range(part.folds), contenders):
            trial = part.trial(contender, seed=seed, fold=fold)
            trials.setdefault(trial.id, trial)
            cells.append(trial.cell)
    plan = Plan(
        name=study.settings.name,
        metric=metric,
        baseline=study.baseline,
        seeds=study.settings.seeds,
        folds=1 if all(data.test is not None for data in sets) else study.settings.folds,
        data=tuple(sets),
        contenders={contender.name: contender.changes for contender in study.contenders},
        cells=tuple(cells),
        runs=study.settings.runs,
    )
    return Planned(plan, trials, rows, tuple(notes))


@dataclass(frozen=True)
class _Part:
    """A data set in one size, for all contenders."""

    study: Study
    data: DataSet
    size: int | None
    source: Source
    row_types: RowTypes
    metric: str

    @property
    def folds(self) -> int:
        return 1 if self.data.test is not None else self.study.settings.folds

    def trial(self, contender: Contender, *, seed: int, fold: int) -> Trial:
        """A contender on one fold."""
        recipe = self.study.recipe(contender)
        trial = Trial(
            id="",
            source=self.source,
            limit=self.size,
            contender=contender.name,
            values=with_paths(contender.values, recipe),
            seed=seed,
            fold=fold,
            folds=self.folds,
            metric=self.metric,
            kind=self.row_types[self.data.name, contender.name].value,
            digest=self.data.digest,
            search=contender.search,
            keeps_map=seed == self.study.settings.seeds[0] and fold == 0,
            untrained=contender.untrained,
            random_letters=contender.random_letters,
            mined=_mined(contender, self.study.path.absolute().parent),
        )
        return replace(trial, id=trial_id(trial, recipe, self.data), search=_search(self.study, contender))

    def equalized(self, rows: Rows) -> tuple[tuple[Contender, ...], list[str]]:
        """The contenders with the same conditions, as the first fold has them, and what that changes."""
        first = partial(self.trial, seed=self.study.settings.seeds[0], fold=0)
        changes = equal_conditions(self.study.contenders, first, lambda trial: split(rows, trial).train)
        contenders = []
        for contender in self.study.contenders:
            values = contender.values
            for key, value in changes.get(contender.name, {}).items():
                values = with_key(values, key, value)
            contenders.append(replace(contender, values=values))
        parts = [f"{name} gets {_assigned(each)}" for name, each in changes.items()]
        whose = f"{cell_name(self.data.name, self.size)}: so that all contenders have the same, {'; '.join(parts)}"
        return tuple(contenders), [f'{whose} (study.defaults = "own" leaves it to each)'] if parts else []


def _assigned(changes: Changes) -> str:
    return ", ".join(f"{key} = {value}" for key, value in changes.items())


def _mined(contender: Contender, base: Path) -> Mined | None:
    """How negatives are mined; the folder of an encoder is found wherever a trial runs."""
    mined = contender.mined
    if mined is None or mined.encoder is None or not (base / Path(mined.encoder).expanduser()).is_dir():
        return mined
    return replace(mined, encoder=str((base / Path(mined.encoder).expanduser()).absolute()))


def _search(study: Study, contender: Contender) -> Search | None:
    """The search of a contender; folders of encoders that it chooses from are found wherever a trial runs."""
    search = contender.search
    if search is None:
        return None
    folders = {
        key: tuple(folder(study.recipe(contender, {key: name})) for name in choices)
        for key, folder in FOLDERS.items()
        if not isinstance(choices := search.space.get(key, ()), Range) and key in search.space
    }
    return replace(search, space={**search.space, **folders})


def _source(study: Study, table: DataTable, base: Path) -> Source:
    """Where rows come from; scored pairs are the test where they are several files, or unlike what is trained on."""
    given = () if table.test is None else (table.test,) if isinstance(table.test, str) else table.test
    tests = [_absolute(name, base) for name in given]
    layout = {key: value for key in LAYOUT if (value := getattr(table, key)) is not None and value is not False}
    file = _absolute(table.file, base)
    source = Source(name=table.name, file=file, given=table.file, layout=layout, invalid=table.invalid)
    if table.corpus is not None:
        source = replace(source, corpus=_absolute(table.corpus, base))
    several = len(tests) > 1 or table.suite is not None or table.test_limit is not None
    several = several or any(Path(test).is_dir() for test in tests)
    if not several and not _plain(study, source) and not (tests and _scored_apart(study, source, tests[0])):
        return replace(source, test=tests[0] if tests else None)
    if not tests:
        message = "these are plain texts, which have nothing to be tested by"
        remedy = 'Name scored pairs: test = "pairs.csv", several files, or a folder of them, in [[data]] '
        raise DataError([Problem(table.file, message, f"{remedy}{table.name!r}.")])
    pairs = find_sets(tests, table.suite or "sts", invalid=table.invalid)
    return replace(source, pairs=pairs, pairs_limit=table.test_limit)


def _check_corpus(table: DataTable, source: Source, rows: Rows) -> list[str]:
    """Refuse a corpus that lacks relevant texts, and one that nothing is searched for in; what should be known."""
    corpus = corpus_of(source)
    if corpus is None:
        return []
    records, official = rows
    row_type = row_type_of(records, pairwise=True)
    if isinstance(row_type, Problem) or row_type not in (RowType.POSITIVE_PAIRS, RowType.RANKING):
        what = "single texts" if isinstance(row_type, Problem) else row_type.wording
        message = f"corpus is searched for the right texts of positive pairs or of a ranking, and these are {what}"
        raise DataError([Problem(table.file, message, f"Leave corpus out of [[data]] {table.name!r}.")])
    named = [replace(records, source=table.file)]
    if official is not None:
        named.append(replace(official, source=str(table.test)))
    return [note for each in named for note in judge(each, corpus, invalid=table.invalid).notes]


def _plain(study: Study, source: Source) -> bool:
    """Whether no contender has a use for anything but the texts of these rows."""
    from nearfar.pipeline.data import views_suffice

    return all(map(views_suffice, _trained(study))) and rows_of(source)[0].shape == "texts"


def _scored_apart(study: Study, source: Source, test: str) -> bool:
    """Whether the test is of scored pairs, and all train on pairs, triplets or rankings that have no such scores."""
    from nearfar.pipeline.data import compares_pairs, views_suffice

    records = rows_of(source)[0]
    for recipe in _trained(study):
        row_type = row_type_of(records, pairwise=compares_pairs(recipe), plain=views_suffice(recipe))
        if isinstance(row_type, Problem) or row_type.has_head or row_type.has_scores or row_type.views:
            return False
    for layout in (source.layout, {}):  # scored pairs of another file may have the usual names
        try:
            tested = rows_of(replace(source, file=test, layout=layout))[0]
        except DataError:
            continue
        return tested.shape == "pairs" and tested.scores is not None
    return False


def _trained(study: Study) -> list[Recipe]:
    return [study.recipe(contender) for contender in study.contenders if contender.untrained is None]


def _absolute(name: str, base: Path) -> str:
    if name == "-":
        raise SettingError("a study reads its data more than once, so it cannot be -, standard input; name a file.")
    return name if name.startswith(ELSEWHERE) else str((base / Path(name).expanduser()).absolute())


def _row_type(study: Study, contender: Contender, source: Source, records: Records) -> RowType:
    """What the rows are to a contender; ``plain`` where scored pairs are the test, whatever is trained on."""
    from nearfar.pipeline.data import compares_pairs, predicts_scores, views_suffice

    if source.pairs is not None and contender.search is not None:
        raise SettingError(
            f"contender {contender.name!r} has a search, and nothing in {source.given} can judge its points: scored "
            "pairs are the test. Make contenders of the settings to compare."
        )
    if contender.untrained is not None or contender.random_letters:
        compared = row_type_of(records, pairwise=True)
        if contender.untrained is not None and source.pairs is None and not isinstance(compared, Problem):
            return compared
        if source.pairs is None:
            what = "untrained" if contender.untrained is not None else "random_letters"
            pairs = "pairs, triplets, a ranking or " if contender.untrained is not None else ""
            raise SettingError(
                f"contender {contender.name!r} is {what}, which needs {pairs}scored pairs as the test of "
                f"{source.given}: name them with test and suite in [[data]]."
            )
        if contender.untrained is not None:
            return RowType.PLAIN
    recipe = study.recipe(contender)
    pairwise = compares_pairs(recipe)
    if source.pairs is not None and (pairwise is False or (records.shape == "texts" and not views_suffice(recipe))):
        raise SettingError(
            f"contender {contender.name!r} trains for {recipe.objective.name}, and the test of {source.given} is of "
            "scored pairs; choose an objective that compares texts, such as simcse, or test on rows with labels."
        )
    scores = predicts_scores(recipe)
    row_type = row_type_of(records, pairwise=pairwise, plain=views_suffice(recipe), scores=scores)
    if isinstance(row_type, Problem):
        raise DataError([replace(row_type, message=f"contender {contender.name!r}: {row_type.message}")])
    if row_type.views and source.pairs is None:
        raise SettingError(
            f"contender {contender.name!r} trains on plain texts, which have no labels to be tested by; a study needs "
            "texts with labels, or pairs, or scored pairs as a test of their own, where all contenders train on plain "
            "texts."
        )
    if contender.mined is not None and row_type is not RowType.POSITIVE_PAIRS:
        raise SettingError(
            f"contender {contender.name!r} has mined negatives, which are for positive pairs, and {source.given} has "
            f"{row_type.wording}; leave mined out."
        )
    return row_type if source.pairs is None else RowType.PLAIN


def _metric(study: Study, row_types: RowTypes) -> str:
    """The score that every trial has; ``auto`` is the usual one of the baseline's rows that all have."""
    asked = study.settings.metric
    first = row_types[study.data[0].name, study.baseline]
    shared = [name for name in scores_of(first) if all(name in scores_of(kind) for kind in row_types.values())]
    metric = asked if asked != "auto" else next(iter(shared), None)
    if metric is None:
        some = list(row_types.items())[:4]
        by_type = "; ".join(f"{name} on {data}: {', '.join(scores_of(one))}" for (data, name), one in some)
        raise SettingError(
            f"{study.where}: the data sets and contenders have no score in common ({by_type}); make a study of "
            "each kind of rows."
        )
    lacking = [(data, name, kind) for (data, name), kind in row_types.items() if metric not in scores_of(kind)]
    if lacking:
        data, name, kind = lacking[0]
        remedy = f"Choose one of {', '.join(shared)}." if shared else "Make a study of each kind of rows."
        message = f"study.metric is {metric!r}, but {name!r} on {data!r} has {', '.join(scores_of(kind))}"
        raise RecipeError([Problem(study.where, message, remedy)])
    return metric


def scores_of(row_type: RowType) -> tuple[str, ...]:
    """What can be compared on rows; plain texts are tested on scored pairs. The first is meant by ``auto``."""
    return row_type.metrics or RowType.SCORED_PAIRS.metrics[:1]


def check_test_rows(
    table: DataTable, rows: Rows, read_as: AbstractSet[RowType], metric: str
) -> tuple[list[Problem], list[str]]:
    """What keeps the rows of a test file from being tested on, and what should be known about them."""
    records, official = rows
    if official is None or not isinstance(table.test, str) or read_as == {RowType.PLAIN}:
        return [], []
    named = replace(official, source=table.test)
    problems, notes = compare(replace(records, source=table.file), named, "test")
    if not any(row_type.has_head for row_type in read_as):  # pairs may be measured on rows of another type
        problems = []
    if not all(row_type.has_head for row_type in read_as):
        row_type = row_type_of(named, pairwise=True)
        if isinstance(row_type, Problem):
            problems.append(row_type)
        elif metric not in scores_of(row_type):
            message = f"the study compares {metric}, and such test rows have {', '.join(scores_of(row_type))}"
            remedy = "Test on rows like those that are trained on, or on scored pairs."
            problems.append(Problem(table.test, message, remedy))
    return problems, notes


def check_division(study: Study, table: DataTable, rows: Rows, read_as: AbstractSet[RowType]) -> list[Problem]:
    """What stands in the way of the folds, of any size and seed."""
    records, official = rows
    labeled, classes = RowType.LABELED in read_as, set(records.labels or ())
    if labeled and len(classes) == 1:
        remedy = "Add rows of a second class, or name another column with label in [[data]]."
        return [Problem(table.file, f"all {len(records):,} rows have the one class {classes.pop()!r}", remedy)]
    for size in sizes_of(table):
        if size is not None and size > len(records):
            message = f"limit is {size:,}, but there are only {counted(len(records), 'row')}"
            return [Problem(table.file, message, "Lower the limit of this data set, or leave it out for all rows.")]
        for seed in study.settings.seeds:
            try:
                drawn = records if size is None else records.take(limit(records, size, seed=seed))
                if official is None:
                    problems = _check_folds(study, table, drawn, seed)
                else:
                    problems = _untaught(table, drawn, official, seed) if labeled else []
                    problems += _check_searches(study, table, drawn, seed)
            except DataError as error:
                problems = [replace(problem, where=table.file) for problem in error.problems]
            except NearfarError as error:
                problems = [Problem(table.file, str(error), "Change the limit or the folds.")]
            if problems:
                return problems
    return []


def _check_folds(study: Study, table: DataTable, drawn: Records, seed: int) -> list[Problem]:
    """What is wrong with the folds of rows that a seed has drawn."""
    k = study.settings.folds
    small = [(name, number) for name, number in Counter(drawn.labels or ()).items() if number < k]
    if small and study.settings.rare == "refuse":
        name, number = min(small, key=lambda each: (each[1], each[0]))
        message = (
            f"class {name!r} has {counted(number, 'text')} among the {len(drawn):,} of seed {seed}, fewer than the {k} "
            f"folds{_others(len(small) - 1)}"
        )
        remedy = (
            'Set fewer folds or a larger limit, leave the class out, or set rare = "keep" in [study]: then some folds '
            "test without it."
        )
        return [Problem(table.file, message, remedy)]
    inside, _ = folds(drawn, k, seed=seed)[0]
    return _check_searches(study, table, drawn.take(inside), seed)


def _untaught(table: DataTable, drawn: Records, official: Records, seed: int) -> list[Problem]:
    """Classes that are tested on, and that a limit leaves without a text to train on."""
    absent = sorted(set(official.labels or ()) - set(drawn.labels or ()))
    if not absent:
        return []
    message = f"class {absent[0]!r} is tested on, but has no text among the {len(drawn):,} of seed {seed}"
    remedy = "Set a larger limit of this data set, with a text of each class at least."
    return [Problem(table.file, message + _others(len(absent) - 1), remedy)]


def _others(number: int) -> str:
    return f", and {counted(number, 'other class', 'other classes')}" if number else ""


def _check_searches(study: Study, table: DataTable, training: Records, seed: int) -> list[Problem]:
    """What stands in the way of judging points by the training rows of a trial."""
    problems = []
    for contender in study.contenders:
        if (search := contender.search) is None:
            continue
        try:
            if search.dev == "recipe":
                continue
            if search.dev is None:
                folds(training, search.folds or FOLDS, seed=seed)
            else:
                holdout(training, search.dev, seed=seed, name="search")
        except DataError as error:
            rows = f"on the {counted(len(training), 'training row')} of a trial"
            message = f"search of {contender.name!r}, {rows}: {error.problems[0].message}"
            remedy = "Set fewer folds in its search, or a larger limit of this data set."
            problems.append(Problem(table.file, message, remedy))
    return problems
