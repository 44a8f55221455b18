"""`nearfar report` as a user has it: real runs and a real study on the toy encoder, files, refusals."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import re
import subprocess
import sys

import pytest

from nearfar.cli import main
from nearfar.report import read_source, render_page
from tests.experiments.studies import in_process, small_study
from tests.report.studies import write_study
from tests.report.test_page import NAMES, Reader

FRUIT = ["a ripe apple and a plum", "pears in a bowl", "one grape", "sweet cherries"]
TOOLS = ["a saw and a hammer", "the old wrench", "pliers for wire", "a drill"]


@pytest.fixture
def call(monkeypatch, capsys):
    """Run the command in this process: exit code, standard output, standard error."""

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["nearfar", *map(str, arguments)])
        code = 0
        try:
            main()
        except SystemExit as left:
            code = left.code or 0
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return run


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A trained toy model with dev rows, and the file it was trained on."""
    folder = tmp_path_factory.mktemp("run")
    rows = [{"text": f"{text} {number}", "label": label} for number in range(6) for label, texts in (
        ("fruit", FRUIT), ("tool", TOOLS)) for text in texts]  # fmt: skip
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    words = ["train", "rows.jsonl", "--encoder", "toy", "--epochs", "2", "--batch-size", "8", "--objective"]
    words += ["cross-entropy", "--dev", "0.25", "--set", "training.learning_rate=1e-3", "--out", "model"]
    with contextlib.chdir(folder):
        status, _, errors = in_process(*words)
    assert status == 0, errors
    return folder / "model"


def test_a_study_becomes_a_page_without_loading_torch(study, tmp_path):
    out = tmp_path / "report.html"
    code = (
        "import sys\nfrom nearfar.cli import main\n"
        f"sys.argv = ['nearfar', 'report', {str(study)!r}, '--out', {str(out)!r}]\n"
        "try:\n    main()\nexcept SystemExit as left:\n    assert not left.code\n"
        "print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout.strip()) == (0, "False"), done.stderr
    assert done.stderr == f"written to {out}\n"
    assert set(NAMES) <= set(Reader(out.read_text(encoding="utf-8")).ids)


def test_tables_go_to_standard_output_or_to_a_file(study, tmp_path, call):
    code, printed, _ = call("report", study, "--format", "csv")
    assert code == 0
    assert len(list(csv.DictReader(io.StringIO(printed)))) == 12
    code, printed, errors = call("report", study, "--format", "latex", "--out", tmp_path / "t.tex")
    assert (code, printed, errors) == (0, "", f"written to {tmp_path / 't.tex'}\n")
    assert "\\toprule" in (tmp_path / "t.tex").read_text()
    for name, begins in (("t2.tex", "% "), ("t.csv", "data,"), ("t.MD", "# "), ("t.html", "<!doctype html>")):
        assert call("report", study, "--out", tmp_path / name)[0] == 0
        assert (tmp_path / name).read_text(encoding="utf-8").startswith(begins), "the ending says what it is"
    code, printed, _ = call("report", study, "--format", "markdown")
    assert printed.startswith("# Objectives on few labels\n")


def test_the_screen_says_what_the_page_says(tmp_path, call):
    """No p-value is zero, and sentences have the decimals of the table."""
    write_study(tmp_path, sets=("cr",), contenders={"cross-entropy": 1.0, "supcon": 4.0})
    code, printed, _ = call("study", "show", tmp_path)
    assert code == 0
    assert "< 0.001" in printed
    assert " 0.000 " not in printed
    assert re.search(r"is better than cross-entropy on .* by 0\.\d{4} \(95 % interval 0\.\d{4} to 0\.\d{4},", printed)


def test_a_report_is_written_anew_but_nothing_else_is_replaced_unasked(study, tmp_path, call):
    out = tmp_path / "page.html"
    out.write_text("my own notes")
    code, _, errors = call("report", study, "--out", out)
    assert (code, out.read_text()) == (1, "my own notes")
    assert "the file exists and is no report" in errors
    assert call("report", study, "--out", out, "--overwrite")[0] == 0
    written = out.read_text(encoding="utf-8")
    assert call("report", study, "--out", out)[0] == 0
    assert out.read_text(encoding="utf-8") == written
    assert [path.name for path in tmp_path.iterdir()] == ["page.html"]


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (
            ["--format", "markdwon"],
            "--format is html, markdown, csv or latex, got 'markdwon'. Did you mean 'markdown'?",
        ),
        (["--out", "{folder}"], "this is a folder; give the name of a file."),
        (["--out", "{folder}/no/where.html"], "there is no folder"),
        (["--data", "sample:helpdesk"], "--data is for the report of a single model"),
        (["--task", "sts"], "--task chooses the task that predicts --data; give --data, too."),
    ],
)
def test_what_cannot_be_done_is_refused_in_one_line(study, tmp_path, call, arguments, why):
    code, _, errors = call("report", study, *(word.format(folder=tmp_path) for word in arguments))
    assert code == 1
    assert why in errors
    assert errors.count("\n") == 1


