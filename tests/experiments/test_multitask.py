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
from nearfar.experiments import task_pace
from nearfar.experiments.local_executor import LocalExecutor
from nearfar.experiments.multitask import TaskTable, plan_table, run_table
from nearfar.experiments.published import PublishedTable, find_paper, find_table
from nearfar.experiments.published.table_data import DataFolder, TableOptions
from nearfar.experiments.published.task_comparison import task_conclusion, task_lines, task_markdown, task_tables
from nearfar.experiments.records import Cell, DataSet, Plan, Record, plan_text, read_records, write_record
from nearfar.experiments.rows import write_rows
from nearfar.experiments.trial import TASKS
from nearfar.experiments.trial_runner import exclusive
from nearfar.experiments.trials import perform
from nearfar.recipe.tasks import read_task_recipe
from nearfar.report import read_source
from nearfar.report.elements import Markup, Missing
from nearfar.report.task_scores import by_task
from tests.experiments.studies import in_process

PAPER = find_paper("multitask")
TABLE = find_table(PAPER, "III")
ARCHITECTURE = find_table(PAPER, "6.1")
QUICK = TableOptions(encoder="toy", seeds=(2,), limit=20, epochs=1)
DATA = "sst+quora+sts"


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


def planned(data: Path, out: Path, options: TableOptions = QUICK, table: PublishedTable = TABLE) -> TaskTable:
    return plan_table(DataFolder(PAPER, table, data), out, options)


def test_published_means_are_the_means_of_the_published_scores():
    """A digit that was copied wrongly would move a mean."""
    contenders = TABLE.published["mean"][DATA]
    assert [int(name.partition("-")[0]) for name in contenders] == list(range(1, 16))
    for name, mean in contenders.items():
        own = [TABLE.published[task][DATA][name] for task in ("sst", "quora", "sts")]
        assert fmean(own) == pytest.approx(mean, abs=0.00051), name
        assert all(name in TABLE.published[f"{task} train"][DATA] for task in ("sst", "quora", "sts"))
    assert fmean(TABLE.test[task] for task in ("sst", "quora", "sts")) == pytest.approx(TABLE.test["mean"], abs=0.00051)
    grouped = [name for members in TABLE.groups.values() for name in members]
    assert sorted(grouped) == sorted([*contenders, "mixed", "single"])


JOINT, DPH, DPHA = "joint", "joint-difference", "joint-difference-activated"
RR, MT = "block-round-robin", "sampled"
TABLE_2 = {  # method, train order or weights, epochs, batch size, dropout; head of Quora, head of STS, shared layer
    1: (MT, {"quora": 0, "sts": 0}, 10, 32, 0.3, "concat", "concat", False),
    2: ("sequential", ["quora", "sst", "sts"], 3, 32, 0.5, JOINT, JOINT, False),
    3: (RR, ["sst", "sts", "sst", "sts", "quora"], 3, 32, 0.5, JOINT, JOINT, False),
    4: (RR, ["sts", "sst", "quora", "sst", "sts"], 3, 16, 0.5, JOINT, JOINT, True),
    5: (RR, ["sts", "sst", "quora", "sst", "sts"], 3, 32, 0.5, JOINT, JOINT, True),
    6: (RR, ["sts", "sst", "sst", "sts", "quora"], 5, 32, 0.5, JOINT, JOINT, True),
    7: (MT, {}, 5, 32, 0.5, JOINT, JOINT, True),
    8: (MT, {}, 5, 64, 0.5, JOINT, JOINT, True),
    9: (MT, {}, 5, 64, 0.5, DPH, JOINT, True),
    10: (MT, {"quora": 2}, 5, 64, 0.5, DPHA, JOINT, True),
    11: (MT, {"quora": 2}, 5, 64, 0.3, DPHA, DPHA, True),
    12: (MT, {"quora": 2}, 5, 8, 0.1, DPHA, DPHA, True),
    13: (MT, {"quora": 2}, 5, 64, 0.5, DPHA, DPHA, True),
    14: (MT, {"quora": 2}, 5, 64, 0.1, DPHA, DPHA, True),
    15: (MT, {"quora": 2}, 5, 64, 0.1, DPHA, DPHA, True),
}


