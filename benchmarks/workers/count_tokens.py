"""Real tokens of the timed texts, and the weights of an encoder that take part in matrix products."""

from __future__ import annotations

from transformers import AutoConfig, AutoTokenizer

from benchmarks.workers.common import first, read_job, report


def main() -> None:
    job = read_job()
    texts = [row["text"] for row in first(job["train"], job["count"])]
    tokenizer = AutoTokenizer.from_pretrained(job["encoder"])
    lengths = [len(row) for row in tokenizer(texts, truncation=True, max_length=job["max_length"])["input_ids"]]
    config = AutoConfig.from_pretrained(job["encoder"])
    width, inner = config.hidden_size, config.intermediate_size
    details = {
        "tokens_per_text": sum(lengths) / len(lengths),
        "weights": config.num_hidden_layers * (4 * width * width + 2 * width * inner),
        "width": width,
        "inner": inner,
    }
    report(details=details)


if __name__ == "__main__":
    main()
