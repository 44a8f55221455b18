"""Groups of weights with their own learning rates, and the schedule that all of them follow."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, Literal

import torch
from torch import Tensor, nn

from nearfar.training.loss_module import LossModule

Part = Literal["encoder", "head", "objective"]
Schedule = Literal["linear", "cosine", "constant"]


def part_of(name: str, module: LossModule) -> Part:
    """Which part of the module a weight belongs to, by its name."""
    owner, _, inside = name.partition(".")
    if owner == "objectives":
        return "objective"
    model = {"model": module.model, "weighting": module.weighting}.get(owner)
    if model is None:
        return "encoder"  # a projection learns as fast as the encoder under it
    encoder = f"network.{model.network.base_model_prefix}."
    native_head = model.native and not inside.startswith(encoder)
    return "head" if inside.startswith("head.") or native_head else "encoder"


def parameter_groups(module: LossModule, rates: dict[Part, float], weight_decay: float) -> list[dict[str, Any]]:
    """Groups for AdamW: per part, with and without decay; biases, norms and the objective's weights never decay.

    A term with a learning rate of its own is a part of its own, ``objective/NAME``.
    """
    norms = {
        f"{path}.{name}"
        for path, layer in module.named_modules()
        if "norm" in type(layer).__name__.lower()
        for name, _ in layer.named_parameters(recurse=False)
    }
    own = {term.name: term.learning_rate for term in module.terms if term.learning_rate is not None}
    groups: dict[tuple[str, float, bool], list[tuple[str, Tensor]]] = {}
    for name, weight in module.named_parameters():
        if weight.requires_grad:
            part = part_of(name, module)
            decays = part != "objective" and weight.ndim > 1 and name not in norms
            known, rate = str(part), rates[part]
            if part == "objective" and (term := name.split(".")[1]) in own:
                known, rate = f"objective/{term}", own[term]
            groups.setdefault((known, rate, decays), []).append((name, weight))
    return [
        {
            "params": [weight for _, weight in members],
            "names": [name for name, _ in members],
            "part": part,
            "lr": rate,
            "base": rate,
            "weight_decay": weight_decay if decays else 0.0,
        }
        for (part, rate, decays), members in groups.items()
    ]


def build_optimizer(groups: list[dict[str, Any]]) -> torch.optim.AdamW:
    """AdamW, fused into one kernel."""
    return torch.optim.AdamW(groups, betas=(0.9, 0.999), eps=1e-8, fused=True)


def factor(schedule: Schedule, step: int, *, total: int, warmup: float) -> float:
    """What the learning rates are multiplied with at a step (the first is 0).

    A ``warmup`` below 1 is a share of all steps, from 1 on a number of steps.

    >>> [round(factor("linear", step, total=4, warmup=0.25), 2) for step in range(4)]
    [1.0, 1.0, 0.67, 0.33]
    """
    rising = math.ceil(warmup * total) if warmup < 1 else int(warmup)
    if step < rising:
        return (step + 1) / rising
    if schedule == "constant":
        return 1.0
    done = (step - rising) / max(1, total - rising)
    return 0.5 * (1 + math.cos(math.pi * done)) if schedule == "cosine" else max(0.0, 1 - done)


def set_rates(optimizer: torch.optim.Optimizer, multiplier: float) -> dict[str, float]:
    """Apply the schedule; returns the learning rate of each part."""
    for group in optimizer.param_groups:
        group["lr"] = group["base"] * multiplier
    return {group["part"]: group["lr"] for group in optimizer.param_groups}


def optimizer_tensors(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """The optimizer's memory by weight name, as it is stored."""
    return {
        f"{key}|{name}": value
        for group in optimizer.param_groups
        for name, weight in zip(group["names"], group["params"], strict=True)
        for key, value in optimizer.state.get(weight, {}).items()
    }


def restore_optimizer(optimizer: torch.optim.Optimizer, tensors: dict[str, Tensor]) -> None:
    """Put stored memory back; the inverse of :func:`optimizer_tensors`."""
    by_name: dict[str, dict[str, Tensor]] = {}
    for name, value in tensors.items():
        key, _, weight = name.partition("|")
        by_name.setdefault(weight, {})[key] = value
    for group in optimizer.param_groups:
        for name, weight in zip(group["names"], group["params"], strict=True):
            if name in by_name:
                optimizer.state[weight] = {
                    key: value if key == "step" else value.to(weight.device) for key, value in by_name[name].items()
                }


def unused_weights(module: nn.Module) -> list[str]:
    """Weights that got no gradient from a backward pass."""
    return [name for name, weight in _trainable(module) if weight.grad is None]


def freeze(module: nn.Module, names: Iterable[str]) -> None:
    """Take weights out of training."""
    chosen = set(names)
    for name, weight in module.named_parameters():
        if name in chosen:
            weight.requires_grad = False


def _trainable(module: nn.Module) -> list[tuple[str, Tensor]]:
    return [(name, weight) for name, weight in module.named_parameters() if weight.requires_grad]
