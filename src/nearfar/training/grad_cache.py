"""Batches larger than memory: the gradient-cached step (Gao et al. 2021, arXiv:2101.06983), exact.

The vectors of all chunks are computed without a graph; the objective sees them all at once and gives the gradient at
each vector; then every chunk is computed again, with the same dropout, and that gradient is sent through its graph.
Only one chunk's graph is alive at a time, and loss and gradients are those of the whole batch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from nearfar.training.loss_module import Batch, LossModule, Pieces


def cached_backward(
    module: LossModule, chunks: Sequence[Batch], share: float, accept: Callable[[Tensor, dict[str, Tensor]], None]
) -> None:
    """Add the gradients of ``share`` times the loss of all chunks together.

    ``accept`` gets the loss and its parts before any gradient is formed, and may refuse them. Dropout is drawn from
    torch's generator: one seed for each chunk, used in both passes.
    """
    seeds = torch.randint(2**62, (len(chunks),)).tolist()
    leaves: list[Pieces] = []
    with torch.no_grad():
        for chunk, seed in zip(chunks, seeds, strict=True):
            torch.manual_seed(seed)
            pieces = module.represent(chunk)
            leaves.append({name: piece.requires_grad_(piece.is_floating_point()) for name, piece in pieces.items()})
    pieces = {name: torch.cat([leaf[name] for leaf in leaves]) for name in leaves[0]}
    total, parts = module.combine(pieces, chunks[0].task)
    accept(total, parts)
    (total * share).backward()  # type: ignore[no-untyped-call]
    for chunk, seed, leaf in zip(chunks, seeds, leaves, strict=True):
        torch.manual_seed(seed)
        pieces = module.represent(chunk)
        moved = [name for name, piece in leaf.items() if piece.grad is not None and pieces[name].requires_grad]
        torch.autograd.backward([pieces[name] for name in moved], [leaf[name].grad for name in moved])
