"""From a study file to trials: what is to be run, under names that say what determines the numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import replace
from pathlib import Path
from typing import Any

from nearfar.data import Records, RowType, compare, folds, holdout, limit, row_type_of
from nearfar.errors import DataError, NearfarError, Problem, RecipeError, SettingError, counted
from nearfar.experiments.identity import trial_id
from nearfar.experiments.records import Cell, DataSet, Plan
from nearfar.experiments.rows import digest_of, rows_of
from nearfar.experiments.search import FOLDS
from nearfar.experiments.study_schema import Contender, DataTable, Range, Search, Study, sizes_of, with_paths
from nearfar.experiments.suites import find_sets
from nearfar.experiments.trial import Planned, Rows, Source, Trial
from nearfar.recipe.paths import ELSEWHERE

FOLDERS: dict[str, Callable[[Any], str]] = {
    "encoder.name": lambda recipe: recipe.encoder.name,
    "objective.weighting": lambda recipe: recipe.objective.weighting,
}
"""Keys that may be paths, and how a recipe has them."""


def plan_study(study: Study) -> Planned:
    """Read the data, divide it in every way the study needs, and name the trials; all that is wrong is raised here."""
    base = study.path.absolute().parent
    rows: dict[str, Rows] = {}
    sources: dict[str, Source] = {}
    problems: list[Problem] = []
    for table in study.data:
        try:
            sources[table.name] = _source(study, table, base)
            rows[table.name] = rows_of(sources[table.name])
        except DataError as error:
            problems.extend(error.problems)
    if problems:
        raise DataError(problems)
    kinds = {
        (table.name, contender.name): _kind(study, contender, sources[table.name], rows[table.name][0])
        for table in study.data
        for contender in study.contenders
    }
    metric = _metric(study, kinds)
    sets, notes = [], list[str]()
    for table in study.data:
        found, wrong, told = _data_set(study, table, *rows[table.name], kinds, metric)
        sets.append(found)
        problems += wrong
        notes += told
    if problems:
        raise DataError(list(dict.fromkeys(problems)))
    cells, trials = [], dict[str, Trial]()
    for trial in _trials(study, sets, sources, kinds, metric):
        trials.setdefault(trial.id, trial)
        cells.append(
            Cell(id=trial.id, data=trial.source.name, limit=trial.limit, contender=trial.contender, seed=trial.seed,
                 fold=trial.fold)
        )  # fmt: skip
    plan = Plan(
        name=study.settings.name, metric=metric, baseline=study.baseline, seeds=study.settings.seeds,
        folds=1 if all(data.test is not None for data in sets) else study.settings.folds,
        data=tuple(sets), cells=tuple(cells),
        contenders={contender.name: contender.changes for contender in study.contenders},
    )  # fmt: skip
    return Planned(plan, trials, rows, tuple(notes))


def _data_set(
    study: Study,
    table: DataTable,
    records: Records,
    official: Records | None,
    kinds: Mapping[tuple[str, str], RowType],
    metric: str,
) -> tuple[DataSet, list[Problem], list[str]]:
    """The rows of a study as they were found, what is wrong with them, and what should be known about them."""
    sizes = sizes_of(table)
    read_as = {kinds[table.name, contender.name] for contender in study.contenders}
    problems, notes = _measurable(table, records, official, read_as, metric)
    if not problems and RowType.LABELED in read_as and len(set(records.labels or ())) == 1:
        message = f"all {len(records):,} rows have the one class {(records.labels or [''])[0]!r}"
        remedy = "Add rows of a second class, or name another column with label in [[data]]."
        problems = [Problem(table.file, message, remedy)]
    if not problems:
        problems = _divisible(study, table, records, official, sizes, classes=RowType.LABELED in read_as)
    found = DataSet(
        name=table.name, file=table.file, limits=sizes, rows=len(records), digest=digest_of(records, official),
        test=", ".join(table.test) if isinstance(table.test, tuple) else table.test,
        kind=kinds[table.name, study.baseline].value, labels=records.classes(),
    )  # fmt: skip
    return found, problems, notes


def _trials(
    study: Study,
    sets: list[DataSet],
    sources: Mapping[str, Source],
    kinds: Mapping[tuple[str, str], RowType],
    metric: str,
) -> Iterator[Trial]:
    settings = study.settings
    recipes = {contender.name: study.recipe(contender) for contender in study.contenders}
    searches = {contender.name: _search(study, contender) for contender in study.contenders}
    for data in sets:
        rounds = 1 if data.test is not None else settings.folds
        for size in data.limits:
            for seed in settings.seeds:
                for fold in range(rounds):
                    for contender in study.contenders:
                        trial = Trial(
                            id="", source=sources[data.name], limit=size, contender=contender.name,
                            values=with_paths(contender.values, recipes[contender.name]), seed=seed, fold=fold,
                            folds=rounds,
                            metric=metric, kind=kinds[data.name, contender.name], digest=data.digest,
                            search=contender.search,
                            keeps_map=seed == settings.seeds[0] and fold == 0, untrained=contender.untrained,
                            random_letters=contender.random_letters,
                        )  # fmt: skip
                        name = trial_id(trial, recipes[contender.name], data)
                        yield replace(trial, id=name, search=searches[contender.name])


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
    source = _own_source(table, base)
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


def _plain(study: Study, source: Source) -> bool:
    """Whether no contender has a use for anything but the texts of these rows."""
    from nearfar.pipeline.data import views_suffice

    trained = [contender for contender in study.contenders if contender.untrained is None]
    views = all(views_suffice(study.recipe(contender)) for contender in trained)
    return views and rows_of(source)[0].shape == "texts"


def _scored_apart(study: Study, source: Source, test: str) -> bool:
    """Whether the test is of scored pairs, and all train on pairs, triplets or rankings that have no such scores."""
    from nearfar.pipeline.data import compares_pairs, views_suffice

    records = rows_of(source)[0]
    for contender in study.contenders:
        if contender.untrained is None:
            recipe = study.recipe(contender)
            row_type = row_type_of(records, pairwise=compares_pairs(recipe), plain=views_suffice(recipe))
            if isinstance(row_type, Problem) or row_type.has_classes or row_type.has_scores or row_type.views:
                return False
    for layout in (source.layout, {}):  # scored pairs of another file may have the usual names
        try:
            found = rows_of(replace(source, file=test, layout=layout))[0]
        except DataError:
            continue
        return found.shape == "pairs" and found.scores is not None
    return False


def _own_source(table: DataTable, base: Path) -> Source:
    keys = ("text", "pair", "label", "score", "negative", "query_id", "doc_id")
    layout: dict[str, Any] = {key: getattr(table, key) for key in keys if getattr(table, key) is not None}
    if table.columns is not None:
        layout["columns"] = list(table.columns)
    return Source(
        name=table.name, file=_absolute(table.file, base), given=table.file, layout=layout, invalid=table.invalid
    )


def _absolute(name: str, base: Path) -> str:
    if name == "-" or name.startswith(ELSEWHERE):
        if name == "-":
            raise SettingError("a study reads its data more than once, so it cannot be -, standard input; name a file.")
        return name
    return str((base / Path(name).expanduser()).absolute())


def _kind(study: Study, contender: Contender, source: Source, records: Records) -> RowType:
    """What the rows are to a contender; ``plain`` where scored pairs are the test, whatever is trained on."""
    from nearfar.pipeline.data import compares_pairs, views_suffice

    if source.pairs is not None and contender.search is not None:
        raise SettingError(
            f"contender {contender.name!r} has a search, and nothing in {source.given} can judge its points: scored "
            "pairs are the test. Make contenders of the settings to compare."
        )
    if contender.untrained is not None or contender.random_letters:
        what = "untrained" if contender.untrained is not None else "random_letters"
        if source.pairs is None:
            raise SettingError(
                f"contender {contender.name!r} is {what}, which needs scored pairs as the test of {source.given}: name "
                "them with test and suite in [[data]]."
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
    row_type = row_type_of(records, pairwise=pairwise, plain=views_suffice(recipe))
    if isinstance(row_type, Problem):
        raise DataError([replace(row_type, message=f"contender {contender.name!r}: {row_type.message}")])
    if row_type.views and source.pairs is None:
        raise SettingError(
            f"contender {contender.name!r} trains on plain texts, which have no labels to be tested by; a study needs "
            "texts with labels, or pairs, or scored pairs as a test of their own, where all contenders train on plain "
            "texts."
        )
    return row_type if source.pairs is None else RowType.PLAIN


def scores_of(row_type: RowType) -> tuple[str, ...]:
    """What can be compared on rows; plain texts are tested on scored pairs. The first is meant by ``auto``."""
    return row_type.metrics or RowType.SCORED_PAIRS.metrics[:1]


def _metric(study: Study, kinds: Mapping[tuple[str, str], RowType]) -> str:
    """The score that every trial has; ``auto`` is the usual one of the baseline's rows that all have."""
    asked = study.settings.metric
    first = kinds[study.data[0].name, study.baseline]
    shared = [name for name in scores_of(first) if all(name in scores_of(kind) for kind in kinds.values())]
    metric = asked if asked != "auto" else next(iter(shared), None)
    if metric is None:
        raise SettingError(
            f"{study.where}: the data sets and contenders have no score in common ({_by_kind(kinds)}); make a study of "
            "each kind of rows."
        )
    lacking = [(data, name, kind) for (data, name), kind in kinds.items() if metric not in scores_of(kind)]
    if lacking:
        data, name, kind = lacking[0]
        remedy = f"Choose one of {', '.join(shared)}." if shared else "Make a study of each kind of rows."
        message = f"study.metric is {metric!r}, but {name!r} on {data!r} has {', '.join(scores_of(kind))}"
        raise RecipeError([Problem(study.where, message, remedy)])
    return metric


