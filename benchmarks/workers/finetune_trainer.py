"""Fine-tuning with the Trainer of transformers.

Its defaults: fp32, every batch padded to its longest text, fused AdamW. ``"best": true`` adds what helps it on a CPU:
batches of similar length, and bf16 where the processor has units for it. The warm-up is a training of its own on other
texts, since with length grouping the first batches are the longest ones.
"""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

from datasets import Dataset
from transformers import AutoModelForSequenceClassification, AutoTokenizer, Trainer, TrainingArguments, set_seed

from benchmarks.workers.common import peak_rss_mb, read_job, read_rows, report, scores, threads, training_rows
from benchmarks.workers.trainer_clock import TrainerClock


def main() -> None:
    job = read_job()
    warm, rows = training_rows(job)
    classes = sorted({row["label"] for row in [*warm, *rows]})
    set_seed(job["seed"])
    tokenizer = AutoTokenizer.from_pretrained(job["encoder"])
    model = AutoModelForSequenceClassification.from_pretrained(job["encoder"], num_labels=len(classes))

    def tokens(part: list[dict[str, Any]]) -> Dataset:
        encoded = tokenizer([row["text"] for row in part], truncation=True, max_length=job["max_length"])
        return Dataset.from_dict({**encoded, "labels": [classes.index(row["label"]) for row in part]})

    def trainer(part: list[dict[str, Any]]) -> tuple[Trainer, TrainerClock]:
        order = "sequential" if job.get("shuffle", "file-order") == "file-order" else "random"
        arguments = TrainingArguments(
            output_dir=str(Path(job["scratch"]) / "trainer"),
            per_device_train_batch_size=job["batch"],
            per_device_eval_batch_size=job["batch"],
            num_train_epochs=1,
            seed=job["seed"],
            train_sampling_strategy="group_by_length" if job.get("best") else order,
            bf16=bool(job.get("best") and job["bf16_units"]),
            use_cpu=True,
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
            **job.get("arguments", {}),
        )
        clock = TrainerClock()
        made = Trainer(
            model=model, args=arguments, train_dataset=tokens(part), processing_class=tokenizer, callbacks=[clock]
        )
        return made, clock

    if warm:
        trainer(warm)[0].train()
        gc.collect()  # the optimizer of the warm-up is not to count as memory of the timed part
    timed, clock = trainer(rows)
    result = timed.train()
    peak = peak_rss_mb()
    quality = {"loss": result.training_loss}
    if "dev" in job:
        dev = read_rows(job["dev"])
        logits = timed.predict(tokens(dev)).predictions
        quality |= scores(
            [str(row["label"]) for row in dev], [str(classes[place]) for place in logits.argmax(axis=1).tolist()]
        )
    report(texts=len(rows), clock=clock.clock, peak=peak, quality=quality, threads=threads())


if __name__ == "__main__":
    main()
