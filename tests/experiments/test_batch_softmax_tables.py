"""The tables of the batch-softmax paper against its own rules: equations, rows, and what is trained and searched."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
import torch

from nearfar.experiments.published import FOLDER, find_paper, find_table
from nearfar.experiments.published.table_data import DataFolder, TableOptions
from nearfar.experiments.reproduce import prepare
from nearfar.experiments.study import read_study
from nearfar.experiments.study_schema import Mined
from nearfar.pipeline.objectives import build_terms
from nearfar.recipe.objectives import parts_of
from nearfar.recipe.pair_objectives import BatchSoftmax


def all_batch_softmax() -> list[tuple[str, BatchSoftmax]]:
    """Every batch-softmax objective of the paper's study files, with the name of its study and contender."""
    found = []
    for path in sorted((FOLDER / "batch-softmax").glob("*.toml")):
        study = read_study(path)
        for contender in study.contenders:
            recipe = study.recipe(contender)
            for objective in [recipe.objective, *(stage.objective for stage in recipe.stage)]:
                for part in parts_of(objective).values():
                    if isinstance(part, BatchSoftmax):
                        found.append((f"{path.stem}: {contender.name}", part))
    return found


def published_loss(left: torch.Tensor, right: torch.Tensor, positive: list[bool], tau: float) -> float:
    """Eq. 5 and its counterpart of the other direction, as loops: 1/m over all rows, every row in the denominator."""
    q = [[x / math.hypot(*row) for x in row] for row in left.tolist()]
    a = [[x / math.hypot(*row) for x in row] for row in right.tolist()]
    total, m = 0.0, len(q)
    for i in range(m):
        if positive[i]:
            own = sum(x * y for x, y in zip(q[i], a[i], strict=True)) / tau
            across = [math.exp(sum(x * y for x, y in zip(q[i], a[j], strict=True)) / tau) for j in range(m)]
            back = [math.exp(sum(x * y for x, y in zip(a[i], q[j], strict=True)) / tau) for j in range(m)]
            total += (-own + math.log(sum(across))) / m + (-own + math.log(sum(back))) / m
    return total


def test_batch_softmax_is_that_of_equations_3_to_5_in_every_table():
    """Groups and reduction of every recipe, and the combination of CQA-A (eq. 6) on a batch against loops."""
    found = all_batch_softmax()
    assert len(found) >= 26
    assert [name for name, part in found if part.groups or part.reduction != "all"] == []
    study = read_study(FOLDER / "batch-softmax/table-2-cqa-a.toml")
    objective = study.recipe(next(each for each in study.contenders if each.name == "combo")).objective
    terms, _ = build_terms(objective, classes=(), dim=5, labels=np.zeros(0, dtype=np.int64), seed=0)
    assert {term.view for term in terms} == {"pairs"}, "a group would change the denominator"
    left, right = torch.randn(2, 6, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    left[1] = left[0]  # the same question twice
    targets = torch.tensor([1.0, 1, 0, 1, 0, 0], dtype=torch.float64)
    value = sum(term.weight * term.objective(left, right, targets).item() for term in terms)
    cosines = torch.cosine_similarity(left, right)
    mse = sum((c - y) ** 2 for c, y in zip(cosines.tolist(), targets.tolist(), strict=True)) / 6
    assert value == pytest.approx(0.1 * published_loss(left, right, (targets == 1).tolist(), 0.055) + 0.9 * mse)


def test_rows_of_the_tables_are_those_of_the_paper():
    """Tables 1 to 5 and section 7: every approach of the paper, but for results that it takes from others."""
    approaches = {
        "1": {"MSE", "BSC", "BSC, positives", "BSC, random", "combo", "SimCSE"},
        "2": {"MSE", "BSC", "BSC, clusters", "BSC, random", "BSC, file order", "combo", "triplet", "SimCSE"},
        "3": {"MSE", "BSC", "BSC, by rows", "BSC, not normalized", "BSC, random", "triplet", "SimCSE"},
        "4": {"MSE", "BSC", "combo", "Pearson + BSC"},
        "5": {"MSE", "BSC", "combo", "MSE, then BSC", "BSC, then MSE", "Pearson", "SimCSE"},
    }
    for number, names in approaches.items():
        table = find_table(find_paper("bsc"), number)
        contenders = [each for name in table.studies for each in read_study(FOLDER / name).contenders]
        assert {each.name for each in contenders} == names
        assert {name for row in table.published.values() for each in row.values() for name in each} == names


def test_settings_that_only_the_new_rows_have():
    """Margins and mined ranks of the appendix and section 4, grades of Antique, a corpus to search, a checkpoint."""
    claims = read_study(FOLDER / "batch-softmax/table-3.toml")
    by_name = {each.name: each for each in claims.contenders}
    assert by_name["MSE"].mined == Mined(rows="pairs", positions="powers", oversample=True)
    assert by_name["triplet"].mined == Mined(rows="triplets", positions="powers")
    margins: Any = [claims.recipe(by_name["triplet"]).objective]
    assert claims.data[0].corpus == "known_lie_snopes/corpus.jsonl.gz"
    for name in ("cqa-a", "cqa-b"):
        study = read_study(FOLDER / f"batch-softmax/table-2-{name}.toml")
        margins.append(study.recipe(next(each for each in study.contenders if each.name == "triplet")).objective)
    assert [(each.margin, each.negatives) for each in margins] == [(0.6, "batch"), (0.5, "anchor"), (0.5, "anchor")]
    antique = read_study(FOLDER / "batch-softmax/table-1.toml")
    assert (antique.data[0].scale, antique.data[0].relevant) == ((1.0, 4.0), 3)
    positives = next(each for each in antique.contenders if each.name == "BSC, positives")
    assert antique.recipe(positives).data.positives_only
    simcse = next(each for each in antique.contenders if each.name == "SimCSE")
    assert (simcse.untrained, antique.recipe(simcse).encoder.pooling) == ("as-is", "pooler")


def test_the_learning_rate_mu_and_the_best_of_five_are_chosen_on_dev(tmp_path):
    """Appendix A: rates from {5e-6, 1e-5, 2e-5, 3e-5}, μ from {0.1, 0.5, 0.9}, and the best of five runs on dev."""
    rows = [{"text_a": f"this is {n}", "text_b": f"that is {n}", "score": float(n % 6)} for n in range(30)]
    (tmp_path / "stsb").mkdir()
    for split in ("train", "dev", "test"):
        content = "".join(json.dumps(row) + "\n" for row in rows)
        (tmp_path / "stsb" / f"{split}.jsonl").write_text(content)
    paper = find_paper("bsc")
    for name in ("grid", "best-of-five"):
        options = TableOptions(settings=name, checkpoints={"SimCSE": "toy"})
        prepared = prepare(DataFolder(paper, find_table(paper, "5"), tmp_path), tmp_path / name, options)
        study = read_study(prepared.studies[0].file)
        assert (study.settings.runs, len(study.settings.seeds)) == ("best", 5)
        searches = {each.name: each.search for each in study.contenders}
        assert searches.pop("SimCSE") is None
        if name == "best-of-five":
            assert set(searches.values()) == {None}
            continue
        for contender, search in searches.items():
            assert search is not None
            assert (search.method, search.dev) == ("grid", "recipe")
            space = dict(search.space)
            weights = space.pop("objective.weights", ())
            assert space == {"training.learning_rate": (5e-6, 1e-5, 2e-5, 3e-5)}
            assert [mu["bsc"] for mu in weights] == ([0.1, 0.5, 0.9] if contender == "combo" else [])
            assert all(sum(mu.values()) == 1 for mu in weights)
