"""The published table of three tasks: its recipes, the data they need, its trials, and ours beside the figures."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
from rich.console import Console

from nearfar.cli.study_actions import Lines, trial_line
from nearfar.errors import DataError, OutputError, SettingError
from nearfar.experiments.local_executor import LocalExecutor
from nearfar.experiments.multitask import TaskTable, plan_table, run_table
from nearfar.experiments.published import find_paper, find_table
from nearfar.experiments.published.comparison import task_conclusion, task_heads, task_lines, task_markdown
from nearfar.experiments.published.table_data import DataFolder, TableOptions
from nearfar.experiments.records import Cell, DataSet, Plan, Record, plan_text, read_records, write_record
from nearfar.experiments.rows import write_rows
from nearfar.experiments.trial import TASKS
from nearfar.experiments.trial_runner import exclusive
from nearfar.experiments.trials import perform
from nearfar.recipe.tasks import read_task_recipe
from tests.experiments.studies import in_process

PAPER = find_paper("multitask")
TABLE = find_table(PAPER, "III")
QUICK = TableOptions(encoder="toy", seeds=(2,), limit=20, epochs=1)


def put(folder: Path, name: str, rows: Sequence[dict[str, Any]]) -> None:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress("".join(json.dumps(row) + "\n" for row in rows).encode()))


def write_data(folder: Path, rows: int = 30) -> Path:
    """Few rows of each task, dev rows beside them, and triplets."""
    for split, start in (("train", 0), ("dev", 1_000)):
        numbers = range(start, start + rows)
        put(folder, f"cs224n_sst/{split}.jsonl.gz",
            [{"text": f"{'good' if n % 3 else 'bad'} film {n}", "label": n % 3} for n in numbers])  # fmt: skip
        put(folder, f"cs224n_quora/{'train_proxy' if split == 'train' else split}.jsonl.gz",
            [{"text_a": f"what is {n}", "text_b": f"is it {n + n % 2}", "label": 1 - n % 2} for n in numbers])  # fmt: skip
        put(folder, f"cs224n_sts/{split}.jsonl.gz",
            [{"text_a": f"a man {n}", "text_b": f"a man {n + n % 5}", "score": float(5 - n % 5)} for n in numbers])  # fmt: skip
    put(folder, "nli_triplets/train.jsonl.gz",
        [{"anchor": f"it is {n}", "positive": f"{n} it is", "negative": f"it is not {n}"} for n in range(rows)])  # fmt: skip
    return folder


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_data(tmp_path_factory.mktemp("data"))


def planned(data: Path, out: Path, options: TableOptions = QUICK) -> TaskTable:
    return plan_table(DataFolder(PAPER, TABLE, data), out, options)


def test_published_means_are_the_means_of_the_published_scores():
    """A digit that was copied wrongly would move a mean."""
    contenders = TABLE.published["mean"]["sst+quora+sts"]
    assert len(contenders) == 7
    for name, mean in contenders.items():
        own = [TABLE.published[task]["sst+quora+sts"][name] for task in ("sst", "quora", "sts")]
        assert fmean(own) == pytest.approx(mean, abs=0.00051), name


def test_recipes_are_those_of_the_paper(data, tmp_path):
    """Table 2 of the paper: epochs, batches, dropout, heads, turns; written as recipes that can be trained."""
    ready = planned(data, tmp_path / "out", TableOptions(limit=20))
    assert set(ready.recipes) == set(TABLE.published["mean"]["sst+quora+sts"])
    recipes = {}
    for name, text in ready.recipes.items():
        (tmp_path / f"{name}.toml").write_text(text)
        recipes[name] = read_task_recipe(tmp_path / f"{name}.toml")
    stated = {  # epochs, batch size, dropout, head of Quora, head of STS, shared layer
        "sequential": (3, 32, 0.5, "joint", "joint", False),
        "round-robin": (3, 32, 0.5, "joint", "joint", False),
        "sampled": (5, 64, 0.5, "joint", "joint", True),
        "sampled-difference": (5, 64, 0.5, "joint-difference", "joint", True),
        "sampled-activated-surgery": (5, 8, 0.1, *["joint-difference-activated"] * 2, True),
        "sampled-activated": (5, 64, 0.1, *["joint-difference-activated"] * 2, True),
        "sampled-activated-simcse": (5, 64, 0.1, *["joint-difference-activated"] * 2, True),
    }
    for name, recipe in recipes.items():
        sst, quora, sts = recipe.task
        assert [task.name for task in recipe.task] == ["sst", "quora", "sts"]
        assert (recipe.training.epochs, recipe.batches.size, quora.head.dropout, quora.head.kind, sts.head.kind,
                recipe.shared_layer) == stated[name]  # fmt: skip
        assert (sst.head.kind, sst.head.dropout) == ("linear", quora.head.dropout)
        assert not quora.head.symmetric
        assert (recipe.training.learning_rate, recipe.training.head_learning_rate) == (1e-5, 1e-5)
        assert (recipe.training.gradient_surgery == "pcgrad") == ("surgery" in name)
        assert bool(recipe.stage) == ("simcse" in name)
        assert recipe.schedule.weights == ({"quora": 2} if "activated" in name else {})
        assert all(task.data.limit == 20 for task in recipe.task)
    assert recipes["sequential"].schedule.order == ("quora", "sst", "sts")
    assert recipes["round-robin"].schedule.order == ("sst", "sts", "sst", "sts", "quora")
    assert (recipes["sampled-activated-simcse"].stage[0].epochs, recipes["sampled"].schedule.sampling) == (3, "weights")


def test_settings_and_options_lie_over_the_contenders(data, tmp_path):
    options = replace(QUICK, settings="trained", seeds=(3, 4))
    ready = planned(data, tmp_path, options)
    assert len(ready.planned.trials) == 14
    for trial in ready.planned.trials.values():
        own = trial.values
        assert (own["training"]["learning_rate"], own["training"]["epochs"], own["batches"]["size"]) == (5e-5, 1, 32)
        assert own["encoder"] == {"max_length": 128, "name": "toy"}
        assert all(task["head"]["dropout"] == 0.1 for task in own["task"])
        assert all(stage["epochs"] == 1 for stage in own.get("stage", ()))
    told = options.differences(TABLE, "minilm")
    assert told[:3] == [
        "the encoder is toy; the paper's is bert-base-uncased",
        "the settings are not the paper's but those called trained",
        "other than in the study file: --seeds 3,4, --limit 20, --epochs 1",
    ]
    with pytest.raises(SettingError, match="no settings 'traind'"):
        planned(data, tmp_path, replace(QUICK, settings="traind"))


def test_few_dev_rows_are_drawn_once_and_other_files_are_named(data, tmp_path):
    ready = planned(data, tmp_path)
    assert {path.name: len(rows) for path, rows in ready.files.items()} == {
        f"{task}-dev-20.jsonl": 20 for task in ("sst", "quora", "sts")
    }
    assert ready.planned.notes == (
        "quora: cs224n_quora/train_proxy.jsonl.gz takes the place of cs224n_quora/train.jsonl.gz",
    )
    assert not (tmp_path / "rows").exists(), "planning writes nothing"
    whole = planned(data, tmp_path, replace(QUICK, limit=30))
    assert whole.files == {}
    assert next(iter(whole.planned.trials.values())).values["task"][0]["data"]["dev"].endswith("dev.jsonl.gz")


def test_a_trial_is_named_by_what_determines_its_numbers(data, tmp_path):
    """Wherever the rows are stored, whatever the folder is called; never the same for other rows, seeds or settings."""
    names = set(planned(data, tmp_path).planned.trials)
    assert len(names) == 7
    assert set(planned(write_data(tmp_path / "copy"), tmp_path / "elsewhere").planned.trials) == names
    for other in (
        replace(QUICK, seeds=(3,)), replace(QUICK, epochs=2), replace(QUICK, limit=21), replace(QUICK, encoder=None),
        replace(QUICK, settings="trained"),
    ):  # fmt: skip
        assert not names & set(planned(data, tmp_path, other).planned.trials), other
    changed = write_data(tmp_path / "changed")
    put(changed, "cs224n_sts/dev.jsonl.gz", [{"text_a": f"a {n}", "text_b": "b", "score": float(n)} for n in range(30)])
    assert not names & set(planned(changed, tmp_path).planned.trials)


def test_data_that_is_missing_or_too_small_is_named_all_at_once(data, tmp_path):
    (tmp_path / "few" / "cs224n_sst").mkdir(parents=True)
    with pytest.raises(DataError) as raised:
        planned(tmp_path / "few", tmp_path)
    told = [str(problem) for problem in raised.value.problems]
    assert len(told) == 4
    assert "sst is missing: there is no cs224n_sst/train.jsonl.gz and no cs224n_sst/dev.jsonl.gz" in told[0]
    assert "nli is missing: there is no nli_triplets/train.jsonl.gz" in told[3]
    with pytest.raises(DataError, match="quora is too small: there are 30 rows, and the table has 141,000") as raised:
        planned(data, tmp_path, replace(QUICK, limit=None))
    assert len(raised.value.problems) == 3
    with pytest.raises(DataError, match="there is no such folder"):
        planned(tmp_path / "nowhere", tmp_path)
    with pytest.raises(SettingError, match="--folds is for tables of one task"):
        planned(data, tmp_path, replace(QUICK, folds=3))


def test_a_trial_has_the_scores_of_all_tasks_and_a_bad_one_says_why(data, tmp_path):
    ready = planned(data, tmp_path)
    for path, rows in ready.files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        write_rows(rows, path)
    trial = next(trial for trial in ready.planned.trials.values() if trial.contender == "sampled-activated-surgery")
    (tmp_path / "one").mkdir()
    record, files = perform(trial, tmp_path / "one")
    assert record.reason is None
    assert record.scores.keys() == {"sst", "quora", "sts", "mean"}
    assert record.score == pytest.approx(fmean(record.scores[task] for task in ("sst", "quora", "sts")))
    assert (record.kind, record.test, record.seed) == (TASKS, 60, 2)
    steps = [entry for entry in map(json.loads, files["journal.jsonl"].splitlines()) if entry["kind"] == "step"]
    assert any("surgery" in entry for entry in steps)
    broken = replace(trial, values={**trial.values, "task": trial.values["task"] * 2})
    (tmp_path / "two").mkdir()
    record, _ = perform(broken, tmp_path / "two")
    assert record.status == "failed"
    assert "two tasks have the name 'sst'" in str(record.reason)


# Ours beside theirs


def done(folder: Path, scores: dict[str, list[tuple[float, float, float]]]) -> Path:
    """A finished table: for each contender SST, Quora and STS of each seed."""
    cells = [Cell(id=f"{name}{seed}", data="sst+quora+sts", limit=None, contender=name, seed=seed, fold=0)
             for name, runs in scores.items() for seed in range(len(runs))]  # fmt: skip
    sets = DataSet(name="sst+quora+sts", file="f", limits=(None,), digest="d", rows=10, kind=TASKS)
    plan = Plan(name="t", metric="mean", baseline="round-robin", seeds=(0, 1), folds=1, data=(sets,),
                contenders={name: {} for name in scores}, cells=tuple(cells))  # fmt: skip
    folder.mkdir()
    (folder / "study.json").write_text(plan_text(plan))
    for cell in cells:
        own = dict(zip(("sst", "quora", "sts"), scores[cell.contender][cell.seed], strict=True))
        write_record(folder, Record(
            id=cell.id, data=cell.data, limit=None, contender=cell.contender, seed=cell.seed, fold=0, status="done",
            metric="mean", scores={**own, "mean": fmean(own.values())},
        ), {})  # fmt: skip
    return folder


def test_ours_stand_beside_the_published_scores(tmp_path):
    """Means and deviations by hand, and in how many pairs of contenders the order is that of the paper."""
    folder = done(tmp_path / "t", {
        "sequential": [(0.3, 0.6, 0.6), (0.3, 0.6, 0.9)], "round-robin": [(0.4, 0.7, 0.7)] * 2,
        "sampled-activated": [(0.4, 0.7, 0.4)] * 2,
    })  # fmt: skip
    lines = task_lines(TABLE, folder)
    assert [line.contender for line in lines] == list(TABLE.published["mean"]["sst+quora+sts"])
    found = {line.contender: line.cells(list(TABLE.published)) for line in lines}
    assert list(TABLE.published) == ["sst", "quora", "sts", "mean"]
    assert found["sequential"] == ["sequential", "2", "0.300 ± 0.000", "0.600 ± 0.000", "0.750 ± 0.212",
                                   "0.550 ± 0.071", "0.327", "0.764", "0.866", "0.652"]  # fmt: skip
    assert found["sampled"] == ["sampled", "0", "–", "–", "–", "–", "0.510", "0.851", "0.871", "0.744"]
    assert len(task_heads(TABLE)) == len(found["sampled"])
    (said,) = task_conclusion(lines)  # 0.55 < 0.60 as published; 0.50 is below both, and should be above both
    assert said == (
        "The mean has 1 of 3 pairs of contenders in the order of the paper; best: round-robin here, sampled-activated "
        "in the paper; worst: sampled-activated here, sequential in the paper. With 2 runs of a contender, small "
        "differences are chance."
    )
    text = task_markdown(PAPER, TABLE, lines, ["the encoder is another"])
    assert "| sequential | 2 | 0.300 ± 0.000 |" in text
    assert text.endswith("How this differs from the paper:\n\n- the encoder is another\n")
    assert task_conclusion(task_lines(TABLE, tmp_path / "nothing")) == []


# The command


def words_of(data: Path, out: Path) -> list[str | Path]:
    return ["reproduce", "multi-task", "--table", "3", "--data", data, "--out", out, "--encoder", "toy", "--seeds", "2",
            "--limit", "20", "--epochs", "1", "--workers", "1"]  # fmt: skip


def test_a_dry_run_plans_and_writes_nothing(data, tmp_path):
    status, out, err = in_process(*words_of(data, tmp_path / "out"), "--dry-run")
    assert status == 0, err
    assert "7 trials: 0 there, 0 failed, 7 to run" in out
    assert "sequential, round-robin, sampled" in out
    assert not (tmp_path / "out").exists()


def test_what_does_not_fit_is_refused_in_one_message(data, tmp_path):
    status, _, err = in_process(*words_of(data, tmp_path), "--folds", "2")
    assert (status, "--folds is for tables of one task" in err) == (1, True)
    status, _, err = in_process("reproduce", "lcl", "--table", "emotions", "--data", data, "--epochs", "2")
    assert (status, "--epochs is for tables of several tasks" in err) == (1, True)
    (tmp_path / "table-3").mkdir()
    (tmp_path / "table-3" / "mine.txt").write_text("x")
    with pytest.raises(OutputError, match="holds something else than a study"):
        run_table(
            planned(data, tmp_path),
            tmp_path,
            tmp_path / "table-3",
            Lines(Console(quiet=True), trial_line),
            LocalExecutor(),
        )
    status, _, err = in_process(*words_of(data, tmp_path / "table-3" / "mine.txt"))
    assert (status, "nothing can be written there" in err) == (1, True)


def test_a_second_process_leaves_rows_and_recipes_alone(data, tmp_path):
    """They are those of the one that runs."""
    with exclusive(tmp_path / "table-3"), pytest.raises(OutputError, match="another process runs this study"):
        run_table(
            planned(data, tmp_path),
            tmp_path,
            tmp_path / "table-3",
            Lines(Console(quiet=True), trial_line),
            LocalExecutor(),
        )
    assert [path.name for path in tmp_path.iterdir()] == ["table-3"]


@pytest.mark.slow
def test_the_table_is_run_once_and_printed_beside_the_published_figures(data, tmp_path):
    """Every contender trains; the same command runs nothing again; a page can be made; a recipe can be trained."""
    status, out, err = in_process(*words_of(data, tmp_path / "out"))
    assert status == 0, err
    assert "7/7  sampled-activated-simcse, seed 2: mean " in err
    records = read_records(tmp_path / "out" / "table-3")
    assert [record.done for record in records] == [True] * 7
    for record in records:
        (row,) = [line for line in out.splitlines() if f"│ {record.contender} " in line]
        assert f"{record.scores['mean']:.3f}" in row
        assert f"{TABLE.published['mean']['sst+quora+sts'][record.contender]:.3f}" in row
    assert "pairs of contenders in the order of the paper" in out
    text = (tmp_path / "out" / "published.md").read_text()
    assert "train_proxy.jsonl.gz takes the place" in text
    status, again, err = in_process(*words_of(data, tmp_path / "out"))
    assert (status, again) == (0, out)
    assert "nothing ran" in err
    status, _, err = in_process("report", tmp_path / "out" / "table-3", "--out", tmp_path / "page.html")
    assert status == 0, err
    page = (tmp_path / "page.html").read_text()
    assert "quora / sst" in page, "conflicts of the contender with surgery"
    status, out, err = in_process("train", tmp_path / "out" / "sampled.toml", "--dry-run", "--out", tmp_path / "m")
    assert status == 0, err
    assert 'sampling = "weights"' in out
