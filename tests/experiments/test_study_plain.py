"""Studies of plain texts: tested on scored pairs, trained or not, with the space before and after in the record."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console
from scipy.stats import spearmanr, ttest_rel

from nearfar.cli.study_actions import Lines, trial_line
from nearfar.data import Records, read
from nearfar.encoding import load
from nearfar.errors import DataError, RecipeError, SettingError
from nearfar.experiments import identity
from nearfar.experiments.comparisons import compare, verdict
from nearfar.experiments.diagnostics import pretrained
from nearfar.experiments.plan import plan_study
from nearfar.experiments.records import MEASURED, Record, read_records, scores_of
from nearfar.experiments.study import read_study, study_status
from nearfar.experiments.suites import merged, plain_rows, random_letters, sets_of
from nearfar.experiments.trial import Planned, Trial
from nearfar.experiments.trial_runner import AllTrials
from nearfar.experiments.trials import perform
from tests.experiments.studies import nearfar, small_study

THINGS = ("apple", "pear", "plum", "cherry", "hammer", "saw", "drill", "file")
STUDY = """
[study]
name = "plain"
seeds = [2, 16]

[recipe.encoder]
name = "toy"
[recipe.batches]
size = 8
[recipe.training]
learning_rate = 1e-3

[[data]]
name = "lines"
file = "lines.txt"
limit = 16
test = "pairs"

[[contender]]
name = "before"
untrained = "as-is"

