"""Trials of studies that these tests run in their own process begin without seconds of imports."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="session", autouse=True)
def _quick_trials(preloaded_workers: None) -> None:
    pass
