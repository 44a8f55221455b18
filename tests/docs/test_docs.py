"""Everything in the documents runs: commands, Python, files, recipes, links.

Each page has a folder of its own, in which its blocks are carried out from top to bottom:

* ``csv``, ``tsv``, ``jsonl`` and ``toml`` blocks with a file name before them are written there;
* ``console`` blocks run their ``$ nearfar`` commands in this process, and what the page shows below a command must be
  printed by it, in this order, with ``...`` for anything;
* ``python`` blocks share one namespace;
* ``toml`` blocks must be good recipes, ``json`` blocks good JSON;
* ``python`` blocks of other libraries (``<!-- peer -->``) are not run: what they import and the arguments they name
  must exist in the installed version;
* ``sh`` blocks are not run: their words, make targets, flags and modules must exist.

One substitution: where ``nearfar train`` or ``nearfar check`` names no ``--encoder``, and where ``nearfar.Classifier`` or
``nearfar.Encoder`` has no encoder, the toy encoder takes the place of the default one, so that the tests need no
pretrained weights and little time. Nothing else is changed.
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import json
import os
import re
import shlex
import signal
import sys
import tomllib
from collections import Counter
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import yaml
from markdown.extensions.toc import slugify

from nearfar.recipe import build_recipe, read_recipe, resolve_paths
from nearfar.recipe.tasks import build_task_recipe
from tests.docs.blocks import LANGUAGES, PAGES, ROOT, Block, blocks_of, commands_of, missing_line, parse
from tests.docs.commands import check_command, check_names, check_nearfar
from tests.hub_server import reachable

pytestmark = pytest.mark.usefixtures("preloaded_workers")

AT_LEAST = {"python": 19, "console": 26, "sh": 8, "csv": 6, "tsv": 1, "jsonl": 1, "toml": 4}
"""Fewer blocks than this, and the collection is broken (or the documents are)."""
ON_THE_HUB = {"hub.md"}
"""Pages that upload and download: they get a stand-in of the Hugging Face Hub."""
SPEC = importlib.util.spec_from_file_location("site_pages", ROOT / "docs" / "site_pages.py")
assert SPEC is not None
assert SPEC.loader is not None
site_pages = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(site_pages)
RUN_PAGES = [page for page in PAGES if {block.language for block in blocks_of(page)} - {"text"}]


def names(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")  # of huggingface_hub itself
@pytest.mark.parametrize("page", RUN_PAGES, ids=names)
def test_every_block_of_the_page_holds(page, tmp_path, monkeypatch):
    """The page works for a reader who types it in from top to bottom."""
    import torch

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("NO_COLOR", "1")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    monkeypatch.setitem(sys.modules, "page", ModuleType("page"))  # dataclasses look their module up
    namespace = vars(sys.modules["page"])
    try:
        with reachable(monkeypatch, tmp_path) if page.name in ON_THE_HUB else contextlib.nullcontext():
            for block in blocks_of(page):
                carry_out(block, tmp_path, namespace, monkeypatch)
    finally:
        torch.set_num_threads(threads)


def carry_out(block: Block, folder: Path, namespace: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Do with a block what its language asks for."""
    assert block.language in LANGUAGES, f"{block.place}: a block of {block.language!r}; known: {LANGUAGES}"
    if block.remark.startswith("file: "):
        (folder / block.remark.removeprefix("file: ")).write_text(block.body, encoding="utf-8")
    if block.language == "toml":
        values = tomllib.loads(block.body)
        if "task" in values:
            build_task_recipe(values, where=block.place)
            return
        values.setdefault("data", {}).setdefault("train", "train.csv")
        build_recipe(values, [], where=block.place)
    elif block.language == "json":
        json.loads(block.body)
    elif block.language == "sh":
        for line in block.body.replace("\\\n", " ").splitlines():
            if line.strip() and not line.startswith("#"):
                check_command(line)
    elif block.language == "python" and block.remark == "peer":
        check_names(block.body)
    elif block.language == "python":
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            body = re.sub(r"\bnearfar\.(Classifier|Encoder)\((?![\"'])", r'nearfar.\1("toy", ', block.body)  # the same
            code = compile("\n" * block.line + body, names(block.page), "exec", dont_inherit=True)
            exec(code, namespace)
    elif block.language == "console":
        for command in commands_of(block):
            words = shlex.split(command.text)
            assert words[0] == "nearfar", f"{block.place}: console blocks run nearfar only; use sh for {words[0]!r}"
            check_nearfar(words[1:])
            with monkeypatch.context() as patch:
                expected = interrupt(block, patch) or (1 if block.remark == "refused" else 0)
                status, printed = run_command(words[1:], patch)
            assert status == expected, f"{block.place}: $ {command.text}\nleft with {status}:\n{printed}"
            lost = missing_line(command.shown, printed)
            assert lost is None, f"{block.place}: $ {command.text}\ndid not print {lost!r} (in order), but:\n{printed}"


