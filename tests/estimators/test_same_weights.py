"""The same data, seed and settings give the same weights from Python and from the command line, bit for bit."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file
from typer.testing import CliRunner

import nearfar
from nearfar import Classifier, Encoder
from nearfar.cli.app import app

THINGS = ["apple", "pear", "hammer", "saw", "horse", "otter", "river", "cloud"]
PAIRS = [(f"the {one} number {row}", f"a {one} of {row}") for row in range(2) for one in THINGS]
SCORED = [(left, right, float(row % 6)) for row, (left, right) in enumerate(PAIRS)]
TRIPLETS = [(left, right, f"no {THINGS[(row + 3) % 8]}") for row, (left, right) in enumerate(PAIRS)]
TEXTS = [left for left, _ in PAIRS]
CLASSES = ["fruit" if "apple" in text or "pear" in text else "other" for text in TEXTS]
QUICK = {"encoder": "toy", "epochs": 2, "batch_size": 8, "precision": "fp32"}


def command(rows: dict[str, list], out: str, *flags: str) -> None:
    """What ``nearfar train`` saves for the same rows in a file."""
    with Path("rows.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(rows)
        writer.writerows(zip(*rows.values(), strict=True))
    quick = ["--encoder", "toy", "--epochs", "2", "--batch-size", "8", "--precision", "fp32", "--seed", "0"]
    result = CliRunner().invoke(app, ["train", "rows.csv", "--out", out, *quick, *flags])
    assert result.exit_code == 0, result.output


def weights(folder: str | Path) -> dict[str, np.ndarray]:
    files = sorted(Path(folder).glob("*.safetensors"))
    return {f"{path.name}:{name}": value for path in files for name, value in load_file(path).items()}


def assert_same(model, out: str) -> None:
    model.save("python")
    ours, theirs = weights("python"), weights(out)
    assert ours.keys() == theirs.keys()
    assert ours
    for name, value in ours.items():
        np.testing.assert_array_equal(value, theirs[name], err_msg=name)


CASES = {
    "few classes": (lambda: Classifier(**QUICK).fit(TEXTS, CLASSES), {"text": TEXTS, "label": CLASSES}, ()),
    "cross-entropy": (
        lambda: Classifier(**QUICK, objective="cross-entropy", class_weight="balanced").fit(TEXTS, CLASSES),
        {"text": TEXTS, "label": CLASSES},
        ("--objective", "cross-entropy", "--class-weight", "balanced"),
    ),
    "numbers as classes": (
        lambda: Classifier(**QUICK).fit(np.array(TEXTS), np.arange(16) % 3),
        {"text": TEXTS, "label": [n % 3 for n in range(16)]},
        (),
    ),
    "validation": (
        lambda: Classifier(**QUICK).fit(TEXTS, CLASSES, validation=0.25),
        {"text": TEXTS, "label": CLASSES},
        ("--dev", "0.25"),
    ),
    "classes of pairs": (
        lambda: Classifier(**QUICK).fit(PAIRS, CLASSES),
        {"text_a": [a for a, _ in PAIRS], "text_b": [b for _, b in PAIRS], "label": CLASSES},
        (),
    ),
    "positive pairs": (
        lambda: Encoder(**QUICK).fit(PAIRS),
        {"text_a": [a for a, _ in PAIRS], "text_b": [b for _, b in PAIRS]},
        (),
    ),
    "scored pairs": (
        lambda: Encoder(**QUICK).fit(SCORED),
        {"text_a": [a for a, _, _ in SCORED], "text_b": [b for _, b, _ in SCORED], "score": [s for *_, s in SCORED]},
        (),
    ),
    "binary pairs": (
        lambda: Encoder(**QUICK).fit({"text_a": TEXTS, "text_b": TEXTS[3:] + TEXTS[:3], "label": [0, 1] * 8}),
        {"text_a": TEXTS, "text_b": TEXTS[3:] + TEXTS[:3], "label": [0, 1] * 8},
        ("--objective", "batch-softmax"),
    ),
    "triplets": (
        lambda: Encoder(**QUICK).fit(TRIPLETS),
        {"anchor": [a for a, *_ in TRIPLETS], "positive": [p for _, p, _ in TRIPLETS], "negative": [n for *_, n in TRIPLETS]},
        (),
    ),
    "ranking": (
        lambda: Encoder(**QUICK).fit({"query_id": [n // 2 for n in range(16)], "query": [THINGS[n // 2] for n in range(16)], "document": TEXTS, "relevance": [1, 0] * 8}),
        {"query_id": [n // 2 for n in range(16)], "query": [THINGS[n // 2] for n in range(16)], "document": TEXTS, "relevance": [1, 0] * 8},
        (),
    ),
    "plain texts": (lambda: Encoder(**QUICK).fit(TEXTS), {"text": TEXTS}, ("--objective", "simcse")),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_python_and_the_command_line_train_the_same_weights(case, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    fit, rows, flags = CASES[case]
    command(rows, "command", *flags)
    assert_same(fit(), "command")


def test_a_recipe_trains_the_same_from_python(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    tables = {
        "seed": 0,
        "training": {"epochs": 2, "precision": "fp32"},
        "batches": {"size": 8},
        "encoder": {"name": "toy"},
    }
    command({"text": TEXTS, "label": CLASSES}, "command")
    rows = {"text": TEXTS, "label": CLASSES}
    assert_same(nearfar.train(tables, data=rows), "command")
    Path("recipe.toml").write_text(Path("command/recipe.toml").read_text())
    from_file = nearfar.train("recipe.toml", data=rows, out="named")
    assert_same(from_file, "command")
    assert json.loads(Path("named/estimator.json").read_text()) == {"label_type": "str"}


def test_the_order_of_fits_does_not_matter(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    first = Classifier(**QUICK).fit(TEXTS, CLASSES)
    Encoder(**QUICK).fit(PAIRS)
    again = Classifier(**QUICK).fit(TEXTS, CLASSES)
    first.save("first")
    assert_same(again, "first")


def test_fit_leaves_the_random_generators_as_they_were():
    import torch

    torch.manual_seed(5)
    before = torch.get_rng_state()
    Classifier(**{**QUICK, "epochs": 1}).fit(TEXTS, CLASSES)
    assert torch.equal(torch.get_rng_state(), before)
