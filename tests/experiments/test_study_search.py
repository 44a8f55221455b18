"""Searches: chosen on the training rows alone, recorded, and the same every time."""

from __future__ import annotations

import importlib.util
import json
from dataclasses import replace
from pathlib import Path

import pytest

from nearfar.experiments import search as searching
from nearfar.experiments.plan import plan_study
from nearfar.experiments.records import Record
from nearfar.experiments.rows import rows_of, split
from nearfar.experiments.study import read_study
from nearfar.experiments.trial import Trial
from nearfar.experiments.trials import perform
from tests.experiments.studies import nearfar, small_study

GRID = '[contender.search]\nmethod = "grid"\nfolds = 2\nspace = { "training.learning_rate" = [1e-7, 3e-3] }\n'
ENCODERS = '[contender.search]\nmethod = "grid"\nfolds = 2\nspace = { "encoder.name" = ["./none", "toy"] }\n'


def trial_with(folder: Path, search: str) -> Trial:
    longer = ("epochs = 1", "epochs = 3")
    study = small_study(folder, longer, ('[[contender]]\nname = "triple"', f'{search}\n[[contender]]\nname = "triple"'))
    return next(iter(plan_study(read_study(study)).trials.values()))


def outcome(trial: Trial, scratch: Path) -> Record:
    scratch.mkdir()
    record, _ = perform(trial, scratch)
    assert record.reason is None
    return record


def test_a_grid_tries_every_point_and_takes_the_best_by_the_inner_folds(tmp_path):
    """The points are in the record with their inner scores; the recipe has the chosen settings."""
    record = outcome(trial_with(tmp_path, GRID), tmp_path / "scratch")
    rates = [point["settings"]["training.learning_rate"] for point in record.searched]
    assert sorted(rates) == [1e-7, 3e-3]
    means = {rate: sum(p["scores"]) / len(p["scores"]) for rate, p in zip(rates, record.searched, strict=True)}
    assert all(len(point["scores"]) == 2 for point in record.searched)
    assert means[record.settings["training.learning_rate"]] == max(means.values())
    assert record.recipe["training"]["learning_rate"] == record.settings["training.learning_rate"]


def test_a_grid_tries_tables_which_set_several_keys_at_once(tmp_path):
    """The weights of a sum are chosen together: Optuna knows no tables, so it chooses their places."""
    tables = [{"one": 0.1, "two": 0.9}, {"one": 0.9, "two": 0.1}]
    blend = (
        '[contender.objective]\nname = "blend"\n[contender.objective.parts]\n'
        'one = { name = "supcon" }\ntwo = { name = "cross-entropy" }\n'
        '[contender.search]\nmethod = "grid"\nfolds = 2\n'
        '[contender.search.space]\n"objective.weights" = [{ one = 0.1, two = 0.9 }, { one = 0.9, two = 0.1 }]\n'
    )
    study = small_study(tmp_path, ('objective = { name = "cross-entropy" }', blend))
    trial = next(iter(plan_study(read_study(study)).trials.values()))
    record = outcome(trial, tmp_path / "scratch")
    tried = [point["settings"]["objective.weights"] for point in record.searched]
    assert sorted(tried, key=lambda table: table["one"]) == tables
    assert record.recipe["objective"]["weights"] == record.settings["objective.weights"]


def test_the_test_rows_have_no_part_in_choosing(tmp_path, monkeypatch):
    """With wrong texts in all test rows, the points, their scores and the choice are the same to the bit.

    Test rows of the two classes exchange their texts, which leaves the folds as they are: what was right is wrong now.
    """
    trial = trial_with(tmp_path, GRID)
    records, _ = rows_of(trial.source)
    part = split((records, None), trial)
    labels = records.labels or []
    fruit, tool = ([row for row in part.rows if labels[row] == label] for label in ("fruit", "tool"))
    texts = list(records.texts[0])
    for one, other in zip(fruit, tool, strict=True):
        texts[one], texts[other] = texts[other], texts[one]
    poisoned = replace(records, texts=(texts,))
    again = split((poisoned, None), trial)
    assert (again.rows, again.train) == (part.rows, part.train)
    read, trained = set[str](), searching.train

    def train(trial, settings, records, out, **others):
        for rows in (records, others.get("dev"), others.get("test")):
            read.update(rows.texts[0] if rows is not None else ())
        return trained(trial, settings, records, out, **others)

    monkeypatch.setattr(searching, "train", train)
    clean = outcome(trial, tmp_path / "clean")
    assert read == set(part.train.texts[0]), "a search reads the training rows, all of them and nothing else"
    (tmp_path / "poisoned").mkdir()
    record, _ = perform(trial, tmp_path / "poisoned", rows=(poisoned, None))
    assert record.reason is None
    assert record.scores["accuracy"] == pytest.approx(1 - clean.scores["accuracy"])
    assert (record.settings, record.searched) == (clean.settings, clean.searched)


