"""Records: whole or absent, read back as they were written, under the names of the present plan."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from nearfar.errors import OutputError
from nearfar.experiments.records import (
    MAP,
    PREDICTIONS,
    RECORD,
    STUDY,
    TRIALS,
    Cell,
    DataSet,
    Plan,
    Record,
    clear_leftovers,
    find_record,
    is_done,
    journals,
    map_bytes,
    plan_text,
    read_map,
    read_plan,
    read_predictions,
    read_records,
    scores_of,
    write_record,
)

ONE = Record(
    id="a1", data="trec", limit=100, contender="plain", seed=2, fold=0, status="done", metric="accuracy",
    scores={"accuracy": 0.5}, labels=["x", "y"], confusion=[[1, 2], [3, 4]], seconds=1.5,
)  # fmt: skip
FAILED = replace(ONE, status="failed", scores={}, reason="no memory")


def planned(*cells: tuple[str, str]) -> Plan:
    return Plan(
        name="s", metric="accuracy", baseline="plain", seeds=(2,), folds=2, contenders={"plain": {}, "other": {}},
        data=(DataSet(name="trec", file="t", limits=(100,), digest="d", rows=200, kind="classes", labels=("x", "y")),),
        cells=tuple(
            Cell(id=name, data="trec", limit=100, contender=contender, seed=2, fold=0) for name, contender in cells
        ),
    )  # fmt: skip


def test_a_record_is_read_back_as_it_was_written(tmp_path):
    """With its predictions and its map."""
    vectors = np.arange(6, dtype=np.float32).reshape(2, 3)
    files = {PREDICTIONS: b'{"row": 3}\n', MAP: map_bytes([3, 7], vectors, -vectors)}
    assert write_record(tmp_path, ONE, files)
    found = find_record(tmp_path, "a1")
    assert found == ONE
    assert found is not None
    assert read_predictions(found) == [{"row": 3}]
    kept = read_map(found)
    assert kept is not None
    assert kept[0].tolist() == [3, 7]
    assert np.array_equal(kept[1], vectors)
    assert np.array_equal(kept[2], -vectors)


def test_a_finished_trial_is_never_replaced_and_a_failed_one_is(tmp_path):
    """What has scores stays; what has a reason only makes room."""
    assert write_record(tmp_path, FAILED, {"extra": b""})
    assert not is_done(tmp_path, "a1")
    assert write_record(tmp_path, ONE, {})
    assert not (tmp_path / TRIALS / "a1" / "extra").exists()
    assert not write_record(tmp_path, replace(ONE, scores={"accuracy": 0.9}), {})
    assert find_record(tmp_path, "a1") == ONE
    assert [path.name for path in (tmp_path / TRIALS).iterdir()] == ["a1"]


def test_what_a_killed_process_left_half_written_is_no_record(tmp_path):
    """It has another name until it is whole, and goes when the study is taken up again."""
    write_record(tmp_path, ONE, {})
    half = tmp_path / TRIALS / ".b2-xyz"
    half.mkdir()
    (half / RECORD).write_text("{")
    (tmp_path / STUDY).write_text(plan_text(planned(("a1", "plain"), ("b2", "other"))))
    assert [record.id for record in read_records(tmp_path)] == ["a1"]
    clear_leftovers(tmp_path)
    assert not half.exists()
    assert is_done(tmp_path, "a1")


def test_contenders_that_share_a_trial_each_have_it_and_others_are_left_out(tmp_path):
    """The plan says who is who; a trial that is no part of it any more is kept and not read."""
    write_record(tmp_path, ONE, {})
    write_record(tmp_path, replace(ONE, id="old"), {})
    plan = planned(("a1", "plain"), ("a1", "other"), ("missing", "third"))
    (tmp_path / STUDY).write_text(plan_text(plan))
    assert read_plan(tmp_path) == plan
    records = read_records(tmp_path)
    assert [record.contender for record in records] == ["plain", "other"]
    assert scores_of(records) == {("trec 100", "plain", 2, 0): 0.5, ("trec 100", "other", 2, 0): 0.5}
    assert (tmp_path / TRIALS / "old" / RECORD).exists()


def test_failed_trials_have_no_scores():
    """They count as missing."""
    assert scores_of([ONE, FAILED]) == {("trec 100", "plain", 2, 0): 0.5}


@pytest.mark.parametrize("content", ["{", "[]", '{"format": 99}', '{"format": 1, "id": "a1"}'])
def test_a_spoiled_record_is_refused_with_its_file(tmp_path, content):
    """And with what to do."""
    folder = tmp_path / TRIALS / "a1"
    folder.mkdir(parents=True)
    (folder / RECORD).write_text(content)
    with pytest.raises(OutputError, match=r"a1/record\.json"):
        find_record(tmp_path, "a1")


@pytest.mark.parametrize(
    ("scores", "said"),
    [
        ({"accuracy": float("nan")}, "the score accuracy is nan"),
        ({"accuracy": "high"}, "the score accuracy is 'high'"),
        ({"f1": 0.5}, "there is no score accuracy"),
        (None, "scores is None"),
    ],
)
def test_a_finished_trial_without_a_number_is_refused_with_its_file(tmp_path, scores, said):
    """It would be in no mean, or in all of them."""
    write_record(tmp_path, ONE, {})
    path = tmp_path / TRIALS / "a1" / RECORD
    path.write_text(json.dumps({**json.loads(path.read_text()), "scores": scores}))
    with pytest.raises(OutputError, match=rf"a1/record\.json: .*{said}.* Remove the folder, and run the study again"):
        find_record(tmp_path, "a1")


def test_predictions_that_end_in_the_middle_are_refused_with_their_file(tmp_path):
    """And with what to do."""
    write_record(tmp_path, ONE, {PREDICTIONS: b'{"row": 3}\n{"row":'})
    found = find_record(tmp_path, "a1")
    assert found is not None
    with pytest.raises(OutputError, match=r"a1/predictions\.jsonl: this cannot be read .* Remove the folder"):
        read_predictions(found)


@pytest.mark.parametrize("content", [None, "{", '{"format": 99}', '{"format": 1}'])
def test_a_folder_without_a_study_is_refused(tmp_path, content):
    """Whatever else it holds."""
    if content is not None:
        (tmp_path / STUDY).write_text(content)
    with pytest.raises(OutputError):
        read_plan(tmp_path)


def test_a_record_holds_numbers_only_that_json_has(tmp_path):
    """A score that is not finite is a fault before it is written, and leaves nothing behind."""
    with pytest.raises(ValueError, match="JSON"):
        write_record(tmp_path, replace(ONE, scores={"accuracy": float("nan")}), {})
    assert list((tmp_path / TRIALS).iterdir()) == []


def test_a_record_is_plain_json(tmp_path):
    """For readers in any language."""
    write_record(tmp_path, ONE, {})
    values = json.loads((tmp_path / TRIALS / "a1" / RECORD).read_text())
    assert values["confusion"] == [[1, 2], [3, 4]]
    assert "folder" not in values


def test_journals_of_many_stages_come_in_the_order_of_their_numbers(tmp_path):
    """The tenth after the ninth; where there is one journal of all, the others belong to something else."""
    assert journals(tmp_path) == []
    for number in (10, 9, 1, 2):
        (tmp_path / f"journal-{number}.jsonl").touch()
    assert [path.name for path in journals(tmp_path)] == [f"journal-{number}.jsonl" for number in (1, 2, 9, 10)]
    (tmp_path / "journal.jsonl").touch()
    assert [path.name for path in journals(tmp_path)] == ["journal.jsonl"]
