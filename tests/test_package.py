"""The package as it is published: what is built, its metadata, and a fresh environment that has nothing but the wheel."""

from __future__ import annotations

import re
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest
import yaml

import nearfar
from tests.docs.blocks import ROOT, blocks_of

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> Path:
    """A folder with the sdist, and the wheel that is made from it."""
    folder = tmp_path_factory.mktemp("dist")
    run("-m", "build", "--no-isolation", "--outdir", str(folder), str(ROOT))
    return folder


@pytest.fixture(scope="module")
def environment(built, tmp_path_factory) -> Path:
    """The Python of a new environment: the wheel is installed there, its dependencies are borrowed from this one."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=False)
    python = folder / "bin" / "python"
    (wheel,) = built.glob("*.whl")
    run("-m", "pip", "--python", str(python), "install", "--quiet", "--no-deps", "--no-index", str(wheel))
    (packages,) = folder.glob("lib/python*/site-packages")
    (packages / "borrowed.pth").write_text(f"{sysconfig.get_path('purelib')}\n")  # its own .pth files are not read
    return python


def run(*words: str, python: Path = Path(sys.executable), cwd: Path | None = None) -> str:
    done = subprocess.run([str(python), *words], capture_output=True, text=True, timeout=300, cwd=cwd, env={"PATH": ""})
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_files_pass_the_check_of_the_index(built):
    files = sorted(built.iterdir())
    assert [file.name for file in files] == [
        f"nearfar-{nearfar.__version__}-py3-none-any.whl", f"nearfar-{nearfar.__version__}.tar.gz"
    ]  # fmt: skip
    assert run("-m", "twine", "check", "--strict", *map(str, files)).count("PASSED") == 2


def test_what_is_inside(built):
    (sdist,), (wheel,) = built.glob("*.tar.gz"), built.glob("*.whl")
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {
        "README.md",
        "LICENSE",
        "CHANGELOG.md",
        "CITATION.cff",
        "SECURITY.md",
        "docs/index.md",
        "mkdocs.yml",
    } <= names
    assert {"benchmarks/STUDIES.md", "benchmarks/quoted.py", "deploy/Dockerfile", "changelog.d/README.md"} <= names, (
        "the tests and the documentation read them"
    )
    with zipfile.ZipFile(wheel) as archive:
        assert {name.split("/")[0] for name in archive.namelist()} == {
            "nearfar",
            f"nearfar-{nearfar.__version__}.dist-info",
        }
        assert "nearfar/py.typed" in archive.namelist()


def test_the_code_of_the_readme_runs_in_a_fresh_environment(environment, tmp_path):
    """The first block of Python, word for word but for the encoder, which is the toy one."""
    code = next(block.body for block in blocks_of(ROOT / "README.md") if block.language == "python")
    assert "nearfar.Classifier()" in code
    script = tmp_path / "readme.py"
    script.write_text(code.replace("nearfar.Classifier()", 'nearfar.Classifier("toy")') + "print(nearfar.__file__)\n")
    *_, label, place = run(str(script), python=environment, cwd=tmp_path).splitlines()
    assert re.fullmatch(r"\['(?:delivery|payment)'\]", label)
    assert Path(place).is_relative_to(environment.parents[1])
    assert (tmp_path / "my-model" / "model.safetensors").is_file()


def test_the_command_of_a_fresh_environment_finds_the_sample_data(environment, tmp_path):
    command = environment.with_name("nearfar")
    assert run(str(command), "--version", python=environment).strip() == f"nearfar {nearfar.__version__}"
    assert "no problems" in run(
        str(command), "check", "sample:helpdesk", "--encoder", "toy", python=environment, cwd=tmp_path
    )


def test_every_extra_is_explained():
    """The table of the page Install has a row for each, and no row for one that does not exist."""
    page = (ROOT / "docs" / "install.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `([\w]+)` \| [^|]+ \|$", page, flags=re.MULTILINE)
    assert rows == list(PROJECT["optional-dependencies"])


def test_the_citation_names_this_version():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["version"] == nearfar.__version__
    assert citation["license"] == PROJECT["license"]
    assert {"cff-version", "message", "title", "authors"} <= set(citation)


def test_templates_of_issues_are_forms():
    """Each has a name, a description and fields with ids that differ."""
    forms = [path for path in (ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml") if path.name != "config.yml"]
    assert len(forms) == 2
    for path in forms:
        form = yaml.safe_load(path.read_text(encoding="utf-8"))
        assert {"name", "description", "body"} <= set(form)
        ids = [field["id"] for field in form["body"] if field["type"] != "markdown"]
        assert len(set(ids)) == len(ids) >= 3
