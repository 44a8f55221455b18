"""Flags: how they are read, that they win, and that problems name them."""

import copy
import shlex
from operator import attrgetter

import pytest

from nearfar.errors import RecipeError
from nearfar.recipe import Override, build_recipe, parse_override, read_recipe
from nearfar.recipe.objectives import Blend
from nearfar.recipe.pair_objectives import BatchSoftmax, Pearson


def build(*texts, values=None):
    values = {"data": {"train": "a.csv"}} if values is None else values
    return build_recipe(values, [parse_override(text) for text in texts], where="the command line")


@pytest.mark.parametrize(
    ("text", "path", "value"),
    [
        ("training.epochs=3", ("training", "epochs"), 3),
        (" training . epochs = 3 ", ("training", "epochs"), 3),
        ("training.learning_rate=2e-5", ("training", "learning_rate"), 2e-5),
        ("data.train=reviews.csv", ("data", "train"), "reviews.csv"),
        ("data.train=reviews.csv#train", ("data", "train"), "reviews.csv#train"),
        ("data.train=1#2", ("data", "train"), "1#2"),
        ('data.train="1"', ("data", "train"), "1"),
        ("data.train=a=b.csv", ("data", "train"), "a=b.csv"),
        ("data.train=2024-01-31", ("data", "train"), "2024-01-31"),
        ("data.train=12:30:00", ("data", "train"), "12:30:00"),
        ("data.train=1\nseed=3", ("data", "train"), "1\nseed=3"),
        ("data.pair=", ("data", "pair"), ""),
        ('training.trackers=["wandb"]', ("training", "trackers"), ["wandb"]),
        ("data={train='a.csv'}", ("data",), {"train": "a.csv"}),
        ('objective.parts."a.b".weight=1', ("objective", "parts", "a.b", "weight"), 1),
        ("data.label=none", ("data", "label"), None),
        ('data.label="none"', ("data", "label"), "none"),
    ],
)
def test_the_right_side_is_toml_or_a_plain_string(text, path, value):
    override = parse_override(text)
    assert override == Override(path, value, f"--set {text}")
    assert type(override.value) is type(value)


@pytest.mark.parametrize(
    "text",
    ["epochs", "", "=3", "a..b=3", "a b=3", "[a]\nb=3", "a\n=3", "#=3", ".=1", '"a=1', "a\0=1", "\udcff=1"]
    + [f"a={sign * 5000}" for sign in "[9"],
)
def test_what_is_no_override_is_refused(text):
    with pytest.raises(RecipeError) as caught:
        parse_override(text)
    (problem,) = caught.value.problems
    assert problem.where.startswith("--set ")
    str(caught.value).encode("utf-8")


def test_overrides_win_and_later_ones_most(tmp_path):
    file = tmp_path / "recipe.toml"
    file.write_text("seed = 7\n[data]\ntrain = 'a.csv'\n[training]\nepochs = 2\nclip = 3.0\n")
    overrides = [parse_override("training.epochs=3"), parse_override("training.epochs=4"), parse_override("seed=8")]
    recipe = read_recipe(file, overrides)
    assert (recipe.training.epochs, recipe.training.clip, recipe.seed) == (4, 3.0, 8)


def test_overrides_alone_make_a_recipe():
    recipe = build("data.train=a.csv", "objective.name=triple-entropy", "objective.beta=0.5", values={})
    assert recipe.data.train == "a.csv"
    assert recipe.objective.name == "triple-entropy"
    assert recipe.objective.beta == 0.5


def test_the_values_handed_in_stay_as_they_are():
    values = {"data": {"train": "a.csv", "columns": ["a", "b"]}}
    before = copy.deepcopy(values)
    assert build("data.train=b.csv", "data.columns.1=c", values=values).data.columns == ("a", "c")
    assert values == before


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("data.label=none", None),
        ("training.max_steps=none", None),
        ("encoder.pooling=none", None),
        ("data.dev=none", 0.0),
        ("objective.class_weight=none", "none"),
        ("training.trackers=none", ()),
        ("training.epochs=none", None),
        ("stage=none", ()),
    ],
)
def test_none_unsets(text, expected):
    values = {"data": {"train": "a", "label": "x", "dev": 0.5}, "training": {"max_steps": 3, "trackers": ["wandb"]}}
    values |= {"objective": {"name": "cross-entropy", "class_weight": "balanced"}, "encoder": {"pooling": "mean"}}
    values["training"]["epochs"] = 3
    values["stage"] = [{"epochs": 3}]
    recipe = build(text, values=values)
    assert attrgetter(text.split("=")[0])(recipe) == expected
    assert attrgetter(text.split("=")[0])(build(values=values)) != expected


@pytest.mark.parametrize("text", ["training.clip=none", "encoder.name=none", "data.train=none", "data=none"])
def test_none_is_refused_where_something_is_needed(text):
    with pytest.raises(RecipeError) as caught:
        build(text)
    (problem,) = caught.value.problems
    assert problem.where == f"--set {text}"
    assert "cannot be unset" in problem.message


def problems_of(tmp_path, text, *overrides):
    file = tmp_path / "recipe.toml"
    file.write_text(text)
    with pytest.raises(RecipeError) as caught:
        read_recipe(file, overrides)
    return [(problem.where, problem.line) for problem in caught.value.problems]


def test_a_problem_names_the_flag_instead_of_the_line(tmp_path):
    text = "[data]\ntrain = 'a.csv'\n[training]\nepochs = 0\nclip = -1\n"
    override = Override(("training", "epochs"), -3, "--epochs -3")
    assert problems_of(tmp_path, text, override) == [(str(tmp_path / "recipe.toml"), 5), ("--epochs -3", None)]