def test_a_folder_that_is_neither_is_refused(tmp_path, call):
    code, _, errors = call("report", tmp_path)
    assert code == 1
    assert "neither a study (study.json) nor a finished run (metrics.json)" in errors


def test_a_single_run_shows_curves_classes_and_confusion(model, tmp_path, call):
    out = tmp_path / "run.html"
    assert call("report", model, "--out", out)[0] == 0
    page = out.read_text(encoding="utf-8")
    read = Reader(page)
    assert "One run of <b>cross-entropy</b>, measured on dev rows." in page
    metrics = json.loads((model / "metrics.json").read_text())
    assert f"{100 * metrics['dev'][read_source(model).plan.metric]:.2f}" in page
    assert "Training loss" in read.texts["curves"]
    assert "Dev score" in read.texts["curves"]
    assert "fruit" in read.texts["per-class"] + read.texts["confusion"]
    assert "'nearfar report MODEL --data FILE' makes some" in read.texts["mistakes"]


@pytest.fixture
def made_up(tmp_path):
    """What a run leaves behind whose dev rows are scored pairs, and whose test rows are a ranking."""
    folder = tmp_path / "run"
    folder.mkdir()
    metrics = {"dev": {"spearman": 0.75, "mse": 0.5, "rows": 3}, "test": {"map": 0.25, "mrr": 0.5, "rows": 4}}
    (folder / "metrics.json").write_text(json.dumps(metrics))
    (folder / "nearfar.json").write_text(json.dumps({"objective": {"name": "mnrl"}, "task": {"kind": "scores"}}))
    entry = {"kind": "evaluation", "step": 1, "metric": "spearman", "scores": metrics["dev"]}
    (folder / "journal.jsonl").write_text(json.dumps(entry) + "\n")
    return folder


def test_dev_and_test_rows_of_different_kinds_are_both_shown(made_up, call):
    """Each by its own metric."""
    page = render_page(read_source(made_up))
    assert "measured on test rows and dev rows." in page
    assert "<dt>test rows, MAP × 100</dt><dd>25.00</dd>" in page
    assert "<dt>dev rows, Spearman’s ρ × 100</dt><dd>75.00</dd>" in page
    code, printed, _ = call("report", made_up, "--format", "markdown")
    assert code == 0
    assert "One run; test rows: MAP × 100, dev rows: Spearman’s ρ × 100." in printed
    (made_up / "metrics.json").write_text('{"dev": {"spearman": 0.75}, "test": {"spearman": 0.5}}')
    assert "One run; Spearman’s ρ × 100.\n" in call("report", made_up, "--format", "markdown")[1]
    (made_up / "metrics.json").write_text("{}")
    assert "One run; no score.\n" in call("report", made_up, "--format", "markdown")[1]


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("journal.jsonl", '{"kind": "step"}\n{"kind": ', "journal.jsonl:2: this is no entry"),
        ("metrics.json", "[]", "metrics.json is no object"),
        ("nearfar.json", "{", "the run cannot be read"),
    ],
)
def test_a_damaged_run_is_refused_in_one_line(made_up, call, name, text, why):
    (made_up / name).write_text(text)
    code, _, errors = call("report", made_up, "--format", "csv")
    assert (code, why in errors, errors.count("\n")) == (1, True, 1), errors


