"""Which vector of a text the terms of an objective read: one for the head and what compares texts, in every encoder."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from accelerate import Accelerator
from tests.encoding.conftest import tiny as tiny
from tests.training.runs import write_texts

from nearfar.encoding import load, tokenize
from nearfar.pipeline import defaults
from nearfar.pipeline import train as train_recipe
from nearfar.pipeline.encoder_run import EncoderRun, plan_encoder_run
from nearfar.recipe import build_recipe

Tiny = Callable[[str], Path]


def opened(folder: Path, name: str, objective: dict[str, Any], **tables: Any) -> EncoderRun:
    """A run that is ready to begin, without dropout."""
    values: dict[str, Any] = {
        "data": {"train": str(write_texts(folder / "t.csv", 12)), "dev": 0},
        "encoder": {"name": name, "dropout": 0.0},
        "objective": objective,
        "batches": {"size": 12, "shuffle": "file-order"},
        "training": {"epochs": 1},
    }
    for key, table in tables.items():
        values[key] = {**values.get(key, {}), **table}
    return plan_encoder_run(build_recipe(values, [], where="test")).open(Accelerator(cpu=True))


def parts_of(run: EncoderRun) -> tuple[dict[str, float], torch.Tensor, torch.Tensor, torch.Tensor]:
    """The parts of the loss on all rows, and the last states, mask and logits of the network itself."""
    prepared = run.prepare(0)
    (batch,) = prepared.loader.batches(run.model, np.arange(12), None, rank=0, world=1)
    module = prepared.module.eval()
    with torch.no_grad():
        parts = {name: float(part) for name, part in module(batch)[1].items()}
        table = run.rows["train"].table
        padded = table.padded(np.arange(12)).tensors
        network = run.model.network
        states = network.base_model(**padded)[0] if run.model.native else network(**padded)[0]
        logits = run.model(table.padded(np.arange(12))).logits
    assert logits is not None
    return parts, states, padded["attention_mask"].bool(), logits


def supcon_by_the_book(z: torch.Tensor, labels: list[int], tau: float) -> float:
    """The slides' sum over all views, as a mean: for each anchor the mean over its positives of the log share."""
    z = torch.nn.functional.normalize(z.double(), dim=1)
    costs = []
    for i in range(len(z)):
        others = [k for k in range(len(z)) if k != i]
        below = sum(math.exp(float(z[i] @ z[k]) / tau) for k in others)
        positives = [k for k in others if labels[k] == labels[i]]
        shares = [math.log(math.exp(float(z[i] @ z[p]) / tau) / below) for p in positives]
        costs.append(-sum(shares) / len(shares))
    return sum(costs) / len(costs)


@pytest.mark.parametrize("family", ["bert", "roberta", "electra", "distilbert", "xlnet"])
@pytest.mark.parametrize("name", ["cross-entropy+supcon", "label-aware"])
def test_on_raw_encoders_both_read_the_class_token(tmp_path, tiny: Tiny, family, name, monkeypatch):
    """The architecture's own head reads the first token, XLNet's the last; so does what compares texts (Gunel et al.)."""
    monkeypatch.setattr(defaults, "are_few", lambda *_: False)
    run = opened(tmp_path, str(tiny(family)), {"name": name})
    parts, states, mask, logits = parts_of(run)
    labels = run.rows["train"].labels.tolist()
    place = "last" if family == "xlnet" else "first"
    first = mask.long().argmax(1)
    last = mask.shape[1] - 1 - mask.long().flip(1).argmax(1)
    token = states[torch.arange(12), last if place == "last" else first]

    assert (run.model.native, run.model.pooling) == (True, place)
    expected = torch.nn.functional.cross_entropy(logits, torch.tensor(labels))
    assert parts["cross_entropy"] == pytest.approx(float(expected), abs=1e-4)
    if name == "cross-entropy+supcon":
        assert parts["supcon"] == pytest.approx(supcon_by_the_book(token, labels, 0.3), abs=1e-4)
        mean = (states * mask.unsqueeze(-1)).sum(1) / mask.sum(1, keepdim=True)
        assert abs(parts["supcon"] - supcon_by_the_book(mean, labels, 0.3)) > 1e-3
    assert [
        note for note in run.notes if note.startswith("the class head and the contrastive term read one vector")
    ] == [
        f"the class head and the contrastive term read one vector, that of the {place} token"
        f"{', which is the class token' if place == 'last' else ''}; encoder.pooling sets another"
    ]


