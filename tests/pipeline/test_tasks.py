"""Whole runs of several tasks: data to folder, every head, every schedule, and back from the folder."""

from __future__ import annotations

import io
import json
import re
import shutil
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rich.console import Console
from safetensors.torch import load_file
from sentence_transformers import SentenceTransformer
from tests.training.runs import digest
from tests.training.task_runs import task_recipe, train_tasks_in_child, write_all
from transformers import AutoModel, AutoModelForSequenceClassification, AutoTokenizer

from nearfar.cli.progress import console_callback
from nearfar.encoding import load as open_model
from nearfar.encoding.pretrained import quiet_transformers
from nearfar.encoding.task_model import TaskCard, TaskNetwork, answer, lay_out, load_tasks
from nearfar.errors import CheckpointError, DataError, EncoderError, SettingError
from nearfar.evaluation import embed_table
from nearfar.exports.task_folder import export_task
from nearfar.pipeline import train
from nearfar.pipeline.output import conflicts_in
from nearfar.pipeline.plan import flat, open_encoder
from nearfar.pipeline.task_run import plan_task_run
from nearfar.pipeline.tasks import build_loss, center_scores, check_dev, evaluate_saved, read_task, truth_of, worst
from nearfar.recipe.tasks import TaskRecipe
from nearfar.training import read_journal

