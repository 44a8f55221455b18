"""Groups of weights with their own rates and schedule; rows of embeddings are updated when they are read."""

from __future__ import annotations

import inspect
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.optim.adamw import adamw

from nearfar.encoding import TextModel, Unpadded
from nearfar.training.loss_module import Batch, LossModule

WINDOW = 160
"""Steps after which what is left of the first moment no longer moves a row: 0.9^160 is 5e-8."""
FAINT = 1e-20
"""A decay of the first moment below this is zero: numbers too small to be normal are slow to compute with."""
BLOCK = 256
"""Rows that are brought up to date together: what fits a core's cache."""


class LazyRows:
    """One embedding under AdamW whose rows are updated when they are needed.

    Its memory lies in ``optimizer.state`` with the dense weights' and is stored and restored with it: the moments,
    ``seen`` (n,), the step up to which each row is current, and ``ledger``, for each step the logarithm of D and the
    moments of u for the rows that were current then, up to ``WINDOW`` steps later.

    Args:
        optimizer: an AdamW that has the weight in one of its groups; it never sees the weight's gradient.
        weight: (n, d) the rows.
    """

    def __init__(self, optimizer: torch.optim.Optimizer, weight: Tensor) -> None:
        self.optimizer = optimizer
        self.weight = weight
        self.group = next(group for group in optimizer.param_groups if any(own is weight for own in group["params"]))

    @torch.no_grad()
    def catch_up(self, ids: Tensor) -> None:
        """Bring the rows of these ids up to date: they are about to be read."""
        state = self._state()
        if state is None:
            return
        now = int(state["step"])
        rows: Tensor = torch.unique(ids)
        rows = rows[state["seen"][rows] < now]
        for block in torch.split(rows, BLOCK):
            self._make_up(block, state, now)

    def current(self) -> None:
        """Bring all rows up to date: somebody is about to read, save or replace the weight."""
        self.catch_up(torch.arange(len(self.weight), device=self.weight.device))

    @torch.no_grad()
    def step(self) -> None:
        """Take the gradient off the weight and update its rows by it, with the group's present learning rate."""
        gradient, self.weight.grad = self.weight.grad, None
        if gradient is None:
            return
        if gradient.is_sparse:
            gradient = gradient.coalesce()
            rows, values = gradient.indices()[0], gradient.values()
        else:
            rows, values = torch.arange(len(self.weight), device=self.weight.device), gradient
        self.catch_up(rows)
        state = self._state() or self._begin()
        whole = (self.weight, state["exp_avg"], state["exp_avg_sq"])
        own = [tensor.index_select(0, rows) for tensor in whole]
        group = self.group
        counter = state["step"] if group["bias_correction"] else state["step"] + UNCORRECTED
        adamw(
            own[:1], [values], own[1:2], own[2:], [], [counter], fused=True, amsgrad=False,
            beta1=group["betas"][0], beta2=group["betas"][1], lr=group["lr"], weight_decay=group["weight_decay"],
            eps=group["eps"], maximize=False,
        )  # fmt: skip
        if counter is not state["step"]:
            state["step"] += 1
        for tensor, moved in zip(whole, own, strict=True):
            tensor.index_copy_(0, rows, moved)
        now = int(state["step"])
        state["seen"][rows] = now
        state["ledger"] = _entered(state["ledger"], now, group)

    def _state(self) -> dict[str, Tensor] | None:
        state: dict[str, Tensor] | None = self.optimizer.state.get(self.weight)
        return state or None

    def _begin(self) -> dict[str, Tensor]:
        state = {
            "step": torch.zeros((), dtype=torch.float32),
            "exp_avg": torch.zeros_like(self.weight),
            "exp_avg_sq": torch.zeros_like(self.weight),
            "seen": torch.zeros(len(self.weight), dtype=torch.int64),
            "ledger": torch.zeros(64, 5, dtype=torch.float64),
        }
        self.optimizer.state[self.weight] = state
        return state

    def _make_up(self, rows: Tensor, state: dict[str, Tensor], now: int) -> None:
        seen = state["seen"][rows]
        beta1, beta2 = self.group["betas"]
        eps = self.group["eps"]
        missed = (now - seen).double().unsqueeze(1)  # (r, 1)
        shrunk, (first, second) = _coefficients(state["ledger"], seen, now)
        fading = torch.pow(beta1, missed)
        m = state["exp_avg"].index_select(0, rows)
        v = state["exp_avg_sq"].index_select(0, rows)
        p = self.weight.index_select(0, rows)
        root = v.sqrt()
        moved = first[0] / torch.add(root, first[1], alpha=eps)
        moved += second[0] / root.add_(second[1], alpha=eps)
        p.mul_(shrunk).sub_(moved.mul_(m))
        self.weight.index_copy_(0, rows, p)
        state["exp_avg"].index_copy_(0, rows, m.mul_(fading.masked_fill(fading < FAINT, 0).float()))
        state["exp_avg_sq"].index_copy_(0, rows, v.mul_(torch.pow(beta2, missed).float()))
        state["seen"][rows] = now


