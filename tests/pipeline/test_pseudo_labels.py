"""Unlabeled texts beside labeled ones: which of them join the training, and when none does."""

from __future__ import annotations

import json
import random

import numpy as np
import pytest

import nearfar
from nearfar.cli import main
from nearfar.data import Records
from nearfar.errors import DataError, SettingError
from nearfar.pipeline import pseudo_labels, unlabeled
from nearfar.pipeline.encoder_run import plan_encoder_run
from nearfar.pipeline.estimate import fold_run
from nearfar.pipeline.train import train
from nearfar.recipe import build_recipe, read_recipe
from nearfar.training import Callback

WORDS = {"fruit": "apple plum fig cherry", "tool": "hammer wrench drill chisel"}
ROWS = [(f"{word} {n}", label) for label, words in WORDS.items() for word in words.split() for n in range(20)]
random.Random(0).shuffle(ROWS)
LABELED, POOL = ROWS[:24], [text for text, _ in ROWS[24:]]


class Messages(Callback):
    """What a run says."""

    def __init__(self):
        self.texts = []

    def message(self, text):
        self.texts.append(text)

    def of(self, word):
        return [text for text in self.texts if word in text]


def recipe(training=None, **data):
    values = {
        "data": {"train": "memory:train", "names": "none", **data},
        "encoder": {"name": "toy"},
        "training": {"epochs": 3, "estimate": False, **(training or {})},
    }
    return build_recipe(values, where="test")


def rows(labeled=LABELED, pool=POOL):
    return {"train": labeled, "unlabeled": pool}


def test_texts_whose_neighbors_agree_join_the_training(tmp_path):
    messages = Messages()
    train(recipe(), tmp_path / "m", data=rows(), callbacks=[messages])
    (note,) = messages.of("unlabeled texts:")
    assert "join the training with the class they were given" in note
    assert "at least 70 % needed" in note
    (opening,) = messages.of("rows: train")
    joined = int(opening.split("(")[1].split()[0])
    assert 0 < joined <= len(LABELED)
    assert f"rows: train {24 + joined} (" in opening
    card = (tmp_path / "m/README.md").read_text()
    assert f"{joined} unlabeled texts joined 24 labeled ones in the training" in card
    scope = nearfar.load(tmp_path / "m").model_.model.scope
    assert scope is None  # without the estimate


def test_a_class_gets_so_many_texts_at_most(tmp_path, monkeypatch):
    monkeypatch.setattr(pseudo_labels, "A_CLASS", 2)
    messages = Messages()
    train(recipe({"max_steps": 1}), tmp_path / "m", data=rows(), callbacks=[messages])
    (opening,) = messages.of("rows: train")
    assert 0 < int(opening.split("(")[1].split()[0]) <= 4


def test_labels_that_are_random_keep_unlabeled_texts_out(tmp_path):
    messages, labels = Messages(), ["fruit", "tool"] * 12
    wrong = [(text, label) for (text, _), label in zip(sorted(LABELED), labels, strict=True)]
    train(recipe(), tmp_path / "with", data=rows(wrong), callbacks=[messages])
    train(recipe(), tmp_path / "without", data=wrong)
    assert "unlabeled texts: not used, the labels of" in messages.of("unlabeled texts:")[0]
    files = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("with", "without")]
    assert files[0] == files[1]


def test_the_estimate_is_made_with_labeled_texts_alone(tmp_path):
    messages = Messages()
    summary = train(recipe({"estimate": True}), tmp_path / "m", data=rows(), callbacks=[messages])
    assert messages.of("join the training")
    assert summary.estimate is not None
    assert summary.estimate.rows == len(LABELED)
    scope = nearfar.load(tmp_path / "m").model_.model.scope
    assert scope is not None
    assert scope.counts.sum() == len(LABELED)


