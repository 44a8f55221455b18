"""Model folders that are damaged or made to do harm: refused with a message that names the file, before they are read."""

from __future__ import annotations

import json
import os
import shutil
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from benchmarks.reliability.folders import KNOWN

import nearfar
from nearfar.encoding import build, load
from nearfar.encoding.digests import DIGESTS, SKIP, stated_digests, write_listed
from nearfar.encoding.folder_files import SMALL, nested_deeply, read_json, regular_file
from nearfar.encoding.inspection import available_memory, inspect
from nearfar.encoding.model_files import copy_model
from nearfar.encoding.task_model import holds_tasks
from nearfar.encoding.tensor_headers import read_header
from nearfar.errors import EncoderError, NearfarError
from nearfar.files import sha256_of

TEXTS = ["the parcel is late", "word " * 300]


@pytest.fixture(scope="module")
def saved(tmp_path_factory) -> Path:
    """A classifier with the architecture's own head."""
    folder = tmp_path_factory.mktemp("inspection") / "model"
    texts = ["the parcel is late", "where is my parcel", "charged twice", "the invoice is wrong"] * 2
    made = nearfar.Classifier("toy", objective="cross-entropy", max_steps=1)
    made.fit(texts, ["delivery", "delivery", "payment", "payment"] * 2).save(folder)
    return folder


