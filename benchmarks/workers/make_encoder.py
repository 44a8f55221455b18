"""Write a BERT of any size with random weights, and the tokenizer of another encoder, into a folder."""

from __future__ import annotations

import torch
from transformers import AutoTokenizer, BertConfig, BertModel

from benchmarks.workers.common import read_job, report


def main() -> None:
    job = read_job()
    tokenizer = AutoTokenizer.from_pretrained(job["tokenizer"])
    torch.manual_seed(job["seed"])
    config = BertConfig(
        vocab_size=len(tokenizer), hidden_size=job["width"], num_hidden_layers=job["layers"],
        num_attention_heads=job["heads"], intermediate_size=job["inner"],
    )  # fmt: skip
    BertModel(config).save_pretrained(job["folder"])
    tokenizer.save_pretrained(job["folder"])
    report()


if __name__ == "__main__":
    main()
