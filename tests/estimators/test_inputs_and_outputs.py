"""What fit takes, what models give: tables, data sets, columns, search, reports, recipes of several tasks."""

from __future__ import annotations

from dataclasses import asdict

import numpy as np
import pandas as pd
import pytest
from datasets import ClassLabel, Dataset, Features, Value
from sentence_transformers import SentenceTransformer

import nearfar
from nearfar import Classifier, Encoder
from nearfar.errors import DataError, RecipeError, SettingError
from nearfar.estimators import MultiTask

QUICK = {"encoder": "toy", "max_steps": 2, "precision": "fp32"}


def test_all_forms_of_the_same_rows_train_the_same_model(texts, labels):
    expected = Classifier(**QUICK).fit(texts, labels).predict_proba(texts)
    frame = pd.DataFrame({"text": texts, "label": labels})
    other = pd.DataFrame({"id": range(len(texts)), "body": texts, "intent": labels, "note": ""})
    named = ClassLabel(names=["fruit", "tool"])
    features = Features({"text": Value("string"), "label": named})
    data_set = Dataset.from_dict({"text": texts, "label": named.str2int(labels)}, features=features)
    forms = {
        "arrays": (np.array(texts), np.array(labels)),
        "series": (frame["text"], frame["label"]),
        "a series without the usual index": (frame["text"][::-1][::-1], pd.Series(labels, index=range(100, 112))),
        "a frame": (frame,),
        "a frame and a column": (other[["body", "intent"]].rename(columns={"body": "text"}), "intent"),
        "a frame and labels": (other.rename(columns={"body": "text"}), labels),
        "a data set": (data_set,),
        "columns": ({"text": texts, "label": labels},),
        "a tuple": (tuple(texts), tuple(labels)),
    }
    for name, arguments in forms.items():
        clf = Classifier(**QUICK).fit(*arguments)
        np.testing.assert_array_equal(clf.predict_proba(texts), expected, err_msg=name)
        assert clf.classes_.tolist() == ["fruit", "tool"]
    clf = Classifier(**QUICK, columns={"text": "body", "label": "intent"}).fit(other, validation=other)
    np.testing.assert_array_equal(clf.predict_proba(other), clf.predict_proba(texts))
    assert clf.score(other) == clf.score(texts, labels)
    assert clf.score(other, "intent") == clf.scores_["accuracy"]


def test_numbers_in_a_column_stay_numbers(texts):
    frame = pd.DataFrame({"text": texts, "label": [3] * 6 + [11] * 6})
    assert Classifier(**QUICK).fit(frame).classes_.tolist() == [3, 11]
    assert nearfar.train({"encoder": {"name": "toy"}}, data=frame).classes_.tolist() == [3, 11]


def test_class_weights(texts, labels):
    few = texts[:9], labels[:9]
    plain = Classifier(**QUICK, objective="cross-entropy").fit(*few)
    even = Classifier(**QUICK, objective="cross-entropy", class_weight="balanced").fit(*few)
    given = Classifier(**QUICK, objective="cross-entropy", class_weight={"tool": 1.5, "fruit": 0.75}).fit(*few)
    assert not np.array_equal(plain.predict_proba(texts), even.predict_proba(texts))
    np.testing.assert_allclose(given.predict_proba(texts), even.predict_proba(texts), atol=1e-6)
    numbers = Classifier(**QUICK, class_weight={0: 1.0, 1: 2.0}).fit(texts, [0] * 6 + [1] * 6)
    assert numbers.recipe_.objective.class_weight == {"0": 1.0, "1": 2.0}
    with pytest.raises(SettingError, match="names 'tools', which is no class"):
        Classifier(**QUICK, class_weight={"tools": 2.0}).fit(texts, labels)
    with pytest.raises(RecipeError, match="class_weight='even'"):
        Classifier(**QUICK, class_weight="even").fit(texts, labels)


def test_any_recipe_key_is_a_setting(texts, labels):
    clf = Classifier(
        "toy", objective={"name": "supcon", "temperature": 0.3}, settings={"training.warmup": 2, "data.per_class": 3}
    ).fit(texts, labels)
    assert asdict(clf.recipe_.objective)["temperature"] == 0.3
    assert clf.recipe_.training.warmup == 2
    assert clf.recipe_.data.per_class == 3


