"""Planning: which trials there are, what they are called after, and which data cannot be divided."""

from __future__ import annotations

import gzip
import json
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from nearfar.data import limits, read
from nearfar.errors import DataError, NearfarError, SettingError
from nearfar.experiments.plan import plan_study
from nearfar.experiments.rows import split
from nearfar.experiments.study import read_study, study_status
from nearfar.experiments.trial import Planned
from tests.experiments.studies import small_study, texts


def plan(folder: Path, *edits: tuple[str, str]) -> Planned:
    return plan_study(read_study(small_study(folder, *edits)))


def names(planned: Planned, contender: str) -> set[str]:
    return {cell.id for cell in planned.plan.cells if cell.contender == contender}


def test_there_is_a_trial_for_every_data_set_size_contender_seed_and_fold(tmp_path):
    """Each cell has one, and no two share a name."""
    planned = plan(tmp_path, ('file = "t.jsonl"', 'file = "t.jsonl"\nlimit = [12, 18, "XL"]'))
    cells = {(c.data, c.limit, c.contender, c.seed, c.fold) for c in planned.plan.cells}
    assert cells == {
        ("things", size, contender, seed, fold)
        for size in (12, 18, None)
        for contender in ("plain", "triple")
        for seed in (2, 16)
        for fold in range(3)
    }
    assert len(planned.trials) == len(cells) == 36
    assert planned.plan.metric == "f1_weighted"
    assert sum(trial.keeps_map for trial in planned.trials.values()) == 6


def test_contenders_with_the_same_recipe_share_their_trials(tmp_path):
    """Under whatever names, and also where one of them spells out a default."""
    same = ('name = "triple-entropy"\ncenters = 2', 'name = "cross-entropy"\n[contender.training]\nweight_decay = 0.01')
    planned = plan(tmp_path, same)
    assert len(planned.plan.cells) == 12
    assert len(planned.trials) == 6
    assert names(planned, "plain") == names(planned, "triple")


def test_a_data_set_lifts_the_limits_of_the_readers(tmp_path, monkeypatch):
    """And its trials are those of the same rows in a plain file."""
    plain = plan(tmp_path)
    monkeypatch.setattr(limits, "FREE", 10)
    monkeypatch.setattr(limits, "EXPANSION", 1)
    (tmp_path / "t.jsonl.gz").write_bytes(gzip.compress((tmp_path / "t.jsonl").read_bytes()))
    packed = 'file = "t.jsonl.gz"'
    with pytest.raises(DataError, match="of the file have more than"):
        plan(tmp_path, ('file = "t.jsonl"', packed))
    lifted = plan(tmp_path, ('file = "t.jsonl"', f"{packed}\nlarge = true"))
    assert lifted.trials.keys() == plain.trials.keys()
    assert all(trial.source.layout["large"] for trial in lifted.trials.values())


SAME = {
    "another name of the study": ('name = "small"', 'name = "other"'),
    "another name of the data": ('name = "things"', 'name = "stuff"'),
    "another baseline": ("folds = 3", 'folds = 3\nbaseline = "triple"'),
    "checkpoints": ("epochs = 1", "epochs = 1\nkeep_checkpoints = 5"),
    "another contender's settings": ("centers = 2", "centers = 3"),
    "the metric, where nothing is chosen by it": ("folds = 3", 'folds = 3\nmetric = "accuracy"'),
}
OTHER = {
    "epochs": ("epochs = 1", "epochs = 2"),
    "batches": ("size = 8", "size = 4"),
    "folds": ("folds = 3", "folds = 4"),
    "seeds": ("[2, 16]", "[3, 17]"),
    "a limit": ('file = "t.jsonl"', 'file = "t.jsonl"\nlimit = 12'),
}


@pytest.mark.parametrize("case", SAME)
def test_what_changes_no_number_changes_no_name(tmp_path, case):
    """So that an edited study keeps its trials."""
    assert names(plan(tmp_path), "plain") == names(plan(tmp_path, SAME[case]), "plain")


