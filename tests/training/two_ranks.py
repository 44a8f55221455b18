"""Run by torchrun: train without dev data and leave each process's own final weights behind."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import torch
from rich.console import Console
from safetensors.torch import save_file

from nearfar.pipeline import multitask
from nearfar.pipeline import train as train_module
from nearfar.recipe import build_recipe
from nearfar.recipe.tasks import build_task_recipe


def main() -> None:
    torch.set_num_threads(1)
    values, out = json.loads(sys.argv[1]), Path(sys.argv[2])
    module = multitask if "task" in values else train_module
    fit = module.fit

    def fit_and_tell(learner, *arguments, **settings):
        progress = fit(learner, *arguments, **settings)
        rank = os.environ.get("RANK", "0")
        save_file(
            {name: value.clone() for name, value in learner.state_dict().items()},
            out.parent / f"rank-{rank}.safetensors",
        )
        return progress

    module.fit = fit_and_tell
    if "task" in values:
        multitask.run_tasks(build_task_recipe(values, where="test"), out, console=Console(quiet=True))
    else:
        train_module.run(build_recipe(values, [], where="test"), out, console=Console(quiet=True))


if __name__ == "__main__":
    main()
