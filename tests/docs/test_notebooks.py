"""The notebooks of ``examples/`` run from top to bottom, and are committed without outputs.

Their code cells are carried out in this process, one namespace a notebook, with the toy encoder in place of the one that
their first cell names, and two seeds and folds. A cell of lines that begin with ``!`` holds commands, with ``{NAME}`` for variables as in Jupyter.
"""

from __future__ import annotations

import contextlib
import io
import json
import re
import shlex
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.docs.blocks import ROOT
from tests.docs.test_docs import links, run_command

pytestmark = pytest.mark.usefixtures("preloaded_workers")

NOTEBOOKS = sorted((ROOT / "examples").glob("*.ipynb"))
ENCODER = 'ENCODER = "minilm"'
QUICK = {ENCODER: 'ENCODER = "toy"', "SEEDS, FOLDS = 3, 3": "SEEDS, FOLDS = 2, 2"}
"""What the tests change in the first cell."""


def cells(path: Path, kind: str) -> list[str]:
    return [
        "".join(cell["source"]) for cell in json.loads(path.read_text("utf-8"))["cells"] if cell["cell_type"] == kind
    ]


def name_of(path: Path) -> str:
    return path.stem


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=name_of)
def test_the_notebook_runs_from_top_to_bottom(path, tmp_path, monkeypatch):
    import torch

    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "notebook", ModuleType("notebook"))
    namespace = vars(sys.modules["notebook"])
    first, *others = cells(path, "code")
    assert first.startswith(ENCODER)
    for usual, quick in QUICK.items():
        first = first.replace(usual, quick)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        for number, source in enumerate([first, *others], 1):
            run_cell(source, f"{path.name}, code cell {number}", namespace, monkeypatch)
    finally:
        torch.set_num_threads(threads)


def run_cell(source: str, place: str, namespace: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    lines = source.splitlines()
    if lines and all(line.startswith("!") for line in lines):
        for line in lines:
            words = shlex.split(line[1:].format(**namespace))
            assert words[0] == "nearfar", f"{place}: {line}"
            with monkeypatch.context() as patch:
                status, printed = run_command(words[1:], patch)
            assert status == 0, f"{place}: {line}\n{printed}"
        return
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        exec(compile(source, place, "exec", dont_inherit=True), namespace)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=name_of)
def test_the_notebook_is_committed_without_outputs(path):
    notebook = json.loads(path.read_text("utf-8"))
    assert notebook["nbformat"] == 4
    assert len({cell["id"] for cell in notebook["cells"]}) == len(notebook["cells"])
    for cell in notebook["cells"]:
        assert cell.get("outputs", []) == []
        assert cell.get("execution_count") is None
    assert path.stat().st_size < 20_000


@pytest.mark.parametrize("path", NOTEBOOKS, ids=name_of)
def test_the_notebook_begins_with_a_title_and_its_links_lead_somewhere(path):
    text = cells(path, "markdown")
    assert re.match(r"# \w", text[0])
    for target in links("\n".join(text)):
        assert target.startswith("https://") or (path.parent / target.partition("#")[0]).exists(), target


def test_the_readme_names_every_notebook():
    readme = (ROOT / "README.md").read_text("utf-8")
    assert NOTEBOOKS
    assert [path.name for path in NOTEBOOKS if f"(examples/{path.name})" not in readme] == []


def test_a_wrong_cell_is_noticed(monkeypatch):
    for source in ("assert 1 == 2", "!nearfar check missing.csv", "!ls"):
        with pytest.raises(AssertionError):
            run_cell(source, "a cell", {}, monkeypatch)
