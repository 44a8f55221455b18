"""How fast this machine multiplies matrices of the shapes that fine-tuning the encoder needs."""

from __future__ import annotations

import time

import torch

from benchmarks.workers.common import read_job, report, threads


def main() -> None:
    job = read_job()
    rows, width, inner = job["tokens"], job["width"], job["inner"]
    shapes = [(rows, width, 3 * width), (rows, width, width), (rows, width, inner), (rows, inner, width)]
    details = {
        f"{name} GFLOP/s": rate(shapes, kind, job["seconds"])
        for name, kind in (("fp32", torch.float32), ("bf16", torch.bfloat16))
    }
    details |= {key: job[key] for key in ("tokens_per_text", "weights")}
    report(details=details, threads=threads())


def rate(shapes: list[tuple[int, int, int]], kind: torch.dtype, seconds: float) -> float:
    """GFLOP/s of one layer's products, repeated for about this long."""
    generator = torch.Generator().manual_seed(0)
    pairs = [
        (
            torch.randn(rows, inner, generator=generator).to(kind),
            torch.randn(columns, inner, generator=generator).to(kind),
        )
        for rows, inner, columns in shapes
    ]
    work = sum(2 * rows * inner * columns for rows, inner, columns in shapes)

    def layer() -> None:
        for left, right in pairs:
            torch.nn.functional.linear(left, right)

    with torch.inference_mode():
        layer()
        done, began = 0, time.perf_counter()
        while (spent := time.perf_counter() - began) < seconds or not done:
            layer()
            done += 1
        spent = time.perf_counter() - began
    return work * done / spent / 1e9


if __name__ == "__main__":
    main()
