"""How typical a text is of the classes: a share of reference texts, between them and beyond."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from nearfar.encoding.scope import Scope, nearest_center
from nearfar.errors import SettingError


def scope(reference, **more):
    return Scope(torch.eye(2), torch.ones(2), torch.tensor(reference), **more)


def test_the_score_falls_with_the_distance_to_the_nearest_center_that_has_texts():
    centers = torch.tensor([[0.5, 0.0], [0.0, 0.8], [0.0, 0.0]])
    vectors = torch.tensor([[3.0, 4.0], [-1.0, 0.0], [1.0, 0.0]])
    unit = vectors / vectors.norm(dim=1, keepdim=True)
    distances = torch.cdist(unit, centers[:2]).min(dim=1).values
    assert nearest_center(vectors, centers).tolist() == pytest.approx((-distances.square() / 2).tolist())


def test_typicality_is_the_share_of_reference_texts_below():
    found = scope([0.4, 0.1, 0.3, 0.2]).typicality(torch.tensor([0.1, 0.25, 0.3, 0.4, 0.9]))
    assert found.tolist() == pytest.approx([0.125, 0.5, 0.625, 0.875, 1.0])


def test_far_below_all_reference_texts_nothing_is_typical():
    values = scope([0.6, 0.7, 0.8]).typicality(torch.tensor([0.59, 0.5, 0.0, -1.0]))
    assert 1 / 6 > values[0] > values[1] > values[2] > values[3] >= 0
    assert values[3] < 1e-6


@given(st.lists(st.floats(-1, 1, width=32), min_size=1, max_size=30), st.lists(st.floats(-1, 1, width=32), min_size=2))
@settings(max_examples=60, deadline=None)
def test_a_higher_score_is_never_less_typical(reference, scores):
    values = scope(reference).typicality(torch.tensor(sorted(scores)))
    assert bool((values.diff() >= -1e-6).all())
    assert bool(((values >= 0) & (values <= 1)).all())


def test_texts_drawn_like_the_reference_are_rejected_at_the_level_that_was_asked_for():
    torch.manual_seed(0)
    values = scope((0.7 + 0.1 * torch.randn(4_000)).tolist()).typicality(0.7 + 0.1 * torch.randn(4_000))
    for level in (0.01, 0.05, 0.2):
        assert (values < level).float().mean().item() == pytest.approx(level, rel=0.4)


def test_a_scope_without_reference_texts_is_refused():
    with pytest.raises(SettingError, match="the reference scores are empty"):
        scope([])
