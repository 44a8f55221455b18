"""Texts with a score each, from a recipe to a model: training, resume, units, prediction, refusals."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from sklearn.linear_model import RidgeCV
from sklearn.metrics import mean_absolute_error
from tests.pipeline.test_all_objectives import recipe_of, resumed_after
from tests.training.runs import digest
from typer.testing import CliRunner

from nearfar.cli.app import app
from nearfar.data import RowType, read_memory, row_type_of
from nearfar.encoding import RidgeHead, ScoreHead, build, tokenize
from nearfar.encoding.heads import make_head
from nearfar.encoding.model import load
from nearfar.errors import DataError, SettingError
from nearfar.evaluation import embed_table, score_report
from nearfar.pipeline import train as train_recipe
from nearfar.pipeline.encoder_run import plan_encoder_run
from nearfar.pipeline.heads import PENALTIES, TrainingRows, fit_head
from nearfar.pipeline.train import plan_recipe
from nearfar.training.loss_module import ScoreError

WORTH = {"good": 300, "great": 500, "bad": -300, "awful": -500, "fine": 100}


def rows(n=40, *, factor=1.0):
    """Texts whose score is the sum of their words, in the thousands."""
    words = list(WORTH)
    made = []
    for row in range(n):
        chosen = words[row % 5], words[row * 7 % 5 - 1]
        made.append(
            {
                "text": f"the {chosen[0]} {chosen[1]} thing {row}",
                "score": factor * (2_000 + sum(WORTH[w] for w in chosen)),
            }
        )
    return made


def recipe(folder, head="auto", objective="auto", **data):
    return recipe_of(folder / "texts.jsonl", {"name": objective}, data={"dev": 0, **data}, head={"kind": head})


@pytest.mark.parametrize("head", ["trained", "ridge"])
def test_it_trains_predicts_and_resumes_to_the_same_bits(head, tmp_path):
    (tmp_path / "texts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows()))
    chosen = recipe(tmp_path, head, "score-mse", test=0.25)
    summary = train_recipe(chosen, tmp_path / "whole")
    resumed_after(2, chosen, tmp_path)
    train_recipe(chosen, tmp_path / "memory", data=rows())

    assert digest(tmp_path / "memory") == digest(tmp_path / "whole")
    report = summary.report("test")
    assert set(report.scores) == {"spearman", "pearson", "mae", "mse"}
    model = load(tmp_path / "whole")
    assert isinstance(model.model.head, ScoreHead if head == "trained" else RidgeHead)
    texts = [row["text"] for row in rows()]
    found = model.predict(texts)
    assert all(one.label is None and not one.probabilities for one in found)
    assert 1_000 < np.mean([one.score for one in found]) < 3_000  # the user's units
    assert [one.score for one in found] == pytest.approx(model.scores(texts).tolist())
    with pytest.raises(SettingError, match="no class head"):
        model.probabilities(texts)


def test_the_unit_of_the_scores_changes_nothing_but_the_unit(tmp_path):
    """A thousand times larger scores give a thousand times larger predictions."""
    texts = [row["text"] for row in rows()]
    for name, factor in (("small", 1.0), ("large", 1_000.0)):
        train_recipe(recipe(tmp_path, "trained", "score-mse"), tmp_path / name, data=rows(factor=factor))
    small, large = (load(tmp_path / name).scores(texts) for name in ("small", "large"))
    np.testing.assert_allclose(large, 1_000 * small, rtol=1e-3)


def test_few_texts_fit_a_ridge_head_and_many_train_a_linear_one(tmp_path):
    few = plan_encoder_run(recipe(tmp_path), rows())
    assert (few.recipe.objective.name, few.recipe.head.kind, few.data.row_type) == (
        "score-mse", "ridge", RowType.SCORED_TEXTS,
    )  # fmt: skip
    many = plan_encoder_run(recipe(tmp_path), rows(2_001))
    assert many.recipe.head.kind == "trained"
    assert many.recipe.training.metric == "spearman"


def test_a_ridge_head_is_scikit_learns():
    built = build("toy", classes=None, seed=1, pooling="mean")
    texts, scores = [row["text"] for row in rows(24)], np.array([row["score"] for row in rows(24)])
    table = tokenize(built.tokenizer, [texts], max_length=16)
    made = fit_head("ridge", built.model, TrainingRows(table, np.zeros(24, dtype=np.int64), (), scores=scores))
    vectors = embed_table(built.model, table, batch_size=8)
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    wanted = RidgeCV(alphas=PENALTIES).fit(unit.astype(np.float64), scores).predict(unit)
    found = made(torch.from_numpy(vectors))[:, 0].numpy()
    np.testing.assert_allclose(found, wanted, rtol=1e-4)
    again = make_head(made.describe(), vectors.shape[1], 1)
    again.load_state_dict(made.state_dict())
    assert torch.equal(again(torch.from_numpy(vectors))[:, 0], torch.from_numpy(found))


def test_the_loss_is_the_squared_error_in_deviations():
    outputs = torch.tensor([[1.0], [4.0], [2.0]], dtype=torch.float64, requires_grad=True)
    targets = torch.tensor([3.0, 4.0, 1.0])
    wanted = sum(((o - y) / 2.5) ** 2 for o, y in zip([1, 4, 2], [3, 4, 1], strict=True)) / 3
    assert ScoreError(unit=2.5)(outputs, targets).item() == pytest.approx(wanted)
    assert torch.autograd.gradcheck(lambda x: ScoreError(unit=2.5)(x, targets), (outputs,))


def test_the_mean_absolute_error_is_scikit_learns():
    truth, predicted = np.array([1.0, 2.0, 5.0]), np.array([1.5, 2.5, 3.0])
    assert score_report(truth, predicted, absolute=True).scores["mae"] == mean_absolute_error(truth, predicted)
    assert "mae" not in score_report(truth, predicted).scores


def test_what_does_not_fit_is_refused_with_a_remedy(tmp_path):
    labeled = [("a", "x"), ("b", "y")]
    with pytest.raises(
        DataError, match=r"predicts the score of a text, and the file has single texts with labels.*--score"
    ):
        plan_recipe(recipe(tmp_path, objective="score-mse"), labeled)
    with pytest.raises(DataError, match=r"needs classes, and the file has scores.*leave --objective out"):
        plan_recipe(recipe(tmp_path, objective="cross-entropy"), rows())
    with pytest.raises(DataError, match="all rows have the same score"):
        plan_recipe(recipe(tmp_path), [{"text": "a", "score": 1}, {"text": "b", "score": 1.0}])
    with pytest.raises(SettingError, match='"logistic", which predicts classes, and these texts have scores'):
        plan_recipe(recipe(tmp_path, "logistic"), rows())
    with pytest.raises(SettingError, match='"ridge", which predicts scores, and these rows have classes'):
        plan_recipe(recipe(tmp_path, "ridge"), labeled)
    pairs = read_memory([{"text_a": "a", "text_b": "b", "score": 1.0}])
    assert row_type_of(pairs, pairwise=None) is RowType.SCORED_PAIRS


def test_the_commands_lead_from_a_file_of_scores_to_predictions(tmp_path):
    """A file with the columns text and score needs no flag; another name needs --score."""
    file, out = tmp_path / "texts.csv", str(tmp_path / "model")
    file.write_text("text,rating\n" + "".join(f"{row['text']},{row['score'] + 0.5}\n" for row in rows()))
    run = CliRunner().invoke
    settings = ["--score", "rating", "--encoder", "toy", "--epochs", "1", "--out", out, "--dev", "0.25"]
    trained = run(app, ["train", str(file), *settings], catch_exceptions=False)
    assert trained.exit_code == 0, trained.output
    scores = json.loads(run(app, ["evaluate", out, str(file), "--json"], catch_exceptions=False).stdout)
    assert {"spearman", "pearson", "mae", "mse"} <= set(scores)
    predicted = run(app, ["predict", out, str(file)], catch_exceptions=False)
    lines = [json.loads(line) for line in predicted.stdout.splitlines() if line.startswith("{")]
    assert all(0 < line["score"] < 4_000 for line in lines), lines
    assert len(lines) == 40
    assert "score" in (tmp_path / "model" / "README.md").read_text()