def run_command(words: list[str], patch: pytest.MonkeyPatch) -> tuple[int, str]:
    """Run ``nearfar`` in this process; its exit status, and all it printed."""
    from nearfar.cli import main

    if words[0] in ("train", "check") and "--encoder" not in words:
        words = [*words, "--encoder", "toy"]  # the one substitution
    printed = io.BytesIO()
    stream = io.TextIOWrapper(printed, encoding="utf-8", write_through=True)
    patch.setattr(sys, "argv", ["nearfar", *words])
    patch.setattr(sys, "stdout", stream)
    patch.setattr(sys, "stderr", stream)
    status: int = 0
    try:
        main()
    except SystemExit as left:
        status = left.code if isinstance(left.code, int) else int(left.code is not None)
    return status, printed.getvalue().decode("utf-8")


def interrupt(block: Block, patch: pytest.MonkeyPatch) -> int | None:
    """Arrange for Ctrl-C where the page says so; the exit status to expect then."""
    found = re.fullmatch(r"Ctrl-C after step (\d+)", block.remark)
    if found is None:
        return None
    from nearfar.cli.progress import PlainLog

    step = PlainLog.step

    def interrupted(self: PlainLog, entry: dict[str, Any]) -> None:
        step(self, entry)
        if entry["step"] == int(found[1]):
            os.kill(os.getpid(), signal.SIGINT)

    patch.setattr(PlainLog, "step", interrupted)
    return 130


# The documents as a whole


def test_no_block_is_overlooked():
    """Every fence that opens is a block that was found, and there are as many as there should be."""
    found = Counter(block.language for page in PAGES for block in blocks_of(page))
    fences = sum(len(re.findall(r"^\s*(?:```|~~~)", page.read_text("utf-8"), re.MULTILINE)) for page in PAGES)
    assert fences == 2 * found.total()
    assert {kind: min(found[kind], least) for kind, least in AT_LEAST.items()} == AT_LEAST, found


GENERATED = re.compile(r"results: \w+|end of results|table of benchmarks/[\w/-]+\.(py(, [\w-]+)?|json)|end of table")
"""Where tables of benchmarks begin and end; tests/benchmarks compares them with what was measured."""


def test_remarks_are_understood():
    """A comment with a typing mistake would silently do nothing."""
    known = re.compile(r"|file: [\w.-]+|refused|peer|Ctrl-C after step \d+")
    for page in PAGES:
        for block in blocks_of(page):
            assert known.fullmatch(block.remark), f"{block.place}: {block.remark!r}"
        shown = [block.remark for block in blocks_of(page) if block.remark]
        remarks = re.findall(r"^ *<!-- (.+?) -->$", page.read_text("utf-8"), re.MULTILINE)
        assert [remark for remark in remarks if not GENERATED.fullmatch(remark)] == shown


