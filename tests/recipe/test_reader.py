"""Reading a file: what it accepts, and every way to be wrong, with its line and a remedy."""

import os
import tomllib

import pytest

from nearfar.errors import SHOWN, RecipeError
from nearfar.recipe import OBJECTIVES, CrossEntropy, CrossEntropySupCon, Stage, TripleEntropy, build_recipe, read_recipe
from nearfar.recipe.class_objectives import SupCon
from nearfar.recipe.objectives import Auto, Blend
from nearfar.recipe.pair_objectives import BatchSoftmax, CosineMSE

DATA = "[data]\ntrain = 'a.csv'\n"
SOFTMAX = DATA + "[objective]\nname = 'batch-softmax'\n"
BLEND = DATA + "[objective]\nname = 'blend'\n"


def read(tmp_path, text):
    file = tmp_path / "recipe.toml"
    file.write_bytes(text if isinstance(text, bytes) else text.encode("utf-8"))
    return read_recipe(file)


def problems(tmp_path, text):
    with pytest.raises(RecipeError) as caught:
        read(tmp_path, text)
    assert {problem.where for problem in caught.value.problems} == {str(tmp_path / "recipe.toml")}
    return caught.value.problems


def problem(tmp_path, text):
    (only,) = problems(tmp_path, text)
    return only


def test_the_smallest_recipe(tmp_path):
    recipe = read(tmp_path, DATA)
    assert recipe.data.train == "a.csv"
    assert recipe.objective == Auto()
    assert recipe.stage == ()


def test_a_full_recipe_is_returned_as_written(tmp_path):
    recipe = read(
        tmp_path,
        """
        seed = 0
        data = { train = "x/../a.csv", dev = 0, columns = ["text", "label"] }
        encoder.name = "./model"
        [training]
        warmup = 100
        evaluate_every = 50
        trackers = ["tensorboard", "wandb"]
        [objective]
        name = "triple-entropy"
        margin = 0
        """,
    )
    assert recipe.seed == 0
    assert recipe.data.train == "x/../a.csv"
    assert recipe.data.dev == 0.0
    assert recipe.data.columns == ("text", "label")
    assert recipe.encoder.name == "./model"
    assert recipe.training.warmup == 100.0
    assert isinstance(recipe.training.warmup, float)
    assert recipe.training.evaluate_every == 50
    assert recipe.training.trackers == ("tensorboard", "wandb")
    assert recipe.objective == TripleEntropy(margin=0.0)
    assert isinstance(recipe.objective.margin, float)


def test_objectives_are_chosen_by_name(tmp_path):
    assert read(tmp_path, DATA + "[objective]\nname = 'cross-entropy+supcon'\n").objective == CrossEntropySupCon()
    text = DATA + "[objective]\nname = 'cross-entropy'\nlabel_smoothing = 0.1\n"
    assert read(tmp_path, text).objective == CrossEntropy(label_smoothing=0.1)
    for name, table in OBJECTIVES.items():
        assert read(tmp_path, DATA + f"[objective]\nname = '{name}'\n").objective == table()
    assert read(tmp_path, DATA + "[objective]\nlearning_rate = 0.1\n").objective == Auto(learning_rate=0.1)


def test_a_blend_has_parts_and_weights(tmp_path):
    text = BLEND + "weights = { near = 2 }\n[objective.parts.near]\nname = 'batch-softmax'\ntemperature = 1\n"
    blend = read(tmp_path, text + "[objective.parts.'by score']\nname = 'cosine-mse'\n").objective
    parts = {"near": BatchSoftmax(temperature=1.0), "by score": CosineMSE()}
    assert blend == Blend(weights={"near": 2.0}, parts=parts)
    assert list(blend.parts) == list(parts)


def test_stages_come_in_the_order_of_the_file(tmp_path):
    text = DATA + "[[stage]]\nepochs = 1\n[stage.objective]\nname = 'supcon'\n[[stage]]\nshuffle = 'random'\n"
    assert read(tmp_path, text).stage == (Stage(epochs=1, objective=SupCon()), Stage(shuffle="random"))


def test_a_byte_order_mark_and_windows_lines_are_fine(tmp_path):
    assert read(tmp_path, b"\xef\xbb\xbf" + DATA.replace("\n", "\r\n").encode()).data.train == "a.csv"
    assert problem(tmp_path, b"\xef\xbb\xbf\r\n[data]\r\ntrain = 3\r\n").line == 3


