"""``nearfar tune`` as a user has it: a file in, a model and its report out, stopped and continued."""

from __future__ import annotations

import contextlib
import json
import signal
from pathlib import Path

import pytest
from tests.cli.test_commands import call
from tests.experiments.studies import contents, end, events, texts, wait_for
from tests.preloaded import PreloadedCommand

from nearfar.encoding import load as open_model
from nearfar.experiments.records import read_plan, read_records, scores_of
from nearfar.experiments.statistics import summarize

pytestmark = pytest.mark.usefixtures("preloaded_workers")

SMALL = (
    "--encoder", "toy", "--set", "training.epochs=1", "--set", "batches.size=8", "--folds", "2", "--rounds", "1",
    "--minutes", "30",
)  # fmt: skip
CONTENDERS = 6


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str, str]:
    """The folder of a tune of 12 trials that ran in peace, and what it printed."""
    folder = tmp_path_factory.mktemp("tune")
    texts(folder)
    with contextlib.chdir(folder):
        code, out, err = call("tune", "t.jsonl", *SMALL, "--workers", "2")
    assert code == 0, err
    return folder / "tuned", out, err


def test_a_file_becomes_the_best_model_with_its_report(undisturbed):
    """The winner has the best mean of the records, and the model predicts its classes."""
    folder, out, err = undisturbed
    records = read_records(folder)
    assert len(records) == 2 * CONTENDERS
    assert len({(record.seed, record.fold) for record in records}) == 2
    by_name: dict[str, list[float]] = {}
    for (_, name, _, _), score in scores_of(records).items():
        by_name.setdefault(name, []).append(score)
    best = max(summarize(scores).mean for scores in by_name.values())
    said = next(line for line in out.splitlines() if "has the highest mean" in line)
    winner = said.partition(" has the highest mean of 6 contenders: f1_weighted ")[0]
    assert summarize(by_name[winner]).mean == best
    assert said.endswith(f"f1_weighted {best:.4f} over 2 folds.")
    for name, scores in by_name.items():
        short = summarize(scores)
        row = next(line for line in out.splitlines() if line.startswith(f"│ {name} "))
        assert f"{short.mean:.4f} ± {short.sd:.4f}" in row
        assert ("best" in row) == (name == winner)
    assert "a little optimistic" in out
    assert " leads with 0." in err
    assert f"is trained on all {24} rows" in err
    model = open_model(folder / "model")
    assert model.labels == ("fruit", "tool")
    page = (folder / "report.html").read_text()
    assert "<title>tune t</title>" in page
    assert all(name in page for name in by_name)


def test_a_finished_tune_is_a_study_and_runs_nothing_again(undisturbed):
    """The same command shows the same; other commands read its folder."""
    folder, out, _ = undisturbed
    before = len(events(folder))
    (folder / ".report.html").write_text("<p>of a killed process")
    code, again, err = call("tune", str(folder.with_name("t.jsonl")), *SMALL, "--out", str(folder))
    assert (code, again) == (0, out)
    assert not [path.name for path in folder.iterdir() if "report" in path.name and path.name != "report.html"]
    assert "this tune has had its 30 minutes" in err
    assert len(events(folder)) == before
    code, shown, _ = call("study", "show", str(folder))
    assert code == 0
    assert "baseline frozen baseline" in shown
    assert read_plan(folder).seeds == (2,)


@pytest.mark.slow
def test_a_tune_that_was_stopped_goes_on_and_ends_as_if_it_had_not(undisturbed, tmp_path, monkeypatch):
    """Ctrl-C in the first fold: what had finished is not run again, and all records and the winner are the same."""
    peaceful, out, _ = undisturbed
    monkeypatch.chdir(tmp_path)
    texts(tmp_path)
    words = ["tune", "t.jsonl", *SMALL, "--workers", "1"]
    driver = PreloadedCommand(*words)
    try:
        wait_for(tmp_path / "tuned", 2, "finished", driver)
        driver.send_signal(signal.SIGINT)
        _, told = driver.communicate(timeout=60)
    finally:
        end(driver)
    assert driver.returncode == 130, told
    assert "the same command goes on with the others" in told
    assert not (tmp_path / "tuned" / "model").exists()
    spent = json.loads((tmp_path / "tuned" / "tune.json").read_text())["spent"]
    code, again, err = call(*words)
    assert code == 0, err
    assert "have run already" in err
    finished = [str(entry["id"]) for entry in events(tmp_path / "tuned") if entry["event"] == "finished"]
    assert len(finished) == len(set(finished)) == 2 * CONTENDERS
    assert contents(tmp_path / "tuned") == contents(peaceful)
    assert json.loads((tmp_path / "tuned" / "tune.json").read_text())["spent"] > spent > 0
    sentences = [line for line in out.splitlines() if line.endswith(".")]
    assert len(sentences) >= 3
    assert [line for line in again.splitlines() if line.endswith(".")] == sentences


@pytest.mark.slow
def test_scored_pairs_become_an_encoder(tmp_path):
    """Four contenders, chosen by a correlation; a column has another name here."""
    made = [
        {"text_a": f"the apple of {row}", "text_b": f"{row} about a {'pear' if row % 3 else 'saw'}", "near": row % 3}
        for row in range(18)
    ]
    (tmp_path / "s.jsonl").write_text("".join(json.dumps(row) + "\n" for row in made))
    code, out, err = call(
        "tune", str(tmp_path / "s.jsonl"), "--score", "near", "--metric", "pearson", *SMALL, "--out", str(tmp_path / "o")
    )  # fmt: skip
    assert code == 0, err
    assert "18 pairs with scores; 4 contenders: cosine-mse, frozen baseline, pearson, batch-softmax+cosine-mse" in err
    assert "of 4 contenders: pearson " in out
    assert open_model(tmp_path / "o" / "model").labels is None
    assert (tmp_path / "o" / "report.html").is_file()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("plain.txt",), "plain.txt: the rows have neither labels nor scores to choose by. Add a column named label"),
        (("t.jsonl", "--minutes", "0"), "--minutes must be above 0, got 0; 10 is usual."),
        (("t.jsonl", "--folds", "20"), "class 'fruit' has 12 texts, fewer than the 20 folds, and 1 other class"),
        (("t.jsonl", "--metric", "f2"), "--metric f2: such rows have f1_weighted, f1_macro, accuracy"),
        (("t.jsonl", "--set", "objective.name=supcon"), "the objective is what is to be found. Leave it out"),
        (("t.jsonl", "--out", "."), "the folder holds something else than a tune; choose another with --out."),
        (("none.jsonl",), "none.jsonl"),
    ],
)
def test_bad_input_is_one_message(words, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    texts(tmp_path)
    Path("plain.txt").write_text("a cat\na dog\na cow\n")
    code, out, err = call("tune", *words)
    assert (code, out) == (1, "")
    assert err.startswith("error: ")
    assert message in err
    assert "Traceback" not in err
    assert not (tmp_path / "tuned").exists()


def test_too_little_time_leaves_the_default_and_its_own_report(tmp_path):
    code, out, err = call(
        "tune", str(texts(tmp_path)), *SMALL[:-1], "0.0001", "--out", str(tmp_path / "o")
    )  # fmt: skip
    assert code == 0, err
    assert "minutes are too few for one fold of every contender" in out
    assert "supcon, the default, was taken without comparing it." in out
    assert open_model(tmp_path / "o" / "model").labels == ("fruit", "tool")
    assert "supcon" in (tmp_path / "o" / "report.html").read_text()