@pytest.mark.parametrize("case", OTHER)
def test_what_changes_numbers_changes_all_names(tmp_path, case):
    """A trial must not be taken for another."""
    assert not names(plan(tmp_path), "plain") & names(plan(tmp_path, OTHER[case]), "plain")


def test_the_metric_that_picks_weights_changes_all_names(tmp_path):
    """With dev rows, the best weights are those with the best score."""
    dev = ("[recipe.training]", "[recipe.data]\ndev = 0.2\n[recipe.training]")
    other = ("folds = 3", 'folds = 3\nmetric = "accuracy"')
    assert not names(plan(tmp_path, dev), "plain") & names(plan(tmp_path, dev, other), "plain")


def test_trials_are_named_after_the_rows_and_not_after_their_file(tmp_path):
    """A moved study keeps its trials; one changed label loses them all."""
    before = plan(tmp_path / "here")
    shutil.copytree(tmp_path / "here", tmp_path / "there")
    assert plan(tmp_path / "there").trials.keys() == before.trials.keys()
    path = tmp_path / "there" / "t.jsonl"
    path.write_text(path.read_text().replace('"fruit"', '"tool"', 1))
    assert not plan(tmp_path / "there").trials.keys() & before.trials.keys()


def test_a_text_and_its_duplicates_are_on_one_side_of_every_fold(tmp_path):
    """Also where they differ in case and blanks; and every row is tested exactly once."""
    rows = [
        {"text": text, "label": label}
        for label, word in (("a", "apple"), ("b", "hammer"))
        for n in range(10)
        for text in (f"{word} {n}", f" {word.upper()}  {n}")
    ]
    (tmp_path / "d.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    records = read(str(tmp_path / "d.jsonl"))
    for seed in (2, 16, 128):
        tested: list[int] = []
        for fold in range(5):
            part = split((records, None), SimpleNamespace(limit=None, seed=seed, folds=5, fold=fold))
            assert not set(part.train.normalized_texts()) & set(part.test.normalized_texts())
            assert [records.texts[0][row] for row in part.rows] == part.test.texts[0]
            tested += part.rows
        assert sorted(tested) == list(range(40))


def test_rows_of_a_sample_are_counted_in_the_file(tmp_path):
    """A prediction leads back to its line."""
    records = read(str(texts(tmp_path)))
    part = split((records, None), SimpleNamespace(limit=12, seed=2, folds=3, fold=1))
    assert len(part.train) + len(part.test) == 12
    assert [records.texts[0][row] for row in part.rows] == part.test.texts[0]


def test_an_official_test_set_takes_the_place_of_folds(tmp_path):
    """Only the seeds vary then."""
    texts(tmp_path, per_class=4, name="official.jsonl")
    planned = plan(tmp_path, ('file = "t.jsonl"', 'file = "t.jsonl"\ntest = "official.jsonl"'))
    assert {cell.fold for cell in planned.plan.cells} == {0}
    assert len(planned.trials) == 4


UNLIKE = {
    "a label that is not trained on": (
        [{"text": "a cloud", "label": "weather"}], (), r"^o\.jsonl:1: a label that the training data does not have",
    ),
    "no labels": ([{"text": "a cloud"}], (), r"^o\.jsonl: the test rows have "),
    "pairs": ([{"text_a": "a", "text_b": "b", "label": "tool"}], (), r"^o\.jsonl: the test rows are "),
    "a class that the limit leaves out": (
        [{"text": "a saw", "label": "tool"}, {"text": "a plum", "label": "fruit"}], (("limit = 12", "limit = 2"),),
        r"^t\.jsonl: class 'bird' is tested on, but has no text among the 2 of seed 2",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", UNLIKE)
def test_official_test_rows_that_would_fail_in_every_trial_are_refused(tmp_path, case):
    """With the file of the user, and the line."""
    path = texts(tmp_path)
    rows, edits, said = UNLIKE[case]
    if edits:
        birds = [{"text": f"a bird number {n}", "label": "bird"} for n in range(3)]
        path.write_text(path.read_text() + "".join(json.dumps(row) + "\n" for row in birds))
        rows = [*rows, birds[0]]
    (tmp_path / "o.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(DataError, match=said):
        plan(tmp_path, ('file = "t.jsonl"', 'file = "t.jsonl"\ntest = "o.jsonl"\nlimit = 12'), *edits)


def test_official_test_rows_that_are_trained_on_are_told(tmp_path):
    """A result on them says little; other rows are nothing to speak of."""
    texts(tmp_path)
    texts(tmp_path, per_class=4, name="o.jsonl")
    edit = ('file = "t.jsonl"', 'file = "t.jsonl"\ntest = "o.jsonl"')
    (note,) = study_status(small_study(tmp_path, edit), tmp_path / "study").notes
    assert note.startswith("o.jsonl: 8 test rows also in the training data t.jsonl (such as line 1 as line 1")
    (tmp_path / "o.jsonl").write_text((tmp_path / "o.jsonl").read_text().replace("number", "no."))
    assert plan(tmp_path, edit).notes == ()


TRIPLETS = [{"anchor": f"apple {n}", "positive": f"red apple {n}", "negative": f"saw {n}"} for n in range(12)]
COMPARING = (
    ('name = "cross-entropy"', 'name = "batch-softmax"'),
    ('name = "triple-entropy"\ncenters = 2', 'name = "pair-triplet"'),
    ('file = "t.jsonl"', 'file = "t.jsonl"\ntest = "o.jsonl"'),
)


def test_rows_without_scores_are_tested_on_the_scored_pairs_of_another_file(tmp_path):
    """One file will do, and the score is that of the pairs."""
    (tmp_path / "t.jsonl").write_text("".join(json.dumps(row) + "\n" for row in TRIPLETS))
    rows = [{"text_a": f"apple {n}", "text_b": f"pear {n % 5}", "score": n % 6} for n in range(12)]
    (tmp_path / "o.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    planned = plan(tmp_path, *COMPARING)
    assert (planned.plan.metric, planned.plan.data[0].kind) == ("spearman", "plain")
    assert next(iter(planned.trials.values())).source.pairs == {"o": str(tmp_path / "o.jsonl")}


def test_test_rows_without_the_score_that_is_compared_are_refused(tmp_path):
    """Records without it could not be read; rows of another kind that have it will do."""
    (tmp_path / "t.jsonl").write_text("".join(json.dumps(row) + "\n" for row in TRIPLETS))
    rows = [{"text_a": f"apple {n}", "text_b": f"pear {n % 5}"} for n in range(12)]
    (tmp_path / "o.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(DataError, match=r"^o\.jsonl: the study compares accuracy, and such test rows have mrr, map"):
        plan(tmp_path, *COMPARING)
    labeled = "".join(json.dumps({**row, "label": n % 2}) + "\n" for n, row in enumerate(rows))
    (tmp_path / "o.jsonl").write_text(labeled)
    assert plan(tmp_path, *COMPARING).plan.metric == "accuracy"


def test_folders_of_encoders_are_found_wherever_a_trial_runs(tmp_path):
    """In stages, in the parts of a blend and in a search as in the encoder itself."""
    (tmp_path / "tiny").mkdir()
    aware = "name = 'label-aware'\nweighting = 'tiny'\n"
    parts = f"[contender.objective.parts.a]\n{aware}[contender.objective.parts.b]\nname = 'supcon'"
    blend = ('objective = { name = "cross-entropy" }', f"[contender.objective]\nname = 'blend'\n{parts}")
    search = '[contender.search]\nmethod = "grid"\nspace = { "encoder.name" = ["tiny", "toy"] }\n'
    stages = (
        '[contender.objective]\nname = "triple-entropy"\ncenters = 2\n',
        f"[[contender.stage]]\n[contender.stage.objective]\n{aware}[[contender.stage]]\nepochs = 2\n{search}",
    )
    one, other, *_ = plan(tmp_path, blend, stages).trials.values()
    folder = str(tmp_path / "tiny")
    assert one.values["objective"]["parts"]["a"]["weighting"] == folder
    assert other.values["stage"] == [{"objective": {"name": "label-aware", "weighting": folder}}, {"epochs": 2}]
    assert other.search is not None
    assert other.search.space["encoder.name"] == (folder, "toy")


def test_fewer_texts_than_folds_are_refused(tmp_path):
    """With both numbers."""
    texts(tmp_path, per_class=2)
    with pytest.raises(DataError, match=r"class 'fruit' has 2 texts .* fewer than the 5 folds"):
        plan(tmp_path, ("folds = 3", "folds = 5"))
    with pytest.raises(DataError, match=r"4 rows with 4 distinct texts cannot make 5 folds"):
        plan(tmp_path, ("folds = 3", 'folds = 5\nrare = "keep"'))


def test_a_class_smaller_than_the_folds_is_refused_unless_it_may_be_missing(tmp_path):
    """Three texts cannot be in five folds; with rare = "keep" they are in three of them."""
    path = texts(tmp_path)
    extra = [{"text": f"cloud {n}", "label": "weather"} for n in range(3)]
    path.write_text(path.read_text() + "".join(json.dumps(row) + "\n" for row in extra))
    with pytest.raises(DataError, match=r"class 'weather' has 3 texts .* rare = \"keep\"") as caught:
        plan(tmp_path, ("folds = 3", "folds = 5"))
    assert "t.jsonl" in str(caught.value)
    assert len(plan(tmp_path, ("folds = 3", 'folds = 5\nrare = "keep"')).trials) == 20


def test_rows_of_one_class_are_refused_before_every_trial_fails(tmp_path):
    """With the file of the user."""
    path = texts(tmp_path)
    path.write_text(path.read_text().replace('"tool"', '"fruit"'))
    with pytest.raises(DataError, match=r"^t\.jsonl: all 24 rows have the one class 'fruit'"):
        plan(tmp_path)


@pytest.mark.parametrize(
    ("judged", "said"),
    [
        ("folds = 17", "search of 'triple', on the 16 training rows of a trial: 16 rows .* cannot make 17 folds"),
        ("folds = 16", None),
        ("dev = 0.2", None),
    ],
)
def test_inner_folds_that_the_training_rows_cannot_make_are_refused(tmp_path, judged, said):
    """A trial trains on two thirds of the 24 rows, and only those are divided again."""
    search = f'[contender.search]\n{judged}\nspace = {{ "objective.beta" = [0.5, 0.7] }}\n'
    edit = ("centers = 2\n", f"centers = 2\n{search}")
    if said is None:
        assert plan(tmp_path, edit).trials
        return
    with pytest.raises(DataError, match=said):
        plan(tmp_path, edit)


def test_a_limit_beyond_the_rows_is_refused(tmp_path):
    """A table must not say 1,000 where there were 24."""
    with pytest.raises(DataError, match="limit is 1,000, but there are only 24 rows"):
        plan(tmp_path, ('file = "t.jsonl"', 'file = "t.jsonl"\nlimit = "S"'))


def test_a_metric_that_the_data_has_not_is_refused(tmp_path):
    """With those it has."""
    with pytest.raises(NearfarError, match="'spearman', but 'plain' on 'things' has f1_weighted, f1_macro, accuracy"):
        plan(tmp_path, ("folds = 3", 'folds = 3\nmetric = "spearman"'))


def test_contenders_that_read_the_rows_differently_share_a_metric(tmp_path):
    """Labeled pairs are classes to one objective and pairs to another: both have an accuracy."""
    rows = [{"text_a": f"apple {n}", "text_b": f"pear {n}", "label": n % 2} for n in range(12)]
    (tmp_path / "t.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    planned = plan(tmp_path, ('name = "triple-entropy"\ncenters = 2', 'name = "batch-softmax"'))
    assert planned.plan.metric == "accuracy"


def test_missing_data_is_named(tmp_path):
    """All files at once."""
    with pytest.raises(DataError, match=r"none\.jsonl"):
        plan(tmp_path, ('"t.jsonl"', '"none.jsonl"'))
    with pytest.raises(SettingError, match="standard input"):
        plan(tmp_path, ('"t.jsonl"', '"-"'))