def test_recipes_are_those_of_the_paper(data, tmp_path):
    """Table 2 of the paper, row by row; written as recipes that can be trained."""
    ready = planned(data, tmp_path / "out", TableOptions(limit=20))
    recipes = {}
    for name, text in ready.recipes.items():
        (tmp_path / f"{name}.toml").write_text(text)
        recipes[name.partition("-")[0] if name[0].isdigit() else name] = read_task_recipe(tmp_path / f"{name}.toml")
    assert set(recipes) == {*map(str, TABLE_2), "mixed", "single-sst", "single-quora", "single-sts"}
    for number, (kind, turns, epochs, size, dropout, quora_head, sts_head, shared) in TABLE_2.items():
        recipe = recipes[str(number)]
        sst, quora, sts = recipe.task
        schedule, training = recipe.schedule, recipe.training
        assert [task.name for task in recipe.task] == ["sst", "quora", "sts"]
        assert (schedule.kind, schedule.weights if kind == MT else list(schedule.order)) == (kind, turns)
        assert (training.epochs, recipe.batches.size, recipe.shared_layer) == (epochs, size, shared)
        assert (sst.head.kind, quora.head.kind, sts.head.kind) == ("linear", quora_head, sts_head)
        assert (training.learning_rate, training.head_learning_rate) == (1e-5, 1e-5)
        assert (recipe.encoder.pooling, recipe.encoder.frozen) == ("pooler", number == 1)
        assert [task.head.single_logit for task in recipe.task] == [False, True, False]
        assert all(not task.head.symmetric for task in (quora, sts) if task.head.kind != "concat")
        in_front = recipe.shared_dropout.before if shared else sst.head.dropout
        behind = {task.head.dropout for task in recipe.task}
        assert in_front == dropout, number
        assert behind == ({dropout} if not shared or number == 6 else {0.0}), "CL is dropped in experiment 6 alone"
        assert (training.gradient_surgery, training.combine) == ("pcgrad" if number == 12 else "none", "mean")
        assert [(stage.objective.name, stage.epochs) for stage in recipe.stage] == [("simcse", 3)] * (number == 15)
        assert all(task.data.limit == 20 for task in recipe.task)
        if kind == MT and number > 1:
            assert schedule.sampling == "weights"
    assert [task.name for task in recipes["single-sts"].task] == ["sts"]
    mixed = replace(recipes["8"].schedule, kind="mixed")
    assert replace(recipes["8"], schedule=mixed) == recipes["mixed"]


def test_section_6_1_compares_one_thing_at_a_time(data, tmp_path):
    """Pooler and mean, one layer and more, joined and concatenated: nothing else differs."""
    trials = {
        each.contender: each.values for each in planned(data, tmp_path, table=ARCHITECTURE).planned.trials.values()
    }
    pooler = trials["pooler"]
    assert pooler["separate"]
    assert pooler["encoder"]["pooling"] == "pooler"
    sst, quora, sts = pooler["task"]
    assert trials["mean"] == {**pooler, "encoder": {**pooler["encoder"], "pooling": "mean"}}
    deeper = {**sst, "head": {**sst["head"], "hidden_layers": 2}}
    assert trials["more-layers"]["task"] == [deeper, quora, sts]
    apart = [{**task, "head": {"kind": "concat", "dropout": 0.5}} for task in (quora, sts)]
    apart[0]["head"]["single_logit"] = True
    assert trials["concatenated"]["task"] == [sst, *apart]
    trained = planned(data, tmp_path, replace(QUICK, settings="trained"), ARCHITECTURE).planned.trials.values()
    poolings = {each.contender: each.values["encoder"]["pooling"] for each in trained}
    assert [name for name, pooling in poolings.items() if pooling == "mean"] == ["mean"]


def test_settings_and_options_lie_over_the_contenders(data, tmp_path):
    options = replace(QUICK, settings="trained", seeds=(3, 4))
    ready = planned(data, tmp_path, options)
    assert len(ready.planned.trials) == 26, "4 and 5, 7 and 8, 11, 13 and 14 differ in batch size or dropout alone"
    for trial in ready.planned.trials.values():
        own = trial.values
        assert (own["training"]["learning_rate"], own["training"]["epochs"], own["batches"]["size"]) == (5e-5, 1, 32)
        frozen = {"frozen": True} if trial.contender.startswith("1-") else {}
        assert own["encoder"] == {"max_length": 128, "pooling": "mean", "name": "toy", **frozen}
        places = [own.get("shared_dropout", {}).get("before", 0), *(task["head"]["dropout"] for task in own["task"])]
        assert set(places) <= {0, 0.1}
        assert max(places) == 0.1
        assert all(stage["epochs"] == 1 for stage in own.get("stage", ()))
    assert [note for note in ready.planned.notes if note.endswith("are the same run")] == [
        "with these settings 4-round-robin-shared-16 and 5-round-robin-shared are the same run",
        "with these settings 7-sampled-32 and 8-sampled are the same run",
        "with these settings 11-sampled-activated-30 and 13-sampled-activated-50 and 14-sampled-activated are the same run",
    ]
    assert not any("same run" in note for note in planned(data, tmp_path).planned.notes)
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
    assert [note for note in ready.planned.notes if "takes" in note] == [
        "quora: cs224n_quora/train_proxy.jsonl.gz takes the place of cs224n_quora/train.jsonl.gz"
    ]
    assert "sts: there is no cs224n_sts/test.jsonl.gz, so it has no test score" in ready.planned.notes
    assert not (tmp_path / "rows").exists(), "planning writes nothing"
    whole = planned(data, tmp_path, replace(QUICK, limit=30))
    assert whole.files == {}
    assert next(iter(whole.planned.trials.values())).values["task"][0]["data"]["dev"].endswith("dev.jsonl.gz")