def test_a_file_gives_what_memory_gives_and_the_saved_recipe_runs_again(tmp_path, monkeypatch):
    monkeypatch.setattr(unlabeled, "WINDOW", 7)
    few, pool = tmp_path / "few.jsonl", tmp_path / "pool.txt"
    few.write_text("".join(json.dumps({"text": text, "label": label}) + "\n" for text, label in LABELED))
    pool.write_text("\n".join(POOL) + "\n")
    train(recipe(), tmp_path / "memory", data=rows())
    train(recipe(train=str(few), unlabeled=str(pool)), tmp_path / "file")
    train(read_recipe(tmp_path / "file/recipe.toml"), tmp_path / "again")
    names = ("memory", "file", "again")
    first, second, third = [(tmp_path / name / "model.safetensors").read_bytes() for name in names]
    assert first == second == third


def test_the_command_takes_unlabeled_texts_beside_labeled_ones(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "few.jsonl").write_text(
        "".join(json.dumps({"text": text, "label": label}) + "\n" for text, label in LABELED)
    )
    (tmp_path / "pool.txt").write_text("\n".join(POOL) + "\n")
    arguments = ["nearfar", "train", "few.jsonl", "--unlabeled", "pool.txt", "--encoder", "toy", "--no-estimate"]
    for more, words in ((["--dry-run"], f'unlabeled = "{tmp_path}/pool.txt"'), ([], "unlabeled texts: ")):
        monkeypatch.setattr("sys.argv", [*arguments, *more])
        with pytest.raises(SystemExit) as stop:
            main()
        assert not stop.value.code
        assert words in "".join(capsys.readouterr())


def test_labeled_texts_and_repetitions_are_no_unlabeled_texts():
    plan = plan_encoder_run(recipe(), rows(pool=[*POOL, *POOL, LABELED[0][0].upper()]))
    assert plan.pool is not None
    assert plan.pool.texts[0] == POOL


def test_a_large_pool_is_drawn_from_by_the_seed(monkeypatch):
    monkeypatch.setattr(unlabeled, "MOST_BESIDE", 60)
    first, second = (plan_encoder_run(recipe(), rows()).pool for _ in range(2))
    assert first is not None
    assert first == second
    assert len(first) == 60
    assert set(first.texts[0]) < set(POOL)
    assert first.texts[0] != POOL[:60]


def test_the_surest_texts_of_a_class_need_neighbors_that_agree():
    probabilities = np.array([[0.9, 0.1], [0.8, 0.2], [0.95, 0.05], [0.2, 0.8], [0.4, 0.6]])
    agreement = np.array([[0.9, 0.1], [0.9, 0.1], [0.4, 0.6], [0.1, 0.9], [0.3, 0.7]])
    chosen, labels = pseudo_labels.surest(probabilities, agreement, np.array([2, 1]))
    assert chosen.tolist() == [0, 1, 3]
    assert labels.tolist() == [0, 0, 1]
    agreement[0] = [0.55, 0.45]  # less sure than the next text, together with its neighbors
    assert pseudo_labels.surest(probabilities, agreement, np.array([1, 1]))[0].tolist() == [1, 3]


def test_agreement_is_what_the_model_says_of_the_neighbors(tmp_path, monkeypatch):
    seen, pools, plain, of = [], [], pseudo_labels.surest, pseudo_labels._Pool.of
    monkeypatch.setattr(pseudo_labels, "surest", lambda *given: seen.append(given) or plain(*given))
    monkeypatch.setattr(pseudo_labels._Pool, "of", lambda *given: pools.append(of(*given)) or pools[-1])
    train(recipe({"max_steps": 1}), tmp_path / "m", data=rows())
    ((probabilities, agreement, _),) = seen
    np.testing.assert_allclose(agreement, probabilities[pools[0].neighbors].mean(axis=1))
    assert not np.allclose(agreement, probabilities)


