"""Texts with several labels, from a recipe to a model: training, thresholds, resume, prediction, other libraries."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from tests.pipeline.test_all_objectives import recipe_of, resumed_after
from tests.training.runs import digest
from typer.testing import CliRunner

from nearfar.cli.app import app
from nearfar.encoding import build, tokenize
from nearfar.encoding.model import load
from nearfar.errors import DataError, SettingError
from nearfar.evaluation import embed_table
from nearfar.pipeline import train as train_recipe
from nearfar.pipeline.encoder_run import plan_encoder_run
from nearfar.pipeline.heads import STRENGTH, TrainingRows, fit_head
from nearfar.pipeline.loaders import rarest_label
from nearfar.pipeline.train import plan_recipe

WORDS = {"animal": "horse otter cat dog", "fruit": "apple pear plum fig", "tool": "hammer saw axe drill"}
NAMES = tuple(WORDS)
OBJECTIVES = ["cross-entropy", "supcon", "cross-entropy+supcon"]


def rows(n=36):
    """Texts with none to three labels."""
    made = []
    for row in range(n):
        labels = [name for place, name in enumerate(NAMES) if (row + 1) >> place & 1]
        words = [WORDS[name].split()[row % 4] for name in labels]
        made.append((" ".join([*words, f"thing {row}"]), labels))
    return made


def written(path, data):
    path.write_text("".join(json.dumps({"text": text, "label": labels}) + "\n" for text, labels in data))
    return path


@pytest.mark.parametrize("name", OBJECTIVES)
def test_it_trains_predicts_and_resumes_to_the_same_bits(name, tmp_path):
    """From files and from memory alike; without dev rows thresholds are cross-validated, or a half for a trained head."""
    file = written(tmp_path / "texts.jsonl", rows())
    recipe = recipe_of(file, {"name": name}, data={"dev": 0, "test": 0.25}, head={"kind": "auto"})
    summary = train_recipe(recipe, tmp_path / "whole")
    resumed_after(2, recipe, tmp_path)
    train_recipe(recipe, tmp_path / "memory", data=rows())

    assert digest(tmp_path / "memory") == digest(tmp_path / "whole")
    assert set(summary.report("test").scores) == {"f1_micro", "f1_macro", "f1_samples", "lrap", "accuracy"}
    model = load(tmp_path / "whole")
    assert model.labels == NAMES
    thresholds = model.card.task["thresholds"]
    assert len(set(thresholds.values())) == 1
    assert (thresholds["tool"] == 0.5) == (name != "supcon")
    assert summary.report("test").thresholds == thresholds
    texts = [text for text, _ in rows()]
    chances = model.probabilities(texts)
    for prediction, row in zip(model.predict(texts), chances, strict=True):
        assert prediction.label is None
        assert set(prediction.labels) == {name for name, p in zip(NAMES, row, strict=True) if p >= thresholds[name]}
        assert list(prediction.probabilities.values()) == pytest.approx(row.tolist())
    assert any(len(each.labels) != 1 for each in model.predict(texts)) or name != "supcon"


def test_dev_rows_choose_weights_and_thresholds(tmp_path):
    recipe = recipe_of(tmp_path / "none", {"name": "supcon"}, data={"dev": 0.25, "test": 0.25})
    summary = train_recipe(recipe, tmp_path / "model", data=rows(48))
    dev, test = summary.report("dev"), summary.report("test")
    assert dev.chosen_here
    assert not test.chosen_here
    assert test.thresholds == dev.thresholds == load(tmp_path / "model").card.task["thresholds"]
    assert summary.metrics == {"": "f1_micro"}


def test_few_texts_choose_supcon_and_a_head_of_one_vs_rest(tmp_path):
    plan = plan_encoder_run(recipe_of(tmp_path / "none", {"name": "auto"}, data={"dev": 0}), rows())
    assert plan.recipe.objective.name == "supcon"
    assert plan.recipe.head.kind == "logistic"
    assert plan.data.classes == NAMES


@pytest.mark.parametrize("weight", ["none", "balanced", {"tool": 3.0}])
def test_the_fitted_head_is_scikit_learns_one_vs_rest(weight):
    built = build("toy", classes=None, seed=1, pooling="mean")
    texts = [text for text, _ in rows(24)]
    labels = np.array([[name in names for name in NAMES] for _, names in rows(24)]).astype(np.int64)
    table = tokenize(built.tokenizer, [texts], max_length=16)
    head = fit_head("logistic", built.model, TrainingRows(table, labels, NAMES, weight))
    vectors = embed_table(built.model, table, batch_size=8)
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    found = head(torch.from_numpy(vectors)).sigmoid().numpy()
    for number, name in enumerate(NAMES):
        positives = labels[:, number].sum()
        of_label = (
            (24 - positives) / positives
            if weight == "balanced"
            else 3.0
            if weight != "none" and name == "tool"
            else 1.0
        )
        fitted = LogisticRegression(C=STRENGTH, max_iter=1_000, class_weight={0: 1.0, 1: of_label})
        wanted = fitted.fit(unit, labels[:, number]).predict_proba(unit)[:, 1]
        np.testing.assert_allclose(found[:, number], wanted, atol=1e-4)


def test_a_label_of_all_or_of_no_texts_is_a_constant():
    built = build("toy", classes=None, seed=1, pooling="mean")
    table = tokenize(built.tokenizer, [["one", "two", "three"]], max_length=8)
    labels = np.array([[1, 0, 1], [1, 0, 0], [1, 0, 1]])
    head = fit_head("logistic", built.model, TrainingRows(table, labels, NAMES))
    found = head(torch.from_numpy(embed_table(built.model, table, batch_size=8))).sigmoid()
    assert found[:, 0].min() == 1
    assert found[:, 1].max() == 0
    assert found[:, 2].max() < 1


def test_transformers_opens_the_same_labels(tmp_path):
    """The architecture's own head is saved as multi_label_classification, which pipelines give a sigmoid."""
    from transformers import pipeline

    train_recipe(recipe_of(tmp_path / "none", {"name": "cross-entropy"}, data={"dev": 0}), tmp_path / "m", data=rows())
    config = json.loads((tmp_path / "m" / "config.json").read_text())
    assert config["problem_type"] == "multi_label_classification"
    classify = pipeline("text-classification", str(tmp_path / "m"), top_k=None)
    found = {one["label"]: one["score"] for one in classify(["a horse and a saw"])[0]}
    assert found == pytest.approx(load(tmp_path / "m").predict(["a horse and a saw"])[0].probabilities, abs=1e-5)
    for name in ("nearfar.json", "SHA256SUMS"):
        (tmp_path / "m" / name).unlink()  # as another library would have saved it
    assert load(tmp_path / "m").predict(["a horse and a saw"])[0].probabilities == pytest.approx(found, abs=1e-5)


