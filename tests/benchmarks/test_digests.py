"""The digests of small runs: what changes them, what is left out, and what a comparison says."""

from __future__ import annotations

import contextlib
import io
import json
import runpy
import sys
from pathlib import Path

import numpy as np
import pytest
from benchmarks.digest_cases import Case, Command, as_toml, cases, laid_over, write_data
from benchmarks.digests import ERROR, compare, folder_parts, main, run_case, weights
from safetensors.numpy import save_file

SAME = {"a": {"weights:model.safetensors": "1", "metrics:metrics.json": "2"}, "b": {"embeddings:v.npy": "3"}}


def write_run(folder: Path, *, weight: float = 1.0, loss: float = 0.5, seconds: float = 1.0) -> Path:
    """A model folder, as far as it is digested."""
    folder.mkdir(parents=True)
    tensors = {"b": np.full((2, 2), weight, np.float32), "a": np.zeros(3, np.int64)}
    save_file(tensors, folder / "model.safetensors")
    step = {"kind": "step", "loss": loss, "seconds": seconds}
    (folder / "journal.jsonl").write_text(json.dumps(step) + "\n")
    (folder / "metrics.json").write_text(json.dumps({"dev": {"f1": 0.5}, "training": {"seconds": seconds}}))
    (folder / "recipe.toml").write_text(f'[data]\ntrain = "{folder.parent}/data/t.csv"\n')
    (folder / "README.md").write_text(f"{seconds} seconds")
    return folder


def test_a_weight_changes_the_digest_of_the_weights_only(tmp_path):
    """Times, paths and texts for people change nothing."""
    one = folder_parts(write_run(tmp_path / "1" / "m"), hide=tmp_path / "1")
    later = folder_parts(write_run(tmp_path / "2" / "m", seconds=2.0), hide=tmp_path / "2")
    moved = folder_parts(write_run(tmp_path / "3" / "m", weight=1.0000001), hide=tmp_path / "3")
    taught = folder_parts(write_run(tmp_path / "4" / "m", loss=0.25), hide=tmp_path / "4")

    assert set(one) == {
        "weights:model.safetensors", "journal:journal.jsonl", "metrics:metrics.json", "recipe:recipe.toml"
    }  # fmt: skip
    assert later == one
    assert {part for part in one if moved[part] != one[part]} == {"weights:model.safetensors"}
    assert {part for part in one if taught[part] != one[part]} == {"journal:journal.jsonl"}


@pytest.mark.parametrize(
    "other",
    [
        {"b": np.zeros((2, 3), np.float32)},
        {"a": np.zeros((3, 2), np.float32)},
        {"a": np.zeros((2, 3), np.int32)},
        {"a": np.array([[0, 0, 0], [0, 0, -0.0]], np.float32)},
        {"a": np.zeros((2, 3), np.float32), "b": np.zeros(0, np.float32)},
    ],
    ids=["name", "shape", "type", "bytes", "one more"],
)
def test_name_shape_type_and_bytes_of_a_tensor_count(tmp_path, other):
    save_file({"a": np.zeros((2, 3), np.float32)}, tmp_path / "one.safetensors", metadata={"format": "pt"})
    save_file({"a": np.zeros((2, 3), np.float32)}, tmp_path / "same.safetensors")
    save_file(other, tmp_path / "other.safetensors")
    assert weights(tmp_path / "one.safetensors") == weights(tmp_path / "same.safetensors")
    assert weights(tmp_path / "one.safetensors") != weights(tmp_path / "other.safetensors")


def write_study(folder: Path, name: str, score: float) -> Path:
    trial = folder / "trials" / name
    trial.mkdir(parents=True)
    cell = {"id": name, "data": "d", "limit": None, "contender": "c", "seed": 2, "fold": 0}
    (folder / "study.json").write_text(json.dumps({"name": "s", "cells": [cell]}))
    record = {**cell, "metric": "f1", "scores": {"f1": score}, "recipe": {"seed": 2}, "peak_mb": score}
    (trial / "record.json").write_text(json.dumps(record))
    (trial / "predictions.jsonl").write_text('{"row": 0}\n')
    return folder.parent


def test_trials_of_a_study_are_found_by_their_places(tmp_path):
    """The name of a trial has a part of its own, a score is one of the records."""
    one = folder_parts(write_study(tmp_path / "1" / "s", "abc", 0.5), hide=tmp_path)
    named = folder_parts(write_study(tmp_path / "2" / "s", "xyz", 0.5), hide=tmp_path)
    scored = folder_parts(write_study(tmp_path / "3" / "s", "abc", 0.25), hide=tmp_path)

    assert {part for part in one if named[part] != one[part]} == {"ids:s"}
    assert {part for part in one if scored[part] != one[part]} == {"records:s"}


