import os
import threading

import pytest

from nearfar.errors import DataError, OutputError, SettingError
from nearfar.workbench.label_log import Change, Decision, LabelLog, class_name


def test_a_decision_is_in_the_file_when_it_is_answered_and_there_after_a_restart(tmp_path):
    log = LabelLog(tmp_path / "labels.jsonl")
    assert log.decide([Change("a", 0, "label", "spam"), Change("b", 0, "skip")], user="ann") == []
    again = LabelLog(tmp_path / "labels.jsonl")  # the first is not closed: the process was killed
    assert again.decision("a") == Decision("label", "spam", 1, "ann")
    assert again.decision("b").kind == "skip"
    assert again.decision("c").version == 0
    assert again.classes == ("spam",)


def test_every_decision_is_flushed_to_the_disk(tmp_path, monkeypatch):
    flushed = []
    monkeypatch.setattr(os, "fsync", flushed.append)
    log = LabelLog(tmp_path / "labels.jsonl")
    log.decide([Change("a", 0, "label", "x"), Change("b", 0, "label", "x")])
    log.add_class("y")
    assert len(flushed) == 2


def test_a_decision_on_an_old_version_is_refused_and_changes_nothing(tmp_path):
    log = LabelLog(tmp_path / "labels.jsonl")
    log.decide([Change("a", 0, "label", "spam")], user="ann")
    conflicts = log.decide([Change("a", 0, "label", "ham"), Change("b", 0, "label", "ham")], user="bob")
    assert [(each.key, each.now.label, each.now.user) for each in conflicts] == [("a", "spam", "ann")]
    assert (log.decision("a").label, log.decision("b").label) == ("spam", "ham")
    assert log.decide([Change("a", 1, "label", "ham")], user="bob") == []
    assert log.decision("a") == Decision("label", "ham", 2, "bob")


def test_of_many_people_at_once_exactly_one_wins_each_text(tmp_path):
    log = LabelLog(tmp_path / "labels.jsonl")
    lost = []

    def person(name):
        for text in range(20):
            lost.extend(log.decide([Change(str(text), 0, "label", name)], user=name))

    people = [threading.Thread(target=person, args=(name,)) for name in "abcd"]
    for each in people:
        each.start()
    for each in people:
        each.join()
    assert len(lost) == 60
    again = LabelLog(tmp_path / "labels.jsonl")
    assert all(again.decision(str(text)).version == 1 for text in range(20))


def test_a_line_that_a_power_failure_cut_is_removed_and_the_next_label_is_whole(tmp_path):
    path = tmp_path / "labels.jsonl"
    log = LabelLog(path)
    log.decide([Change("a", 0, "label", "spam"), Change("b", 0, "label", "ham")])
    whole = path.read_bytes()
    for cut in range(whole.index(b"\n") + 1, len(whole)):
        path.write_bytes(whole[:cut])
        again = LabelLog(path)
        assert again.decision("a").label == "spam"
        assert again.decision("b").version == 0
        again.decide([Change("b", 0, "label", "ham")])
        again.close()
        assert LabelLog(path).decision("b").label == "ham"


def test_a_full_disk_is_a_message_and_leaves_no_half_line(tmp_path, monkeypatch):
    path = tmp_path / "labels.jsonl"
    log = LabelLog(path)
    log.decide([Change("a", 0, "label", "spam")])
    before, write = path.read_bytes(), os.write

    def full(handle, content):
        write(handle, bytes(content[:5]))
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(OutputError, match="no room left"):
        log.decide([Change("b", 0, "label", "ham")])
    monkeypatch.undo()
    assert path.read_bytes() == before
    assert log.decision("b").version == 0
    assert log.decide([Change("b", 0, "label", "ham")]) == []
    assert LabelLog(path).decision("b").label == "ham"


def test_a_foreign_line_is_refused_with_its_number(tmp_path):
    path = tmp_path / "labels.jsonl"
    LabelLog(path).decide([Change("a", 0, "label", "x")])
    with path.open("a") as file:
        file.write('{"text": 3}\n')
    with pytest.raises(DataError, match=r"labels\.jsonl:2: this is no label"):
        LabelLog(path)


def test_names_of_classes_are_trimmed_and_limited(tmp_path):
    log = LabelLog(tmp_path / "labels.jsonl")
    assert log.add_class(" late  parcel ") == "late parcel"
    assert log.add_class("late parcel") == "late parcel"
    assert log.revision == 1
    for name in ("  ", "x" * 201):
        with pytest.raises(SettingError, match="1 to 200 characters"):
            class_name(name)
    with pytest.raises(SettingError, match="a decision is one of"):
        log.decide([Change("a", 0, "guess")])