HEADS = {
    "concat": {"kind": "concat", "difference": True, "product": True},
    "joint": {"kind": "joint"},
    "joint-difference": {"kind": "joint-difference"},
    "joint-difference-activated": {"kind": "joint-difference-activated"},
    "as published": {"kind": "joint-difference-activated", "symmetric": False},
    "cosine": {"kind": "cosine"},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_all(tmp_path_factory.mktemp("data"))


def trained(recipe: TaskRecipe, out: Path, **settings: Any) -> tuple[Any, str]:
    said = io.StringIO()
    return train(recipe, out, callbacks=[console_callback(Console(file=said, width=400))], **settings), said.getvalue()


@pytest.fixture(scope="module")
def model(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any, str]:
    """One run with surgery, learned weights and a shared layer."""
    out = tmp_path_factory.mktemp("run") / "model"
    recipe = task_recipe(
        folder, shared_layer=True, training={"gradient_surgery": "pcgrad", "weighting": "uncertainty"},
        same={"head": HEADS["joint-difference-activated"]}, close={"head": HEADS["concat"]},
    )  # fmt: skip
    summary, said = trained(recipe, out)
    return out, summary, said


def test_a_run_prints_the_batches_of_each_task(model):
    _, _, said = model
    assert (
        "batches of an epoch: 12 batches: kind 4 (1 times its 4 batches), same 4 (1.33 times its 3 batches), " in said
    )
    assert "weights of the gradients: kind 1.2, same 0.9, close 0.9\n" in said
    assert "so a step has 3 batches" in said
    assert "gradient surgery: pcgrad; weights by uncertainty; 3 batches a step; 2 epochs; 8 steps" in said


@pytest.mark.parametrize("head", HEADS)
def test_scores_begin_around_their_mean_and_other_heads_as_they_are(head, folder):
    """Whatever a head's first weights say; the cosine has none, and classes have no mean."""
    recipe = task_recipe(folder, shared_layer=True, close={"head": HEADS[head]})
    built = open_encoder(recipe.encoder, classes=None, seed=1)
    tasks = [read_task(recipe, task) for task in recipe.task]
    network = TaskNetwork(built.model, [ready.card for ready in tasks], shared=True, seed=3)
    for ready in tasks:
        own = network.head.of(ready.name)
        before = {name: weight.clone() for name, weight in own.state_dict().items()}
        center_scores(ready, built, network)
        changed = [name for name, weight in own.state_dict().items() if not torch.equal(weight, before[name])]
        if ready.name != "close" or head == "cosine":
            assert changed == []
            continue
        assert len(changed) == 1
        rows = ready.data.train
        table, columns = lay_out(built.tokenizer, rows.texts, ready.card.reads, built.max_length)
        outputs = network.answers("close", embed_table(built.model, table, batch_size=8), columns)
        assert abs(float(outputs.mean()) - float(truth_of(ready.card, rows).mean())) < 1e-3


def test_the_mean_of_the_tasks_picks_the_model(model):
    out, summary, _ = model
    found = json.loads((out / "metrics.json").read_text())
    evaluations = found["training"]["evaluations"]
    assert len(evaluations) == 2
    for one in evaluations:
        scores = one["scores"]
        own = [scores["kind/f1_weighted"], scores["same/f1_weighted"], scores["close/spearman"]]
        assert scores["mean"] == pytest.approx(sum(own) / 3)
    best = max(evaluations, key=lambda one: one["scores"]["mean"])
    assert found["training"]["best_step"] == best["step"]
    assert found["dev"]["mean"] == pytest.approx(best["scores"]["mean"])
    assert summary.reports["dev"]["close"].scores["spearman"] == pytest.approx(best["scores"]["close/spearman"])


def test_the_journal_has_every_task_and_every_conflict(model):
    """Losses by task in each step, and meetings that add up to those of the metrics."""
    out, _, _ = model
    journal = read_journal(out / "journal.jsonl")
    steps = [entry for entry in journal if entry["kind"] == "step"]
    assert len(steps) == 8
    assert all(entry["tasks"].keys() <= {"kind", "same", "close"} for entry in steps)
    assert all(entry["task_weights"].keys() == {"kind", "same", "close"} for entry in steps)
    assert all(("surgery" in entry) == (len(entry["tasks"]) > 1) for entry in steps)
    total = conflicts_in(journal)
    assert total is not None
    stored = json.loads((out / "metrics.json").read_text())["surgery"]
    for pair, own in total.entry().items():
        met = [entry["surgery"][pair] for entry in steps if pair in entry.get("surgery", {})]
        assert own["steps"] == len(met) == stored[pair]["steps"] > 0
        assert own["conflicts"] == sum(one["conflicts"] for one in met)
        assert own["cosine"] == pytest.approx(np.mean([one["cosine"] for one in met]), abs=1e-6)


def test_learned_weights_move_and_are_saved_without_decay(model):
    out, _, _ = model
    weights = load_file(out / "tasks.safetensors")
    own = {name: tensor for name, tensor in weights.items() if name.endswith("log_variance")}
    assert set(own) == {f"objective.{task}/uncertainty.log_variance" for task in ("kind", "same", "close")}
    assert all(abs(float(tensor)) > 1e-3 for tensor in own.values())
    steps = [entry for entry in read_journal(out / "journal.jsonl") if entry["kind"] == "step"]
    assert steps[0]["learning_rates"] == {"encoder": 0.001, "head": 0.02, "objective": 0.1}


def test_everybody_opens_the_encoder(model):
    """SentenceTransformer, AutoModel and nearfar.load see the same vectors; the folder has no pickles."""
    out, _, _ = model
    texts = ["a plum and a pear", "one hammer"]
    ours = open_model(out).embed(texts)
    assert np.ptp(ours, axis=0).max() > 0.01
    with quiet_transformers():
        theirs = SentenceTransformer(str(out), device="cpu").encode(texts)
        tokenizer, network = AutoTokenizer.from_pretrained(out), AutoModel.from_pretrained(out).eval()
    np.testing.assert_allclose(theirs, ours, atol=1e-5)
    with torch.no_grad():
        states = network(**tokenizer(texts[:1], return_tensors="pt"))[0][0]
    np.testing.assert_allclose(states.mean(dim=0).numpy(), ours[0], atol=1e-5)
    assert {path.suffix for path in out.rglob("*") if path.is_file() and path.name != "SHA256SUMS"} == {
        ".json",
        ".jsonl",
        ".md",
        ".toml",
        ".safetensors",
    }


def test_a_loaded_model_answers_as_the_trained_one_did(model, folder):
    out, summary, _ = model
    opened = load_tasks(out)
    found, _ = evaluate_saved(out, opened)

    assert found.keys() == {"dev"}
    for name, report in summary.reports["dev"].items():
        assert found["dev"][name].scores == pytest.approx(report.scores, abs=1e-6)
    assert evaluate_saved(out, opened, "close")[0]["dev"].keys() == {"close"}


def test_answers_have_the_form_of_their_task(model):
    opened = load_tasks(model[0])
    (kind,) = opened.predict("kind", [["a plum"]])
    (same,) = opened.predict("same", [["a plum"], ["a pear"]])
    (close,) = opened.predict("close", [["a plum"], ["a pear"]])

    assert set(kind.probabilities) == {"animal", "fruit", "tool"}
    assert kind.label == max(kind.probabilities, key=kind.probabilities.__getitem__)
    assert sum(same.probabilities.values()) == pytest.approx(1)
    assert (close.label, close.probabilities) == (None, {})
    assert isinstance(close.score, float)
    (swapped,) = opened.predict("same", [["a pear"], ["a plum"]])
    assert swapped.probabilities == pytest.approx(same.probabilities, abs=1e-6)


@pytest.mark.parametrize("name", HEADS)
def test_every_head_trains_on_labels_and_on_scores(name, folder, tmp_path):
    """Its weights move, its task is measured, and what is saved answers the same."""
    head = {"head": HEADS[name]}
    recipe = task_recipe(folder, tasks=("same", "close"), same=head, close=head, training={"epochs": 1})
    summary, _ = trained(recipe, tmp_path / "model")
    opened = load_tasks(tmp_path / "model")

    for task, card in opened.tasks.items():
        found, _ = evaluate_saved(tmp_path / "model", opened, task)
        assert found["dev"][task].scores == pytest.approx(summary.reports["dev"][task].scores, abs=1e-6)
        assert card.head["kind"] == HEADS[name]["kind"]
    fresh = load_tasks(tmp_path / "model").network.head
    weights = dict(opened.network.head.state_dict())
    assert bool(weights) == (name != "cosine")
    assert all(torch.equal(weights[key], value) for key, value in fresh.state_dict().items())
    if name not in ("concat", "as published"):
        texts = [["a plum", "one hammer"], ["a pear", "one saw"]]
        one, other = opened.outputs("close", texts), opened.outputs("close", texts[::-1])
        np.testing.assert_allclose(one, other, atol=1e-5)


@pytest.mark.parametrize(
    ("turns", "steps"),
    [
        ({"kind": "sequential"}, {"kind": 8, "same": 6, "close": 6}),
        ({"kind": "round-robin"}, {"kind": 8, "same": 8, "close": 8}),
        ({"kind": "round-robin", "order": ["close", "kind", "close", "same"]}, {"kind": 8, "same": 8, "close": 16}),
        (
            {"kind": "sampled", "sampling": "weights", "weights": {"same": 2}, "steps": 8},
            {"kind": 4, "same": 8, "close": 4},
        ),
        ({"kind": "sampled", "sampling": "temperature", "temperature": 2}, {"kind": 8, "same": 6, "close": 6}),
        ({"kind": "annealed"}, {"kind": 8, "same": 6, "close": 6}),
    ],
)
def test_every_schedule_takes_the_steps_it_says(turns, steps, folder, tmp_path):
    """Counted in the journal, against what is printed before."""
    _, said = trained(task_recipe(folder, turns=turns), tmp_path / "model")
    journal = [entry for entry in read_journal(tmp_path / "model" / "journal.jsonl") if entry["kind"] == "step"]
    order = [next(iter(entry["tasks"])) for entry in journal]

    assert {name: order.count(name) for name in steps} == steps
    assert f"2 epochs; {sum(steps.values())} steps" in said
    if turns["kind"] == "sequential":
        assert order == sorted(order, key=["kind", "same", "close"].index)
    if "order" in turns:
        assert order[:8] == ["close", "kind", "close", "same"] * 2


def test_any_objective_can_be_blended_into_a_task(folder, tmp_path):
    """A class objective beside cross-entropy, a pair objective beside a joint head, one instead of a cosine's own."""
    recipe = task_recipe(
        folder, training={"epochs": 1},
        kind={"objective": {"name": "cross-entropy+supcon"}},
        same={"objective": {"name": "batch-softmax"}, "head_weight": 0.5, "head": {"kind": "joint"}},
        close={"objective": {"name": "pearson"}, "head": {"kind": "cosine"}},
    )  # fmt: skip
    _, said = trained(recipe, tmp_path / "model")
    parts = {name for entry in read_journal(tmp_path / "model" / "journal.jsonl") for name in entry.get("parts", ())}

    assert parts == {
        "kind/cross_entropy", "kind/supcon", "same/cross_entropy", "same/batch_softmax", "close/pearson",
    }  # fmt: skip
    assert "task same: batch-softmax does not train the head, so the head's own loss is added to it" in said


def test_the_weights_of_blended_terms_are_those_of_the_recipe(folder):
    recipe = task_recipe(folder, same={"objective": {"name": "mnrl"}, "head_weight": 0.25})
    aim, _ = build_loss(read_task(recipe, recipe.task[1]), 64, 1)

    assert [(term.name, term.weight, term.view) for term in aim.terms] == [
        ("cross_entropy", 0.25, "logits"), ("mnrl", 1.0, "pairs"),
    ]  # fmt: skip
    assert (aim.head_columns, aim.pair_columns) == (2, 2)


def test_a_stage_before_the_tasks_trains_the_encoder(folder, tmp_path):
    """SimCSE on the texts first: other weights, its journal kept, its folder gone."""
    stage = {
        "data": {"train": str(folder / "scores.jsonl"), "dev": 0}, "objective": {"name": "simcse"}, "batch_size": 8,
        "learning_rate": 1e-3,
    }  # fmt: skip
    _, said = trained(task_recipe(folder, tasks=("kind",), stage=[stage]), tmp_path / "staged")
    trained(task_recipe(folder, tasks=("kind",)), tmp_path / "plain")

    assert "stage 1 of 1, before the tasks: simcse" in said
    journal = read_journal(tmp_path / "staged" / "journal-stage-1.jsonl")
    assert [entry["parts"].keys() for entry in journal if entry["kind"] == "step"] == [{"simcse"}] * 4
    assert not (tmp_path / "staged" / "stages").exists()
    one, other = (load_file(tmp_path / name / "model.safetensors") for name in ("staged", "plain"))
    assert any((one[key] - other[key]).abs().max() > 1e-3 for key in one)


def test_tensorboard_gets_the_curves_of_every_task(folder, tmp_path):
    """Losses, cosines and dev scores under the names of the tasks, with all settings; the result is the same."""
    pytest.importorskip("tensorboard", reason="pip install 'nearfar[tensorboard]'")
    plain, _ = trained(task_recipe(folder, training={"gradient_surgery": "pcgrad"}), tmp_path / "plain")
    recipe = task_recipe(folder, training={"gradient_surgery": "pcgrad", "trackers": ["tensorboard"]})
    summary, _ = trained(recipe, tmp_path / "watched")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(tmp_path / "watched" / "nearfar"))
    events.Reload()
    names = set(events.Tags()["scalars"])
    wanted = {f"train/tasks/{task}" for task in ("kind", "same", "close")} | {"dev/mean", "dev/close/spearman"}
    assert wanted | {"train/cosine/kind / same", "train/parts/kind/cross_entropy"} <= names
    journal = read_journal(tmp_path / "watched" / "journal.jsonl")
    losses = [entry["tasks"]["kind"]["loss"] for entry in journal if "kind" in entry.get("tasks", {})]
    assert [event.value for event in events.Scalars("train/tasks/kind")] == pytest.approx(losses)
    assert flat(plan_task_run(recipe).config())["task.close.head.dropout"] == 0.1
    assert summary.reports["dev"]["kind"].scores == plain.reports["dev"]["kind"].scores
    unwatched = replace(recipe, training=replace(recipe.training, trackers=()))
    names = [plan_task_run(each).identity(1) for each in (recipe, unwatched)]
    assert names[0] == names[1], "trackers may change when a run is resumed"


