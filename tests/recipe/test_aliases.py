"""Former names of keys and values: accepted in every place a recipe comes from, with one note."""

from __future__ import annotations

import logging

import pytest
from tests.experiments.studies import small_study

from nearfar.errors import RecipeError
from nearfar.experiments.study import read_study
from nearfar.recipe import Recipe, build_recipe, parse_override, read_recipe, to_toml
from nearfar.recipe.reader import ALIASES, _exists, _note
from nearfar.recipe.tasks import TaskRecipe, build_task_recipe, read_task_recipe, task_toml

TASKS = [{"name": name, "data": {"train": f"{name}.csv"}} for name in ("one", "two")]
DATA = {"train": "a.csv"}
BOTH = {  # a recipe in former and in present names, in TOML
    "schedule": ('[turns]\nkind = "sampled"\nby = "square-root"\n', '[schedule]\nkind = "sampled"\nsampling = "square-root"\n'),
    "surgery": ('[training]\nsurgery = "pcgrad"\n', '[training]\ngradient_surgery = "pcgrad"\n'),
    "task stage": (
        '[[stage]]\nshuffle = "words"\ndata.train = "s.csv"\n', '[[stage]]\nshuffle = "shingles"\ndata.train = "s.csv"\n',
    ),
    "batches": (
        '[batches]\nwords = 2\nby = "right"\napart = true\nshuffle = "words"\n',
        '[batches]\nshingle_size = 2\nneighbor_text = "right"\nseparate_duplicates = true\nshuffle = "shingles"\n',
    ),
    "class weights": (
        '[batches]\nsize = 8\n[objective]\nname = "blend"\n[objective.parts.a]\nname = "cross-entropy"\nclass_weights = { x = 2.0 }\n',
        '[batches]\nsize = 8\n[objective]\nname = "blend"\n[objective.parts.a]\nname = "cross-entropy"\nclass_weight = { x = 2.0 }\n',
    ),
    "class weights of a stage": (
        '[[stage]]\nepochs = 1\nobjective = { name = "cross-entropy", class_weights = "balanced" }\n',
        '[[stage]]\nepochs = 1\nobjective = { name = "cross-entropy", class_weight = "balanced" }\n',
    ),
    "stage": ('[[stage]]\nepochs = 1\n[[stage]]\nshuffle = "words"\n', '[[stage]]\nepochs = 1\n[[stage]]\nshuffle = "shingles"\n'),
}  # fmt: skip


@pytest.fixture(autouse=True)
def _forget():
    _note.cache_clear()


def read(path, text):
    if "batches" in text or "epochs" in text:
        path.write_text(f"{text}\n[data]\ntrain = 'a.csv'\n")
        return read_recipe(path)
    path.write_text(text + "".join(f"\n[[task]]\nname = '{task['name']}'\ndata.train = 'a.csv'\n" for task in TASKS))
    return read_task_recipe(path)


@pytest.mark.parametrize("case", BOTH)
def test_former_and_present_names_in_a_file_give_equal_recipes(tmp_path, case, caplog):
    former, present = BOTH[case]
    expected = read(tmp_path / "present.toml", present)
    assert not caplog.records

    recipe = read(tmp_path / "former.toml", former)

    assert recipe == expected
    assert caplog.records
    written = to_toml(recipe) if isinstance(recipe, Recipe) else task_toml(recipe)
    assert not any(line in written.splitlines() for line in set(former.splitlines()) - set(present.splitlines()))


def test_every_alias_leads_to_a_key_that_exists_and_leaves_one_that_does_not():
    assert len(ALIASES) >= 12
    for alias in ALIASES:
        *tables, last = alias.key.split(".")
        roots = [root for root in (Recipe, TaskRecipe) if _exists(root, (*tables, last if alias.value else alias.now))]
        assert roots, alias
        assert alias.value or not any(_exists(root, (*tables, last)) for root in roots), alias