def test_a_trial_is_named_by_what_determines_its_numbers(data, tmp_path):
    """Wherever the rows are stored, whatever the folder is called; never the same for other rows, seeds or settings."""
    names = set(planned(data, tmp_path).planned.trials)
    assert len(names) == 17
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
    trial = next(trial for trial in ready.planned.trials.values() if trial.contender.startswith("12-"))
    (tmp_path / "one").mkdir()
    record, files = perform(trial, tmp_path / "one")
    assert record.reason is None
    tasks = ("sst", "quora", "sts")
    assert record.scores.keys() == {*tasks, *(f"{task} train" for task in tasks), "mean"}
    assert record.score == pytest.approx(fmean(record.scores[task] for task in ("sst", "quora", "sts")))
    assert (record.kind, record.test, record.seed) == (TASKS, 60, 2)
    steps = [entry for entry in map(json.loads, files["journal.jsonl"].splitlines()) if entry["kind"] == "step"]
    assert all(len(entry["surgery"]) == 3 for entry in steps), "every step has every task"
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
    plan = Plan(name="t", metric="mean", baseline="3-round-robin", seeds=(0, 1), folds=1, data=(sets,),
                contenders={name: {} for name in scores}, cells=tuple(cells))  # fmt: skip
    folder.mkdir()
    (folder / "study.json").write_text(plan_text(plan))
    for cell in cells:
        own = dict(zip(("sst", "quora", "sts"), scores[cell.contender][cell.seed], strict=True))
        more = {"sst test": 0.3, **{f"{task} train": score + 0.1 for task, score in own.items()}}
        write_record(folder, Record(
            id=cell.id, data=cell.data, limit=None, contender=cell.contender, seed=cell.seed, fold=0, status="done",
            metric="mean", kind=TASKS, scores={**own, "mean": fmean(own.values()), **more},
        ), {})  # fmt: skip
    return folder


def test_ours_stand_beside_the_published_scores(tmp_path):
    """Means and deviations by hand, and in how many pairs of contenders the order is that of the paper."""
    folder = done(tmp_path / "t", {
        "2-sequential": [(0.3, 0.6, 0.6), (0.3, 0.6, 0.9)], "3-round-robin": [(0.4, 0.7, 0.7)] * 2,
        "14-sampled-activated": [(0.4, 0.7, 0.4)] * 2,
    })  # fmt: skip
    lines = task_lines(TABLE, folder)
    assert [line.contender for line in lines] == list(TABLE.published["mean"][DATA])
    dev, train, approaches, test = task_tables(TABLE, lines)
    assert dev.head[:6] == ["contender", "seeds", "our sst", "our quora", "our sts", "our mean"]
    found = {row[0]: row for row in dev.rows}
    assert found["2-sequential"] == ["2-sequential", "2", "0.300 ± 0.000", "0.600 ± 0.000", "0.750 ± 0.212",
                                     "0.550 ± 0.071", "0.327", "0.764", "0.866", "0.652"]  # fmt: skip
    assert found["8-sampled"] == ["8-sampled", "0", "–", "–", "–", "–", "0.510", "0.851", "0.871", "0.744"]
    trained = next(row for row in train.rows if row[0] == "2-sequential")
    assert trained == [
        "2-sequential",
        "2",
        "0.400 ± 0.000",
        "0.700 ± 0.000",
        "0.850 ± 0.212",
        "0.491",
        "0.824",
        "0.883",
    ]
    assert {row[0]: row[1:6] for row in approaches.rows}["MT-DNN"] == ["2", "0.400", "0.700", "0.400", "0.500"]
    robin = {row[0]: row for row in approaches.rows}["round-robin"]
    assert robin[-4:] == ["0.483", "0.825", "0.867", "0.725"], "means over experiments 3 to 6"
    assert test.rows == [["3-round-robin", "2", "0.300 ± 0.000", "–", "–", "–", "0.534", "0.887", "0.885", "0.769"]]
    said = task_conclusion(TABLE, lines)  # 0.55 < 0.60 as published; 0.50 is below both, and should be above both
    assert said[0] == (
        "The mean has 1 of 3 pairs of contenders in the order of the paper; best: 3-round-robin here, "
        "14-sampled-activated in the paper; worst: 14-sampled-activated here, 2-sequential in the paper."
    )
    assert said[-1] == "With 2 runs of a contender, small differences are chance."
    assert [sentence.partition(" has ")[0] for sentence in said] == ["The mean", "sst", "quora", "sts", said[-1]]
    text = task_markdown(PAPER, TABLE, lines, ["the encoder is another"])
    assert "| 2-sequential | 2 | 0.300 ± 0.000 |" in text
    assert "## Results per task, by approach (figure 3)" in text
    assert text.endswith("How this differs from the paper:\n\n- the encoder is another\n")
    assert task_conclusion(TABLE, task_lines(TABLE, tmp_path / "nothing")) == []
    assert task_tables(TABLE, task_lines(TABLE, tmp_path / "nothing"))[-1].rows[0][:2] == ["–", "0"]
    single = done(tmp_path / "s", {"pooler": [(0.4, 0.7, 0.7)], "mean": [(0.3, 0.6, 0.6)]})
    dev, _ = task_tables(ARCHITECTURE, task_lines(ARCHITECTURE, single))
    assert dev.head == ["contender", "seeds", "our sst", "our quora", "our sts", "our mean"], "nothing is published"
    assert dev.rows[0] == ["pooler", "1", "0.400", "0.700", "0.700", "0.600"]


