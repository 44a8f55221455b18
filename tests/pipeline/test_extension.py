"""More classes later: the same as if all texts had been there, and the old model is not touched."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import nearfar
from nearfar.data import Records, read_memory
from nearfar.encoding import load
from nearfar.errors import SettingError
from nearfar.pipeline import train
from nearfar.pipeline.extension import extend, save_extension
from nearfar.recipe import build_recipe

PARTS = {
    "fruit": ("apple", "plum", "pear", "cherry", "melon", "fig"),
    "tool": ("hammer", "wrench", "drill", "saw", "chisel", "pliers"),
    "animal": ("horse", "badger", "otter", "heron", "weasel", "lizard"),
}
FRAME = {"fruit": "a ripe {} from the garden", "tool": "the steel {} in my workshop", "animal": "wild {}s run past"}


def rows(*labels: str) -> dict[str, list[str]]:
    texts = [(FRAME[label].format(word), label) for label in labels for word in PARTS[label]]
    return {"text": [text for text, _ in texts], "label": [label for _, label in texts]}


def records(*labels: str) -> Records:
    return read_memory(rows(*labels), "memory:more")


def trained(out: Path, data: object, **tables: dict[str, object]) -> Path:
    values = {"data": {"train": "memory:train"}, "encoder": {"name": "toy"}, **tables}
    train(build_recipe(values, where="test"), out, data=data)
    return out


@pytest.fixture(scope="module")
def centers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A nearest-center head of two classes."""
    return trained(tmp_path_factory.mktemp("models") / "centers", rows("fruit", "tool"))


HEADS = {
    "neighbors": {"head": {"kind": "neighbors", "neighbors": 3}},
    "logistic": {"head": {"kind": "logistic"}},
    "kept": {"head": {"kind": "logistic", "keep_vectors": True}},
    "linear": {
        "encoder": {"name": "toy", "pooling": "mean"},
        "head": {"kind": "trained"},
        "objective": {"name": "cross-entropy"},
        "training": {"epochs": 8},
    },
    "native": {"head": {"kind": "native"}, "objective": {"name": "cross-entropy"}, "training": {"epochs": 2}},
}


def test_centers_are_those_of_all_texts(centers: Path) -> None:
    """A class in two parts and a class at once have the same center."""
    model = load(centers)
    assert model.labels == ("fruit", "tool")
    once = extend(model, records("animal")).model
    first, second = (records("animal").take(list(part)) for part in (range(2), range(2, 6)))
    twice = extend(extend(model, first).model, second).model
    assert once.labels == ("fruit", "tool", "animal")
    assert torch.allclose(once.model.head.centers, twice.model.head.centers, atol=1e-6)
    assert torch.equal(once.model.head.centers[:2], model.model.head.centers)
    vectors = model.embed(rows("animal")["text"])
    center = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).mean(axis=0)
    np.testing.assert_allclose(once.model.head.centers[2], center, atol=1e-6)
    assert once.model.scope.counts.tolist() == [6, 6, 6]


@pytest.mark.parametrize("head", HEADS)
def test_every_head_learns_a_new_class_and_keeps_the_old_ones(head: str, tmp_path: Path) -> None:
    out = trained(tmp_path / "m", rows("fruit", "tool"), **HEADS[head])
    before = {path.name: path.read_bytes() for path in out.iterdir() if path.is_file()}
    model = load(out)
    extension = extend(model, records("animal"))
    save_extension(extension, tmp_path / "more", origin=str(out))
    opened = load(tmp_path / "more")
    assert opened.labels == ("fruit", "tool", "animal")
    old, new = rows("fruit", "tool"), rows("animal")
    assert [one.label for one in opened.predict(new["text"])].count("animal") >= 5
    right = [
        sum(one.label == label for one, label in zip(each.predict(old["text"]), old["label"], strict=True))
        for each in (model, opened)
    ]
    assert right[1] >= right[0] - 1
    assert before == {path.name: path.read_bytes() for path in out.iterdir() if path.is_file()}
    assert ("--keep-vectors" in " ".join(extension.notes)) == (head in ("logistic", "native"))
    np.testing.assert_allclose(opened.probabilities(old["text"]), extension.model.probabilities(old["text"]), atol=1e-5)