[[contender]]
name = "simcse"
objective = { name = "simcse" }
"""


def pairs(number: int, start: int = 0) -> list[dict[str, Any]]:
    """The more words two texts share, the higher the score."""
    return [
        {"text_a": f"{THINGS[n % 8]} and {THINGS[(n + 1) % 8]}", "score": float(5 - n % 6),
         "text_b": f"{THINGS[(n + n % 6) % 8]} and {THINGS[(n + 1) % 8]}"}
        for n in range(start, start + number)
    ]  # fmt: skip


def write(path: Path, rows: list[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def study(folder: Path, *edits: tuple[str, str]) -> Path:
    """A study with its texts and two sets of scored pairs; ``edits`` replace parts of the file."""
    folder.mkdir(parents=True, exist_ok=True)
    texts = [f"{THINGS[n % 8]} number {n} and {THINGS[(n * 3) % 8]} on the table" for n in range(24)]
    (folder / "lines.txt").write_text("\n".join([*texts, *texts[:4]]) + "\n")
    write(folder / "pairs" / "stsb.jsonl", pairs(18))
    write(folder / "pairs" / "sts12" / "test.jsonl", pairs(12, 30))
    content = STUDY
    for before, after in edits:
        assert before in content
        content = content.replace(before, after)
    (folder / "study.toml").write_text(content)
    return folder / "study.toml"


def plan(folder: Path, *edits: tuple[str, str]) -> Planned:
    return plan_study(read_study(study(folder, *edits)))


def performed(folder: Path, trial: Trial) -> Record:
    folder.mkdir(parents=True)
    record, _ = perform(trial, folder)
    assert record.reason is None
    return record


def of(planned: Planned, contender: str, seed: int = 2) -> Trial:
    name = next(cell.id for cell in planned.plan.cells if (cell.contender, cell.seed) == (contender, seed))
    return planned.trials[name]


# Planning


def test_who_leads_is_told_by_all_seeds_of_what_is_not_trained(tmp_path):
    """It is one trial, and a score for every seed."""
    file, folder, heard = study(tmp_path), tmp_path / "study", list[str | None]()

    class Heard(Lines):
        def trial(self, *told):
            heard.append(told[-1])

    planned = study_status(file, folder).planned
    trials = [of(planned, "before"), of(planned, "simcse"), of(planned, "simcse", 16)]
    policy = AllTrials(folder, planned, Heard(Console(quiet=True), trial_line), trials)
    for trial, score in zip(trials, (0.5, 0.4, 0.8), strict=True):
        record = Record(id=trial.id, data="lines", limit=16, contender=trial.contender, seed=trial.seed, fold=0,
                        status="done", metric="spearman", scores={"spearman": score})  # fmt: skip
        policy.finished(record)
    assert heard == [None, "before leads on lines 16 with 0.5000", "simcse leads on lines 16 with 0.6000"]


def test_there_is_one_trial_a_seed_on_all_texts_that_are_drawn(tmp_path):
    """No folds; what is not trained is the same for all seeds, so it is one trial."""
    planned = plan(tmp_path)
    assert {(cell.contender, cell.seed, cell.fold) for cell in planned.plan.cells} == {
        (name, seed, 0) for name in ("before", "simcse") for seed in (2, 16)
    }
    assert len(planned.trials) == 3
    assert (planned.plan.metric, planned.plan.folds) == ("spearman", 1)
    [data] = planned.plan.data
    assert (data.kind, data.rows, data.test) == ("plain", 24, "pairs"), "each text counts once"
    records, test = planned.rows["lines"]
    assert records.labels is None
    assert test is not None
    assert test.labels == ["sts12"] * 12 + ["stsb"] * 18


@pytest.mark.parametrize(
    ("test", "names"),
    [
        ('test = "pairs/stsb.jsonl"', {"stsb"}),
        ('test = ["pairs/stsb.jsonl", "pairs/sts12/test.jsonl"]', {"stsb", "sts12"}),
        ('test = ["pairs/stsb.jsonl", "pairs", "mine.csv"]\nfolds = 1', {"stsb", "stsb (2)", "sts12", "mine"}),
        ('test = "pairs"\nsuite = "all"', {"stsb", "sts12"}),
    ],
)
def test_scored_pairs_are_a_file_several_or_a_folder(tmp_path, test, names):
    """Each set has a name of its own."""
    (tmp_path / "mine.csv").write_text("text_a,text_b,score\n" + "".join(f"a {n},b {n},{n}\n" for n in range(4)))
    edits = [('test = "pairs"', test.partition("\nfolds")[0])]
    if "folds" in test:
        edits.append(("seeds = [2, 16]", "seeds = [2, 16]\nfolds = 1"))
    planned = plan(tmp_path, *edits)
    _, found = planned.rows["lines"]
    assert found is not None
    assert set(found.labels or ()) == names


def test_a_limit_of_the_test_takes_the_same_pairs_for_every_seed(tmp_path):
    """Of each set so many; a set that has fewer gives all."""
    _, few = plan(tmp_path, ('test = "pairs"', 'test = "pairs"\ntest_limit = 15')).rows["lines"]
    _, every = plan(tmp_path).rows["lines"]
    assert few is not None
    assert every is not None
    counts = {one.name: len(one.records) for one in sets_of(few)}
    assert counts == {"sts12": 12, "stsb": 15}
    assert set(zip(*few.texts, few.scores or (), strict=True)) <= set(
        zip(*every.texts, every.scores or (), strict=True)
    )


def test_merged_sets_come_apart_again():
    """Texts, scores and their order are those of each set."""
    one = Records((["a", "b"], ["c", "d"]), None, [1.0, 2.0], [1, 2], "one.csv")
    two = Records((["e"], ["f"]), None, [3.0], [1], "two.csv")
    found = {each.name: each.records for each in sets_of(merged({"one": one, "two": two}, None))}
    assert list(found) == ["one", "two"]
    for name, before in (("one", one), ("two", two)):
        assert (found[name].texts, found[name].scores, found[name].labels) == (before.texts, before.scores, None)


def test_labels_and_repeated_texts_have_no_part_in_plain_rows():
    """The first of equal texts stays; pairs are left alone."""
    rows = Records((["a", "b", "a"],), ["x", "y", "z"], None, [1, 2, 3], "f.csv")
    assert (plain_rows(rows).texts, plain_rows(rows).labels) == ((["a", "b"],), None)
    both = Records((["a", "a"], ["b", "b"]), ["x", "y"], None, [1, 2], "f.csv")
    assert plain_rows(both) is both


def test_random_letters_keep_lengths_and_blanks_and_nothing_else():
    """By the seed, and every text anew."""
    rows = Records((["two words\there", "two words\there", "ü, 7"],), None, None, [1, 2, 3], "f.txt")
    first, again, other = (random_letters(rows, seed).texts[0] for seed in (2, 2, 3))
    assert first == again != other
    assert first[0] != first[1]
    for before, after in zip(rows.texts[0], first, strict=True):
        assert [len(part) for part in after.split(" ")] == [len(part) for part in before.split(" ")]
        assert all(
            a == b if b.isspace() else a in "abcdefghijklmnopqrstuvwxyz" for a, b in zip(after, before, strict=True)
        )
    assert len(set("".join(first))) > 5


OTHER = {
    "pairs that are tested on": ('test = "pairs"', 'test = "pairs/stsb.jsonl"'),
    "how many of them": ('test = "pairs"', 'test = "pairs"\ntest_limit = 5'),
    "texts": ("limit = 16", "limit = 17"),
    "letters": ('name = "simcse"\n', 'name = "simcse"\nrandom_letters = true\n'),
    "a training": ("learning_rate = 1e-3", "learning_rate = 1e-4"),
}


@pytest.mark.parametrize("case", OTHER)
def test_what_changes_numbers_changes_names(tmp_path, case):
    """And what has no part in an encoder as it is does not change its name."""
    old, new = plan(tmp_path), plan(tmp_path, OTHER[case])
    assert of(old, "simcse").id != of(new, "simcse").id
    assert (of(old, "before").id == of(new, "before").id) == ("tested" not in case and "how many" not in case)


def test_a_map_that_is_fitted_to_texts_has_a_trial_for_each_seed(tmp_path):
    """For the seed draws the texts."""
    planned = plan(tmp_path, ('"as-is"', '"whitening"'))
    assert len(planned.trials) == 4
    assert of(planned, "before").id != of(plan(tmp_path, ('"as-is"', '"all-but-the-top"')), "before").id


def test_studies_with_labels_keep_the_names_of_their_trials(tmp_path, monkeypatch):
    """Whatever a study learns to do besides, finished records of others stay valid."""
    monkeypatch.setattr(identity, "VERSION", "0.1")
    names = sorted(plan_study(read_study(small_study(tmp_path))).trials)
    assert (len(names), names[0], names[-1]) == (12, "1dad0829b9ac955c", "dba320ca5f45c1b4")


REFUSED = {
    "no test": ('test = "pairs"\n', "", "plain texts, which have nothing to be tested by"),
    "pairs without scores": ('test = "pairs"', 'test = "bare.csv"', "the file has pairs without scores"),
    "single texts as the test": ('test = "pairs"', 'test = "lines.txt"', "the file has 1 text a row"),
    "an empty folder": ('test = "pairs"', 'test = "empty"', "holds no data set of the suite sts"),
    "a class objective": ('{ name = "simcse" }', '{ name = "supcon" }', "trains for supcon"),
    "an objective for pairs": ('{ name = "simcse" }', '{ name = "mnrl" }', "trains for mnrl"),
    "another metric": ("seeds = [2, 16]", 'seeds = [2, 16]\nmetric = "accuracy"', "has spearman"),
    "a search": ('{ name = "simcse" }', '{ name = "simcse" }\nsearch = { space = { "objective.temperature" = [1, 2] } }',
                 "nothing in lines.txt can judge its points"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_tested_is_refused_with_the_reason(tmp_path, case):
    """Before anything runs."""
    (tmp_path / "bare.csv").write_text("text_a,text_b\na,b\nc,d\n")
    (tmp_path / "empty").mkdir()
    before, after, said = REFUSED[case]
    edits = [(before, after)]
    if case in ("a class objective", "an objective for pairs"):
        edits.append(('test = "pairs"', 'test = "pairs"\nsuite = "sts"'))
    with pytest.raises((DataError, SettingError, RecipeError), match=said):
        plan(tmp_path, *edits)


WRONG = {
    "a training that is none": ('name = "simcse"\n', 'name = "simcse"\nuntrained = "as-is"\n', "objective exclude"),
    "letters nobody trains on": ('"as-is"', '"as-is"\nrandom_letters = true', "random_letters exclude"),
    "a suite of nothing": ('test = "pairs"', 'suite = "sts"', "there is no test"),
    "a limit of nothing": ('test = "pairs"', "test_limit = 5", "there is no test"),
    "another word": ('"as-is"', '"as is"', "as-is"),
}


@pytest.mark.parametrize("case", WRONG)
def test_settings_that_contradict_each_other_are_refused(tmp_path, case):
    """With the line of the study file."""
    before, after, said = WRONG[case]
    with pytest.raises(RecipeError, match=said) as told:
        read_study(study(tmp_path, (before, after)))
    assert "study.toml:" in str(told.value)


def test_untrained_needs_scored_pairs(tmp_path):
    """Where classes are tested there is nothing to compare cosines with."""
    path = small_study(tmp_path, ('objective = { name = "cross-entropy" }', 'untrained = "as-is"'))
    with pytest.raises(
        SettingError, match="'plain' is untrained, which needs pairs, triplets, a ranking or scored pairs"
    ):
        plan_study(read_study(path))


# Trials


def test_scores_are_spearmans_of_every_set_and_their_mean(tmp_path):
    """Against scipy, on the cosines of the encoder as it is."""
    record = performed(tmp_path / "scratch", of(plan(tmp_path), "before"))
    model = load("toy")
    expected = {}
    for name, path in (("stsb", "pairs/stsb.jsonl"), ("sts12", "pairs/sts12/test.jsonl")):
        rows = read(str(tmp_path / path))
        left, right = (model.embed(side) for side in rows.texts)
        cosines = (left * right).sum(1) / np.linalg.norm(left, axis=1) / np.linalg.norm(right, axis=1)
        expected[name] = spearmanr(np.round(cosines, 6), rows.scores).statistic
    assert record.scores["stsb/spearman"] == pytest.approx(expected["stsb"], abs=1e-4)
    assert record.scores["sts12/spearman"] == pytest.approx(expected["sts12"], abs=1e-4)
    assert record.scores["spearman"] == pytest.approx(np.mean(list(expected.values())), abs=1e-4)
    assert record.before == record.scores
    assert record.geometry["before"] == record.geometry["after"]
    assert (record.texts, record.test) == (0, 30)


def test_a_trained_encoder_stands_beside_what_it_was(tmp_path):
    """Scores and space before are those of the encoder as it is; after, they have moved."""
    planned = plan(tmp_path)
    before = performed(tmp_path / "b", of(planned, "before"))
    record = performed(tmp_path / "a", of(planned, "simcse"))
    assert record.before == before.scores
    assert record.geometry["before"] == before.geometry["after"]
    assert record.scores != record.before
    assert record.geometry["after"].keys() == {"alignment", "uniformity", "anisotropy", "effective_rank"}
    assert all(record.geometry["after"][name] != record.geometry["before"][name] for name in record.geometry["after"])
    assert (record.texts, record.test, record.kind) == (16, 30, "plain")
    assert record.recipe["data"]["train"] == "lines.txt"
    layers = {when: record.space[when]["layers"] for when in ("before", "after")}
    assert len(layers["before"]) == len(layers["after"]) > 1
    assert layers["before"] != layers["after"]
    histogram = record.space["after"]["histogram"]
    like = sum(row["score"] >= 4 for row in (*pairs(18), *pairs(12, 30)))
    assert sum(histogram["positive"]) == record.space["after"]["positives"] == like
    texts = record.space["after"]["texts"]
    assert sum(histogram["random"]) == texts * (texts - 1) // 2


def test_a_trial_has_the_same_numbers_every_time_and_others_by_another_seed(tmp_path):
    """Texts and training follow from the seed."""
    planned = plan(tmp_path)
    one, two, other = (
        performed(tmp_path / str(place), of(planned, "simcse", seed)) for place, seed in enumerate((2, 2, 16))
    )
    assert replace(one, **dict.fromkeys(MEASURED, 0.0)) == replace(two, **dict.fromkeys(MEASURED, 0.0))
    assert one.scores != other.scores
    assert one.before == other.before


def test_random_letters_and_straightened_encoders_are_trials_like_any_other(tmp_path):
    """Other texts give other weights; a whitening leaves texts in many directions and takes no step."""
    planned = plan(
        tmp_path, ('name = "simcse"\n', 'name = "simcse"\nrandom_letters = true\n'), ('"as-is"', '"whitening"')
    )
    usual = performed(tmp_path / "u", of(plan(tmp_path), "simcse"))
    scrambled = performed(tmp_path / "r", of(planned, "simcse"))
    assert scrambled.scores != usual.scores
    assert scrambled.before == usual.before
    white = performed(tmp_path / "w", of(planned, "before"))
    assert white.texts == 16
    assert white.scores != white.before == usual.before
    assert abs(white.geometry["after"]["anisotropy"]) < white.geometry["before"]["anisotropy"]


def test_a_dev_file_keeps_the_best_weights_whatever_its_columns(tmp_path):
    """At a rate that ruins the encoder, its weights from before are kept: step 0 is a candidate."""
    dev = '[recipe.data]\ndev = "pairs/stsb.jsonl"\n[recipe.training]\nepochs = 2'
    planned = plan(
        tmp_path, ("[recipe.training]", dev), ("1e-3", "1.0"), ('test = "pairs"', 'test = "pairs/stsb.jsonl"')
    )
    (tmp_path / "s").mkdir()
    record, files = perform(of(planned, "simcse"), tmp_path / "s")
    entries = [json.loads(line) for line in files["journal.jsonl"].splitlines()]
    first, *others = (entry["scores"]["spearman"] for entry in entries if entry["kind"] == "evaluation")
    assert record.scores["spearman"] == pytest.approx(first, abs=1e-5)
    assert max(others) < first


def test_triplets_are_trained_on_and_tested_on_scored_pairs(tmp_path):
    """Supervised SimCSE: a test of scored pairs is for any encoder."""
    rows = [{"anchor": f"{name} {n}", "positive": f"{name} again {n}", "negative": f"no {name} {n}"}
            for n in range(3) for name in THINGS]  # fmt: skip
    write(tmp_path / "t.jsonl", rows)
    planned = plan(tmp_path, ('file = "lines.txt"', 'file = "t.jsonl"'))
    record = performed(tmp_path / "s", of(planned, "simcse"))
    assert record.texts == 16
    assert record.scores != record.before


def test_the_encoder_from_before_pools_and_cuts_as_the_trained_model():
    """So that only the weights differ."""
    card = replace(load("toy").card, pooling="first", max_length=7)
    found = pretrained("toy", card)
    assert (found.card.pooling, found.card.max_length) == ("first", 7)
    assert not np.allclose(found.embed(["a short text"]), load("toy").embed(["a short text"]))


# Statistics


def test_without_folds_the_test_is_the_paired_t_test_over_seeds():
    """Against scipy; the sentence says which test it is, and what it does not say."""
    rng = np.random.default_rng(5)
    left, right = rng.normal(0.5, 0.02, 6), rng.normal(0.55, 0.02, 6)
    scores = {("lines", name, seed, 0): float(value)
              for name, values in (("before", left), ("simcse", right)) for seed, value in enumerate(values)}  # fmt: skip
    found = compare(scores, data="lines", contender="simcse", baseline="before")
    assert found.p == pytest.approx(ttest_rel(right, left).pvalue)
    told = verdict(found)
    assert "paired p" in told
    assert "corrected" not in told
    assert told.endswith("only the seed varies: a paired t-test, which says nothing about other texts")


# The command


def test_a_study_of_plain_texts_runs_and_shows_every_set_and_the_space(tmp_path):
    """From the file to the table; a second run has nothing to do."""
    path = study(tmp_path, ("seeds = [2, 16]", "seeds = [2]"))
    dry = nearfar("run", path, "--dry-run")
    assert dry.returncode == 0, dry.stderr
    assert "2 trials: 0 there, 2 to run" in dry.stdout
    done = nearfar("run", path, "--workers", "1")
    assert done.returncode == 0, done.stderr
    shown = nearfar("show", tmp_path / "study").stdout
    for said in ("Spearman × 100 of each set", "sts12", "stsb", "effective rank", "→", "too few runs to tell simcse"):
        assert said in shown
    records = read_records(tmp_path / "study")
    assert len(scores_of(records)) == 2
    one = next(record for record in records if record.contender == "simcse")
    assert f"{100 * one.scores['stsb/spearman']:.2f}" in shown
    again = nearfar("run", path, "--workers", "1")
    assert "nothing ran" in again.stderr