@pytest.mark.parametrize("method", ["random", "tpe"])
def test_random_and_guided_searches_repeat_themselves(tmp_path, method):
    """The seed and the fold decide what is tried, within the ends of the range."""
    space = (
        '{ "training.learning_rate" = { low = 1e-5, high = 1e-3, log = true }, "batches.size" = { low = 4, high = 8 } }'
    )
    trial = trial_with(tmp_path, f'[contender.search]\nmethod = "{method}"\ntrials = 3\ndev = 0.25\nspace = {space}\n')
    one, other = (outcome(trial, tmp_path / name) for name in ("one", "other"))
    assert one.searched == other.searched
    assert one.settings == other.settings
    assert len(one.searched) == 3
    for point in one.searched:
        assert 1e-5 <= point["settings"]["training.learning_rate"] <= 1e-3
        assert point["settings"]["batches.size"] in range(4, 9)
    assert len({json.dumps(point["settings"]) for point in one.searched}) == 3


def test_a_point_that_cannot_be_trained_is_kept_with_its_reason_and_not_chosen(tmp_path):
    """One encoder is not there; the other is taken, and the trial goes on."""
    record = outcome(trial_with(tmp_path, ENCODERS), tmp_path / "scratch")
    failed = [point for point in record.searched if point["status"] == "failed"]
    assert [point["settings"] for point in failed] == [{"encoder.name": "./none"}]
    assert "./none" in failed[0]["reason"]
    assert record.settings == {"encoder.name": "toy"}


def test_a_search_without_any_point_that_trains_is_a_failed_trial(tmp_path):
    """With the reason of the first point."""
    trial = trial_with(tmp_path, ENCODERS.replace("toy", "./neither"))
    (tmp_path / "scratch").mkdir()
    record, _ = perform(trial, tmp_path / "scratch")
    assert not record.done
    assert "no point of the search could be trained; the first: " in str(record.reason)


def test_a_search_is_refused_where_optuna_is_not_installed(tmp_path, monkeypatch):
    """Before anything is written, and not in every trial."""
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *more: None if name == "optuna" else find(name, *more)
    )
    study = small_study(tmp_path, ('[[contender]]\nname = "triple"', f'{GRID}\n[[contender]]\nname = "triple"'))
    done = nearfar("run", study)
    assert done.returncode == 1
    assert "pip install optuna" in done.stderr
    assert not (tmp_path / "study").exists()


def test_points_that_fall_behind_are_given_up(tmp_path, monkeypatch):
    """Of many rates of which half get every text wrong, some are pruned before their last inner fold, never chosen."""
    trained = searching.train

    def train(trial, settings, records, out, **others):
        scores = trained(trial, settings, records, out, **others)
        wrong = settings["training.learning_rate"] < 1e-6
        return {
            part: {name: 0.0 if wrong else value for name, value in found.items()} for part, found in scores.items()
        }

    monkeypatch.setattr(searching, "train", train)
    rates = "[3e-3, 2e-3, 4e-3, 3.5e-3, 1e-9, 2e-9, 3e-9, 4e-9]"
    search = f'[contender.search]\nmethod = "random"\ntrials = 12\nfolds = 3\nspace = {{ "training.learning_rate" = {rates} }}\n'
    record = outcome(trial_with(tmp_path, search), tmp_path / "scratch")
    pruned = [point for point in record.searched if point["status"] == "pruned"]
    assert pruned
    assert all(len(point["scores"]) < 3 for point in pruned)
    assert all(len(point["scores"]) == 3 for point in record.searched if point["status"] == "done")
    assert record.settings in [point["settings"] for point in record.searched if point["status"] == "done"]