def test_a_flag_that_sets_a_whole_table_owns_all_of_it(tmp_path):
    text = "[data]\ntrain = 'a.csv'\n"
    found = problems_of(tmp_path, text, parse_override("data={train=3}"))
    assert found == [("--set data={train=3}", None)]
    found = problems_of(tmp_path, text, parse_override("data.train=4"), parse_override("data={train=3}"))
    assert found == [("--set data={train=3}", None)]


def test_a_flag_below_a_plain_value_is_named(tmp_path):
    found = problems_of(tmp_path, "seed = 3\n[data]\ntrain = 'a.csv'\n", parse_override("seed.x=1"))
    assert found == [("--set seed.x=1", None)]


def test_a_missing_key_of_a_table_in_the_file_has_the_line_of_the_table(tmp_path):
    found = problems_of(tmp_path, "seed = 3\n[data]\n", parse_override("data.dev=0.1"))
    assert found == [(str(tmp_path / "recipe.toml"), 2)]


@pytest.mark.parametrize("place", ["2", "x", "9" * 5000, "-1", "²"])
def test_entries_of_a_list_are_counted_from_zero(place):
    values = {"data": {"train": "a", "columns": ["a", "b"]}}
    override = Override(("data", "columns", place), "c", "--set it")
    with pytest.raises(RecipeError, match="Entries are counted from 0") as caught:
        build_recipe(values, [override], where="w")
    assert caught.value.problems[0].where == "--set it"


def test_bytes_a_shell_passed_on_never_break_a_message():
    override = parse_override("data.train=\udcff.csv")
    with pytest.raises(RecipeError, match="not UTF-8") as caught:
        build_recipe({}, [override], where="w")
    str(caught.value).encode("utf-8")
    part = parse_override('objective.parts."\udcff".name=supcon')
    with pytest.raises(RecipeError, match=r"a name in objective\.parts has bytes that are not UTF-8") as caught:
        build_recipe({"data": {"train": "a"}, "objective": {"name": "blend"}}, [part], where="w")
    str(caught.value).encode("utf-8")


def test_remedies_for_flags_speak_of_flags():
    with pytest.raises(RecipeError, match=r"Write --set training\.epochs=3\."):
        build("training.epochs=3.0")
    with pytest.raises(RecipeError, match=r"""Write --set 'objective\.name="triple-entropy"', or remove beta\."""):
        build("objective.beta=0.5")
    with pytest.raises(RecipeError, match=r"""Write --set 'objective\.name="cross-entropy"' or the name of another"""):
        build("objective.label_smoothing=0.5")
    with pytest.raises(RecipeError, match=r"""Write --set 'objective\.name="triple-entropy"'\."""):
        build("objective=triple-entropy")


@pytest.mark.parametrize(
    ("wrong", "meant"),
    [
        ("training.epochs=3.0", 3),
        ("data.label=1", "1"),
        ("data.text=true", "true"),
        ("data.columns=text", ("text",)),
        ("data.columns=text,label", ("text", "label")),
        ("data.columns=[text, label]", ("text", "label")),
        ("training.trackers=wandb, mlflow", ("wandb", "mlflow")),
    ],
)
def test_a_remedy_for_a_flag_works_when_it_is_typed_into_a_shell(wrong, meant):
    with pytest.raises(RecipeError) as caught:
        build(wrong)
    typed = shlex.split(caught.value.problems[0].remedy)
    assert typed[:2] == ["Write", "--set"]
    table, key = wrong.partition("=")[0].split(".")
    assert getattr(getattr(build(typed[2].rstrip(".,")), table), key) == meant


@pytest.mark.parametrize("flag", ["seed.x=3", "data.dev.x=1", "stage.0.epochs=2", "training.trackers.0=wandb"])
def test_a_flag_that_makes_a_table_of_a_value_is_named(tmp_path, flag):
    path = tmp_path / "recipe.toml"
    path.write_text('[data]\ntrain = "a.csv"\n[training]\nepochs = 1\n')
    with pytest.raises(RecipeError, match="got a table") as caught:
        read_recipe(path, [parse_override(flag)])
    assert [(problem.where, problem.line) for problem in caught.value.problems] == [(f"--set {flag}", None)]


def test_a_table_in_the_file_that_a_flag_adds_to_is_named_by_its_line(tmp_path):
    path = tmp_path / "recipe.toml"
    path.write_text('[data]\ntrain = "a.csv"\n[data.dev]\ny = 1\n')
    with pytest.raises(RecipeError, match="got a table") as caught:
        read_recipe(path, [parse_override("data.dev.x=1")])
    assert [(problem.where, problem.line) for problem in caught.value.problems] == [(str(path), 3)]


def test_flags_reach_into_stages_and_blends():
    values = {"data": {"train": "a"}, "stage": [{"epochs": 1}, {"objective": {"name": "supcon"}}]}
    recipe = build("stage.1.objective.temperature=0.5", "stage.0.epochs=2", values=values)
    assert [stage.epochs for stage in recipe.stage] == [2, None]
    assert recipe.stage[1].objective.temperature == 0.5
    flags = ["name=blend", "parts.a.name=pearson", "parts.b.name=batch-softmax", "parts.b.groups=false", "weights.a=2"]
    blend = build(*(f"objective.{flag}" for flag in flags)).objective
    assert blend == Blend(weights={"a": 2.0}, parts={"a": Pearson(), "b": BatchSoftmax(groups=False)})


def test_a_flag_for_a_stage_that_is_not_there_is_refused():
    with pytest.raises(RecipeError, match=r"stage has 1 entries, and none of them is 1"):
        build("stage.1.epochs=2", values={"data": {"train": "a"}, "stage": [{}]})
    with pytest.raises(RecipeError, match=r"Write \[\[stage\]\] in the recipe"):
        build("stage.0.epochs=2")
