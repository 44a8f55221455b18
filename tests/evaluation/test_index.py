"""The saved search index: the same results as a search without it, and nothing else is opened."""

from __future__ import annotations

import json
from copy import copy
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import nearfar
from nearfar import SearchIndex
from nearfar.errors import DataError, OutputError

TEXTS = ["an apple", "a red saw", "the violin\u2028 of a river", "a cloud [over] :100: a lantern"]


@pytest.fixture(scope="module")
def encoder() -> nearfar.Encoder:
    return nearfar.Encoder("toy")


@pytest.fixture
def saved(encoder: nearfar.Encoder, tmp_path: Path) -> Path:
    encoder.index(TEXTS).save(tmp_path / "index")
    return tmp_path / "index"


def test_a_saved_index_finds_what_a_search_without_it_finds(encoder: nearfar.Encoder, saved: Path):
    queries = ["red apple", "river"]
    assert encoder.search(queries, SearchIndex.load(saved), top=3) == encoder.search(queries, TEXTS, top=3)


def test_a_saved_index_keeps_texts_and_ids_to_the_letter(encoder: nearfar.Encoder, tmp_path: Path):
    vectors = encoder.encode(TEXTS)
    SearchIndex(TEXTS, ["1", "b\n", "c", "ü"], vectors, encoder.model_, "memory:corpus").save(
        tmp_path / "new" / "index"
    )
    index = SearchIndex.load(str(tmp_path / "new" / "index"))
    assert (list(index.texts), index.ids) == (TEXTS, ["1", "b\n", "c", "ü"])
    assert np.array_equal(index.vectors, vectors)
    assert {path.name for path in (tmp_path / "new").iterdir()} == {"index"}  # nothing is left beside it


def test_the_same_model_from_another_folder_is_accepted_and_another_one_refused(
    encoder: nearfar.Encoder, saved: Path, tmp_path: Path
):
    trained = nearfar.Encoder("toy", epochs=1).fit([("a saw", "a red saw"), ("rain", "a cloud"), ("pear", "an apple")])
    trained.save(tmp_path / "model")
    trained.index(TEXTS).save(tmp_path / "trained-index")
    again = nearfar.load(tmp_path / "model")
    assert again.search("a saw", SearchIndex.load(tmp_path / "trained-index"), top=1)[0][0].score <= 1
    with pytest.raises(DataError, match="made with another model"):
        trained.search("a saw", SearchIndex.load(saved))
    with pytest.raises(DataError, match="made with another model"):
        encoder.search("a saw", trained.index(TEXTS))


def test_what_vectors_do_not_depend_on_does_not_matter(encoder: nearfar.Encoder, saved: Path):
    others = [copy(encoder.model_), copy(encoder.model_)]
    others[0].card = replace(encoder.model_.card, precision="bf16", task={"kind": "pairs"})
    others[1].card = replace(encoder.model_.card, max_length=7)
    index = SearchIndex.load(saved)
    index.check(others[0])
    with pytest.raises(DataError, match="made with another model"):
        index.check(others[1])


@pytest.mark.parametrize("name", ["documents.jsonl", "vectors.npy"])
def test_a_damaged_index_is_refused(saved: Path, name: str):
    content = (saved / name).read_bytes()
    (saved / name).write_bytes(content[:-3] + b"x" + content[-2:])
    with pytest.raises(DataError, match=f"damaged: {name} has changed"):
        SearchIndex.load(saved)
    (saved / name).unlink()
    with pytest.raises(DataError, match=f"damaged: {name} is missing"):
        SearchIndex.load(saved)


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", '{"format": 1, "files": {}, "ids": true, "model": {}}'])
def test_a_damaged_description_is_refused(saved: Path, content: str):
    (saved / "index.json").write_text(content)
    with pytest.raises(DataError, match=r"damaged: index\.json"):
        SearchIndex.load(saved)


def test_an_index_of_a_later_version_is_refused(saved: Path):
    values = json.loads((saved / "index.json").read_text())
    (saved / "index.json").write_text(json.dumps(values | {"format": 9}))
    with pytest.raises(DataError, match="format 9"):
        SearchIndex.load(saved)


def test_what_is_no_index_is_refused(tmp_path: Path):
    with pytest.raises(DataError, match="no such folder"):
        SearchIndex.load(tmp_path / "none")
    with pytest.raises(DataError, match="not a search index"):
        SearchIndex.load(tmp_path)


def test_only_an_index_is_replaced_and_only_when_asked(encoder: nearfar.Encoder, saved: Path, tmp_path: Path):
    index = encoder.index(["a pear"])
    with pytest.raises(OutputError, match="--overwrite"):
        index.save(saved)
    index.save(saved, overwrite=True)
    assert list(SearchIndex.load(saved).texts) == ["a pear"]
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.txt").write_text("words")
    with pytest.raises(OutputError, match="something else"):
        index.save(tmp_path / "other", overwrite=True)
    with pytest.raises(OutputError, match="a file"):
        index.save(tmp_path / "other" / "thesis.txt", overwrite=True)
    assert (tmp_path / "other" / "thesis.txt").read_text() == "words"
