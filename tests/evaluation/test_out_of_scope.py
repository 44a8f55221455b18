"""Detection of texts of no class, against scikit-learn and by hand."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score, roc_curve

from nearfar.errors import SettingError
from nearfar.evaluation.out_of_scope import scope_report


@pytest.mark.parametrize("seed", range(5))
def test_scores_are_those_of_scikit_learn(seed):
    """With ties, too."""
    generator = np.random.default_rng(seed)
    inside, outside = generator.normal(1, 1, 200).round(1), generator.normal(0, 1, 100).round(1)
    report = scope_report(inside, outside)
    truth, scores = np.repeat([1, 0], [200, 100]), np.concatenate([inside, outside])
    assert report.scores["auroc"] == pytest.approx(roc_auc_score(truth, scores))
    false, true, _ = roc_curve(truth, scores, drop_intermediate=False)
    assert report.scores["fpr_95"] == pytest.approx(false[true >= 0.95].min())
    assert (report.in_scope, report.out_of_scope, report.rows) == (200, 100, 300)
    assert "rejected_in_scope" not in report.scores


def test_scores_below_the_level_are_rejected():
    report = scope_report(np.array([0.04, 0.05, 0.9, 1.0]), np.array([0.0, 0.5]), level=0.05)
    assert report.scores["rejected_in_scope"] == 0.25
    assert report.scores["rejected_out_of_scope"] == 0.5


def test_texts_of_one_kind_are_refused():
    with pytest.raises(SettingError, match="texts of both kinds"):
        scope_report(np.array([0.5]), np.array([]))
