"""The command line for spaces: geometry, whiten, and evaluation on a suite."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer
from tests.cli.test_pairs import call

from nearfar.cli import embed
from nearfar.cli.geometry_tables import bins_per_line
from nearfar.encoding import load as open_model
from nearfar.encoding.pretrained import quiet_transformers
from nearfar.evaluation import alignment, anisotropy, effective_rank, uniformity
from nearfar.evaluation.geometry import CosineHistogram
from nearfar.pipeline import train, whitened_model
from nearfar.recipe import build_recipe

THINGS = ["apple", "pear", "hammer", "saw", "horse", "otter", "river", "cloud", "violin", "lantern"]
TEXTS = [f"{word} number {row} of the {THINGS[(3 * row) % 10]}" for row in range(9) for word in THINGS]
PAIRS = [
    {
        "text_a": f"the {one}",
        "text_b": f"a {one if row % 3 else THINGS[row]}",
        "score": float(4 + row % 2 if row % 3 else row % 4),
    }
    for row, one in enumerate(THINGS)
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Texts, pairs, a folder of suites, and a small model trained on pairs, with a threshold in its card."""
    folder = tmp_path_factory.mktemp("spaces")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        Path("texts.txt").write_text("".join(f"{text}\n" for text in TEXTS))
        write("sts.jsonl", PAIRS)
        Path("data/stsb").mkdir(parents=True)
        write("data/stsb/test.jsonl", PAIRS)
        write("data/simlex999.jsonl", [{**row, "score": 2 * row["score"]} for row in PAIRS])
        labeled = [
            {"text_a": f"the {one} {row}", "text_b": f"{row} a {one if row % 2 else THINGS[row % 7]}", "label": row % 2}
            for row in range(4)
            for one in THINGS
        ]
        write("labeled.jsonl", labeled)
        values = {
            "data": {"train": "labeled.jsonl", "dev": 0.3}, "encoder": {"name": "toy", "max_length": 16},
            "objective": {"name": "batch-softmax"}, "batches": {"size": 12},
            "training": {"epochs": 1, "learning_rate": 1e-3},
        }  # fmt: skip
        train(build_recipe(values, [], where="test"), folder / "trained")
    return folder


