"""Training on pairs with sentence-transformers: MultipleNegativesRankingLoss under its own trainer.

Its defaults, but for the batch and the longest text, which are everybody's: fp32, AdamW, batches in random order.
Of rows with one text, that text is both sides. ``"best": true`` adds bf16 where the processor has units for it. The
warm-up is a training of its own on other pairs.
"""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

from datasets import Dataset
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer, SentenceTransformerTrainingArguments
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
from transformers import set_seed

from benchmarks.workers.common import peak_rss_mb, read_job, read_rows, report, threads, training_rows
from benchmarks.workers.similarity import spearman
from benchmarks.workers.trainer_clock import TrainerClock


def main() -> None:
    job = read_job()
    warm, rows = training_rows(job)
    set_seed(job["seed"])
    model = SentenceTransformer(job["encoder"], device="cpu")
    model.max_seq_length = job["max_length"]

    def trainer(part: list[dict[str, Any]]) -> tuple[SentenceTransformerTrainer, TrainerClock]:
        arguments = SentenceTransformerTrainingArguments(
            output_dir=str(Path(job["scratch"]) / "pairs"),
            per_device_train_batch_size=job["batch"],
            num_train_epochs=1,
            seed=job["seed"],
            bf16=bool(job.get("best") and job["bf16_units"]),
            use_cpu=True,
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
            **job.get("arguments", {}),
        )
        left, right = ("text", "text") if "text" in part[0] else ("text_a", "text_b")
        data = Dataset.from_dict({"anchor": [row[left] for row in part], "positive": [row[right] for row in part]})
        clock = TrainerClock()
        made = SentenceTransformerTrainer(
            model=model, args=arguments, train_dataset=data, loss=MultipleNegativesRankingLoss(model),
            callbacks=[clock],
        )  # fmt: skip
        return made, clock

    if warm:
        trainer(warm)[0].train()
        gc.collect()  # the optimizer of the warm-up is not to count as memory of the timed part
    timed, clock = trainer(rows)
    result = timed.train()
    peak = peak_rss_mb()
    quality = {"loss": result.training_loss}
    if "dev" in job:
        quality["spearman"] = spearman(read_rows(job["dev"]), model.encode)
    report(texts=len(rows), clock=clock.clock, peak=peak, quality=quality, threads=threads())


if __name__ == "__main__":
    main()
