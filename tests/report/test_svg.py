"""Pieces of SVG: round ticks, places, and nothing unescaped."""

import math
from itertools import pairwise
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearfar.report import svg
from nearfar.report.elements import number


@given(st.floats(-1e4, 1e4), st.floats(1e-3, 1e6), st.integers(2, 9))
def test_ticks_lie_inside_at_equal_steps_and_are_neither_few_nor_many(low, width, count):
    ticks = svg.nice_ticks(low, low + width, count)
    assert all(low - 1e-6 * width - 1e-9 <= tick <= low + width + 1e-6 * width + 1e-9 for tick in ticks)
    assert 1 <= len(ticks) <= count + 1
    steps = {round((two - one) / width, 5) for one, two in pairwise(ticks)}
    assert len(steps) <= 1 or max(steps) - min(steps) <= 2e-5


@given(st.floats(1, 1e6), st.floats(1.1, 1e6))
def test_ticks_of_a_logarithmic_scale_lie_inside(low, factor):
    ticks = svg.log_ticks(low, low * factor)
    assert ticks
    assert all(low * 0.99 <= tick <= low * factor * 1.01 for tick in ticks)


def test_a_scale_runs_from_start_to_end_also_upside_down():
    scale = svg.Scale(-2, 6, 300, 20)
    assert [scale(-2), scale(2), scale(6)] == [300, 160, 20]
    assert svg.Scale(3, 3, 0, 10)(3) == 5
    assert svg.Scale(10, 1000, 0, 100, log=True)(math.sqrt(10) * 10) == pytest.approx(25)


def test_markup_in_texts_and_attributes_is_escaped():
    made = svg.text(1, 2, '<script>&"', class_='"><b>') + svg.mark(1, 1, 0, title="</title><script>")
    assert "<script" not in made.code
    assert "<b>" not in made.code
    tree = ElementTree.fromstring(f"<g>{made}</g>")
    assert tree[0].text == '<script>&"'
    assert tree[1][0].text == "</title><script>"


def test_eight_colors_with_four_marks_give_thirty_two_different_series():
    drawn = {svg.mark(0, 0, place) for place in range(32)}
    assert len(drawn) == 32


def test_numbers_have_two_decimals_and_no_negative_zero():
    assert [number(value) for value in (-0.001, 1.005, 100, 2.5)] == ["0", "1", "100", "2.5"]