def _by_kind(kinds: Mapping[tuple[str, str], RowType]) -> str:
    return "; ".join(
        f"{name} on {data}: {', '.join(scores_of(kind))}" for (data, name), kind in list(kinds.items())[:4]
    )


def _measurable(
    table: DataTable, records: Records, official: Records | None, kinds: AbstractSet[RowType], metric: str
) -> tuple[list[Problem], list[str]]:
    """What keeps the rows of a test file from being tested on, and what should be known about them."""
    if official is None or not isinstance(table.test, str) or kinds == {RowType.PLAIN}:
        return [], []
    named = replace(official, source=table.test)
    problems, notes = compare(replace(records, source=table.file), named, "test")
    if RowType.LABELED not in kinds:  # pairs may be measured on rows of another kind
        problems = []
    if kinds != {RowType.LABELED}:
        row_type = row_type_of(named, pairwise=True)
        if isinstance(row_type, Problem):
            problems.append(row_type)
        elif metric not in scores_of(row_type):
            message = f"the study compares {metric}, and such test rows have {', '.join(scores_of(row_type))}"
            remedy = "Test on rows like those that are trained on, or on scored pairs."
            problems.append(Problem(table.test, message, remedy))
    return problems, notes


def _untaught(table: DataTable, drawn: Records, official: Records, seed: int) -> list[Problem]:
    """Classes that are tested on, and that a limit leaves without a text to train on."""
    absent = sorted(set(official.labels or ()) - set(drawn.labels or ()))
    if not absent:
        return []
    more = f", and {counted(len(absent) - 1, 'other class', 'other classes')}" if len(absent) > 1 else ""
    message = f"class {absent[0]!r} is tested on, but has no text among the {len(drawn):,} of seed {seed}{more}"
    return [Problem(table.file, message, "Set a larger limit of this data set, with a text of each class at least.")]