def test_held_out_texts_are_labeled_by_a_model_of_the_others_and_count_if_they_are_sure(monkeypatch):
    plan = plan_encoder_run(recipe({"max_steps": 1}), rows())
    assert plan.pool is not None
    pool, part, runs, plain = pseudo_labels._Pool.of(plan, plan.pool), ([*range(16)], [*range(16, 24)]), [], fold_run
    monkeypatch.setattr(pseudo_labels, "fold_run", lambda *given: runs.append(given[1]) or plain(*given))
    sure = np.array([True] * 3 + [False] * 5)
    agreed = pseudo_labels._agreed
    monkeypatch.setattr(pseudo_labels, "_agreed", lambda *given: (agreed(*given)[0], sure))
    assert len(pool.held_out(plan, part)) == 3
    assert runs == [part]


def test_no_text_is_its_own_neighbor(monkeypatch):
    monkeypatch.setattr(unlabeled, "NEIGHBORS", 1)
    vectors = np.array([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0], [0.1, 0.9]])
    assert unlabeled.nearest(vectors, vectors, same=True)[:, 0].tolist() == [1, 0, 3, 2]
    assert unlabeled.nearest(vectors, vectors)[:, 0].tolist() == [0, 0, 2, 2]


def test_pools_that_cannot_be_used():
    with pytest.raises(DataError, match=r"there are 3 unlabeled texts beside the labeled ones, which are too few"):
        plan_encoder_run(recipe(), rows(pool=["a", "b", "c"]))
    with pytest.raises(DataError, match=r"unlabeled texts are single texts, and these are pairs"):
        plan_encoder_run(recipe(), rows(pool={"text_a": ["a", "c"], "text_b": ["b", "d"]}))
    pairs = {"text_a": [f"a {n}" for n in range(20)], "text_b": [f"b {n}" for n in range(20)]}
    with pytest.raises(SettingError, match=r"data\.unlabeled \(--unlabeled\) joins training texts with one class each"):
        plan_encoder_run(recipe(), {"train": pairs, "unlabeled": POOL})
    neighbors = build_recipe(
        {"data": {"train": "memory:train"}, "encoder": {"name": "toy"}, "head": {"kind": "neighbors"}}, where="test"
    )
    with pytest.raises(SettingError, match="a neighbors head does not weigh texts"):
        plan_encoder_run(neighbors, rows())


@pytest.mark.parametrize("adapt", [False, True])
def test_unlabeled_texts_in_another_column_are_refused_with_a_remedy_that_helps(adapt, tmp_path):
    path = tmp_path / "pool.csv"
    path.write_text("".join(f"{line}\n" for line in ["id,msg", *(f"1,{text}" for text in POOL)]), encoding="utf-8")
    values = {"train": "memory:train", "unlabeled": str(path), "adapt": adapt}
    with pytest.raises(DataError, match=r"no column .* as the text .*'msg'\. Give the column the name that it has"):
        plan_encoder_run(build_recipe({"data": values, "encoder": {"name": "toy"}}, where="test"), rows()["train"])


def test_too_few_labeled_texts_decide_nothing(tmp_path):
    messages = Messages()
    few = [next(row for row in LABELED if row[1] == label) for label in WORDS]
    train(recipe(), tmp_path / "m", data=rows(few), callbacks=[messages])
    assert messages.of("unlabeled texts:") == [
        "note: unlabeled texts: not used, there are too few labeled texts to decide by"
    ]


def test_records_keep_track_of_labels_that_are_not_their_own():
    plan = plan_encoder_run(recipe(), LABELED)
    assert plan.data.labeled is plan.data.train
    joined = pseudo_labels._joined(plan, Records((["a", "b"],), None, None, [5, 9], "p"), np.array([1]), np.array([0]))
    assert joined.data.pseudo == 1
    assert joined.data.train.texts[0][-1] == "b"
    assert joined.data.train.weights == [*[1.0] * 24, pseudo_labels.WEIGHT]
    assert joined.data.labeled.texts == plan.data.train.texts
