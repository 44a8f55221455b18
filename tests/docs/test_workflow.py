"""One set of commands everywhere: the Makefile, its help, the pre-commit hooks and the hosted CI agree."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest
import yaml

from tests.docs.blocks import ROOT

MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
TARGETS = re.findall(r"^([a-z]+):", MAKEFILE, re.MULTILINE)


def recipe(target: str) -> list[str]:
    """The commands of a target of the Makefile, without the path of the environment."""
    [body] = re.findall(rf"^{target}:.*\n((?:\t.*\n)+)", MAKEFILE, re.MULTILINE)
    return [line.strip().replace("$(BIN)/", "") for line in body.splitlines()]


def test_help_lists_every_target():
    command = ["make", "--no-print-directory", "help"]  # under make test, it would print the folder it enters
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert [line.split()[1] for line in done.stdout.splitlines()] == TARGETS
    assert {"demo", "quick", "test", "check", "coverage", "docs", "changelog", "hooks", "bench", "torture"} <= set(
        TARGETS
    )
    assert all(len(line) < 120 for line in done.stdout.splitlines())


def test_every_target_is_phony():
    [phony] = re.findall(r"^\.PHONY: (.*)$", MAKEFILE, re.MULTILINE)
    assert sorted(phony.split()) == sorted(TARGETS)


def test_quick_runs_folders_that_exist():
    [chosen] = re.findall(r"^QUICK := (.*)$", MAKEFILE, re.MULTILINE)
    assert len(chosen.split()) >= 4
    assert all((ROOT / folder).is_dir() for folder in chosen.split())


def test_the_hooks_are_the_tools_of_make_check():
    """Local hooks only: nothing is fetched, and a commit is held to what ``make check`` asks for."""
    repos = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))["repos"]
    assert [repo["repo"] for repo in repos] == ["local"]
    hooks = repos[0]["hooks"]
    assert {hook["language"] for hook in hooks} == {"system"}
    entries = [hook["entry"].removeprefix(".venv/bin/") for hook in hooks]
    assert entries == [command.removesuffix(" .") for command in recipe("check")]


def test_the_hosted_ci_calls_make_targets_only():
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8"))
    [job] = workflow["jobs"].values()
    commands = [step["run"] for step in job["steps"] if "run" in step]
    assert commands == ["make check", "make test", "make docs"]
    assert {command.removeprefix("make ") for command in commands} <= set(TARGETS)
    assert job["strategy"]["matrix"]["python"] == ["3.11", "3.12"]


def test_make_pages_writes_every_generated_page():
    """Each command exists and prints the page that it is redirected to."""
    *commands, results, readme, quoted, defaults = recipe("pages")
    assert results == "python -m benchmarks.results_page"
    assert readme == "python -m benchmarks.readme"  # tests/benchmarks compares what these four write
    assert quoted == "python -m benchmarks.quoted"
    assert defaults == "python -m benchmarks.defaults page"
    written = [command.split(" > ") for command in commands]
    assert [page for _, page in written] == [
        *(f"docs/reference/{name}.md" for name in ("cli", "recipe", "task-recipe", "papers")),
        "docs/concepts/objectives.md",
    ]
    for command, page in written:
        done = subprocess.run([sys.executable, *command.split()[1:]], cwd=ROOT, capture_output=True, check=True)
        assert done.stdout.decode("utf-8") == (ROOT / page).read_text(encoding="utf-8"), f"{page}: run make pages"


@pytest.mark.parametrize("target", ["test", "coverage"])
def test_coverage_runs_the_tests_as_make_test_does(target):
    [command] = recipe(target)
    assert command.startswith("python -m pytest -n 2 --dist loadfile --no-loadscope-reorder")


def test_the_coverage_is_stated():
    text = " ".join((ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").split())
    stated = re.search(
        r"Coverage of `src/nearfar` by `make coverage`, lines and branches: \*\*(\d\d(?:\.\d)?) %\*\*", text
    )
    assert stated is not None
    assert float(stated[1]) > 50


def test_contributing_names_files_that_exist():
    """A step that names a file or folder of the repository is not left behind by a move."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    paths = set(re.findall(r"`((?:src|tests|docs|benchmarks|changelog\.d|\.ci|\.github)[\w./-]*)`", text))
    assert len(paths) >= 15
    assert {path for path in paths if "NAME" not in path and not (ROOT / path).exists()} == set()
