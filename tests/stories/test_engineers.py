"""People who program: a data scientist, a retrieval engineer, a researcher, production, few labels, a laptop."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.model_selection import cross_val_score

import nearfar as library
from tests.stories.desk import ROWS, WORDS, nearfar, read_csv, works, write_csv

TRAIN = ("train", "tickets.csv", "--encoder", "toy", "--no-estimate", "--out", "model")


@pytest.fixture(autouse=True)
def _desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_csv(Path("tickets.csv"), ("text", "label"), ROWS)


def test_a_data_scientist_in_a_notebook() -> None:
    """A frame in, probabilities out, the usual tools, and how much to trust it."""
    frame = pd.DataFrame(ROWS, columns=["body", "topic"])
    clf = library.Classifier("toy").fit(frame["body"], frame["topic"])
    probabilities = pd.DataFrame(clf.predict_proba(frame["body"]), columns=clf.classes_)
    assert np.allclose(probabilities.sum(axis=1), 1, atol=1e-4)
    assert clf.estimate_ is not None
    assert clf.estimate_.baselines["most frequent class"] == pytest.approx(1 / 3)
    folds = cross_val_score(library.Classifier("toy", max_steps=2, estimate=False), frame["body"], frame["topic"], cv=2)
    assert folds.shape == (2,)
    clf.save("kept")
    assert library.load("kept").predict(frame["body"]).tolist() == clf.predict(frame["body"]).tolist()


def test_a_retrieval_engineer_searches_a_knowledge_base() -> None:
    """Questions and their answers train; an index is searched by one question from the command line."""
    pairs = [(text, f"help page about {label} and {text.split()[-1]}") for text, label in ROWS]
    write_csv(Path("faq.csv"), ("question", "answer"), pairs)
    pages = sorted({page for _, page in pairs})
    write_csv(Path("pages.csv"), ("text",), [(page,) for page in pages])
    works("train", "faq.csv", "--encoder", "toy", "--epochs", "1", "--dev", "0.2", "--out", "model")
    metrics = json.loads(Path("model/metrics.json").read_text())
    assert metrics["untrained"]  # the encoder before training, beside the trained one
    works("index", "model", "pages.csv", "--out", "index")
    out, _ = works("search", "model", "index", "where is the invoice", "--top", "3", "--json")
    found = json.loads(out)["results"]
    assert len(found) == 3
    assert all(hit["doc"] in pages for hit in found)


def test_a_researcher_compares_objectives_for_a_paper() -> None:
    """The same folds and seeds for all, a test of the difference, and a table for LaTeX."""
    rows = ([text for text, _ in ROWS], [label for _, label in ROWS])
    contenders = {"ce": {"objective": "cross-entropy"}, "supcon": {"objective": "supcon"}}
    settings = {"training.max_steps": 2}
    table = library.compare(contenders, rows, seeds=1, folds=2, encoder="toy", settings=settings)
    assert set(table["contender"]) == {"ce", "supcon"}
    assert "tabular" in table.to_latex()


def test_production_labels_a_stream_and_notices_a_broken_model() -> None:
    """JSON lines in, JSON lines out, in order; a damaged folder is an error and no wrong label."""
    works(*TRAIN)
    lines = "".join(json.dumps({"id": number, "text": text}) + "\n" for number, (text, _) in enumerate(ROWS))
    out, _ = works("predict", "model", "-", "--device", "cpu", stdin=lines.encode())
    answers = [json.loads(line) for line in out.splitlines()]
    assert [answer["id"] for answer in answers] == list(range(len(ROWS)))
    assert all(answer["label"] == max(answer["probabilities"], key=answer["probabilities"].get) for answer in answers)
    weights = Path("model/model.safetensors")
    weights.write_bytes(weights.read_bytes()[:1000])
    code, out, errors = nearfar("predict", "model", "tickets.csv")
    assert (code, out) == (1, "")
    assert "Traceback" not in errors


def test_twenty_labels_and_five_thousand_texts_without() -> None:
    """A model from the few labels sorts the many texts, and shows which ones a person should look at."""
    write_csv(Path("twenty.csv"), ("text", "label"), ROWS[:20])
    many = [(number, f"{ROWS[number % len(ROWS)][0]} number {number}") for number in range(5_000)]
    write_csv(Path("many.csv"), ("id", "text"), many)
    works("train", "twenty.csv", "--encoder", "toy", "--no-estimate", "--out", "model")
    works("predict", "model", "many.csv", "--min-probability", "0.34", "--top", "2", "--out", "sorted.csv")
    rows = read_csv(Path("sorted.csv"))
    assert [int(row["id"]) for row in rows] == list(range(5_000))
    assert all(not row["label"] or float(row["probability"]) >= 0.34 for row in rows)
    assert {row["label"] for row in rows} <= {*WORDS, ""}


def test_a_laptop_user_without_a_gpu() -> None:
    """A device that is not there is refused before the work; the processor does it, and the same model comes out."""
    works(*TRAIN)
    code, out, errors = nearfar("predict", "model", "tickets.csv", "--device", "cuda:9")
    assert (code, out) == (1, "")
    assert "cpu" in errors
    here, _ = works("predict", "model", "tickets.csv", "--device", "cpu")
    weights = Path("model/model.safetensors").read_bytes()
    code, _, errors = nearfar(*TRAIN)  # the folder is not replaced without being asked
    assert code == 1
    assert "--overwrite" in errors
    works(*TRAIN, "--overwrite")
    assert Path("model/model.safetensors").read_bytes() == weights
    assert works("predict", "model", "tickets.csv", "--device", "cpu")[0] == here
