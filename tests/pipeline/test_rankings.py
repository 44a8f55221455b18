"""Training on rankings: grades reach the objectives that read them, a corpus is searched, negatives are left out."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from nearfar import recipe as recipes
from nearfar.encoding import tokenize
from nearfar.errors import DataError, SettingError
from nearfar.evaluation import embed_table
from nearfar.pipeline import train
from nearfar.pipeline.encoder_run import EncoderPlan, plan_encoder_run
from nearfar.pipeline.loaders import by_anchor, distinct, make_loader, scale_of, tokenized
from nearfar.pipeline.objectives import build_terms
from nearfar.pipeline.plan import open_encoder
from nearfar.seeds import stream

GRADES = (1, 4, 3, 2)


def build_recipe(values: dict[str, Any]) -> recipes.Recipe:
    return recipes.build_recipe(values, where="test")


def write(path: Path, rows: list[dict[str, Any]]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def ranking(queries: int, start: int = 0) -> list[dict[str, Any]]:
    return [
        {"query_id": f"q{q}", "query": f"where is thing {q}", "doc_id": f"q{q}d{n}", "doc": f"thing {q} at {n}",
         "relevance": grade}
        for q in range(start, start + queries)
        for n, grade in enumerate(GRADES)
    ]  # fmt: skip


def planned(file: str, objective: dict[str, Any], **data: Any) -> EncoderPlan:
    return plan_encoder_run(
        build_recipe(
            {"data": {"train": file, "dev": 0, **data}, "encoder": {"name": "toy"}, "objective": objective,
             "batches": {"size": 8, "shuffle": "file-order"}, "training": {"epochs": 1}}
        )
    )  # fmt: skip


def first_batch(plan: EncoderPlan) -> tuple[Any, Any]:
    """The targets and groups of the first batch."""
    built = open_encoder(plan.recipe.encoder, classes=None, seed=0)
    rows = tokenized(built, plan.data, plan.data.train, scale_of(plan.data))
    loader = make_loader(plan.parts[0], built, plan.data, rows)
    return rows, loader


@pytest.mark.parametrize("objective", [{"name": "cosine-mse"}, {"name": "pearson"}])
def test_grades_reach_objectives_that_read_scores(tmp_path, objective):
    """Scores on a scale from 1 to 4 become 0, 1/3, 2/3 and 1, as in section 4 of the paper."""
    plan = planned(write(tmp_path / "r.jsonl", ranking(4)), objective, scale=[1, 4], relevant=3)
    rows, loader = first_batch(plan)
    assert loader.targets is not None
    assert loader.targets[:4] == pytest.approx([0, 1, 2 / 3, 1 / 3])
    assert rows.graded
    assert (loader.targets > rows.positive_above).tolist() == [False, True, True, False] * 4


def test_every_part_of_a_combination_has_its_own_view_of_the_grades(tmp_path):
    """MSE reads them, batch-softmax those from the relevant one on (3), or above its threshold; so do the others."""
    parts = {"mse": {"name": "cosine-mse"}, "bsc": {"name": "batch-softmax", "groups": False, "reduction": "all"},
             "triplet": {"name": "pair-triplet"}, "pairs": {"name": "contrastive-pairs"}}  # fmt: skip
    plan = planned(write(tmp_path / "r.jsonl", ranking(4)), {"name": "blend", "parts": parts}, scale=[1, 4], relevant=3)
    rows, loader = first_batch(plan)
    terms, _ = build_terms(
        plan.recipe.objective, classes=(), dim=4, labels=rows.labels, seed=0, positive_above=rows.positive_above
    )
    by_name = {term.name: term.objective for term in terms}
    left, right = torch.randn(2, 8, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    graded = torch.from_numpy(loader.targets[:8])
    binary = (graded > 0.5).double()
    for name in ("bsc", "triplet", "pairs"):
        assert by_name[name](left, right, graded).item() == by_name[name](left, right, binary).item()
    slow = np.mean([(c - y) ** 2 for c, y in zip(torch.cosine_similarity(left, right), graded, strict=True)])
    assert by_name["mse"](left, right, graded).item() == pytest.approx(slow)
    assert loader.groups is not None
    group_left, group_right = loader.groups
    assert (group_left == group_right).tolist() == [False, True, True, False] * 4


def test_a_run_on_grades_trains_is_measured_and_resumes(tmp_path):
    """nDCG has gains from 0 to 3, MRR counts documents of the grades 3 and 4."""
    recipe = build_recipe(
        {
            "data": {"train": write(tmp_path / "r.jsonl", ranking(6)), "test": write(tmp_path / "t.jsonl", ranking(4, 50)),
                     "dev": 0, "scale": [1, 4], "relevant": 3},
            "encoder": {"name": "toy"},
            "objective": {"name": "blend", "parts": {"mse": {"name": "cosine-mse"}, "bsc": {"name": "batch-softmax"}}},
            "training": {"epochs": 1},
        }
    )  # fmt: skip
    report: Any = train(recipe, tmp_path / "model").report("test")
    assert report.positive == 2
    assert (report.queries, report.queries_without_positive) == (4, 0)


def test_positives_only_leaves_out_negatives_in_training_alone(tmp_path):
    """BSC - positives of Table 1."""
    file = write(tmp_path / "r.jsonl", ranking(6))
    plan = planned(file, {"name": "batch-softmax"}, scale=[1, 4], relevant=3, positives_only=True)
    assert plan.data.train.scores == [4, 3] * 6
    assert "data.positives_only leaves out 12 negative pairs" in plan.notes
    plan = planned(file, {"name": "batch-softmax"}, scale=[1, 4], relevant=3, positives_only=True, test=file)
    assert plan.data.test is not None
    assert len(plan.data.test) == 24
    scored = write(tmp_path / "s.jsonl", [{"text_a": "a", "text_b": f"b {n}", "score": n / 4} for n in range(5)])
    with pytest.raises(SettingError, match="keeps positive pairs, and these are pairs with scores"):
        planned(scored, {"name": "cosine-mse"}, positives_only=True)


def test_keys_that_do_not_fit_the_rows_are_refused(tmp_path):
    positives = write(tmp_path / "p.jsonl", [{"text_a": f"a {n}", "text_b": f"b {n}"} for n in range(5)])
    with pytest.raises(DataError, match=r"data\.scale is the range of scores, and these rows have none"):
        planned(positives, {"name": "batch-softmax"}, scale=[1, 4])
    with pytest.raises(DataError, match=r"data\.relevant is a grade of a ranking, and these rows are pairs"):
        planned(positives, {"name": "batch-softmax"}, relevant=3)
    with pytest.raises(DataError, match=r"r\.jsonl:2.*the score is outside data\.scale, which is from 0 to 3"):
        planned(write(tmp_path / "r.jsonl", ranking(4)), {"name": "cosine-mse"}, scale=[0, 3])


def pairs(number: int, start: int = 0) -> list[dict[str, Any]]:
    return [{"query": f"claim {n} of someone", "doc": f"check of claim {n}"} for n in range(start, start + number)]


def test_dev_and_test_pairs_are_searched_for_in_a_corpus(tmp_path):
    """The corpus has more texts than the pairs; measures are those of a ranking; what it lacks is refused at once."""
    corpus = [{"doc_id": f"v{n}", "doc": f"check of claim {n}"} for n in range(90)]
    data = {
        "train": write(tmp_path / "p.jsonl", pairs(20)), "dev": write(tmp_path / "d.jsonl", pairs(6, 40)),
        "test": write(tmp_path / "t.jsonl", pairs(8, 60)), "corpus": write(tmp_path / "c.jsonl", corpus),
    }  # fmt: skip
    values = {"data": data, "encoder": {"name": "toy"}, "objective": {"name": "batch-softmax"},
              "training": {"epochs": 1, "metric": "has_positive@5"}}  # fmt: skip
    summary = train(build_recipe(values), tmp_path / "model")
    for split, queries in (("dev", 6), ("test", 8)):
        report: Any = summary.report(split)
        assert report.queries == queries
        assert report.rows >= 50 * queries, "the nearest of the whole corpus are ranked"
    write(tmp_path / "c.jsonl", corpus[:63])
    with pytest.raises(DataError, match=r"t\.jsonl:4.* 5 of 8 queries have no relevant text in .*c\.jsonl"):
        plan_encoder_run(build_recipe(values))
    dropped = plan_encoder_run(build_recipe({**values, "data": {**data, "invalid": "drop"}}))
    assert any("5 queries without a relevant text" in note for note in dropped.notes)
    labeled = write(tmp_path / "l.jsonl", [{"text": f"t {n}", "label": "ab"[n % 2]} for n in range(9)])
    with pytest.raises(SettingError, match=r"data\.corpus is searched for the right texts of pairs"):
        plan_encoder_run(build_recipe({"data": {"train": labeled, "corpus": data["corpus"]}}))


ANCHOR = {"name": "pair-triplet", "negatives": "anchor"}


def triplets_of(plan: EncoderPlan) -> tuple[list[tuple[str, ...]], Any, list[str]]:
    """The triplets of a plan as texts, its loader, and the notes."""
    built = open_encoder(plan.recipe.encoder, classes=None, seed=0)
    pairs = tokenized(built, plan.data, plan.data.train, scale_of(plan.data))
    rows, notes = by_anchor(pairs, plan.recipe.objective.does.threshold)
    texts = distinct(plan.data.train.texts)[0]
    columns = [[texts[place] for place in column.tolist()] for column in rows.columns]
    return list(zip(*columns, strict=True)), make_loader(plan.parts[0], built, plan.data, rows), notes


def slow_triplets(rows: list[dict[str, Any]], good: Any) -> list[tuple[str, str, str]]:
    """Section 4, CQA-A: the pairs are grouped by their first element, the anchor."""
    found = []
    for query in dict.fromkeys(row["query"] for row in rows):
        own = [row for row in rows if row["query"] == query]
        found += [(query, one["doc"], other["doc"]) for one in own if good(one) for other in own if not good(other)]
    return found


def test_triplets_of_a_ranking_are_grouped_by_their_anchor(tmp_path):
    """Each relevant document with each other one of the query; queries that lack either do not train."""
    rows = [row for row in ranking(6) if row["query_id"] != "q3" or row["relevance"] < 3]
    plan = planned(write(tmp_path / "r.jsonl", rows), ANCHOR, scale=[1, 4], relevant=3)
    found, loader, notes = triplets_of(plan)
    assert found == slow_triplets(rows, lambda row: row["relevance"] >= 3)
    assert notes == ["20 triplets of 5 left texts; 1 without a positive or without a negative pair do not train"]
    assert loader.targets is None
    lines = {row["doc"]: line for line, row in enumerate(rows, 1)}
    assert [lines[positive] for _, positive, _ in found] == list(loader.lines)
    stage = plan.parts[0]
    changed = replace(stage, recipe=replace(stage.recipe, batches=replace(stage.recipe.batches, shuffle="shingles")))
    built = open_encoder(plan.recipe.encoder, classes=None, seed=0)
    made, _ = by_anchor(tokenized(built, plan.data, plan.data.train, None))
    batches = make_loader(changed, built, plan.data, made).sampler.batches(0)
    assert sorted(row for batch in batches for row in batch) == list(range(20))


def test_triplets_of_labeled_pairs_give_the_triplet_loss(tmp_path):
    """The loss of the first step is that of the triplets alone: no right text of another row is a negative."""
    rows = [{"query": f"left {n // 3}", "doc": f"right {n}", "label": int(n % 3 == 0)} for n in range(18)]
    named = [{"text_a": row["query"], "text_b": row["doc"], "label": row["label"]} for row in rows]
    file, objective = write(tmp_path / "p.jsonl", named), {**ANCHOR, "margin": 0.6}
    found, _, notes = triplets_of(planned(file, objective))
    assert found == slow_triplets(rows, lambda row: row["label"] == 1)
    assert notes == ["12 triplets of 6 left texts"]
    values = {"data": {"train": file, "dev": 0}, "encoder": {"name": "toy", "dropout": 0.0}, "objective": objective,
              "batches": {"size": 64}, "training": {"epochs": 1, "precision": "fp32"}}  # fmt: skip
    recipe = build_recipe(values)
    train(recipe, tmp_path / "model")
    journal = [json.loads(line) for line in (tmp_path / "model" / "journal.jsonl").read_text().splitlines()]
    loss = next(entry["loss"] for entry in journal if entry["kind"] == "step")
    names = sorted({text for triplet in found for text in triplet})
    built = open_encoder(recipe.encoder, classes=None, seed=stream(recipe.seed, "head"))
    vectors = embed_table(built.model, tokenize(built.tokenizer, [names], max_length=16), batch_size=8)
    unit = {text: vector / np.linalg.norm(vector) for text, vector in zip(names, vectors, strict=True)}
    gaps = [np.linalg.norm(unit[a] - unit[p]) - np.linalg.norm(unit[a] - unit[n]) for a, p, n in found]
    assert loss == pytest.approx(np.mean([max(0, gap + 0.6) for gap in gaps]), abs=1e-5)


def test_triplets_by_anchor_need_labeled_negatives(tmp_path):
    positives = write(tmp_path / "p.jsonl", pairs(8))
    with pytest.raises(SettingError, match="takes labeled negative pairs, and all of these pairs are positive"):
        train(planned(positives, ANCHOR).given, tmp_path / "a")
    lonely = write(tmp_path / "l.jsonl", [{"text_a": f"a {n}", "text_b": f"b {n}", "label": n % 2} for n in range(8)])
    with pytest.raises(SettingError, match="none of the 8 left texts has both"):
        train(planned(lonely, ANCHOR).given, tmp_path / "b")
    blend = {"name": "blend", "parts": {"triplet": ANCHOR, "mse": {"name": "cosine-mse"}}}
    with pytest.raises(SettingError, match="which have no labels for cosine-mse"):
        planned(lonely, blend)
