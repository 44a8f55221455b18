"""The untrained encoder as a candidate: a key decides, and wherever it was kept, everything that shows scores says so."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from nearfar.cli.study_actions import trial_line
from nearfar.experiments.plan import plan_study
from nearfar.experiments.published import PublishedTable, find_paper, find_table
from nearfar.experiments.published.comparison import as_markdown, beside, beyond
from nearfar.experiments.published.table_data import DataFolder, TableOptions
from nearfar.experiments.records import STUDY as PLAN
from nearfar.experiments.records import plan_text, read_records, write_record
from nearfar.experiments.reproduce import prepare
from nearfar.experiments.study import read_study
from nearfar.experiments.trials import perform
from nearfar.pipeline import train
from nearfar.recipe import build_recipe
from nearfar.report.comparison import scores
from nearfar.report.sources import read_source
from nearfar.training import Callback
from tests.experiments.studies import in_process
from tests.pipeline.test_stages import write_opposite
from tests.training.runs import write_pairs

KEPT = "BSC on pairs: the untrained encoder was kept in 1 of 1 trial, being the best on the dev rows."
STUDY = """
[study]
name = "small"
seeds = [2]
[recipe]
encoder = {{ name = "toy" }}
data = {{ dev = "{dev}" }}
training = {{ epochs = 2, learning_rate = 3e-3, precision = "fp32" }}
[[data]]
name = "pairs"
file = "{train}"
test = "{dev}"
[[contender]]
name = "MSE"
objective = {{ name = "cosine-mse" }}
training = {{ keep_untrained = false }}
[[contender]]
name = "BSC"
objective = {{ name = "batch-softmax" }}
"""


class Listener(Callback):
    """Collects messages."""

    def __init__(self, messages: list[str]) -> None:
        self.messages = messages

    def message(self, text: str) -> None:
        self.messages.append(text)


def recipe_of(folder: Path, **training: Any) -> Any:
    data = {"train": str(write_pairs(folder / "p.jsonl")), "dev": str(write_opposite(folder / "d.jsonl"))}
    settings = {"epochs": 2, "learning_rate": 3e-3, "precision": "fp32", **training}
    objective = {"name": "batch-softmax"}
    values = {"data": data, "encoder": {"name": "toy"}, "objective": objective, "training": settings}
    return build_recipe(values, [], where="test")


@pytest.mark.parametrize(
    ("training", "kept"),
    [({}, 0), ({"keep_untrained": True}, 0), ({"keep_untrained": False}, 1), ({"keep": "last"}, 2)],
)
def test_a_key_decides_whether_step_0_may_win(tmp_path, training, kept):
    """Dev scores that training lowers: the untrained encoder is the best, then the first epoch."""
    messages: list[str] = []
    summary = train(recipe_of(tmp_path, **training), tmp_path / "m", callbacks=(Listener(messages),))
    metrics = json.loads((tmp_path / "m" / "metrics.json").read_text(encoding="utf-8"))["training"]
    start, first, second = [entry["scores"]["spearman"] for entry in metrics["evaluations"]]
    readme = (tmp_path / "m" / "README.md").read_text(encoding="utf-8")

    assert start > first > second, "training is to lower the dev score"
    assert (metrics["kept_step"], metrics["untrained"]) == (kept, kept == 0)
    assert summary.untrained == (kept == 0)
    assert summary.report("dev").scores["spearman"] == pytest.approx([start, first, second][kept], abs=1e-6)
    assert ("those of the untrained encoder" in readme) == (kept == 0)
    assert ("so the pretrained encoder is kept" in " ".join(messages)) == (kept == 0)
    assert ("the trained weights are kept all the same" in " ".join(messages)) == (kept == 1)


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a finished study of two trials, one of which has kept the untrained encoder."""
    folder = tmp_path_factory.mktemp("study")
    text = STUDY.format(train=write_pairs(folder / "p.jsonl"), dev=write_opposite(folder / "d.jsonl"))
    (folder / "study.toml").write_text(text, encoding="utf-8")
    planned = plan_study(read_study(folder / "study.toml"))
    for trial in planned.trials.values():
        (folder / trial.id).mkdir()
        record, files = perform(trial, folder / trial.id)
        assert record.reason is None
        write_record(folder / "out", record, files)
    (folder / "out" / PLAN).write_text(plan_text(planned.plan), encoding="utf-8")
    return folder / "out"


def test_records_lines_and_pages_say_where_it_was_kept(study):
    """The table of a study, the line of a trial, and the report page; nothing of contenders that were trained."""
    records = {record.contender: record for record in read_records(study)}
    status, out, _ = in_process("study", "show", study)
    page = str(scores(read_source(study)))

    assert {name: record.untrained for name, record in records.items()} == {"MSE": False, "BSC": True}
    assert trial_line(records["BSC"]).endswith("; the untrained encoder was kept")
    assert "untrained" not in trial_line(records["MSE"])
    assert status == 0
    assert KEPT in out
    assert KEPT in page
    assert "MSE on pairs: the untrained" not in out + page


def test_published_pages_say_where_it_was_kept(study):
    """Below the table of published.md and of the command."""
    paper = find_paper("batch-softmax")
    table = PublishedTable(
        number="5",
        title="pairs",
        encoder="toy",
        baseline="MSE",
        scale=100,
        studies=(),
        published={"spearman": {"pairs": {"MSE": 84.8, "BSC": 83.26}}},
    )
    more = beyond(table, [study])

    assert more == [KEPT]
    assert f"- {KEPT}" in as_markdown(paper, table, beside(table, [study]), [], more)


def test_the_page_of_a_single_run_says_so(tmp_path):
    """A model that was trained in vain does not look like one that was trained."""
    train(recipe_of(tmp_path), tmp_path / "m")

    assert "The untrained encoder was kept" in str(scores(read_source(tmp_path / "m")))


def test_in_published_tables_it_may_not_win(tmp_path):
    """Papers choose among the epochs of a training; every study file that is written says so."""
    paper = find_paper("batch-softmax")
    for name in ("train", "dev", "test"):
        (tmp_path / "data" / "stsb").mkdir(parents=True, exist_ok=True)
        write_pairs(tmp_path / "data" / "stsb" / f"{name}.jsonl", 24)
    data = DataFolder(paper, find_table(paper, "5"), tmp_path / "data")
    prepared = prepare(data, tmp_path / "out", TableOptions(encoder="toy", limit=20))
    trials = plan_study(read_study(prepared.studies[0].file)).trials.values()

    assert {trial.contender for trial in trials} >= {"MSE", "BSC", "BSC, then MSE"}
    assert all(trial.values["training"]["keep_untrained"] is False for trial in trials)