def test_an_encoder_compares_and_searches(tmp_path):
    pairs = [(f"the {thing}", f"a {thing}") for thing in ("apple", "saw", "horse", "river")]
    encoder = Encoder(**QUICK).fit(pairs)
    left, right = zip(*pairs, strict=True)
    cosines = encoder.similarity(left, right)
    assert cosines.shape == (4, 4)
    np.testing.assert_allclose(np.diag(encoder.similarity(left, left)), 1, atol=1e-5)
    hits = encoder.search(list(left), list(right), top=3)
    assert [len(row) for row in hits] == [3] * 4
    for row, found in enumerate(hits):
        order = np.argsort(-cosines[row], kind="stable")[:3]
        assert [hit.index for hit in found] == order.tolist()
        np.testing.assert_allclose([hit.score for hit in found], cosines[row][order], atol=1e-5)
        assert found[0].text == right[found[0].index]
    assert encoder.search("the apple", right, top=100)[0][0].score <= 1
    np.testing.assert_allclose(np.linalg.norm(encoder.encode(left, normalize=True), axis=1), 1, atol=1e-5)
    np.testing.assert_array_equal(encoder.transform(left), encoder.encode(left))
    encoder.save(tmp_path / "model")
    opened = SentenceTransformer(str(tmp_path / "model"), device="cpu")
    np.testing.assert_allclose(opened.encode(list(left)), encoder.encode(left), atol=1e-5)
    opened.save_pretrained(str(tmp_path / "theirs"))
    np.testing.assert_allclose(nearfar.load(tmp_path / "theirs").encode(left), encoder.encode(left), atol=1e-5)
    np.testing.assert_allclose(Encoder(tmp_path / "theirs").encode(left), encoder.encode(left), atol=1e-5)
    with pytest.raises(SettingError, match="top must be 1 or more"):
        encoder.search(left, right, top=0)


def test_an_encoder_without_fit_is_the_pretrained_one(texts, labels, tmp_path):
    pretrained = nearfar.load("toy").encode(texts)
    np.testing.assert_array_equal(Encoder("toy").encode(texts), pretrained)
    np.testing.assert_array_equal(Encoder("toy", objective=None).fit(texts).encode(texts), pretrained)
    by_class = Encoder(**QUICK).fit(texts, labels)
    assert by_class.recipe_.objective.name == "supcon"
    assert not np.array_equal(by_class.encode(texts), pretrained)
    by_class.save(tmp_path / "model")
    assert isinstance(nearfar.load(tmp_path / "model"), Encoder)


def test_a_card_a_page_and_a_chart_for_notebooks(texts, labels, tmp_path):
    names = [name.replace("tool", "<b>tools & more</b>") for name in labels]
    clf = Classifier(**QUICK).fit(texts, names, validation=(texts, names))
    html = clf._repr_html_()
    assert "<b>tools" not in html
    assert "&lt;b&gt;tools &amp; more" in html
    for shown in ("supcon", "12", "accuracy", "toy"):
        assert shown in html
    assert clf._repr_mimebundle_()["text/html"] == html
    assert "not fitted" in Classifier()._repr_html_()
    page = clf.report(texts, names)
    assert page.html.startswith("<!doctype html>")
    assert "Confusion matrix" in page.html
    assert page._repr_html_().startswith("<iframe")
    assert "<b>tools" not in page.html
    page.save(tmp_path / "report.html")
    assert (tmp_path / "report.html").read_text() == page.html
    pairs = [(f"the {thing}", f"a {thing}") for thing in ("apple", "saw", "horse", "river")]
    assert "Embedding geometry" in Encoder(**QUICK).fit(pairs).report(pairs).html
    assert "Encoder" in Encoder(**QUICK)._repr_html_()


def test_recipes_of_several_tasks(texts, labels, tmp_path):
    tasks = [
        {"name": "things", "objective": {"name": "cross-entropy"}},
        {"name": "pairs", "objective": {"name": "cosine-mse"}},
    ]
    tables = {"encoder": {"name": "toy"}, "task": tasks, "training": {"epochs": 1}}
    pairs = {"text_a": texts, "text_b": texts[1:] + texts[:1], "score": [float(n % 5) for n in range(12)]}
    rows = {"things": {"text": texts, "label": labels}, "pairs": pairs}
    model = nearfar.train(tables, data=rows, out=tmp_path / "model")
    assert isinstance(model, MultiTask)
    assert model.tasks == ("things", "pairs")
    assert model.classes("things") == ("fruit", "tool")
    assert model.predict_proba(texts, task="things").shape == (12, 2)
    assert set(model.predict(texts, task="things")) <= {"fruit", "tool"}
    assert model.predict([("a", "b")], task="pairs").dtype == np.float64
    assert model.encode(texts).shape == (12, 64)
    again = nearfar.load(tmp_path / "model")
    assert isinstance(again, MultiTask)
    np.testing.assert_array_equal(again.predict_proba(texts, task="things"), model.predict_proba(texts, task="things"))
    with pytest.raises(SettingError, match="name one with --task"):
        model.predict(texts)
    with pytest.raises(DataError, match="reads pairs of texts"):
        model.predict(texts, task="pairs")


def test_train_refuses_what_it_cannot_do(tmp_path):
    with pytest.raises(RecipeError, match="there is no such file"):
        nearfar.train(tmp_path / "nothing.toml")
    with pytest.raises(SettingError, match="name it with out"):
        nearfar.train({"encoder": {"name": "toy"}}, data=[("a", "b")], resume=True)
    with pytest.raises(RecipeError, match="settings="):
        nearfar.train({"encoder": {"name": "toy"}}, data=[("a", "b")], settings={"training.epochs": -1})
