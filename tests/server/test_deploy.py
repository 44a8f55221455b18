"""The files in ``deploy``: what they copy exists, images have exact versions, and nothing runs as root."""

from __future__ import annotations

import configparser
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.main import get_command

from nearfar import __version__
from nearfar.cli.app import app

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"


def instructions() -> list[tuple[str, str]]:
    """The instructions of the Dockerfile with their arguments."""
    text = re.sub(r"\\\n\s*", " ", (DEPLOY / "Dockerfile").read_text())
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return [(line.split()[0], line.split(maxsplit=1)[1]) for line in lines]


def check_flags(words: list[str]) -> None:
    """The flags of a call of ``nearfar serve`` exist."""
    command: Any = get_command(app)
    known = {flag for parameter in command.commands["serve"].params for flag in parameter.opts}
    assert {word for word in words if word.startswith("--")} <= known


def test_the_dockerfile_copies_what_exists_and_pins_its_images():
    known = {"FROM", "ARG", "ENV", "WORKDIR", "RUN", "COPY", "USER", "EXPOSE", "STOPSIGNAL", "HEALTHCHECK",
             "ENTRYPOINT", "CMD"}  # fmt: skip
    found = instructions()
    assert {name for name, _ in found} <= known
    stages = [argument.split() for name, argument in found if name == "FROM"]
    for stage in stages:
        assert re.search(r":\d+\.\d+\.\d+", stage[0]), stage
        assert "latest" not in stage[0]
    names = {stage[2] for stage in stages if len(stage) == 3}
    copies = [shlex.split(argument) for name, argument in found if name == "COPY"]
    ignored = (DEPLOY / "Dockerfile.dockerignore").read_text().splitlines()
    assert ignored[0] == "*"
    for words in copies:
        if words[0].startswith("--from="):
            assert words[0].removeprefix("--from=") in names
            continue
        for source in words[:-1]:
            assert (ROOT / source).exists(), source
            assert f"!{source}" in ignored, f"{source} is left out of the context"


def test_the_container_is_not_root_and_serves():
    found = instructions()
    last = len(found) - [name for name, _ in found][::-1].index("FROM")
    final = found[last:]
    (user,) = [argument for name, argument in final if name == "USER"]
    assert int(user.split(":")[0]) > 0
    (entry,) = [yaml.safe_load(argument) for name, argument in final if name == "ENTRYPOINT"]
    (rest,) = [yaml.safe_load(argument) for name, argument in final if name == "CMD"]
    assert entry == ["nearfar", "serve"]
    check_flags(rest)
    installs = [argument for name, argument in found if name == "RUN" and "pip install" in argument]
    assert all("--constraint constraints.txt" in call for run in installs for call in run.split("&&"))
    (health,) = [argument for name, argument in final if name == "HEALTHCHECK"]
    compile(yaml.safe_load(health.split("CMD ")[1])[2], "healthcheck", "exec")


def test_the_compose_file_fits_the_dockerfile():
    compose = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    service = compose["services"]["nearfar"]
    assert (DEPLOY / service["build"]["context"] / service["build"]["dockerfile"]).resolve() == DEPLOY / "Dockerfile"
    assert service["image"] == f"nearfar:{__version__}"
    check_flags(service["command"])
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert all(port.startswith("127.0.0.1:") for port in service["ports"])
    assert set(service["secrets"]) == set(compose["secrets"])
    assert f"/run/secrets/{service['secrets'][0]}" in service["command"]


def test_the_service_of_systemd(tmp_path):
    parser = configparser.ConfigParser(strict=False, interpolation=None, delimiters=("=",))
    parser.optionxform = str  # type: ignore[assignment]
    parser.read(DEPLOY / "nearfar.service")
    service = parser["Service"]
    words = shlex.split(service["ExecStart"])
    assert words[1:3] == ["serve", "/srv/nearfar/model"]
    check_flags(words)
    assert service["DynamicUser"] == "yes"
    assert service["ProtectSystem"] == "strict"
    assert int(service["TimeoutStopSec"]) > 30 + 10
    if shutil.which("systemd-analyze"):  # its own check, with a command that exists
        copy = tmp_path / "nearfar.service"
        copy.write_text((DEPLOY / "nearfar.service").read_text().replace(words[0], "/bin/true"))
        done = subprocess.run(["systemd-analyze", "verify", str(copy)], capture_output=True, text=True, timeout=60)
        assert "nearfar.service" not in done.stderr, done.stderr
        assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", ["Dockerfile", "compose.yaml", "nearfar.service"])
def test_no_secret_is_in_the_files(name):
    text = (DEPLOY / name).read_text()
    assert not re.search(r"(?i)(--api-key[ =\"',]+(?!-file)\w)|NEARFAR_API_KEY", text)