@pytest.fixture(autouse=True)
def _inside(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.delenv("NEARFAR_DATA", raising=False)


def write(name: str, rows: list[dict[str, Any]]) -> None:
    Path(name).write_text("".join(json.dumps(row) + "\n" for row in rows))


def good(*arguments: str) -> tuple[str, str]:
    code, out, errors = call(*arguments)
    assert code == 0, errors
    return out, errors


def refused(*arguments: str) -> str:
    code, _, errors = call(*arguments)
    assert code == 1, errors
    return errors


def directions(vectors: np.ndarray) -> np.ndarray:
    return vectors / np.linalg.norm(vectors.astype(np.float64), axis=1, keepdims=True)


# geometry


def test_every_measure_is_that_of_the_vectors_of_the_model(monkeypatch):
    """In windows that end unevenly."""
    monkeypatch.setattr(embed, "WINDOW", 7)
    out, errors = good("geometry", "toy", "texts.txt", "--pairs", "sts.jsonl", "--json")
    found = json.loads(out)["model"]
    model = open_model("toy")
    vectors = model.embed(TEXTS)
    positive = [row for row in PAIRS if row["score"] >= 4]
    sides = [model.embed([row[side] for row in positive]) for side in ("text_a", "text_b")]

    assert found["alignment"] == pytest.approx(alignment(*sides), abs=1e-5)
    assert found["uniformity"] == pytest.approx(uniformity(vectors).value, abs=1e-5)
    assert found["anisotropy"] == pytest.approx(anisotropy(vectors), abs=1e-5)
    assert found["effective_rank"] == pytest.approx(effective_rank(vectors), rel=1e-4)
    assert (found["rows"], found["positives"], found["exact"]) == (len(TEXTS), len(positive), True)
    assert sum(found["histogram"]["positive"]) == len(positive)
    assert f"{len(positive)} of 10 pairs are positive: a score of 4 or more on a scale from 0 to 5" in errors


def test_the_table_has_measures_layers_and_bars():
    out, _ = good("geometry", "toy", "texts.txt", "--pairs", "sts.jsonl", "--layers")

    assert f"texts.txt: {len(TEXTS)} vectors of 64 numbers" in out
    assert all(name in out for name in ("alignment", "uniformity", "anisotropy", "effective rank"))
    assert "after" in out
    assert "embeddings" in out
    assert "layer 2" in out
    assert "positive pairs (6)" in out
    assert f"random pairs ({len(TEXTS) * (len(TEXTS) - 1) // 2:,})" in out
    assert "█" in out


def test_two_models_stand_side_by_side_with_their_difference():
    out, _ = good("geometry", "trained", "texts.txt", "--before", "toy", "--layers", "--json")
    values = json.loads(out)
    alone = {name: json.loads(good("geometry", name, "texts.txt", "--json")[0])["model"] for name in ("toy", "trained")}

    assert values["before"]["anisotropy"] == alone["toy"]["anisotropy"]
    assert values["model"]["anisotropy"] == alone["trained"]["anisotropy"]
    assert values["before"]["anisotropy"] != values["model"]["anisotropy"]
    assert len(values["model"]["layer_anisotropy"]) == len(values["before"]["layer_anisotropy"]) == 3
    assert values["model"]["layer_anisotropy"][-1] == pytest.approx(values["model"]["anisotropy"], abs=1e-4)
    shown, _ = good("geometry", "trained", "texts.txt", "--before", "toy")
    change = values["model"]["anisotropy"] - values["before"]["anisotropy"]
    [line] = [line for line in shown.splitlines() if "anisotropy" in line]
    assert f"{change:+.4f}" in line
    assert "cosines of toy" in shown
    assert "cosines of trained" in shown


@pytest.mark.parametrize("content", ["one text\n", "same text\nsame text\n"])
def test_tiny_files_have_finite_measures(tmp_path, content):
    """What is not defined is a dash, or null."""
    (tmp_path / "tiny.txt").write_text(content)
    out, _ = good("geometry", "toy", str(tmp_path / "tiny.txt"), "--layers", "--json")
    found = json.loads(out)["model"]
    numbers = [found[name] for name in ("alignment", "uniformity", "anisotropy", "effective_rank")]
    shown, _ = good("geometry", "toy", str(tmp_path / "tiny.txt"), "--layers")

    assert all(number is None or np.isfinite(number) for number in numbers)
    assert found["anisotropy"] is None if found["rows"] == 1 else found["anisotropy"] == pytest.approx(1.0)
    assert "nan" not in shown.lower()


def test_nothing_is_not_printed_as_less_than_nothing(tmp_path):
    """Texts that are all the same differ by rounding."""
    (tmp_path / "same.txt").write_text("the same\n" * 9)
    alone, _ = good("geometry", "toy", str(tmp_path / "same.txt"))
    beside, _ = good("geometry", "toy", str(tmp_path / "same.txt"), "--before", "toy")

    assert "-0.0000" not in alone + beside
    assert "+0.0000" in beside


def test_a_narrow_cone_has_finer_bars_for_both_models_alike():
    """Lines of 0.05 where all cosines lie within half of what there can be, of 0.1 where they do not."""
    narrow, wide = np.zeros((2, 40), dtype=int)
    narrow[34:40], wide[[3, 39]] = 5, 5

    def histogram(counts: np.ndarray) -> CosineHistogram:
        return CosineHistogram(tuple(np.linspace(-1, 1, 41).tolist()), (0,) * 40, tuple(counts.tolist()))

    assert bins_per_line([histogram(narrow)]) == 1
    assert bins_per_line([histogram(narrow), histogram(wide)]) == 2
    assert bins_per_line([histogram(np.zeros(40, dtype=int))]) == 1
    out, _ = good("geometry", "toy", "texts.txt", "--before", "toy")
    assert "│ +0.95 │" in out


def test_both_texts_of_pairs_are_measured():
    out, _ = good("geometry", "toy", "sts.jsonl", "--json")

    assert json.loads(out)["model"]["rows"] == 2 * len(PAIRS)


def test_pairs_with_labels_and_pairs_without_anything_are_positives(tmp_path):
    write(str(tmp_path / "bare.jsonl"), [{"text_a": row["text_a"], "text_b": row["text_b"]} for row in PAIRS])
    _, labeled = good("geometry", "toy", "texts.txt", "--pairs", "labeled.jsonl")
    _, bare = good("geometry", "toy", "texts.txt", "--pairs", str(tmp_path / "bare.jsonl"))

    assert "20 of 40 pairs are positive: by their labels" in labeled
    assert "10 of 10 pairs are positive: all of them" in bare


def test_pairs_none_of_which_are_positive_give_no_alignment(tmp_path):
    write(str(tmp_path / "negative.jsonl"), [{"text_a": row["text_a"], "text_b": "x", "label": 0} for row in PAIRS])
    out, errors = good("geometry", "toy", "texts.txt", "--pairs", str(tmp_path / "negative.jsonl"), "--json")
    found = json.loads(out)["model"]

    assert (found["alignment"], found["positives"], sum(found["histogram"]["positive"])) == (None, 0, 0)
    assert "0 of 10 pairs are positive" in errors
    assert "so there is no alignment" in errors


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("texts.txt", "--pairs", "texts.txt"), "Name the columns of the pairs text_a and text_b"),
        (("missing.txt",), "missing.txt: there is no such file"),
        (("-", "--pairs", "-"), "only one file can come from standard input"),
        (("texts.txt", "--before", "./nowhere"), "there is no such folder"),
    ],
)
def test_what_cannot_be_measured_is_refused_in_one_line(arguments, words):
    errors = refused("geometry", "toy", *arguments)
    assert words in errors