def _entered(ledger: Tensor, now: int, group: dict[str, Any]) -> Tensor:
    """The ledger after step ``now``, longer if it was full."""
    if now >= len(ledger):
        ledger = torch.cat([ledger, torch.zeros_like(ledger)])
    beta1, beta2 = group["betas"]
    rate = group["lr"]
    kept = 1 - rate * group["weight_decay"]
    start = max(0, now - WINDOW)
    gap = torch.arange(now - start, 0, -1, dtype=torch.float64).unsqueeze(1)
    first, second = (1 - beta1**now, 1 - beta2**now) if group["bias_correction"] else (1.0, 1.0)
    u = second**0.5 / torch.pow(beta2, gap / 2)
    chance = rate / first * torch.pow(beta1, gap)
    open_rows = ledger[start:now, 1:]
    open_rows.mul_(kept).add_(chance * u.pow(torch.arange(4)))
    ledger[now, 0] = ledger[now - 1, 0] + torch.log(torch.tensor(kept, dtype=torch.float64))
    return ledger


def _coefficients(ledger: Tensor, seen: Tensor, now: int) -> tuple[Tensor, list[tuple[Tensor, Tensor]]]:
    """(r, 1) D from ``seen`` to ``now``; and for each of two terms, (r, 1) A u and u."""
    log = ledger[:, 0]
    shrunk = (log[now] - log[seen]).exp()
    after = (log[now] - log[(seen + WINDOW).clamp(max=now)]).exp()
    total, *sums = ledger[seen, 1:].unbind(1)
    some = total > 0
    one, two, three = (torch.where(some, own / total, 1.0) for own in sums)  # raw moments of u
    variance = two - one.square()
    spread = torch.where(variance > 1e-12 * one.square(), variance, 0.0).sqrt()
    third = three - 3 * one * two + 2 * one**3
    skew = torch.where(spread > 0, third / spread**3, 0.0) / 2
    reach = (skew.square() + 1).sqrt()
    share = (reach - skew) / (2 * reach)  # of the upper node
    terms = []
    for place, own in ((skew + reach, share), (skew - reach, 1 - share)):
        u = one + spread * place
        terms.append(((total * after * own * u).float().unsqueeze(1), u.float().unsqueeze(1)))
    return shrunk.float().unsqueeze(1), terms


@contextmanager
def lazy_rows(module: LossModule, optimizer: torch.optim.Optimizer, *, world: int = 1) -> Iterator[list[LazyRows]]:
    """Train word embeddings row by row where that is right; when all went well, leave them current.

    That is on the fast path, in one process on the CPU, for word embeddings that are trained and that nothing else
    shares. Everything else keeps dense gradients.
    """
    words = _words(module, optimizer) if world == 1 else []
    rows = [LazyRows(optimizer, own.weight) for own in words]
    try:
        for own in words:
            own.sparse = True
        yield rows
        for lazy in rows:
            lazy.current()
    finally:
        for own in words:
            own.sparse = False


