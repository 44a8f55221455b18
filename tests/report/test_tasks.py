"""The report of a real run on several tasks: scores, curves and conflicts of each, and one task on a file."""

from __future__ import annotations

import io
import json
import re

import pytest
from rich.console import Console

from nearfar.assembly.multitask import run_tasks
from nearfar.data import read
from nearfar.errors import SettingError
from nearfar.report import read_source, render_page
from nearfar.report.probing import probe
from tests.report.test_page import Reader
from tests.training.task_runs import task_recipe, write_all


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A folder with the data and a model of three tasks, trained with gradient surgery."""
    folder = write_all(tmp_path_factory.mktemp("tasks"))
    recipe = task_recipe(folder, training={"surgery": "pcgrad"})
    run_tasks(recipe, folder / "model", console=Console(file=io.StringIO()))
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
    for pair, own in metrics["surgery"].items():
        assert f"{pair}{own['steps']}{own['conflicts']}{100 * own['conflicts'] / own['steps']:.1f}" in text


def test_a_task_is_shown_on_a_file_and_has_to_be_named(run, tmp_path):
    source = read_source(run / "model")
    rows = read(str(run / "texts.csv"))
    with pytest.raises(SettingError, match="several tasks; name one with --task: kind, same, close"):
        probe(source, rows, tmp_path)
    probed, notes = probe(source, rows, tmp_path, task="kind")
    read_page = Reader(render_page(probed))
    assert notes == []
    assert "40 predictions wrong" in read_page.texts["confusion"]
    assert "texts.csv" in read_page.texts["map"]


def test_a_task_of_pairs_has_mistakes_but_no_map(run, tmp_path):
    probed, notes = probe(read_source(run / "model"), read(str(run / "labels.jsonl")), tmp_path, task="same")
    read_page = Reader(render_page(probed))
    assert notes == ["no map: the task compares two texts, and a pair has no vector of its own"]
    assert " ⟷ " in read_page.texts["mistakes"]


def test_a_task_of_scores_has_no_classes_to_show(run, tmp_path):
    with pytest.raises(SettingError, match="task 'close' predicts a score"):
        probe(read_source(run / "model"), read(str(run / "texts.csv")), tmp_path, task="close")