def test_two_equal_files_are_the_same(tmp_path, capsys):
    for name in ("a.json", "b.json"):
        (tmp_path / name).write_text(json.dumps(SAME))
    assert main(["--compare", str(tmp_path / "a.json"), str(tmp_path / "b.json")]) == 0
    assert "2 cases are the same, 0 differ" in capsys.readouterr().out


def test_a_difference_names_case_and_part_and_leaves_with_1(tmp_path, capsys):
    other = {"a": {"weights:model.safetensors": "9", "card:c": "4", "metrics:metrics.json": "2"}}
    (tmp_path / "a.json").write_text(json.dumps(SAME))
    (tmp_path / "b.json").write_text(json.dumps(other))
    files = [str(tmp_path / "a.json"), str(tmp_path / "b.json")]

    assert main(["--compare", *files]) == 1
    out = capsys.readouterr().out
    assert "DIFFERS  a: card:c (only in the second), weights:model.safetensors\n" in out
    assert "DIFFERS  b: only in the first\n" in out
    assert main(["--compare", *files, "--only", "a", "--ignore", "weights"]) == 1
    assert main(["--compare", *files, "--only", "a", "--ignore", "weights", "--ignore", "card:*"]) == 0
    assert main(["--compare", *files, "--only", "nothing"]) == 1


@pytest.mark.parametrize(
    ("one", "other", "told"),
    [
        ({ERROR: "out of luck"}, {ERROR: "out of luck"}, "ERROR    a: out of luck"),
        ({ERROR: "out of luck"}, {ERROR: "bad"}, "DIFFERS  a: the first fails: out of luck; the second fails: bad"),
        ({"metrics:m": "1"}, {ERROR: "bad"}, "DIFFERS  a: the second fails: bad"),
    ],
)
def test_a_case_that_fails_is_never_the_same(one, other, told, capsys):
    assert compare({"a": one}, {"a": other}) == 1
    assert told in capsys.readouterr().out


def test_a_failed_command_ends_its_case(tmp_path):
    ran = []

    def run(command: Command, folder: Path) -> str | None:
        ran.append(command.words[0])
        return "out of luck" if command.words[0] == "predict" else None

    case = Case("a", (Command(("train",)), Command(("predict",)), Command(("embed",))), {"seed": 3})
    assert run_case(case, tmp_path, run) == {ERROR: "out of luck"}
    assert ran == ["train", "predict"]


def test_files_that_cannot_be_read_and_cases_that_are_not_there_leave_with_2(tmp_path, capsys):
    assert main(["--compare", str(tmp_path / "a.json"), str(tmp_path / "b.json")]) == 2
    assert main(["--only", "no such case", "--list"]) == 2
    assert main([]) == 2
    assert "no case matches no such case" in capsys.readouterr().err


def test_every_objective_has_a_case(monkeypatch):
    """As the command line lists them."""
    out = io.StringIO()
    monkeypatch.setattr(sys, "argv", ["nearfar", "objectives", "--json"])
    with contextlib.redirect_stdout(out), contextlib.suppress(SystemExit):
        runpy.run_module("nearfar", run_name="__main__")
    assert set.union(*(case.objectives() for case in cases())) == set(json.loads(out.getvalue()))


def test_every_command_has_a_case():
    from typer.main import get_command

    from nearfar.cli import app

    used = {command.words[0] for case in cases() for command in case.commands}
    assert used == set(get_command(app).commands) - {"objectives", "push"}  # type: ignore[attr-defined]  # texts for people; the hub


def test_recipes_are_toml_with_tables_laid_over_each_other():
    import tomllib

    values = laid_over({"a": {"b": 1, "c": 2}, "objective": {"name": "x", "y": 1}}, {"a": {"c": [3]}},
                       {"objective": {"name": "z"}})  # fmt: skip
    assert values == {"a": {"b": 1, "c": [3]}, "objective": {"name": "z"}}
    for case in cases():
        assert tomllib.loads(as_toml(case.values)) == case.values


def test_data_is_the_same_every_time(tmp_path):
    for name in ("one", "other"):
        write_data(tmp_path / name)
    files = [path.relative_to(tmp_path / "one") for path in (tmp_path / "one").rglob("*") if path.is_file()]
    assert len(files) > 15
    assert all((tmp_path / "one" / name).read_bytes() == (tmp_path / "other" / name).read_bytes() for name in files)
