"""Studies as a user runs them: continued, edited, interrupted, killed, with trials that fail and processes that die."""

from __future__ import annotations

import json
import os
import platform
import random
import shutil
import signal
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import ClassVar

import pytest
from rich.console import Console

from nearfar.cli.study_actions import Lines, trial_line
from nearfar.data import read
from nearfar.errors import OutputError
from nearfar.experiments import local_executor, race, trial_runner
from nearfar.experiments import study as study_module
from nearfar.experiments.comparisons import compare_all
from nearfar.experiments.estimates import _drawn, _Pace, _Steps, _whole
from nearfar.experiments.local_executor import LocalExecutor, cores
from nearfar.experiments.records import find_record, read_plan, read_records, scores_of, write_record
from nearfar.experiments.study import run_study, study_status
from nearfar.experiments.study_schema import Search
from nearfar.experiments.trial_runner import ATTEMPTS, AllTrials, exclusive
from nearfar.experiments.worker import give_back
from tests.experiments.studies import contents, end, events, kill, nearfar, small_study, start, wait_for
from tests.preloaded import PreloadedCommand, fresh_workers

ONE_SEED = ("[2, 16]", "[2]")


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a study of 6 trials that ran in peace; its file is beside it."""
    file = small_study(tmp_path_factory.mktemp("peace"), ONE_SEED)
    with fresh_workers():
        done = nearfar("run", file, "--workers", "1")
    assert done.returncode == 0, done.stderr
    assert "6/6" in done.stderr
    assert "too few runs to tell triple from plain on things" in done.stdout
    return file.with_suffix("")


def finished(study: Path) -> list[str]:
    return [str(entry["id"]) for entry in events(study) if entry["event"] == "finished"]


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc keeps what was freed, and gives it back")
def test_memory_of_a_finished_trial_goes_back_to_the_system():
    """Pieces below one that is in use stay with the process until it is told."""
    pieces = [bytearray(b"x") * 65_536 for _ in range(2_000)]
    kept = pieces.pop()
    pieces.clear()
    before = resident_mb()
    give_back()
    assert resident_mb() < before - 60
    assert len(kept) == 65_536


def resident_mb() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def test_two_processes_leave_the_same_records_as_one(undisturbed, tmp_path):
    """To the bit, clock and memory aside; and every trial ran once."""
    done = nearfar("run", small_study(tmp_path, ONE_SEED), "--workers", "2")
    assert done.returncode == 0, done.stderr
    assert contents(tmp_path / "study") == contents(undisturbed)
    assert len(finished(tmp_path / "study")) == len(set(finished(tmp_path / "study"))) == 6
    assert not (tmp_path / "study" / "scratch").exists()


def test_a_finished_study_runs_nothing_again_and_shows_its_table(undisturbed):
    """The table has the means of the records, and the sentence of the statistics."""
    before = len(events(undisturbed))
    done = nearfar("run", undisturbed.with_suffix(".toml"))
    assert "nothing ran" in done.stderr
    assert len(events(undisturbed)) == before
    shown = nearfar("show", undisturbed)
    (family,) = compare_all(scores_of(read_records(undisturbed)), baseline="plain")
    (found,) = family.comparisons
    assert f"{found.contender_scores.mean:.4f} ± {found.contender_scores.sd:.4f}" in shown.stdout
    assert f"{found.difference:+.4f}" in shown.stdout
    assert "3/3" in shown.stdout


def test_an_edited_study_runs_only_what_changed_and_says_so(undisturbed, tmp_path):
    """One contender was changed: its trials are new, those of the other stay."""
    folder = tmp_path / "study"
    shutil.copytree(undisturbed, folder)
    before = contents(folder)
    file = small_study(tmp_path, ONE_SEED, ("centers = 2", "centers = 3"))
    planned = nearfar("run", file, "--dry-run")
    assert "6 trials: 3 there, 3 to run" in planned.stdout
    assert "going by 3 finished trials" in planned.stdout
    done = nearfar("run", file, "--workers", "1")
    assert "the study was edited: 3 finished trials stay as they are, 3 trials are to run" in done.stderr
    assert "new or changed: triple on things (3)" in done.stderr
    assert "3 trials of before are no part of it any more; their records are kept" in done.stderr
    assert len(finished(folder)) == 9
    after = contents(folder)
    assert {name: after[name] for name in before} == before
    assert len(read_records(folder)) == len(read_plan(folder).cells) == 6


@pytest.mark.parametrize("content", ["{", '{"format": 1}', None])
def test_a_study_goes_on_without_its_plan(undisturbed, tmp_path, content):
    """A plan that cannot be read is to be removed, and then it is made anew; no trial is lost."""
    file, folder = small_study(tmp_path, ONE_SEED), tmp_path / "study"
    shutil.copytree(undisturbed, folder)
    if content is not None:
        (folder / "study.json").write_text(content)
        with pytest.raises(OutputError, match=r"study\.json: .* Remove it, and run the study again"):
            study_status(file, folder)
    (folder / "study.json").unlink()
    assert run_study(file, folder, Lines(Console(quiet=True), trial_line)).ran == 0
    assert len(read_records(folder)) == 6


def test_failed_trials_have_the_names_of_the_study_as_it_is_now(undisturbed, tmp_path):
    """A contender was renamed, which is no other trial."""
    file, folder = small_study(tmp_path, ONE_SEED, ('"triple"', '"renamed"')), tmp_path / "study"
    for record in read_records(undisturbed):
        write_record(folder, replace(record, status="failed", scores={}, reason="too hot"), {})
    outcome = run_study(file, folder, Lines(Console(quiet=True), trial_line))
    assert [record.contender for record in outcome.failed] == ["plain", "renamed"] * 3


def test_a_failed_trial_is_recorded_and_does_not_stop_the_others(tmp_path):
    """It stays failed until asked for again, and then it may succeed."""
    file = small_study(tmp_path, ONE_SEED, ('name = "plain"', 'name = "plain"\nencoder = { name = "./none" }'))
    done = nearfar("run", file, "--workers", "1")
    assert done.returncode == 0
    records = read_records(tmp_path / "study")
    assert [record.status for record in records].count("failed") == 3
    assert [record.status for record in records].count("done") == 3
    assert "there is no such folder" in done.stderr
    assert "3 trials failed; fix the cause" in done.stderr
    assert "0/3" in done.stdout
    shown = nearfar("show", tmp_path / "study")
    assert "plain on things, seed 2, fold 0: failed: " in shown.stderr
    assert "3 trials failed; fix the cause" in shown.stderr
    planned = nearfar("run", file, "--dry-run", "--retry-failed", "--out", tmp_path / "other")
    assert planned.returncode == 1
    assert "contender 'plain' on 'things' would fail: " in planned.stderr

    file = small_study(tmp_path, ONE_SEED)
    for trial in study_status(file, tmp_path / "study").planned.trials.values():
        if trial.contender == "plain":
            record = next(record for record in records if record.contender == "plain")
            write_record(tmp_path / "study", replace(record, id=trial.id, fold=trial.fold), {})
    again = nearfar("run", file, "--workers", "1")
    assert "3 trials failed before and stay so" in again.stderr
    assert "3 finished trials stay as they are, 0 trials are to run" in again.stderr
    assert "new or changed" not in again.stderr
    assert sum(record.done for record in read_records(tmp_path / "study")) == 3
    retried = nearfar("run", file, "--workers", "1", "--retry-failed")
    assert retried.returncode == 0, retried.stderr
    assert all(record.done for record in read_records(tmp_path / "study"))


def test_a_dry_run_says_how_much_and_how_long_and_writes_nothing(tmp_path):
    """Without finished trials it measures a few steps, and says that it did."""
    done = nearfar("run", small_study(tmp_path), "--dry-run", "--workers", "2")
    assert done.returncode == 0, done.stderr
    assert "12 trials: 0 there, 12 to run" in done.stdout
    assert "in 2 processes of 1 thread" in done.stdout
    assert "about 0 s" not in done.stdout
    assert "going by 4 steps of each contender" in done.stdout
    assert not (tmp_path / "study").exists()


def test_the_estimate_counts_what_is_not_a_step_and_every_training_of_a_search(tmp_path):
    """By hand: 3 epochs of 16 rows in batches of 8 at 2 s each, 5 s beside them; then at two points of two folds."""
    pace = _Pace(fixed=5, step=2, stages=((8, 3),))
    assert pace.seconds(16) == 5 + 3 * 2 * 2
    assert replace(pace, stages=((8, 3), (4, 1))).seconds(16) == 5 + (3 * 2 + 4) * 2
    assert replace(pace, stages=((8, 3), (4, 1)), most=5).seconds(16) == 5 + (5 + 4) * 2
    assert replace(pace, most=4).seconds(16) == 5 + 4 * 2
    assert replace(pace, drawn=8).seconds(16) == 5 + 3 * 2
    trial = next(iter(study_status(small_study(tmp_path), tmp_path / "study").planned.trials.values()))
    assert _whole(trial, 16, pace) == 17
    search = Search(method="grid", folds=2, space={"training.learning_rate": (1, 2)})
    assert _whole(replace(trial, search=search), 16, pace) == 17 + 2 * 2 * (5 + 3 * 2)
    assert _whole(replace(trial, search=replace(search, dev=0.5)), 16, pace) == 17 + 2 * (5 + 3 * 2)
    records = read(str(tmp_path / "t.jsonl"))
    for data, drawn in (
        ({}, None),
        ({"limit": "S"}, 1_000),
        ({"limit": "XL"}, None),
        ({"limit": 6, "per_class": 2}, 4),
    ):
        assert _drawn(replace(trial, values={"data": data}), records) == drawn


def test_the_time_between_stages_is_no_time_of_steps():
    """Seven steps of a second each, and ten seconds in between."""
    clock = _Steps()
    clock.times = [0.0, 1.0, 2.0, 3.0, 13.0, 14.0, 15.0, 16.0]
    assert clock.per_step == 1.0


@pytest.mark.slow
def test_a_study_that_was_killed_again_and_again_ends_as_if_it_had_not(undisturbed, tmp_path):
    """The driver and processes of trials are killed at random points; all records are the same, none was made twice."""
    file, chance = small_study(tmp_path, ONE_SEED), random.Random(7)
    study = tmp_path / "study"
    for round_ in range(2):
        driver = PreloadedCommand("study", "run", file, "--workers", "2")
        wait_for(study, len(finished(study)) + 1, "finished", driver)
        time.sleep(chance.random() / 4)
        end(driver)
        assert len(finished(study)) < 6, f"round {round_} came too late"
    driver = PreloadedCommand("study", "run", file, "--workers", "2")
    begun = sum(entry["event"] == "started" for entry in events(study))
    while True:  # until a process is held in the middle of a trial, which takes some hundredths of a second
        begun += 1
        wait_for(study, begun, "started", driver)
        trial = [entry for entry in events(study) if entry["event"] == "started"][begun - 1]
        victim = int(str(trial["process"]))
        os.kill(victim, signal.SIGSTOP)
        time.sleep(0.3)
        if trial["id"] not in finished(study):
            break
        os.kill(victim, signal.SIGCONT)
    kill(victim)
    _, told = driver.communicate(timeout=300)
    assert driver.returncode == 0, told
    assert "is gone; the trial is begun again" in told
    assert contents(study) == contents(undisturbed)
    assert sorted(finished(study)) == sorted(set(finished(study)))
    assert not [entry for entry in events(study) if entry["event"] == "repeated"]


def test_no_process_outlives_a_killed_driver(tmp_path):
    """Those that run trials end with it, so that nobody works on what a new driver begins."""
    driver = start("run", small_study(tmp_path), "--workers", "1")
    wait_for(tmp_path / "study", 1, "started", driver)
    worker = int(str(events(tmp_path / "study")[0]["process"]))
    end(driver)
    limit = time.monotonic() + 20
    while Path(f"/proc/{worker}").exists() and Path(f"/proc/{worker}/stat").read_text().split()[2] != "Z":
        assert time.monotonic() < limit, "it still runs"
        time.sleep(0.05)


def test_a_trial_that_kills_its_process_every_time_is_given_up(tmp_path):
    """After some attempts it is a failed trial like any other; here its process is killed whenever it begins."""
    file = small_study(tmp_path, ONE_SEED, ("epochs = 1", "epochs = 200"))
    study = tmp_path / "study"
    driver = PreloadedCommand("study", "run", file, "--workers", "1")
    for attempt in range(ATTEMPTS):
        wait_for(study, attempt + 1, "started", driver)
        kill(int(str(events(study)[-1]["process"])))
    wait_for(study, ATTEMPTS + 1, "started", driver)
    name = str(events(study)[0]["id"])
    record = find_record(study, name)
    driver.send_signal(signal.SIGINT)
    _, told = driver.communicate(timeout=60)
    assert record is not None
    assert record.status == "failed"
    assert f"ended {ATTEMPTS} times, the last time by signal 9; was there too little memory?" in str(record.reason)
    assert driver.returncode == 130
    assert "the same command goes on with the others" in told


def test_a_second_process_may_not_run_the_same_study(tmp_path):
    """It says so; the first goes on, and Ctrl-C ends it with a word on how to go on."""
    file = small_study(tmp_path, ("epochs = 1", "epochs = 200"))
    first = PreloadedCommand("study", "run", file, "--workers", "1")
    wait_for(tmp_path / "study", 1, "started", first)
    second = nearfar("run", file)
    assert second.returncode == 1
    assert "another process runs this study" in second.stderr
    first.send_signal(signal.SIGTERM)
    _, told = first.communicate(timeout=60)
    assert first.returncode == 130
    assert "stopped: 0 of 12 trials are in" in told
    assert not (tmp_path / "study" / "scratch").exists()


def test_what_another_process_has_finished_meanwhile_is_not_run_again(undisturbed, tmp_path, monkeypatch):
    """Between reading the records and having the folder for oneself, somebody else may have run the trials."""
    file, folder = small_study(tmp_path, ONE_SEED), tmp_path / "study"
    before = study_status(file, folder)
    assert len(before.states.waiting) == 6
    shutil.copytree(undisturbed, folder)
    monkeypatch.setattr(study_module, "study_status", lambda *_: before)
    assert run_study(file, folder, Lines(Console(quiet=True), trial_line)).ran == 0


def test_the_first_trial_is_not_charged_for_the_libraries(undisturbed):
    """They take seconds to load, the trials tenths of one."""
    first, *others = read_records(undisturbed)
    assert first.cpu_seconds < 10 * max(record.cpu_seconds for record in others)


def test_who_leads_is_told_by_the_runs_that_all_have(undisturbed, tmp_path):
    """A contender with an easy fold only does not lead by that."""
    folder = tmp_path / "study"
    planned = study_status(small_study(tmp_path, ONE_SEED), folder).planned
    scores = {"plain": (0.9, 0.1, 0.1), "triple": (0.8, 0.7, 0.6)}

    class Heard(Lines):
        leaders: ClassVar[list[str | None]] = []

        def trial(self, *told):
            self.leaders.append(told[-1])

    policy = AllTrials(folder, planned, Heard(Console(quiet=True), trial_line), list(planned.trials.values()))
    for contender, fold in [("plain", 0), ("plain", 1), ("triple", 0), ("triple", 1), ("triple", 2)]:
        trial = next(t for t in planned.trials.values() if (t.contender, t.fold) == (contender, fold))
        record = replace(
            next(record for record in read_records(undisturbed) if record.id == trial.id),
            scores={"f1_weighted": scores[contender][fold]},
        )
        policy.finished(record)
    assert Heard.leaders == [
        None,
        None,
        "plain leads on things with 0.9000",
        "triple leads on things with 0.7500",
        "triple leads on things with 0.7500",
    ]


def test_names_with_brackets_are_printed_as_they_are(undisturbed, tmp_path):
    """They are no markup."""
    shutil.copytree(undisturbed, tmp_path / "study")
    path = tmp_path / "study" / "study.json"
    path.write_text(path.read_text().replace('"triple"', '"triple [mean] [/b]"').replace('"small"', '"small [/b]"'))
    shown = nearfar("show", tmp_path / "study")
    assert shown.returncode == 0, shown.stderr
    assert "small [/b]: f1_weighted" in shown.stdout
    assert "│ triple [mean] [/b] │" in shown.stdout


def test_a_folder_that_cannot_be_written_to_is_refused(tmp_path, monkeypatch):
    """Also where the lock of an earlier run may be opened."""
    monkeypatch.chdir(tmp_path)
    Path("study").mkdir()
    Path("study/.lock").touch()
    for name, mode in (("study/.lock", 0o666), ("study", 0o555), (".", 0o755)):
        Path(name).chmod(mode)
    own = os.geteuid()
    try:
        if own == 0:
            os.seteuid(65534)  # root may write everywhere
        with pytest.raises(OutputError, match="study: nothing can be written there"), exclusive(Path("study")):
            pass
    finally:
        os.seteuid(own)


@pytest.mark.parametrize("place", [".", "/"])
def test_a_folder_is_no_study_file(place):
    """Not even one without a name."""
    done = nearfar("run", place)
    assert done.returncode == 1
    assert "this is a folder. Name the study file" in done.stderr


def test_a_folder_with_something_else_is_left_alone(tmp_path):
    """Neither a file nor a folder of other things becomes a study."""
    file = small_study(tmp_path)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.txt").write_text("")
    assert "something else than a study" in nearfar("run", file, "--out", tmp_path / "full").stderr
    assert "this is a file" in nearfar("run", file, "--out", tmp_path / "t.jsonl").stderr
    assert "there is no study here" in nearfar("show", tmp_path).stderr
    assert "--on is local or ray" in nearfar("run", file, "--on", "mars").stderr


def test_cores_are_shared_out():
    """More processes have fewer threads each, never none, and there are no more processes than trials."""
    assert LocalExecutor(4, 2).shares(1) == (1, 2)
    assert LocalExecutor().shares(1_000) == (cores(), 1)
    assert LocalExecutor(10_000).shares(1_000) == (1_000, 1)
    assert LocalExecutor().shares(1, 1_000) == (1, 1), "a study that is continued keeps its threads"
    assert LocalExecutor().shares(1) == (1, cores())


def test_what_was_recorded_is_readable_by_other_tools(undisturbed):
    """The plan is JSON with a trial for every cell."""
    values = json.loads((undisturbed / "study.json").read_text())
    assert {cell["id"] for cell in values["cells"]} == {path.name for path in (undisturbed / "trials").iterdir()}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGALRM])
def test_a_request_to_stop_waits_until_a_process_is_started_or_gone(number):
    """Else a process or its pipes would belong to nobody; the time of a tune is over by SIGALRM."""
    done = []

    def work() -> None:
        with trial_runner.interruptible(), race.alarm(), local_executor.held_interrupts():
            signal.raise_signal(number)
            done.append("whole")

    with pytest.raises(race.TimeIsUp if number == signal.SIGALRM else KeyboardInterrupt):
        work()
    assert done == ["whole"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_request_while_processes_are_stopped_leaves_none_of_them(monkeypatch, tmp_path):
    """The second Ctrl-C comes while the first of two is ended."""
    stopped = []

    def run(pool, _processes, _threads):
        pool.workers.update({0: None, 1: None})
        raise KeyboardInterrupt

    def stop(pool, place):
        with local_executor.held_interrupts():
            del pool.workers[place]
            stopped.append(place)
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(local_executor._Pool, "run", run)
    monkeypatch.setattr(local_executor._Pool, "stop", stop)
    work = SimpleNamespace(folder=tmp_path, trials=[], total=0)
    with pytest.raises(KeyboardInterrupt):
        LocalExecutor(2).run(work, lambda *_: None)
    assert stopped == [0, 1]
