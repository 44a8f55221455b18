"""Fine-tuning with sentence-transformers: a CrossEncoder on single texts.

A CrossEncoder is the one model of sentence-transformers with a class head: the same network that nearfar and the
Trainer fine-tune here. Its own CrossEntropyLoss takes pairs of texts only, as does the SoftmaxLoss of a
SentenceTransformer, which besides would train another head. So the loss below is theirs for one column: their
preprocessing, their forward pass, ``torch.nn.CrossEntropyLoss``. The rest is their defaults.
"""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from sentence_transformers.cross_encoder import CrossEncoder, CrossEncoderTrainer, CrossEncoderTrainingArguments
from transformers import set_seed

from benchmarks.workers.common import peak_rss_mb, read_job, report, threads, training_rows
from benchmarks.workers.trainer_clock import TrainerClock


class SingleTextLoss(torch.nn.Module):
    """Cross-entropy on the class of one text."""

    def __init__(self, model: CrossEncoder) -> None:
        super().__init__()
        self.model = model
        self.loss = torch.nn.CrossEntropyLoss()

    def forward(self, inputs: list[list[str]], labels: torch.Tensor, **_: Any) -> torch.Tensor:
        [texts] = inputs
        return self.loss(self.model(self.model.preprocess(texts))["scores"], labels)


def main() -> None:
    job = read_job()
    warm, rows = training_rows(job)
    classes = sorted({row["label"] for row in [*warm, *rows]})
    set_seed(job["seed"])
    model = CrossEncoder(job["encoder"], num_labels=len(classes), device="cpu")
    model.max_seq_length = job["max_length"]

    def trainer(part: list[dict[str, Any]]) -> tuple[CrossEncoderTrainer, TrainerClock]:
        arguments = CrossEncoderTrainingArguments(
            output_dir=str(Path(job["scratch"]) / "cross-encoder"),
            per_device_train_batch_size=job["batch"],
            num_train_epochs=1,
            seed=job["seed"],
            bf16=bool(job.get("best") and job["bf16_units"]),
            use_cpu=True,
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
        )
        data = Dataset.from_dict(
            {"text": [row["text"] for row in part], "label": [classes.index(row["label"]) for row in part]}
        )
        clock = TrainerClock()
        made = CrossEncoderTrainer(
            model=model, args=arguments, train_dataset=data, loss=SingleTextLoss(model), callbacks=[clock]
        )
        return made, clock

    trainer(warm)[0].train()
    gc.collect()  # the optimizer of the warm-up is not to count as memory of the timed part
    timed, clock = trainer(rows)
    result = timed.train()
    report(
        texts=len(rows), clock=clock.clock, peak=peak_rss_mb(), quality={"loss": result.training_loss},
        threads=threads(),
    )  # fmt: skip


if __name__ == "__main__":
    main()
