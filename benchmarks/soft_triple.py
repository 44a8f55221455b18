"""SoftTriple on tokens with many centers: seconds and peak memory of a forward and backward pass, as a Markdown table.

Three ways to the same loss and gradients, 6 classes of 2,000 centers, width 384, fp32 on the CPU:

- nearfar: :class:`nearfar.objectives.SoftTriple`, in blocks;
- dense: the formula in plain torch, one (n, c, k) tensor for every step of it;
- metric-learning: ``pytorch_metric_learning.losses.SoftTripleLoss``.

Repeats alternate between the three, and the fastest is the least disturbed: leave the other cores alone, for nearfar
takes many short steps, and each waits for all threads. "Products" are the three matrix products that every way must
make, in the blocks nearfar makes them in: exact arithmetic in fp32 cannot be much faster. Memory is the peak of the
process above what it held before, in a process of its own.

    python benchmarks/soft_triple.py --repeats 3 --threads 2
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nearfar.objectives import SoftTriple
from nearfar.objectives.soft_triple_blocks import BLOCK

CLASSES, CENTERS, WIDTH = 6, 2000, 384
SIZES = (512, 1728, 6912)


class Dense(nn.Module):
    """The formula in one piece."""

    def __init__(self, centers: int) -> None:
        super().__init__()
        self.centers = nn.Parameter(SoftTriple(CLASSES, WIDTH, centers=centers).centers.detach())

    def forward(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        z, w = F.normalize(embeddings, dim=1), F.normalize(self.centers, dim=2)
        s = torch.einsum("nd,ckd->nck", z, w)
        likeness = (s * (s / 0.1).softmax(dim=2)).sum(dim=2)
        return F.cross_entropy(20.0 * (likeness - 0.01 * F.one_hot(labels, CLASSES)), labels)


def metric_learning(centers: int) -> nn.Module:
    from pytorch_metric_learning.losses import SoftTripleLoss  # type: ignore[import-untyped]  # here: the others' memory is measured without it

    loss: nn.Module = SoftTripleLoss(CLASSES, WIDTH, centers_per_class=centers)
    return loss


OTHER = "metric-learning"
WAYS: dict[str, Callable[[int], nn.Module]] = {
    "nearfar": lambda centers: SoftTriple(CLASSES, WIDTH, centers=centers),
    "dense": Dense,
    OTHER: metric_learning,
}


def batch(n: int) -> tuple[Tensor, Tensor]:
    source = torch.Generator().manual_seed(0)
    embeddings = torch.randn(n, WIDTH, generator=source).requires_grad_()
    return embeddings, torch.randint(0, CLASSES, (n,), generator=source)


def step(loss: nn.Module, embeddings: Tensor, labels: Tensor) -> None:
    """Forward and backward, from no gradients to all of them."""
    embeddings.grad = None
    loss.zero_grad(set_to_none=True)
    loss(embeddings, labels).backward()


def products(embeddings: Tensor) -> None:
    """Similarities and both gradients, without the arithmetic between them."""
    z, w = embeddings.detach(), torch.ones(CLASSES * CENTERS, WIDTH)
    similarities, w_grad = torch.empty(min(BLOCK, len(z)), len(w)), torch.zeros_like(w)
    for start in range(0, len(z), BLOCK):
        here = z[start : start + BLOCK]
        block = torch.mm(here, w.T, out=similarities[: len(here)])
        torch.mm(block, w)
        w_grad.addmm_(block.T, here)


def seconds(n: int, repeats: int) -> dict[str, list[float]]:
    """Every way in turn, ``repeats`` times."""
    embeddings, labels = batch(n)
    runs: dict[str, Callable[[], None]] = {}
    for name, make in WAYS.items():
        warm_up(name)
        runs[name] = partial(step, make(CENTERS), embeddings, labels)
    runs["products"] = partial(products, embeddings)
    taken: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(repeats):
        for name, run in runs.items():
            start = time.perf_counter()
            run()
            taken[name].append(time.perf_counter() - start)
    return taken


def warm_up(name: str) -> None:
    """Loads code and starts threads, with tensors too small to be noticed in the memory of the process."""
    step(WAYS[name](10), *batch(64))


def status(field: str) -> float:
    """A field of this process in MiB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith(field + ":"))) / 1024


def peak(name: str, n: int) -> float:
    """MiB above what the process holds with its weights and its batch; to be called in a process of its own."""
    warm_up(name)
    loss, (embeddings, labels) = WAYS[name](CENTERS), batch(n)
    Path("/proc/self/clear_refs").write_text("5")  # the high-water mark starts again from here
    before = status("VmRSS")
    step(loss, embeddings, labels)
    return status("VmHWM") - before


def peak_elsewhere(name: str, n: int, threads: int) -> float:
    command = [sys.executable, __file__, "--threads", str(threads), "--peak", name, str(n)]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=3, help="timed passes of every way and size")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, help="numbers of embeddings")
    parser.add_argument("--peak", nargs=2, metavar=("WAY", "N"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    if options.peak:
        print(peak(options.peak[0], int(options.peak[1])))
        return
    print(f"torch {torch.__version__}, {options.threads} threads, {options.repeats} repeats")
    print(f"{CLASSES} classes, {CENTERS} centers each, width {WIDTH}; speed and memory against {OTHER}\n")
    print(
        "| n | way | fastest (s) | median (s) | slowest (s) | speed (fastest) | speed (median) | peak (MiB) | memory |"
    )
    print("|--:|:--|--:|--:|--:|--:|--:|--:|--:|")
    for n in options.sizes:
        taken = seconds(n, options.repeats)
        peaks = {name: peak_elsewhere(name, n, options.threads) for name in WAYS}
        for name, times in taken.items():
            low, middle, high = min(times), statistics.median(times), max(times)
            cells = [n, name, f"{low:.3f}", f"{middle:.3f}", f"{high:.3f}"]
            cells += [f"{min(taken[OTHER]) / low:.2f}x", f"{statistics.median(taken[OTHER]) / middle:.2f}x"]
            cells += [f"{peaks[name]:.0f}", f"{peaks[name] / peaks[OTHER]:.2f}x"] if name in peaks else ["", ""]
            print(f"| {' | '.join(map(str, cells))} |", flush=True)


if __name__ == "__main__":
    main()
