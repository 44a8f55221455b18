"""Fair by construction: the same conditions for all contenders, what differs is told, who did not train is flagged."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path
from statistics import fmean

import pytest

from nearfar.cli.tune import show
from nearfar.errors import RecipeError
from nearfar.experiments.comparisons import Family, compare, overall, verdict
from nearfar.experiments.conditions import conditions_of
from nearfar.experiments.plan import plan_study
from nearfar.experiments.race import Line
from nearfar.experiments.records import JOURNAL, PREDICTIONS, Record, read_journal, read_records, write_record
from nearfar.experiments.rows import split
from nearfar.experiments.search import resolved_recipe
from nearfar.experiments.study import read_study
from nearfar.experiments.training_checks import chance, doubts, fall, flags_of, is_flat, still_rises
from nearfar.experiments.trial import Planned
from nearfar.experiments.tune import Tuned
from tests.experiments.studies import nearfar, small_study, texts

OPEN = ("[recipe.training]\nepochs = 1\n[recipe.batches]\nsize = 8\n", "")
"""Nothing is said of epochs and batches."""
OWN = ("folds = 3", 'folds = 3\ndefaults = "own"')
COMPARED = ('name = "triple-entropy"\ncenters = 2', 'name = "supcon"')


def planned(folder: Path, *edits: tuple[str, str]) -> Planned:
    return plan_study(read_study(small_study(folder, *edits)))


def values_of(plan: Planned, contender: str) -> dict[str, object]:
    return next(trial.values for trial in plan.trials.values() if trial.contender == contender)


def test_contenders_get_the_same_batches_steps_head_and_pooling(tmp_path):
    """Cross-entropy alone has batches of 32, a trained head of its own; supcon 64, balanced, and nearest centers."""
    plan = planned(tmp_path, OPEN, COMPARED)
    for name in ("plain", "triple"):
        values = values_of(plan, name)
        assert values["head"] == {"kind": "logistic"}
        assert values["encoder"] == {"name": "toy", "pooling": "mean"}
    assert values_of(plan, "plain")["batches"] == {"size": 64, "shuffle": "balanced"}
    assert "batches" not in values_of(plan, "triple")  # what it has by itself is not written
    assert any(note.startswith("things: so that all contenders have the same, plain gets") for note in plan.notes)


def steps_of(plan: Planned, contender: str) -> int:
    """The optimizer steps of a contender's first trial, by what it would choose for its rows."""
    trial = next(trial for trial in plan.trials.values() if trial.contender == contender)
    recipe, rows = resolved_recipe(trial, split(plan.rows[trial.source.name], trial).train)
    assert recipe.batches.size is not None
    assert recipe.training.epochs is not None
    return min(recipe.training.epochs * -(-rows // recipe.batches.size), recipe.training.max_steps or 10**9)


def test_none_has_fewer_steps_than_by_itself(tmp_path):
    """All have as many as the one with the most."""
    texts(tmp_path, per_class=60)
    own = planned(tmp_path, OPEN, COMPARED, OWN)
    alone = [steps_of(own, name) for name in ("plain", "triple")]
    assert alone[0] != alone[1]
    plan = planned(tmp_path, OPEN, COMPARED)
    assert steps_of(plan, "plain") == steps_of(plan, "triple") >= max(alone)


def test_what_the_study_says_stays(tmp_path):
    """A key of the shared recipe, of a contender or of a search is left as it is."""
    said = (
        'objective = { name = "cross-entropy" }',
        'objective = { name = "cross-entropy" }\nhead = { kind = "trained" }',
    )
    plan = planned(tmp_path, COMPARED, said)
    assert values_of(plan, "plain")["head"] == {"kind": "trained"}
    assert "head" not in values_of(plan, "triple")
    assert values_of(plan, "plain")["training"] == {"epochs": 1}
    searched = ("centers = 2", 'centers = 2\n[contender.search]\nspace = { "batches.size" = [4, 8] }')
    plan = planned(tmp_path, OPEN, searched)
    assert "batches" not in values_of(plan, "triple")


def test_batches_of_different_sizes_still_make_the_same_steps(tmp_path):
    """Then the run ends within an epoch."""
    texts(tmp_path, per_class=60)
    said = ('objective = { name = "cross-entropy" }', 'objective = { name = "cross-entropy" }\nbatches = { size = 9 }')
    plan = planned(tmp_path, OPEN, COMPARED, said)
    assert values_of(plan, "plain")["batches"]["size"] == 9
    assert steps_of(plan, "plain") == steps_of(plan, "triple")


def test_own_defaults_on_request(tmp_path):
    """study.defaults = "own" changes nothing, and names trials as before."""
    plan = planned(tmp_path, OPEN, COMPARED, OWN)
    assert "head" not in values_of(plan, "plain")
    assert not plan.notes
    with pytest.raises(RecipeError, match="defaults"):
        read_study(small_study(tmp_path, ("folds = 3", 'folds = 3\ndefaults = "fair"')))


def test_equal_contenders_keep_their_trials(tmp_path):
    """Where nothing differs, nothing is written into the recipes, so trials of before are found again."""
    equal, own = planned(tmp_path), planned(tmp_path, OWN)
    assert list(equal.trials) == list(own.trials)


def test_stages_keep_their_epochs_and_a_contender_that_cannot_train_is_left_alone(tmp_path):
    """It fails as a trial, with its reason, and not the study."""
    staged = (
        '[contender.objective]\nname = "triple-entropy"\ncenters = 2',
        '[[contender.stage]]\nobjective = { name = "supcon" }',
    )
    plan = planned(tmp_path, OPEN, staged)
    assert "training" not in values_of(plan, "triple")
    assert "head" not in values_of(plan, "plain")  # a single contender is left, and has nothing to be equal to
    silent = ("centers = 2", 'centers = 2\nbeta = 0\n[contender.head]\nkind = "trained"')
    assert "head" not in values_of(planned(tmp_path, OPEN, silent), "plain")


def test_a_study_runs_under_equal_conditions_and_says_so(tmp_path):
    """Above the table: what is the same, what is not."""
    few = ("[recipe.training]\nepochs = 1\n[recipe.batches]\nsize = 8\n", "[recipe.training]\nepochs = 2\n")
    edits = (few, COMPARED, ("seeds = [2, 16]", "seeds = [2]"), ("folds = 3", "folds = 2"))
    ran = nearfar("run", small_study(tmp_path, *edits), "--workers", "1")
    assert ran.returncode == 0, ran.stderr
    before = ran.stdout.partition("small: f1_weighted")[0]
    assert "the same for all contenders: 2 optimizer steps, batches of 64 (balanced), linear schedule" in before
    assert "logistic head, mean pooling" in before
    assert "not the same: objective: cross-entropy (plain), supcon (triple)" in before
    records = read_records(tmp_path / "study")
    assert {sum(entry["kind"] == "step" for entry in read_journal(record)) for record in records} == {2}


# Signs of a contender that did not train


def test_flat_losses_as_loops():
    """First quarter against last quarter, written with one loop for each."""
    draw = random.Random(3)
    for _ in range(200):
        losses = [draw.uniform(0.5, 3) for _ in range(draw.randint(1, 40))]
        ends = fall(losses)
        if len(losses) < 4:
            assert ends is None
            continue
        first, last, quarter = 0.0, 0.0, len(losses) // 4
        for place in range(quarter):
            first += losses[place] / quarter
            last += losses[len(losses) - 1 - place] / quarter
        assert ends == pytest.approx((first, last))
        assert is_flat(*ends) == (last >= 0.9 * first)


def test_a_loss_that_is_zero_throughout_is_flat_and_one_that_falls_below_zero_is_not():
    assert is_flat(0.0, 0.0)
    assert is_flat(-1.0, -1.05)
    assert not is_flat(-1.0, -1.2)
    assert not is_flat(0.2, -0.3)


@pytest.mark.parametrize(
    ("scores", "rises"),
    [
        ([0.1, 0.3, 0.5], True),
        ([0.1, 0.5], False),  # too few
        ([0.1, 0.5, 0.5], False),
        ([0.1, 0.6, 0.5], False),
        ([0.5, 0.5, 0.504], False),  # noise
        ([0.2, 0.7, 0.72], False),  # all but done
    ],
)
def test_a_dev_score_that_still_rises(scores, rises):
    assert still_rises(scores) == rises


def run_of(
    folder: Path,
    contender: str,
    fold: int,
    losses: list[float],
    right: int,
    *,
    dev: tuple[float, ...] = (),
    of: int = 30,
) -> Record:
    """A finished run on three classes of ten, of which so many are right."""
    confusion = [[10, 0, 0], [0, 10, 0], [0, 0, 10]]
    for place in range(of - right):
        confusion[place % 3][place % 3] -= 1
        confusion[place % 3][(place + 1) % 3] += 1
    record = Record(
        id=f"{contender}-{fold}", data="d", limit=None, contender=contender, seed=2, fold=fold, status="done",
        metric="accuracy", scores={"accuracy": right / of}, labels=["a", "b", "c"], confusion=confusion, test=of,
        recipe={"objective": {"name": contender}, "training": {"learning_rate": 0.1 if contender == "x" else 0.2}},
    )  # fmt: skip
    entries = [{"kind": "step", "step": step, "loss": loss} for step, loss in enumerate(losses, 1)]
    entries += [{"kind": "evaluation", "scores": {"accuracy": score}, "metric": "accuracy"} for score in dev]
    journal = "".join(json.dumps(entry) + "\n" for entry in entries).encode()
    write_record(folder, record, {JOURNAL: journal, PREDICTIONS: b""})
    return replace(record, folder=folder / "trials" / record.id)


def test_flags_of_runs(tmp_path):
    """A contender with a flat loss at chance, one that still rises, and one that is fine; a minority of runs is not told."""
    flat, steep = [1.1, 1.1, 1.09, 1.08], [1.1, 0.8, 0.4, 0.2]
    runs = [run_of(tmp_path, "bad", fold, flat, 11) for fold in range(3)]
    runs += [run_of(tmp_path, "young", fold, steep, 20, dev=(0.2, 0.4, 0.6)) for fold in range(3)]
    runs += [run_of(tmp_path, "good", fold, flat if fold == 0 else steep, 25, dev=(0.5, 0.8, 0.8)) for fold in range(3)]
    flags = flags_of(runs)
    assert [(flag.contender, flag.sign) for flag in flags] == [
        ("bad", "flat loss"), ("bad", "at chance"), ("young", "still rising"),
    ]  # fmt: skip
    assert flags[0].sentence == ("bad on d: the training loss hardly falls in 3 of 3 runs (1.1 at first, 1.08 at last)")
    assert flags[1].what == "accuracy 0.367 is no better than always naming the most frequent class (0.333)"
    assert doubts(flags, "d", "good", "bad") == ["bad: flat loss", "bad: at chance"]
    assert not doubts(flags, "other", "bad")
    assert not flags_of([replace(runs[0], status="failed")])


def test_of_several_tasks_and_stages_the_loss_that_falls_least_counts(tmp_path):
    steep = run_of(tmp_path, "tasks", 0, [], 30)
    entries = [
        {
            "kind": "step",
            "step": step,
            "stage": stage,
            "loss": 1.0,
            "tasks": {"a": {"loss": 4.0 - step}, "b": {"loss": loss}},
        }
        for stage, loss in ((1, 1.0), (2, 0.5))
        for step in range(4)
    ]
    steep.path(JOURNAL).write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    (flag,) = flags_of([steep])
    assert flag.what == "the training loss hardly falls (1 at first, 1 at last)"


def test_chance_of_each_kind_of_rows(tmp_path):
    """The most frequent class, a coin for triplets, no correlation for scores; rankings have no such value."""
    one = run_of(tmp_path, "x", 0, [], 10)
    lopsided = replace(one, confusion=[[25, 5, 0], [4, 0, 1], [0, 0, 5]], test=40, scores={"accuracy": 0.75})
    assert chance(lopsided)[0] == 30 / 40
    assert [flag.sign for flag in flags_of([lopsided])] == ["at chance"]
    triplets = replace(one, kind="triplets", confusion=[], labels=[], test=100)
    for accuracy, flagged in ((0.45, True), (0.57, True), (0.6, False)):
        assert bool(flags_of([replace(triplets, scores={"accuracy": accuracy})])) == flagged
    scored = replace(triplets, kind="scores", metric="spearman")
    for spearman, flagged in ((-0.4, True), (0.16, True), (0.17, False)):
        assert bool(flags_of([replace(scored, scores={"spearman": spearman})])) == flagged
    assert not flags_of([replace(triplets, kind="ranking", metric="map", scores={"map": 0.01})])


def test_chance_agrees_with_a_simulation(tmp_path):
    """Guessing classes at random is flagged in about 95 % of all cases, as the test says."""
    draw = random.Random(1)
    flagged = []
    for _ in range(400):
        right = sum(draw.random() < 1 / 3 for _ in range(300))
        run = Record(
            id="a", data="d", limit=None, contender="x", seed=2, fold=0, status="done", metric="accuracy", test=300,
            scores={"accuracy": right / 300}, labels=["a", "b", "c"], confusion=[[100, 0, 0], [0, 100, 0], [0, 0, 100]],
        )  # fmt: skip
        flagged.append(bool(flags_of([run])))
    assert 0.92 <= fmean(flagged) <= 0.98


def test_a_verdict_names_its_doubts_first():
    scores = {
        ("d", name, 2, fold): value + fold**2 / shift
        for name, value, shift in (("a", 0.5, 100), ("b", 0.3, 90))
        for fold in range(5)
    }
    comparison = compare(scores, data="d", contender="b", baseline="a")
    assert verdict(comparison, doubts=["b: flat loss"]).startswith("flagged (b: flat loss): b is worse than a on d")
    family = Family("b", "a", (comparison,), ())
    assert overall(family, ["d"]).startswith("flagged on d: of 1 data set, b is better than a on 0")


def test_conditions_of_one_contender_say_nothing_and_untrained_ones_are_told(tmp_path):
    one, other = run_of(tmp_path, "x", 0, [1.0] * 4, 30), run_of(tmp_path, "y", 0, [1.0] * 5, 30)
    assert not conditions_of([one]).lines()
    lines = conditions_of([one, other]).lines()
    assert lines == [
        "not the same: optimizer steps: 4 (x), 5 (y)",
        "not the same: objective: x, y",
        "not the same: training.learning_rate: 0.1 (x), 0.2 (y)",
    ]
    assert conditions_of([one, other]).of("y") == "optimizer steps=5; objective=y; training.learning_rate=0.2"
    still = replace(other, recipe={"encoder": {"name": "toy"}, "untrained": "as-is"})
    assert conditions_of([one, still]).lines()[-1] == "not the same: training: trained (x), as-is (y)"


def test_a_tune_prints_conditions_and_flags_before_its_table(tmp_path, capsys):
    """Contenders that did not train are named above the ranking, and marked in it."""
    flags = flags_of([run_of(tmp_path, "bad", 0, [1.0] * 4, 30)])
    lines = (Line("good", (0.9,), 1.0, "best"), Line("bad", (0.3,), 1.0, ""))
    conditions = ("not the same: objective: good, bad",)
    show(Tuned(tmp_path, "good", "accuracy", lines, ("good wins",), conditions, flags, 2.0, judged=True))
    told = capsys.readouterr().out
    before, _, table = told.partition("accuracy, the best first")
    assert before.splitlines() == [
        "not the same: objective: good, bad",
        "warning: bad on d: the training loss hardly falls (1 at first, 1 at last)",
    ]
    marked = {line.split("│")[1].strip(): line.split("│")[5].strip() for line in table.splitlines() if "│" in line}
    assert marked == {"good": "", "bad": "flat loss"}
