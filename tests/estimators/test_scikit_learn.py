"""The contract of scikit-learn, which its own suite does not check for estimators of texts."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
from sklearn.base import clone, is_classifier
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import StackingClassifier
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_predict, cross_val_score
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils import get_tags

from nearfar import Classifier, Encoder

QUICK = {"encoder": "toy", "max_steps": 2, "precision": "fp32"}


@pytest.mark.parametrize("kind", [Classifier, Encoder])
def test_settings_are_stored_as_given_and_cloned(kind):
    given = {**QUICK, "objective": {"name": "supcon"}, "columns": {"text": "body"}, "random_state": 7}
    estimator = kind(**given)
    assert {name: estimator.get_params()[name] for name in given} == given
    assert estimator.objective is given["objective"]
    twin = clone(estimator)
    assert twin is not estimator
    assert twin.get_params() == estimator.get_params()
    assert estimator.set_params(random_state=8) is estimator
    assert estimator.random_state == 8
    with pytest.raises(ValueError, match="Invalid parameter 'epoch'"):
        estimator.set_params(epoch=2)


def test_only_the_encoder_is_positional():
    with pytest.raises(TypeError):
        Classifier("toy", "supcon")


def test_tags_are_those_of_text_vectorizers():
    tags = get_tags(Classifier())
    assert is_classifier(Classifier())
    assert tags.input_tags.string
    assert not tags.input_tags.two_d_array
    assert tags.target_tags.required
    assert get_tags(Encoder()).transformer_tags is not None


@pytest.mark.parametrize("estimator", [Classifier(**QUICK), Encoder(**QUICK)])
def test_an_unfitted_estimator_is_pickled(estimator):
    twin = pickle.loads(pickle.dumps(estimator))
    assert twin.get_params() == estimator.get_params()


def test_before_fit_there_is_nothing_to_predict_with():
    for method in ("predict", "predict_proba", "embed", "score"):
        with pytest.raises(NotFittedError, match="call fit first"):
            getattr(Classifier("toy"), method)(["a text"])
    with pytest.raises(NotFittedError):
        _ = Classifier("toy").classes_


def test_fit_returns_itself_and_has_no_features(texts, labels):
    clf = Classifier(**QUICK)
    assert clf.fit(texts, labels) is clf
    assert not hasattr(clf, "n_features_in_")
    assert clf.classes_.tolist() == ["fruit", "tool"]


@pytest.mark.parametrize(
    ("values", "kind"),
    [((0, 1), np.integer), ((10, 9), np.integer), (("10", "9"), np.str_), ((0.0, 1.0), np.floating), ((True, False), np.bool_)],
)  # fmt: skip
def test_classes_are_what_the_labels_were(texts, values, kind, tmp_path):
    labels = [values[0]] * 6 + [values[1]] * 6
    clf = Classifier(**QUICK).fit(texts, labels)
    assert clf.classes_.tolist() == np.unique(labels).tolist()
    predicted = clf.predict(texts)
    assert isinstance(predicted[0], kind)
    np.testing.assert_array_equal(predicted, clf.classes_[clf.predict_proba(texts).argmax(axis=1)])
    assert clf.score(texts, labels) == pytest.approx(np.mean(predicted == np.array(labels)))
    from nearfar import load

    clf.save(tmp_path / "model")
    np.testing.assert_array_equal(load(tmp_path / "model").predict(texts), predicted)


def test_a_fitted_estimator_travels_with_the_files_of_its_folder(texts, labels):
    clf = Classifier(**QUICK).fit(texts, labels)
    for twin in (pickle.loads(pickle.dumps(clf)), copy.deepcopy(clf)):
        np.testing.assert_array_equal(twin.predict_proba(texts), clf.predict_proba(texts))
        assert twin._folder.path != clf._folder.path


@pytest.mark.slow
def test_cross_validation_and_pipelines(texts, labels):
    clf = Classifier(**QUICK)
    assert cross_val_score(clf, texts, labels, cv=3).shape == (3,)
    piped = Pipeline([("lower", FunctionTransformer(lambda texts: [text.lower() for text in texts])), ("clf", clf)])
    assert piped.fit(texts, labels).predict(texts).shape == (12,)
    embedded = make_pipeline(Encoder("toy", objective=None), LogisticRegression()).fit(texts, labels)
    assert embedded.score(texts, labels) > 0.9
    assert cross_val_predict(clf, np.array(texts), labels, cv=2, method="predict_proba").shape == (12, 2)


@pytest.mark.slow
def test_a_grid_search_in_two_processes(texts, labels):
    search = GridSearchCV(Classifier(**QUICK), {"learning_rate": [1e-4, 1e-3]}, cv=2, n_jobs=2).fit(texts, labels)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    assert search.predict(texts).shape == (12,)


@pytest.mark.slow
def test_calibration_and_stacking(texts, labels):
    calibrated = CalibratedClassifierCV(Classifier(**QUICK), cv=2).fit(texts, labels)
    assert calibrated.predict_proba(texts).shape == (12, 2)
    members = [("one", Classifier(**QUICK)), ("other", Classifier(**{**QUICK, "random_state": 1}))]
    stacked = StackingClassifier(members, LogisticRegression(), cv=2, passthrough=False).fit(texts, labels)
    assert set(stacked.predict(texts)) <= {"fruit", "tool"}
