"""Tuning: who contends, who is dropped, what fits into the time, who wins, and what is said of it.

Where no training is needed to see it, records are written beforehand: a trial that is there is never run again.
"""

from __future__ import annotations

import gzip
import json
import math
import os
import signal
import time
import tomllib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from nearfar import pipeline
from nearfar.data import RowType, limits, read
from nearfar.encoding import build, load
from nearfar.errors import DataError, Interrupted, NearfarError, OutputError, RecipeError, SettingError
from nearfar.experiments.local_executor import LocalExecutor
from nearfar.experiments.race import BEHIND, Race, TimeIsUp, Wave, is_behind, makespan
from nearfar.experiments.records import TRIALS, Record, find_record, read_plan, read_records, write_record
from nearfar.experiments.search import train
from nearfar.experiments.search_space import BASELINE, Prepared, Request, contenders_for, prepare
from nearfar.experiments.state import STATE, Clock, State, identity_of
from nearfar.experiments.trial_runner import TrialRunner
from nearfar.experiments.trials import perform
from nearfar.experiments.tune import Tuned, forget_failed, tune
from nearfar.experiments.worker import LOG
from nearfar.pipeline.defaults import FEW_ROWS
from nearfar.recipe import parse_override
from nearfar.seeds import stream
from nearfar.training import Callback, StepEntry
from tests.experiments.studies import WORDS, texts
from tests.training.runs import digest

SMALL = ("encoder.name=toy", "training.epochs=1", "batches.size=8")
OTHERS = ["cross-entropy", "cross-entropy on the mean at 5e-05", "cross-entropy+supcon", "triple-entropy"]
KINDS = ("classes", "scores", "pairs")


class Heard:
    """A watcher that remembers."""

    def __init__(self) -> None:
        self.notices: list[str] = []
        self.leaders: list[str | None] = []

    def begin(self, done: int, total: int) -> None:
        self.begun = (done, total)

    def message(self, text: str) -> None:
        self.notices.append(text)

    def trial(self, record: Record, done: int, total: int, left: float | None, leader: str | None) -> None:
        self.leaders.append(leader)

    def end(self) -> None:
        self.ended = True