@pytest.mark.parametrize(
    ("text", "line", "message", "remedy"),
    [
        # keys and tables that are not there
        ("seeed = 1\n" + DATA, 1, "there is no key seeed", "Did you mean 'seed'?"),
        (DATA + "[trainig]\nepochs = 1\n", 3, "there is no table [trainig]", "Did you mean 'training'?"),
        (DATA + "[training]\nepoch = 3\n", 4, "there is no key training.epoch", "Did you mean 'epochs'?"),
        (DATA + "training.learning-rate = 3\n", 3, "there is no table [data.training]", "training belongs at the top"),
        ("epochs = 3\n" + DATA, 1, "there is no key epochs", "epochs belongs in [training] or in [[stage]]."),
        (DATA + "seed = 3\n", 3, "there is no key data.seed", "seed belongs at the top of the recipe, before"),
        (
            DATA + "epoch = 3\n",
            3,
            "there is no key data.epoch",
            "Did you mean 'epochs'? It belongs in [training] or in",
        ),
        (
            DATA + "learning_rate = 1\n",
            3,
            "data.learning_rate",
            "belongs in [training], in [objective] or in [[stage]].",
        ),
        (DATA + "beta = 1\n", 3, "data.beta", 'beta belongs in [objective] with name = "triple-entropy".'),
        (
            DATA + "margin = 1\n",
            3,
            "there is no key data.margin",
            'margin belongs in [objective] with name = "triple-entropy", "soft-triple", "triplet", "contrastive", '
            '"pair-triplet" or "contrastive-pairs".',
        ),
        (
            DATA + "temprature = 1\n",
            3,
            "data.temprature",
            'Did you mean \'temperature\'? It belongs in [objective] with name = "cross-entropy+supcon", "supcon", ',
        ),
        (DATA + "name = 'x'\n", 3, "data.name", "name belongs in [encoder] or in [objective]."),
        (
            DATA + "[training]\nbatch_size = 1\n",
            4,
            "batch_size",
            "Write size in [batches], or batch_size in [[stage]].",
        ),
        (DATA + "[batches]\nbatch_size = 1\n", 4, "batches.batch_size", "Write size."),
        (DATA + "[encoder]\nlr = 1\n", 4, "there is no key encoder.lr", "Write learning_rate in [training]."),
        (DATA + "[[stage]]\nlr = 1\n", 4, "there is no key stage.0.lr", "Write learning_rate."),
        (DATA + "[[stage]]\nseeed = 1\n", 4, "stage.0.seeed", "Did you mean 'seed'? It belongs at the top"),
        (DATA + "[[stage]]\nqqqq = 1\n", 4, "stage.0.qqqq", "Remove it; [[stage]] knows objective, epochs,"),
        (DATA + "[[stage]]\nname = 'supcon'\n", 4, "stage.0.name", "name belongs in [stage.objective]."),
        (
            DATA + "[[stage]]\nbeta = 1\n",
            4,
            "there is no key stage.0.beta",
            'beta belongs in [stage.objective] with name = "triple-entropy".',
        ),
        (DATA + "[[stages]]\nepochs = 1\n", 3, "there is no key stages", "Did you mean 'stage'?"),
        (DATA + "[parts.a]\nname = 'x'\n", 3, "table [parts]", 'parts belongs in [objective] with name = "blend".'),
        (DATA + "[encoder]\nqqqq = 1\n", 4, "encoder.qqqq", "Remove it; [encoder] knows name, max_length,"),
        ("qqqq = 1\n" + DATA, 1, "there is no key qqqq", "the top of a recipe knows seed, data"),
        ('"a b\\n" = 1\n' + DATA, 1, 'there is no key "a b\\n"', "Remove it"),
        # types
        ("seed = true\n" + DATA, 1, "seed is a whole number", "Try the default, 2."),
        ("seed = 3.0\n" + DATA, 1, "got 3.0", "Write seed = 3."),
        ("seed = 3.5\n" + DATA, 1, "got 3.5", "Try the default, 2."),
        ('seed = "3"\n' + DATA, 1, 'got the string "3"', "Write seed = 3, without quotes."),
        ("seed = [3]\n" + DATA, 1, "got a list", "Try the default, 2."),
        ("seed = 1979-05-27\n" + DATA, 1, "got a date", "Try the default, 2."),
        ("seed = 07:32:00\n" + DATA, 1, "got a time", "Try the default, 2."),
        ("[seed]\nx = 1\n" + DATA, 1, "seed is a whole number", "Try the default, 2."),
        ("data = 3\n", 1, "data is a table, got 3", "Write a table."),
        ("[[data]]\ntrain = 'a'\n", 1, "data is a table, got a list", "Write a table."),
        ("[data]\ntrain = 3\n", 2, "data.train is a string, got 3", 'Write train = "3", with quotes.'),
        ("[data]\ntrain = ''\n", 2, "data.train is empty", "Write something"),
        ('[data]\ntrain = "a\\u0000"\n', 2, "NUL character", "Leave it out."),
        (DATA + "dev = true\n", 3, "data.dev is a string or a number of at least 0 and below 1, got true", ""),
        (DATA + "columns = 'a'\n", 3, "data.columns is a list, each entry a string", 'Write columns = ["a"].'),
        (DATA + "columns = [\n'a',\n3]\n", 5, "data.columns.1 is a string, got 3", 'Write "3", with quotes.'),
        (DATA + "columns = [\n'a',\n'a']\n", 5, 'data.columns has "a" twice', "only once"),
        (DATA + "[training]\nclip = '1.5'\n", 4, "training.clip", "Write clip = 1.5, without quotes."),
        (DATA + "[training]\nclip = false\n", 4, "got false", "Try the default, 1.0."),
        (DATA + "[training]\npatience = 'x'\n", 4, "training.patience", "Leave it out; unset means none."),
        (DATA + "score = 3.5\n", 3, "data.score is a string, got 3.5", 'Write score = "3.5", with quotes.'),
        (
            DATA + "per_class = 0\n",
            3,
            "data.per_class is a whole number of at least 1, got 0",
            "Try 8, or leave it out.",
        ),
        (DATA + "limit = 0\n", 3, '"S", "M", "L" or "XL", got 0', "Try 1000, or leave it out."),
        (DATA + "score = [1]\n", 3, "data.score is a string, got a list", "Leave it out to keep it unset."),
        (DATA + "[stage]\nepochs = 1\n", 3, "stage is a list, each entry a table, got a table", "Write [[stage]] in"),
        ("stage = 3\n" + DATA, 1, "stage is a list, each entry a table, got 3", "Write [[stage]] in the recipe, once"),
        (DATA + "[[stage]]\nobjective = 'supcon'\n", 4, "table", "Write [stage.objective] and below it name ="),
        (BLEND + "parts = ['supcon']\n", 5, "parts is a table, got a list", "Write [objective.parts.NAME] in the"),
        (BLEND + "parts.a = 'supcon'\n", 5, "objective.parts.a is a table", "Write [objective.parts.a] and below it"),
        (BLEND + "weights = 3\n", 5, "objective.weights is a table, got 3", "Write a table."),
        (
            "objective = 'triple-entropy'\n" + DATA,
            1,
            "table",
            'Write [objective] and below it name = "triple-entropy".',
        ),
        # numbers out of range
        ("seed = -1\n" + DATA, 1, "seed is a whole number of at least 0 and at most 2147483647, got -1", "2"),
        ("seed = 2147483648\n" + DATA, 1, "got 2147483648", "2"),
        (f"seed = 0x{'f' * 9000}\n" + DATA, 1, "got an integer of more than 64 bits", "2"),
        (DATA + "dev = 1\n", 3, "data.dev is a string or a number of at least 0 and below 1, got 1", "auto"),
        (DATA + "[encoder]\nmax_length = 1\n", 4, "a whole number of at least 2, got 1", "unset"),
        (SOFTMAX + "threshold = 1\n", 5, "objective.threshold is a number of at least 0 and below 1", "0.5 for scores"),
        (DATA + "[encoder]\ndropout = 1.0\n", 4, "encoder.dropout is a number of at least 0 and below 1", "unset"),
        (
            DATA + "[training]\nlearning_rate = 0\n",
            4,
            "a number above 0 and at most 10, got 0",
            "Leave it out; unset means the objective's",
        ),
        (DATA + "[training]\nlearning_rate = 11\n", 4, "got 11", "Leave it out; unset means the objective's default."),
        (DATA + "[training]\nepochs = 0\n", 4, "got 0", "Leave it out; unset means 5, with classes"),
        (BLEND + "weights.a = -1\n", 5, "objective.weights.a is a number of at least 0, got -1", "Write a number of"),
        (DATA + "[training]\nclip = nan\n", 4, "got nan", "1.0"),
        (DATA + "[training]\nclip = inf\n", 4, "got inf", "1.0"),
        (DATA + f"[training]\nclip = {10**400}\n", 4, "more than 64 bits", "1.0"),
        (DATA + "[training]\nwarmup = 1.5\n", 4, "whole from 1 on, got 1.5", "0.06"),
        (DATA + "[training]\nevaluate_every = 0\n", 4, 'of at least 1, "auto" or "epoch", got 0', '"auto"'),
        # choices
        (DATA + "[training]\nschedule = 'linaer'\n", 4, 'the string "linaer"', "Did you mean 'linear'?"),
        (DATA + "[training]\nevaluate_every = 'epoc'\n", 4, 'or "epoch", got', "Did you mean 'epoch'?"),
        (DATA + "[training]\ntrackers = ['wanb']\n", 4, "training.trackers.0 is", "Did you mean 'wandb'?"),
        (DATA + "invalid = 'keep'\n", 3, 'data.invalid is "refuse" or "drop"', 'Try the default, "refuse".'),
        # what is missing
        ("[data]\ndev = 0.1\n", 1, "data.train is missing", "Add train to the table [data]. The training data:"),
        ("", None, "the table [data] is missing", "Add [data] with train."),
        # objectives
        (
            DATA + "[objective]\nname = 'tripel-entropy'\nbeta = 1\n",
            4,
            'objective.name cannot be the string "tripel-entropy"',
            'Did you mean \'triple-entropy\'? Choose one of "auto", "cross-entropy", "triple-entropy", "soft-triple", '
            '"cross-entropy+supcon", "supcon", "label-aware", "proxy-nca", "triplet", "contrastive", "score-mse", '
            '"batch-softmax", "mnrl", "cosine-mse", "pearson", "pair-triplet", "contrastive-pairs", "simcse", "mirror", "blend".',
        ),
        (DATA + "[objective]\nname = 3\n", 4, "objective.name is a string, got 3", "Choose one of"),
        (
            DATA + "[objective]\nbeta = 0.5\n",
            4,
            'beta is a setting of triple-entropy, but objective.name is "auto"',
            'Write name = "triple-entropy", or remove beta.',
        ),
        (
            DATA + "[objective]\nname = 'triple-entropy'\ntemperature = 0.5\n",
            5,
            "temperature is a setting of cross-entropy+supcon, supcon, label-aware, batch-softmax, simcse and mirror, but objective.name",
            'Write name = "cross-entropy+supcon" or the name of another of these, or remove temperature.',
        ),
        (
            DATA + "[[stage]]\n[[stage]]\n[stage.objective]\nbeta = 1\n",
            6,
            'beta is a setting of triple-entropy, but stage.1.objective.name is "auto"',
            'Write name = "triple-entropy", or remove beta.',
        ),
        (
            DATA + "[objective.parts.a]\nname = 'supcon'\n",
            3,
            'parts is a setting of blend, but objective.name is "auto"',
            'Write name = "blend", or remove parts.',
        ),
        # blends
        (
            BLEND + "beta = 0.5\n",
            5,
            "there is no key objective.beta",
            'beta belongs in [objective.parts.NAME] with name = "triple-entropy".',
        ),
        (
            BLEND + "[objective.parts.b]\nname = 'supcon'\nweight = 0.1\n",
            7,
            "there is no key objective.parts.b.weight: the weights of all parts are in one table",
            "Write weights = { b = 0.1 } in [objective].",
        ),
        (BLEND + "weight.a = 1\n", 5, "there is no table [objective.weight]", "Did you mean 'weights'? weight belongs"),
        (
            BLEND + "[objective.parts.a]\nname = 'supcon'\nbeta = 3\n",
            7,
            'beta is a setting of triple-entropy, but objective.parts.a.name is "supcon"',
            'Write name = "triple-entropy", or remove beta.',
        ),
        (BLEND + "[objective.parts.a]\nbeta = 3\n", 5, "objective.parts.a.name is missing", "Choose one of"),
        (BLEND + "[objective.parts.a]\nname = 'blend'\n", 6, 'cannot be the string "blend"', "Choose one of"),
        (BLEND + "[objective.parts.a]\nname = 'auto'\n", 6, 'cannot be the string "auto"', "Choose one of"),
        (DATA + "[objective]\nname = 'supcon'\ntemprature = 3\n", 5, "temprature", "Did you mean 'temperature'?"),
        (
            DATA + "[objective]\nsmoothing = 3\n",
            4,
            "smoothing",
            "Did you mean 'label_smoothing'? It belongs in [objective]",
        ),
        (
            DATA + "[objective]\nname = 'cross-entropy'\nsmoothing = 0.5\n",
            5,
            "objective.smoothing",
            "Did you mean 'label_smoothing'?",
        ),
    ],
)
def test_a_problem_has_its_line_a_message_and_a_remedy(tmp_path, text, line, message, remedy):
    found = problem(tmp_path, text)
    assert found.line == line
    assert message in found.message
    assert remedy in found.remedy
    assert found.remedy.endswith((".", "?"))


