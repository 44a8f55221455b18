"""Rows that all tests of estimators share."""

from __future__ import annotations

import pytest

FRUIT = ["an apple", "a ripe plum", "green pears", "sweet cherries", "a peach", "two apples"]
TOOLS = ["a hammer", "the saw cuts", "a steel file", "new pliers", "a drill", "two hammers"]


@pytest.fixture(scope="session")
def texts() -> list[str]:
    return [*FRUIT, *TOOLS]


@pytest.fixture(scope="session")
def labels() -> list[str]:
    return ["fruit"] * len(FRUIT) + ["tool"] * len(TOOLS)