def rows(folder: Path, kind: str, *, number: int = 24) -> Path:
    """A small file of a kind."""
    if kind == "classes":
        return texts(folder, per_class=number // 2)
    words = [word for group in WORDS.values() for word in group]
    made = []
    for row in range(number):
        same = row % 2
        left, right = words[row % 8], words[(row if same else row + 3) % 8]
        target = {"score": 4.0 * same + row / number} if kind == "scores" else {"label": same}
        made.append({"text_a": f"the {left} of {row}", "text_b": f"{row} about a {right}", **target})
    path = folder / f"{kind}.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in made))
    return path


def asked(folder: Path, kind: str = "classes", *, settings: tuple[str, ...] = SMALL, **values: object) -> Request:
    """A small tune of two rounds of three folds."""
    given: dict[str, object] = {
        "file": str(rows(folder, kind)), "out": folder / "tuned", "rounds": 2, "vectors": kind == "pairs",
        "settings": tuple(map(parse_override, settings)), **values,
    }  # fmt: skip
    return Request(**given)  # type: ignore[arg-type]


def plant(
    request: Request,
    score: Callable[[str, int], float | None],
    *,
    places: int = 99,
    seconds: float = 1.0,
    skip: tuple[str, ...] = (),
) -> Prepared:
    """Leave records as if trials had run: ``score`` of a contender at a place, None for a failed trial."""
    prepared = prepare(request)
    plan = prepared.planned.plan
    order = list(dict.fromkeys((cell.seed, cell.fold) for cell in plan.cells))
    for cell in plan.cells:
        place = order.index((cell.seed, cell.fold))
        if place >= places or cell.contender in skip:
            continue
        found = score(cell.contender, place)
        record = Record(
            id=cell.id, data=cell.data, limit=cell.limit, contender=cell.contender, seed=cell.seed, fold=cell.fold,
            status="failed" if found is None else "done", metric=plan.metric, seconds=seconds,
            reason="it was too hot\nfor it" if found is None else None,
            scores={} if found is None else {plan.metric: found},
        )  # fmt: skip
        write_record(request.out, record, {})
    if not (request.out / STATE).exists():  # by which a tune knows its folder
        state = State(identity_of(prepared))
        state.write(request.out, Clock(60, time.monotonic(), 0.0))
    return prepared


def race_of(prepared: Prepared, *, left: float = 1e6, workers: int = 2) -> tuple[Race, Clock]:
    clock = Clock(left, time.monotonic(), 0.0)
    return Race(prepared, Heard(), LocalExecutor(workers), clock, State(identity_of(prepared))), clock


def run_race(race: Race) -> None:
    race.run(TrialRunner(race.request.out, race.prepared.planned, race.watcher, race.executor))


def quiet(request: Request, heard: Heard | None = None, **values: object) -> Tuned:
    return tune(request, heard or Heard(), **values)  # type: ignore[arg-type]


NOISE = (0.01, -0.01, 0.02, -0.02, 0.0, 0.01)
"""What makes folds differ; the same for everybody."""


# Who contends


def test_the_default_comes_first_and_the_simplest_second():
    few, many = contenders_for(RowType.LABELED, FEW_ROWS), contenders_for(RowType.LABELED, FEW_ROWS + 1)
    assert list(few)[:2] == ["supcon", BASELINE]
    assert list(many)[:2] == ["cross-entropy", BASELINE]
    assert sorted(few) == sorted(["supcon", BASELINE, *OTHERS])
    assert set(many) ^ set(few) == {"cross-entropy on the mean at 5e-05", "cross-entropy on the mean at 0.0001"}
    assert next(iter(contenders_for(RowType.LABELED, FEW_ROWS + 1, classes=FEW_ROWS))) == "supcon"
    assert list(contenders_for(RowType.SCORED_PAIRS, 10))[:2] == ["cosine-mse", BASELINE]
    assert list(contenders_for(RowType.BINARY_PAIRS, 10))[:2] == ["batch-softmax", BASELINE]


def test_the_encoder_as_it_is_gets_a_logistic_head_unless_another_is_asked_for():
    assert contenders_for(RowType.LABELED, 10)[BASELINE]["head"] == {"kind": "logistic"}
    assert "head" not in contenders_for(RowType.LABELED, 10, fixed={"head.kind"})[BASELINE]
    assert "head" not in contenders_for(RowType.SCORED_PAIRS, 10)[BASELINE]


def test_what_the_user_has_set_is_not_varied():
    def varied(*fixed):
        found = contenders_for(RowType.LABELED, 10, fixed=fixed)
        return {name: found[name] for name in found if name.startswith("cross-entropy ")}

    plain = {"objective": {"name": "cross-entropy"}}
    mean, slower = {"encoder": {"pooling": "mean"}}, {"training": {"learning_rate": 5e-5}}
    assert varied() == {"cross-entropy on the mean at 5e-05": plain | mean | slower}
    assert varied("training.learning_rate") == {"cross-entropy on the mean": plain | mean}
    assert varied("encoder.pooling") == {"cross-entropy at 5e-05": plain | slower}
    assert varied("encoder.pooling", "training.learning_rate") == {}


def test_limits_of_the_readers_are_lifted_by_a_flag(tmp_path, monkeypatch):
    """Also where the winner is trained on all rows."""
    request = asked(tmp_path)
    packed = tmp_path / "packed.jsonl.gz"
    packed.write_bytes(gzip.compress(Path(request.file).read_bytes()))
    monkeypatch.setattr(limits, "FREE", 10)
    monkeypatch.setattr(limits, "EXPANSION", 1)
    with pytest.raises(DataError, match="--large"):
        prepare(replace(request, file=str(packed)))
    prepared = prepare(asked(tmp_path, file=str(packed), settings=(*SMALL, "data.large=true")))
    assert all(trial.source.layout["large"] for trial in prepared.planned.trials.values())


@pytest.mark.parametrize("kind", KINDS)
def test_every_contender_trains_on_its_rows(kind, tmp_path):
    """One trial of each, in this process; all of them share rows and folds."""
    prepared = prepare(asked(tmp_path, kind, rounds=1))
    plan = prepared.planned.plan
    assert plan.metric == {"classes": "f1_weighted", "scores": "spearman", "pairs": "f1"}[kind]
    assert plan.baseline == BASELINE
    first = [trial for trial in prepared.planned.trials.values() if trial.fold == 0]
    assert [trial.contender for trial in first] == list(contenders_for(RowType(kind), 24))
    tested = set()
    for number, trial in enumerate(first):
        (tmp_path / str(number)).mkdir()
        record, files = perform(trial, tmp_path / str(number))
        assert record.done, f"{trial.contender}: {record.reason}"
        lines = files["predictions.jsonl"].decode().splitlines()
        tested.add(tuple(json.loads(line)["row"] for line in lines))
    assert len(tested) == 1


def test_the_simplest_leaves_the_encoder_as_it_is(tmp_path):
    """Its weights after training are those from before, and those of others are not."""
    request = asked(tmp_path, rounds=1)
    before = build("toy", classes=None, seed=stream(request.seed, "head")).model.state_dict()
    moved = {}
    for trial in list(prepare(request).planned.trials.values())[:2]:
        out = tmp_path / trial.contender.replace(" ", "-")
        train(trial, {}, read(request.file), out)
        after = load(out).model.state_dict()
        moved[trial.contender] = max(float((after[name] - before[name]).abs().max()) for name in before)
    assert moved[BASELINE] < 1e-9
    assert moved["supcon"] > 1e-5


# Who is dropped


def test_behind_is_who_fails_the_corrected_test_against_the_leader():
    """By the formula, step by step, on random differences; all four outcomes occur."""
    chance, seen = np.random.default_rng(5), set()
    for _ in range(300):
        n, k = int(chance.integers(1, 9)), int(chance.integers(2, 6))
        d = chance.normal(chance.choice([-0.05, 0.0, 0.05]), 0.02, size=n).tolist()
        mean = sum(d) / n
        expected = False
        if n >= 3 and mean < 0:
            spread = math.sqrt(sum((each - mean) ** 2 for each in d) / (n - 1))
            t = mean / (spread * math.sqrt(1 / n + 1 / (k - 1)))
            expected = 2 * stats.t.sf(abs(t), n - 1) < BEHIND
        assert is_behind(d, k) is bool(expected)
        seen.add((n >= 3, mean < 0, bool(expected)))
    assert {(True, True, True), (True, True, False), (True, False, False), (False, True, False)} <= seen


def test_who_is_clearly_behind_is_dropped_and_later_scores_of_it_do_not_count(tmp_path):
    """After three folds; what it would have had in the second round would have made it the best."""

    def score(name: str, place: int) -> float:
        if name == "triple-entropy":
            return (0.3 if place < 3 else 5.0) + 0.01 * place
        return {BASELINE: 0.7, "supcon": 0.9, "cross-entropy": 0.91}.get(name, 0.85) + NOISE[place] * (
            2 if name == "supcon" else 1
        )

    request, heard = asked(tmp_path), Heard()
    plant(request, score)
    tuned = quiet(request, heard)
    assert tuned.winner == "cross-entropy"
    assert tuned.judged
    assert any("triple-entropy is dropped: 0.6" in each and "over 3 folds" in each for each in heard.notices)
    by_name = {line.name: line for line in tuned.lines}
    assert by_name["triple-entropy"].outcome == "dropped"
    assert len(by_name["triple-entropy"].scores) == 3
    assert by_name["cross-entropy"].outcome == "best"
    assert len(by_name["cross-entropy"].scores) == 6
    assert tuned.lines[0].name == "cross-entropy"
    assert tuned.lines[-1].name == "triple-entropy"
    assert not (request.out / LOG).exists(), "nothing had to run"
    kept = {(record.contender, record.seed) for record in read_records(request.out)}
    assert ("triple-entropy", 2) in kept
    assert ("triple-entropy", 3) not in kept
    recipe = tomllib.loads((request.out / "model" / "recipe.toml").read_text())
    assert recipe["objective"]["name"] == "cross-entropy"
    assert recipe["data"]["train"] == request.file
    assert recipe["seed"] == 2


def test_the_simplest_is_never_dropped_and_may_win(tmp_path):
    """It is the measure for all others; of equal means it is taken."""
    request = asked(tmp_path)
    plant(request, lambda name, place: 0.2 + 0.001 * place if name == BASELINE else 0.9 + NOISE[place])
    tuned = quiet(request)
    assert tuned.winner == "supcon", "the default, of equal others"
    assert next(line for line in tuned.lines if line.name == BASELINE).outcome == ""
    assert len(next(line for line in tuned.lines if line.name == BASELINE).scores) == 6

    (tmp_path / "other").mkdir()
    request = asked(tmp_path / "other")
    plant(request, lambda name, place: 0.9 + NOISE[place])
    tuned = quiet(request)
    assert tuned.winner == BASELINE
    assert any("no training did better than none" in sentence for sentence in tuned.sentences)
    recipe = tomllib.loads((request.out / "model" / "recipe.toml").read_text())
    assert recipe["training"]["max_steps"] == 1
    assert recipe["head"]["kind"] == "logistic"


def test_the_race_ends_when_one_is_left_beside_the_simplest(tmp_path):
    """And there are folds enough to compare the two by: five of the nine."""
    request = asked(tmp_path, rounds=3)
    prepared = plant(
        request,
        lambda name, place: {BASELINE: 0.5, "supcon": 0.9}.get(name, 0.2) + NOISE[place % 6] * (name == "supcon"),
    )
    race, _ = race_of(prepared)
    race.enter_all()
    assert race.left == [BASELINE, "supcon"]
    assert len(race.entered) == 5


def test_a_contender_that_fails_is_out_and_the_others_go_on(tmp_path):
    request = asked(tmp_path, rounds=1)
    prepared = plant(request, lambda name, place: None if (name, place) == ("supcon", 1) else 0.5 + NOISE[place])
    race, _ = race_of(prepared)
    race.enter_all()
    assert race.out_of_it == {"supcon": "failed"}
    assert len(race.entered) == 3
    assert race.winner() == BASELINE
    heard = race.watcher
    assert isinstance(heard, Heard)
    assert heard.notices == ["supcon is out: its trial failed: it was too hot"]
    cells = race.plan_of_what_ran().cells
    assert sum(cell.contender == "supcon" for cell in cells) == 2, "one with its score, one with its reason"


def test_where_all_fail_the_reasons_are_told(tmp_path):
    request = asked(tmp_path, rounds=1)
    prepared = plant(request, lambda name, place: None)
    with pytest.raises(NearfarError, match=r"no contender could be trained.*supcon: it was too hot"):
        race_of(prepared)[0].enter_all()
    forget_failed(request.out, prepared.planned.plan)
    assert not list((request.out / TRIALS).iterdir()), "they run again in the next call"


# What fits


def test_trials_are_shared_out_to_processes():
    """Beside a queue, minute by minute."""
    chance = np.random.default_rng(3)
    for _ in range(50):
        seconds = chance.integers(1, 9, size=int(chance.integers(1, 12))).tolist()
        processes = int(chance.integers(1, 5))
        waiting, busy, now = list(seconds), [0] * processes, 0
        while waiting or any(busy):
            busy = [each or (waiting.pop(0) if waiting else 0) for each in busy]
            busy = [max(0, each - 1) for each in busy]
            now += 1
        assert makespan(seconds, processes) == now


@pytest.mark.parametrize(("left", "folds"), [(76.0, 2), (74.0, 1), (46.0, 1), (44.0, 0)])
def test_as_many_folds_run_as_fit_beside_the_last_training(left, folds, tmp_path):
    """Six trials of 10 s in two processes make 30 s a fold; training on all rows takes half as long again as a trial."""
    request = asked(tmp_path, rounds=1)
    race, _ = race_of(plant(request, lambda *_: 0.5, places=1, seconds=10.0), left=left)
    assert race.enter(race.places[0])
    assert race.reserve() == pytest.approx(15.0)
    assert race.next_wave(race.places[1:]) == race.places[1 : 1 + folds]


def test_a_wave_ends_with_its_round(tmp_path):
    request = asked(tmp_path)
    race, _ = race_of(plant(request, lambda *_: 0.5, places=1))
    assert race.next_wave(race.places) == race.places[:1], "the first fold runs alone, for nothing is known"
    assert race.enter(race.places[0])
    assert race.next_wave(race.places[1:]) == race.places[1:3]


def test_a_first_fold_that_is_too_long_is_given_up_when_that_is_seen(tmp_path):
    """One trial of 100 s has finished; six of them in two processes do not fit into 200 s with the last training."""
    request = asked(tmp_path, rounds=1)
    prepared = plant(request, lambda *_: 0.5, places=1, seconds=100.0, skip=(BASELINE, *OTHERS))
    race, _ = race_of(prepared, left=200.0)
    race.wave = Wave([trial for trial in race.trials.values() if trial.fold == 0], 2, 0.0)
    with pytest.raises(TimeIsUp):
        race.check_first()
    assert race.needed == pytest.approx(450.0)
    race.starting = 12.0
    assert race.first_needs() == pytest.approx(462.0), "processes have to start, too"
    race, _ = race_of(prepared, left=451.0)
    race.wave = Wave([trial for trial in race.trials.values() if trial.fold == 0], 2, 0.0)
    race.check_first()


def test_a_first_fold_that_the_alarm_ends_is_told_with_the_time_it_needs(tmp_path):
    """One trial was there, and the next would have taken hours: more than the time there was is needed."""
    request = asked(tmp_path, settings=("encoder.name=toy", "training.epochs=100000"), rounds=1)
    prepared = plant(request, lambda *_: 0.5, places=1, seconds=2.0, skip=("supcon",))
    race, clock = race_of(prepared, left=2.0, workers=1)
    race.starting, race.seconds = 0.5, {name: [0.1] for name in race.names}
    run_race(race)
    assert race.entered == []
    assert race.needed is not None
    assert race.needed >= clock.total
    assert "minutes are needed" in next(race.sentences("supcon"))


def test_without_time_for_a_fold_the_default_is_trained(tmp_path):
    """It says so; more minutes go on from there."""
    request, heard = asked(tmp_path, minutes=1e-4), Heard()
    tuned = quiet(request, heard)
    assert (tuned.winner, tuned.judged) == ("supcon", False)
    assert not (request.out / LOG).exists()
    (sentence,) = tuned.sentences
    assert "0.0001 minutes are too few for one fold of every contender" in sentence
    assert "supcon, the default, was taken" in sentence
    recipe = tomllib.loads((request.out / "model" / "recipe.toml").read_text())
    assert recipe["objective"]["name"] == "supcon"
    assert recipe["head"]["kind"] == "nearest-center"


def test_a_fold_that_does_not_fit_is_not_begun(tmp_path):
    """Trials of 1,000 s were measured, and there is a minute: the first fold decides."""
    request, heard = asked(tmp_path, minutes=1), Heard()
    plant(request, lambda name, place: 0.9 if name == "triple-entropy" else 0.5, places=1, seconds=1000.0)
    tuned = quiet(request, heard)
    assert tuned.winner == "triple-entropy"
    assert not (request.out / LOG).exists()
    assert read_plan(request.out).seeds == (2,)
    assert "over 1 fold" in tuned.sentences[0]
    assert any("too few runs to tell triple-entropy from frozen baseline" in sentence for sentence in tuned.sentences)
    assert any("triple-entropy is taken all the same" in sentence for sentence in tuned.sentences)


def test_trials_end_when_their_time_is_over(tmp_path):
    """Trainings that would take hours are stopped, with nothing left of them, and nothing counts."""
    request = asked(tmp_path, settings=("encoder.name=toy", "training.epochs=100000"), rounds=1)
    prepared = prepare(request)
    request.out.mkdir()
    race, clock = race_of(prepared, left=15.0, workers=1)
    run_race(race)
    assert race.entered == []
    assert 10 < clock.spent() < 60
    assert not [trial for trial in race.trials.values() if trial.contender == "supcon" and race_has(request, trial.id)]
    started = [json.loads(line) for line in (request.out / LOG).read_text().splitlines()]
    assert not Path(f"/proc/{started[0]['process']}").exists(), "its process is gone"


def race_has(request: Request, name: str) -> bool:
    return find_record(request.out, name) is not None


# What is said, and what is left


def test_differences_are_called_what_they_are(tmp_path):
    """Six folds: a large difference to the simplest is significant, a small one to the default is not."""
    request = asked(tmp_path)
    base = {BASELINE: 0.5, "supcon": 0.9, "cross-entropy": 0.905}
    plant(request, lambda name, place: base.get(name, 0.8) + NOISE[place] * (1 if name == "supcon" else -1))
    tuned = quiet(request)
    assert tuned.winner == "cross-entropy"
    assert tuned.sentences[0].startswith("cross-entropy has the highest mean of 6 contenders: f1_weighted 0.90")
    assert "over 6 folds" in tuned.sentences[0]
    assert tuned.sentences[1].startswith("cross-entropy is better than frozen baseline on t by 0.4")
    assert "all the same" not in tuned.sentences[1]
    assert tuned.sentences[2].startswith("no significant difference between cross-entropy and supcon on t")
    assert "cross-entropy is taken all the same" in tuned.sentences[2]
    assert "a little optimistic" in tuned.sentences[3]
    assert len(tuned.sentences) == 4


def test_a_finished_tune_runs_nothing_again_and_more_minutes_go_on(tmp_path):
    """The model stays as it is while the winner does; another winner replaces it."""
    request = asked(tmp_path, rounds=1, minutes=1)
    prepared = plant(request, lambda name, place: 0.9 if name == "supcon" else 0.5, places=1, seconds=1000.0)
    assert quiet(request).winner == "supcon"
    weights = request.out / "model" / "nearfar.json"
    first, heard = weights.stat().st_mtime_ns, Heard()
    again = quiet(request, heard)
    assert again.winner == "supcon"
    assert weights.stat().st_mtime_ns == first
    assert any("has had its 1 minutes" in notice for notice in heard.notices)
    assert any("is supcon, trained on all rows already" in notice for notice in heard.notices)
    assert again.spent > 0
    plant(request, lambda name, place: 0.99 if name == "cross-entropy" else 0.2)
    longer = asked(tmp_path, rounds=1, minutes=600)
    assert quiet(longer).winner == "cross-entropy"
    assert tomllib.loads((request.out / "model" / "recipe.toml").read_text())["objective"]["name"] == "cross-entropy"
    assert len(read_plan(request.out).cells) == len(prepared.planned.plan.cells)


class Steps(Callback):
    """Remembers the steps of a training, and sends Ctrl-C after one of them."""

    def __init__(self, last: int | None = None) -> None:
        self.taken: list[int] = []
        self.last = last

    def step(self, entry: StepEntry) -> None:
        self.taken.append(entry["step"])
        if entry["step"] == self.last:
            os.kill(os.getpid(), signal.SIGINT)


def test_a_last_training_that_was_stopped_goes_on_and_ends_the_same(tmp_path):
    """Ctrl-C after its third step: the next call continues it from there."""
    settings = ("encoder.name=toy", "training.epochs=4", "batches.size=8")
    score = lambda name, place: 0.9 if name == "cross-entropy" else 0.5  # noqa: E731
    (tmp_path / "peace").mkdir()
    peaceful = asked(tmp_path / "peace", settings=settings, rounds=1)
    plant(peaceful, score)
    quiet(peaceful)

    (tmp_path / "war").mkdir()
    request = asked(tmp_path / "war", settings=settings, rounds=1)
    plant(request, score)
    with pytest.raises(Interrupted, match="the same command goes on"):
        quiet(request, callbacks=[Steps(last=3)])
    assert not (request.out / "model" / "nearfar.json").exists()
    assert (request.out / "model" / "checkpoints").is_dir()
    steps = Steps()
    assert quiet(request, callbacks=[steps]).winner == "cross-entropy"
    assert steps.taken == list(range(4, 13)), "the first three are not taken again"
    assert digest(request.out / "model") == digest(peaceful.out / "model")
    entries = [json.loads(line) for line in (request.out / "model" / "journal.jsonl").read_text().splitlines()]
    assert [entry["step"] for entry in entries if entry["kind"] == "step"] == list(range(1, 13))


def killed_at_its_end(out: Path) -> None:
    """Leave a folder as a kill does between the last training and the note that it has finished."""
    state = json.loads((out / STATE).read_text())
    (out / STATE).write_text(json.dumps({**state, "fitted": None}))
    (out / "model" / "checkpoints" / "step-000003").mkdir(parents=True)


def test_a_last_training_that_had_finished_when_it_was_killed_is_not_done_again(tmp_path):
    request = asked(tmp_path, rounds=1)
    plant(request, lambda name, place: 0.9 if name == "cross-entropy" else 0.5)
    quiet(request)
    killed_at_its_end(request.out)
    steps = Steps()
    assert quiet(request, callbacks=[steps]).winner == "cross-entropy"
    assert steps.taken == []
    assert not (request.out / "model" / "checkpoints").exists()
    assert json.loads((request.out / STATE).read_text())["fitted"] == "cross-entropy"


def test_a_model_of_which_nobody_noted_that_it_had_finished_is_not_that_of_the_next_winner(tmp_path, monkeypatch):
    """Killed at the end of one training, and before the beginning of the other."""
    request = asked(tmp_path, rounds=1, minutes=1)
    plant(request, lambda name, place: 0.9 if name == "supcon" else 0.5, places=1, seconds=1000.0)
    assert quiet(request).winner == "supcon"
    killed_at_its_end(request.out)
    plant(request, lambda name, place: 0.99 if name == "cross-entropy" else 0.2)
    longer = asked(tmp_path, rounds=1, minutes=600)

    def stopped(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(pipeline, "train", stopped)
        with pytest.raises(Interrupted, match="stopped while cross-entropy was trained on all rows"):
            quiet(longer)
    assert quiet(longer).winner == "cross-entropy"
    assert tomllib.loads((request.out / "model" / "recipe.toml").read_text())["objective"]["name"] == "cross-entropy"


def test_the_model_of_an_earlier_winner_is_not_taken_for_that_of_the_next(tmp_path, monkeypatch):
    """The next one's training was stopped before it began: the old model is still there, and is replaced later."""
    request = asked(tmp_path, rounds=1, minutes=1)
    plant(request, lambda name, place: 0.9 if name == "supcon" else 0.5, places=1, seconds=1000.0)
    assert quiet(request).winner == "supcon"
    plant(request, lambda name, place: 0.99 if name == "cross-entropy" else 0.2)
    longer = asked(tmp_path, rounds=1, minutes=600)

    def stopped(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    objective = lambda: tomllib.loads((request.out / "model" / "recipe.toml").read_text())["objective"]["name"]  # noqa: E731
    with monkeypatch.context() as patch:
        patch.setattr(pipeline, "train", stopped)
        with pytest.raises(Interrupted, match="stopped while cross-entropy was trained on all rows"):
            quiet(longer)
    assert objective() == "supcon"
    assert quiet(longer).winner == objective() == "cross-entropy"
    heard = Heard()
    assert quiet(longer, heard).winner == "cross-entropy"
    assert any("is cross-entropy, trained on all rows already" in notice for notice in heard.notices)


def test_the_model_is_trained_on_all_rows_with_the_settings_of_the_user(tmp_path):
    request = asked(tmp_path, settings=(*SMALL, "training.weight_decay=0.2", "data.label=label"), minutes=1e-4)
    quiet(request)
    recipe = tomllib.loads((request.out / "model" / "recipe.toml").read_text())
    assert recipe["training"]["weight_decay"] == 0.2
    assert recipe["encoder"]["name"] == "toy"
    assert recipe["data"]["dev"] == 0
    assert recipe["data"]["label"] == "label"
    assert len(read(recipe["data"]["train"])) == 24


# What is refused


@pytest.mark.parametrize(
    ("values", "error", "message"),
    [
        ({"minutes": 0}, SettingError, "--minutes must be above 0, got 0; 10 is usual"),
        ({"minutes": -3.5}, SettingError, "--minutes must be above 0, got -3.5"),
        ({"minutes": math.nan}, SettingError, "--minutes must be above 0, got nan"),
        ({"minutes": math.inf}, SettingError, "--minutes must be above 0, got inf"),
        ({"folds": 1}, SettingError, "--folds must be 2 or more, got 1"),
        ({"rounds": 0}, SettingError, "--rounds must be 1 or more, got 0"),
        ({"seed": -1}, SettingError, "--seed must be from 0 to 2147483645, got -1"),
        ({"file": "-"}, SettingError, "standard input; name a file"),
        ({"file": "none.csv"}, DataError, "none.csv"),
        ({"metric": "spearman"}, SettingError, "--metric spearman: such rows have f1_weighted, f1_macro, accuracy"),
        ({"folds": 13}, DataError, "class 'fruit' has 12 texts, fewer than the 13 folds, and 1 other class. Give --folds 12"),
        ({"vectors": True}, DataError, "there are no pairs with a binary label or a score to be compared"),
        ({"settings": ("objective.name=supcon",)}, RecipeError, "the objective is what is to be found"),
        ({"settings": ("seed=3",)}, RecipeError, "Write --seed"),
        ({"settings": ("data.test=x.csv",)}, RecipeError, "it is divided into folds"),
        ({"settings": ("training.epoch=3",)}, RecipeError, "Did you mean 'epochs'"),
        ({"settings": ("training.epochs=0",)}, RecipeError, "--set training.epochs=0"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_with_a_remedy(values, error, message, tmp_path):
    with pytest.raises(error) as raised:
        prepare(asked(tmp_path, **values))
    assert message in str(raised.value)
    assert not (tmp_path / "tuned").exists()


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["a cat", "a dog", "a cow"], "neither labels nor scores to choose by. Add a column named label"),
        (["text_a,text_b", "a,b", "c,d", "e,f"], "neither labels nor scores to choose by. Add labels or scores"),
        (["text,label", "a,x", "b,x", "c,x", "d,x"], "all rows have the same label"),
        (["text,label", "a,x", "b,x", "c,x", "d,y"], "class 'y' has 1 text, fewer than the 3 folds. Add texts of it"),
        (["text,label", "a,x", "a,x", "a,x", "b,y", "b,y", "b,y"], "cannot make 3 folds"),
        (["text_a,text_b,score", "a,b,1", "c,d,2"], "cannot make 3 folds"),
    ],
)
def test_rows_that_cannot_be_tuned_on_are_refused(lines, message, tmp_path):
    path = tmp_path / ("t.txt" if "," not in lines[0] else "t.csv")
    path.write_text("\n".join(lines) + "\n")
    with pytest.raises(DataError) as raised:
        prepare(asked(tmp_path, file=str(path)))
    assert message in str(raised.value)


def test_pairs_called_like_and_unlike_are_refused_or_dropped(tmp_path):
    """Dropped they are from what is trained on, so that no trial fails of them."""
    path = rows(tmp_path, "pairs")
    with path.open("a") as file:
        file.write(json.dumps({"text_a": "0 about a cherry", "text_b": "the apple of 0", "label": 1}) + "\n")
    first = json.loads(path.read_text().splitlines()[0])
    assert {first["text_a"], first["text_b"], first["label"]} == {"0 about a cherry", "the apple of 0", 0}
    wrong = {"file": str(tmp_path / "wrong.jsonl"), "vectors": True}
    (tmp_path / "wrong.jsonl").write_text(path.read_text())
    with pytest.raises(DataError, match="contradicts line 1"):
        prepare(asked(tmp_path, **wrong))
    prepared = prepare(asked(tmp_path, settings=(*SMALL, "data.invalid=drop"), **wrong))
    for trial in list(prepared.planned.trials.values())[::6][:3]:
        (tmp_path / trial.id).mkdir()
        record, _ = perform(trial, tmp_path / trial.id)
        assert record.done, record.reason


def test_labels_that_are_no_yes_or_no_are_refused_for_vectors(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("text_a,text_b,label\na,b,near\nc,d,far\ne,f,near\n")
    with pytest.raises(DataError, match="near"):
        prepare(asked(tmp_path, file=str(path), vectors=True))


def test_a_tune_that_was_killed_before_its_state_was_written_can_be_begun_again(tmp_path):
    request = asked(tmp_path, minutes=0.001)
    request.out.mkdir(parents=True)
    for name in ("study.json", ".study.json", ".tune.json"):
        (request.out / name).write_text("{")
    quiet(request)
    assert not {".study.json", ".tune.json"} & {path.name for path in request.out.iterdir()}


def test_another_tune_in_the_folder_is_left_alone(tmp_path):
    """So are other things; minutes may differ, for they make no other tune."""
    request = asked(tmp_path)
    plant(request, lambda *_: 0.5)
    before = (request.out / "tune.json").read_bytes()
    with pytest.raises(OutputError, match=r"another tune is in this folder \(seed: 2, not 5\). Choose another --out"):
        quiet(asked(tmp_path, seed=5))
    with pytest.raises(OutputError, match="settings"):
        quiet(asked(tmp_path, settings=(*SMALL, "training.clip=0.5")))
    texts(tmp_path, per_class=11)
    with pytest.raises(OutputError, match="rows: "):
        quiet(request)
    assert (request.out / "tune.json").read_bytes() == before
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.txt").write_text("")
    with pytest.raises(OutputError, match="something else than a tune"):
        quiet(asked(tmp_path, out=tmp_path / "full"))
    with pytest.raises(OutputError, match="this is a file"):
        quiet(asked(tmp_path, out=tmp_path / "t.jsonl"))
    (request.out / "tune.json").write_text("{")
    with pytest.raises(OutputError, match="this cannot be read"):
        quiet(asked(tmp_path))
