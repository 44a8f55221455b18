"""Run by torchrun: embed and evaluate with all processes together, and leave what each process has behind."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist

import nearfar
from nearfar.evaluation import embed_table, evaluate_pairs, similarity


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    texts, folder = json.loads(sys.argv[1]), Path(sys.argv[2])
    similarity.ROWS = 3  # several exchanges, the last one short
    opened = nearfar.load("toy")
    table = opened.tokenize(texts)
    vectors = embed_table(opened.model, table, batch_size=2)
    left, right = np.arange(len(texts)), np.roll(np.arange(len(texts)), 1)
    report = evaluate_pairs(opened.model, table, left, right, left % 2, batch_size=2)
    np.save(folder / f"rank-{dist.get_rank()}.npy", vectors)
    (folder / f"rank-{dist.get_rank()}.json").write_text(json.dumps(asdict(report)))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
