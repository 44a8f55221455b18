"""Writing: every key is spelled out, and reading it gives the same recipe."""

import tomllib
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nearfar.recipe import OBJECTIVES, Data, Recipe, Stage, build_recipe, read_recipe, to_toml
from nearfar.recipe.keys import Key, entries, fits
from nearfar.recipe.objectives import Blend
from nearfar.recipe.pair_objectives import BatchSoftmax, CosineMSE

NAMES = st.text(st.characters(codec="utf-8"), max_size=5)
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
    if form.values is not None:
        options.append(st.dictionaries(NAMES, values_of(form.values, key), max_size=2))
    if form.items is not None:
        options.append(st.lists(values_of(form.items, key), max_size=3, unique=key.distinct).map(tuple))
    return st.one_of(options)


def tables_of(table):
    return st.builds(table, **{name: values_of(entry.kind, entry.key) for name, entry in entries(table).items()})


def assert_round_trip(recipe):
    text = to_toml(recipe)
    again = build_recipe(tomllib.loads(text), [], where="text")
    assert again == recipe
    assert to_toml(again) == text


@settings(deadline=None)
@given(tables_of(Recipe))
def test_reading_what_is_written_gives_an_equal_recipe(recipe):
    assert_round_trip(recipe)


@pytest.mark.parametrize("name", OBJECTIVES)
def test_every_objective_reads_the_same_alone_and_in_a_stage(name):
    drawn = []

    @settings(deadline=None, max_examples=10)
    @given(tables_of(OBJECTIVES[name]))
    def trip(objective):
        drawn.append(objective)
        assert_round_trip(Recipe(data=Data(train="a.csv"), objective=objective, stage=(Stage(objective=objective),)))

    trip()
    assert {objective.name for objective in drawn} == {name}
    assert any(objective != OBJECTIVES[name]() for objective in drawn)


def test_a_blend_keeps_the_order_of_its_parts_and_stages_follow_each_other():
    """What TOML wants: plain keys, then inner tables, all of one entry before the next."""
    blend = Blend(weights={"z": 0.5, "a b": 1.0}, parts={"z": BatchSoftmax(), "a b": CosineMSE(learning_rate=0.1)})
    stages = (Stage(objective=blend, epochs=1), Stage(epochs=2), Stage(objective=blend, shuffle="shingles"))
    recipe = Recipe(data=Data(train="a.csv"), objective=blend, stage=stages)
    assert_round_trip(recipe)
    text = to_toml(recipe)
    headers = [line for line in text.splitlines() if line.startswith("[") and ("objective" in line or "stage" in line)]
    inner = ["objective]", "objective.weights]", "objective.parts]", "objective.parts.z]", 'objective.parts."a b"]']
    blended = ["[[stage]]", *(f"[stage.{part}" for part in inner)]
    assert headers == [*(f"[{part}" for part in inner), *blended, "[[stage]]", "[stage.objective]", *blended]
    again = build_recipe(tomllib.loads(text), [], where="text")
    assert list(again.objective.parts) == list(again.stage[2].objective.parts) == ["z", "a b"]  # type: ignore[attr-defined]


def test_a_stage_can_be_added_to_what_was_written():
    text = to_toml(Recipe(data=Data(train="a.csv"))) + "[[stage]]\nepochs = 3\n"
    assert build_recipe(tomllib.loads(text), [], where="text").stage == (Stage(epochs=3),)


def test_the_round_trip_through_a_file(tmp_path):
    recipe = Recipe(data=Data(train='C:\\a "b"\n#\x7f\x1b.csv', columns=("é", "👍")))
    file = tmp_path / "recipe.toml"
    file.write_bytes(to_toml(recipe).encode("utf-8"))
    assert read_recipe(file) == recipe


def test_every_key_is_there_or_said_to_be_unset():
    checked = 0
    for objective in OBJECTIVES.values():
        text = to_toml(Recipe(data=Data(train="a.csv"), objective=objective()))
        written = tomllib.loads(text)
        assert list(written) == ["seed", "data", "encoder", "objective", "head", "batches", "training"]
        assert "# stage is unset: Training stages, instead of objective.\n" in text
        tables = {name: entry.kind for name, entry in entries(Recipe).items() if name in written and name != "seed"}
        for table, kind in (tables | {"objective": objective}).items():
            for name, entry in entries(kind).items():
                checked += 1
                if entry.default is None:
                    assert name not in written[table]
                    assert f"# {name} is unset: {entry.key.about}\n" in text
                else:
                    assert name in written[table]
    assert checked > 1000


@pytest.mark.parametrize("dev", [0.0, 0.25, "auto", "dev.csv"])
def test_shares_stay_numbers_and_files_stay_strings(dev):
    recipe = Recipe(data=Data(train="a.csv"))
    recipe = replace(recipe, data=replace(recipe.data, dev=dev))
    again = build_recipe(tomllib.loads(to_toml(recipe)), [], where="text").data.dev
    assert again == dev
    assert type(again) is type(dev)