def test_dictionaries_and_flags_take_former_names(caplog):
    values = {"data": DATA, "batches": {"words": 2, "shuffle": "words"}}
    settings = ["batches.shingle_size=2", 'batches.shuffle="shingles"']
    expected = build_recipe({"data": DATA}, [parse_override(text) for text in settings], where="here")
    assert not caplog.records

    flags = [parse_override(text) for text in ("batches.words=2", "batches.shuffle=words")]
    table = [parse_override('batches={ words = 2, shuffle = "words" }')]
    assert build_recipe(values, where="here") == expected
    assert build_recipe({"data": DATA}, flags, where="here") == expected
    assert build_recipe({"data": DATA}, table, where="here") == expected

    weighted = build_recipe({"data": DATA}, [parse_override("objective.class_weights.spam=2")], where="here")
    assert weighted.objective.class_weight == {"spam": 2.0}
    stage = {"data": DATA, "stage": [{"epochs": 1}, {"epochs": 2}]}
    changed = build_recipe(stage, [parse_override("stage.1.shuffle=words")], where="here")
    assert [each.shuffle for each in changed.stage] == [None, "shingles"]
    tasks = build_task_recipe({"task": TASKS}, [parse_override("turns.kind=annealed")], where="here")
    assert tasks.schedule.kind == "annealed"


def test_a_flag_wins_over_the_file_whichever_name_each_has():
    former = {"data": DATA, "batches": {"words": 2}}
    present = {"data": DATA, "batches": {"shingle_size": 2}}
    for values, flag in ((former, "batches.shingle_size=3"), (present, "batches.words=3")):
        assert build_recipe(values, [parse_override(flag)], where="here").batches.shingle_size == 3


def test_both_names_at_once_are_refused_at_the_line_of_the_former(tmp_path):
    path = tmp_path / "recipe.toml"
    path.write_text("[data]\ntrain = 'a.csv'\n[batches]\nshingle_size = 2\nwords = 2\n")
    with pytest.raises(
        RecipeError, match=r"recipe.toml:5: batches.words is the former name of batches.shingle_size, and both"
    ):
        read_recipe(path)


def test_a_problem_is_at_the_line_of_the_former_name(tmp_path):
    path = tmp_path / "recipe.toml"
    path.write_text("[[task]]\nname = 'a'\ndata.train = 'a.csv'\n[turns]\nby = 'square'\n")
    with pytest.raises(RecipeError, match=r"recipe.toml:5: schedule.sampling is"):
        read_task_recipe(path)


def test_the_note_is_logged_once(caplog):
    for _ in range(3):
        build_recipe({"data": DATA, "batches": {"words": 2}}, where="here")
    assert [(record.levelno, record.getMessage()) for record in caplog.records] == [
        (
            logging.WARNING,
            "batches.words is now batches.shingle_size (the words of a shingle); the former name is still accepted",
        )
    ]


def test_names_of_tables_that_a_recipe_lacks_are_refused_as_ever():
    with pytest.raises(RecipeError, match=r"there is no table \[turns\]"):
        build_recipe({"data": DATA, "turns": {"kind": "sampled"}}, where="here")


@pytest.mark.parametrize("key", ["batches.words", '"batches.words"'])
def test_layers_of_a_study_may_have_different_names_of_a_key(tmp_path, key):
    """The shared recipe has the present name, a contender and its search space the former one."""
    shared = ("size = 8\n", "size = 8\nshingle_size = 2\n")
    own = f"[contender.batches]\nwords = 3\n[contender.search]\nmethod = 'grid'\n[contender.search.space]\n{key} = [1, 4]\n"
    study = read_study(small_study(tmp_path, shared, ("centers = 2\n", f"centers = 2\n{own}")))
    plain, triple = study.contenders
    assert study.recipe(plain).batches.shingle_size == 2
    assert study.recipe(triple).batches.shingle_size == 3
    assert triple.search.space == {"batches.shingle_size": (1, 4)}
    assert study.recipe(triple, {"batches.shingle_size": 4}).batches.shingle_size == 4
