"""The pages for users of other libraries: every loss, argument and key that they name exists."""

from __future__ import annotations

import dataclasses
import importlib.util
import re

import pytest

from nearfar.recipe import OBJECTIVES
from tests.docs.blocks import ROOT
from tests.docs.commands import check_nearfar
from tests.docs.test_papers_page import problem_of

FOLDER = ROOT / "docs" / "coming-from"
PAGES = {path.stem: path.read_text(encoding="utf-8") for path in sorted(FOLDER.glob("*.md"))}


def table(page: str, title: str) -> list[tuple[str, ...]]:
    """The rows of the table below a heading, without its head."""
    [section] = re.findall(rf"^## {title}\n(.*?)(?=^## |\Z)", PAGES[page], re.MULTILINE | re.DOTALL)
    rows = [line for line in section.splitlines() if line.startswith("|")]
    return [tuple(cell.strip() for cell in row.strip("|").split("|")) for row in rows[2:]]


def codes(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def arguments(page: str) -> set[str]:
    """What the library of a page calls its arguments."""
    if page == "setfit":
        pytest.importorskip("setfit", reason="SetFit is in the environment of the benchmarks only")
    module, name = {
        "sentence-transformers": ("sentence_transformers", "SentenceTransformerTrainingArguments"),
        "setfit": ("setfit", "TrainingArguments"),
        "trainer": ("transformers", "TrainingArguments"),
    }[page]
    return {field.name for field in dataclasses.fields(getattr(importlib.import_module(module), name))}


def test_there_is_a_page_for_each():
    assert set(PAGES) == {"sentence-transformers", "setfit", "trainer"}


@pytest.mark.parametrize("page", PAGES)
def test_arguments_exist(page):
    named = [name for row in table(page, "Argument and key") for name in codes(row[0])]
    assert len(named) >= 15
    assert set(named) <= arguments(page)


@pytest.mark.parametrize("page", PAGES)
def test_keys_exist(page):
    """Keys, flags and commands of the second column."""
    for row in table(page, "Argument and key"):
        for name in codes(row[1]):
            if name.startswith("--"):
                check_nearfar(["train", "FILE", name])
            elif name.startswith("nearfar "):
                check_nearfar(name.split()[1:])
            elif name not in ("[[task]]", "seed"):
                assert problem_of(name) is None, f"{page}: {name}: {problem_of(name)}"


@pytest.mark.parametrize(
    ("page", "title"),
    [("sentence-transformers", "Loss and objective"), ("setfit", "Loss, head and objective"), ("trainer", "Task and objective")],
)  # fmt: skip
def test_objectives_and_keys_of_the_tables_exist(page, title):
    rows = table(page, title)
    names = [name for row in rows for name in codes(row[1])]
    assert len(names) >= 5
    others = {
        "[[task]]",
        "concat",
        "--names",
        "--unlabeled",
        "text",
        "score",
        "text_a",
        "text_b",
        "label",
        '"nearest-center"',
    }
    for name in names:
        plain = name in OBJECTIVES or name in others
        assert plain or problem_of(name) is None, f"{page}: {name}"


def test_every_loss_of_sentence_transformers_has_its_row():
    from sentence_transformers.sentence_transformer import losses

    named = {name for row in table("sentence-transformers", "Loss and objective") for name in codes(row[0])}
    exist = {name for name in dir(losses) if name.endswith("Loss")}
    assert len(exist) > 20
    assert exist <= named <= exist | {"scale"}


def test_a_wrong_key_is_noticed():
    assert problem_of("training.epoch") is not None
    assert "num_train_epoch" not in arguments("trainer")