def test_the_memory_of_surgery_is_told(folder, tmp_path):
    """One set of gradients of the shared weights for each further task."""
    _, said = trained(task_recipe(folder, training={"gradient_surgery": "pcgrad", "epochs": 1}), tmp_path / "model")
    weights = sum(tensor.numel() for tensor in load_file(tmp_path / "model" / "model.safetensors").values())
    told = int(re.search(r"surgery holds ([\d,]+) MB", said)[1].replace(",", ""))

    assert told == pytest.approx(2 * 4 * weights / 2**20, abs=1)


@pytest.mark.parametrize("surgery", ["none", "pcgrad"])
def test_three_tasks_are_learned_by_one_model(surgery, folder, tmp_path):
    """All of them, to far above chance on their own training rows: nothing is left out of a step by mistake."""
    files = {"kind": "texts.csv", "same": "labels.jsonl", "close": "scores.jsonl"}
    data = {f"{name}_data": {"dev": str(folder / file)} for name, file in files.items()}
    recipe = task_recipe(
        folder, training={"epochs": 26, "gradient_surgery": surgery, "learning_rate": 2e-3, "head_learning_rate": 1e-2},
        same={"head": HEADS["joint-difference-activated"]}, close={"head": HEADS["concat"]}, shared_layer=True, **data,
    )  # fmt: skip
    summary, _ = trained(recipe, tmp_path / "model")
    scores = {name: report.scores[summary.metrics[name]] for name, report in summary.reports["dev"].items()}

    assert scores["kind"] > 0.9
    assert scores["same"] > 0.75
    assert scores["close"] > 0.6


