"""Studies on pairs and rankings: a corpus that is searched, grades, and encoders that are not trained."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nearfar.data import read
from nearfar.data.corpora import read_corpus
from nearfar.encoding import load
from nearfar.errors import DataError, RecipeError, SettingError
from nearfar.experiments.plan import plan_study
from nearfar.experiments.records import STUDY as STUDY_FILE
from nearfar.experiments.records import Cell, DataSet, Plan, Record, best_by_dev, plan_text, write_record
from nearfar.experiments.rows import split
from nearfar.experiments.search import mined_rows
from nearfar.experiments.study import read_study
from nearfar.experiments.trial import Planned
from nearfar.experiments.trials import perform
from nearfar.pipeline.evaluate import measure
from tests.experiments.studies import in_process

STUDY = """
[study]
name = "claims"
seeds = [2]
folds = 2

[recipe.encoder]
name = "toy"
[recipe.training]
epochs = 1
[recipe.data]
dev = 0.3

[[data]]
name = "claims"
file = "pairs.jsonl"
DATA

[[contender]]
name = "trained"
objective = { name = "batch-softmax" }

[[contender]]
name = "as it is"
untrained = "as-is"
CONTENDER
"""


def rows_to(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def claims(number: int, start: int = 0) -> list[dict[str, Any]]:
    return [{"query": f"they say claim {n}", "doc": f"check of claim {n}"} for n in range(start, start + number)]


def labeled(number: int, start: int = 0) -> list[dict[str, Any]]:
    return [{"text_a": f"this is {n}", "text_b": f"that is {n + n % 2}", "label": 1 - n % 2}
            for n in range(start, start + number)]  # fmt: skip


def graded(queries: int, start: int = 0) -> list[dict[str, Any]]:
    return [{"query_id": f"q{q}", "query": f"where is {q}", "doc_id": f"q{q}d{n}", "doc": f"{q} is at {n}", "relevance": g}
            for q in range(start, start + queries) for n, g in enumerate((1, 4, 2))]  # fmt: skip


def plan(folder: Path, data: str = "", contender: str = "", **edits: str) -> Planned:
    text = STUDY.replace("DATA", data).replace("CONTENDER", contender)
    for before, after in edits.items():
        text = text.replace(before, after)
    (folder / "study.toml").write_text(text)
    return plan_study(read_study(folder / "study.toml"))


def run(planned: Planned, folder: Path) -> dict[str, list[Record]]:
    """The records of each contender."""
    records: dict[str, list[Record]] = {}
    for number, trial in enumerate(planned.trials.values()):
        (folder / str(number)).mkdir()
        record, files = perform(trial, folder / str(number))
        assert record.done, record.reason
        assert {"predictions.jsonl", "journal.jsonl"} <= set(files)
        records.setdefault(record.contender, []).append(record)
    return records


def test_a_corpus_is_searched_for_the_test_pairs_of_every_contender(tmp_path):
    """The numbers are those of ``nearfar evaluate --corpus``; another corpus makes other trials."""
    rows_to(tmp_path / "pairs.jsonl", claims(24))
    rows_to(tmp_path / "corpus.jsonl", [{"doc_id": str(n), "doc": f"check of claim {n}"} for n in range(120)])
    planned = plan(tmp_path, 'corpus = "corpus.jsonl"')
    records = run(planned, tmp_path)
    assert {name: len(each) for name, each in records.items()} == {"trained": 2, "as it is": 2}
    one = records["as it is"][0]
    assert (one.texts, one.test, one.recipe["untrained"]) == (0, 12, "as-is")
    lines = [json.loads(line) for line in (tmp_path / "pairs.jsonl").read_text().splitlines()]
    assert {"has_positive@1", "has_positive@5", "has_positive@50"} <= set(one.scores)
    tested = read(str(rows_to(tmp_path / "half.jsonl", lines)))
    whole, _ = measure(load("toy"), tested, corpus=read_corpus(str(tmp_path / "corpus.jsonl")))
    folds = [record.scores["mrr"] for record in records["as it is"]]
    assert sum(folds) / 2 == pytest.approx(whole.scores["mrr"]), "both folds together are all pairs"
    without = plan(tmp_path)
    assert not set(without.trials) & set(planned.trials)


def test_a_corpus_without_the_relevant_texts_is_refused_in_one_sentence(tmp_path):
    rows_to(tmp_path / "pairs.jsonl", claims(24))
    rows_to(tmp_path / "corpus.jsonl", [{"doc": f"check of claim {n}"} for n in range(4, 120)])
    with pytest.raises(DataError) as raised:
        plan(tmp_path, 'corpus = "corpus.jsonl"')
    (problem,) = raised.value.problems
    assert problem.message.startswith("4 of 24 queries have no relevant text in ")
    assert (problem.line, problem.value) == (1, "check of claim 0")
    planned = plan(tmp_path, 'corpus = "corpus.jsonl"\ninvalid = "drop"')
    assert any("4 queries without a relevant text" in note for note in planned.notes)
    rows_to(tmp_path / "pairs.jsonl", labeled(24))
    with pytest.raises(DataError, match="corpus is searched for the right texts of positive pairs or of a ranking"):
        plan(tmp_path, 'corpus = "corpus.jsonl"')


def test_another_encoder_that_is_not_trained_is_a_contender_on_labeled_pairs(tmp_path):
    """A checkpoint such as SimCSE's; its threshold is the best one of the training rows."""
    rows_to(tmp_path / "pairs.jsonl", labeled(40))
    foreign = tmp_path / "foreign"
    from nearfar.pipeline import train
    from nearfar.recipe import build_recipe

    values = {"data": {"train": str(rows_to(tmp_path / "other.jsonl", claims(12))), "dev": 0},
              "encoder": {"name": "toy"}, "training": {"epochs": 1}}  # fmt: skip
    train(build_recipe(values, where="test"), foreign)
    planned = plan(tmp_path, contender='encoder = { name = "foreign" }')
    records = run(planned, tmp_path)
    one = records["as it is"][0]
    assert one.recipe["encoder"]["name"].endswith("foreign")
    assert any("best threshold of the training rows" in note for note in one.notes)
    assert {"f1", "accuracy"} <= set(one.scores)
    whitened = plan(tmp_path, **{'untrained = "as-is"': 'untrained = "whitening"'})
    (tmp_path / "w").mkdir()
    assert run(whitened, tmp_path / "w")["as it is"][0].texts == 20


