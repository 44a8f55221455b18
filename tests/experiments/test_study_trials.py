"""One trial: what its record says, that it is the same every time, and that failing is a record, too."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import accuracy_score, f1_score

from nearfar.data import read
from nearfar.encoding import load
from nearfar.experiments.plan import plan_study
from nearfar.experiments.records import MEASURED, find_record, read_journal, read_map, read_predictions, write_record
from nearfar.experiments.rows import rows_of, split, write_rows
from nearfar.experiments.study import read_study
from nearfar.experiments.trial import Trial
from nearfar.experiments.trials import perform
from nearfar.pipeline.evaluate import measure
from tests.experiments.studies import small_study


def trials(folder: Path, *edits: tuple[str, str]) -> list[Trial]:
    return list(plan_study(read_study(small_study(folder, *edits))).trials.values())


def test_a_record_says_what_was_done_and_what_came_out(tmp_path):
    """Scores, confusion and predictions agree with each other and with scikit-learn; nothing names a scratch folder."""
    trial = trials(tmp_path)[0]
    (tmp_path / "scratch").mkdir()
    record, files = perform(trial, tmp_path / "scratch")
    assert record.reason is None
    write_record(tmp_path / "s", record, files)
    found = find_record(tmp_path / "s", trial.id)
    assert found is not None
    lines = read_predictions(found)
    truth, said = [line["label"] for line in lines], [line["predicted"] for line in lines]
    assert found.scores["accuracy"] == pytest.approx(accuracy_score(truth, said))
    assert found.scores["f1_weighted"] == pytest.approx(f1_score(truth, said, average="weighted", zero_division=0))
    assert np.trace(found.confusion) == sum(a == b for a, b in zip(truth, said, strict=True))
    records = read(str(tmp_path / "t.jsonl"))
    for line in lines:
        assert (records.texts[0][line["row"]], records.labels[line["row"]]) == (line["text"], line["label"])
        assert line["predicted"] == max(line["probabilities"], key=line["probabilities"].get)
        assert sum(line["probabilities"].values()) == pytest.approx(1, abs=1e-5)
    assert (found.texts, found.test, len(lines)) == (16, 8, 8)
    assert found.labels == ["fruit", "tool"]
    assert found.per_class["fruit"]["support"] == truth.count("fruit")
    assert found.recipe["training"]["epochs"] == 1
    assert found.recipe["seed"] == 2
    assert set(found.geometry) == {"before", "after"}
    assert found.geometry["before"].keys() == {"alignment", "uniformity", "anisotropy", "effective_rank"}
    assert found.geometry["before"] != found.geometry["after"]
    assert [entry["step"] for entry in read_journal(found) if entry["kind"] == "step"] == [1, 2]
    kept = read_map(found)
    assert kept is not None
    assert sorted(kept[0].tolist()) == sorted(line["row"] for line in lines)
    assert not np.array_equal(kept[1], kept[2])
    assert min(found.seconds, found.cpu_seconds, found.peak_mb) > 0
    assert "scratch" not in json.dumps(found.recipe)


def test_a_trial_has_the_same_numbers_whatever_ran_before_it(tmp_path):
    """A process that has run other trials computes the same bits as for its first."""
    first, second, *_ = trials(tmp_path)
    outcomes = []
    for place, trial in enumerate((second, first, second)):
        (tmp_path / str(place)).mkdir()
        outcomes.append(perform(trial, tmp_path / str(place)))
    (one, files), _, (other, others) = outcomes
    assert replace(one, **dict.fromkeys(MEASURED, 0.0)) == replace(other, **dict.fromkeys(MEASURED, 0.0))
    assert files["predictions.jsonl"] == others["predictions.jsonl"]
    assert files["map.safetensors"] == others["map.safetensors"]


def test_a_trial_that_fails_is_a_record_with_the_reason(tmp_path):
    """What nearfar refuses in its own words, anything else with its kind and place."""
    (tmp_path / "scratch").mkdir()
    refused, _ = perform(trials(tmp_path, ('"toy"', '"./nowhere"'))[0], tmp_path / "scratch")
    assert refused.status == "failed"
    assert "there is no such folder" in str(refused.reason)
    trial = trials(tmp_path)[0]
    changed, _ = perform(replace(trial, digest="other"), tmp_path / "scratch")
    assert "the rows have changed since the study began" in str(changed.reason)
    broken, files = perform(replace(trial, fold=99), tmp_path / "scratch")
    assert (broken.status, broken.scores, files) == ("failed", {}, {})
    assert str(broken.reason).startswith("IndexError: list index out of range (rows.py, line ")


def test_pairs_are_measured_by_their_cosines(tmp_path):
    """Predictions are cosines, and the metric is that of the rows."""
    rows = [{"text_a": f"apple {n}", "text_b": f"pear {n % 5}", "score": n % 6} for n in range(24)]
    (tmp_path / "t.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    pairs = (
        ('name = "cross-entropy"', 'name = "cosine-mse"'),
        ('name = "triple-entropy"\ncenters = 2', 'name = "pearson"'),
    )
    trial = trials(tmp_path, *pairs)[0]
    (tmp_path / "scratch").mkdir()
    record, files = perform(trial, tmp_path / "scratch")
    assert record.reason is None
    assert (record.kind, record.metric) == ("scores", "spearman")
    lines = [json.loads(line) for line in files["predictions.jsonl"].splitlines()]
    assert len(lines) == record.test == 8
    assert all(-1.001 <= line["predicted"] <= 1.001 for line in lines)
    assert all(rows[line["row"]]["score"] == line["score"] for line in lines)


def test_triplets_are_kept_with_both_cosines(tmp_path):
    """The accuracy follows from them: how often the positive is nearer than the negative."""
    rows = [{"anchor": f"apple {n}", "positive": f"red apple {n}", "negative": f"saw {n % 5}"} for n in range(24)]
    (tmp_path / "t.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    pairs = (
        ('name = "cross-entropy"', 'name = "batch-softmax"'),
        ('name = "triple-entropy"\ncenters = 2', 'name = "pair-triplet"'),
    )
    (tmp_path / "scratch").mkdir()
    record, files = perform(trials(tmp_path, *pairs)[0], tmp_path / "scratch")
    assert record.reason is None
    lines = [json.loads(line) for line in files["predictions.jsonl"].splitlines()]
    assert len(lines) == record.test == 8
    assert all({name: line[name] for name in rows[0]} == rows[line["row"]] for line in lines)
    nearer = [line["predicted"][0] > line["predicted"][1] for line in lines]
    assert record.scores["accuracy"] == np.mean(nearer)


def test_where_a_yes_begins_is_not_chosen_by_the_rows_that_are_tested_on(tmp_path):
    """Without dev rows it is the best threshold of the training rows."""
    rows = [{"text_a": f"apple {n}", "text_b": f"pear {n % 5} {n % 7}", "label": n % 2} for n in range(36)]
    (tmp_path / "t.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    pairs = (
        ('name = "cross-entropy"', 'name = "batch-softmax"'),
        ('name = "triple-entropy"\ncenters = 2', 'name = "contrastive-pairs"'),
    )
    trial = trials(tmp_path, *pairs)[0]
    (tmp_path / "scratch").mkdir()
    record, files = perform(trial, tmp_path / "scratch")
    assert record.reason is None
    assert record.kind == "pairs"
    assert any("the best threshold of the training rows" in note for note in record.notes)

    model = load(tmp_path / "scratch" / "model")
    part = split(rows_of(trial.source), trial)
    chosen, _ = measure(model, part.train)
    lines = [json.loads(line) for line in files["predictions.jsonl"].splitlines()]
    said = np.array([line["predicted"] for line in lines])
    truth = np.array([int(line["label"]) for line in lines])
    assert record.scores["f1"] == pytest.approx(f1_score(truth, said >= chosen.thresholds["threshold"]))
    assert record.scores["accuracy"] == np.mean((said >= chosen.thresholds["accuracy_threshold"]) == truth)


def test_pairs_that_contradict_each_other_fail_a_trial_or_are_dropped(tmp_path):
    """As [[data]] says; the reason names the file of the user, and its line."""
    rows = [{"text_a": f"apple {n}", "text_b": f"pear {n}", "label": n % 2} for n in range(12)]
    (tmp_path / "t.jsonl").write_text("".join(json.dumps(row) + "\n" for row in [*rows, {**rows[1], "label": 0}]))
    pairs = (
        ('name = "cross-entropy"', 'name = "batch-softmax"'),
        ('name = "triple-entropy"\ncenters = 2', 'name = "cosine-mse"'),
        ('file = "t.jsonl"', 'file = "t.jsonl"\ntest = "t.jsonl"'),
    )
    (tmp_path / "scratch").mkdir()
    refused, _ = perform(trials(tmp_path, *pairs)[0], tmp_path / "scratch")
    assert str(refused.reason).startswith("t.jsonl:13: the label 0 contradicts line 2")
    drop = ('file = "t.jsonl"', 'file = "t.jsonl"\ninvalid = "drop"')
    record, _ = perform(trials(tmp_path, *pairs, drop)[0], tmp_path / "scratch")
    assert record.reason is None


def test_a_reason_names_the_lines_of_the_file_whatever_rows_were_drawn(tmp_path):
    """And no folder that is gone: the rows of a trial are never written."""
    rows = [{"text_a": f"apple {n}", "text_b": f"pear {n}", "score": n % 3 / 2} for n in range(12)]
    (tmp_path / "t.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    pairs = (
        ('name = "cross-entropy"', 'name = "contrastive-pairs"'),
        ('name = "triple-entropy"\ncenters = 2', 'name = "cosine-mse"'),
    )
    (tmp_path / "scratch").mkdir()
    trial = trials(tmp_path, *pairs)[0]
    refused, _ = perform(trial, tmp_path / "scratch")
    part = split(rows_of(trial.source), trial)
    line = next(line for line, score in zip(part.train.lines, part.train.scores, strict=True) if score == 0.5)
    assert str(refused.reason).startswith(f"t.jsonl:{line}: contrastive-pairs takes a pair as positive or negative")
    assert rows[line - 1]["score"] == 0.5
    assert list((tmp_path / "scratch").iterdir()) == []


@pytest.mark.parametrize(
    "row",
    [
        {"text": 'a "quoted"\ttext\u2028', "label": "x"},
        {"text_a": "left", "text_b": "right", "label": "x"},
        {"text_a": "left", "text_b": "right", "score": 0.1},
        {"anchor": "one", "positive": "two", "negative": "three"},
        {"query_id": "q1", "doc_id": "d1", "query": "one", "document": "two", "relevance": 2},
    ],
)
def test_rows_are_written_so_that_they_are_read_back(tmp_path, row):
    """Whatever their shape: a run must see what the study drew."""
    other = {key: (f"{value} more" if isinstance(value, str) else value) for key, value in row.items()}
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(each) + "\n" for each in (row, other)))
    records = read(str(tmp_path / "a.jsonl"))
    columns = write_rows(records, tmp_path / "b.jsonl")
    from nearfar.data import Layout

    again = read(str(tmp_path / "b.jsonl"), Layout(**columns))
    assert again.fingerprint() == records.fingerprint()
    assert again.shape == records.shape