def test_models_are_looked_for_before_the_file_is_read():
    """Also where the order of both is mistaken."""
    assert "nowhere: there is no such folder" in refused("geometry", "./nowhere", "missing.txt")
    assert "nowhere: there is no such folder" in refused("geometry", "toy", "missing.txt", "--before", "./nowhere")
    assert "texts.txt: this is a file; give the folder of an encoder" in refused("geometry", "texts.txt", "trained")


# whiten


@pytest.mark.parametrize(
    ("flags", "width"),
    [((), None), (("--dims", "16"), 16), (("--method", "all-but-the-top"), 64),
     (("--method", "all-but-the-top", "--remove", "3"), 64)],
)  # fmt: skip
def test_a_whitened_folder_opens_everywhere_to_the_same_cosines(tmp_path, flags, width):
    """Ours, sentence-transformers', and those by hand from the vectors before; to 1e-5."""
    out = tmp_path / "white"
    _, errors = good("whiten", "trained", "texts.txt", "--out", str(out), *flags)
    model = open_model(out)
    vectors = directions(model.embed(TEXTS))
    with quiet_transformers():
        other = directions(SentenceTransformer(str(out), device="cpu").encode(TEXTS))
    before = open_model("trained").embed(TEXTS).astype(np.float64)
    centered = before - before.mean(axis=0)
    values, axes = np.linalg.eigh(centered.T @ centered / len(TEXTS))
    kept = axes[:, ::-1][:, : vectors.shape[1]]
    if "--method" in flags:
        top = axes[:, ::-1][:, : 3 if "--remove" in flags else 1]
        expected = centered - centered @ top @ top.T
    else:
        expected = centered @ kept / np.sqrt(values[::-1][: kept.shape[1]])

    assert f"saved to {out}" in errors
    assert width is None or vectors.shape[1] == width
    np.testing.assert_allclose(vectors @ vectors.T, other @ other.T, atol=3e-5)  # whitening enlarges rounding errors
    tolerance = 1e-3 if width is None else 1e-4  # the narrowest directions are scaled up most, rounding with them
    np.testing.assert_allclose(vectors @ vectors.T, directions(expected) @ directions(expected).T, atol=tolerance)


def test_whitening_makes_these_very_texts_balanced(tmp_path):
    good("whiten", "trained", "texts.txt", "--out", str(tmp_path / "white"), "--dims", "16")
    values = json.loads(good("geometry", str(tmp_path / "white"), "texts.txt", "--before", "trained", "--json")[0])

    assert values["before"]["anisotropy"] > 0.2
    assert abs(values["model"]["anisotropy"]) < 0.02
    assert values["model"]["dim"] == 16


