"""Bad input is refused before training, with the message of the command line and the row's position."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from nearfar import Classifier, Encoder
from nearfar.errors import DataError, RecipeError, SettingError

GOOD = ["an apple", "a plum", "a saw", "a file"]
CLASSES = ["fruit", "fruit", "tool", "tool"]

BAD = {
    "empty": (([], []), "no rows"),
    "unequal": ((GOOD, CLASSES[:3]), r"differ in length: 'text' has 4 values, 'label' has 3 values"),
    "none": ((["a", "b", None, "d"], CLASSES), "memory:train, row 3, column 'text': the text is missing"),
    "nan": ((["a", float("nan"), "c", "d"], CLASSES), "memory:train, row 2, column 'text': the text is missing"),
    "nan in a series": ((pd.Series(["a", None, "c", "d"]), CLASSES), "row 2, column 'text': the text is missing"),
    "numbers": ((["a", "b", "c", 4], CLASSES), r"row 4, column 'text': the text is not a string \(got '4'\)"),
    "blank": ((["a", " ", "c", "d"], CLASSES), "row 2, column 'text': the text is empty"),
    "one class": ((GOOD, ["fruit"] * 4), "same label|one class"),
    "a missing label": ((GOOD, ["fruit", None, "tool", "tool"]), "row 2, column 'label': the label is missing"),
    "a fraction": ((GOOD, [0.5, 1.0, 0.0, 1.0]), "row 1, column 'label': the label is neither a name nor a whole"),
    "a generator": (((text for text in GOOD), CLASSES), "a generator gives its texts only once.*list"),
    "a set": ((set(GOOD), CLASSES), "the texts of a set have no order"),
    "a generator of labels": ((GOOD, (label for label in CLASSES)), "labels are a generator"),
    "a string": (("an apple", CLASSES), "this is one string, not a list of texts"),
    "a string of labels": ((GOOD, "tool"), "the labels are one string"),
    "a 2-D array": ((np.array([GOOD, GOOD]), CLASSES), r"an array of 2 dimensions \(2 x 4\)"),
    "3-D labels": ((GOOD, np.zeros((4, 2, 2))), "array of 4 x 2 x 2"),
    "a number": ((7, CLASSES), "of type int"),
    "no labels": ((GOOD,), "there are no labels"),
    "mixed": ((["a", ("b", "c"), "d", "e"], CLASSES), "row 2"),
    "pairs and texts": (([("b", "c"), "a", ("d", "e"), ("f", "g")], CLASSES), "row 2"),
    "no column": (({"x": GOOD, "y": CLASSES},), "no column is recognized as the text among the columns found: 'x', 'y'"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_fit_refuses(case):
    arguments, message = BAD[case]
    with pytest.raises(DataError, match=message):
        Classifier("toy").fit(*arguments)


@pytest.fixture(scope="module")
def clf():
    return Classifier("toy", max_steps=1).fit(GOOD, CLASSES)


@pytest.mark.parametrize("method", ["predict", "predict_proba", "embed"])
@pytest.mark.parametrize("case", ["empty", "none", "nan", "numbers", "blank", "a generator", "a string", "a 2-D array"])
def test_a_fitted_model_refuses_the_same_texts(clf, case, method):
    (texts, _), message = BAD[case]
    with pytest.raises(DataError, match=message.replace("memory:train", "memory:texts")):
        getattr(clf, method)(texts)


def test_score_refuses_labels_that_the_model_does_not_know(clf):
    with pytest.raises(DataError, match=r"memory:score, row 3: the model does not know this label \(got 'bird'\)"):
        clf.score(GOOD, ["fruit", "tool", "bird", "tool"])


def test_remedies_name_no_flags_of_the_command_line(clf):
    with pytest.raises(DataError) as error:
        clf.predict(["a", None])
    assert str(error.value).endswith('Write a text, or drop such rows with data.invalid = "drop".')


def test_pairs_for_a_model_of_texts(clf):
    with pytest.raises(DataError, match=r"reads single texts, and these are pairs\. Give a list of texts\."):
        clf.predict([("a", "b")])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"epochs": 0}, "epochs=0: training.epochs"),
        ({"objective": "supconn"}, "supcon"),
        ({"settings": {"training.warmpu": 1}}, "warmup"),
        ({"head": "forest"}, "head.kind"),
    ],
)
def test_settings_are_refused_by_the_name_that_they_have_here(settings, message):
    with pytest.raises(RecipeError, match=message):
        Classifier("toy", **settings).fit(GOOD, CLASSES)


@pytest.mark.parametrize(
    ("settings", "more", "message"),
    [
        ({"head": "neighbors"}, {"unlabeled": ["a text"]}, "data.unlabeled .* a neighbors head does not weigh texts"),
        ({"label_names": ["a fruit", "a tool"]}, {}, "label_names is a dictionary of labels and descriptions, a file"),
        ({"label_names": {"frut": "a fruit"}}, {}, "describes 'frut', which is no class .* Did you mean 'fruit'"),
        ({"label_names": {"fruit": 3}}, {}, "the description of 'fruit' is a string or a list of strings, got 3"),
        ({"columns": {"txt": "a"}}, {}, "columns names 'txt'.*Did you mean 'text'"),
        ({"random_state": "x"}, {}, "random_state is a whole number"),
    ],
)
def test_what_is_not_supported_is_refused_and_not_ignored(settings, more, message):
    with pytest.raises(SettingError, match=message):
        Classifier("toy", **settings).fit(GOOD, CLASSES, **more)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ([], "no rows"),
        ([("a", "b"), ("c",)], "row 2"),
        ([("a", "b", "c", "d")], "4 values"),
        ([("a", "b", 0.5), ("c", "d", "much")], "row 2, column 'score'"),
        ([("a", None), ("c", "d")], "row 1, column 'text_b': the text is missing"),
        ("a text", "one string"),
        (np.array([["a", "b"]]), "2 dimensions"),
        ((pair for pair in [("a", "b")]), "generator"),
    ],
)
def test_an_encoder_refuses(data, message):
    with pytest.raises(DataError, match=message):
        Encoder("toy").fit(data)