def test_the_page_shows_every_task_of_every_contender(tmp_path):
    """Figure 3: a line for each task over the contenders, and the numbers below it."""
    folder = done(tmp_path / "t", {"3-round-robin": [(0.41, 0.7, 0.7)] * 2, "8-sampled": [(0.5, 0.61, 0.3)] * 2})
    section = by_task(read_source(folder))
    assert isinstance(section, Markup)
    assert section.code.count('class="thin s') == 3
    assert "<title>quora, 8-sampled: 0.610</title>" in section.code
    assert "<b>0.500</b>" in section.code
    assert "sst train" in section.code
    plain = replace(read_source(folder), records=())
    assert isinstance(by_task(plain), Missing)


# The command


def words_of(data: Path, out: Path) -> list[str | Path]:
    return ["reproduce", "multi-task", "--table", "3", "--data", data, "--out", out, "--encoder", "toy", "--seeds", "2",
            "--limit", "20", "--epochs", "1", "--workers", "1"]  # fmt: skip


def test_a_dry_run_plans_and_writes_nothing(data, tmp_path):
    status, out, err = in_process(*words_of(data, tmp_path / "out"), "--dry-run")
    assert status == 0, err
    assert "17 trials: 0 there, 0 failed, 17 to run" in out
    assert "1-vanilla-frozen, 2-sequential, 3-round-robin, 4-round-robin-shared-16" in out
    assert "in 1 process of " in out
    assert "going by 4 steps of each contender just now" in out
    assert not (tmp_path / "out").exists()


def test_the_estimate_has_every_training_with_all_of_its_steps(data, tmp_path, monkeypatch):
    """SimCSE before the tasks, and a model for each task, are trainings that take time, too."""
    table = planned(data, tmp_path, replace(QUICK, epochs=2))
    seen: dict[str, list[int]] = {}

    class Counted(task_pace._FirstSteps):
        """The time of a step is 1 second, and opening takes none."""

        def begin(self, steps):
            super().begin(steps)
            self.opening = 0.0
            seen.setdefault(name, []).append(steps)

        pace = 1.0

    monkeypatch.setattr(task_pace, "_FirstSteps", Counted)
    for trial in table.planned.trials.values():
        name = trial.contender
        assert task_pace.task_seconds(trial) == sum(seen[name])
    assert max(sum(steps) for steps in seen.values()) > task_pace.STEPS
    assert {name: len(steps) for name, steps in seen.items() if len(steps) > 1} == {
        "15-sampled-activated-simcse": 2, "single": 3,
    }  # fmt: skip


def test_the_list_names_the_tasks_of_each_table():
    status, out, _ = in_process("reproduce", "multi-task", "--list")
    assert status == 0
    assert [line.endswith("BERT-base; sst+quora+sts") for line in out.splitlines()[1:]] == [True, True]


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
    assert "17/17  mixed, seed 2: mean " in err
    records = read_records(tmp_path / "out" / "table-3")
    assert [record.done for record in records] == [True] * 17
    for record in records:
        row = next(line for line in out.splitlines() if f"│ {record.contender} " in line)
        assert f"{record.scores['mean']:.3f}" in row
        if record.contender in TABLE.published["mean"][DATA]:
            assert f"{TABLE.published['mean'][DATA][record.contender]:.3f}" in row
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
    assert "Scores per task" in page
    status, out, err = in_process("train", tmp_path / "out" / "8-sampled.toml", "--dry-run", "--out", tmp_path / "m")
    assert status == 0, err
    assert 'sampling = "weights"' in out
