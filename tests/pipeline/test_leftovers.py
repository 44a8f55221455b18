"""What a killed run leaves is removed by the next start, and never keeps a run from beginning."""

from __future__ import annotations

from pathlib import Path

import pytest

from nearfar.errors import OutputError
from nearfar.pipeline import train
from nearfar.pipeline.output import LEFTOVERS
from nearfar.recipe import Recipe, build_recipe

ROWS = [("the parcel is late", "delivery"), ("where is my parcel", "delivery"), ("charged twice", "payment"),
        ("the invoice is wrong", "payment")]  # fmt: skip


def recipe() -> Recipe:
    values = {"encoder": {"name": "toy"}, "data": {"train": "memory:train", "dev": 0}}
    return build_recipe({**values, "training": {"max_steps": 1, "precision": "fp32", "estimate": False}}, where="test")


def leave(out: Path) -> None:
    """As a kill does while files are written."""
    for name in LEFTOVERS:
        if name == ".saving":
            (out / name).mkdir(parents=True)
            (out / name / "config.json").write_text("{", encoding="utf-8")
        else:
            (out / name).write_text("half", encoding="utf-8")


def names(out: Path) -> set[str]:
    return {path.relative_to(out).as_posix() for path in out.rglob("*")}


def test_a_run_killed_after_it_was_saved_is_tidied(tmp_path: Path):
    """The checkpoints go, and what was half written; the model stays as it is."""
    out = tmp_path / "m"
    train(recipe(), out, data=ROWS)
    before, weights = names(out), (out / "model.safetensors").read_bytes()
    leave(out)
    (out / "checkpoints" / "step-00000001").mkdir(parents=True)

    summary = train(recipe(), out, data=ROWS, resume=True)
    assert summary.progress is None
    assert names(out) == before
    assert (out / "model.safetensors").read_bytes() == weights


@pytest.mark.parametrize("resume", [False, True])
def test_a_run_killed_while_its_first_file_was_written_begins_again(tmp_path: Path, resume):
    """There is nothing in the folder that anybody could want."""
    whole, out = tmp_path / "whole", tmp_path / "m"
    train(recipe(), whole, data=ROWS)
    leave(out)
    train(recipe(), out, data=ROWS, resume=resume)
    assert names(out) == names(whole)


def test_anything_else_in_the_folder_is_left_alone(tmp_path: Path):
    out = tmp_path / "m"
    leave(out)
    (out / "mine.txt").write_text("mine", encoding="utf-8")
    with pytest.raises(OutputError, match="something else than a model"):
        train(recipe(), out, data=ROWS)
    assert (out / "mine.txt").exists()