def test_the_folder_says_what_it_is_and_forgets_the_threshold(tmp_path):
    """A threshold of the cosines before means nothing after the map."""
    out = tmp_path / "white"
    assert "threshold" in open_model("trained").card.task
    _, errors = good("whiten", "trained", "texts.txt", "--out", str(out), "--dims", "4")
    card = open_model(out).card

    assert card.transform == {"kind": "whitening", "dims": 4, "texts": len(TEXTS)}
    assert card.task == {"kind": "pairs"}
    assert "the decision threshold from the dev rows is dropped" in errors
    assert (
        "A whitening after the pooling, fitted to 90 texts, gives vectors of 4 numbers"
        in (out / "README.md").read_text()
    )
    assert card.objective == open_model("trained").card.objective


def test_a_second_map_is_fitted_after_the_first(tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    good("whiten", "toy", "texts.txt", "--out", str(first), "--method", "all-but-the-top")
    _, errors = good("whiten", str(first), "texts.txt", "--out", str(second), "--dims", "8")
    vectors = open_model(second).embed(TEXTS).astype(np.float64)

    assert "fitted after it, and both are stored as one" in errors
    np.testing.assert_allclose(vectors.mean(axis=0), np.zeros(8), atol=1e-3)
    np.testing.assert_allclose(np.cov(vectors.T, bias=True), np.eye(8), atol=2e-3)
    assert open_model(second).card.transform["before"]["kind"] == "all-but-the-top"
    assert sorted(path.name for path in second.glob("[0-9]_*")) == ["1_Pooling", "2_Dense"]


def test_training_from_a_whitened_folder_starts_from_the_encoder_and_says_so(tmp_path):
    good("whiten", "toy", "texts.txt", "--out", str(tmp_path / "white"), "--dims", "8")
    _, errors = good(
        "train", "labeled.jsonl", "--encoder", str(tmp_path / "white"), "--objective", "batch-softmax", "--epochs", "1",
        "--out", str(tmp_path / "again"),
    )  # fmt: skip
    model = open_model(tmp_path / "again")

    assert "is left out: training changes the vectors it was fitted to" in errors
    assert model.card.transform is None
    assert model.embed(["a text"]).shape == (1, 64)


def test_the_last_line_says_what_became_of_the_width(tmp_path):
    _, kept = good("whiten", "toy", "texts.txt", "--out", str(tmp_path / "same"), "--method", "all-but-the-top")
    _, fewer = good("whiten", "toy", "texts.txt", "--out", str(tmp_path / "fewer"), "--dims", "8")

    assert "vectors keep their 64 numbers, by the all-but-the-top map of 90 texts; saved to" in kept
    assert "vectors of 64 numbers become 8, by the whitening of 90 texts; saved to" in fewer


def test_a_map_is_the_same_however_many_texts_are_encoded_at_a_time(tmp_path, monkeypatch):
    """Progress is printed in lines where there is no terminal."""
    good("whiten", "toy", "texts.txt", "--out", str(tmp_path / "whole"), "--dims", "8")
    monkeypatch.setattr(whitened_model, "PIECE", 40)
    _, errors = good("whiten", "toy", "texts.txt", "--out", str(tmp_path / "pieces"), "--dims", "8")

    assert "40/90 texts" in errors
    whole, pieces = (open_model(tmp_path / name).embed(TEXTS) for name in ("whole", "pieces"))
    np.testing.assert_allclose(pieces @ pieces.T, whole @ whole.T, atol=1e-3)
    progress: list[int] = []
    whitened_model.whiten(open_model("toy"), TEXTS, method="whitening", progress=progress.append)
    assert progress == [40, 80, 90]


def test_few_texts_are_told(tmp_path):
    (tmp_path / "few.txt").write_text("one text\nanother one\na third\n")
    _, errors = good("whiten", "toy", str(tmp_path / "few.txt"), "--out", str(tmp_path / "white"))

    assert "3 texts spread in 2 of 64 directions only; give more texts to keep more" in errors
    assert open_model(tmp_path / "white").embed(["a text"]).shape == (1, 2)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("texts.txt", "--method", "whitning"), "Did you mean 'whitening'?"),
        (("texts.txt", "--dims", "65"), "dims must be between 1 and 64"),
        (("texts.txt", "--dims", "3", "--method", "all-but-the-top"), "--dims is for whitening"),
        (("texts.txt", "--remove", "3"), "--remove is for all-but-the-top"),
        (("texts.txt", "--remove", "64", "--method", "all-but-the-top"), "nothing is left"),
        (("one.txt",), "one.txt: a map is fitted to different texts, and there is only one (got 'one text')"),
        (("same.txt",), "same.txt: a map is fitted to different texts, and there is only one (got 'the same')"),
        (("missing.txt",), "there is no such file"),
    ],
)
def test_a_map_that_cannot_be_is_refused_and_leaves_nothing(tmp_path, arguments, words):
    Path("one.txt").write_text("one text\n")
    Path("same.txt").write_text("the same\n" * 9)
    errors = refused("whiten", "toy", *arguments, "--out", str(tmp_path / "white"))

    assert words in errors
    assert not (tmp_path / "white").exists()


