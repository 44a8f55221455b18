"""Studies that several tests share; they are never changed."""

from __future__ import annotations

from pathlib import Path

import pytest

from nearfar.report import Source, read_source
from tests.report.studies import write_study


@pytest.fixture(scope="session")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three contenders on three data sets, one of them in two sizes; the last trial failed."""
    folder = tmp_path_factory.mktemp("study")
    write_study(folder, rows=60, failed=1, conflicts=True)
    return folder


@pytest.fixture(scope="session")
def source(study: Path) -> Source:
    return read_source(study)