def test_kept_vectors_give_the_head_of_all_texts(tmp_path: Path) -> None:
    """The same as a logistic regression on the vectors of all texts under the encoder of the first training."""
    from sklearn.linear_model import LogisticRegression

    model = load(trained(tmp_path / "m", rows("fruit", "tool"), **HEADS["kept"]))
    extended = extend(model, records("animal")).model
    every = rows("fruit", "tool", "animal")
    vectors = model.embed(every["text"])
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    fitted = LogisticRegression(C=10, max_iter=1_000).fit(vectors, every["label"])
    expected = fitted.predict_proba(vectors)[:, [1, 2, 0]]
    logits = torch.from_numpy(vectors) @ extended.model.head.weight.T + extended.model.head.bias
    np.testing.assert_allclose(logits.softmax(dim=1), expected, atol=1e-3)
    assert len(extended.model.scope.vectors) == 18


def test_rows_of_a_trained_layer_that_have_no_new_texts_stay(tmp_path: Path) -> None:
    model = load(trained(tmp_path / "m", rows("fruit", "tool"), **HEADS["linear"]))
    extended = extend(model, records("animal")).model
    assert torch.allclose(extended.model.head.linear.weight[:2], model.model.head.linear.weight, rtol=1e-5)


def test_more_texts_of_a_known_class_move_its_center_alone(centers: Path) -> None:
    model = load(centers)
    more = read_memory({"text": ["an iron crowbar", "a copper anvil"], "label": ["tool", "tool"]}, "memory:more")
    extension = extend(model, more)
    assert extension.added == ()
    assert torch.equal(extension.model.model.head.centers[0], model.model.head.centers[0])
    assert not torch.equal(extension.model.model.head.centers[1], model.model.head.centers[1])
    assert extension.model.model.scope.counts.tolist() == [6, 8]


def test_new_texts_are_in_scope(centers: Path) -> None:
    model = load(centers)
    before = model.typical_probabilities(rows("animal")["text"])[1]
    after = extend(model, records("animal")).model.typical_probabilities(rows("animal")["text"])[1]
    assert after.mean() > before.mean()


def test_models_without_classes_or_without_centers_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="no class head"):
        extend(load("toy"), records("animal"))
    bare = trained(tmp_path / "m", rows("fruit", "tool"), training={"estimate": False})
    with pytest.raises(SettingError, match="holds nothing of its training texts"):
        extend(load(bare), records("animal"))


def test_an_estimator_is_extended_to_a_new_one() -> None:
    data, more = rows("fruit", "tool"), rows("animal")
    clf = nearfar.Classifier("toy").fit(data["text"], data["label"])
    wider = clf.extend(more["text"], more["label"])
    assert clf.classes_.tolist() == ["fruit", "tool"]
    assert wider.classes_.tolist() == ["animal", "fruit", "tool"]
    assert wider.predict(more["text"]).tolist().count("animal") >= 5
    assert wider.score(data["text"] + more["text"], data["label"] + more["label"]) > 0.8


def test_new_classes_lose_a_little_beside_old_ones_that_are_centers_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = load(trained(tmp_path / "m", rows("fruit", "tool"), **HEADS["logistic"]))
    shifted = extend(model, records("animal")).model.model.head
    monkeypatch.setattr("nearfar.pipeline.extension.NEW_CLASS_SHIFT", 0.0)
    plain = extend(model, records("animal")).model.model.head
    assert torch.equal(shifted.weight, plain.weight)
    np.testing.assert_allclose(plain.bias - shifted.bias, [0.0, 0.0, 0.3], atol=1e-6)
