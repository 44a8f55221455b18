"""What is tuned: the rows, what they are, and the sensible ways to train on them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from nearfar.data import Layout, Records, RowType, pair_targets, read, target_problems, without_contradictions
from nearfar.errors import DataError, Problem, RecipeError, SettingError, counted
from nearfar.experiments.plan import plan_study
from nearfar.experiments.study_schema import ELSEWHERE, Contender, DataTable, Study, StudyTable, Values, with_key
from nearfar.experiments.trial import Planned
from nearfar.recipe import Override, build_recipe

ROUNDS = 4
"""How often the rows are divided into folds at most."""
BASELINE = "frozen baseline"
FROZEN = {"max_steps": 1, "learning_rate": 1e-12}
"""A training that changes no weight beyond its last digits: one step, of next to no length."""
COMBO = {
    "name": "blend",
    "weights": {"contrast": 0.1, "squares": 0.9},
    "parts": {"contrast": {"name": "batch-softmax"}, "squares": {"name": "cosine-mse"}},
}
WHERE = "nearfar tune"
Ways = dict[str, Values]
"""Contenders: names to recipe tables."""


@dataclass(frozen=True, kw_only=True)
class Request:
    """What is tuned, how, and for how long."""

    file: str
    out: Path
    minutes: float = 10
    folds: int = 3
    rounds: int = ROUNDS
    metric: str = "auto"
    seed: int = 2
    vectors: bool = False
    """Whether pairs with binary labels are to be compared as vectors, rather than read as one text with a class."""
    settings: tuple[Override, ...] = ()
    """Recipe keys that hold for all contenders, and columns of the file."""


@dataclass(frozen=True)
class Prepared:
    """A tune that can begin."""

    request: Request
    planned: Planned
    row_type: RowType
    default: str
    """What ``nearfar train`` would take."""
    notes: tuple[str, ...] = ()
    """Why the encoder was chosen, where it was left open."""


def contenders_for(row_type: RowType, rows: int, *, classes: int = 0, fixed: Collection[str] = ()) -> Ways:
    """The sensible ways to train on rows of a type: the default first, then the frozen baseline, then the others.

    Args:
        row_type: labeled texts, scored pairs or binary pairs.
        rows: how many there are, on which the default depends.
        classes: how many classes they have, on which it depends, too.
        fixed: recipe keys the user has set; what only varies these is left out.

    >>> list(contenders_for(RowType.SCORED_PAIRS, 100))
    ['cosine-mse', 'frozen baseline', 'pearson', 'batch-softmax+cosine-mse']
    """
    if not row_type.has_classes:
        default = row_type.objective
        others = ("pearson",) if row_type.has_scores else ("contrastive-pairs", "cosine-mse")
        ways = _named(default, *others)
        ways["batch-softmax+cosine-mse"] = {"objective": COMBO}
    else:
        from nearfar.pipeline.defaults import FEW_RATE, RATE, are_few

        few = are_few(rows, classes)
        default = "supcon" if few else "cross-entropy"
        ways = _named(default, "supcon", "cross-entropy", "cross-entropy+supcon", "triple-entropy")
        ways |= _varied(ways["cross-entropy"], fixed, rate=RATE if few else FEW_RATE)
    still = "supcon" if row_type.has_classes else "cosine-mse"
    simplest = {"objective": {"name": still}, "training": FROZEN}
    if row_type.has_classes and "head.kind" not in fixed:
        simplest["head"] = {"kind": "logistic"}  # vectors of a pretrained encoder lie around no centers
    return {default: ways.pop(default), BASELINE: simplest, **ways}


def prepare(request: Request) -> Prepared:
    """Read the rows, see what they are, choose the contenders and plan all trials; bad input is refused here."""
    _check(request)
    shared, columns = _settings(request)
    name = request.file.partition("#")[0].removeprefix("sample:").removeprefix("hub:")
    table = DataTable(name=Path(name).name.partition(".")[0] or "rows", file=request.file, **columns)
    layout = {key: value for key, value in columns.items() if key != "invalid"}
    records = read(request.file, Layout(**layout), invalid=table.invalid)
    row_type = _row_type(records, compares=request.vectors)
    shared, notes = _with_encoder(shared, records)
    _check_rows(records, row_type, request.folds, table.invalid)
    if request.metric not in ("auto", *row_type.metrics):
        raise SettingError(
            f"--metric {request.metric}: such rows have {', '.join(row_type.metrics)}; choose one of them."
        )
    fixed = {".".join(override.path) for override in request.settings}
    ways = contenders_for(row_type, len(records), classes=len(records.classes()), fixed=fixed)
    settings = StudyTable(
        name=f"tune {table.name}",
        seeds=tuple(range(request.seed, request.seed + request.rounds)),
        folds=request.folds,
        metric=request.metric,  # type: ignore[arg-type]  # one of SCORES
        baseline=BASELINE,
        defaults="own",  # what wins is trained as nearfar train would train it
    )
    contenders = tuple(Contender(name, _laid_over(shared, values), values, None, {}) for name, values in ways.items())
    study = Study(Path.cwd() / "tune.toml", WHERE, settings, (table,), contenders)
    return Prepared(request, plan_study(study), row_type, next(iter(ways)), notes)


def _check(request: Request) -> None:
    if not (math.isfinite(request.minutes) and request.minutes > 0):
        raise SettingError(f"--minutes must be above 0, got {request.minutes:g}; 10 is usual.")
    if request.folds < 2:
        raise SettingError(f"--folds must be 2 or more, got {request.folds}; 3 is usual.")
    if request.rounds < 1:
        raise SettingError(f"--rounds must be 1 or more, got {request.rounds}; {ROUNDS} is usual.")
    if not 0 <= request.seed < 2**31 - request.rounds:
        raise SettingError(f"--seed must be from 0 to {2**31 - request.rounds - 1}, got {request.seed}; 2 is usual.")
    if request.file == "-":
        raise SettingError("the data is read more than once, so it cannot be -, standard input; name a file.")


def _settings(request: Request) -> tuple[Values, Values]:
    """The recipe that all contenders share, and the columns of the file."""
    problems: list[Problem] = []
    shared: Values = {"data": {"dev": 0.0}}
    columns: Values = {}
    for override in request.settings:
        key = ".".join(override.path)
        if override.path[0] in ("objective", "stage"):
            remedy = "Leave it out; 'nearfar train --objective' trains with one of your choice."
            problems.append(Problem(override.flag, "the objective is what is to be found", remedy))
        elif key == "seed":
            problems.append(Problem(override.flag, "the seed has a flag of its own", "Write --seed."))
        elif key in ("data.train", "data.test"):
            remedy = "Name one file; it is divided into folds."
            problems.append(Problem(override.flag, "the rows to train and to test on are those of FILE", remedy))
        elif override.path[0] == "data" and override.path[1:2] and override.path[1] in ELSEWHERE:
            value = override.value
            if value is not None:
                columns[override.path[1]] = tuple(value) if isinstance(value, list) else value
                if key == "data.invalid":  # rows that contradict each other are only seen in training
                    shared = with_key(shared, key, value)
        elif override.value is not None:
            shared = with_key(shared, key, override.value)
    if problems:
        raise RecipeError(problems)
    build_recipe({"data": {"train": "-"}}, request.settings, where=WHERE)  # says what is wrong with a flag
    return shared, columns


def _with_encoder(shared: Values, records: Records) -> tuple[Values, tuple[str, ...]]:
    """The shared recipe with the best of several encoders, where it leaves the encoder open, and why."""
    from nearfar.pipeline.encoder_choice import choose_encoder, is_open

    if not is_open(str(shared.get("encoder", {}).get("name", ""))):
        return shared, ()
    data = {**shared["data"], "train": "memory:train"}
    plan = choose_encoder(build_recipe({**shared, "data": data}, where=WHERE), records)
    notes = tuple(note for note in plan.notes if note.startswith("encoder"))
    return with_key(shared, "encoder.name", plan.recipe.encoder.name), notes


def _laid_over(shared: Values, values: Values) -> Values:
    """The recipe of a contender: its own values win, key by key."""
    return {**shared, **{name: {**shared.get(name, {}), **table} for name, table in values.items()}}


def _varied(plain: Values, fixed: Collection[str], *, rate: float) -> Ways:
    """Cross-entropy once more, with whatever of pooling and learning rate the user has left open.

    ``rate`` is the one that it does not have by default for so many rows.
    """
    pools, hurries = "encoder.pooling" not in fixed, "training.learning_rate" not in fixed
    name = "cross-entropy" + " on the mean" * pools + f" at {rate:g}" * hurries
    changed: Values = {"encoder": {"pooling": "mean"}} if pools else {}
    changed |= {"training": {"learning_rate": rate}} if hurries else {}
    return {name: {**plain, **changed}} if changed else {}


def _named(*names: str) -> Ways:
    return {name: {"objective": {"name": name}} for name in names}


def _row_type(records: Records, *, compares: bool) -> RowType:
    """What the rows are, or what is wrong with them."""
    if compares and not (records.shape == "pairs" and records.target is not None):
        message = "there are no pairs with a binary label or a score to be compared"
        raise DataError(
            [Problem(records.source, message, "Name their columns: --text, --pair and --label or --score.")]
        )
    if records.labels is not None and not compares:
        return RowType.LABELED
    if records.labels is not None and records.scores is None:
        return RowType.BINARY_PAIRS
    if records.shape == "pairs" and records.scores is not None:
        return RowType.SCORED_PAIRS
    if records.label_sets is not None or records.scores is not None:
        has = "several labels a text" if records.label_sets is not None else "a score for each text"
        message = f"tune compares objectives of one class a text and of pairs, and the file has {has}"
        raise DataError([Problem(records.source, message, "Train it with nearfar train, or compare by a study.")])
    message = "the rows have neither labels nor scores to choose by"
    if records.shape == "texts":
        remedy = (
            "Add a column named label, or name yours with --label; without labels: nearfar train --objective simcse."
        )
    else:
        remedy = "Add labels or scores (--label, --score); 'nearfar study run' compares objectives on other rows."
    raise DataError([Problem(records.source, message, remedy)])


def _check_rows(records: Records, row_type: RowType, folds: int, invalid: Literal["refuse", "drop"]) -> None:
    """Refuse rows on which every trial would fail."""
    if not row_type.has_classes:
        if row_type.has_binary_labels:
            pair_targets(records)
        problems = [*without_contradictions(records, invalid=invalid)[1], *target_problems(records)[0]]
        if problems:
            raise DataError(problems)
        return
    counts = Counter(records.labels or ())
    if len(counts) < 2:
        message = "all rows have the same label, so there is nothing to tell apart"
        remedy = "Add rows of another class."
        raise DataError([Problem(records.source, message, remedy, value=next(iter(counts), None))])
    name, fewest = min(counts.items(), key=lambda each: (each[1], each[0]))
    if fewest < folds:
        others = sum(count < folds for count in counts.values()) - 1
        more = f", and {counted(others, 'other class', 'other classes')}" if others else ""
        message = f"class {name!r} has {counted(fewest, 'text')}, fewer than the {folds} folds{more}"
        fewer = f"Give --folds {fewest}, add" if fewest >= 2 else "Add"
        raise DataError([Problem(records.source, message, f"{fewer} texts of it, or leave the class out.")])
