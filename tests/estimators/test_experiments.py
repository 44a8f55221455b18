"""compare and tune from Python: what the commands do, on rows in memory."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import nearfar
from nearfar import Classifier
from nearfar.errors import DataError, RecipeError, SettingError
from nearfar.estimators import Chart, Comparison, Encoder

pytestmark = pytest.mark.usefixtures("preloaded_workers")

TEXTS = [f"{thing} number {n}" for n in range(6) for thing in ("apple", "hammer")]
CLASSES = ["fruit", "tool"] * 6
FRAME = pd.DataFrame({"text": TEXTS, "label": CLASSES})
QUICK = {"training.max_steps": 1, "training.precision": "fp32"}


@pytest.fixture(scope="module")
def table(preloaded_workers) -> Comparison:
    ways = {
        "ce <b>": {"objective": "cross-entropy"},
        "supcon": Classifier(objective="supcon", max_steps=2),
        "tables": {"objective": {"name": "supcon"}, "training": {"max_steps": 2}},
        "named": "triplet",
    }
    return nearfar.compare(ways, FRAME, seeds=2, folds=2, encoder="toy", settings=QUICK)


def test_a_comparison_is_a_frame_with_statistics(table):
    frame = table.to_frame()
    assert frame["contender"].tolist() == ["ce <b>", "supcon", "tables", "named"]
    assert frame["runs"].tolist() == [4] * 4
    assert table["mean"].between(0, 1).all()
    assert table.columns.tolist() == frame.columns.tolist()
    assert len(table) == 4
    assert table.loc[0, "baseline"] == "ce <b>"
    scores = frame.set_index("contender")["mean"]
    assert scores["supcon"] == scores["tables"]  # the same settings in two forms
    assert "supcon" in repr(table)


def test_a_comparison_becomes_latex_markdown_a_chart_and_a_page(table, tmp_path):
    assert r"\begin{tabular}" in table.to_latex()
    assert table.to_markdown().startswith("# comparison")
    chart = table.plot()
    assert isinstance(chart, Chart)
    assert chart._repr_svg_().count("<circle") == 4
    assert "<b>" not in chart.svg
    chart.save(tmp_path / "chart.svg")
    assert "<b>" not in table._repr_html_()
    assert "Differences to the baseline" in table.report().html
    assert len(table.verdicts) >= 3
    table.save(tmp_path / "study")
    assert (tmp_path / "study" / "study.json").is_file()


def test_several_data_sets_and_files(tmp_path):
    FRAME.to_csv(tmp_path / "rows.csv", index=False)
    data = {"file": str(tmp_path / "rows.csv"), "frame": FRAME}
    table = nearfar.compare(["supcon", "triplet"], data, seeds=[3], folds=2, encoder="toy", settings=QUICK)
    means = table.to_frame().pivot(index="data", columns="contender", values="mean")
    np.testing.assert_array_equal(means.loc["file"], means.loc["frame"])
    assert table.plot().svg.count("<circle") == 4


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (({}, FRAME), SettingError, "no contenders"),
        ((["supcon"], FRAME, None, {"baseline": "ce"}), SettingError, "'ce' is no contender"),
        ((["supcon"], FRAME, None, {"folds": 1}), SettingError, "folds must be 2 or more"),
        ((["supconn"], FRAME), RecipeError, "supcon"),
        (({"a": 7}, FRAME), SettingError, "a contender is a dictionary"),
        (
            ([nearfar.Classifier("toy", label_names={"fruit": "a fruit"})], FRAME),
            SettingError,
            "contenders of a comparison are trained without class names; leave label_names out",
        ),
        ((["supcon"], {"text": TEXTS, "label": [*CLASSES[:-1], None]}), DataError, "memory:data, row 12, column 'label'"),
        ((["supcon"], [None, "b"], ["x", "y"]), DataError, "memory:data, row 1"),
    ],
)  # fmt: skip
def test_compare_refuses(arguments, error, message):
    contenders, data, *rest = arguments
    labels, more = (*rest, None, None)[:2]
    with pytest.raises(error, match=message):
        nearfar.compare(contenders, data, labels, encoder="toy", **(more or {}))


def test_tune_returns_the_best_model(tmp_path):
    numbers = [int(label == "tool") for label in CLASSES]
    best = nearfar.tune(TEXTS, numbers, minutes=0.02, encoder="toy", folds=2, settings=QUICK, out=tmp_path / "tuned")
    assert isinstance(best, Classifier)
    assert best.classes_.tolist() == [0, 1]
    frame = best.tuned_.to_frame()
    assert best.tuned_.winner in frame["contender"].tolist()
    assert (tmp_path / "tuned" / "model" / "nearfar.json").is_file()
    assert best.predict(TEXTS).shape == (12,)


def test_tune_on_scored_pairs_gives_an_encoder():
    pairs = [(f"the {thing}", f"a {thing} of {n}", float(n)) for n in range(5) for thing in ("apple", "saw", "horse")]
    best = nearfar.tune(pairs, minutes=0.001, encoder="toy", folds=2, settings=QUICK)
    assert isinstance(best, Encoder)
    assert best.encode(["the apple"]).shape == (1, 64)


def test_tune_refuses_bad_rows():
    with pytest.raises(DataError, match="memory:train, row 2, column 'text'"):
        nearfar.tune(["a", None, "c", "d"], ["x", "y", "x", "y"], encoder="toy")
