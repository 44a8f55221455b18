"""Malformed recipes by the hundred: a Recipe or a RecipeError that says where, and nothing else."""

import random
import tomllib

import pytest

from nearfar.errors import RecipeError
from nearfar.recipe import OBJECTIVES, Batches, Data, Recipe, Stage, Training, TripleEntropy, read_recipe, to_toml
from nearfar.recipe.class_objectives import LabelAware, SupCon
from nearfar.recipe.keys import entries, key_literal, literal
from nearfar.recipe.objectives import Blend

ALONE = Recipe(data=Data(train="a.csv", columns=("text", "label")), objective=TripleEntropy())
BLENDED = Recipe(
    data=Data(train="a.csv"),
    objective=Blend(weights={"a b": 0.5}, parts={"a b": SupCon(), "c": LabelAware(weighting="minilm")}),
    stage=(Stage(objective=SupCon(), epochs=1), Stage(objective=Blend(parts={"x": TripleEntropy(centers=3)}))),
)
VALID = [f'{to_toml(recipe)}# "odd" [things]\n' for recipe in (ALONE, BLENDED)]
ODD = ["true", "-1", "0", "3.0", "1e400", "nan", "-inf", "''", '"x"', "[]", "[1, 'a']", "{}", "{ a = { b = 1 } }"]
ODD += [
    "1979-05-27",
    "07:32:00",
    "9" * 25,
    "9" * 4400,
    "0x" + "f" * 4000,
    '"""\nx = 1\n"""',
    "[" * 2000,
    "none",
    "=",
    "",
]
ODD += ["'minilm'", "[[]]", "1979-05-27T07:32:00Z", '"\\u0000"', "1_0", "'epoch'", "0.5"]
TABLES = (Recipe, Data, Batches, Training, Stage, *OBJECTIVES.values())
KEYS = [name for table in TABLES for name in entries(table)] + ["zz", "a b", "", "é"]


def mutated_bytes(source):
    raw = bytearray(source.choice(VALID).encode("utf-8"))
    for _ in range(source.randint(1, 6)):
        at = source.randrange(len(raw))
        raw[at : at + source.randint(0, 2)] = bytes(
            source.choice(b"\0\n\r\t \"'[]{}=.,#\\\xff\xc3-0a") for _ in range(1)
        )
    return bytes(raw)


def mutated_lines(source):
    lines = source.choice(VALID).split("\n")
    for _ in range(source.randint(1, 4)):
        at = source.randrange(len(lines))
        action = source.choice(["drop", "double", "swap", "cut", "quote"])
        other = source.randrange(len(lines))
        if action == "drop":
            del lines[at]
        elif action == "double":
            lines.insert(other, lines[at])
        elif action == "swap":
            lines[at], lines[other % len(lines)] = lines[other % len(lines)], lines[at]
        elif action == "cut":
            lines[at] = lines[at][: source.randint(0, len(lines[at]))]
        else:
            lines[at] = f'"{lines[at]}"'
    return "\n".join(lines).encode("utf-8")


def mutated_values(source):
    lines = source.choice(VALID).split("\n")
    assignments = [at for at, line in enumerate(lines) if " = " in line and not line.startswith("#")]
    for at in source.sample(assignments, source.randint(1, 5)):
        lines[at] = f"{lines[at].split(' = ')[0]} = {source.choice(ODD)}"
    return "\n".join(lines).encode("utf-8")


def mutated_keys(source):
    lines = source.choice(VALID).split("\n")
    for _ in range(source.randint(1, 4)):
        at = source.randrange(len(lines))
        line = lines[at]
        if line.startswith("["):
            odd = [f"[{line}]", "[training.x]", "[zz]", '["data"]', "[[stage]]", "[objective.parts.zz]"]
            lines[at] = source.choice([*odd, line.replace("a", "e")])
        else:
            name = source.choice([literal(line.partition(" =")[0]), key_literal(source.choice(KEYS))])
            lines[at] = f"{name} ={line.partition('=')[2]}"
    return "\n".join(lines).encode("utf-8")