def test_what_reads_one_class_a_text_is_refused(tmp_path):
    none = tmp_path / "none"
    with pytest.raises(
        SettingError, match="triplet reads one class a text, and these texts have several labels; choose"
    ):
        plan_recipe(recipe_of(none, {"name": "triplet"}, data={"dev": 0}), rows())
    with pytest.raises(SettingError, match='"nearest-center", which predicts one class a text'):
        plan_recipe(recipe_of(none, {"name": "supcon"}, data={"dev": 0}, head={"kind": "nearest-center"}), rows())
    with pytest.raises(DataError, match="two labels at least"):
        plan_recipe(recipe_of(none, {"name": "auto"}, data={"dev": 0}), [("a", ["x"]), ("b", [])])
    with pytest.raises(DataError, match="a label that the training data does not have"):
        plan_recipe(recipe_of(none, {"name": "auto"}), {"train": rows(), "dev": [("a text", ["fish", "tool"])]})


def test_batches_are_balanced_by_the_rarest_label():
    assert rarest_label(np.array([[1, 1, 0], [1, 0, 0], [1, 0, 1], [0, 0, 1], [0, 0, 0]])).tolist() == [1, 0, 2, 2, 3]


def test_the_commands_read_labels_with_a_separator(tmp_path):
    """The model remembers the separator."""
    file, out = tmp_path / "texts.csv", str(tmp_path / "model")
    file.write_text("text,label\n" + "".join(f"{text},{';'.join(labels)}\n" for text, labels in rows()))
    run = CliRunner().invoke
    checked = run(app, ["check", str(file), "--label-separator", ";", "--encoder", "none", "--json"])
    assert json.loads(checked.stdout)["target"] == "labels"
    settings = ["--encoder", "toy", "--epochs", "1", "--label-separator", ";", "--out", out, "--dev", "0.25"]
    trained = run(app, ["train", str(file), *settings], catch_exceptions=False)
    assert trained.exit_code == 0, trained.output
    measured = run(app, ["evaluate", out, str(file), "--json"], catch_exceptions=False)
    scores = json.loads(measured.stdout)
    assert set(scores["thresholds"]) == set(NAMES)
    assert not scores["chosen_here"]
    shown = run(app, ["evaluate", out, str(file)], catch_exceptions=False)
    assert "a label applies from the probability" in shown.stdout
    predicted = run(app, ["predict", out, str(file)], catch_exceptions=False)
    lines = [json.loads(line) for line in predicted.stdout.splitlines() if line.startswith("{")]
    assert len(lines) == 36
    assert all(set(line) == {"text", "label", "labels", "probabilities"} for line in lines)  # label: of the file


@pytest.mark.slow
def test_reports_and_studies_have_its_scores(tmp_path, monkeypatch):
    """The report of a run on other rows, and a study of two objectives."""
    monkeypatch.chdir(tmp_path)
    written(tmp_path / "texts.jsonl", rows())
    train_recipe(recipe_of(tmp_path / "none", {"name": "supcon"}, data={"dev": 0}), tmp_path / "m", data=rows())
    run = CliRunner().invoke
    made = run(app, ["report", "m", "--data", "texts.jsonl", "--out", "page.html"], catch_exceptions=False)
    assert made.exit_code == 0, made.output
    assert "f1_samples" in (tmp_path / "page.html").read_text()
    (tmp_path / "study.toml").write_text(
        '[study]\nname = "s"\nfolds = 2\nseeds = [1]\n[recipe.encoder]\nname = "toy"\n[recipe.training]\nmax_steps = 1\n'
        '[[data]]\nname = "things"\nfile = "texts.jsonl"\n'
        '[[contender]]\nname = "bce"\nobjective.name = "cross-entropy"\n'
        '[[contender]]\nname = "supcon"\nobjective.name = "supcon"\n'
    )
    compared = run(app, ["study", "run", "study.toml", "--out", "st", "--workers", "1"], catch_exceptions=False)
    assert compared.exit_code == 0, compared.output
    found = [json.loads(path.read_text()) for path in (tmp_path / "st").rglob("record.json")]
    assert len(found) == 4, list((tmp_path / "st").rglob("*"))[:20]
    assert all("f1_micro" in one["scores"] for one in found)