def test_examples_of_commands_and_of_python_are_tabs():
    """On the pages of the site; the labels are the same everywhere, so that the choice of a reader is kept."""
    usual = {"Command line", "Python"}
    groups = 0
    for page in PAGES:
        if page.parent == ROOT:
            continue
        text = page.read_text("utf-8")
        assert not re.search(r"the same (?:in|from) Python[^\n]*:\n\n```python", text, re.IGNORECASE), names(page)
        labels = re.findall(r'^=== "(.+)"$', text, re.MULTILINE)
        if page.parent.name == "coming-from":
            assert {"nearfar, command line", "nearfar, Python"} <= set(labels), names(page)
        else:
            assert set(labels) in (usual, set()), names(page)
            assert labels == ["Command line", "Python"] * (len(labels) // 2), names(page)
            groups += len(labels) // 2
    assert groups >= 30


def test_every_page_is_in_the_navigation_and_every_entry_is_a_page():
    entries = yaml.safe_load((ROOT / "mkdocs.yml").read_text("utf-8"))["nav"]
    listed: list[str] = []

    def walk(entry: Any) -> None:
        if isinstance(entry, str):
            listed.append(entry)
        else:
            for inner in entry.values() if isinstance(entry, dict) else entry:
                walk(inner)

    walk(entries)
    pages = [str(page.relative_to(ROOT / "docs")) for page in PAGES if page.parent != ROOT]
    assert sorted(listed) == sorted([*pages, *site_pages.PAGES])
    assert all((ROOT / file).is_file() for file in site_pages.PAGES.values())
    assert len(listed) >= 20


@pytest.mark.parametrize("page", PAGES, ids=names)
def test_links_lead_somewhere(page):
    """Relative links name files that exist, and headings that exist in them."""
    for target in links(page.read_text("utf-8")):
        if target.startswith(("https://", "mailto:")):
            continue
        name, _, heading = target.partition("#")
        file = page.parent / name if name else page
        assert file.exists(), f"{names(page)} links to {target}"
        if file.suffix in (".svg", ".png") and heading in ("only-light", "only-dark"):
            assert heading.removeprefix("only-") in file.stem, f"{names(page)}: {target}"
        elif heading:
            titles = re.findall(r"^#+ (.+)$", file.read_text("utf-8"), re.MULTILINE)
            assert heading in {slugify(re.sub(r"[`*]", "", title), "-") for title in titles}, f"{names(page)}: {target}"


def test_the_documents_link_to_each_other():
    assert sum(len(links(page.read_text("utf-8"))) for page in PAGES) >= 30


def test_examples_are_good_recipes():
    """Each parses, and its data can be read."""
    from nearfar.pipeline import read_data

    recipes = sorted((ROOT / "examples").glob("*.toml"))
    assert len(recipes) >= 1
    for path in recipes:
        data = read_data(resolve_paths(read_recipe(path), path.parent))
        assert len(data.train) > 0


def test_the_tree_of_errors_is_the_one_in_the_code():
    from nearfar import errors

    [drawn] = [block.body for block in blocks_of(ROOT / "docs/reference/errors.md") if block.language == "text"]
    assert drawn.count("──") == 10
    assert drawn in str(errors.__doc__)


def links(text: str) -> list[str]:
    """The targets of all links outside of code."""
    prose = re.sub(r"^( *)```.*?^\1```", "", text, flags=re.MULTILINE | re.DOTALL)
    return re.findall(r"\]\(([^)\s]+)\)", re.sub(r"`[^`]*`", "", prose))


# The guards bite


@pytest.mark.parametrize(
    "line",
    [
        "make tset",
        "nearfar trian x.csv",
        "nearfar train x.csv --epoch 3",
        "frobnicate",
        "pip install '.[offlien]'",
        "torchrun --nproc-per-nude 2 .venv/bin/nearfar train x.csv",
        "python3 -m no_such_module",
        "cd x && make tset",
    ],
)
def test_a_wrong_shell_line_is_noticed(line):
    with pytest.raises(AssertionError):
        check_command(line)


@pytest.mark.parametrize(
    "code",
    [
        "from transformers import Trainr",
        "from transformers import TrainingArguments\nTrainingArguments(epochs=3)",
        "from transformers import AutoModel\nAutoModel.from_pretraind('x')",
        "from datasets import",
    ],
)
def test_a_wrong_name_of_another_library_is_noticed(code):
    with pytest.raises((AssertionError, SyntaxError)):
        check_names(code)


def test_links_of_files_lead_to_pages_of_the_site():
    text = "[a](docs/why/resume.md#how) [b](src/x.py) [c](https://a.b) `[d](e)` [f](CHANGELOG.md)"
    moved = "[a](why/resume.md#how) b [c](https://a.b) `[d](e)` [f](changelog.md)"
    assert site_pages.moved(text, "README.md", "results.md") == moved
    assert site_pages.moved("[a](../x.md)", "docs/why/y.md", "why/y.md") == "[a](../x.md)"  # mkdocs says what is wrong
    page = SimpleNamespace(file=SimpleNamespace(src_uri="results.md"))
    assert "| Texts per class |" in site_pages.on_page_markdown("<!-- results: readme -->", page)


def test_a_wrong_output_line_is_noticed():
    assert missing_line(("a", "...", "c ... e"), "a\nb\nc d e\n") is None
    assert missing_line(("c", "a"), "a\nb\nc\n") == "a"
    assert missing_line(("b b",), "a\nb\n") == "b b"


@pytest.mark.parametrize(
    "text",
    [
        "```python\nassert 1 == 2\n```\n",
        "```json\n{]\n```\n",
        "```console\n$ nearfar --version\nnearfar 99\n```\n",
        "<!-- refused -->\n```console\n$ nearfar --version\n```\n",
        "```console\n$ nearfar check missing.csv\n```\n",
        "```console\n$ ls\n```\n",
        "```ruby\nputs 1\n```\n",
    ],
)
def test_a_wrong_block_is_noticed(text, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    [block] = parse(text)
    with pytest.raises((AssertionError, ValueError)):
        carry_out(block, tmp_path, {}, monkeypatch)


def test_a_wrong_recipe_is_noticed(tmp_path, monkeypatch):
    from nearfar.errors import RecipeError

    [block] = parse("```toml\n[training]\nepoch = 3\n```\n")
    with pytest.raises(RecipeError):
        carry_out(block, tmp_path, {}, monkeypatch)