@pytest.fixture
def model(saved: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    return Path(shutil.copytree(saved, tmp_path / "model"))


def unsigned(folder: Path) -> Path:
    (folder / DIGESTS).unlink()
    return folder


def change(folder: Path, name: str, **values: Any) -> None:
    path = folder / name
    path.write_text(json.dumps({**json.loads(path.read_text(encoding="utf-8")), **values}), encoding="utf-8")


def test_every_file_that_is_read_has_a_digest(saved: Path):
    """In the format of sha256sum; what people write by hand has none."""
    digests = stated_digests(saved) or {}

    assert {"config.json", "model.safetensors", "tokenizer.json", "nearfar.json", "estimator.json"} <= digests.keys()
    assert "1_Pooling/config.json" in digests
    assert not {"README.md", "recipe.toml", "metrics.json", DIGESTS} & digests.keys()
    assert all(sha256_of(saved / name) == digest for name, digest in digests.items())


@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer.json", "nearfar.json", "1_Pooling/config.json"])
def test_a_changed_bit_is_refused_by_the_name_of_its_file(model: Path, name):
    content = bytearray((model / name).read_bytes())
    content[len(content) // 2] ^= 1
    (model / name).write_bytes(content)

    with pytest.raises(EncoderError, match=rf"{name}: this file has changed since the model was saved"):
        load(model)
    with pytest.raises(EncoderError, match="has changed"):
        build(str(model), classes=None, seed=0)
    with pytest.raises(EncoderError, match="has changed"):
        copy_model(model, model.parent / "copy")


def test_a_missing_file_is_named(model: Path):
    (model / "tokenizer_config.json").unlink()
    with pytest.raises(EncoderError, match=r"tokenizer_config\.json: this file is missing"):
        load(model)


def test_files_for_people_may_be_edited(model: Path):
    for name in ("README.md", "recipe.toml", "metrics.json"):
        (model / name).write_text("mine", encoding="utf-8")
    load(model)


def test_a_line_that_is_deleted_frees_a_file(model: Path):
    """What the message advises to whoever has changed a file on purpose."""
    change(model, "config.json", hidden_dropout_prob=0.3)
    with pytest.raises(EncoderError, match="delete its line"):
        load(model)
    lines = (model / DIGESTS).read_text(encoding="utf-8").splitlines(keepends=True)
    (model / DIGESTS).write_text("".join(line for line in lines if "  config.json" not in line), encoding="utf-8")
    load(model)


@pytest.mark.parametrize(
    "content", ["", "no digest\n", f"{'0' * 64}  ../../etc/passwd\n", f"{'0' * 64}  /etc/passwd\n"]
)
def test_digests_that_are_none_are_refused(model: Path, content):
    (model / DIGESTS).write_text(content, encoding="utf-8")
    with pytest.raises(EncoderError, match=DIGESTS):
        load(model)


def test_folders_without_digests_load(model: Path):
    """Those of other libraries, and those that were saved before there were any."""
    unsigned(model)
    load(model)
    (model / "nearfar.json").unlink()
    load(model)


def test_weights_may_be_left_unchecked(model: Path, monkeypatch):
    """By a variable, for large ones on a slow disk; small files are checked all the same."""
    content = bytearray((model / "model.safetensors").read_bytes())
    content[-1] ^= 1
    (model / "model.safetensors").write_bytes(content)
    monkeypatch.setenv(SKIP, "0")
    load(model)
    change(model, "config.json", hidden_dropout_prob=0.3)
    with pytest.raises(EncoderError, match=r"config\.json"):
        load(model)


def test_a_copy_of_a_model_without_digests_gets_some(model: Path, tmp_path: Path):
    copy_model(unsigned(model), tmp_path / "copy")
    assert "model.safetensors" in (stated_digests(tmp_path / "copy") or {})
    load(tmp_path / "copy")


def test_a_file_that_is_written_later_gets_its_digest(model: Path):
    write_listed(model, "estimator.json", "{}")
    assert (stated_digests(model) or {})["estimator.json"] == sha256_of(model / "estimator.json")


@pytest.mark.parametrize("case", KNOWN)
def test_harm_is_refused_or_does_none(model: Path, case):
    """Nothing but an error of nearfar with a message that can be printed."""
    KNOWN[case](unsigned(model))
    harmless = ("code", "slow pattern", "fixed padding", "adapter", "chunks")
    message = None
    try:
        holds_tasks(model)
        np.asarray(nearfar.load(model).predict(TEXTS))
    except NearfarError as error:
        message = str(error)
    if message is None:
        assert case in harmless
    else:
        assert str(model) in message
        assert len(message.encode()) < 1_000


def test_links_into_the_cache_of_the_hub_are_followed(saved: Path, tmp_path: Path):
    """And those inside a folder; those out of it are not."""
    snapshot, blobs = tmp_path / "models--me--m" / "snapshots" / "abc", tmp_path / "models--me--m" / "blobs"
    shutil.copytree(saved, snapshot)
    blobs.mkdir()
    for name in ("model.safetensors", "config.json"):
        os.replace(snapshot / name, blobs / f"of-{name}")
        (snapshot / name).symlink_to(f"../../blobs/of-{name}")
    load(snapshot)

    (snapshot / "config.json").unlink()
    (tmp_path / "elsewhere.json").write_bytes((saved / "config.json").read_bytes())
    (snapshot / "config.json").symlink_to(tmp_path / "elsewhere.json")
    with pytest.raises(EncoderError, match="link to a file outside the folder"):
        load(snapshot)


def test_large_and_deep_settings_are_refused(tmp_path: Path):
    (tmp_path / "large.json").write_bytes(b"[" + b" " * SMALL + b"]")
    with pytest.raises(EncoderError, match=r"has 16,777,218 bytes, and such a file has at most 16,777,216"):
        read_json(tmp_path, "large.json", list)
    (tmp_path / "deep.json").write_text("[" * 150 + "]" * 150, encoding="utf-8")
    with pytest.raises(EncoderError, match="nested"):
        read_json(tmp_path, "deep.json", list)
    (tmp_path / "kind.json").write_text("[]", encoding="utf-8")
    with pytest.raises(EncoderError, match="not what belongs there"):
        read_json(tmp_path, "kind.json")
    assert read_json(tmp_path, "none.json") is None
    assert not nested_deeply({"a": [[[{"b": 1}]]]})


def test_pairs_of_surrogates_are_text(tmp_path: Path):
    (tmp_path / "a.json").write_text('["\\ud83d\\ude00"]', encoding="utf-8")
    assert read_json(tmp_path, "a.json", list) == ["😀"]
    (tmp_path / "b.json").write_text('["\\ud83d"]', encoding="utf-8")
    with pytest.raises(EncoderError, match="half of a surrogate pair"):
        read_json(tmp_path, "b.json", list)


def test_names_that_no_file_can_have(tmp_path: Path):
    for name in ("x" * 5_000, "a\0b"):
        with pytest.raises(EncoderError, match="cannot be opened"):
            regular_file(tmp_path, name)


def write_header(path: Path, header: object, data: bytes = b"") -> None:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def test_shapes_are_those_of_the_header(tmp_path: Path):
    write_header(tmp_path / "a", {"__metadata__": {"format": "pt"}, "w": {"dtype": "F32", "shape": [2, 3],
                 "data_offsets": [0, 24]}, "b": {"dtype": "I64", "shape": [1], "data_offsets": [24, 32]}}, bytes(32))  # fmt: skip
    assert read_header(tmp_path / "a") == {"w": (2, 3), "b": (1,)}


@pytest.mark.parametrize(
    "about",
    [
        {"dtype": "F32", "shape": [4], "data_offsets": [0, 8]}, {"dtype": "F32", "shape": [-2], "data_offsets": [0, 8]},
        {"dtype": "X", "shape": [2], "data_offsets": [0, 8]}, {"dtype": "F32", "shape": [2**62], "data_offsets": [0, 8]},
        {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}, {"dtype": "F32", "shape": None, "data_offsets": [0, 8]},
        {"dtype": "F32", "shape": [2.0], "data_offsets": [0, 8]}, {}, None, [],
    ],
)  # fmt: skip
def test_tensors_that_do_not_fit_their_file_are_refused(tmp_path: Path, about):
    write_header(tmp_path / "w", {"w": about}, bytes(8))
    with pytest.raises(EncoderError, match="these weights cannot be read"):
        read_header(tmp_path / "w")


@pytest.mark.parametrize("header", [b"[" * 100_000, b"[]", b"x", b'{"a": 1}', b"{" + b'"a":{' * 5_000])
def test_headers_that_are_none_are_refused(tmp_path: Path, header):
    write_header(tmp_path / "w", header)
    with pytest.raises(EncoderError, match="these weights cannot be read"):
        read_header(tmp_path / "w")
    (tmp_path / "w").write_bytes(b"123")
    with pytest.raises(EncoderError, match="these weights cannot be read"):
        read_header(tmp_path / "w")


def test_weights_beyond_memory_are_refused(model: Path, monkeypatch):
    monkeypatch.setattr("nearfar.encoding.inspection.available_memory", lambda: 1_000)
    with pytest.raises(EncoderError, match="GB available"):
        load(unsigned(model))
    assert available_memory(model / "none") is None


def test_a_folder_is_checked_once_while_it_stays_as_it_is(model: Path, monkeypatch):
    inspect(model)
    hashed: list[Path] = []
    monkeypatch.setattr("nearfar.encoding.digests.sha256_of", lambda path: hashed.append(path) or sha256_of(path))
    inspect(model)
    assert not hashed
    os.utime(model / "config.json")
    inspect(model)
    assert hashed
