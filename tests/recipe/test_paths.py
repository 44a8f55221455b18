"""Paths: files become absolute, everything else stays."""

from dataclasses import replace
from pathlib import Path

import pytest

from nearfar.recipe import Data, Encoder, Recipe, resolve_paths


def resolved(base, **keys):
    return resolve_paths(Recipe(data=Data(**{"train": "t.csv", **keys})), Path(base)).data


def test_files_count_from_the_base():
    data = resolved("/base", train="a.csv", dev="sub/b.csv", test="../c.csv")
    assert (data.train, data.dev, data.test) == ("/base/a.csv", "/base/sub/b.csv", "/base/../c.csv")


def test_an_absolute_path_stays():
    assert resolved("/base", train="/x/a.csv").train == "/x/a.csv"


def test_a_relative_base_becomes_absolute(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert resolved("sub", train="a.csv").train == str(tmp_path / "sub" / "a.csv")


def test_the_split_behind_a_file_stays():
    assert resolved("/base", train="a.jsonl#train").train == "/base/a.jsonl#train"


@pytest.mark.parametrize("source", ["hub:org/name#train", "sample:help-desk", "-"])
def test_other_sources_stay(source):
    data = resolved("/base", train=source, dev=source, test=source)
    assert (data.train, data.dev, data.test) == (source, source, source)


def test_shares_auto_and_unset_stay():
    assert resolved("/base").dev == "auto"
    assert resolved("/base").test is None
    assert (resolved("/base", dev=0.1, test=0.0).dev, resolved("/base", dev=0.1, test=0.0).test) == (0.1, 0.0)


def test_the_home_folder_is_known(monkeypatch):
    monkeypatch.setenv("HOME", "/home/me")
    assert resolved("/base", train="~/a.csv").train == "/home/me/a.csv"


def test_an_encoder_folder_becomes_absolute_and_a_name_does_not(tmp_path):
    (tmp_path / "model").mkdir()
    (tmp_path / "file").touch()
    recipe = Recipe(data=Data(train="a.csv"))
    for name, expected in [
        ("model", str(tmp_path / "model")),
        ("./model", str(tmp_path / "model")),
        ("minilm", "minilm"),
        ("org/name", "org/name"),
        ("file", "file"),
        ("nul\0", "nul\0"),
    ]:
        named = replace(recipe, encoder=Encoder(name=name))
        assert resolve_paths(named, tmp_path).encoder.name == expected
