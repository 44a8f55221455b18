"""Paths: files become absolute, everything else stays."""

from dataclasses import replace
from pathlib import Path

import pytest

from nearfar.recipe import Data, Encoder, Recipe, Stage, resolve_paths
from nearfar.recipe.class_objectives import LabelAware, SupCon
from nearfar.recipe.objectives import Blend


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
        ("x" * 5_000, "x" * 5_000),
    ]:
        named = replace(recipe, encoder=Encoder(name=name))
        assert resolve_paths(named, tmp_path).encoder.name == expected


def weighted(name):
    """A recipe with an encoder folder for the weighting network in every place that can have one."""
    aware = LabelAware(weighting=name, temperature=0.7)
    blend = Blend(weights={"a": 2.0}, parts={"a": aware, "b": SupCon()})
    stages = (Stage(objective=aware, epochs=3), Stage(objective=blend), Stage())
    return [Recipe(data=Data(train="/a.csv"), objective=one, stage=stages) for one in (aware, blend, SupCon())]


def test_the_encoder_of_a_weighting_network_counts_from_the_base_wherever_it_is_named(tmp_path):
    (tmp_path / "model").mkdir()
    for before, after in zip(weighted("model"), weighted(str(tmp_path / "model")), strict=True):
        assert resolve_paths(before, tmp_path) == after != before


@pytest.mark.parametrize("name", ["minilm", "org/name", None])
def test_the_name_of_a_weighting_network_stays(tmp_path, name):
    for recipe in weighted(name):
        assert resolve_paths(recipe, tmp_path) == recipe
