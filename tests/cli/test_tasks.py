"""Models of several tasks on the command line: what is printed, what is written, what is refused."""

from __future__ import annotations

import io
import json
import os
from pathlib import Path

import numpy as np
import pytest
from tests.cli.test_commands import call
from tests.training.task_runs import write_all

RECIPE = """
[encoder]
name = "toy"
max_length = 24
pooling = "pooler"
[batches]
size = 8
[training]
epochs = 1
[[task]]
name = "kind"
data = { train = "texts.csv", dev = 0.25 }
[[task]]
name = "same"
data = { train = "labels.jsonl", dev = 0.25 }
[[task]]
name = "close"
data = { train = "scores.jsonl", dev = 0.25 }
head = { kind = "cosine" }
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with data, a recipe and a trained model; tests run in it."""
    folder = write_all(tmp_path_factory.mktemp("cli"))
    (folder / "many.toml").write_text(RECIPE)
    before = Path.cwd()
    os.chdir(folder)
    try:
        code, _, errors = call("train", "many.toml", "--out", "model", "--learning-rate", "1e-3")
    finally:
        os.chdir(before)
    assert code == 0, errors
    assert "kept the weights of step" in errors
    assert "saved to model; try: nearfar predict model --task kind FILE" in errors
    return folder


@pytest.fixture(autouse=True)
def _inside(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)


def test_the_saved_recipe_has_what_the_flags_said():
    assert "learning_rate = 0.001" in Path("model/recipe.toml").read_text()


def test_a_dry_run_prints_the_recipe_and_makes_nothing(folder):
    code, out, _ = call("train", "many.toml", "--out", "nothing", "--dry-run")

    assert code == 0
    assert 'kind = "joint"' in out
    assert 'metric = "spearman"' in out
    assert not (folder / "nothing").exists()


def test_predictions_of_each_task_have_their_own_form():
    code, out, _ = call("predict", "model", "--task", "kind", "texts.csv")
    rows = [json.loads(line) for line in out.splitlines()]
    assert code == 0
    assert len(rows) == 40
    assert list(rows[0]) == ["text", "label", "predicted_label", "probabilities"]
    assert sum(rows[0]["probabilities"].values()) == pytest.approx(1, abs=1e-5)

    code, out, _ = call("predict", "model", "labels.jsonl", "--task", "same", "--out", "same.jsonl")
    assert (code, out) == (0, "")
    first = json.loads(Path("same.jsonl").read_text().splitlines()[0])
    assert list(first) == ["text_a", "text_b", "label", "predicted_label", "probabilities"]

    code, out, _ = call("predict", "model", "scores.jsonl", "--task", "close")
    assert list(json.loads(out.splitlines()[0])) == ["text_a", "text_b", "score", "predicted_score"]


def test_all_tasks_are_measured_with_their_mean():
    code, out, _ = call("evaluate", "model", "--json")
    found = json.loads(out)["dev"]
    stored = json.loads(Path("model/metrics.json").read_text())["dev"]

    assert code == 0
    assert found["mean"] == pytest.approx(stored["mean"], abs=1e-6)
    own = [found["kind"]["f1_weighted"], found["same"]["f1_weighted"], found["close"]["spearman"]]
    assert found["mean"] == pytest.approx(sum(own) / 3)
    code, out, _ = call("evaluate", "model")
    assert all(word in out for word in ("kind", "same", "close", "mean", f"{found['mean']:.4f}"))


def test_one_task_is_measured_on_a_file_and_its_mistakes_are_shown():
    code, out, _ = call("evaluate", "model", "--task", "same", "labels.jsonl", "--mistakes", "2", "--json")
    found = json.loads(out)

    assert code == 0
    wrong = round((1 - found["accuracy"]) * 24)
    assert len(found["mistakes"]) == min(2, wrong)
    assert all(one["said"] != one["truth"] for one in found["mistakes"])
    assert (
        "most confident mistakes" in call("evaluate", "model", "--task", "same", "labels.jsonl", "--mistakes", "2")[1]
    )


def test_the_mean_is_that_of_all_tasks_or_of_none():
    code, out, _ = call("evaluate", "model", "--task", "close", "--json")
    assert code == 0
    assert list(json.loads(out)["dev"]) == ["close"]