def _words(module: LossModule, optimizer: torch.optim.Optimizer) -> list[nn.Embedding]:
    models = [model for model in module.modules() if isinstance(model, TextModel)]
    encoders = [model.unpadded for model in models if model.unpadded is not None]
    homes: Counter[Tensor] = Counter(weight for _, weight in module.named_parameters(remove_duplicate=False))
    shrinking = {
        weight: group["base"] * group["weight_decay"] for group in optimizer.param_groups for weight in group["params"]
    }
    return [
        encoder.words
        for encoder in encoders
        if homes[encoder.words.weight] == 1
        and shrinking.get(encoder.words.weight, 1.0) < 1
        and encoder.words.weight.device.type == "cpu"
        and encoder.words.weight.dtype == torch.float32
    ]


def ids_of(batches: Sequence[Batch]) -> Tensor:
    """(t,) the token ids of all batches on the fast path."""
    return torch.cat([batch.inputs.ids for batch in batches if isinstance(batch.inputs, Unpadded)])


Part = Literal["encoder", "head", "objective"]
Schedule = Literal["linear", "cosine", "constant"]


def part_of(name: str, module: LossModule) -> Part:
    """Which part of the module a weight belongs to, by its name.

    BERT's pooler is the first layer of the architecture's own head, as the dense layer of RoBERTa's head is; in a
    sentence encoder it was never trained.
    """
    owner, _, inside = name.partition(".")
    if owner == "objectives":
        return "objective"
    model = {"model": module.model, "weighting": module.weighting}.get(owner)
    if model is None:
        return "encoder"  # a projection learns as fast as the encoder under it
    encoder = f"network.{model.held.base_model_prefix}."
    native_head = model.native and (not inside.startswith(encoder) or inside.startswith(f"{encoder}pooler."))
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


UNCORRECTED = 2**20
"""Steps after which nothing is left of AdamW's bias correction: 0.999 to that power is zero in any floating point type.

A run without bias correction counts its steps from here, so that it takes the same fused kernel.
"""


class AdamW(torch.optim.AdamW):
    """AdamW of torch without the import of torch's compiler, which takes about as long as some steps of a short run.

    torch decorates these methods for code that is compiled, as nothing is here; they do the same without.
    """

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group of weights."""
        _add_param_group(self, param_group)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the gradients."""
        _zero_grad(self, set_to_none)

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Update the weights."""
        _step(self, closure)


_add_param_group, _zero_grad, _step = (
    inspect.unwrap(getattr(torch.optim.AdamW, name)) for name in ("add_param_group", "zero_grad", "step")
)


def build_optimizer(groups: list[dict[str, Any]], *, bias_correction: bool = True) -> AdamW:
    r"""AdamW, fused into one kernel; without bias correction the update is
    :math:`\eta\, m_t / (\sqrt{v_t} + \epsilon)`, as in the original code of BERT.
    """
    for group in groups:
        group["bias_correction"] = bias_correction
    optimizer = AdamW(groups, betas=(0.9, 0.999), eps=1e-8, fused=True)
    if not bias_correction:
        optimizer.register_step_pre_hook(_begin_uncorrected)
    return optimizer


def _begin_uncorrected(optimizer: torch.optim.Optimizer, _args: Any, _settings: Any) -> None:
    """Begin the memory of weights that are about to take their first step."""
    for group in optimizer.param_groups:
        for weight in group["params"]:
            if weight.grad is not None and not optimizer.state.get(weight):
                optimizer.state[weight] = {
                    "step": torch.tensor(float(UNCORRECTED), device=weight.device),
                    "exp_avg": torch.zeros_like(weight, memory_format=torch.preserve_format),
                    "exp_avg_sq": torch.zeros_like(weight, memory_format=torch.preserve_format),
                }


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


def freeze_encoder(module: LossModule) -> None:
    """Take the encoder's weights out of training; heads, a shared layer and the objective's own weights stay in it.

    A pooler is the encoder's here, also under the head of the architecture.
    """
    own = [name for name in _names(module) if name.startswith("model.")]
    freeze(module, [name for name in own if part_of(name, module) == "encoder" or ".pooler." in name])


def _names(module: nn.Module) -> list[str]:
    return [name for name, _ in module.named_parameters()]


def _trainable(module: nn.Module) -> list[tuple[str, Tensor]]:
    return [(name, weight) for name, weight in module.named_parameters() if weight.requires_grad]
