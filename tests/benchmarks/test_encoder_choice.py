"""The benchmark of the encoder choice: one line of a draw, and its table."""

from __future__ import annotations

import gzip
import json

from benchmarks.few_labels import Results

from benchmarks import encoder_choice

WORDS = {"fruit": "apple plum fig cherry", "tool": "hammer wrench drill chisel"}


def test_a_draw_is_measured_once_and_folders_have_their_own_names(tmp_path, monkeypatch, capsys):
    source, results = tmp_path / "data" / "cr", tmp_path / "lines.jsonl"
    source.mkdir(parents=True)
    rows = [
        {"text": f"{word} {n}", "label": label}
        for label, words in WORDS.items()
        for word in words.split()
        for n in range(6)
    ]
    with gzip.open(source / "all.jsonl.gz", "wt", encoding="utf-8") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)
    folder = tmp_path / "other"
    from nearfar.encoding import load

    load("toy").save(folder)
    call = ["run", "--source", str(tmp_path / "data"), "--results", str(results), "--data", "cr", "--n", "4"]
    monkeypatch.setattr(encoder_choice, "TEST_TEXTS", 12)
    for _ in range(2):
        assert encoder_choice.main([*call, "--encoder", "toy", "--encoder", str(folder)]) == 0
    [line] = Results(results).lines()
    assert line["accuracy"].keys() == {"toy", "other"}
    assert line["chosen"] in line["accuracy"]
    assert line["note"].startswith("encoders by cross-validation of 8 texts")
    assert str(tmp_path) not in json.dumps(line)
    assert encoder_choice.main(["table", "--results", str(results)]) == 0
    assert "| all" in capsys.readouterr().out


def test_what_the_choice_loses_is_the_distance_to_the_best():
    lines = [
        {"chosen": "a", "cpu_seconds": 1.0, "accuracy": {"a": 0.5, "b": 0.7}},
        {"chosen": "b", "cpu_seconds": 3.0, "accuracy": {"a": 0.5, "b": 0.7}},
    ]
    assert encoder_choice.row(lines, ["a", "b"]) == ["2", "50.0", "70.0", "60.0", "1", "10.0", "2.0"]
