import json

import pytest

from nearfar.data import Layout
from nearfar.errors import DataError, OutputError, SettingError
from nearfar.workbench.label_log import Change
from nearfar.workbench.project import Project, open_project, read_texts, text_keys


def project_of(tmp_path, rows, classes=()):
    path = tmp_path / "data.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return Project(read_texts(str(path)), tmp_path / "out", classes)


def decide(project, row, kind, label=None):
    key = project.texts.keys[row]
    assert not project.log.decide([Change(key, project.decision(row).version, kind, label)])


PARTLY = [
    {"text": "one", "label": "a"},
    {"text": "two", "label": ""},
    {"text": "three"},
    {"text": "four", "label": "b"},
]


def test_a_partly_labeled_file_keeps_its_labels_and_opens_the_rest(tmp_path):
    project = project_of(tmp_path, PARTLY, ["c"])
    assert project.labels() == ["a", None, None, "b"]
    assert project.open_rows().tolist() == [False, True, True, False]
    assert project.classes == ("c", "a", "b")


def test_labels_of_the_file_can_be_changed_dropped_and_given_back(tmp_path):
    project = project_of(tmp_path, PARTLY)
    decide(project, 0, "label", "b")
    decide(project, 3, "drop")
    decide(project, 1, "none")
    decide(project, 2, "skip")
    assert project.labels() == ["b", None, None, None]
    assert not project.open_rows().any()
    assert project.skipped() == [2]
    assert [(each["line"], each["change"], each["before"], each["after"]) for each in project.changes()] == [
        (1, "changed", "a", "b"), (4, "dropped", "b", None),
    ]  # fmt: skip
    decide(project, 0, "clear")
    assert project.label(0) == "a"
    decide(project, 3, "skip")
    assert project.label(3) == "b"  # a label is not lost because somebody puts its text off


def test_exports_are_new_files_and_the_original_is_unchanged(tmp_path):
    project = project_of(tmp_path, [*PARTLY, {"text": '=1+1, "quoted"', "label": "b"}])
    before = (tmp_path / "data.jsonl").read_bytes()
    decide(project, 0, "label", "b")
    decide(project, 1, "label", "new class")
    names = [path.name for path in project.export()]
    assert names == ["labeled.csv", "labeled.jsonl", "changes.csv"]
    rows = [json.loads(line) for line in (tmp_path / "out" / "labeled.jsonl").read_text().splitlines()]
    assert rows[:2] == [{"text": "one", "label": "b"}, {"text": "two", "label": "new class"}]
    assert read_texts(str(tmp_path / "out" / "labeled.csv")).texts[-1] == '=1+1, "quoted"'
    assert (tmp_path / "data.jsonl").read_bytes() == before


def test_labels_follow_their_texts_when_rows_are_added_or_sorted(tmp_path):
    project = project_of(tmp_path, [{"text": "one"}, {"text": "same"}, {"text": "same"}])
    decide(project, 0, "label", "a")
    decide(project, 2, "label", "b")
    project.close()
    again = project_of(tmp_path, [{"text": "new"}, {"text": "same"}, {"text": "same"}, {"text": "one"}])
    assert again.labels() == [None, None, "b", "a"]
    assert len(set(text_keys(["same"] * 3))) == 3


def test_a_second_process_on_the_same_folder_is_refused(tmp_path):
    (tmp_path / "a.txt").write_text("one\ntwo\n")
    texts = read_texts(str(tmp_path / "a.txt"))
    second = open_project(texts, tmp_path / "out")
    with open_project(texts, tmp_path / "out"), pytest.raises(OutputError, match="another process has this project"):
        second.__enter__()
    with open_project(texts, tmp_path / "out") as project:
        assert project.labels() == [None, None]


def test_what_cannot_be_shown_is_refused(tmp_path):
    (tmp_path / "pairs.csv").write_text("text_a,text_b\none,two\n")
    with pytest.raises(DataError, match="2 texts"):
        read_texts(str(tmp_path / "pairs.csv"))
    (tmp_path / "a.csv").write_text("text,kind\none,x\n")
    with pytest.raises(SettingError, match=r"--label knid: .* Did you mean 'kind'"):
        read_texts(str(tmp_path / "a.csv"), Layout(label="knid"))
    assert read_texts(str(tmp_path / "a.csv"), Layout(label="kind")).labels == ["x"]


def test_labels_that_cannot_be_shown_are_counted(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "a", "label": ["x", "y"]}\n{"text": "b", "label": "x"}\n{"text": "c"}\n')
    texts = read_texts(str(path))
    assert texts.labels == [None, "x", None]
    assert texts.notes[-1] == "1 label of column 'label' not used: one class a text is shown, and these have several"
    path.write_text('{"text": "a", "label": {"x": 1}}\n{"text": "b", "label": null}\n')
    assert texts.notes[:-1] == ()
    assert "1 label of column 'label' not used: they are no names" in read_texts(str(path)).notes[-1]


def test_a_curve_whose_last_line_was_cut_is_read_up_to_it(tmp_path):
    project = project_of(tmp_path, PARTLY)
    assert project.curve() == []
    (tmp_path / "out" / "accuracy.jsonl").write_text('{"labels": 8}\n{"labels": 1')
    assert project.curve() == [{"labels": 8}]
