"""Choosing settings on the training rows of a trial: inner folds or a dev share, with hopeless points given up early.

The test rows of the trial are never seen here: this module gets the training rows and nothing else.
"""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nearfar.data import Records, folds, holdout
from nearfar.errors import NearfarError, SettingError
from nearfar.experiments.runs import Trial, train
from nearfar.seeds import stream
from nearfar.training import Callback, EvaluationEntry

if TYPE_CHECKING:
    import optuna

POINTS = 20
FOLDS = 3
BEFORE_PRUNING = 4
"""Points that are judged in full, so that there is a median to fall short of."""


def number_of_points(search: Mapping[str, Any]) -> int:
    """How many points a search tries.

    >>> number_of_points({"method": "grid", "trials": None, "space": {"a": [1, 2], "b": [1, 2, 3]}})
    6
    """
    if search["method"] != "grid":
        return int(search["trials"] or POINTS)
    points = math.prod(len(values) for values in search["space"].values())
    return min(points, search["trials"] or points)


def choose_settings(trial: Trial, records: Records, scratch: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The best point of the trial's search space, and all points that were tried, in order.

    Every point is judged by the same inner split. A point whose score falls below the median of the earlier ones at the
    same inner fold, or after the same evaluation, is pruned. A point that cannot be trained, say because of a rate at
    which numbers overflow, is kept with its reason and never chosen; NearfarError where none can be.

    Args:
        trial: whose contender searches.
        records: the training rows of the trial.
        scratch: a folder for the models.
    """
    require_optuna()
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    search = trial.search
    assert search is not None
    space: dict[str, Any] = search["space"]
    study = optuna.create_study(
        direction="maximize", sampler=_sampler(search, stream(trial.seed, "search", trial.fold) % 2**32),
        pruner=optuna.pruners.MedianPruner(n_startup_trials=BEFORE_PRUNING, n_warmup_steps=0),
    )  # fmt: skip
    tried: list[dict[str, Any]] = []

    def judge(point: optuna.Trial) -> float:
        settings = {key: _suggest(point, key, values) for key, values in space.items()}
        entry: dict[str, Any] = {"settings": settings, "scores": [], "status": "pruned"}
        tried.append(entry)
        judged = _by_share if search["dev"] else _by_folds
        try:
            value = judged(trial, settings, records, scratch / f"point-{len(tried)}", point, entry["scores"])
        except NearfarError as error:
            entry.update(status="failed", reason=str(error).replace(f"{scratch}/", ""))
            raise
        entry["status"] = "done"
        return value

    study.optimize(judge, n_trials=number_of_points(search), catch=(NearfarError,))
    if not any(entry["status"] == "done" for entry in tried):
        raise NearfarError(f"no point of the search could be trained; the first: {tried[0]['reason']}")
    return dict(tried[study.best_trial.number]["settings"]), tried


def require_optuna() -> None:
    """Refuse to search without the package that does it."""
    if importlib.util.find_spec("optuna") is None:
        raise SettingError("a search needs Optuna, which is not installed: pip install 'nearfar[search]'.")


def _by_folds(
    trial: Trial, settings: Mapping[str, Any], records: Records, out: Path, point: optuna.Trial, scores: list[float]
) -> float:
    import optuna

    assert trial.search is not None
    k = trial.search["folds"] or FOLDS
    for place, (inside, outside) in enumerate(folds(records, k, seed=stream(trial.seed, "inner", trial.fold) % 2**31)):
        found = train(
            trial, settings, records.take(inside), out.with_name(f"{out.name}-{place}"), test=records.take(outside)
        )
        scores.append(_number(found["test"], trial.metric))
        point.report(sum(scores) / len(scores), step=place)
        if point.should_prune() and place + 1 < k:
            raise optuna.TrialPruned
    return sum(scores) / len(scores)


def _by_share(
    trial: Trial, settings: Mapping[str, Any], records: Records, out: Path, point: optuna.Trial, scores: list[float]
) -> float:
    assert trial.search is not None
    seed = stream(trial.seed, "inner", trial.fold) % 2**31
    rest, apart = holdout(records, trial.search["dev"], seed=seed, name="search")
    watcher = _Watcher(point, trial.metric, scores)
    found = train(trial, settings, records.take(rest), out, dev=records.take(apart), listeners=(watcher,))
    return _number(found["dev"], trial.metric)


def _number(scores: Mapping[str, float], metric: str) -> float:
    """The score of a point; NearfarError where it is none."""
    if not math.isfinite(scores[metric]):
        raise NearfarError(f"the score {metric} is {scores[metric]}; the model computes no numbers.")
    return scores[metric]


class _Watcher(Callback):
    """Reports the dev score of every evaluation, and ends a training that is behind."""

    def __init__(self, point: optuna.Trial, metric: str, scores: list[float]) -> None:
        self.point, self.metric, self.scores = point, metric, scores

    def evaluation(self, entry: EvaluationEntry) -> None:
        import optuna

        self.scores.append(entry["scores"][self.metric])
        self.point.report(max(self.scores), step=len(self.scores))
        if self.point.should_prune():
            raise optuna.TrialPruned


def _sampler(search: Mapping[str, Any], seed: int) -> optuna.samplers.BaseSampler:
    import optuna

    if search["method"] == "grid":
        grid = {key: list(values) for key, values in search["space"].items()}
        return optuna.samplers.GridSampler(grid, seed=seed)
    if search["method"] == "random":
        return optuna.samplers.RandomSampler(seed=seed)
    return optuna.samplers.TPESampler(seed=seed)


def _suggest(point: optuna.Trial, key: str, values: Any) -> Any:
    if not isinstance(values, Mapping):
        return point.suggest_categorical(key, list(values))
    low, high, log = values["low"], values["high"], values["log"]
    if isinstance(low, int) and isinstance(high, int):
        return point.suggest_int(key, low, high, log=log)
    return point.suggest_float(key, low, high, log=log)
