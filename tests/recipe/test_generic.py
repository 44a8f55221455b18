"""New tables need dataclasses only: blends, stages and tasks that are defined here."""

import tomllib
from dataclasses import dataclass, field
from typing import Annotated, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nearfar.errors import RecipeError
from nearfar.recipe.keys import Key
from nearfar.recipe.reader import build_table, parse_override
from nearfar.recipe.validation import key_lines
from nearfar.recipe.writer import table_to_toml


@dataclass(frozen=True, kw_only=True)
class Near:
    name: Annotated[Literal["near"], Key("Which.")] = "near"
    pull: Annotated[float, Key("How much.", at_least=0)] = 1.0


@dataclass(frozen=True, kw_only=True)
class Far:
    name: Annotated[Literal["far"], Key("Which.")] = "far"
    push: Annotated[float, Key("How much.", at_least=0)] = 1.0


@dataclass(frozen=True, kw_only=True)
class Blend:
    name: Annotated[Literal["blend"], Key("Which.")] = "blend"
    parts: Annotated["dict[str, Near | Far | Blend]", Key("What is blended.")] = field(default_factory=dict)
    weights: Annotated[dict[str, float], Key("How much of each.", above=0)] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Stage:
    epochs: Annotated[int, Key("How long.", at_least=1)]
    objective: Annotated[Near | Far | Blend, Key("What for.")] = field(default_factory=Near)
    frozen: Annotated[bool, Key("Whether the encoder rests.")] = False


@dataclass(frozen=True, kw_only=True)
class Plan:
    title: Annotated[str | None, Key("What it is called.")] = None
    grid: Annotated[tuple[tuple[int, ...], ...], Key("Numbers.", at_least=0)] = ()
    stage: Annotated[tuple[Stage, ...], Key("One after the other.")] = ()
    task: Annotated[tuple[Near | Far, ...], Key("All at once.")] = ()
    last: Annotated[Stage | None, Key("The end.")] = None


TEXT = """\
grid = [[1, 2], []]
[[stage]]
epochs = 1
objective.name = "far"
objective.push = 2
[[stage]]
epochs = 2
frozen = true
[stage.objective]
name = "blend"
weights = { a = 0.5 }
[stage.objective.parts.a]
name = "near"
[stage.objective.parts."b c"]
name = "blend"
parts.x = { name = "far" }
[[task]]
name = "near"
pull = 0
"""

PLAN = Plan(
    grid=((1, 2), ()),
    stage=(
        Stage(epochs=1, objective=Far(push=2.0)),
        Stage(
            epochs=2,
            frozen=True,
            objective=Blend(weights={"a": 0.5}, parts={"a": Near(), "b c": Blend(parts={"x": Far()})}),
        ),
    ),
    task=(Near(pull=0.0),),
)


def build(text, *overrides):
    return build_table(
        Plan,
        tomllib.loads(text),
        [parse_override(override) for override in overrides],
        where="plan.toml",
        lines=key_lines(text),
    )


def problems(text, *overrides):
    with pytest.raises(RecipeError) as caught:
        build(text, *overrides)
    return [(problem.line, problem.message, problem.remedy) for problem in caught.value.problems]


def test_lists_tables_with_free_keys_and_choices_nest():
    assert build(TEXT) == PLAN
    assert build("") == Plan()


def test_what_is_written_reads_the_same():
    for plan in (PLAN, Plan(), Plan(last=Stage(epochs=1, objective=Blend()))):
        assert build(table_to_toml(plan)) == plan


NAMES = st.text(st.characters(codec="utf-8"), max_size=5)
NUMBERS = st.floats(0, 1e9)
LEAVES = st.builds(Near, pull=NUMBERS) | st.builds(Far, push=NUMBERS)
BLENDS = st.recursive(
    LEAVES, lambda inner: st.builds(Blend, parts=st.dictionaries(NAMES, inner, max_size=3)), max_leaves=5
)
STAGES = st.builds(Stage, epochs=st.integers(1, 9), objective=BLENDS, frozen=st.booleans())


@settings(deadline=None)
@given(st.builds(Plan, stage=st.lists(STAGES, max_size=3).map(tuple), task=st.lists(LEAVES, max_size=3).map(tuple)))
def test_any_plan_reads_the_same(plan):
    assert build(table_to_toml(plan)) == plan


def test_problems_deep_inside_have_their_lines():
    text = TEXT.replace("epochs = 2", "epochs = 0").replace("push = 2", "pull = 2").replace("pull = 0", "pul = 0")
    text = text.replace('parts.x = { name = "far" }', 'parts.x = { name = "fat" }').replace("a = 0.5", "a = 0")
    found = problems(text.replace("[[1, 2], []]", "[[1, -2], 3]"))
    assert [line for line, *_ in found] == [1, 1, 5, 7, 11, 16, 19]
    messages = [message for _, message, _ in found]
    assert messages[0].startswith("grid.0.1 is a whole number of at least 0, got -2")
    assert messages[1].startswith("grid.1 is a list")
    assert messages[2] == 'pull is a setting of near, but stage.0.objective.name is "far"'
    assert messages[3] == "stage.1.epochs is a whole number of at least 1, got 0"
    assert messages[4].startswith("stage.1.objective.weights.a is a number above 0")
    assert messages[5] == 'stage.1.objective.parts."b c".parts.x.name cannot be the string "fat"'
    assert found[6][2] == "Did you mean 'pull'?"


def test_a_choice_without_a_default_needs_its_name():
    assert problems("[[task]]\npull = 1\n") == [(1, "task.0.name is missing", 'Choose one of "near", "far".')]


def test_a_table_where_a_list_of_tables_fits_is_refused():
    ((line, message, remedy),) = problems("[stage]\nepochs = 1\n")
    assert line == 1
    assert message == "stage is a list, each entry a table, got a table"
    assert remedy == "Write [[stage]] in the recipe, once for every entry, and its keys below."


def test_a_missing_key_of_an_entry_has_the_line_of_the_entry():
    found = problems("[[stage]]\nepochs = 1\n[[stage]]\n[last]\n")
    assert [(line, message) for line, message, _ in found] == [
        (3, "stage.1.epochs is missing"),
        (4, "last.epochs is missing"),
    ]


def test_keys_of_inner_tables_are_known_elsewhere():
    ((_, _, remedy),) = problems("epochs = 1\n")
    assert remedy == "epochs belongs in [last] or in [[stage]]."
    ((_, _, remedy),) = problems("push = 1\n")
    assert remedy == 'push belongs in [[task]] with name = "far".'
    ((_, _, remedy),) = problems("weights = 1\n")
    assert (
        remedy == 'weights belongs in [stage.objective] with name = "blend" or in [last.objective] with name = "blend".'
    )


def test_flags_reach_into_lists():
    plan = build(TEXT, "stage.1.epochs=7", "stage.0.objective.push=3", "last.epochs=2")
    assert (plan.stage[1].epochs, plan.stage[0].objective.push, plan.last.epochs) == (7, 3.0, 2)
    assert build(TEXT, "stage=[]", "title=none").stage == ()
    with pytest.raises(RecipeError, match=r"--set stage\.5\.epochs=7: stage has 2 entries, and none of them is 5"):
        build(TEXT, "stage.5.epochs=7")


def test_endless_nesting_is_refused():
    values = {"last": {"epochs": 1, "objective": {"name": "blend"}}}
    inner = values["last"]["objective"]
    for _ in range(3000):
        inner["parts"] = {"a": {"name": "blend"}}
        inner = inner["parts"]["a"]
    with pytest.raises(RecipeError, match="nested too deeply"):
        build_table(Plan, values, where="plan.toml")