@pytest.mark.parametrize(
    ("table", "key", "values"),
    [
        ("", "seed", ["0", "2147483647"]),
        ("data", "dev", ["0", "0.999"]),
        ("encoder", "max_length", ["2"]),
        ("encoder", "dropout", ["0", "0.999"]),
        ("objective", "weight", ["0", "1"]),
        ("objective", "label_smoothing", ["0", "0.999"]),
        ("batches", "per_class", ["2"]),
        ("head", "neighbors", ["1"]),
        ("objective", "learning_rate", ["1e-300", "10"]),
        ("training", "learning_rate", ["1e-300", "10"]),
        ("training", "warmup", ["0", "0.5", "1", "1.0", "2000"]),
        ("training", "clip", ["0", "1e300"]),
        ("training", "evaluate_every", ["1", "'epoch'"]),
    ],
)
def test_the_ends_of_a_range_fit(tmp_path, table, key, values):
    for value in values:
        text = (
            "data.train = 'a.csv'\nobjective.name = 'cross-entropy+supcon'\n"
            + ".".join(part for part in (table, key) if part)
            + f" = {value}\n"
        )
        recipe = read(tmp_path, text)
        found = getattr(getattr(recipe, table) if table else recipe, key)
        assert found == tomllib.loads(text + f"\nvalue = {value}")["value"]


