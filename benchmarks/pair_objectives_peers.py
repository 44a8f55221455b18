"""sentence-transformers on the rows of :mod:`benchmarks.pair_objectives`; needs the environment of ``make bench``.

    OMP_NUM_THREADS=1 python -m benchmarks.pair_objectives_peers run --seed 1 --seed 2 --seed 3

Encoder, rows, batch size, steps, learning rate, warmup, weight decay, clipping and evaluations are those of our runs:
the dev rows are scored before the first step, in the middle and at the end, and the best weights are tested. Lines go
into the same file, and ``python -m benchmarks.pair_objectives table`` pairs them by seed.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from math import ceil
from pathlib import Path
from typing import Any

from benchmarks.pair_data import Files
from benchmarks.pair_objectives import TASKS, WARMUP, Line, about, parsed, steps, work, written
from benchmarks.workers.common import peak_rss_mb, read_rows

THEIRS = "sentence-transformers"
LOSSES = {("stsb", "mse"): "CosineSimilarityLoss", ("stsb_positives", "mnrl"): "MultipleNegativesRankingLoss"}
"""Our contenders, and the loss that is the same."""
HIGHEST = 5.0
"""Of the scores of STSb."""
WEIGHT_DECAY = 0.01
METRIC = "spearman_cosine"


def main(arguments: list[str] | None = None) -> None:
    settings = parsed(arguments, __doc__)
    os.environ["HF_HUB_OFFLINE"] = "1"
    work(
        THEIRS, run_one, [(*key, seed) for seed in settings.seed for key in LOSSES if key[0] in settings.data], settings
    )


def run_one(data: str, name: str, seed: int, settings: argparse.Namespace) -> Line:
    """Train, choose by dev, test."""
    import sentence_transformers  # loading it counts for nobody

    with tempfile.TemporaryDirectory() as place:
        files = written(data, "rows", Path(place), seed, settings)
        began = time.process_time()
        scores, more = train(LOSSES[data, name], data, files, Path(place), seed, settings)
        spent = time.process_time() - began
    return {
        **about(data, name, seed, files, settings), "tool": THEIRS, "version": sentence_transformers.__version__,
        **more, "scores": {score: scores[f"{score}_cosine"] for score in TASKS[data].scores}, "cpu_seconds": spent,
        "peak_mb": peak_rss_mb(),
    }  # fmt: skip


def train(
    loss: str, data: str, files: Files, folder: Path, seed: int, settings: argparse.Namespace
) -> tuple[dict[str, float], Line]:
    """The trainer of sentence-transformers, and the scores of its best weights on the test rows."""
    import torch
    from datasets import Dataset
    from sentence_transformers import (
        SentenceTransformer,
        SentenceTransformerTrainer,
        SentenceTransformerTrainingArguments,
    )
    from sentence_transformers.sentence_transformer import losses

    from nearfar.encoding import find

    task, number = TASKS[data], steps(data, settings)
    torch.manual_seed(seed)
    model = SentenceTransformer(find(settings.encoder).location, device="cpu")
    model.max_seq_length = task.max_length
    dev, test = evaluator(files.dev), evaluator(files.test)
    first = dev(model)[METRIC]
    start = {name: weight.clone() for name, weight in model.state_dict().items()}
    options = SentenceTransformerTrainingArguments(
        output_dir=str(folder / "checkpoints"), max_steps=number, per_device_train_batch_size=task.batch,
        learning_rate=settings.rate, warmup_steps=ceil(WARMUP * number), weight_decay=WEIGHT_DECAY,
        lr_scheduler_type="linear", max_grad_norm=1.0, seed=seed, eval_strategy="steps", save_strategy="steps",
        eval_steps=ceil(number / 2), save_steps=ceil(number / 2), save_total_limit=1, load_best_model_at_end=True,
        metric_for_best_model=f"eval_{METRIC}", greater_is_better=True, report_to="none", disable_tqdm=True,
        use_cpu=True, logging_strategy="no", dataloader_pin_memory=False,
    )  # fmt: skip
    trainer = SentenceTransformerTrainer(
        model=model, args=options, train_dataset=Dataset.from_list(training_rows(files.train)), evaluator=dev,
        loss=getattr(losses, loss)(model),
    )  # fmt: skip
    trainer.train()
    found = trainer.state.best_metric
    if found is None or first >= found:
        model.load_state_dict(start)
    more: Line = {
        "best_step": 0 if found is None or first >= found else trainer.state.best_global_step,
        "dev_scores": {"spearman": max(first, found or first)}, "threads": torch.get_num_threads(),
    }  # fmt: skip
    return test(model), more


def training_rows(path: Path) -> list[dict[str, Any]]:
    """Rows as the losses read them: two texts, and a label from 0 to 1 where there are scores."""
    return [
        {"sentence1": row["text_a"], "sentence2": row["text_b"]}
        | ({"label": row["score"] / HIGHEST} if "score" in row else {})
        for row in read_rows(str(path))
    ]


def evaluator(path: Path) -> Any:
    """Scored pairs, compared with the cosines of a model."""
    from sentence_transformers.sentence_transformer.evaluation import EmbeddingSimilarityEvaluator

    rows = read_rows(str(path))
    return EmbeddingSimilarityEvaluator(
        [row["text_a"] for row in rows], [row["text_b"] for row in rows], [row["score"] for row in rows], batch_size=64,
        main_similarity="cosine", write_csv=False,
    )  # fmt: skip


if __name__ == "__main__":
    main()