def test_seeds_share_the_trial_of_an_encoder_that_is_not_trained_on_an_official_test_set(tmp_path):
    """Nothing of it depends on training rows or seeds, unless they choose a threshold."""
    for make, trials in ((graded, 3 + 1), (labeled, 3 + 3)):
        rows_to(tmp_path / "pairs.jsonl", make(24))
        rows_to(tmp_path / "test.jsonl", make(12, 100))
        planned = plan(tmp_path, 'test = "test.jsonl"', **{"seeds = [2]": "seeds = [2, 3, 4]"})
        assert len(planned.trials) == trials, make


def test_grades_travel_with_a_study(tmp_path):
    """Scale and relevant grade of [[data]] hold for training, dev and test; grades outside are refused at once."""
    rows_to(tmp_path / "pairs.jsonl", graded(20))
    rows_to(tmp_path / "test.jsonl", graded(8, 100))
    data = 'test = "test.jsonl"\nscale = [1, 4]\nrelevant = 3'
    planned = plan(tmp_path, data, **{'"batch-softmax"': '"cosine-mse"'})
    (first, *_) = planned.trials.values()
    assert first.source.layout == {"scale": (1.0, 4.0), "relevant": 3.0}
    assert planned.rows["claims"][0].scale == (1, 4)
    again = type(first).from_json(json.loads(json.dumps(first.to_json())))
    record, _ = perform(again, tmp_path, None)
    assert record.done, record.reason
    with pytest.raises(DataError, match=r"outside data\.scale, which is from 1 to 3"):
        plan(tmp_path, 'test = "test.jsonl"\nscale = [1, 3]')


