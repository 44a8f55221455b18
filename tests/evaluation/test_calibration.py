"""Calibration of probabilities, against slow loops and values that can be derived by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nearfar.evaluation import class_report
from nearfar.evaluation.calibration import TemperaturePrior, calibration_error, fit_temperature, log_loss, reliability


def softmax(logits):
    chances = np.exp(logits - logits.max(axis=1, keepdims=True))
    return chances / chances.sum(axis=1, keepdims=True)


def drawn(seed, *, n=200, classes=4, temperature=1.0):
    """Logits, and classes that are drawn by the probabilities at a temperature."""
    generator = np.random.default_rng(seed)
    logits = generator.normal(size=(n, classes)) * 3
    chances = softmax(logits / temperature)
    return logits, np.array([generator.choice(classes, p=row) for row in chances])


def slow_error(probabilities, truth, bins):
    total = 0.0
    for number in range(bins):
        inside = [
            row
            for row in range(len(truth))
            if min(int(probabilities[row].max() * bins), bins - 1) == number
        ]  # fmt: skip
        if inside:
            sure = sum(probabilities[row].max() for row in inside) / len(inside)
            right = sum(probabilities[row].argmax() == truth[row] for row in inside) / len(inside)
            total += len(inside) / len(truth) * abs(sure - right)
    return total


@given(seed=st.integers(0, 10_000), bins=st.integers(1, 20), n=st.integers(1, 40))
@settings(max_examples=40, deadline=None)
def test_the_error_is_that_of_slow_loops(seed, bins, n):
    logits, truth = drawn(seed, n=n)
    probabilities = softmax(logits)
    assert calibration_error(probabilities, truth, bins=bins) == pytest.approx(slow_error(probabilities, truth, bins))
    assert sum(part.texts for part in reliability(probabilities, truth, bins=bins)) == n


def test_a_certain_model_that_is_always_wrong_has_the_highest_error():
    probabilities, truth = np.array([[1.0, 0.0]] * 3), np.array([1, 1, 1])
    assert calibration_error(probabilities, truth) == 1
    assert log_loss(probabilities, truth) == pytest.approx(-math.log(1e-12))


def test_the_temperature_of_many_texts_is_the_one_they_were_drawn_at():
    for temperature in (0.5, 1.0, 2.5):
        logits, truth = drawn(1, n=20_000, temperature=temperature)
        assert fit_temperature(logits, truth) == pytest.approx(temperature, rel=0.05)


def test_no_other_temperature_has_a_lower_log_loss():
    logits, truth = drawn(3, temperature=2.0)
    best = fit_temperature(logits, truth)
    lowest = log_loss(softmax(logits / best), truth)
    assert all(lowest <= log_loss(softmax(logits / (best * factor)), truth) for factor in (0.5, 0.95, 1.05, 2.0))


def test_a_prior_decides_for_few_texts_and_has_no_say_over_many():
    """Four texts that are all right ask for a temperature of zero; the prior holds it where it is plausible."""
    prior = TemperaturePrior(mean=0.0, deviation=0.5)
    logits, truth = np.eye(4) * 5, np.arange(4)
    assert fit_temperature(logits, truth) < 0.2
    assert 0.5 < fit_temperature(logits, truth, prior) < 1
    logits, truth = drawn(2, n=20_000, temperature=3.0)
    assert fit_temperature(logits, truth, prior) == pytest.approx(fit_temperature(logits, truth), rel=0.01)


def test_a_class_that_is_never_predicted_takes_no_part():
    logits, truth = drawn(4, temperature=2.0)
    absent = np.column_stack([logits, np.full(len(logits), -1e4)])
    assert fit_temperature(absent, truth) == pytest.approx(fit_temperature(logits, truth), rel=1e-4)


def test_a_report_with_probabilities_has_their_calibration():
    probabilities, truth = np.array([[0.8, 0.2], [0.4, 0.6]]), np.array([0, 1])
    report = class_report(truth, probabilities.argmax(axis=1), ("near", "far"), probabilities)
    assert report.scores["ece"] == pytest.approx(0.3)
    assert report.scores["log_loss"] == pytest.approx(-(math.log(0.8) + math.log(0.6)) / 2)
    assert "ece" not in class_report(truth, truth, ("near", "far")).scores
