"""Figures and tables of the pages of concepts are what their scripts make."""

from __future__ import annotations

import importlib.util
import re
import xml.etree.ElementTree as ElementTree
from types import ModuleType

from nearfar.recipe import OBJECTIVES
from tests.docs.blocks import ROOT
from tests.docs.test_papers_page import problem_of

DOCS = ROOT / "docs"


def script(name: str) -> ModuleType:
    """A script of the folder docs, as a module."""
    spec = importlib.util.spec_from_file_location(name, DOCS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_figures_are_those_of_the_script_and_all_are_shown():
    pages = "".join(page.read_text(encoding="utf-8") for page in DOCS.rglob("*.md"))
    pictures = script("draw_figures").pictures()
    assert len(pictures) >= 12
    for name, text in pictures.items():
        assert (DOCS / "images" / name).read_text(encoding="utf-8") == text, "Run: python docs/draw_figures.py"
        ElementTree.fromstring(text)
        assert f"images/{name}#only-{name.rpartition('-')[2].removesuffix('.svg')}" in pages


def test_the_table_of_objectives_is_that_of_the_objectives():
    page = (DOCS / "concepts" / "objectives.md").read_text(encoding="utf-8")
    assert page == script("generate_objectives").page(), "Run: make pages"
    for name in OBJECTIVES:
        assert page.count(f"| `{name}` |") == 1


def test_a_broken_site_is_noticed(tmp_path):
    check = script("check_site")
    (tmp_path / "a.html").write_text('<h2 id="x">X</h2><a href="b.html#y">b</a><a href="https://example.org">c</a>')
    (tmp_path / "b.html").write_text('<h2 id="y">Y</h2><a href="a.html#x">a</a>')
    assert check.problems(tmp_path) == []
    (tmp_path / "b.html").write_text('<a href="c.html"></a><script src="https://example.org/x.js"></script>')
    assert check.problems(tmp_path) == [
        "a.html links to b.html#y, which has no such heading",
        "b.html loads https://example.org/x.js",
        "b.html links to c.html, which does not exist",
    ]


def test_keys_of_the_pages_of_papers_exist():
    for page in sorted((DOCS / "papers").glob("*.md")):
        rows = re.findall(r"^\| [^|`]+ \| (`[^|]+`) \|$", page.read_text(encoding="utf-8"), re.MULTILINE)
        assert len(rows) >= 4 or page.name == "index.md"
        for use in re.findall(r"`([^`]+)`", " ".join(rows)):
            assert use == "[[task]]" or problem_of(use) is None, f"{page.name}: {use}: {problem_of(use)}"