@pytest.mark.parametrize(("pooling", "shared"), [("pooler", False), ("first", True)])
def test_an_exported_classifier_gives_the_same_logits(pooling, shared, folder, tmp_path):
    encoder = {"pooling": pooling}
    trained(task_recipe(folder, tasks=("kind",), encoder=encoder, shared_layer=shared), tmp_path / "model")
    opened = load_tasks(tmp_path / "model")
    export_task(opened, "kind", tmp_path / "out")
    texts = ["a plum and a pear", "one hammer", "the otter"]
    with quiet_transformers():
        tokenizer = AutoTokenizer.from_pretrained(tmp_path / "out")
        network = AutoModelForSequenceClassification.from_pretrained(tmp_path / "out").eval()
    with torch.no_grad():
        logits = network(**tokenizer(texts, padding=True, return_tensors="pt")).logits.numpy()

    np.testing.assert_allclose(logits, opened.outputs("kind", [texts]), atol=1e-5)
    assert np.ptp(logits, axis=0).max() > 1e-3
    assert [network.config.id2label[place] for place in range(3)] == ["animal", "fruit", "tool"]


def test_heads_that_others_cannot_express_are_not_exported(model, tmp_path):
    opened = load_tasks(model[0])
    with pytest.raises(SettingError, match="stands on the mean of all tokens, through the shared layer"):
        export_task(opened, "kind", tmp_path / "out")
    with pytest.raises(SettingError, match="only tasks of single texts are exported"):
        export_task(opened, "same", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_thresholds_of_a_cosine_come_from_the_dev_rows(folder, tmp_path):
    data = {"test": str(folder / "labels.jsonl")}
    recipe = task_recipe(folder, tasks=("same",), same={"head": {"kind": "cosine"}}, same_data=data)
    summary, _ = trained(recipe, tmp_path / "model")
    dev, test = summary.reports["dev"]["same"], summary.reports["test"]["same"]
    opened = load_tasks(tmp_path / "model")

    assert dev.chosen_here
    assert not test.chosen_here
    assert test.thresholds == dev.thresholds
    assert opened.tasks["same"].threshold == dev.threshold
    assert opened.tasks["same"].labels == ("0", "1")
    (answer,) = opened.predict("same", [["a plum"], ["a plum"]])
    assert answer.score == pytest.approx(1, abs=1e-5)
    assert answer.label == "1"


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"kind": {"head": {"kind": "joint"}}}, SettingError, "task 'kind': head.kind is 'joint', which reads pairs of texts"),
        ({"same": {"head": {"kind": "linear"}}}, SettingError, "task 'same': head.kind is 'linear', which reads single texts"),
        ({"same": {"head": {"kind": "joint", "product": True}}}, SettingError, "head.product is a setting of 'concat'"),
        ({"same": {"kind": "scores"}}, SettingError, "kind is 'scores', pairs with scores, but"),
        ({"same": {"metric": "pearson"}}, SettingError, "choose one of f1_weighted, f1_macro, accuracy"),
        ({"same_data": {"dev": 0}}, SettingError, "task 'same' has no dev data (24 training rows), but the mean"),
        ({"kind_data": {"train": "triplets.jsonl", "dev": 0}}, DataError, "needs texts with a class, or pairs with a label"),
        ({"schedule": {"weights": {"kind": 0, "same": 0, "close": 0}}}, SettingError, "sum to zero"),
        ({"schedule": {"weights": {"knd": 1}}}, SettingError, "Did you mean 'kind'?"),
        ({"schedule": {"kind": "round-robin", "order": ["kind"]}}, SettingError, "leaves out 'same'"),
        ({"schedule": {"kind": "block-round-robin", "order": ["kind", "sme", "close"]}}, SettingError,
         "[schedule]: the order of tasks names 'sme', but the tasks are kind, same, close. Did you mean 'same'?"),
        ({"schedule": {"kind": "block-round-robin"}, "training": {"gradient_surgery": "pcgrad"}}, SettingError, "one task after the other"),
        ({"training": {"gradient_surgery": "pcgrad", "accumulate": 4}}, SettingError, "set it to 3 or a multiple of it, or leave it out"),
        ({"encoder": {"frozen": True}, "training": {"gradient_surgery": "pcgrad"}}, SettingError, "leave no weights that the tasks share"),
        ({"encoder": {"frozen": True}, "same": {"head": {"kind": "cosine"}}}, SettingError, "there is no head to train"),
        ({"kind": {"head": {"single_logit": True}}}, SettingError, "head.single_logit is for two classes, and there are 3: "),
        ({"close": {"head": {"single_logit": True}}}, SettingError, "head.single_logit is for two classes, and the task has scores; remove it."),
        ({"same": {"head": {"kind": "cosine", "single_logit": True}}}, SettingError, "a cosine head has no logits"),
        ({"same": {"objective": {"name": "auto", "class_weight": {"2": 3}}}}, SettingError, "task 'same': objective.class_weight names '2', which is no class"),
        ({"close": {"objective": {"name": "auto", "class_weight": "balanced"}}}, SettingError, "weights classes, and the task has scores; leave it out"),
        ({"same": {"head": {"kind": "cosine", "hidden_layers": 1}}}, SettingError, "head.hidden_layers is 1, and the cosine has no layers"),
        ({"schedule": {"kind": "mixed"}, "tasks": ("kind",)}, SettingError, "has rows of several tasks in a batch, but there is one task"),
        ({"schedule": {"kind": "mixed"}, "same": {"batch_size": 4}}, SettingError, "task 'same' has batches of its own (batch_size = 4)"),
        ({"schedule": {"kind": "mixed"}, "batches": {"size": 2}}, SettingError, "batches.size is 2 and there are 3 tasks"),
        ({"schedule": {"kind": "mixed"}, "kind": {"objective": {"name": "supcon"}}}, SettingError, "supcon of task 'kind' needs texts of the same class"),
        ({"schedule": {"kind": "mixed"}, "training": {"gradient_surgery": "pcgrad"}}, SettingError, "a mixed batch may lack a task"),
        ({"schedule": {"kind": "mixed", "order": ["kind", "same", "close"]}}, SettingError, "schedule.order changes nothing"),
        ({"schedule": {"kind": "sequential", "steps": 5}}, SettingError, "schedule.steps changes nothing"),
        ({"schedule": {"kind": "round-robin", "sampling": "square-root"}}, SettingError, 'changes nothing where schedule.kind is "round'),
        ({"schedule": {"kind": "annealed", "sampling": "square-root"}}, SettingError, "schedule.sampling changes nothing"),
        ({"schedule": {"drop": 0.5}}, SettingError, "schedule.drop changes nothing"),
        ({"schedule": {"sampling": "temperature"}}, SettingError, "[schedule]: tasks sampled by temperature need one above 0"),
        ({"same": {"head": {"kind": "concat", "symmetric": False}}}, SettingError, "symmetric is a setting of the joint"),
        ({"schedule": {"weights": {"kind": 0, "same": 0}}, "training": {"gradient_surgery": "pcgrad"}}, SettingError, "leaves 'close' alone"),
        ({"kind_data": {"train": "plain.csv"}}, DataError, "task 'kind' needs texts with a class, or pairs"),
        ({"schedule": {"kind": "sequential"}, "training": {"gradient_surgery": "pcgrad"}}, SettingError, "one task after the other"),
        ({"tasks": ("kind",), "training": {"gradient_surgery": "pcgrad"}}, SettingError, 'there is one task; set it to "none".'),
        ({"training": {"trackers": ["wandb"]}}, SettingError, "trackers names wandb, which is not installed"),
        ({"kind": {"objective": {"name": "batch-softmax"}}}, SettingError, "it compares pairs of texts, and the task"),
        ({"close": {"objective": {"name": "cross-entropy"}}}, SettingError, "it needs classes, and the pairs have scores"),
        ({"same": {"objective": {"name": "supcon"}, "head": {"kind": "concat"}}}, SettingError, "choose a joint head"),
        ({"kind": {"objective": {"name": "label-aware"}}}, SettingError, "cannot serve one of several tasks"),
        ({"same": {"objective": {"name": "cross-entropy"}, "head": {"kind": "cosine"}}}, SettingError, "nothing to train"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused(changes, error, message, folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("plain.csv").write_text("text\na plum\na pear\n")
    triplet = {"anchor": "a plum", "positive": "a pear", "negative": "a saw"}
    Path("triplets.jsonl").write_text("".join(json.dumps({**triplet, "anchor": f"{row}"}) + "\n" for row in range(9)))
    with pytest.raises(error) as refused:
        trained(task_recipe(folder, **changes), tmp_path / "model")

    assert message in str(refused.value)


def test_without_any_dev_data_the_last_weights_are_kept(folder, tmp_path):
    none = {"dev": 0}
    recipe = task_recipe(folder, kind_data=none, same_data=none, close_data=none, training={"epochs": 1})
    summary, said = trained(recipe, tmp_path / "model")

    assert "no task has dev data, so the last weights are kept" in said
    assert summary.progress.best is None
    assert summary.reports == {}
    plan = plan_task_run(recipe)
    tasks = plan.tasks
    assert not check_dev(tasks)
    with pytest.raises(SettingError, match="its recipe names no dev or test rows"):
        evaluate_saved(tmp_path / "model", load_tasks(tmp_path / "model"))


def test_a_folder_without_its_heads_is_refused(model, tmp_path):
    out = shutil.copytree(model[0], tmp_path / "copy")
    (out / "tasks.safetensors").unlink()
    with pytest.raises(EncoderError, match=r"tasks\.safetensors: this file is missing"):
        load_tasks(out)
    (out / "SHA256SUMS").unlink()
    with pytest.raises(EncoderError, match="the heads of the tasks cannot be opened"):
        load_tasks(out)
    with pytest.raises(SettingError, match="this model has no tasks"):
        load_tasks("toy")


def test_the_most_confident_mistakes_come_first():
    from nearfar.data import Records

    records = Records((["a", "b", "c"], ["d", "e", "f"]), ["x", "y", "x"], None, [2, 3, 4], "f.csv")
    labels = TaskCard("t", "pairs", {"kind": "joint"}, "accuracy", ("x", "y"))
    outputs = np.array([[0.0, 1.0], [0.0, 1.0], [0.0, 3.0]], dtype=np.float32)
    found = worst(labels, outputs, np.array([0, 1, 0]), records, 5)
    assert [(one["line"], one["truth"], one["said"]) for one in found] == [(4, "x", "y"), (2, "x", "y")]
    assert found[0]["sure"] == pytest.approx(1 / (1 + np.exp(-3)))
    scores = TaskCard("t", "scores", {"kind": "joint"}, "pearson", None, 1.0, 5.0)
    found = worst(scores, np.array([[0.5], [0.0], [1.0]], dtype=np.float32), np.array([0.25, 0.0, 0.0]), records, 1)
    assert found == [{"line": 4, "texts": ["c", "f"], "truth": 1.0, "said": 5.0, "sure": 4.0}]


def child(children: Any, *arguments: Any) -> int:
    process = children.Process(target=train_tasks_in_child, args=arguments)
    process.start()
    process.join(180)
    assert process.exitcode is not None
    return int(process.exitcode)


RUNS: dict[str, tuple[dict[str, Any], list[int]]] = {
    "surgery": (
        {"training": {"gradient_surgery": "pcgrad", "weighting": "uncertainty"}, "shared_layer": True,
         "same": {"head": {"kind": "joint-difference-activated"}}},
        [2, 7],
    ),
    "one after the other": ({"schedule": {"kind": "sequential"}, "close": {"head": {"kind": "concat"}}}, [13]),
    "blocks": (
        {"schedule": {"kind": "block-round-robin", "order": ["same", "kind", "same", "close"]},
         "encoder": {"name": "toy", "max_length": 24, "frozen": True}},
        [9],
    ),
    "mixed": (
        {"schedule": {"kind": "mixed"}, "batches": {"size": 16}, "training": {"accumulate": 2}, "shared_layer": True,
         "shared_dropout": {"before": 0.3, "inside": 0.2}, "kind": {"head": {"hidden_layers": 1}},
         "same": {"head": {"kind": "concat", "single_logit": True}}},
        [2],
    ),
    "sampled": ({"schedule": {"sampling": "square-root"}, "kind": {"objective": {"name": "triple-entropy"}}}, [6]),
}  # fmt: skip


@pytest.mark.parametrize("name", RUNS)
def test_a_run_killed_within_an_epoch_resumes_to_the_same_bits(name, children, folder, tmp_path):
    """kill -9 in the middle of a multi-task epoch: weights, heads and journal are those of the whole run."""
    changes, kills = RUNS[name]
    whole = tmp_path / "whole"
    assert child(children, str(folder), str(whole), changes, None, False) == 0
    for step in kills:
        out = tmp_path / f"killed-{step}"
        assert child(children, str(folder), str(out), changes, step, False) == -signal.SIGKILL
        assert not (out / "nearfar.json").exists()
        assert child(children, str(folder), str(out), changes, None, True) == 0
        assert digest(out) == digest(whole)
        assert "tasks.safetensors" in digest(out)
        assert losses(out) == losses(whole)


def losses(out: Path) -> list[Any]:
    keys = ("step", "loss", "parts", "tasks", "surgery", "task_weights", "gradient_norm", "scores")
    return [{key: entry.get(key) for key in keys} for entry in read_journal(out / "journal.jsonl")]


def test_a_checkpoint_of_other_tasks_is_refused(children, folder, tmp_path):
    out = tmp_path / "model"
    assert child(children, str(folder), str(out), {}, 3, False) == -signal.SIGKILL

    with pytest.raises(CheckpointError, match="another recipe or other data"):
        trained(task_recipe(folder, close={"weight": 2.0}), out, resume=True)


def test_heads_are_dropped_in_training_on_several_tasks_as_well(folder, tmp_path):
    """All settings of the encoder count: with another noise other weights come out."""
    found = {}
    for name, encoder in (("plain", {}), ("drophead", {"drophead": 0.5}), ("cutoff", {"cutoff": 0.5})):
        settings = {"name": "toy", "max_length": 24, "dropout": 0.0, **encoder}
        trained(task_recipe(folder, encoder=settings, training={"epochs": 1}), tmp_path / name)
        found[name] = digest(tmp_path / name)["model.safetensors"]
    assert len(set(found.values())) == 3


def test_an_encoder_that_cannot_be_opened_replaces_nothing(folder, tmp_path):
    """What --overwrite is to replace goes only when the run is sure to begin."""
    out = tmp_path / "model"
    out.mkdir()
    (out / "recipe.toml").write_text("seed = 1")
    recipe = task_recipe(folder, encoder={"name": str(tmp_path / "nowhere")})
    with pytest.raises(EncoderError, match="nowhere"):
        trained(recipe, out, overwrite=True)
    assert (out / "recipe.toml").read_text() == "seed = 1"


def test_the_objective_of_a_task_has_its_own_rate_threshold_and_temperature(folder, tmp_path):
    """As in a run of one task: its weights learn at it, its groups begin at it, and the journal tells of them."""
    rows = [{"text_a": f"a {n // 2}", "text_b": f"b {n}", "score": 0.4} for n in range(14)]
    rows += [{"text_a": "low", "text_b": "lowest", "score": 0.0}, {"text_a": "high", "text_b": "highest", "score": 1.0}]
    (tmp_path / "graded.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    kind = {"objective": {"name": "soft-triple", "learning_rate": 0.5}}
    masked = {}
    for threshold in (0.3, 0.5):
        contrast = {"name": "batch-softmax", "trainable": True, "threshold": threshold}
        close = {"objective": contrast, "head": {"kind": "cosine"}}
        recipe = task_recipe(
            folder, tasks=("kind", "close"), kind=kind, close=close, batches={"size": 16}, training={"epochs": 1},
            close_data={"train": str(tmp_path / "graded.jsonl"), "dev": str(folder / "scores.jsonl")},
        )  # fmt: skip
        trained(recipe, tmp_path / str(threshold))
        steps = [entry for entry in read_journal(tmp_path / str(threshold) / "journal.jsonl") if "loss" in entry]
        assert steps[0]["learning_rates"]["objective/kind/soft_triple"] == pytest.approx(0.5)
        assert all(set(entry["temperatures"]) == {"close/batch_softmax"} for entry in steps)
        counted = [entry for entry in steps if "masked" in entry]
        assert all("close" in entry["tasks"] for entry in counted)
        masked[threshold] = sum(entry["masked"]["close/batch_softmax"] for entry in counted)
    assert masked == {0.3: 14 * 2, 0.5: 0}  # each of 14 rows has one other of its group, in both directions


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"kind": {"objective": {"name": "batch-softmax"}}}, SettingError, "it compares pairs of texts"),
        ({"schedule": {"kind": "round-robin", "order": ["knd"]}, "training": {"evaluate_every": "epoch"}}, SettingError, "'knd'"),
        ({"kind": {"objective": {"name": "supcon"}, "batch_size": 1}}, SettingError, "set batch_size to 2 or more"),
        ({"stage": [{"data": {"train": "nowhere.txt"}, "objective": {"name": "simcse"}}]}, DataError, "nowhere.txt: there is"),
        ({"stage": [{"data": {"train": "plain.csv"}, "objective": {"name": "supcon"}}]}, DataError, "recognized as the label"),
        ({"close_data": {"dev": "no.jsonl"}}, DataError, "or score in [task.data]"),
        ({"close": {"objective": {"name": "contrastive-pairs"}}, "close_data": {"train": "half.jsonl"}}, DataError, "half.jsonl:2: contr"),
        ({"same": {"head": {"kind": "cosine"}}, "same_data": {"dev": "no.jsonl"}}, SettingError, "'same', its dev rows: none of"),
    ],
)  # fmt: skip
def test_what_cannot_end_well_is_refused_before_anything_is_replaced(
    changes, error, message, folder, tmp_path, monkeypatch
):
    """By a dry run, which opens no encoder, and so before --overwrite takes away the model that is there."""
    monkeypatch.chdir(tmp_path)
    Path("plain.csv").write_text("text\na plum\na pear\n")
    Path("no.jsonl").write_text("".join(f'{{"text_a": "a", "text_b": "{row}", "label": 0}}\n' for row in range(4)))
    Path("half.jsonl").write_text(
        "".join(f'{{"text_a": "a", "text_b": "{row}", "score": {row / 2}}}\n' for row in range(3))
    )
    Path("model").mkdir()
    Path("model/recipe.toml").write_text("seed = 1")
    recipe = task_recipe(folder, **changes)
    with pytest.raises(error) as refused:
        plan_task_run(recipe)
    assert message in str(refused.value)
    with pytest.raises(error):
        trained(recipe, Path("model"), overwrite=True)
    assert Path("model/recipe.toml").read_text() == "seed = 1"


