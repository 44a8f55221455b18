"""Study files: what they say, and what is said about wrong ones, with the line, before anything runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from nearfar.errors import RecipeError
from nearfar.experiments.study import read_study
from nearfar.experiments.study_schema import with_key
from tests.experiments.studies import STUDY, small_study

SEARCH = """
[contender.search]
method = "random"
trials = 4
space = { "objective.beta" = [0.5, 0.9], "training.learning_rate" = { low = 1e-5, high = 1e-3, log = true } }
"""


def lines_of(text: str, part: str) -> int:
    return text[: text.index(part)].count("\n") + 1


def refused(tmp_path: Path, *edits: tuple[str, str]) -> str:
    with pytest.raises(RecipeError) as caught:
        read_study(small_study(tmp_path, *edits))
    return str(caught.value)


def test_contenders_have_the_shared_recipe_with_their_own_on_top(tmp_path):
    """Tables are laid over each other key by key, and what a contender says wins."""
    own = ("centers = 2", "centers = 2\n[contender.training]\nlearning_rate = 1e-3")
    study = read_study(small_study(tmp_path, own))
    plain, triple = (study.recipe(contender) for contender in study.contenders)
    assert (plain.training.epochs, triple.training.epochs) == (1, 1)
    assert (plain.training.learning_rate, triple.training.learning_rate) == (None, 1e-3)
    assert (plain.objective.name, triple.objective.name) == ("cross-entropy", "triple-entropy")
    assert triple.objective.centers == 2  # type: ignore[attr-defined]
    assert plain.batches.size == triple.batches.size == 8


def test_another_objective_takes_nothing_from_the_shared_one(tmp_path):
    """Settings of one objective mean nothing to another; under the same name they are kept."""
    shared = ("[recipe.encoder]", "[recipe.objective]\nname = 'triple-entropy'\nbeta = 0.3\n[recipe.encoder]")
    study = read_study(small_study(tmp_path, shared))
    plain, triple = (study.recipe(contender).objective for contender in study.contenders)
    assert plain.name == "cross-entropy"
    assert (triple.beta, triple.centers) == (0.3, 2)  # type: ignore[attr-defined]


def test_an_objective_of_its_own_takes_the_place_of_shared_stages(tmp_path):
    """Stages would be trained in place of it; stages of its own take the place of a shared objective."""
    stages = "[[{0}.stage]]\n[{0}.stage.objective]\nname = 'supcon'\n"
    study = read_study(small_study(tmp_path, ("[recipe.encoder]", f"{stages.format('recipe')}[recipe.encoder]")))
    assert [study.recipe(contender).stage for contender in study.contenders] == [(), ()]
    assert study.recipe(study.contenders[1]).objective.name == "triple-entropy"
    own = ('[contender.objective]\nname = "triple-entropy"\ncenters = 2\n', stages.format("contender"))
    shared = ("[recipe.encoder]", "[recipe.objective]\nname = 'cross-entropy'\n[recipe.encoder]")
    study = read_study(small_study(tmp_path, shared, own))
    assert [stage.objective.name for stage in study.recipe(study.contenders[1]).stage] == ["supcon"]


def test_paths_of_a_recipe_file_count_from_its_own_folder(tmp_path):
    """A file of the same name beside the study is another one."""
    for folder in (tmp_path, tmp_path / "sub"):
        (folder / "tiny").mkdir(parents=True)
        (folder / "dev.jsonl").touch()
    (tmp_path / "sub" / "r.toml").write_text(
        "[data]\ntrain = 't.jsonl'\ndev = 'dev.jsonl'\n[objective]\nname = 'blend'\n"
        "[objective.parts.a]\nname = 'label-aware'\nweighting = 'tiny'\n[objective.parts.b]\nname = 'cross-entropy'\n"
    )
    own = ('[contender.objective]\nname = "triple-entropy"\ncenters = 2\n', 'recipe = "sub/r.toml"\n')
    study = read_study(small_study(tmp_path, own))
    recipe = study.recipe(study.contenders[1])
    assert recipe.data.dev == str(tmp_path / "sub" / "dev.jsonl")
    assert recipe.objective.parts["a"].weighting == str(tmp_path / "sub" / "tiny")  # type: ignore[attr-defined]


def test_a_contender_may_begin_with_a_recipe_file(tmp_path):
    """All of that file counts but its rows and its seed."""
    (tmp_path / "r.toml").write_text("seed = 9\n[data]\ntrain = 'x.csv'\ntext = 'q'\n[training]\nwarmup = 0.5\n")
    study = read_study(small_study(tmp_path, ('name = "triple"', 'name = "triple"\nrecipe = "r.toml"')))
    recipe = study.recipe(study.contenders[1])
    assert (recipe.training.warmup, recipe.training.epochs) == (0.5, 1)
    assert (recipe.seed, recipe.data.text) == (2, None)


def test_the_first_contender_is_the_baseline_unless_one_is_named(tmp_path):
    """By its name."""
    assert read_study(small_study(tmp_path)).baseline == "plain"
    assert read_study(small_study(tmp_path, ("folds = 3", 'folds = 3\nbaseline = "triple"'))).baseline == "triple"


@pytest.mark.parametrize("nested", [False, True])
def test_a_search_space_has_dotted_keys_in_quotes_or_without(tmp_path, nested):
    """Without quotes TOML reads tables in tables, which mean the same."""
    space = "[contender.search.space]\nobjective.beta = [0.5, 0.9]\n" if nested else SEARCH
    study = read_study(small_study(tmp_path, ("centers = 2\n", f"centers = 2\n{space}")))
    search = study.contenders[1].search
    assert search is not None
    assert search.space["objective.beta"] == (0.5, 0.9)
    assert study.recipe(study.contenders[1], {"objective.beta": 0.5}).objective.beta == 0.5  # type: ignore[attr-defined]


def test_a_range_from_a_whole_number_to_another_has_fractions_where_the_key_takes_them(tmp_path):
    """A weight from 0 to 1 is not 0 or 1; a number of centers stays whole."""
    space = '{ "objective.beta" = { low = 0, high = 1 }, "objective.centers" = { low = 1, high = 3 } }'
    search = f'[contender.search]\nmethod = "random"\nspace = {space}\n'
    study = read_study(small_study(tmp_path, ("centers = 2\n", f"centers = 2\n{search}")))
    found = study.contenders[1].search
    assert found is not None
    ends = {key: (choices.low, choices.high) for key, choices in found.space.items()}
    assert ends == {"objective.beta": (0.0, 1.0), "objective.centers": (1, 3)}
    assert [type(low) for low, _ in ends.values()] == [float, int]


WRONG = {
    "an unknown key": ("epochs = 1", "epoch = 1", "epoch = 1", "Did you mean 'epochs'"),
    "a value that does not fit": ("epochs = 1", "epochs = 0", "epochs = 0", "at least 1"),
    "a key of another objective": ("centers = 2", "temperature = 2", "temperature = 2", "temperature is a setting of"),
    "an unknown metric": ("folds = 3", 'folds = 3\nmetric = "f1_wieghted"', "metric =", "Did you mean 'f1_weighted'"),
    "one fold": ("folds = 3", "folds = 1", "folds = 1", "at least 2"),
    "a seed twice": ("[2, 16]", "[2, 2]", "seeds =", "2 twice"),
    "no seeds": ("[2, 16]", "[]", "seeds =", "study.seeds is empty"),
    "two contenders with one name": ('"triple"', '"plain"', '"plain"\n[contender.objective]', "two contenders are called"),
    "an unknown baseline": ("folds = 3", 'folds = 3\nbaseline = "plian"', "baseline =", "Did you mean 'plain'"),
    "an unknown table": ("[recipe.batches]", "[recipe.batch]", "[recipe.batch]", "batch"),
    "data in a contender": ("centers = 2", "centers = 2\n[contender.data]\ntrain = 'x'", "train =", "file in [[data]]"),
    "data that is no table": ('name = "triple"', 'name = "triple"\ndata = 3', "data = 3", "data is a table, got 3"),
    "a limit of one": ('file = "t.jsonl"', 'file = "t.jsonl"\nlimit = 1', "limit = 1", "at least 2"),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_is_said_with_its_line(tmp_path, case):
    """File, line, and what to do; the line is where the wrong thing stands."""
    before, after, there, said = WRONG[case]
    told = refused(tmp_path, (before, after))
    line = lines_of(STUDY.replace(before, after), there)
    assert f"study.toml:{line}:" in told
    assert said in told


SEARCHES = {
    "no such key": ('"objective.beta"', '"objective.betta"', "betta"),
    "a value that does not fit": ("[0.5, 0.9]", "[0.5, 7.0]", "got 7.0"),
    "an end that does not fit": ("low = 1e-5", "low = -1.0", "log needs low above 0"),
    "ends the wrong way round": ("low = 1e-5", "low = 0.5", "low is not below high"),
    "a range in a grid": ('"random"', '"grid"', "a grid needs a list"),
    "an empty list": ("[0.5, 0.9]", "[]", "the list is empty"),
    "a value twice": ("[0.5, 0.9]", "[0.5, 0.9, 0.5]", "the list has 0.5 twice"),
    "the data": ('"objective.beta"', '"data.limit"', "cannot be searched"),
    "two ways to judge": ("trials = 4", "trials = 4\nfolds = 3\ndev = 0.2", "exclude each other"),
}


@pytest.mark.parametrize("case", SEARCHES)
def test_a_wrong_search_is_refused_before_anything_runs(tmp_path, case):
    """Every value of a list and both ends of a range are tried on the recipe."""
    before, after, said = SEARCHES[case]
    assert before in SEARCH
    told = refused(tmp_path, ("centers = 2\n", f"centers = 2\n{SEARCH.replace(before, after)}"))
    assert said in told
    assert "study.toml:" in told


def test_two_data_sets_with_one_name_are_refused(tmp_path):
    """Nobody could tell their results apart."""
    twice = '[[data]]\nname = "things"\nfile = "t.jsonl"\n'
    assert "two data sets are called 'things'" in refused(
        tmp_path, ('[[contender]]\nname = "plain"', f'{twice}[[contender]]\nname = "plain"')
    )


def test_a_search_of_a_single_point_is_refused(tmp_path):
    """Inner folds would be trained on to choose between one and the same."""
    search = SEARCH.replace("[0.5, 0.9]", "[0.5]")
    told = refused(
        tmp_path,
        ("centers = 2\n", f"centers = 2\n{search.replace('{ low = 1e-5, high = 1e-3, log = true }', '[1e-4]')}"),
    )
    assert "triple: search.space has a single point, so there is nothing to choose" in told
    assert read_study(small_study(tmp_path, ("centers = 2\n", f"centers = 2\n{search}"))), "a range has many"


@pytest.mark.parametrize("kind", ["data", "contender"])
def test_a_study_without_data_or_contenders_is_refused_in_its_own_words(tmp_path, kind):
    """A study is no recipe, and has tables in double brackets."""
    other = {"data": '[[contender]]\nname = "a"\n', "contender": '[[data]]\nname = "a"\nfile = "t.jsonl"\n'}[kind]
    (tmp_path / "study.toml").write_text(f'[study]\nname = "s"\n{other}')
    with pytest.raises(
        RecipeError, match=rf"there is no \[\[{kind}\]\]. Add one or more \[\[{kind}\]\] tables"
    ) as caught:
        read_study(tmp_path / "study.toml")
    assert "recipe" not in str(caught.value)


def test_data_sets_that_tables_could_not_tell_apart_are_refused(tmp_path):
    """The name of one is the name of another with its limit."""
    other = '[[data]]\nname = "things 12"\nfile = "t.jsonl"\n'
    edits = ('[[contender]]\nname = "plain"', f'{other}[[contender]]\nname = "plain"')
    told = refused(tmp_path, ('file = "t.jsonl"', 'file = "t.jsonl"\nlimit = [12, 18]'), edits)
    assert "tables would call 'things' and 'things 12' the same: 'things 12'" in told
    read_study(small_study(tmp_path, edits))


def test_a_file_that_is_not_there_is_said_to_be_missing(tmp_path):
    """And a folder is no file."""
    with pytest.raises(RecipeError, match="there is no such file"):
        read_study(tmp_path / "none.toml")
    with pytest.raises(RecipeError, match="this is a folder"):
        read_study(tmp_path)


def test_setting_a_key_leaves_the_values_it_was_given_alone():
    """The same values serve all points of a search."""
    values = {"training": {"epochs": 3}}
    assert with_key(values, "training.epochs", 4) == {"training": {"epochs": 4}}
    assert values == {"training": {"epochs": 3}}
