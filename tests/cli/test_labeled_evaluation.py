"""An encoder on labeled texts: clusters against classes, entities in a dictionary, and lexicons by CSLS."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from nearfar.cli import main
from nearfar.encoding import load
from nearfar.evaluation import embed_table, pair_report

NAMES = {"C1": ["kidney stone", "renal stone"], "C2": ["heart attack", "cardiac attack"], "C3": ["broken arm"]}


def call(*words: str | Path) -> tuple[int, str, str]:
    out, err, before = io.StringIO(), io.StringIO(), (sys.argv, sys.stdout, sys.stderr)
    sys.argv, sys.stdout, sys.stderr = ["nearfar", *map(str, words)], out, err
    try:
        main()
    except SystemExit as left:
        return (left.code if isinstance(left.code, int) else int(left.code is not None)), out.getvalue(), err.getvalue()
    finally:
        sys.argv, sys.stdout, sys.stderr = before
    return 0, out.getvalue(), err.getvalue()


@pytest.fixture
def files(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    rows = [(name, key) for key, names in NAMES.items() for name in names]
    Path("names.csv").write_text("text,label\n" + "".join(f"{name},{key}\n" for name, key in rows))
    Path("mentions.csv").write_text("text,label\na kidney stone,C1\nheart attack,C2\nbroken arm,C3\nfever,C9\n")
    Path("lexicon.csv").write_text("text_a,text_b\n" + "".join(f"{a},{b}\n" for a, b in rows))
    return tmp_path


def vectors(texts: list[str]) -> np.ndarray:
    model = load("toy")
    made = embed_table(model.model, model.tokenize(texts), batch_size=8)
    return np.asarray(made / np.linalg.norm(made, axis=1, keepdims=True))


def test_an_encoder_clusters_labeled_texts(files):
    status, out, err = call("evaluate", "toy", "names.csv", "--json")
    assert status == 0, err
    report = json.loads(out)
    assert (report["rows"], report["clusters"]) == (5, 3)
    assert 0 <= report["nmi"] <= 1
    assert report["purity"] >= 0.6
    status, out, _ = call("evaluate", "toy", "names.csv", "--clusters")
    assert "k-means with 3 clusters" in out


def test_mentions_are_linked_to_the_entity_of_the_nearest_name(files):
    status, out, err = call("evaluate", "toy", "mentions.csv", "--dictionary", "names.csv", "--json")
    assert status == 0, err
    names = [(name, key) for key, each in NAMES.items() for name in each]
    mentions = {"a kidney stone": "C1", "heart attack": "C2", "broken arm": "C3"}
    cosines = vectors(list(mentions)) @ vectors([name for name, _ in names]).T
    right = 0
    for row, label in zip(cosines, mentions.values(), strict=True):
        best = max(range(len(names)), key=lambda place: row[place])
        right += names[best][1] == label
    assert json.loads(out)["p@1"] == pytest.approx(right / 3)
    assert "1 mention of an entity that is not in names.csv left out" in err


def test_a_lexicon_is_searched_by_csls(files):
    for words in ((), ("--csls", "2")):
        status, out, err = call("evaluate", "toy", "lexicon.csv", *words, "--json")
        assert status == 0, err
        assert 0 < json.loads(out)["mrr"] <= 1


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("mentions.csv", "--dictionary", "lexicon.csv"), "are single texts with the id of an entity as label"),
        (("lexicon.csv", "--dictionary", "names.csv"), "mentions are single texts"),
        (("other.csv", "--dictionary", "names.csv"), "none of its entities is in names.csv"),
        (("names.csv", "--csls", "3"), "--csls is for a search"),
        (("one.csv",), "all rows have the same label"),
        (("lexicon.csv", "--clusters"), "clusters are compared with the classes of single texts"),
        (("names.csv", "--clusters", "--dictionary", "names.csv"), "are different evaluations; give one of them"),
        (("names.csv", "--clusters", "--threshold", "0.5"), "--threshold is the lowest cosine of a positive pair"),
        (("scored.csv", "--csls", "3"), "--csls is for a search, and these rows are pairs with scores"),
    ],
)
def test_bad_input_gives_one_clear_sentence(files, words, told):
    Path("other.csv").write_text("text,label\nfever,C9\n")
    Path("one.csv").write_text("text,label\na,x\nb,x\n")
    Path("scored.csv").write_text("text_a,text_b,score\na,b,0.5\nc,d,0.1\n")
    status, _, err = call("evaluate", "toy", *words)
    assert status in (1, 2)
    assert told in err
    assert "Traceback" not in err


def test_the_area_under_the_curve_is_that_of_scikit_learn():
    """Also with ties, and as loops over all pairs of a positive and a negative one."""
    draw = np.random.default_rng(3)
    for _ in range(50):
        n = int(draw.integers(4, 40))
        truth, scores = draw.integers(0, 2, size=n), draw.integers(0, 6, size=n) / 5
        if truth.min() == truth.max():
            continue
        value = pair_report(truth, scores).scores["roc_auc"]
        assert value == pytest.approx(roc_auc_score(truth, scores))
        wins = [float(a > b) + 0.5 * float(a == b) for a in scores[truth == 1] for b in scores[truth == 0]]
        assert value == pytest.approx(sum(wins) / len(wins))
    assert "roc_auc" not in pair_report(np.array([1, 1]), np.array([0.1, 0.2])).scores
