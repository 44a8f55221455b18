"""The report of a real run on several tasks: scores, curves and conflicts of each, and one task on a file."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest

from nearfar.data import read
from nearfar.encoding.task_model import load_tasks
from nearfar.errors import SettingError
from nearfar.pipeline import train
from nearfar.report import read_source, render_page
from nearfar.report.predictions import mistakes
from nearfar.report.single_run import add_dev_mistakes, add_predictions
from nearfar.report.sources import TaskErrors, TaskMistake, conflict_curves
from tests.experiments.studies import in_process
from tests.report.test_page import Reader
from tests.training.task_runs import task_recipe, write_all


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A folder with the data and a model of three tasks, trained with gradient surgery."""
    folder = write_all(tmp_path_factory.mktemp("tasks"))
    lines = [
        json.dumps({"text_a": f"one {word}", "text_b": f"another {other}", "score": float(word < other)})
        for word in ("owl", "fig", "saw") for other in ("elm", "fig", "rake", "wolf")
    ]  # fmt: skip
    (folder / "close-dev.jsonl").write_text("\n".join(lines) + "\n")
    recipe = task_recipe(
        folder, training={"gradient_surgery": "pcgrad"}, close_data={"dev": str(folder / "close-dev.jsonl")}
    )
    train(recipe, folder / "model")
    return folder


def test_every_task_has_its_scores_curves_and_conflicts(run):
    page = render_page(read_source(run / "model"))
    read = Reader(page)
    assert "One run on the tasks kind, same and close, measured on kind, dev rows" in page
    metrics = json.loads((run / "model" / "metrics.json").read_text())
    for task, metric in metrics["metrics"].items():
        assert f"{metrics['dev'][task][metric]:.4f}" in read.texts["scores"]
        assert re.search(rf"<li><svg.*?</svg>{task}</li>", page[page.index('id="curves"') :])
    text = read.texts["conflicts"]
    for pair, counts in metrics["surgery"].items():
        assert f"{pair}{counts['steps']}{counts['conflicts']}{100 * counts['conflicts'] / counts['steps']:.1f}" in text


def test_the_mean_and_the_settings_of_all_tasks_are_told(run):
    """The mean that chose the weights, scores and no counts among them, and what the recipe says without its files."""
    page = render_page(read_source(run / "model"))
    read = Reader(page)
    mean = json.loads((run / "model" / "metrics.json").read_text())["dev"]["mean"]
    assert f"Mean over the tasks: {mean:.4f} on the dev rows, by which the weights were chosen." in read.texts["scores"]
    assert "rows–" not in read.texts["scores"]
    settings = read.texts["settings"]
    assert 'schedule.kind = "sampled"' in settings
    assert 'task.close.head.kind = "joint"' in settings
    assert 'training.gradient_surgery = "pcgrad"' in settings
    assert str(run) not in settings


def section_of(page: str, name: str) -> str:
    start = page.index(f'<section id="{name}">')
    return page[start : page.index("</section>", start)]


def test_conflicts_are_drawn_along_the_steps(run):
    """A line for each two tasks in both pictures, and a mark for each point where there are few."""
    page = section_of(render_page(read_source(run / "model")), "conflicts")
    metrics = json.loads((run / "model" / "metrics.json").read_text())
    pictures = re.findall(r'<svg viewBox="0 0 470 290".*?</svg>', page)
    assert len(pictures) == 2
    for picture in pictures:
        assert len(re.findall(r'<path d="[^"]+" class="line s\d"', picture)) == len(metrics["surgery"]) == 3
    assert "Steps in conflict" in page
    assert "Cosine of the gradients" in page
    for pair in metrics["surgery"]:
        assert f"</svg>{pair}</li>" in page


def test_conflict_curves_are_means_over_stretches_of_the_run():
    """Conflict in every step of the second half: 100 steps become ten points of ten; others' meetings do not count."""
    journal = [
        {"kind": "step", "step": step, "surgery": {
            "a / b": {"steps": 1, "conflicts": int(step > 50), "cosine": -0.5 if step > 50 else 0.1 * (step % 2)},
            "a / c": {"steps": 0, "conflicts": 0, "cosine": None},
        }}
        for step in range(1, 101)
    ]  # fmt: skip
    journal.insert(3, {"kind": "evaluation", "step": 3, "scores": {}})
    shares, cosines = conflict_curves(journal, "a / b")
    assert shares == [(pytest.approx(5.5 + 10 * at), 100.0 * (at >= 5)) for at in range(10)]
    assert [value for _, value in cosines] == pytest.approx([0.05] * 5 + [-0.5] * 5)
    assert conflict_curves(journal, "a / c") == ([], [])
    assert conflict_curves(journal[:3], "a / b")[1] == [(1, 0.1), (2, 0.0), (3, 0.1)]


def test_every_task_has_its_mistakes_on_its_own_dev_rows(run):
    """Without a file: dev rows that are a share are drawn again, those of a file are read; as many as the scores say."""
    source, notes = add_dev_mistakes(read_source(run / "model"))
    metrics = json.loads((run / "model" / "metrics.json").read_text())["dev"]
    errors = {one.task: one for one in source.errors}
    assert notes == []
    assert {task: (one.rows, one.checked, one.total) for task, one in errors.items()} == {
        "kind": ("dev rows", 10, 10), "same": ("dev rows", 6, 6), "close": ("dev rows", 12, 12),
    }  # fmt: skip
    for task in ("kind", "same"):
        assert errors[task].wrong == round((1 - metrics[task]["accuracy"]) * errors[task].checked)
        assert all(row.predicted != row.truth for row in errors[task].worst)
    assert len(errors["close"].worst) == 10
    rows = read(str(run / "close-dev.jsonl"))
    answers = load_tasks(run / "model").predict("close", rows.texts)
    off = [abs(answer.score - score) for answer, score in zip(answers, rows.scores, strict=True)]
    worst = errors["close"].worst[0]
    assert worst.size == pytest.approx(max(off), abs=1e-5)
    assert worst.texts == tuple(column[off.index(max(off))] for column in rows.texts)
    page = render_page(source)
    text = Reader(page).texts["mistakes"]
    for one in errors.values():
        for row in one.worst:
            assert " ⟷ ".join(row.texts) in text
            assert f"{row.size:.3f}" in text
    assert "12 rows evaluated." in text
    assert errors["same"].wrong
    assert f"{errors['same'].wrong} of 6 rows wrong." in text


