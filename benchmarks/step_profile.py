"""Where the processor time of a training step goes: a Markdown table of shares, in one thread.

    OMP_NUM_THREADS=1 python -m benchmarks.step_profile --precision bf16

MiniLM with cross-entropy on SST-2 sentences, as ``benchmarks.compare --only finetune`` trains it. A first training
measures the processor time of a step as it is; a second one runs under torch.profiler, which adds some microseconds to
each operation, and gives the shares. These are of wall time, for the profiler knows no other. What no operation of
torch accounts for is Python: the code between operations and the overhead of autograd. Others may compute meanwhile:
processor time in one thread hardly depends on them, and they slow down all parts alike.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import Any

from benchmarks.bench import BATCH, MAX_LENGTH, SEED, Bench
from benchmarks.compare import DATA, positive
from benchmarks.tables import markdown
from benchmarks.texts import Texts, balanced, take
from benchmarks.workers.train_nearfar import recipe_of
from nearfar.training import Callback

WARM = 4
KINDS = {
    "matrix products": ("mm", "addmm", "bmm", "baddbmm", "linear", "mkldnn", "matmul"),
    "softmax": ("softmax",),
    "layer norm": ("layer_norm",),
    "activation (GELU)": ("gelu", "tanh", "relu"),
    "casts and copies": ("copy_", "_to_copy", "to", "clone", "contiguous", "cat", "reshape", "narrow_copy"),
    "gathers": ("index", "gather", "embedding", "scatter", "constant_pad", "fill_", "zero_", "unique"),
    "elementwise": ("add", "mul", "div", "sub", "sum", "addcmul", "masked_fill", "neg", "sqrt", "where", "pow"),
}
"""Kinds by the beginning of an operation's name; softmax, layer norm and activation also with their backward."""
REGIONS = {
    "region: dropout masks": "dropout masks",
    "region: optimizer": "optimizer",
    "region: gradient norm": "gradient norm",
}
OTHER, PYTHON = "other operations", "Python"


def kind(name: str) -> str:
    """Of an operation of torch, by its name."""
    short = name.removeprefix("aten::").removeprefix("_").removeprefix("native_")
    for known in ("softmax", "layer norm", "activation (GELU)"):
        if any(part in short for part in KINDS[known]):
            return known
    return next((known for known, parts in KINDS.items() if short.startswith(parts)), OTHER)


def shares(events: Sequence[Any]) -> dict[str, float]:
    """Seconds by kind: the time of each operation without those it calls, by its region where it has one."""
    found: dict[str, float] = {}
    for event in events:
        ancestor, region = event, None
        while ancestor is not None and region is None:
            name = "region: optimizer" if ancestor.name.startswith("Optimizer.step") else ancestor.name
            region = REGIONS.get(name)
            ancestor = ancestor.cpu_parent
        if region is None and not event.name.startswith(("aten::", "mkldnn::")):
            continue  # a node of the graph: what it does itself is Python
        name = region or kind(event.name)
        found[name] = found.get(name, 0.0) + event.self_cpu_time_total / 1e6
    return found


class Steps(Callback):
    """Notes the time at the end of each step: that of the processor, or with a profiler the time that it knows."""

    def __init__(self, profiler: Any = None) -> None:
        self.ends: list[float] = []
        self.profiler = profiler
        self.clock = time.process_time if profiler is None else time.perf_counter

    def step(self, entry: dict[str, Any]) -> None:
        """The end of one."""
        self.ends.append(self.clock())
        if self.profiler is not None and entry["step"] == WARM:
            self.profiler.start()
        if self.profiler is not None and entry["step"] == entry["steps"]:
            self.profiler.stop()

    def seconds(self) -> list[float]:
        """Of each step after the warm-up."""
        return [after - before for before, after in zip(self.ends[WARM - 1 :], self.ends[WARM:], strict=False)]


@contextmanager
def regions() -> Iterator[None]:
    """Marks in the profile for what is not one operation of torch."""
    import torch

    from nearfar.encoding.dropout import DropoutMasks
    from nearfar.training.optimizer import LazyRows

    places = [(DropoutMasks, "mask", "region: dropout masks"), (LazyRows, "step", "region: optimizer"),
              (LazyRows, "catch_up", "region: optimizer"),
              (torch.nn.utils, "get_total_norm", "region: gradient norm")]  # fmt: skip
    before = [(owner, name, getattr(owner, name)) for owner, name, _ in places]

    def marked(call: Callable[..., Any], region: str) -> Callable[..., Any]:
        @wraps(call)
        def inside(*arguments: Any, **settings: Any) -> Any:
            with torch.profiler.record_function(region):
                return call(*arguments, **settings)

        return inside

    for (owner, name, call), (*_, region) in zip(before, places, strict=True):
        setattr(owner, name, marked(call, region))
    try:
        yield
    finally:
        for owner, name, call in before:
            setattr(owner, name, call)


def profile(job: dict[str, Any], scratch: Path) -> tuple[list[float], dict[str, float]]:
    """Processor seconds of each step as it is, and seconds by kind of all profiled steps."""
    import torch

    from nearfar.pipeline import train
    from nearfar.recipe import build_recipe

    recipe = build_recipe(recipe_of(job), where="benchmark")
    plain = Steps()
    train(recipe, scratch / "plain", callbacks=(plain,))
    profiler = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU])
    watched = Steps(profiler)
    with regions():
        train(recipe, scratch / "profiled", callbacks=(watched,))
    found, taken = shares(profiler.events()), watched.seconds()
    found[PYTHON] = max(0.0, sum(taken) - sum(found.values()))
    return plain.seconds(), found


def table(plain: Sequence[float], found: dict[str, float]) -> str:
    """Shares, the largest first, and what they are of the processor time of a step."""
    whole, step = sum(found.values()), 1_000 * statistics.median(plain)
    rows = [
        [name, f"{step * seconds / whole:.1f}", f"{seconds / whole:.1%}"]
        for name, seconds in sorted(found.items(), key=lambda item: -item[1])
    ]
    rows.append(["a whole step, median", f"{step:.1f}", "100.0%"])
    return markdown(["part of a step", "processor ms", "share"], rows)


def main(arguments: Sequence[str] | None = None) -> int:
    import torch

    made = argparse.ArgumentParser(prog="python -m benchmarks.step_profile", description=__doc__)
    made.add_argument("--precision", choices=("auto", "fp32", "bf16"), default="auto")
    made.add_argument("--steps", type=positive, default=12, help="steps that are measured (12)")
    made.add_argument("--batch", type=positive, default=BATCH, help=f"texts of a batch ({BATCH})")
    made.add_argument("--encoder", help="MiniLM by default")
    made.add_argument("--data", type=Path, default=DATA, metavar="FOLDER", help="holds sst2_sentences")
    options = made.parse_args(arguments)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="nearfar-profile-") as scratch:
        bench = Bench(Texts(options.data, SEED), Path(scratch))
        rows = take(balanced(bench.texts.training(), 4 * BATCH, SEED), (WARM + options.steps) * options.batch)
        job = {
            "train": bench.rows("train", rows), "encoder": options.encoder or bench.minilm(), "batch": options.batch,
            "warm": WARM, "max_length": MAX_LENGTH, "seed": SEED, "precision": options.precision,
        }  # fmt: skip
        print(table(*profile(job, Path(scratch))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