def _divisible(
    study: Study,
    table: DataTable,
    records: Records,
    official: Records | None,
    sizes: tuple[int | None, ...],
    *,
    classes: bool,
) -> list[Problem]:
    """What stands in the way of the folds, of any size and seed."""
    settings, found = study.settings, list[Problem]()
    k = settings.folds
    for size in sizes:
        if size is not None and size > len(records):
            message = f"limit is {size:,}, but there are only {counted(len(records), 'row')}"
            return [Problem(table.file, message, "Lower the limit of this data set, or leave it out for all rows.")]
        for seed in settings.seeds:
            try:
                drawn = records if size is None else records.take(limit(records, size, seed=seed))
                if official is not None:
                    found += _untaught(table, drawn, official, seed) if classes else []
                    found += _searchable(study, table, drawn, seed)
                    if found:
                        return found
                    continue
                small = [(name, n) for name, n in Counter(drawn.labels or ()).items() if n < k]
                if small and settings.rare == "refuse":
                    name, n = min(small, key=lambda each: (each[1], each[0]))
                    more = f", and {counted(len(small) - 1, 'other class', 'other classes')}" if len(small) > 1 else ""
                    message = (
                        f"class {name!r} has {counted(n, 'text')} among the {len(drawn):,} of seed {seed}, fewer than "
                        f"the {k} folds{more}"
                    )
                    remedy = (
                        'Set fewer folds or a larger limit, leave the class out, or set rare = "keep" in [study]: then '
                        "some folds test without it."
                    )
                    return [Problem(table.file, message, remedy)]
                inside, _ = folds(drawn, k, seed=seed)[0]
                found += _searchable(study, table, drawn.take(inside), seed)
            except DataError as error:
                found += [replace(problem, where=table.file) for problem in error.problems]
            except NearfarError as error:
                found.append(Problem(table.file, str(error), "Change the limit or the folds."))
            if found:
                return found
    return found


def _searchable(study: Study, table: DataTable, training: Records, seed: int) -> list[Problem]:
    """What stands in the way of judging points by the training rows of a trial."""
    problems = []
    for contender in study.contenders:
        if (search := contender.search) is None:
            continue
        what = f"search of {contender.name!r}, on the {counted(len(training), 'training row')} of a trial"
        try:
            if search.dev is None:
                folds(training, search.folds or FOLDS, seed=seed)
            else:
                holdout(training, search.dev, seed=seed, name="search")
        except DataError as error:
            message = f"{what}: {error.problems[0].message}"
            remedy = "Set fewer folds in its search, or a larger limit of this data set."
            problems.append(Problem(table.file, message, remedy))
    return problems