def test_a_task_without_mistakes_is_told_so(run):
    clean, other = TaskErrors("kind", "dev rows", 10, 10, 0), TaskErrors("same", "dev rows", reason="it is gone.")
    source = replace(read_source(run / "model"), errors=(clean, other))
    section = mistakes(source)
    assert section.reason == "kind, dev rows: none of 10 rows is wrong. same: it is gone."
    row = TaskMistake(3, ("<b>",), "x", "y", 0.75)
    shown = mistakes(replace(source, errors=(clean, TaskErrors("same", "dev rows", 9, 9, 1, (row,), "Probability"))))
    assert "&lt;b&gt;" in shown.code
    assert "none of 10 rows is wrong." in shown.code


def test_many_rows_are_looked_at_in_part(run, monkeypatch):
    monkeypatch.setattr("nearfar.report.single_run.ROWS", 7)
    source, _ = add_dev_mistakes(read_source(run / "model"))
    assert [(one.checked, one.total) for one in source.errors] == [(7, 10), (6, 6), (7, 12)]
    assert "7 of 12 rows evaluated." in Reader(render_page(source)).texts["mistakes"]


def test_dev_rows_that_are_gone_are_told_and_the_others_shown(run):
    file, aside = run / "close-dev.jsonl", run / "away.jsonl"
    file.rename(aside)
    try:
        source, notes = add_dev_mistakes(read_source(run / "model"))
    finally:
        aside.rename(file)
    (note,) = notes
    assert note.startswith("task close: no mistakes are shown: its rows cannot be read: ")
    assert "close-dev.jsonl" in note
    text = Reader(render_page(source)).texts["mistakes"]
    assert "close: its rows cannot be read" in text
    assert "kind, dev rows" in text


def test_a_file_without_its_training_rows_is_enough(run):
    """A dev file is read by itself; a share cannot be drawn from rows that are gone."""
    away = {name: run / f"away-{name}" for name in ("texts.csv", "scores.jsonl")}
    for name, aside in away.items():
        (run / name).rename(aside)
    try:
        source, notes = add_dev_mistakes(read_source(run / "model"))
    finally:
        for name, aside in away.items():
            aside.rename(run / name)
    assert [one.task for one in source.errors if one.reason is None] == ["same", "close"]
    assert len(notes) == 1


def test_a_model_without_dev_rows_says_where_others_can_come_from(run, tmp_path):
    recipe = task_recipe(
        run, training={"epochs": 1, "max_steps": 1}, tasks=("kind",), kind_data={"dev": 0},
    )  # fmt: skip
    train(recipe, tmp_path / "model")
    source, notes = add_dev_mistakes(read_source(tmp_path / "model"))
    assert "its recipe has no dev rows; 'nearfar report MODEL --task NAME --data FILE'" in notes[0]
    assert "no dev rows" in Reader(render_page(source)).texts["mistakes"]


def test_the_command_shows_mistakes_of_all_tasks_or_of_one_on_a_file(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    status, _, errors = in_process("report", run / "model", "--out", "all.html")
    assert status == 0, errors
    text = Reader((tmp_path / "all.html").read_text()).texts["mistakes"]
    assert all(f"{task}, dev rows" in text for task in ("same", "close"))
    status, _, errors = in_process(
        "report", run / "model", "--data", run / "scores.jsonl", "--task", "close", "--out", "one.html"
    )
    assert status == 0, errors
    text = Reader((tmp_path / "one.html").read_text()).texts["mistakes"]
    assert "close, scores.jsonl" in text
    assert "32 rows evaluated." in text
    status, _, errors = in_process("report", run / "model", "--data", run / "texts.csv", "--task", "close")
    assert status == 1
    assert "task 'close' reads pairs of texts" in errors
    assert "Traceback" not in errors


def test_a_task_is_shown_on_a_file_and_has_to_be_named(run, tmp_path):
    source = read_source(run / "model")
    rows = read(str(run / "texts.csv"))
    with pytest.raises(SettingError, match="several tasks; name one with --task: kind, same, close"):
        add_predictions(source, rows, tmp_path)
    probed, notes = add_predictions(source, rows, tmp_path, task="kind")
    read_page = Reader(render_page(probed))
    assert notes == []
    assert "40 predictions wrong" in read_page.texts["confusion"]
    assert "texts.csv" in read_page.texts["map"]


def test_a_task_of_pairs_has_mistakes_but_no_map(run, tmp_path):
    probed, notes = add_predictions(read_source(run / "model"), read(str(run / "labels.jsonl")), tmp_path, task="same")
    read_page = Reader(render_page(probed))
    assert notes == ["no map: the task compares two texts, and a pair has no vector of its own"]
    assert " ⟷ " in read_page.texts["mistakes"]


def test_a_task_of_scores_has_no_classes_to_show(run, tmp_path):
    with pytest.raises(SettingError, match="task 'close' predicts a score"):
        add_predictions(read_source(run / "model"), read(str(run / "texts.csv")), tmp_path, task="close")