def test_all_problems_are_reported_at_once_in_the_order_of_the_file(tmp_path):
    text = "seed = -1\nepochs = 2\n[training]\nclip = 'x'\nepochs = 0\n[encoder]\nnam = 'x'\n"
    found = problems(tmp_path, text)
    assert [one.line for one in found] == [1, 2, 4, 5, 7, None]
    with pytest.raises(RecipeError, match="6 problems in all"):
        read(tmp_path, text)


def test_an_unknown_objective_still_has_its_keys_looked_at(tmp_path):
    found = problems(tmp_path, DATA + "[objective]\nname = 'x'\nbeta = 0.5\nbetta = 0.5\n")
    assert [(one.line, one.remedy) for one in found][1:] == [(6, "Did you mean 'beta'?")]
    assert found[0].line == 4


def test_a_misspelled_required_key_is_one_problem(tmp_path):
    assert problem(tmp_path, "[data]\ntrian = 'a.csv'\n").remedy == "Did you mean 'train'?"
    assert problem(tmp_path, "[dat]\ntrain = 'a.csv'\n").remedy == "Did you mean 'data'?"


def test_thousands_of_problems_are_listed_quickly(tmp_path):
    found = problems(tmp_path, DATA + "".join(f"key{number} = 1\n" for number in range(5000)))
    assert len(found) == 5000 > SHOWN
    assert found[-1].line == 5002