def test_single_texts_have_nothing_to_compare(tmp_path):
    rows_to(tmp_path / "pairs.jsonl", [{"text": f"t {n}", "label": "ab"[n % 2]} for n in range(12)])
    with pytest.raises(SettingError, match="untrained, which needs pairs, triplets, a ranking or scored pairs"):
        plan(tmp_path, **{'"batch-softmax"': '"cross-entropy"'})


MINED = """
[[contender]]
name = "mined"
objective = { name = "OBJECTIVE" }
mined = { rows = "ROWS", positions = "powers", oversample = OVERSAMPLE }
"""


@pytest.mark.parametrize(("objective", "rows"), [("cosine-mse", "pairs"), ("pair-triplet", "triplets")])
def test_negatives_are_mined_from_the_corpus_at_the_ranks_of_the_paper(tmp_path, objective, rows):
    """Section 4, PFCC-S: positions 100 + 2^k of the corpus by the encoder before training; positives oversampled."""
    rows_to(tmp_path / "pairs.jsonl", claims(20))
    rows_to(tmp_path / "corpus.jsonl", [{"doc": f"check of claim {n}"} for n in range(130)])
    table = MINED.replace("OBJECTIVE", objective).replace("ROWS", rows)
    table = table.replace("OVERSAMPLE", "true" if rows == "pairs" else "false")
    planned = plan(tmp_path, 'corpus = "corpus.jsonl"', table)
    trial = next(trial for trial in planned.trials.values() if trial.contender == "mined")
    part = split(planned.rows["claims"], trial)
    found, dev = mined_rows(trial, part.train, None)
    assert dev is not None
    assert len(dev) == 3, "the share of the recipe is set aside before"
    assert not set(dev.texts[0]) & set(found.texts[0]), "no dev claim trains"
    model, texts = load("toy"), [f"check of claim {n}" for n in range(130)]
    vectors = dict(zip(texts, model.embed(texts), strict=True))
    for anchor in dict.fromkeys(found.texts[0]):
        own = anchor.replace("they say", "check of")
        query = model.embed([anchor])[0]
        order = sorted((text for text in texts if text != own), key=lambda text: -cosine(query, vectors[text]))
        wanted = [order[rank - 1] for rank in (101, 102, 104, 108, 116)]
        mine = [row for row in zip(*found.texts, found.labels or [None] * len(found), strict=True) if row[0] == anchor]
        negatives = [row[1] for row in mine if row[2] == "0"] if rows == "pairs" else [row[2] for row in mine]
        assert negatives == wanted
    if rows == "pairs":
        assert found.labels is not None
        assert found.labels.count("1") == found.labels.count("0")
    again = type(trial).from_json(json.loads(json.dumps(trial.to_json())))
    assert again == trial
    record, _ = perform(trial, tmp_path, planned.rows["claims"])
    assert record.done, record.reason
    assert set(record.dev) == set(record.scores), "dev is measured by the same search"


def cosine(one: Any, other: Any) -> float:
    return float(one @ other / np.linalg.norm(one) / np.linalg.norm(other))


def test_mined_negatives_are_for_positive_pairs(tmp_path):
    rows_to(tmp_path / "pairs.jsonl", labeled(24))
    with pytest.raises(SettingError, match="has mined negatives, which are for positive pairs"):
        plan(
            tmp_path,
            contender=MINED.replace("OBJECTIVE", "cosine-mse").replace("ROWS", "pairs").replace("OVERSAMPLE", "true"),
        )
    rows_to(tmp_path / "pairs.jsonl", claims(20))
    planned = plan(
        tmp_path,
        contender=MINED.replace("OBJECTIVE", "cosine-mse").replace("ROWS", "pairs").replace("OVERSAMPLE", "true"),
    )
    trial = next(trial for trial in planned.trials.values() if trial.contender == "mined")
    record, _ = perform(trial, tmp_path, planned.rows["claims"])
    assert "no negatives can be mined among 7 texts; name a corpus in [[data]]." in str(record.reason)