def test_dev_scores_that_are_all_alike_are_told(folder, tmp_path):
    rows = [{"text_a": "a", "text_b": f"{row}", "score": 0.5} for row in range(4)]
    (tmp_path / "flat.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    notes = plan_task_run(task_recipe(folder, close_data={"dev": str(tmp_path / "flat.jsonl")})).notes
    assert [note for note in notes if "task close: all scores of its dev rows are alike" in note]
    assert not [note for note in plan_task_run(task_recipe(folder)).notes if "alike" in note]


@pytest.mark.parametrize("name", ["type", "train", "keys"])
def test_a_task_may_have_a_name_that_modules_use_themselves(name, folder, tmp_path):
    recipe = task_recipe(folder, tasks=("kind", "close"), kind={"name": name}, training={"epochs": 1, "max_steps": 2})
    summary, _ = trained(recipe, tmp_path / "model")
    opened = load_tasks(tmp_path / "model")
    (said,) = opened.predict(name, [["a plum"]])
    assert set(said.probabilities) == {"animal", "fruit", "tool"}
    assert evaluate_saved(tmp_path / "model", opened, name)[0]["dev"][name].scores == pytest.approx(
        summary.reports["dev"][name].scores, abs=1e-6
    )


def test_labels_under_a_cosine_begin_where_the_metric_of_the_task_is_best():
    """Predicted labels have the accuracy that evaluation reports, or its F1."""
    card = TaskCard("t", "pairs", {"kind": "cosine"}, "accuracy", ("0", "1"), threshold=0.2, accuracy_threshold=0.6)
    cosine = np.array([0.4], dtype=np.float32)
    assert answer(card, cosine).label == "0"
    assert answer(replace(card, metric="f1"), cosine).label == "1"
    assert answer(replace(card, accuracy_threshold=None), cosine).label == "0"


def test_dev_files_suffice_to_measure_a_saved_model(folder, tmp_path):
    """Training rows that are gone are told; where a share of them is measured, the message says which task and what else."""
    data = tmp_path / "data"
    data.mkdir()
    for name in ("scores.jsonl", "labels.jsonl"):
        shutil.copy(folder / name, data / name)
    recipe = task_recipe(
        data, tasks=("same", "close"), training={"epochs": 1, "max_steps": 2},
        close_data={"dev": str(folder / "scores.jsonl")},
    )  # fmt: skip
    summary, _ = trained(recipe, tmp_path / "model")
    (data / "scores.jsonl").unlink()
    (data / "labels.jsonl").unlink()
    opened = load_tasks(tmp_path / "model")

    found, (note,) = evaluate_saved(tmp_path / "model", opened, "close")
    assert found["dev"]["close"].scores == pytest.approx(summary.reports["dev"]["close"].scores, abs=1e-6)
    assert note.startswith("task close: its training rows cannot be read: ")
    with pytest.raises(DataError, match=r"task 'same': there is no such file.*Other rows: --task same FILE"):
        evaluate_saved(tmp_path / "model", opened)


def test_a_stage_that_was_trained_is_not_trained_again(children, folder, tmp_path):
    """Killed after its stage: the resumed run says so and ends in the same bits."""
    stage = {
        "data": {"train": str(folder / "scores.jsonl"), "dev": 0},
        "objective": {"name": "simcse"},
        "batch_size": 8,
    }
    changes = {"tasks": ("kind",), "stage": [stage]}
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    trained(task_recipe(folder, **changes), whole)
    assert child(children, str(folder), str(killed), changes, 5, False) == -signal.SIGKILL
    other = {**changes, "stage": [{**stage, "batch_size": 16}]}
    with pytest.raises(CheckpointError, match="this stage was trained by another recipe"):
        trained(task_recipe(folder, **other), killed, resume=True)
    _, said = trained(task_recipe(folder, **changes), killed, resume=True)
    assert "stage 1 of 1, before the tasks: simcse (trained before)" in said
    assert "nothing to resume" not in said
    assert digest(killed) == digest(whole)


def test_a_task_knows_the_classes_that_its_limit_leaves_out(folder):
    """As in a run of one task: dev rows have them, and what is missing is told."""
    plan = plan_task_run(task_recipe(folder, tasks=("kind",), kind_data={"limit": 2}))
    (kind,), notes = plan.tasks, plan.notes
    assert len(set(kind.data.train.labels)) == 2
    assert kind.card.labels == ("animal", "fruit", "tool")
    assert any("leaves 1 of 3 classes without a training text" in note for note in notes)