@pytest.mark.parametrize(
    ("text", "line", "column", "remedy"),
    [
        ("[data]\ntrain = reviews.csv", 2, 9, 'Strings need quotes: train = "reviews.csv".'),
        ("[encoder]\nname = minilm # the small one", 2, 8, 'Strings need quotes: name = "minilm".'),
        ("a = True", 1, 5, "Write a = true."),
        ("a = None", 1, 5, "Leave a out to keep it unset."),
        ("a = .5", 1, 5, "Write a = 0.5."),
        ("a = -.5", 1, 5, "Write a = -0.5."),
        ("a = 5.", 1, 6, "Write a = 5.0."),
        ("a: 3", 1, 2, "TOML writes key = value, not key: value."),
        ("a 3", 1, 3, "Write key = value."),
        ("[data]\n[data]", 2, 6, "The same key or table occurs before; keep one of the two."),
        ("a = 1\na = 2\n", 2, 6, "The same key or table occurs before; keep one of the two."),
        ('a = "x\nb = 1', 1, 7, "Close the quotes."),
        ('a = "C:\\data"', 1, 10, "Put a path with backslashes in single quotes"),
        ("a = { b = 1\n}", 1, 12, "Write a table in braces on one line"),
        ("a = { b = 1, }", 1, 14, "no comma at its end"),
        ("a = { b = 1, b = 2 }", 1, 19, "keep one of the two"),
        ("a = [1 2]", 1, 8, "put a comma between entries"),
        ("a = '" + "x", 1, None, "Close the quotes."),
        ("[" + "a" * 9000 + "]\n[" + "a" * 9000 + "]", 2, 9002, "keep one of the two"),
        ("a = \0", 1, 5, "NUL bytes"),
        ("[data", 1, None, "tables in [brackets]"),
        ("\n\na = [1,\n\n", 3, None, "Close the list with ]"),
        ("a = '''x\n", 1, None, "Close the quotes."),
    ],
)
def test_what_is_not_toml_has_its_line_column_and_remedy(tmp_path, text, line, column, remedy):
    with pytest.raises(tomllib.TOMLDecodeError):
        tomllib.loads(text)
    found = problem(tmp_path, text)
    place = "at the end of the file" if column is None else f"at column {column}:"
    assert found.line == line
    assert place in found.message
    assert remedy in found.remedy


