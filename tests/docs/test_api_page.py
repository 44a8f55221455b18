"""The API reference: every public name is on the page and has an example that runs as a doctest."""

from __future__ import annotations

import doctest
import importlib
import inspect
import re
from pathlib import Path

import pytest

import nearfar
from nearfar import estimators

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "reference" / "api.md").read_text()
PUBLIC = [name for name in nearfar.__all__ if name != "__version__"]


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_name_is_documented_with_an_example(name):
    thing = getattr(nearfar, name)
    assert f"::: nearfar.{name}\n" in PAGE
    assert doctest.DocTestParser().get_examples(inspect.getdoc(thing) or ""), f"nearfar.{name} has no example"


def test_the_page_names_what_exists_and_all_of_the_estimators():
    named = re.findall(r"^::: (\S+)$", PAGE, flags=re.MULTILINE)
    assert len(named) > 10
    for path in named:
        module, _, name = path.rpartition(".")
        assert hasattr(importlib.import_module(module), name), path
    listed = {path.rpartition(".")[2] for path in named}
    assert {*estimators.__all__} <= listed


@pytest.mark.parametrize("kind", [nearfar.Classifier, nearfar.Encoder])
def test_every_setting_has_its_line_in_the_docstring(kind):
    text = inspect.getdoc(kind) or ""
    settings = inspect.signature(kind).parameters
    assert len(settings) > 10
    for name in settings:
        assert re.search(rf"^    {name}: ", text, flags=re.MULTILINE), name