def random_toml(source):
    def value(depth):
        kind = source.randrange(8 if depth else 5)
        if kind == 5:
            return [value(depth - 1) for _ in range(source.randint(0, 3))]
        if kind > 5:
            return {source.choice(KEYS): value(depth - 1) for _ in range(source.randint(0, 3))}
        return [source.randint(-9, 99), source.random(), True, "text", float("nan")][kind]

    tables = [*entries(Recipe), "objective.parts", "objective.parts.a", "stage.objective", "zz"]
    lines = [f"{key_literal(source.choice(KEYS))} = {literal(value(3))}"]
    for table in source.sample(tables, source.randint(0, 6)):
        lines.append(source.choice(["[{}]", "[{}]", "[[{}]]", "[{}.more]"]).format(table))
        keys = source.sample(sorted(set(KEYS)), source.randint(0, 5))
        lines += [f"{key_literal(key)} = {literal(value(2))}" for key in keys]
    return "\n".join(lines).encode("utf-8")


FORMS = [mutated_bytes, mutated_lines, mutated_values, mutated_keys, random_toml]
EACH = 160


def read_or_refusal(file):
    try:
        return read_recipe(file)
    except RecipeError as error:
        return error


def without(text, *tables):
    """The text of a recipe without some of its tables."""
    parts = text.split("\n\n")
    return "\n\n".join(part for part in parts if not part.startswith(tuple(f"[{table}]" for table in tables)))


def has_no_line(problem):
    """The file as a whole lacks something, or cannot be read as text."""
    return problem.message in ("the table [data] is missing",) or "is not UTF-8" in problem.message


def test_the_recipe_under_attack_is_valid(tmp_path):
    for text, recipe in zip(VALID, (ALONE, BLENDED), strict=True):
        (tmp_path / "recipe.toml").write_text(text)
        assert read_recipe(tmp_path / "recipe.toml") == recipe


@pytest.mark.parametrize("form", FORMS)
def test_malformed_recipes_are_read_or_refused(tmp_path, form):
    file = tmp_path / "recipe.toml"
    fine = refused = checked = 0
    for seed in range(EACH):
        raw = form(random.Random(f"{form.__name__} {seed}"))
        file.write_bytes(raw)
        recipe = read_or_refusal(file)
        if isinstance(recipe, RecipeError):
            refused += 1
            checked += "not valid TOML" not in str(recipe)
            assert recipe.problems
            for problem in recipe.problems:
                assert problem.where == str(file)
                assert (problem.line is None) == has_no_line(problem), problem
                assert problem.line is None or 1 <= problem.line <= raw.count(b"\n") + 1, problem
                assert problem.remedy.endswith((".", "?")), problem
                assert len(problem.message) < 400
            str(recipe).encode("utf-8")
        else:
            fine += 1
            file.write_bytes(to_toml(recipe).encode("utf-8"))
            assert read_recipe(file) == recipe
    assert fine + refused == EACH
    assert EACH * len(FORMS) >= 300
    assert refused > EACH / 4
    assert checked > 5
    assert fine > 0 or form is random_toml


@pytest.mark.parametrize(
    ("text", "least"), [(VALID[0], 1000), (without(VALID[1], "encoder", "head", "batches", "training"), 700)]
)
def test_every_key_refuses_every_odd_value_at_its_own_line(tmp_path, text, least):
    """One wrong value at a time: whatever is refused is refused on the line it stands on."""
    file = tmp_path / "recipe.toml"
    lines = text.split("\n")
    refused = 0
    for at, line in enumerate(lines):
        if " = " not in line or line.startswith("#"):
            continue
        for odd in ODD:
            changed = [*lines[:at], f"{line.split(' = ')[0]} = {odd}", *lines[at + 1 :]]
            file.write_text("\n".join(changed))
            error = read_or_refusal(file)
            if isinstance(error, RecipeError):
                refused += 1
                name = line.split(" = ")[0]
                places = {problem.line for problem in error.problems}
                if name != "name":  # another objective refuses other lines, too
                    last = {len(lines) - 1} if "end of the file" in str(error) else set()
                    assert places <= {at + 1} | last, (name, odd, error)
    assert refused > least


def test_toml_that_python_reads_is_always_scanned(tmp_path):
    """The scanner keeps up with tomllib on whatever it accepts."""
    accepted = 0
    for seed in range(200):
        for form in FORMS:
            raw = form(random.Random(f"scan {form.__name__} {seed}"))
            try:
                tomllib.loads(raw.decode("utf-8"))
            except (ValueError, RecursionError):
                continue
            accepted += 1
            (tmp_path / "recipe.toml").write_bytes(raw)
            assert "not valid TOML" not in str(read_or_refusal(tmp_path / "recipe.toml"))
    assert accepted > 200
