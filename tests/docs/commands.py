"""Whether a command that is shown but not run could run: its words, targets, flags and files exist."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import inspect
import re
import shlex
import tomllib
from typing import Any

import typer

from nearfar.cli import app
from tests.docs.blocks import ROOT

DEPLOYMENT = ("docker", "sudo", "systemd-analyze", "journalctl", "serve", "ln")
TOOLS = {
    "make",
    "python3",
    "pip",
    "cd",
    "nearfar",
    "torchrun",
    "accelerate",
    "tensorboard",
    "python",
    "ray",
    "curl",
    *DEPLOYMENT,
}


def check_command(line: str) -> None:
    """Assert that a shell line is sound."""
    for part in re.split(r"\s*(?:&&|\|)\s*", line.partition("  #")[0].strip()):
        words = shlex.split(part)
        while words and re.fullmatch(r"[A-Z_]+=\S*", words[0]):  # settings before a command
            words = words[1:]
        name = words[0].removeprefix(".venv/bin/")
        assert name in TOOLS, f"{name!r} is no tool that the documents may use"
        CHECKS.get(name, lambda _: None)(words[1:])


def check_names(code: str) -> None:
    """Assert that what Python code imports exists, and that calls name arguments that exist.

    Libraries that are not installed are left out.
    """
    tree = ast.parse(code)
    names: dict[str, Any] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and importlib.util.find_spec(node.module.split(".")[0]):
            module = importlib.import_module(node.module)
            for alias in node.names:
                assert hasattr(module, alias.name), f"{node.module} has no {alias.name}"
                names[alias.asname or alias.name] = getattr(module, alias.name)
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in names:
            assert hasattr(names[node.value.id], node.attr), f"{node.value.id} has no {node.attr}"
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in names:
            known = inspect.signature(names[node.func.id]).parameters
            given = {keyword.arg for keyword in node.keywords if keyword.arg}
            free = any(parameter.kind is parameter.VAR_KEYWORD for parameter in known.values())
            assert free or given <= set(known), f"{node.func.id} has no {given - set(known)}"


def check_files(words: list[str]) -> None:
    """The files of the repository that a command of another project is given exist."""
    for word in words:
        path = re.sub(r"^(deploy)\.(\w+):\w+$", r"\1/\2.py", word)
        assert not path.startswith("deploy/") or (ROOT / path).is_file(), f"{word}: there is no such file"


def check_make(words: list[str]) -> None:
    """Every target stands in the Makefile."""
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    for word in words:
        assert "=" in word or word in targets, f"make {word}: there is no such target"


def check_nearfar(words: list[str]) -> None:
    """The verb exists, and every flag of it."""
    root: Any = typer.main.get_command(app)
    if words[0].startswith("-"):
        known = {flag for param in root.params for flag in param.opts} | {"-h", "--help"}
        assert set(words) <= known, f"nearfar {words}: unknown flag"
        return
    assert words[0] in root.commands, f"nearfar {words[0]}: there is no such command"
    if hasattr(root.commands[words[0]], "commands"):  # a word with commands below it
        root, words = root.commands[words[0]], words[1:]
        assert words[0] in root.commands, f"nearfar ... {words[0]}: there is no such command"
    known = {flag for param in root.commands[words[0]].params for flag in param.opts} | {"-h", "--help"}
    for word in words[1:]:
        flag = word.partition("=")[0]
        assert not re.match(r"--?[a-z]", flag) or flag in known, f"nearfar {words[0]} {flag}: there is no such flag"


def check_launcher(parser: Any, words: list[str]) -> None:
    """The flags of a launcher up to the script, which is ``nearfar``."""
    assert any(word.endswith("nearfar") for word in words), f"{words} starts no nearfar"
    cut = next(place for place, word in enumerate(words) if word.endswith("nearfar"))
    _, unknown = parser.parse_known_args([*words[:cut], "script"])
    assert not [word for word in words[:cut] if word.startswith("-") and word in unknown]
    known = {flag for action in parser._actions for flag in action.option_strings}
    for word in words[:cut]:
        assert not word.startswith("-") or word.partition("=")[0] in known, f"{word}: the launcher has no such flag"
    check_nearfar(words[cut + 1 :])


def check_torchrun(words: list[str]) -> None:
    from torch.distributed.run import get_args_parser

    check_launcher(get_args_parser(), words)


def check_accelerate(words: list[str]) -> None:
    from accelerate.commands.launch import launch_command_parser

    assert words[0] == "launch"
    check_launcher(launch_command_parser(), words[1:])


def check_pip(words: list[str]) -> None:
    """Extras exist, and so do the files that are named."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    assert words[0] == "install"
    for place, word in enumerate(words):
        if word in ("-c", "--constraint"):
            assert (ROOT / words[place + 1]).is_file(), f"there is no file {words[place + 1]}"
        if found := re.fullmatch(r"(?:\.|nearfar)\[([\w,]+)\]", word):
            assert set(found[1].split(",")) <= set(extras), f"{word}: there is no such extra"


def check_python(words: list[str]) -> None:
    """The module or the script exists."""
    if words[0] == "-m":
        assert importlib.util.find_spec(words[1]) is not None, f"there is no module {words[1]}"
    else:
        assert (ROOT / words[0]).is_file(), f"there is no script {words[0]}"


def check_curl(words: list[str]) -> None:
    """The path is one of ``nearfar serve``, and the JSON a request that it reads."""
    from nearfar.server.app import POSTS
    from nearfar.server.schemas import read_body

    address, flag, body = words
    assert flag == "--json"
    paths = {endpoint.path: endpoint for endpoint in POSTS}
    path = address.removeprefix("http://127.0.0.1:8080")
    assert path in paths, f"{address}: nearfar serve has no such path"
    read_body(paths[path].fields, body.encode())


CHECKS = {
    "curl": check_curl,
    "make": check_make,
    "nearfar": check_nearfar,
    "torchrun": check_torchrun,
    "accelerate": check_accelerate,
    "pip": check_pip,
    "python3": check_python,
    "python": check_python,
    **dict.fromkeys(DEPLOYMENT, check_files),
}
