"""Heads of several tasks in an 8-bit graph, where linear layers share weights."""

from __future__ import annotations

import pytest
from tests.exports.models import TEXTS
from tests.exports.test_onnx import TASKS

from nearfar.encoding import Card, Model, build
from nearfar.encoding.task_model import TaskModel, TaskNetwork, describe_tasks
from nearfar.exports.onnx_graph import export_onnx
from nearfar.exports.onnx_model import OnnxModel
from nearfar.exports.quality import compare_tasks


@pytest.mark.parametrize("shared", [True, False])
def test_tasks_are_exported_in_eight_bits(tiny, tmp_path, shared):
    built = build(str(tiny("bert")), classes=None, seed=1, pooling="mean")
    card = Card(pooling="mean", max_length=24, native=False, task=describe_tasks(TASKS, shared=shared))
    network = TaskNetwork(built.model, TASKS, shared=shared, seed=1)
    tasks = TaskModel(Model(built.model, built.tokenizer, card), network, TASKS)
    export_onnx(tasks.model, tmp_path / "out", tasks=tasks, int8=True)
    exported = OnnxModel(tmp_path / "out", threads=1)
    assert exported.tasks == tuple(card.name for card in TASKS)
    assert 1e-5 < compare_tasks(tasks, exported, TEXTS) < 0.3
