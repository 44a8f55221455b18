"""The kernels that torch and oneDNN may keep."""

from __future__ import annotations

import os
import subprocess
import sys

from nearfar.encoding.processor import CACHES, limit_kernel_caches


def test_what_the_user_has_set_stays(monkeypatch):
    """The bounds are defaults."""
    name, other = CACHES
    monkeypatch.setenv(name, "7")
    monkeypatch.delenv(other, raising=False)
    limit_kernel_caches()
    assert os.environ[name] == "7"
    assert os.environ[other] == CACHES[other]


def test_importing_the_encoders_sets_the_bounds():
    """In a new process, also where torch was imported before."""
    code = f"import os, torch, nearfar.encoding; print([os.environ[name] for name in {list(CACHES)}])"
    environment = {name: value for name, value in os.environ.items() if name not in CACHES}
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment
    ).stdout
    assert found.strip() == str(list(CACHES.values()))
