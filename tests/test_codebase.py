"""The house rules that no linter knows: lazy start, public names, import contracts that bite, nothing pickled."""

from __future__ import annotations

import importlib
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ROOMS = (
    "pipeline", "batching", "data", "encoding", "evaluation", "integrations", "objectives", "experiments", "recipe",
    "report", "training", "estimators", "server",
)  # fmt: skip


def python(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_command_line_starts_without_torch():
    """Help must come at once: neither torch nor transformers nor datasets is imported for it."""
    code = (
        "import sys, nearfar, nearfar.cli, nearfar.recipe, nearfar.data\n"
        "print([name for name in ('torch', 'transformers', 'datasets', 'pyarrow', 'accelerate', 'sklearn') if name in sys.modules])"
    )
    assert python(code).strip() == "[]"


def test_training_starts_without_libraries_that_few_runs_need():
    """Importing them takes longer than six steps on few texts."""
    code = (
        "import sys, nearfar.pipeline\n"
        "print([name for name in ('transformers', 'datasets', 'sklearn', 'scipy', 'pandas') if name in sys.modules])"
    )
    assert python(code).strip() == "[]"


def test_importing_the_package_is_quick_and_estimators_are_made_without_torch():
    """Both without torch; the import takes less than 0.3 s of the processor."""
    code = (
        "import sys, time\nbegan = time.process_time()\nimport nearfar\nspent = time.process_time() - began\n"
        "nearfar.Classifier(), nearfar.Encoder()\nprint(spent < 0.3, 'torch' in sys.modules)"
    )
    assert python(code).split() == ["True", "False"]


@pytest.mark.parametrize("room", ROOMS)
def test_every_public_name_is_there_and_listed(room):
    """``__all__`` names exactly what a room re-exports."""
    module = importlib.import_module(f"nearfar.{room}")
    listed = module.__all__
    assert sorted(set(listed)) == sorted(listed)
    source = Path(module.__file__ or "").read_text()
    imported = {
        name.strip().split(" as ")[-1]
        for names in re.findall(
            r"^(?:    )?from nearfar\S* import (?:\(([^)]*)\)|([^\n(]+))", source, flags=re.MULTILINE
        )
        for name in "".join(names).replace("\n", " ").split(",")
        if name.strip()
    }
    assert imported == set(listed)
    assert all(hasattr(module, name) for name in listed)


def test_the_public_names_of_the_package():
    """The flat namespace stays small, and what is not there is an ordinary AttributeError."""
    import nearfar

    names = {"Callback", "Classifier", "Encoder", "Recipe", "SearchIndex", "compare", "load", "train", "tune"}
    names |= {"embed_files", "predict_files"}
    assert set(nearfar.__all__) == {"__version__", *names}
    assert all(callable(getattr(nearfar, name)) for name in nearfar.__all__ if name != "__version__")
    assert {*nearfar.__all__} <= {*dir(nearfar)}
    with pytest.raises(AttributeError, match="no attribute 'lod'"):
        _ = nearfar.lod


VIOLATIONS = {
    "objectives look at encoders": ("objectives/supcon.py", "import transformers"),
    "objectives use numpy": ("objectives/inputs.py", "import numpy"),
    "data looks ahead at training": ("data/records.py", "import nearfar.training"),
    "recipes load torch": ("recipe/schema.py", "import torch"),
    "encoding reads recipes": ("encoding/encoder.py", "import nearfar.recipe"),
    "training looks at evaluation": ("training/checkpoints.py", "import nearfar.evaluation"),
    "errors look at anything": ("errors.py", "import nearfar.shapes"),
    "a room nobody declared": ("utils.py", "X = 1"),
    "two siblings in a circle": ("training/precision.py", "import nearfar.training.loss_module"),
}


@pytest.mark.parametrize("violation", [None, *VIOLATIONS])
def test_import_contracts_hold_and_bite(tmp_path, violation):
    """The contracts are kept as the code stands, and each planted violation breaks one."""
    copy = shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__", "samples"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    if violation is not None:
        name, line = VIOLATIONS[violation]
        path = copy / "nearfar" / name
        source = path.read_text() if path.exists() else '"""Planted."""\n'
        path.write_text(f"{source}\n{line}\n")
    command = Path(sys.executable).with_name("lint-imports")
    done = subprocess.run(
        [str(command), "--no-cache", "--config", "pyproject.toml"], cwd=tmp_path, capture_output=True, text=True,
        timeout=120, env={"PYTHONPATH": str(copy), "PATH": ""},
    )  # fmt: skip
    assert (done.returncode == 0) == (violation is None), done.stdout + done.stderr


def test_nothing_pickled_is_read_or_written():
    """No pickle, joblib, torch.load or torch.save anywhere in the package."""
    files = sorted((ROOT / "src").rglob("*.py"))
    assert len(files) > 40
    for path in files:
        found = re.findall(
            r"\b(?:import pickle|joblib|torch\.load|torch\.save|allow_pickle=True|trust_remote_code=True)\b",
            path.read_text(),
        )
        assert not found, f"{path}: {found}"


def test_the_exact_versions_are_pinned():
    """Every dependency of the project, extras included, has an exact pin in constraints.txt."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    wanted = {
        re.split(r"[\[<>=!~ ]", requirement)[0].lower()
        for requirement in [*project["dependencies"], *extras["dev"], *extras["offline"], *extras["tensorboard"]]
    } - {"nearfar"}
    pinned = dict(
        line.lower().split("==") for line in (ROOT / "constraints.txt").read_text().splitlines() if "==" in line
    )
    assert wanted <= set(pinned)
    assert pinned["torch"] == "2.13.0"


def test_ci_calls_the_commands_of_the_readme():
    """.ci/run is make check and make test, and the README names both make targets."""
    commands = [line for line in (ROOT / ".ci" / "run").read_text().splitlines() if line.startswith("make ")]
    assert commands == ["make check", "make test"]
    readme = (ROOT / "README.md").read_text()
    assert "make demo" in readme
    assert "make test" in readme