def test_a_model_is_not_whitened_into_itself_and_a_full_folder_not_replaced(tmp_path):
    assert "this is the model itself" in refused("whiten", "trained", "texts.txt", "--out", "trained", "--overwrite")
    (tmp_path / "file.txt").write_text("mine")
    errors = refused("whiten", "toy", "texts.txt", "--out", str(tmp_path))
    assert "the folder is not empty. Replace it with --overwrite" in errors
    assert "--resume" not in errors, "there is no such flag here"
    assert open_model("trained").card.transform is None


# evaluate --suite


def test_a_suite_is_one_table_with_its_mean():
    out, _ = good("evaluate", "toy", "--suite", "sts", "--data", "data")
    values = json.loads(good("evaluate", "toy", "--suite", "sts", "--data", "data", "--json")[0])
    single = json.loads(good("evaluate", "toy", "sts.jsonl", "--json")[0])

    assert values["sets"]["stsb"]["spearman"] == pytest.approx(100 * single["spearman"])
    assert values["mean"] == values["sets"]["stsb"]["spearman"]
    assert "mean of 1 set, without simlex999" in out
    assert f"{values['sets']['simlex999']['spearman']:.2f}" in out


def test_the_folder_may_come_from_the_environment(monkeypatch):
    monkeypatch.setenv("NEARFAR_DATA", "data")
    assert "stsb" in good("evaluate", "toy", "--suite", "sts")[0]
    assert "spearman" in good("evaluate", "toy", "sts.jsonl")[0]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "name a FILE to measure on"),
        (("--suite", "sts"), "--data FOLDER"),
        (("sts.jsonl", "--data", "data"), "--data is the folder of --suite"),
        (("sts.jsonl", "--suite", "sts", "--data", "data"), "sts.jsonl has no part in it"),
        (("--suite", "sts", "--data", "data", "--corpus", "x"), "--corpus and --suite are different evaluations"),
        (("--suite", "sts", "--data", "nowhere"), "nowhere: there is no such folder"),
        (("--suite", "sts", "--data", "trained"), "holds no data set of the suite sts"),
        (("--suite", "stss", "--data", "data"), "--suite is sts or all"),
        (("--suite", "sts", "--data", "sts.jsonl"), "this is a file, and a suite is a folder of such files"),
    ],
)
def test_a_suite_that_cannot_be_measured_is_refused(arguments, words):
    assert words in refused("evaluate", "toy", *arguments)


def test_a_set_without_a_correlation_is_told_of_in_plain_words(tmp_path):
    write(str(tmp_path / "stsb.jsonl"), [{**row, "score": 3} for row in PAIRS])
    write(str(tmp_path / "sts12.jsonl"), PAIRS[:1])
    _, errors = good("evaluate", "toy", "--suite", "sts", "--data", str(tmp_path))

    assert "note: stsb: all scores are the same, which counts as a correlation of 0" in errors
    assert "note: sts12: it has one pair, which counts as a correlation of 0" in errors