def result(contender: str, seed: int, test: float, dev: float | None) -> Record:
    return Record(
        id=f"{contender}{seed}", data="x", limit=None, contender=contender, seed=seed, fold=0, status="done", metric="map",
        kind="ranking", scores={"map": test}, dev={} if dev is None else {"map": dev},
    )  # fmt: skip


def test_the_best_run_by_dev_counts_and_not_the_best_on_test(tmp_path):
    """Appendix A: five runs, the best on dev is reported; contenders without dev scores count with their first."""
    runs: list[tuple[str, float, float | None]] = [
        ("a", 0.9, 0.1), ("a", 0.5, 0.7), ("a", 0.6, 0.6), ("b", 0.4, None), ("b", 0.8, None), ("b", 0.7, None),
    ]  # fmt: skip
    records = [result(name, 2 + place % 3, test, dev) for place, (name, test, dev) in enumerate(runs)]
    assert [(each.contender, each.seed, each.score) for each in best_by_dev(records)] == [("a", 3, 0.5), ("b", 2, 0.4)]
    data = DataSet(name="x", file="x", limits=(None,), rows=9, digest="", test="t", kind="ranking", labels=())
    cells = tuple(
        Cell(id=each.id, data="x", limit=None, contender=each.contender, seed=each.seed, fold=0) for each in records
    )
    for choice, trials in (("all", 3), ("best", 1)):
        folder = tmp_path / choice
        study = Plan(name="s", metric="map", baseline="a", seeds=(2, 3, 4), folds=1, data=(data,),
                     contenders={"a": {}, "b": {}}, cells=cells, runs=choice)  # fmt: skip
        folder.mkdir()
        (folder / STUDY_FILE).write_text(plan_text(study))
        for each in records:
            write_record(folder, each, {})
        status, out, err = in_process("study", "show", folder)
        assert status == 0, err
        assert f"{trials}/{trials}" in out
        assert ("best run by dev score" in out) == (choice == "best")
        assert ("0.5000" in out) == (choice == "best")


def test_choosing_by_dev_needs_dev_rows(tmp_path):
    rows_to(tmp_path / "pairs.jsonl", claims(20))
    with pytest.raises(RecipeError, match=r"study\.runs is .best., which chooses by dev rows, and 'trained' has none"):
        plan(tmp_path, **{"dev = 0.3": "dev = 0", "folds = 2": 'folds = 2\nruns = "best"'})
    with pytest.raises(RecipeError, match=r"search\.dev is .recipe., which chooses by dev rows"):
        plan(
            tmp_path,
            **{
                "dev = 0.3": "dev = 0",
                'objective = { name = "batch-softmax" }': 'objective = { name = "batch-softmax" }\n'
                'search = { method = "grid", dev = "recipe", space = { "training.learning_rate" = [1e-5, 1e-3] } }',
            },
        )


def test_a_learning_rate_is_chosen_by_the_dev_rows_of_the_recipe(tmp_path):
    """Each point is one training with these dev rows; the best of them is trained and tested."""
    rows_to(tmp_path / "pairs.jsonl", claims(24))
    searched = 'objective = { name = "batch-softmax" }\n'
    searched += 'search = { method = "grid", dev = "recipe", space = { "training.learning_rate" = [1e-5, 1e-2] } }'
    planned = plan(tmp_path, **{'objective = { name = "batch-softmax" }': searched})
    trial = next(trial for trial in planned.trials.values() if trial.contender == "trained")
    record, _ = perform(trial, tmp_path, planned.rows["claims"])
    assert record.done, record.reason
    assert [len(point["settings"]) for point in record.searched] == [1, 1]
    best = max(record.searched, key=lambda point: max(point["scores"]))
    assert record.dev[record.metric] == max(best["scores"])
