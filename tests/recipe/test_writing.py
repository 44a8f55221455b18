"""Writing: every key is spelled out, and reading it gives the same recipe."""

import tomllib
from dataclasses import replace
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nearfar.recipe import Data, Recipe, build_recipe, read_recipe, to_toml
from nearfar.recipe.keys import Key, entries, fits

TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=20)


def values_of(kind, key: Key):
    """A strategy for everything that fits a key, drawn from the schema itself."""
    form = fits(kind)
    options = [st.none()] if form.optional else []
    options += [st.just(choice) for choice in form.choices]
    options += [tables_of(table) for table in form.tables]
    if str in form.scalars:
        options.append(TEXTS)
    if bool in form.scalars:
        options.append(st.booleans())
    low = key.at_least if key.at_least is not None else key.above
    high = key.at_most if key.at_most is not None else key.below
    if int in form.scalars:
        options.append(st.integers(low, high if high is not None else 2**63 - 1))
    if float in form.scalars and key.whole_from is not None:
        options += [st.floats(0, 1, exclude_max=True), st.integers(1, 2**50).map(float)]
    elif float in form.scalars:
        ends = {"exclude_min": key.above is not None, "exclude_max": key.below is not None}
        options.append(st.floats(low, high, allow_nan=False, allow_infinity=False, **ends))
    if form.items is not None:
        options.append(st.lists(values_of(form.items, key), max_size=3, unique=key.distinct).map(tuple))
    return st.one_of(options)


def tables_of(table):
    return st.builds(table, **{name: values_of(entry.kind, entry.key) for name, entry in entries(table).items()})


@settings(deadline=None)
@given(tables_of(Recipe))
def test_reading_what_is_written_gives_an_equal_recipe(recipe):
    text = to_toml(recipe)
    assert build_recipe(tomllib.loads(text), [], where="text") == recipe
    assert to_toml(build_recipe(tomllib.loads(text), [], where="text")) == text


def test_the_round_trip_through_a_file(tmp_path):
    recipe = Recipe(data=Data(train='C:\\a "b"\n#\x7f\x1b.csv', columns=("é", "👍")))
    file = tmp_path / "recipe.toml"
    file.write_bytes(to_toml(recipe).encode("utf-8"))
    assert read_recipe(file) == recipe


def test_every_key_is_there_or_said_to_be_unset():
    text = to_toml(Recipe(data=Data(train="a.csv")))
    written = tomllib.loads(text)
    for table, kind in [(name, entry.kind) for name, entry in entries(Recipe).items() if name != "seed"]:
        chosen = get_args(kind)[0] if get_args(kind) else kind
        for name, entry in entries(chosen).items():
            if entry.default is None:
                assert name not in written[table]
                assert f"# {name} is unset: {entry.key.about}\n" in text
            else:
                assert name in written[table]


@pytest.mark.parametrize("dev", [0.0, 0.25, "auto", "dev.csv"])
def test_shares_stay_numbers_and_files_stay_strings(dev):
    recipe = Recipe(data=Data(train="a.csv"))
    recipe = replace(recipe, data=replace(recipe.data, dev=dev))
    again = build_recipe(tomllib.loads(to_toml(recipe)), [], where="text").data.dev
    assert again == dev
    assert type(again) is type(dev)
