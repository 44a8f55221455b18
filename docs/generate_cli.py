"""The page of all commands and flags, from the command line itself: ``python docs/generate_cli.py``."""

from __future__ import annotations

import sys
from typing import Any

import typer

from nearfar.cli import app

INTRODUCTION = """\
# Command line

`nearfar COMMAND --help` prints the same text. The exit status is 0 for success, 1 for an error, 2 for an unknown or
misspelled flag, and 130 after Ctrl-C.
"""


def page() -> str:
    """The whole page in Markdown."""
    root: Any = typer.main.get_command(app)
    sections = [INTRODUCTION]
    for name, command in _commands(root):
        arguments = [param for param in command.params if param.param_type_name == "argument"]
        options = [param for param in command.params if param.param_type_name == "option" and not param.hidden]
        usage = " ".join([f"nearfar {name}", "[OPTIONS]", *(_placeholder(each) for each in arguments)])
        lines = [f"## {name}", "", " ".join(command.help.split()), "", f"`{usage}`", ""]
        if arguments:
            lines += ["| Argument | |", "|---|---|"]
            lines += [
                f"| `{_cell(each.metavar or each.name.upper())}` | {_cell(each.help or '')} |" for each in arguments
            ]
            lines.append("")
        lines += ["| Flag | Default | |", "|---|---|---|"]
        lines += [f"| `{_flag(each)}` | {_default(each)} | {_cell(each.help or '')} |" for each in options]
        sections.append("\n".join(lines) + "\n")
    return "\n".join(sections)


def _commands(group: Any, before: str = "") -> list[tuple[str, Any]]:
    """All commands with their words, also those below another word."""
    found = []
    for name, command in group.commands.items():
        words = f"{before}{name}"
        found += _commands(command, f"{words} ") if hasattr(command, "commands") else [(words, command)]
    return found


def _placeholder(param: Any) -> str:
    name = param.metavar or param.name.upper()
    return name if param.required else f"[{name}]"


def _flag(param: Any) -> str:
    flag = " ".join(param.opts)
    return flag if param.is_flag else f"{flag} {_cell(param.metavar or param.name.strip('_').upper())}"


def _default(param: Any) -> str:
    if param.required:
        return "required"
    if param.is_flag:
        return "off"
    return "unset" if param.default is None else f"`{param.default}`"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


if __name__ == "__main__":
    sys.stdout.write(page())
