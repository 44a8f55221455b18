"""One training of a contender on given rows, and the search for its settings on the training rows of a trial."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nearfar.data import Records
from nearfar.experiments.rows import columns_of, corpus_of
from nearfar.experiments.study_schema import Values, with_key
from nearfar.experiments.trial import Trial

if TYPE_CHECKING:
    from nearfar.recipe import Recipe
    from nearfar.recipe.tasks import TaskRecipe
    from nearfar.training import Callback

import importlib.util
import math
from typing import TYPE_CHECKING, cast

from nearfar.data import folds, holdout
from nearfar.errors import NearfarError, SettingError, counted
from nearfar.experiments.records import SearchPoint, Setting, Settings
from nearfar.experiments.study_schema import Choices, Range, Search
from nearfar.seeds import stream
from nearfar.training import Callback, EvaluationEntry

if TYPE_CHECKING:
    import optuna


SEPARATE = "separate"
"""The key of a contender that trains a model of its own for each task."""


def train(
    trial: Trial,
    settings: Mapping[str, Any],
    records: Records,
    out: Path,
    *,
    dev: Records | None = None,
    test: Records | None = None,
    callbacks: Sequence[Callback] = (),
) -> dict[str, dict[str, float]]:
    """Train the contender at a point of its search on these rows; returns the scores on dev and test rows, if any."""
    from nearfar import pipeline

    if trial.mined is not None:
        records, dev = mined_rows(trial, records, dev)
    recipe = recipe_of(trial, settings, _data_of(trial, records))
    rows = {"train": records, "dev": dev, "test": test}
    summary = pipeline.train(recipe, out, data=rows, callbacks=callbacks)
    return {name: dict(summary.report(name).scores) for name in summary.reports}


def mined_rows(trial: Trial, records: Records, dev: Records | None) -> tuple[Records, Records | None]:
    """Training rows with mined negatives, and dev rows as they are: the share that a recipe sets aside comes first."""
    from nearfar.evaluation import embed_table
    from nearfar.experiments.diagnostics import embedding_model
    from nearfar.pipeline.mining import Mining, mine
    from nearfar.pipeline.plan import open_encoder

    mined, recipe = trial.mined, recipe_of(trial, {}, {"train": trial.source.given, **trial.values.get("data", {})})
    assert mined is not None
    if dev is None and isinstance(recipe.data.dev, float) and recipe.data.dev:
        rest, apart = holdout(records, recipe.data.dev, seed=trial.seed, name="dev")
        records, dev = records.take(rest), records.take(apart)
    model = embedding_model(open_encoder(recipe.encoder, classes=None, seed=0, name=mined.encoder))
    corpus = corpus_of(trial.source)
    found = mine(
        records,
        lambda texts: embed_table(model.model, model.tokenize(texts), batch_size=BATCH),
        Mining(window=None if mined.positions == "powers" else (10, 50), seed=trial.seed),
        corpus=None if corpus is None else corpus.texts,
    )
    if not found.count:
        raise NearfarError(
            f"{trial.source.given}: no negatives can be mined among {counted(found.documents, 'text')}; name a corpus "
            "in [[data]]."
        )
    rows: list[tuple[str, ...]]
    if mined.rows == "triplets":
        rows, labels = list(found.triplets()), None
    else:
        pairs = list(found.pairs(oversample=mined.oversample))
        rows, labels = [(left, right) for left, right, _ in pairs], [str(label) for _, _, label in pairs]
    texts = tuple(list(column) for column in zip(*rows, strict=True))
    return Records(
        texts, labels, None, list(range(1, len(rows) + 1)), f"{trial.source.given} with mined negatives"
    ), dev


def resolved_recipe(trial: Trial, records: Records) -> tuple[Recipe, int]:
    """The recipe of a trial with what it would choose for these rows, and how many of them it would train on."""
    from nearfar.pipeline.encoder_run import plan_encoder_run

    plan = plan_encoder_run(recipe_of(trial, {}, _data_of(trial, records)), {"train": records})
    return plan.saved_recipe(), len(plan.data.train)


def _data_of(trial: Trial, records: Records) -> Values:
    """The data table of a trial on rows in memory."""
    large = "large" in trial.source.layout
    data: Values = {
        **trial.values.get("data", {}),
        "invalid": trial.source.invalid,
        **({"large": True} if large else {}),
    }
    if trial.source.pairs is None:  # where a dev file of scored pairs has columns of other names
        data |= {key: name for key, (name, _) in columns_of(records).items()}
        data |= {key: value for key in ("scale", "relevant") if (value := getattr(records, key)) is not None}
    if trial.source.corpus is not None:
        data["corpus"] = trial.source.corpus
    return {**data, "train": "memory:train"}


def train_tasks(trial: Trial, out: Path) -> tuple[dict[str, float], int, list[Path]]:
    """Train all tasks of a contender, in one model or in one for each.

    Returns the score of each task on its dev rows, and as ``NAME train`` and ``NAME test`` on its training rows and,
    where there are some, its test rows; how many dev rows there are; and the folders of the models.
    """
    from nearfar import pipeline
    from nearfar.encoding.task_model import load_tasks
    from nearfar.pipeline.tasks import evaluate_saved

    values, scores, rows, folders = dict(trial.values), dict[str, float](), 0, list[Path]()
    separate = values.pop(SEPARATE, False)
    for number, tasks in enumerate([[task] for task in values["task"]] if separate else [values["task"]]):
        folder = out / str(number) if separate else out
        recipe = task_recipe_of({**values, "task": tasks}, trial.seed, f"contender {trial.contender}")
        summary = pipeline.train(recipe, folder)
        trained, _ = evaluate_saved(folder, load_tasks(folder), train=True)
        for split, reports in {**summary.reports, **trained}.items():
            for name, report in reports.items():
                key = name if split == "dev" else f"{name} {split}"
                scores[key] = float(report.scores[summary.metrics[name]])
                rows += report.rows if split == "dev" else 0
        folders.append(folder)
    return scores, rows, folders


def recipe_of(trial: Trial, settings: Mapping[str, Any], data: Mapping[str, Any]) -> Recipe:
    """The recipe of a trial at a point of its search, on this data."""
    from nearfar.recipe import build_recipe

    training = {**trial.values.get("training", {}), "estimate": False}  # the trial is the measurement
    values: Values = {**trial.values, "training": training, "seed": trial.seed, "data": dict(data)}
    for key, value in settings.items():
        values = with_key(values, key, value)
    training = _decided(values.get("training", {}))
    if trial.source.pairs is None and training.get("metric", "auto") == "auto":
        training["metric"] = trial.metric
    return build_recipe({**values, "training": training}, where=f"contender {trial.contender}")


def task_recipe_of(values: Values, seed: int, where: str) -> TaskRecipe:
    """The recipe of a trial of several tasks."""
    from nearfar.recipe.tasks import build_task_recipe

    training = _decided(values.get("training", {}))
    return build_task_recipe({**values, "seed": seed, "training": training}, where=where)


def _decided(training: Values) -> Values:
    """Settings of a training with what ``auto`` would decide by the processor: numbers must not depend on it."""
    import torch

    settings: Values = {"keep_checkpoints": 1, **training}
    if settings.get("precision", "auto") == "auto" and not torch.cuda.is_available():
        settings["precision"] = "fp32"
    return settings


BATCH = 64
"""Texts that are encoded together to mine negatives."""
POINTS = 20
FOLDS = 3
BEFORE_PRUNING = 4
"""Points that are judged in full, so that there is a median to fall short of."""


def number_of_points(search: Search) -> int:
    """How many points a search tries.

    >>> number_of_points(Search(method="grid", space={"a": (1, 2), "b": (1, 2, 3)}))
    6
    """
    if search.method != "grid":
        return search.trials or POINTS
    points = math.prod(len(values) for values in search.space.values() if not isinstance(values, Range))
    return min(points, search.trials or points)


def choose_settings(trial: Trial, records: Records, scratch: Path) -> tuple[Settings, list[SearchPoint]]:
    """The best point of the trial's search space, and all points that were tried, in order.

    Every point is judged by the same inner split. A point whose score falls below the median of the earlier ones at the
    same inner fold, or after the same evaluation, is pruned. A point that cannot be trained, say because of a rate at
    which numbers overflow, is kept with its reason and never chosen; NearfarError where none can be. The ``records``
    are the training rows of the trial; models are saved into ``scratch``.
    """
    require_optuna()
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    search = trial.search
    assert search is not None
    study = optuna.create_study(
        direction="maximize",
        sampler=_sampler(search, stream(trial.seed, "search", trial.fold) % 2**32),
        pruner=optuna.pruners.MedianPruner(n_startup_trials=BEFORE_PRUNING, n_warmup_steps=0),
    )
    points: list[SearchPoint] = []
    judge = _by_folds if search.dev is None else _by_share

    def score(suggestions: optuna.Trial) -> float:
        settings = {key: _suggest(suggestions, key, values) for key, values in search.space.items()}
        point: SearchPoint = {"settings": settings, "scores": [], "status": "pruned"}
        points.append(point)
        try:
            value = judge(trial, point, records, scratch / f"point-{len(points)}", suggestions)
        except NearfarError as error:
            point["status"], point["reason"] = "failed", str(error).replace(f"{scratch}/", "")
            raise
        point["status"] = "done"
        return value

    study.optimize(score, n_trials=number_of_points(search), catch=(NearfarError,))
    if not any(point["status"] == "done" for point in points):
        raise NearfarError(f"no point of the search could be trained; the first: {points[0]['reason']}")
    return dict(points[study.best_trial.number]["settings"]), points


def require_optuna() -> None:
    """Refuse to search without the package that does it."""
    if importlib.util.find_spec("optuna") is None:
        raise SettingError("a search needs Optuna, which is not installed: pip install optuna.")


def _by_folds(trial: Trial, point: SearchPoint, records: Records, out: Path, suggestions: optuna.Trial) -> float:
    """The mean score of a point over inner folds."""
    import optuna

    assert trial.search is not None
    k, scores = trial.search.folds or FOLDS, point["scores"]
    for place, (inside, outside) in enumerate(folds(records, k, seed=stream(trial.seed, "inner", trial.fold) % 2**31)):
        folder = out.with_name(f"{out.name}-{place}")
        reports = train(trial, point["settings"], records.take(inside), folder, test=records.take(outside))
        scores.append(_finite(reports["test"], trial.metric))
        suggestions.report(sum(scores) / len(scores), step=place)
        if suggestions.should_prune() and place + 1 < k:
            raise optuna.TrialPruned
    return sum(scores) / len(scores)


def _by_share(trial: Trial, point: SearchPoint, records: Records, out: Path, suggestions: optuna.Trial) -> float:
    """The score of a point on a share of the rows."""
    assert trial.search is not None
    assert trial.search.dev is not None
    pruner = _Pruner(suggestions, trial.metric, point["scores"])
    if trial.search.dev == "recipe":
        reports = train(trial, point["settings"], records, out, callbacks=(pruner,))
        if "dev" not in reports:
            raise NearfarError('search.dev is "recipe", but no dev rows were set aside: set data.dev of the recipe.')
        return _finite(reports["dev"], trial.metric)
    seed = stream(trial.seed, "inner", trial.fold) % 2**31
    rest, apart = holdout(records, trial.search.dev, seed=seed, name="search")
    reports = train(trial, point["settings"], records.take(rest), out, dev=records.take(apart), callbacks=(pruner,))
    return _finite(reports["dev"], trial.metric)


def _finite(scores: Mapping[str, float], metric: str) -> float:
    """The score of a point; NearfarError where it is no number."""
    if not math.isfinite(scores[metric]):
        raise NearfarError(f"the score {metric} is {scores[metric]}; the model computes no numbers.")
    return scores[metric]


class _Pruner(Callback):
    """Reports the dev score of every evaluation, and ends a training that is behind."""

    def __init__(self, suggestions: optuna.Trial, metric: str, scores: list[float]) -> None:
        self.suggestions, self.metric, self.scores = suggestions, metric, scores

    def evaluation(self, entry: EvaluationEntry) -> None:
        import optuna

        self.scores.append(entry["scores"][self.metric])
        self.suggestions.report(max(self.scores), step=len(self.scores))
        if self.suggestions.should_prune():
            raise optuna.TrialPruned


def _sampler(search: Search, seed: int) -> optuna.samplers.BaseSampler:
    import optuna

    if search.method == "grid":
        grid = {key: _categories(values) for key, values in search.space.items() if not isinstance(values, Range)}
        return optuna.samplers.GridSampler(grid, seed=seed)
    if search.method == "random":
        return optuna.samplers.RandomSampler(seed=seed)
    return optuna.samplers.TPESampler(seed=seed)


def _suggest(suggestions: optuna.Trial, key: str, values: Choices) -> Setting:
    if not isinstance(values, Range):
        chosen = suggestions.suggest_categorical(key, _categories(values))
        return values[cast(int, chosen)] if _has_tables(values) else cast(Setting, chosen)
    if isinstance(values.low, int) and isinstance(values.high, int):
        return suggestions.suggest_int(key, values.low, values.high, log=values.log)
    return suggestions.suggest_float(key, values.low, values.high, log=values.log)


def _categories(values: tuple[Setting, ...]) -> list[Any]:
    """What Optuna chooses from: the values, or where tables are among them, which it does not take, their places."""
    return list(range(len(values))) if _has_tables(values) else list(values)


def _has_tables(values: tuple[Setting, ...]) -> bool:
    return any(isinstance(value, dict) for value in values)
