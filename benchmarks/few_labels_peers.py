"""SetFit on the draws of :mod:`benchmarks.few_labels`, with its defaults; needs the environment of ``make bench``.

By default SetFit trains on all pairs of texts, whose number grows with the square of that of the texts. Where that is
more than 1,500 steps, it takes as many pairs a text as its paper does (``num_iterations=20``); where even these are
more than 2,000 steps, or than ``--steps``, it stops there. Each result says so in its note.

    OMP_NUM_THREADS=1 python -m benchmarks.few_labels_peers

Some of these runs take half an hour. ``--precision bf16`` trains the encoder under autocast, for accuracies in less
time: SetFit does not do so by itself, so such a result has no times, and its note says why. Several processes may write
to one file of results.

``--names`` adds the class names as SetFit's documentation does: eight texts "This sentence is NAME" a class, made by
its ``get_templated_dataset``. ``--n 0`` trains on these alone (zero-shot); all draws of a set are then the same
training, so that ``--seed 0`` is enough.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import ceil, comb
from pathlib import Path
from typing import Any

from benchmarks.compare import positive
from benchmarks.few_label_names import spelled
from benchmarks.few_labels import THEIRS, Draws, Line, Results, accuracy, chosen, drive, parser, texts_and_labels

BATCH = 16
MOST_PAIR_STEPS = 1_500
"""More steps than these over all pairs, and the pairs are drawn."""
MOST_STEPS = 2_000
PAIRS_A_TEXT = 20
"""Of each kind, like and unlike."""
TEMPLATES = 8
"""Texts a class that are made of its name, as in SetFit's documentation."""


def default_steps(labels: Sequence[str]) -> int:
    """The steps of one epoch over all pairs: each text with itself and each other, the rarer kind repeated."""
    like = sum(comb(count + 1, 2) for count in Counter(labels).values())
    unlike = comb(len(labels) + 1, 2) - like
    return ceil(2 * max(like, unlike) / BATCH)


def plan(labels: Sequence[str], most: int = MOST_STEPS) -> tuple[dict[str, int], str]:
    """The settings that differ from SetFit's defaults, and why; ``most`` is the number of steps if pairs are drawn."""
    steps = default_steps(labels)
    if steps <= MOST_PAIR_STEPS:
        return {}, ""
    settings = {"num_iterations": PAIRS_A_TEXT}
    note = f"num_iterations={PAIRS_A_TEXT} (all pairs would be {steps:,} steps)"
    fewer = ceil(2 * PAIRS_A_TEXT * len(labels) / BATCH)
    if fewer > most:
        settings["max_steps"] = most
        note += f", max_steps={most:,} (these would be {fewer:,} steps)"
    return settings, note


def in_bf16(training: Callable[..., Any]) -> Callable[..., Any]:
    """The same under autocast, whose casts of weights are not kept: a kept one would not see the steps."""
    import torch

    return torch.autocast("cpu", torch.bfloat16, cache_enabled=False)(training)


def untimed(line: Line, precision: str) -> Line:
    """A result of a precision that SetFit does not take by itself: its accuracy counts, its times do not."""
    note = ", ".join([*filter(None, [line.get("note")]), f"the encoder trained in {precision}"])
    times = dict.fromkeys(("seconds", "whole_seconds", "cpu_seconds"))
    return {**line, **times, "precision": precision, "note": note}


def templated(texts: Sequence[str], labels: Sequence[str], names: Mapping[str, str]) -> tuple[list[str], list[str]]:
    """The labeled texts, if there are some, and those that SetFit makes of the names of classes."""
    import setfit  # type: ignore[import-not-found]  # only in the environment of the peers

    rows = setfit.get_templated_dataset(candidate_labels=list(names.values()), sample_size=TEMPLATES)
    by_number = list(names)
    return [*texts, *rows["text"]], [*labels, *(by_number[number] for number in rows["label"])]


def train_and_test(
    train: Path, test: Path, *, most: int = MOST_STEPS, precision: str = "fp32", names: bool = False
) -> Line:
    """``SetFitModel.from_pretrained`` and ``Trainer.train``, saved as nearfar saves, and tested.

    Without times if the precision is not the one SetFit takes by itself. A file of a draw without labels is not read.
    """
    import setfit
    import torch
    from datasets import Dataset

    from nearfar.encoding import find

    encoder = find("minilm").location
    no_labels = train == Draws.unlabeled(train)
    texts, labels = ([], []) if no_labels else texts_and_labels(train)
    questions, truth = texts_and_labels(test)
    if names or no_labels:
        texts, labels = templated(texts, labels, spelled(train.parent.name, labels or truth))
    settings, note = plan(labels, most)
    with tempfile.TemporaryDirectory(prefix="setfit-few-") as scratch:
        began, cpu = time.perf_counter(), time.process_time()
        model = setfit.SetFitModel.from_pretrained(encoder)
        arguments = setfit.TrainingArguments(
            output_dir=str(Path(scratch) / "checkpoints"), report_to="none", save_strategy="no",
            show_progress_bar=False, **settings,
        )  # fmt: skip
        assert arguments.embedding_batch_size == BATCH
        rows = Dataset.from_dict({"text": texts, "label": labels})
        trainer = setfit.Trainer(model=model, args=arguments, train_dataset=rows)
        if precision == "bf16":  # of the encoder only: its head is fitted as ever
            trainer.train_embeddings = in_bf16(trainer.train_embeddings)
        loaded = time.perf_counter()
        trainer.train()
        trained = time.perf_counter()
        model.save_pretrained(str(Path(scratch) / "model"))
        whole, cpu = time.perf_counter() - began, time.process_time() - cpu
        steps = trainer.st_trainer.state.global_step
    found = [str(label) for label in model.predict(questions)]
    line: dict[str, Any] = {
        "tool": THEIRS, "version": setfit.__version__, "accuracy": accuracy(truth, found), "seconds": trained - loaded,
        "whole_seconds": whole, "cpu_seconds": cpu, "steps": steps, "threads": torch.get_num_threads(),
        "settings": {"save_strategy": "no", **settings}, "names": "templates" if names or no_labels else "none",
    }  # fmt: skip
    line |= {"note": note} if note else {}
    return line if precision == "fp32" else untimed(line, precision)


def main(arguments: Sequence[str] | None = None) -> int:
    """0 when everything is there, 1 when some case failed."""
    made = parser(__doc__, THEIRS)
    made.add_argument(
        "--steps", type=positive, default=MOST_STEPS, help="at most, where pairs are drawn; default: 2,000"
    )
    made.add_argument("--precision", choices=("fp32", "bf16"), default="fp32", help="of training; default: fp32")
    made.add_argument("--names", action="store_true", help="add texts that SetFit makes of class names")
    options = made.parse_args(arguments)
    os.environ["HF_HUB_OFFLINE"] = "1"
    results = Results(options.results or options.folder / f"{THEIRS}.jsonl")
    measure = partial(train_and_test, most=options.steps, precision=options.precision, names=options.names)
    return int(drive(measure, chosen(options), Draws(options.folder), results) > 0)


if __name__ == "__main__":
    sys.exit(main())
