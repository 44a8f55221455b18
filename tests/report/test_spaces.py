"""Sections about encoders: sets of scored pairs, cosines and layers, each against the records it is made of."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from nearfar.experiments.records import Cell, DataSet, Plan, Record
from nearfar.report import Source, render_page
from nearfar.report.elements import Markup, Missing
from nearfar.report.embedding_map import geometry
from nearfar.report.spaces import by_set, cosines, embeds, layers
from nearfar.report.tables import markdown, t_test
from tests.report.test_page import Reader
from tests.report.test_sections import rows_of

EDGES = [-1.0, -0.5, 0.0, 0.5, 1.0]


def space(shift: float) -> dict[str, object]:
    return {"histogram": {"edges": EDGES, "positive": [0, 0, 1, 3], "random": [0, 4, 2, 2]},
            "layers": [0.9 - shift, 0.6 - shift, 0.5 - shift], "texts": 5, "positives": 4}  # fmt: skip


@pytest.fixture
def plain(tmp_path):
    """Two contenders on two sets by five seeds, and the untrained encoder."""
    cells, records = [], []
    for place, name in enumerate(("before", "simcse")):
        for seed in range(5):
            cell = Cell(id=f"{name}-{seed}", data="lines", limit=100, contender=name, seed=seed, fold=0)
            gain = place * (0.05 + 0.01 * seed)
            scores = {"spearman": 0.5 + gain, "stsb/spearman": 0.6 + gain, "sts12/spearman": 0.4 + gain}
            records.append(
                Record(
                    id=cell.id, data="lines", limit=100, contender=name, seed=seed, fold=0, status="done",
                    metric="spearman", kind="plain", scores=scores, texts=100, folder=tmp_path,
                    before={"spearman": 0.5, "stsb/spearman": 0.6, "sts12/spearman": 0.4},
                    geometry={"before": {"alignment": 0.3, "uniformity": -1.0, "anisotropy": 0.5, "effective_rank": 9.0},
                              "after": {"alignment": 0.2, "uniformity": -2.0, "anisotropy": 0.5 - gain,
                                        "effective_rank": 20.0}},
                    space={"before": space(0.0), "after": space(gain)},
                )
            )  # fmt: skip
            cells.append(cell)
    plan = Plan(
        name="plain", metric="spearman", baseline="before", seeds=tuple(range(5)), folds=1, cells=tuple(cells),
        contenders={"before": {}, "simcse": {}},
        data=(DataSet(name="lines", file="lines.txt", limits=(100,), digest="d", rows=200, kind="plain", test="sts"),),
    )  # fmt: skip
    return Source(plan, tuple(records))


def test_each_set_stands_with_its_change_from_before(plain):
    table = {row[1]: row[2:] for row in rows_of(by_set(plain))}
    assert table["simcse"] == ["67.00+7.00", "47.00+7.00", "57.00+7.00"]
    assert table["before"] == ["60.000.00", "40.000.00", "50.000.00"]


def test_the_geometry_has_the_effective_rank(plain):
    table = {row[1]: row[2:] for row in rows_of(geometry(plain))}
    assert table["simcse"] == ["0.300", "0.200", "−1.000", "−2.000", "0.500", "0.430", "9.000", "20.000"]


def test_cosines_are_shares_of_all_pairs_of_all_runs(plain):
    """The tallest bar of positive pairs is 75 %; an untrained encoder is shown once, not before and after."""
    body = cosines(plain).code
    assert re.findall(r"<figcaption><b>([^<]*)</b>", body) == ["Not trained: before", "After training: simcse"]
    assert body.count('aria-label="cosines of 20 positive and 40 random pairs"') == 2
    tops = [float(y) for y in re.findall(r"L[\d.]+ ([\d.]+)", body)]
    bottom, top = 220 - 46, 32
    assert min(tops) == pytest.approx(bottom + (top - bottom) * 75 / (75 * 1.05), abs=0.01)


def test_layers_are_means_over_the_runs(plain):
    titles = re.findall(r"<title>([^<]*layer [^<]*)</title>", layers(plain).code)
    assert titles[:3] == [f"before, layer {n}: {value:.3f}" for n, value in enumerate((0.9, 0.6, 0.5))]
    mean = np.mean([0.05 + 0.01 * seed for seed in range(5)])
    assert titles[3:] == [f"simcse, layer {n}: {value - mean:.3f}" for n, value in enumerate((0.9, 0.6, 0.5))]
    assert "before training" not in layers(plain).code


def test_where_all_are_trained_the_space_from_before_stands_once(plain):
    """It is the same for all of them."""
    moved = [replace(one, space={"before": space(0.0), "after": space(0.1)}) for one in plain.records]
    trained = replace(plain, records=tuple(moved))
    body = cosines(trained).code
    assert re.findall(r"<figcaption><b>([^<]*)</b>", body) == [
        "Before training", "After training: before", "After training: simcse"
    ]  # fmt: skip
    assert "cosines of 4 positive and 8 random pairs" in body
    titles = re.findall(r"<title>([^<]*layer [^<]*)</title>", layers(trained).code)
    assert titles[:3] == [f"before training, layer {n}: {value:.3f}" for n, value in enumerate((0.9, 0.6, 0.5))]
    assert len(titles) == 9


def test_without_folds_the_page_and_the_table_name_the_paired_test(plain, source):
    assert "paired t-test over the seeds" in t_test(plain)
    page = render_page(plain)
    Reader(page)
    assert "paired t-test over the seeds" in page
    assert "corrected resampled" not in page
    assert "5 seeds × 1 fold" in page
    assert "paired t-test over the seeds" in markdown(plain)
    assert "corrected resampled t-test" in t_test(source)


def test_what_no_trial_measured_is_said_with_the_reason(plain):
    bare = replace(plain, records=tuple(replace(one, space={}, geometry={}, scores={"spearman": 0.5})
                                        for one in plain.records))  # fmt: skip
    for make in (by_set, cosines, layers, geometry):
        assert isinstance(make(bare), Missing)
    uneven = replace(plain, records=tuple(
        replace(one, space={"after": {**space(0.0), "layers": [0.1] * (1 + one.seed), "histogram": space(0)["histogram"]}})
        for one in plain.records))  # fmt: skip
    assert isinstance(layers(uneven), Missing), "layers of several depths have no mean"
    assert isinstance(cosines(uneven), Markup)
    nothing = {"edges": EDGES, "positive": [0] * 4, "random": [0] * 4}
    alone = replace(plain, records=tuple(
        replace(one, space={"after": {"histogram": nothing, "layers": [None]}}) for one in plain.records))  # fmt: skip
    Reader(render_page(alone))
    for make in (cosines, layers):
        assert "It takes at least two texts" in make(alone).reason, "no axes without anything on them"


def test_random_pairs_alone_are_told_to_be_alone(plain):
    """Plain texts say of no two that they are a positive pair."""
    assert "random pairs only" not in cosines(plain).code
    lone = {"histogram": {"edges": EDGES, "positive": [0] * 4, "random": [0, 4, 2, 2]}, "layers": [0.5, 0.4]}
    body = cosines(replace(plain, records=tuple(replace(one, space={"after": lone}) for one in plain.records))).code
    assert "Which pairs are positive is not known here, so there are random pairs only." in body
    assert 'aria-label="cosines of 0 positive and 40 random pairs"' in body


def test_a_folder_is_an_encoder_by_its_card(tmp_path):
    assert not embeds(tmp_path)
    for card, expected in (
        ('{"labels": null, "task": {"kind": "plain"}}', True),
        ('{"labels": null, "task": {"kind": "scores"}}', True),
        ('{"labels": ["a", "b"], "task": {"kind": "classes"}}', False),
        ('{"labels": null, "task": {"kind": "tasks"}}', False),
        ('{"labels": null, "joined": true, "task": {"kind": "pairs"}}', False),
    ):
        (tmp_path / "nearfar.json").write_text(card)
        assert embeds(tmp_path) == expected
