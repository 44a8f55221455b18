"""Two processes and one place: the second is refused, or both are right."""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from tests.preloaded import PreloadedCommand

import nearfar
from nearfar.data.writers import RowFile
from nearfar.encoding import load
from nearfar.errors import EncoderError, OutputError
from nearfar.files import FolderClaim
from nearfar.pipeline import train
from nearfar.pipeline.train import TAKEN
from nearfar.recipe import build_recipe
from nearfar.training import Callback

TEXTS = [f"{word} number {number}" for number in range(8) for word in ("apple", "hammer")]
LABELS = ["fruit", "tool"] * 8


def run(out: Path, callback: Callback | None = None, **flags: bool) -> None:
    rows = list(zip(TEXTS, LABELS, strict=True))
    quick = {"epochs": 1, "precision": "fp32"}
    values = {"data": {"train": "memory:train"}, "encoder": {"name": "toy"}, "training": quick}
    train(build_recipe(values, [], where="t"), out, data=rows, callbacks=[callback] if callback else [], **flags)


@pytest.fixture
def file(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = Path("train.csv")
    path.write_text("text,label\n" + "".join(f"{text},{label}\n" for text, label in zip(TEXTS, LABELS, strict=True)))
    return path


class Second(Callback):
    """Starts a second process in the middle of a run."""

    def __init__(self, *words: str) -> None:
        self.words, self.errors, self.status = words, "", None

    def step(self, entry: object) -> None:
        if self.status is None:
            command = PreloadedCommand(*self.words)
            self.status = command.wait(300)
            self.errors = command.communicate()[1]


@pytest.mark.slow
@pytest.mark.parametrize("flag", ["--overwrite", "--resume"])
def test_a_second_training_into_the_folder_is_refused_and_the_first_ends_as_alone(file, flag):
    run(Path("alone"))
    second = Second("train", "train.csv", "--encoder", "toy", "--epochs", "1", "--out", "model", flag)
    run(Path("model"), second)
    assert second.status == 1
    assert f"error: model: {TAKEN}" in second.errors
    assert Path("model/model.safetensors").read_bytes() == Path("alone/model.safetensors").read_bytes()
    assert {path.name for path in Path("model").iterdir()} == {path.name for path in Path("alone").iterdir()}


def test_a_folder_that_another_process_takes_is_refused_before_the_work(tmp_path):
    (tmp_path / "model").mkdir()
    claim = FolderClaim(tmp_path / "model", "")
    claim.take()
    with pytest.raises(OutputError, match="another process is training a model into this folder"):
        run(tmp_path / "model")
    claim.close()
    run(tmp_path / "model")
    run(tmp_path / "model", overwrite=True)


def test_a_folder_that_another_process_fills_meanwhile_is_not_cleared(tmp_path, monkeypatch):
    """Both have seen that there is no such folder; the other one has finished when this one begins to write."""
    out, module = tmp_path / "model", __import__("nearfar.pipeline.train", fromlist=["train"])
    check = module.check_room

    def finish_first(*arguments: object, **settings: object) -> None:
        out.mkdir()
        (out / "nearfar.json").write_text("of the other process")
        check(*arguments, **settings)

    monkeypatch.setattr(module, "check_room", finish_first)
    with pytest.raises(OutputError):
        run(out)
    assert [path.name for path in out.iterdir()] == ["nearfar.json"]


@pytest.mark.slow
def test_a_model_that_is_replaced_is_the_old_one_or_the_new_one_or_refused(file):
    """It is loaded again and again while a training replaces it."""
    run(Path("model"))
    old = load("model").embed(TEXTS)
    command = PreloadedCommand("train", "train.csv", "--encoder", "toy", "--epochs", "3", "--seed", "5", "--out", "model", "--overwrite")  # fmt: skip
    seen: list[np.ndarray] = []
    refusals: list[str] = []
    while command.poll() is None:
        try:
            seen.append(load("model").embed(TEXTS))
        except EncoderError as refusal:
            refusals.append(str(refusal))
            time.sleep(0.005)
    assert command.wait() == 0, command.communicate()
    new = load("model").embed(TEXTS)
    assert not np.array_equal(old, new)
    assert all(np.array_equal(each, old) or np.array_equal(each, new) for each in seen)
    assert refusals


def test_two_predictions_into_one_file_are_refused_or_follow_each_other(tmp_path):
    target = tmp_path / "labels.csv"
    origin = {"the model": "x"}
    with RowFile(target, ["label"], 1, origin) as first, RowFile(target, ["label"], 1, origin) as second:
        first.open(resume=False)
        late = os.open(first.part, os.O_RDWR)
        with pytest.raises(OutputError, match=r"another process is filling labels\.csv\.part"):
            second.open(resume=False)
        first.append([{"label": "a"}])
        first.finish()
        os.close(late)
    with RowFile(target, ["label"], 1, origin) as third:
        third.open(resume=False)
        third.append([{"label": "b"}])
        assert "a" in target.read_text(encoding="utf-8-sig")
        third.finish()
    assert target.read_text(encoding="utf-8-sig").splitlines() == ["label", "b"]


def test_many_threads_load_and_predict_the_same(tmp_path):
    run(tmp_path / "model")
    expected = nearfar.load(tmp_path / "model").predict_proba(TEXTS)
    with ThreadPoolExecutor(6) as pool:
        answers = list(pool.map(lambda _: nearfar.load(tmp_path / "model").predict_proba(TEXTS), range(12)))
    for answer in answers:
        np.testing.assert_array_equal(answer, expected)
