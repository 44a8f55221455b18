"""``nearfar export``: the table, what it is compared on, and what is not kept."""

from __future__ import annotations

import json

import pytest
from tests.experiments.studies import in_process

import nearfar
from nearfar.exports import quality

ROWS = [("an apple", "fruit"), ("a plum", "fruit"), ("a saw", "tool"), ("a drill", "tool")]
TABLE = ("size", "texts per second", "one text", "changed labels", "accuracy")


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("export")
    rows = [{"text": f"{text} number {n}", "label": label} for n in range(4) for text, label in ROWS]
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    out = folder / "model"
    words = ("--encoder", "toy", "--epochs", "1", "--no-estimate", "--out", out)
    status, _, errors = in_process("train", folder / "rows.jsonl", *words)
    assert status == 0, errors
    return out


def test_a_graph_predicts_what_the_model_predicts_and_its_cost_is_printed(model, tmp_path):
    status, printed, errors = in_process("export", model, "--to", "onnx", "--out", tmp_path / "out")
    assert (status, "saved to" in errors) == (0, True)
    for row in (*TABLE, "mean 1 - cosine"):
        assert row in printed
    texts = [text for text, _ in ROWS]
    assert nearfar.load(tmp_path / "out").predict(texts).tolist() == nearfar.load(model).predict(texts).tolist()


def test_static_vectors_are_compared_on_the_rows_given_and_may_be_refused(model, tmp_path):
    """The head is fitted to the training rows; other rows need no labels the model knows."""
    words = ("export", model, "--to", "static", "--out", tmp_path / "out")
    (tmp_path / "rows.csv").write_text("text,label\n" + "".join(f"{text},{label}\n" for text, label in ROWS))
    status, printed, errors = in_process(*words, "--data", tmp_path / "rows.csv", "--force")
    assert (status, "saved to" in errors) == (0, True)
    for row in (*TABLE, "1 - correlation of similarities", "static vectors"):
        assert row in printed
    assert set(nearfar.load(tmp_path / "out").predict([text for text, _ in ROWS])) <= {"fruit", "tool"}

    status, _, errors = in_process(*words)
    assert (status, "--overwrite" in errors) == (1, True)
    (tmp_path / "rows.csv").write_text("text,label\nan apple,fruit\na boat,ship\n")
    status, printed, errors = in_process(*words, "--overwrite", "--data", tmp_path / "rows.csv", "--force")
    assert (status, "accuracy" in printed) == (0, False)
    assert "no class 'ship'" in errors


def test_an_export_below_the_limit_is_not_kept_without_force(model, tmp_path, monkeypatch):
    monkeypatch.setattr(quality, "LIMITS", dict.fromkeys(quality.LIMITS, quality.Limits(-1.0, -101, -1)))
    words = ("export", model, "--to", "static", "--out", tmp_path / "out")
    status, _, errors = in_process(*words)
    assert (status, (tmp_path / "out").exists()) == (1, False)
    assert "the export is not kept" in errors
    assert in_process(*words, "--force")[0] == 0
    assert (tmp_path / "out" / "model.safetensors").is_file()


def test_a_refused_export_leaves_the_one_before_it(model, tmp_path, monkeypatch):
    words = ("export", model, "--to", "static", "--out", tmp_path / "out")
    assert in_process(*words, "--force")[0] == 0
    before = (tmp_path / "out" / "model.safetensors").read_bytes()
    monkeypatch.setattr(quality, "LIMITS", dict.fromkeys(quality.LIMITS, quality.Limits(-1.0, -101, -1)))
    assert in_process(*words, "--overwrite")[0] == 1
    assert (tmp_path / "out" / "model.safetensors").read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_only_an_export_is_overwritten(model, tmp_path, monkeypatch):
    (tmp_path / "papers").mkdir()
    (tmp_path / "papers" / "thesis.txt").write_text("years of work")
    words = ("export", model, "--to", "static", "--overwrite", "--out")
    status, _, errors = in_process(*words, tmp_path / "papers")
    assert (status, "holds no export" in errors) == (1, True)
    assert (tmp_path / "papers" / "thesis.txt").is_file()
    monkeypatch.chdir(tmp_path)
    status, _, errors = in_process(*words, ".")
    assert (status, "a folder of its own" in errors) == (1, True)


@pytest.mark.parametrize("kind", ["onnx", "static"])
def test_commands_that_need_the_model_itself_say_so(model, tmp_path, kind):
    in_process("export", model, "--to", kind, "--out", tmp_path / "out", "--force")
    (tmp_path / "rows.txt").write_text("an apple\n")
    for words in (("predict", tmp_path / "out", tmp_path / "rows.txt"), ("export", tmp_path / "out", "--out", "x")):
        status, _, errors = in_process(*words)
        assert (status, "this is an exported model" in errors) == (1, True)


@pytest.mark.parametrize(
    ("flags", "reason"),
    [
        (("--to", "onxx"), "--to is onnx, openvino, static or transformers"),
        (("--int8",), "--int8 is for --to onnx"),
        (("--to", "onnx", "--task", "kind"), "--task is for --to transformers"),
        (("--to", "onnx", "--data", "none.csv"), "none.csv"),
        ((), "reads vectors of length one"),
    ],
)
def test_wrong_flags_are_refused_before_the_work(model, tmp_path, flags, reason):
    status, _, errors = in_process("export", model, "--out", tmp_path / "out", *flags)
    assert status in (1, 2)
    assert reason in errors
    assert not (tmp_path / "out").exists()


def test_an_encoder_by_name_is_compared_on_texts_of_ours(tmp_path):
    status, printed, errors = in_process("export", "toy", "--to", "transformers", "--out", tmp_path / "out")
    assert (status, "compared on 25 texts" in printed) == (0, True)
    assert "--data names rows of yours" in errors
    assert "open it with AutoModel or SentenceTransformer" in errors