@pytest.mark.parametrize(
    "objective",
    [
        {"name": "cross-entropy+supcon"},
        {"name": "label-aware"},
        {"name": "triple-entropy", "level": "text"},
        {"name": "blend", "parts": {"ce": {"name": "cross-entropy"}, "nca": {"name": "proxy-nca"}}},
    ],
)
def test_on_sentence_encoders_both_read_the_pooled_vector(tmp_path, tiny: Tiny, objective):
    """A linear head on the vector that the encoder states; the head learns 100 times faster than the encoder."""
    shutil.copytree(tiny("bert"), tmp_path / "encoder")
    (tmp_path / "encoder" / "1_Pooling").mkdir()
    kinds = (("", "Transformer"), ("1_Pooling", "Pooling"))
    modules = [{"path": path, "type": f"sentence_transformers.models.{kind}"} for path, kind in kinds]
    (tmp_path / "encoder" / "modules.json").write_text(json.dumps(modules), encoding="utf-8")
    (tmp_path / "encoder" / "1_Pooling" / "config.json").write_text('{"pooling_mode_mean_tokens": true}')
    run = opened(tmp_path, str(tmp_path / "encoder"), objective)
    _, states, mask, logits = parts_of(run)
    mean = (states * mask.unsqueeze(-1)).sum(1) / mask.sum(1, keepdim=True)
    head = run.model.head

    assert not run.model.native
    assert head is not None
    assert torch.allclose(head.eval()(mean), logits, atol=1e-5)
    rates = run.prepare(0).settings.rates
    assert rates["head"] == pytest.approx(100 * rates["encoder"])
    assert any("the mean of the tokens, as the encoder pools" in note for note in run.notes)


def test_few_texts_on_a_raw_encoder_are_read_by_their_mean(tmp_path, tiny: Tiny):
    """So few texts do not teach the architecture's own head; docs/why/defaults.md has the comparison."""
    run = opened(tmp_path, str(tiny("bert")), {"name": "cross-entropy+supcon"})
    assert (run.model.native, run.model.pooling) == (False, "mean")


@pytest.mark.parametrize("objective", [{"name": "cross-entropy"}, {"name": "triple-entropy"}])
def test_a_head_alone_is_the_architectures_own(tmp_path, objective):
    """Nothing compares text vectors: token vectors are not pooled."""
    run = opened(tmp_path, "toy", objective)

    assert run.model.native
    assert not any("read one vector" in note for note in run.notes)


def test_the_architectures_own_head_may_be_asked_for(tmp_path):
    """Then texts are compared by the class token that it reads, whatever the encoder pools."""
    run = opened(tmp_path, "toy", {"name": "cross-entropy+supcon"}, head={"kind": "native"})

    assert (run.model.native, run.model.pooling) == (True, "first")


def test_a_recipe_may_set_another_pooling(tmp_path, tiny: Tiny):
    run = opened(tmp_path, str(tiny("bert")), {"name": "cross-entropy+supcon"}, encoder={"pooling": "mean"})

    assert (run.model.native, run.model.pooling) == (False, "mean")
    assert not any("read one vector" in note for note in run.notes)


@pytest.mark.parametrize("objective", ["supcon", "cross-entropy+supcon"])
def test_supcon_with_two_views_is_the_sum_over_2k_views(tmp_path, objective):
    """As on the slides: each text twice, the other view a positive; here without dropout, so that both are equal."""
    run = opened(tmp_path, "toy", {"name": objective, "temperature": 0.3, "views": "dropout"})
    prepared = run.prepare(0)
    (batch,) = prepared.loader.batches(run.model, np.arange(12), None, rank=0, world=1)
    module = prepared.module.eval()
    with torch.no_grad():
        found = module(batch)[1]["supcon"]
        one = run.model(run.rows["train"].table.padded(np.arange(12))).embedding
    labels = run.rows["train"].labels.tolist()

    assert batch.columns == 2
    assert float(found) == pytest.approx(supcon_by_the_book(torch.cat([one, one]), labels * 2, 0.3), abs=1e-5)
    assert abs(float(found) - supcon_by_the_book(one, labels, 0.3)) > 1e-2


def test_two_views_give_every_text_a_positive(tmp_path):
    """Texts whose class comes once are learned from, too; dropout draws another mask for each view."""
    path = tmp_path / "single.csv"
    path.write_text("text,label\n" + "\n".join(f"text number {n},class{n}" for n in range(8)) + "\n", encoding="utf-8")
    values = {
        "data": {"train": str(path), "dev": 0},
        "encoder": {"name": "toy"},
        "objective": {"name": "supcon", "views": "dropout"},
        "training": {"epochs": 2, "learning_rate": 1e-3, "precision": "fp32"},
    }
    train_recipe(build_recipe(values, [], where="test"), tmp_path / "m")
    steps = [json.loads(line) for line in (tmp_path / "m" / "journal.jsonl").read_text().splitlines()]

    assert all(entry["loss"] > 0 and entry["gradient_norm"] > 0 for entry in steps if entry["kind"] == "step")


def test_first_pooling_of_xlnet_is_its_class_token(tmp_path, tiny: Tiny):
    """Its tokenizer pads on the left and ends a text with the class token; the folder says so to other libraries."""
    run = opened(tmp_path, str(tiny("xlnet")), {"name": "cross-entropy"}, encoder={"pooling": "first"})
    table = tokenize(run.built.tokenizer, [["a few words", "and quite a few words more"]], max_length=20)
    padded = table.padded(np.arange(2)).tensors
    run.model.eval()
    with torch.no_grad():
        vectors = run.model(table.padded(np.arange(2))).embedding
        states = run.model.network(**padded)[0]

    assert padded["input_ids"][:, -1].tolist() == [run.built.tokenizer.cls_token_id] * 2
    assert torch.equal(vectors, states[:, -1])
    assert any("is its last one, so encoder.pooling is last" in note for note in run.notes)
    assert load(str(tiny("xlnet"))).model.pooling == "mean"
