"""A small fixed part of the campaigns of ``make torture``, through the programs that run them in full."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest


@pytest.mark.slow
@pytest.mark.parametrize(
    ("program", "expected"),
    [
        (["folders", "malicious", "--number", "60"], "malicious folders: 60"),
        (["folders", "damaged", "--number", "60"], "damaged folders: "),
    ],
    ids=["malicious", "damaged"],
)
def test_a_part_of_the_campaign(program, expected):
    """No traceback, no hang, no other numbers, no other bytes."""
    name, *flags = program
    command = [sys.executable, "-m", f"benchmarks.reliability.{name}", *flags]
    settings = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=settings, capture_output=True, text=True, timeout=1_800)
    assert done.returncode == 0, done.stdout[-2_000:] + done.stderr[-2_000:]
    assert expected in done.stdout
