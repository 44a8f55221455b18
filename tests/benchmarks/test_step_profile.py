"""The profile of a training step: kinds, regions, and a whole run on the toy encoder."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from benchmarks import step_profile


@dataclass
class Event:
    name: str
    self_cpu_time_total: float
    cpu_parent: Event | None = None


@pytest.mark.parametrize(
    ("name", "kind"),
    [("aten::addmm", "matrix products"), ("aten::bmm", "matrix products"), ("mkldnn::_linear_pointwise", "matrix products"),
     ("aten::_softmax_backward_data", "softmax"), ("aten::native_layer_norm_backward", "layer norm"),
     ("aten::gelu_backward", "activation (GELU)"), ("aten::copy_", "casts and copies"), ("aten::addcmul", "elementwise"),
     ("aten::add_", "elementwise"), ("aten::index_select", "gathers"), ("aten::randint", "other operations")],
)  # fmt: skip
def test_operations_have_kinds(name, kind):
    assert step_profile.kind(name) == kind


def test_an_operation_belongs_to_the_region_around_it():
    masks, update = Event("region: dropout masks", 5e6), Event("Optimizer.step#AdamW.step", 1e6)
    node = Event("autograd::engine::evaluate_function: MmBackward0", 9e6)
    events = [masks, Event("aten::ge", 1e6, masks), Event("aten::mul", 2e6, Event("aten::any", 0, update)), update, node,
              Event("aten::mm", 4e6, node), Event("aten::mul", 3e6)]  # fmt: skip
    assert step_profile.shares(events) == {
        "dropout masks": 6.0, "optimizer": 3.0, "matrix products": 4.0, "elementwise": 3.0
    }  # fmt: skip


def test_the_table_has_the_largest_share_first():
    text = step_profile.table([0.1, 0.3, 0.2], {"Python": 1.0, "matrix products": 3.0})
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines()]
    assert lines[2:] == [["matrix products", "150.0", "75.0%"], ["Python", "50.0", "25.0%"],
                         ["a whole step, median", "200.0", "100.0%"]]  # fmt: skip


@pytest.mark.slow
def test_the_command_profiles_a_training(capsys, tmp_path):
    import torch

    before = torch.get_num_threads()
    try:
        assert step_profile.main(["--encoder", "toy", "--steps", "2", "--batch", "8", "--data", str(tmp_path)]) == 0
    finally:
        torch.set_num_threads(before)
    printed = capsys.readouterr().out
    for part in ("matrix products", "dropout masks", "optimizer", "Python", "a whole step, median"):
        assert f"| {part}" in printed
