"""Run by torchrun: a list of cases one after another in the same processes, each leaving its results behind.

A case is a folder with a file ``case.json``. A training leaves the final weights of each process, a command what each
process printed, texts their vectors. A list in one launch costs one start of the processes instead of one a case.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from accelerate import PartialState
from safetensors.torch import save_file

from nearfar.cli import main as nearfar
from nearfar.encoding import load
from nearfar.evaluation import embed_table, inference, pair_report, score_pairs
from nearfar.pipeline import train as train_recipe
from nearfar.recipe import build_recipe
from nearfar.recipe.tasks import build_task_recipe

CASE = "case.json"


def rank() -> str:
    return os.environ.get("RANK", "0")


def run_case(folder: Path) -> None:
    """Run the case of a folder; ``done-RANK`` stands for a case that came to its end."""
    case = json.loads((folder / CASE).read_text())
    if "commands" in case:
        run_commands(folder, case["commands"])
    elif "texts" in case:
        embed(folder, case["texts"])
    else:
        train(folder, case)
    (folder / f"done-{rank()}").touch()


def train(folder: Path, values: dict[str, Any]) -> None:
    """Train without dev data and keep the final weights of this process, those of the objective included."""
    module = sys.modules["nearfar.pipeline.train"]
    fit = module.fit

    def fit_and_save(learner: Any, *arguments: Any, **settings: Any) -> Any:
        progress = fit(learner, *arguments, **settings)
        weights = {name: value.clone() for name, value in learner.state_dict().items()}
        save_file(weights, folder / f"rank-{rank()}.safetensors")
        return progress

    with patch.object(module, "fit", fit_and_save):
        recipe = build_task_recipe(values, where="test") if "task" in values else build_recipe(values, where="test")
        train_recipe(recipe, folder / "model")


def run_commands(folder: Path, commands: list[list[str]]) -> None:
    """Run commands of nearfar in the folder, as the command line does, and keep what this process printed."""
    results = []
    with contextlib.chdir(folder):
        for words in commands:
            printed, status = io.StringIO(), 0
            with patch.object(sys, "argv", ["nearfar", *words]), contextlib.redirect_stderr(printed):
                try:
                    nearfar()
                except SystemExit as left:
                    status = left.code if isinstance(left.code, int) else int(left.code is not None)
            results.append({"status": status, "stderr": printed.getvalue()})
    (folder / f"commands-{rank()}.json").write_text(json.dumps(results))


def embed(folder: Path, texts: list[str]) -> None:
    """Embed texts and evaluate them as pairs with all processes together, and keep what this process has of both."""
    PartialState(cpu=True)
    with patch.object(inference, "ROWS", 3):  # several exchanges, the last one short
        opened = load("toy")
        table = opened.tokenize(texts)
        vectors = embed_table(opened.model, table, batch_size=2)
        left, right = np.arange(len(texts)), np.roll(np.arange(len(texts)), 1)
        report = pair_report(left % 2, score_pairs(opened.model, table, left, right, batch_size=2))
    np.save(folder / f"rank-{rank()}.npy", vectors)
    (folder / f"rank-{rank()}.json").write_text(json.dumps(asdict(report)))


def main() -> None:
    torch.set_num_threads(1)
    with patch.object(PartialState, "destroy_process_group"):  # the end of one run is not the end of the processes
        for folder in sys.argv[1:]:
            run_case(Path(folder))
    PartialState().destroy_process_group()


if __name__ == "__main__":
    main()
