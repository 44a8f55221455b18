"""A map behind the pooling: stored in the folder, applied by nearfar and sentence-transformers alike, never lost."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from sentence_transformers import SentenceTransformer

from nearfar.encoding import Card, TextModel, Transform, build, load, model_folder, save
from nearfar.encoding.pretrained import quiet_transformers
from nearfar.encoding.vectors import fingerprint
from nearfar.errors import EncoderError, ShapeError

TEXTS = [
    "a cat sat on the mat", "", "no", "two words", "the quick brown fox jumps over the lazy dog and is not seen again",
    "a b c d e f g h", "x", "Capital Letters, and: signs!",
]  # fmt: skip
LABELS = ("near", "far")
WIDTH, NARROW, LIMIT = 32, 7, 24


def drawn_map() -> Transform:
    source = torch.Generator().manual_seed(4)
    return Transform(torch.randn(NARROW, WIDTH, generator=source), torch.randn(NARROW, generator=source))


def saved(folder: Path, name: Path, *, classes: bool = False, pooling: Any = "mean", **card: Any) -> Transform:
    """A model with a map, in a folder."""
    built = build(str(name), classes=LABELS if classes else None, seed=5, pooling=pooling, max_length=LIMIT)
    transform = drawn_map()
    plain = built.model
    model = TextModel(plain.network, transform=transform, pooling=plain.pooling, native=plain.native, head=plain.head)
    head = None if plain.head is None else plain.head.describe()
    written = Card(
        pooling=plain.pooling, max_length=LIMIT, native=plain.native, head=head, labels=LABELS if classes else None,
        transform={"kind": "drawn"}, **card,
    )  # fmt: skip
    save(folder, model, built.tokenizer, written, readme="# A model\n")
    return transform


def without_map(folder: Path, target: Path) -> Path:
    """The same folder, saved without its map."""
    model = load(folder)
    plain = TextModel(
        model.model.network, pooling=model.model.pooling, native=model.model.native, head=model.model.head
    )
    card = Card(**{**vars(model.card), "transform": None, "normalize": False})
    save(target, plain, model.tokenizer, card, readme="# x\n")
    return target


@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize(
    ("family", "pooling"), [("bert", "mean"), ("bert", "first"), ("bert", "pooler"), ("xlnet", "mean")]
)
def test_vectors_are_mapped_here_and_in_sentence_transformers(tiny, tmp_path, family, pooling, normalize):
    """x Wᵀ + b of the vectors of the same model without the map, then scaled where the model scales."""
    transform = saved(tmp_path / "mapped", tiny(family), pooling=pooling, normalize=normalize)
    model = load(tmp_path / "mapped")
    plain = load(without_map(tmp_path / "mapped", tmp_path / "plain")).embed(TEXTS)
    expected = plain.astype(np.float64) @ transform.weight.numpy().T.astype(np.float64) + transform.bias.numpy()
    if normalize:
        expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    with quiet_transformers():
        other = SentenceTransformer(str(tmp_path / "mapped"), device="cpu")

    vectors = model.embed(TEXTS, batch_size=3)

    assert vectors.shape == (len(TEXTS), NARROW)
    assert model.model.dim == NARROW
    np.testing.assert_allclose(vectors, expected, atol=1e-5, rtol=1e-5)
    np.testing.assert_allclose(other.encode(TEXTS, batch_size=2), vectors, atol=2e-5, rtol=1e-5)
    assert other.get_embedding_dimension() == NARROW


def test_the_layout_names_each_layer_in_its_order(tiny, tmp_path):
    """Pooler, map, scaling; what another model left behind goes."""
    saved(tmp_path, tiny("bert"), pooling="pooler", normalize=True)
    kinds = [module["path"] for module in json.loads((tmp_path / "modules.json").read_text())]
    assert kinds == ["", "1_Pooling", "2_Dense", "3_Dense", "4_Normalize"]
    saved(tmp_path, tiny("bert"), pooling="mean")

    assert sorted(path.name for path in tmp_path.glob("[0-9]_*")) == ["1_Pooling", "2_Dense"]
    assert load(tmp_path).card.transform == {"kind": "drawn"}


@pytest.mark.parametrize("pooling", [None, "mean"])
def test_a_class_head_reads_the_vectors_as_they_were(tiny, tmp_path, pooling):
    """The map moves embeddings, never labels."""
    saved(tmp_path / "mapped", tiny("bert"), classes=True, pooling=pooling)
    model = load(tmp_path / "mapped")
    plain = load(without_map(tmp_path / "mapped", tmp_path / "plain"))

    np.testing.assert_array_equal(model.probabilities(TEXTS), plain.probabilities(TEXTS))
    assert model.embed(TEXTS).shape[1] == NARROW


def test_unfinished_vectors_of_another_map_are_not_continued(tiny, tmp_path):
    """What a file of vectors follows from includes the map."""
    saved(tmp_path / "mapped", tiny("bert"))
    plain = load(without_map(tmp_path / "mapped", tmp_path / "plain"))

    assert fingerprint(load(tmp_path / "mapped"))["weights"] != fingerprint(plain)["weights"]


def test_training_from_such_a_folder_leaves_the_map_out_and_says_so(tiny, tmp_path):
    """It was fitted to vectors that training changes."""
    saved(tmp_path, tiny("bert"))
    built = build(str(tmp_path), classes=None, seed=0)

    assert built.model.transform is None
    assert built.model.dim == WIDTH
    assert any("left out: training changes the vectors" in note for note in built.notes)


@pytest.mark.parametrize("lost", ["transform.weight", "transform.bias", "both", "modules", "file"])
def test_a_map_that_is_not_whole_is_an_error_and_never_left_out(tiny, tmp_path, lost):
    """In the layout that others read, or in the weights."""
    folder = tmp_path / "broken"
    saved(folder, tiny("bert"))
    (folder / "SHA256SUMS").unlink()
    weights = load_file(folder / model_folder.EXTRAS)
    if lost == "modules":
        modules = json.loads((folder / "modules.json").read_text())
        (folder / "modules.json").write_text(json.dumps(modules[:2]))
    elif lost == "file":
        (folder / model_folder.EXTRAS).unlink()
    else:
        kept = {name: tensor for name, tensor in weights.items() if name != lost and lost != "both"}
        save_file({**kept, "objective.x": torch.ones(1)}, folder / model_folder.EXTRAS)

    with pytest.raises(EncoderError, match=r"the map behind its pooling is missing.*Is the folder complete\?"):
        load(folder)


@pytest.mark.parametrize("shape", [(NARROW, WIDTH + 1), (NARROW + 1, WIDTH)])
def test_a_map_of_another_width_is_an_error(tiny, tmp_path, shape):
    saved(tmp_path / "broken", tiny("bert"))
    (tmp_path / "broken" / "SHA256SUMS").unlink()
    save_file(
        {"transform.weight": torch.ones(shape), "transform.bias": torch.ones(NARROW)},
        tmp_path / "broken" / model_folder.EXTRAS,
    )

    with pytest.raises(EncoderError, match="or belongs to another model"):
        load(tmp_path / "broken")


@pytest.mark.parametrize("value", [7, "whitening", []])
def test_a_card_with_another_thing_than_a_map_is_an_error(tiny, tmp_path, value):
    saved(tmp_path / "broken", tiny("bert"))
    (tmp_path / "broken" / "SHA256SUMS").unlink()
    card = json.loads((tmp_path / "broken" / "nearfar.json").read_text())
    (tmp_path / "broken" / "nearfar.json").write_text(json.dumps(card | {"transform": value}))

    with pytest.raises(EncoderError, match="transform is"):
        load(tmp_path / "broken")


@pytest.mark.parametrize("card", [True, False])
def test_a_folder_whose_card_knows_no_map_is_not_opened_without_it(tiny, tmp_path, card):
    """Such as one that another tool copied in part."""
    folder = tmp_path / "copied"
    saved(tmp_path / "whole", tiny("bert"))
    shutil.copytree(tmp_path / "whole", folder, ignore=shutil.ignore_patterns("nearfar.*", "SHA256SUMS"))
    if card:
        values = json.loads((tmp_path / "whole" / "nearfar.json").read_text())
        (folder / "nearfar.json").write_text(json.dumps(values | {"transform": None}))

    with pytest.raises(EncoderError, match="has a Dense layer behind its encoder, which nearfar does not read"):
        load(folder)


def test_a_map_must_fit_the_encoder(tiny):
    built = build(str(tiny("bert")), classes=None, seed=0)
    with pytest.raises(ShapeError):
        TextModel(built.model.network, transform=Transform(torch.ones(3, 5), torch.ones(3)), pooling="mean")
    with pytest.raises(ShapeError):
        Transform(torch.ones(3, 5), torch.ones(5))
