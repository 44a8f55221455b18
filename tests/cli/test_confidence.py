"""Rejected texts, measured rejection, and more classes: from the command line."""

from __future__ import annotations

import csv
import gzip
import json
from pathlib import Path

import pytest
from tests.cli.test_commands import call

from nearfar.pipeline import train
from nearfar.recipe import build_recipe

WORDS = ("apple", "plum", "pear", "cherry", "melon", "fig", "grape", "lemon")
ROWS = [(f"a ripe {word} from the garden", "fruit") for word in WORDS]
ROWS += [(f"the steel {word} in my shop", "tool") for word in WORDS]
STRANGE = "00 11 22 33 44 55 66 77 88 99"


def table(rows: list[tuple[str, str]]) -> dict[str, list[str]]:
    return {"text": [text for text, _ in rows], "label": [label for _, label in rows]}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of two classes, one that was not calibrated, and files."""
    folder = tmp_path_factory.mktemp("confidence")
    for name, more in (("model", {}), ("bare", {"training": {"estimate": False}})):
        values = {"data": {"train": "memory:train"}, "encoder": {"name": "toy"}, **more}
        train(build_recipe(values, where="test"), folder / name, data=table(ROWS))
    lines = [json.dumps({"text": text, "label": label}) for text, label in ROWS]
    (folder / "rows.jsonl").write_text("\n".join(lines) + "\n")
    (folder / "other.txt").write_text(f"{STRANGE}\n%%% &&& ???\n")
    (folder / "more.csv").write_text("text,label\nwild otters run past,animal\na wild heron flew past,animal\n")
    return folder


def test_rejected_texts_have_no_label_and_all_have_their_typicality(folder: Path, tmp_path: Path) -> None:
    code, out, errors = call("predict", str(folder / "model"), str(folder / "rows.jsonl"), "--reject", "0.05")
    assert code == 0, errors
    rows = [json.loads(line) for line in out.splitlines()]
    assert sum(row["predicted_label"] is not None for row in rows) >= 13
    assert all((row["predicted_label"] is None) == (row["typicality"] < 0.05) for row in rows)
    code, out, _ = call("predict", str(folder / "model"), STRANGE, "--reject", "0.05")
    assert json.loads(out)["label"] is None
    code, out, _ = call("predict", str(folder / "model"), STRANGE)
    assert json.loads(out)["label"] is not None
    assert "typicality" not in json.loads(out)
    target = tmp_path / "labels.csv"
    assert (
        call("predict", str(folder / "model"), str(folder / "other.txt"), "--reject", "0.05", "--out", str(target))[0]
        == 0
    )
    with target.open() as file:
        assert [row["label"] for row in csv.DictReader(file)] == ["", ""]


def test_a_model_without_centers_cannot_reject(folder: Path) -> None:
    for source in (str(folder / "rows.jsonl"), STRANGE):
        code, out, errors = call("predict", str(folder / "bare"), source, "--reject", "0.05")
        assert (code, out) == (1, "")
        assert "this model cannot reject texts" in errors


def test_rejection_is_measured(folder: Path) -> None:
    arguments = [
        "evaluate",
        str(folder / "model"),
        str(folder / "rows.jsonl"),
        "--out-of-scope",
        str(folder / "other.txt"),
    ]
    code, out, errors = call(*arguments, "--json")
    assert code == 0, errors
    found = json.loads(out)
    assert found["out_of_scope"]["auroc"] == 1
    assert found["out_of_scope"]["rejected_out_of_scope"] == 1
    assert 0 <= found["ece"] <= 1
    code, out, _ = call(*arguments)
    assert "2 rows of no class" in " ".join(out.split())
    assert "rejected below the typicality 0.05; 16 texts of the classes, 2 of none" in " ".join(out.split())


def test_out_of_scope_is_for_classifiers(folder: Path) -> None:
    other = str(folder / "other.txt")
    code, _, errors = call("evaluate", "toy", str(folder / "rows.jsonl"), "--clusters", "--out-of-scope", other)
    assert code == 1
    assert "--out-of-scope is for a classifier on labeled texts, not for --clusters" in errors
    missing = str(folder / "missing.txt")
    code, _, errors = call("evaluate", str(folder / "model"), str(folder / "rows.jsonl"), "--out-of-scope", missing)
    assert code == 1
    assert "missing.txt" in errors


def test_a_model_is_extended_into_another_folder(folder: Path, tmp_path: Path) -> None:
    model, more, out = str(folder / "model"), str(folder / "more.csv"), str(tmp_path / "wider")
    code, _, errors = call("extend", model, more, "--out", out)
    assert code == 0, errors
    assert "2 texts, 1 new class beside 2; saved to" in errors
    code, text, _ = call("predict", out, "a wild otter ran past")
    assert json.loads(text)["label"] == "animal"
    assert set(json.loads(text)["probabilities"]) == {"fruit", "tool", "animal"}
    code, _, errors = call("extend", model, more, "--out", out)
    assert code == 1
    assert "the folder is not empty" in errors
    code, _, errors = call("extend", model, more, "--out", model, "--overwrite")
    assert code == 1
    assert "this is the model itself" in errors


def test_extension_reads_large_files_by_a_flag(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nearfar.data.limits.FREE", 10)
    monkeypatch.setattr("nearfar.data.limits.EXPANSION", 1)
    packed = tmp_path / "more.csv.gz"
    packed.write_bytes(gzip.compress((folder / "more.csv").read_bytes() + b"a wild trout swam past,animal\n" * 9))
    asked = ("extend", str(folder / "model"), str(packed), "--out", str(tmp_path / "wider"))
    code, _, errors = call(*asked)
    assert code == 1
    assert "--large" in errors
    code, _, errors = call(*asked, "--large")
    assert code == 0, errors


def test_extension_refuses_what_it_cannot_use(folder: Path, tmp_path: Path) -> None:
    out = str(tmp_path / "wider")
    code, _, errors = call("extend", str(folder / "model"), str(folder / "other.txt"), "--out", out)
    assert code == 1
    assert "texts with one label each, and these have none" in errors
    code, _, errors = call("extend", str(folder / "bare"), str(folder / "more.csv"), "--out", out)
    assert code == 1
    assert "holds nothing of its training texts" in errors
    assert not Path(out).exists()
