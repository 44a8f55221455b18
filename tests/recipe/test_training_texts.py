"""The texts that a saved model was trained on."""

from __future__ import annotations

import pytest

from nearfar.recipe.training_texts import training_source, training_texts

HEAD = '[encoder]\nname = "toy"\n[objective]\nname = "cross-entropy"\n'


def recipe_of(folder, data):
    (folder / "recipe.toml").write_text(f"{HEAD}[data]\n{data}\n")
    return folder


def test_rows_of_the_file_are_taken_evenly(tmp_path):
    file = tmp_path / "rows.csv"
    file.write_text("note,review,label\n" + "".join(f"n{n},text {n},{n % 2}\n" for n in range(100)))
    folder = recipe_of(tmp_path, f'train = "{file}"\ntext = "review"\nlabel = "label"')
    assert training_source(folder) == str(file)
    (texts,) = training_texts(folder, 10)
    assert texts == [f"text {n}" for n in range(0, 100, 10)]
    assert len(training_texts(folder, 1000)[0]) == 100


def test_samples_are_always_at_hand(tmp_path):
    folder = recipe_of(tmp_path, 'train = "sample:helpdesk"')
    (texts,) = training_texts(folder, 8)
    assert 1 <= len(texts) <= 8


@pytest.mark.parametrize("train", ["gone.csv", "memory:train"])
def test_rows_that_are_not_at_hand_are_none(tmp_path, train):
    folder = recipe_of(tmp_path, f'train = "{train}"')
    assert training_source(folder) is None
    assert training_texts(folder, 8) == ()
    assert training_texts(tmp_path / "nowhere", 8) == ()


def test_a_file_that_has_changed_gives_none(tmp_path):
    file = tmp_path / "rows.csv"
    file.write_text("other\nx\n")
    assert training_texts(recipe_of(tmp_path, f'train = "{file}"\ntext = "review"'), 8) == ()
    file.write_bytes(b"\xff\xfe\x00\x01garbage")
    assert training_texts(tmp_path, 8) == ()
    (tmp_path / "recipe.toml").write_text("no recipe")
    assert training_texts(tmp_path, 8) == ()