def test_a_page_that_cannot_be_written_whole_is_refused_and_leaves_nothing(study, tmp_path, monkeypatch):
    """As on a full disk: no file may be larger than 4,000 bytes."""
    monkeypatch.delenv("COVERAGE_PROCESS_CONFIG", raising=False)  # its file would be larger, too
    code = (
        "import resource, sys\nresource.setrlimit(resource.RLIMIT_FSIZE, (4000, 4000))\n"
        f"from nearfar.cli import main\nsys.argv = ['nearfar', 'report', {str(study)!r}, '--out', 'page.html']\nmain()"
    )
    done = subprocess.run([sys.executable, "-B", "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert (done.returncode, list(tmp_path.iterdir())) == (1, [])
    assert done.stderr == "error: page.html: nothing can be written there: File too large. Choose another --out.\n"


def test_a_single_run_on_a_file_shows_what_it_predicts_there(model, tmp_path, call):
    rows = [{"text": text, "label": label} for label, texts in (("fruit", FRUIT), ("tool", TOOLS)) for text in texts]
    rows += [{"text": f"{text} again", "label": "tool"} for text in FRUIT]  # wrong labels
    data = tmp_path / "new.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    out = tmp_path / "run.html"
    code, _, errors = call("report", model, "--data", data, "--out", out)
    assert code == 0, errors
    page = out.read_text(encoding="utf-8")
    read = Reader(page)
    for name in ("mistakes", "confidence", "map", "geometry"):
        assert "new.jsonl" in read.texts[name]
    assert "Before training" in read.texts["map"]
    for text in read.texts.values():
        assert not re.search(r"[Cc]ontender|[Bb]aseline|[0-9] of 1\b|over all runs", text)
    code, _, errors = call("predict", model, data, "--out", tmp_path / "predicted.jsonl")
    predicted = [
        json.loads(line)["predicted_label"] for line in (tmp_path / "predicted.jsonl").read_text().splitlines()
    ]
    wrong = [row["text"] for one, row in zip(predicted, rows, strict=True) if one != row["label"]]
    assert 0 < len(wrong) <= 10
    assert f"{len(wrong)} of 12 predictions wrong" in read.texts["confusion"]
    for row in rows:
        assert (f"{row['text']}{row['label']}" in read.texts["mistakes"]) == (row["text"] in wrong)


def test_labels_the_model_does_not_know_are_refused(model, tmp_path, call):
    data = tmp_path / "other.jsonl"
    data.write_text('{"text": "a b", "label": "spam"}\n', encoding="utf-8")
    code, _, errors = call("report", model, "--data", data, "--out", tmp_path / "x.html")
    assert code == 1
    assert "spam" in errors
    assert not (tmp_path / "x.html").exists()


def test_a_model_without_class_head_shows_its_space(tmp_path, call):
    """Of its own file, of another, and of none where its file is gone."""
    pairs = "text_a,text_b\n" + "".join(f"{one},{two}\n" for one, two in zip(FRUIT, TOOLS, strict=True))
    (tmp_path / "pairs.csv").write_text(pairs)
    assert (
        call("train", tmp_path / "pairs.csv", "--encoder", "toy", "--epochs", "1", "--out", tmp_path / "pairs")[0] == 0
    )
    assert call("report", tmp_path / "pairs", "--out", tmp_path / "p.html")[0] == 0
    page = (tmp_path / "p.html").read_text(encoding="utf-8")
    assert "No score was measured" in page
    assert "Training loss" in page
    shown = page[: page.index('id="absent"')]
    for name in ("geometry", "cosines", "layers", "cost"):
        assert f'<section id="{name}">' in shown, name
    assert "Settings of the run (" in shown, "also of a run without a score"
    assert "objective.name = " in shown
    assert "Computed with " in shown
    assert "texts of pairs.csv" in shown
    assert "cosines of 4 positive and 28 random pairs" in shown
    assert "before training, layer 0" in shown
    (tmp_path / "l.csv").write_text("text,label\na b,b\nc d,e\nf g,b\n")
    assert call("report", tmp_path / "pairs", "--data", tmp_path / "l.csv", "--out", tmp_path / "q.html")[0] == 0
    page = (tmp_path / "q.html").read_text(encoding="utf-8")
    assert "texts of l.csv" in page
    assert "cosines of 0 positive and 3 random pairs" in page
    (tmp_path / "pairs.csv").unlink()
    code, _, errors = call("report", tmp_path / "pairs", "--out", tmp_path / "r.html")
    assert (code, "no geometry: no file of the run exists any more" in errors) == (0, True)
    assert '<section id="cosines">' not in (tmp_path / "r.html").read_text(encoding="utf-8")


def test_a_real_study_becomes_a_report_with_every_section_it_has_data_for(tmp_path, preloaded_workers):
    file = small_study(tmp_path, ("seeds = [2, 16]", "seeds = [2]"))
    for words in (("study", "run", file, "--workers", "1"), ("report", tmp_path / "study")):
        status, _, errors = in_process(*words, "--out", tmp_path / ("study" if words[0] == "study" else "r.html"))
        assert status == 0, errors
    page = (tmp_path / "r.html").read_text(encoding="utf-8")
    read = Reader(page)
    shown = page[: page.index('id="absent"')]
    for name in ("scores", "differences", "size", "curves", "per-class", "confusion", "confidence", "map", "geometry",
                 "cost", "settings"):  # fmt: skip
        assert f'<section id="{name}">' in shown, name
    assert "too few runs to tell triple from plain" in page.lower()
    assert "objective.name" in read.texts["settings"]
