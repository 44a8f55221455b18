"""Small models of every kind, in folders as they are served."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from starlette.testclient import TestClient

import nearfar
from nearfar.server import Limits, Settings, application

torch.set_num_threads(1)

TEXTS = ["an apple", "a ripe plum", "a saw", "a heavy drill"]
CLASSES = ["fruit", "fruit", "tool", "tool"]
PAIRS = [("an apple", "a plum"), ("a saw", "a drill"), ("an apple", "a saw"), ("a plum", "a drill")]
SHORT: dict[str, Any] = {"encoder": {"name": "toy"}, "training": {"max_steps": 1, "estimate": False}}


@pytest.fixture(scope="session")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A classifier, one of pairs, one of several labels, and a model of two tasks."""
    place = tmp_path_factory.mktemp("served")
    lefts, rights = zip(*PAIRS, strict=True)
    pairs = {"text_a": lefts, "text_b": rights}
    rows = {"text": TEXTS, "label": CLASSES}
    trained: dict[str, Any] = {
        "classes": nearfar.train({**SHORT, "objective": {"name": "cross-entropy"}}, data=rows),
        "pairs": nearfar.train(
            {**SHORT, "objective": {"name": "cross-entropy"}},
            data={**pairs, "label": ["same", "same", "other", "other"]},
        ),
        "several": nearfar.train(
            {**SHORT, "objective": {"name": "cross-entropy"}, "data": {"label_separator": ";"}},
            data={"text": TEXTS, "label": ["fruit;small", "fruit", "tool", "tool;small"]},
        ),
        "tasks": nearfar.train(
            {
                "encoder": {"name": "toy"},
                "training": {"max_steps": 1},
                "task": [
                    {"name": "things", "objective": {"name": "cross-entropy"}},
                    {"name": "alike", "objective": {"name": "cosine-mse"}},
                ],
            },
            data={"things": rows, "alike": {**pairs, "score": [5.0, 4.0, 1.0, 0.0]}},
        ),
    }
    for name, model in trained.items():
        model.save(place / name)
    return {name: str(place / name) for name in trained} | {"encoder": "toy"}


def client_of(model: str, limits: Limits | None = None, **settings: Any) -> TestClient:
    """A client of a server in this process; use it as a context."""
    app = application(Settings(model, limits=limits or Limits(), **settings), eager=True)
    return TestClient(app, raise_server_exceptions=False)


@pytest.fixture(scope="module")
def classes(folders: dict[str, str]) -> Iterator[TestClient]:
    """A client of the classifier."""
    with client_of(folders["classes"]) as client:
        yield client


@pytest.fixture(scope="session")
def classes_folder(folders: dict[str, str]) -> Path:
    """The folder of the classifier."""
    return Path(folders["classes"])
