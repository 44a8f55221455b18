"""A folder of scored pairs: which files are taken, and Spearman's correlation of each against SciPy's."""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import spearmanr

from nearfar.data import Layout
from nearfar.encoding import load as open_model
from nearfar.errors import DataError, SettingError
from nearfar.evaluation import SetScore, SuiteReport, evaluate_suite, read_suite

WORDS = ["apple", "pear", "hammer", "saw", "horse", "otter", "river", "cloud", "violin", "lantern"]


def rows(seed: int, number: int = 12) -> list[dict[str, object]]:
    source = random.Random(seed)
    return [
        {
            "text_a": f"the {source.choice(WORDS)} {row}",
            "text_b": f"a {source.choice(WORDS)} and {row}",
            "score": source.random() * 5,
        }
        for row in range(number)
    ]


def write(path: Path, content: list[dict[str, object]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    text = "".join(json.dumps(row) + "\n" for row in content)
    if path.suffix == ".gz":
        path.write_bytes(gzip.compress(text.encode()))
    else:
        path.write_text(text)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Data sets as files and as folders, other data, and things that are no data."""
    write(tmp_path / "sts12" / "train.jsonl.gz", rows(1))
    write(tmp_path / "sts12" / "test.jsonl.gz", rows(2))
    write(tmp_path / "STS-B.jsonl", rows(3))
    write(tmp_path / "simlex999" / "test.jsonl", rows(4))
    write(tmp_path / "mine" / "all.jsonl", rows(5))
    write(tmp_path / "only_train" / "train.jsonl", rows(6))
    write(tmp_path / "classes" / "test.jsonl", [{"text": f"text {row}", "label": str(row % 2)} for row in range(4)])
    write(tmp_path / "unscored.jsonl", [{"text_a": "one", "text_b": "two"}, {"text_a": "three", "text_b": "four"}])
    (tmp_path / "README.md").write_text("# Data\n")
    return tmp_path


def test_sts_takes_the_known_names_in_their_order_and_their_test_files(folder):
    """However they are written; training files never."""
    sets, notes = read_suite(str(folder), "sts")

    assert [one.name for one in sets] == ["sts12", "stsb", "simlex999"]
    assert sets[0].records.texts[0] == [row["text_a"] for row in rows(2)]
    assert notes == []


def test_all_takes_every_file_of_scored_pairs_and_names_the_others(folder):
    sets, notes = read_suite(str(folder), "all")

    assert sorted(one.name for one in sets) == ["mine", "simlex999", "sts12", "stsb"]
    assert len(notes) == 2
    assert any("classes" in note and "1 text a row" in note for note in notes)
    assert any("unscored.jsonl" in note and "no scores" in note for note in notes)


def test_of_two_files_of_one_set_the_other_is_told(folder):
    """A file goes before a folder, and of two files the last in the alphabet is measured, as ever."""
    write(folder / "sts12.jsonl", rows(7))
    write(folder / "stsb.jsonl.gz", rows(8))
    write(folder / "simlex999" / "test.jsonl.gz", rows(9))
    sets, notes = read_suite(str(folder), "sts")

    assert [one.records.texts[0] for one in sets] == [[row["text_a"] for row in rows(seed)] for seed in (7, 8, 9)]
    assert [note.removeprefix(str(folder)) for note in notes] == [
        f"/sts12/test.jsonl.gz: skipped: {folder}/sts12.jsonl is the data set sts12, too",
        f"/STS-B.jsonl: skipped: {folder}/stsb.jsonl.gz is the data set stsb, too",
        f"/simlex999/test.jsonl: skipped: {folder}/simlex999/test.jsonl.gz is the data set simlex999, too",
    ]


def test_each_set_is_spearman_times_100_and_the_mean_leaves_words_out(folder):
    """Against SciPy on the vectors of Model.embed."""
    model = open_model("toy")
    sets, _ = read_suite(str(folder), "sts")
    expected = {}
    for one in sets:
        left, right = (model.embed(side).astype(np.float64) for side in one.records.texts)
        cosines = (left * right).sum(1) / np.linalg.norm(left, axis=1) / np.linalg.norm(right, axis=1)
        expected[one.name] = 100 * spearmanr(cosines, one.records.scores).statistic

    report = evaluate_suite(model, sets, batch_size=5)

    assert {name: score.spearman for name, score in report.sets.items()} == pytest.approx(expected, abs=1e-6)
    assert [score.rows for score in report.sets.values()] == [12, 12, 12]
    assert report.averaged == ("sts12", "stsb")
    assert report.mean == pytest.approx((expected["sts12"] + expected["stsb"]) / 2)
    assert report.to_dict()["mean_of"] == ["sts12", "stsb"]
    assert report.to_dict()["sets"]["stsb"]["spearman"] == report.sets["stsb"].spearman


def test_words_alone_have_a_mean_too():
    report = SuiteReport({"simlex999": SetScore(3, 40.0, ())})

    assert (report.averaged, report.mean) == (("simlex999",), 40.0)


def test_one_score_throughout_is_told_and_counts_zero(tmp_path):
    write(tmp_path / "stsb.jsonl", [{**row, "score": 3.0} for row in rows(1)])
    sets, _ = read_suite(str(tmp_path), "sts")
    score = evaluate_suite(open_model("toy"), sets).sets["stsb"]

    assert (score.spearman, score.constant) == (0.0, ("truth",))
    assert score.warning == "all scores are the same, which counts as a correlation of 0"


@pytest.mark.parametrize(
    ("score", "doubt"),
    [
        (SetScore(9, 12.0, ()), None),
        (SetScore(1, 0.0, ("truth", "predicted")), "it has one pair, which counts as a correlation of 0"),
        (SetScore(9, 0.0, ("predicted",)), "all cosines are the same, which counts as a correlation of 0"),
        (SetScore(9, 0.0, ("truth", "predicted")), "all scores and all cosines are the same, which counts as a "
         "correlation of 0"),
    ],
)  # fmt: skip
def test_a_correlation_that_is_none_says_why(score, doubt):
    assert score.warning == doubt


def test_the_texts_are_counted_after_each_set(folder):
    sets, _ = read_suite(str(folder), "sts")
    progress: list[int] = []
    evaluate_suite(open_model("toy"), sets, progress=progress.append)

    assert progress == np.cumsum([2 * len(one.records) for one in sets]).tolist()


def test_columns_of_other_names_can_be_named(tmp_path):
    write(tmp_path / "stsb.jsonl", [{"one": r["text_a"], "two": r["text_b"], "gold": r["score"]} for r in rows(1)])
    sets, _ = read_suite(str(tmp_path), "sts", layout=Layout(text="one", pair="two", score="gold"))

    assert sets[0].records.scores == [row["score"] for row in rows(1)]


@pytest.mark.parametrize(
    ("suite", "words"),
    [("sts", "holds no data set of the suite sts .*--suite all takes"), ("all", "holds no data set with scored pairs")],
)
def test_a_folder_without_such_files_is_refused(tmp_path, suite, words):
    (tmp_path / "README.md").write_text("# Data\n")
    write(tmp_path / "classes" / "test.jsonl", [{"text": f"text {row}", "label": str(row % 2)} for row in range(4)])

    with pytest.raises(DataError, match=words):
        read_suite(str(tmp_path), suite)


def test_files_that_were_left_out_are_named_where_no_other_is_there(tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "test.jsonl").write_text("")
    for number in range(6):
        (tmp_path / f"notes{number}.txt").write_text("a line\nanother line\n")

    with pytest.raises(DataError, match=r"scored pairs: .*mine.test\.jsonl: skipped: the file is empty; .*1 text a ro"):
        read_suite(str(tmp_path), "all")
    with pytest.raises(DataError, match=r"notes3\.txt: skipped: it has 1 text a row \.\.\.\. Each file"):
        read_suite(str(tmp_path), "all")


def test_a_file_in_place_of_the_folder_is_told_what_to_do(tmp_path):
    write(tmp_path / "stsb.jsonl", rows(1))
    with pytest.raises(DataError, match=r"stsb\.jsonl: this is a file.*nearfar evaluate MODEL .*stsb\.jsonl"):
        read_suite(str(tmp_path / "stsb.jsonl"), "sts")


def test_a_known_set_without_scores_is_an_error_with_its_file(tmp_path):
    """Under sts nothing is left out in silence."""
    write(tmp_path / "stsb" / "test.jsonl", [{"text_a": "one", "text_b": "two"}, {"text_a": "a", "text_b": "b"}])

    with pytest.raises(DataError, match=r"stsb.test\.jsonl.*no scores.*--score"):
        read_suite(str(tmp_path), "sts")


def test_a_broken_row_is_an_error_with_its_line(tmp_path):
    write(tmp_path / "stsb.jsonl", [*rows(1), {"text_a": "one", "text_b": "two", "score": "much"}])

    with pytest.raises(DataError, match=r"stsb\.jsonl:13"):
        read_suite(str(tmp_path), "sts")
    assert len(read_suite(str(tmp_path), "sts", invalid="drop")[0][0].records) == 12


def test_a_folder_that_may_not_be_entered_is_told_and_hinders_no_other(folder, monkeypatch):
    """Where it is a set of the suite it is refused, and so is the folder of all."""
    locked = {folder / "only_train"}
    entries = Path.iterdir

    def entered(self: Path) -> Iterator[Path]:
        if self in locked:
            raise PermissionError(13, "Permission denied")
        return entries(self)

    monkeypatch.setattr(Path, "iterdir", entered)  # root may enter any folder, so a mode will not do
    assert len(read_suite(str(folder), "sts")[0]) == 3
    sets, notes = read_suite(str(folder), "all")
    assert len(sets) == 4
    assert f"{folder}/only_train: skipped: the folder may not be entered (permission denied)" in notes
    for place in (folder / "sts12", folder):
        locked.add(place)
        with pytest.raises(DataError, match=rf"^{place}: the folder may not be entered .*chmod"):
            read_suite(str(folder), "sts")


def test_a_missing_folder_and_an_unknown_suite_are_refused(tmp_path):
    with pytest.raises(DataError, match="no such folder"):
        read_suite(str(tmp_path / "nowhere"), "sts")
    with pytest.raises(SettingError, match="--suite is sts or all, got 'st'"):
        read_suite(str(tmp_path), "st")
