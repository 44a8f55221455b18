"""What objectives do with no rows at all, and with labels that are none."""

from __future__ import annotations

import pytest
import torch

from nearfar.errors import SettingError
from nearfar.objectives import (
    BatchSoftmax,
    Contrastive,
    CosineMSE,
    LabelAware,
    PairContrastive,
    PairTriplet,
    Pearson,
    ProxyNCA,
    SoftTriple,
    SupCon,
    Triplet,
)

CLASSES = [
    SoftTriple(3, 4), SoftTriple(3, 4, spread=0.2), ProxyNCA(3, 4), SupCon(), Contrastive(),
    *(Triplet(select=select) for select in ("all", "hard", "semihard")),
]  # fmt: skip
PAIRS = [
    *(CosineMSE(), Pearson(), PairContrastive(), PairTriplet(), PairTriplet(distance="cosine")),
    *(BatchSoftmax(normalize=kind) for kind in ("row", "coordinate", "minmax", "none")),
]


@pytest.mark.parametrize("objective", CLASSES, ids=repr)
def test_no_texts_cost_nothing(objective):
    embeddings = torch.zeros(0, 4, requires_grad=True)
    value = objective(embeddings, torch.zeros(0, dtype=torch.long))
    value.backward()
    assert value.item() == 0


def test_no_texts_cost_nothing_under_label_aware():
    value = LabelAware()(torch.zeros(0, 4, requires_grad=True), torch.zeros(0, dtype=torch.long), torch.zeros(0, 3))
    assert value.item() == 0


@pytest.mark.parametrize("objective", PAIRS, ids=repr)
@pytest.mark.parametrize("extra", [0, 2])
def test_no_pairs_cost_nothing(objective, extra):
    left, right = torch.zeros(0, 4, requires_grad=True), torch.zeros(extra, 4)
    value = objective(left, right, torch.zeros(0))
    value.backward()
    assert value.item() in (0, 1)  # 1 - correlation, which is 0 where there is none


@pytest.mark.parametrize("objective", [SoftTriple(3, 4), ProxyNCA(3, 4)], ids=repr)
def test_labels_are_whole_numbers_below_the_number_of_classes(objective):
    """Of any type of them; others are named, with what to do."""
    name = type(objective).__name__
    embeddings = torch.randn(2, 4, generator=torch.Generator().manual_seed(0))
    labels = torch.tensor([0, 2])
    wanted = objective(embeddings, labels)
    assert torch.equal(objective(embeddings, labels.int()), wanted)
    assert torch.equal(objective(embeddings, labels.to(torch.uint8)), wanted)
    with pytest.raises(SettingError, match=rf"{name}: labels must be from 0 to 2, got 3; .*classes=4"):
        objective(embeddings, torch.tensor([0, 3]))
    with pytest.raises(SettingError, match=r"from 0 to 2, got -1; number the classes from 0\.$"):
        objective(embeddings, torch.tensor([-1, 3]))
    with pytest.raises(SettingError, match=r"labels must be whole numbers, got torch\.float32"):
        objective(embeddings, labels.float())


@pytest.mark.parametrize(
    "make",
    [
        lambda: SupCon(temperature=float("inf")),
        lambda: SoftTriple(3, 4, scale=float("inf")),
        lambda: SoftTriple(3, 4, margin=float("inf")),
        lambda: BatchSoftmax(temperature=float("inf")),
    ],
)
def test_a_setting_without_end_is_refused(make):
    with pytest.raises(SettingError, match="got inf; try"):
        make()


@pytest.mark.parametrize(("settings", "remedy"), [((1, 4), "as many as the labels have"), ((3, 0), "the width")])
def test_counts_that_are_too_small_are_refused_with_a_remedy(settings, remedy):
    for objective in (SoftTriple, ProxyNCA):
        with pytest.raises(SettingError, match=remedy):
            objective(*settings)
    with pytest.raises(SettingError, match="centers must be 1 or more, got 0; 10 is usual"):
        SoftTriple(3, 4, centers=0)
    with pytest.raises(SettingError, match=r"centers must be a whole number, got 2\.5; 10 is usual"):
        SoftTriple(3, 4, centers=2.5)