def test_texts_with_brackets_are_shown_as_they_are(folder):
    """Nothing in a text or a label is markup of the screen."""
    (folder / "brackets.jsonl").write_text(
        "".join(json.dumps({"text": f"[/b] {row} [red]plum", "label": kind}) + "\n"
                for row, kind in enumerate(("animal", "fruit", "tool")))
    )  # fmt: skip
    code, out, errors = call("evaluate", "model", "--task", "kind", "brackets.jsonl", "--mistakes", "3")
    assert code == 0, errors
    assert "[/b]" in out
    assert "[red]plum" in out
    assert "probability" in out
    _, out, _ = call("evaluate", "model", "--task", "close", "scores.jsonl", "--mistakes", "1")
    assert "largest errors" in out


def test_an_unknown_label_is_told_once(folder):
    rows = [{"text": f"{row}", "label": label} for row, label in enumerate(("tool", "boat", "fruit", "boat", "ship"))]
    (folder / "unseen.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    code, _, errors = call("evaluate", "model", "--task", "kind", "unseen.jsonl")
    assert code == 1
    assert errors.count("does not know this label") == 2
    assert (
        "unseen.jsonl:2: task 'kind' does not know this label, in 2 rows (got 'boat'). It knows: animal, fruit"
        in errors
    )


def test_labels_with_brackets_are_shown_in_tables():
    from rich.console import Console

    from nearfar.cli.tables import report_table
    from nearfar.evaluation import class_report

    shown_on = io.StringIO()
    console = Console(file=shown_on, width=120)
    console.print(report_table(class_report(np.array([0, 1]), np.array([0, 1]), ("[/a]", "[red]")), "two"))
    shown = shown_on.getvalue()
    assert shown.count("[/a]") == shown.count("[red]") == 3  # in the scores, and in rows and columns of the confusion


def test_another_threshold_counts_for_a_task_under_a_cosine(folder):
    from nearfar.cli.evaluate import _with_threshold
    from nearfar.encoding.task_model import TaskCard

    card = TaskCard("same", "pairs", {"kind": "cosine"}, "accuracy", ("0", "1"), threshold=0.3, accuracy_threshold=0.4)
    assert _with_threshold(card, None) is card
    assert _with_threshold(card, 0.9).cut == 0.9


def test_a_classifier_is_exported(folder):
    code, _, errors = call("export", "model", "--task", "kind", "--out", "classifier")

    assert code == 0, errors
    assert json.loads((folder / "classifier" / "config.json").read_text())["id2label"]["0"] == "animal"
    code, _, errors = call("export", "model", "--task", "kind", "--out", "classifier")
    assert code == 1
    assert "the folder is not empty" in errors


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["predict", "model", "texts.csv"], "this model has several tasks; name one with --task: kind, same, close."),
        (["predict", "model", "--task", "knd", "texts.csv"], "there is no task 'knd'"),
        (
            ["predict", "model", "--task", "same", "texts.csv"],
            "task 'same' reads pairs of texts, and the file has single",
        ),
        (["predict", "toy", "--task", "same", "texts.csv"], "this model has no tasks"),
        (["evaluate", "model", "--mistakes", "2"], "give --task and FILE"),
        (["evaluate", "model", "--task", "close", "labels.jsonl"], "is measured by scores, and the file has no score"),
        (["evaluate", "toy", "labels.jsonl", "--mistakes", "2"], "--mistakes shows those of a task"),
        (["export", "model", "--task", "same", "--out", "no"], "only tasks of single texts are exported"),
        (["train", "many.toml", "--out", "model"], "the folder is not empty"),
        (
            ["train", "many.toml", "--out", "new", "--objective", "supcon"],
            "--objective supcon: a recipe of several tasks has no table [objective] for all of them. Write it in a "
            "[[task]]; for the first one: --set task.0.objective.name=VALUE.",
        ),
        (["evaluate", "model", "--task", "kind", "texts.csv", "--threshold", "0.5"], "has the head 'linear'; leave it"),
        (["evaluate", "model", "--task", "kind", "--suite", "sts"], "--task evaluates a head, and --suite"),
        (
            ["export", "model", "--task", "kind", "--out", "model", "--overwrite"],
            "holds a model of nearfar, which would",
        ),
        (["evaluate", "model", "--threshold", "0.5"], "--threshold is for one task on a file"),
    ],
)
def test_what_does_not_fit_is_refused_in_one_message(arguments, message):
    code, _, errors = call(*arguments)

    assert code == 1
    assert message in errors
    assert "Traceback" not in errors


def test_a_finished_run_has_nothing_to_resume():
    code, _, errors = call("train", "--out", "model", "--resume")

    assert code == 0
    assert "this run has finished" in errors