def test_deep_nesting_and_long_integers_have_a_line(tmp_path):
    found = problem(tmp_path, "seed = 1\nx = " + "[" * 5000)
    assert (found.line, found.message) == (2, "lists or tables are nested too deeply")
    found = problem(tmp_path, "seed = 1\nx = " + "{a=" * 5000)
    assert found.line == 2
    found = problem(tmp_path, DATA + "\nseed = " + "9" * 5000)
    assert (found.line, found.message) == (4, "an integer has more than 64 bits")
    assert problems(tmp_path, DATA + ".".join(["a"] * 3000) + " = 1\n")[0].line == 3


def test_bytes_that_are_not_utf8_have_their_offset(tmp_path):
    found = problem(tmp_path, b"[data]\ntrain = '\xff'\n")
    assert found.message == "byte 0xff at offset 16 is not UTF-8"
    assert "UTF-8" in problem(tmp_path, DATA.encode("utf-16")).remedy


def refusal(path):
    with pytest.raises(RecipeError) as caught:
        read_recipe(path)
    (found,) = caught.value.problems
    assert found.where == str(path)
    return found


def test_a_missing_file_suggests_a_similar_one(tmp_path):
    (tmp_path / "recipe.toml").touch()
    (tmp_path / "recipes.txt").touch()
    assert refusal(tmp_path / "recipes.toml").remedy == "Did you mean 'recipe.toml'?"
    assert refusal(tmp_path / "recipes.tx").remedy == "Did you mean 'recipes.txt'?"
    assert refusal(tmp_path / "zzz").remedy == "The folder has recipe.toml."
    assert refusal(tmp_path / "no" / "such" / "folder.toml").remedy == "Check the path."


def test_a_folder_suggests_a_recipe_in_it(tmp_path):
    assert refusal(tmp_path).remedy == "Name a recipe file, such as recipe.toml."
    (tmp_path / "b.toml").touch()
    assert refusal(tmp_path).remedy == "Name a file in it, such as 'b.toml'."


def test_a_file_that_may_not_be_read(tmp_path, monkeypatch):
    file = tmp_path / "recipe.toml"
    file.write_text(DATA)
    monkeypatch.setattr(type(file), "open", lambda *_: (_ for _ in ()).throw(PermissionError(13, "no")))
    assert refusal(file).message == "you may not read this file"


def test_other_ways_a_path_can_fail(tmp_path):
    (tmp_path / "file").touch()
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    assert "cannot be read" in refusal(tmp_path / "file" / "below.toml").message
    assert "cannot be read" in refusal(tmp_path / "loop").message
    assert "cannot be read" in refusal(tmp_path / ("x" * 5000)).message
    assert "cannot be read" in refusal(tmp_path / "nul\0.toml").message


def test_a_file_of_texts_is_not_read_as_a_recipe(tmp_path):
    file = tmp_path / "texts.csv"
    file.write_bytes(b"# text\n" * 50_000)
    assert "more than 262,144 bytes" in refusal(file).message
    if os.path.exists("/dev/zero"):
        from pathlib import Path

        assert "more than" in refusal(Path("/dev/zero")).message


def test_without_a_file_problems_name_the_place_they_were_given(tmp_path):
    with pytest.raises(RecipeError) as caught:
        build_recipe({"data": {"train": "a"}, "seed": -1}, [], where="the demo")
    (found,) = caught.value.problems
    assert (found.where, found.line) == ("the demo", None)
