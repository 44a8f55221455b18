"""Texts to vectors with onnxruntime: dynamic int8 as its tool makes it, batches of texts of similar length."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime
from onnxruntime.quantization import QuantType, quantize_dynamic

from benchmarks.workers.clock import Clock
from benchmarks.workers.common import asked_threads, first, read_job, report
from nearfar.encoding import load
from nearfar.exports.exported_model import EMBEDDING, INPUTS
from nearfar.exports.onnx_graph import export_onnx
from nearfar.exports.onnx_model import FILE

BATCH = 64


def main() -> None:
    job = read_job()
    texts = [row["text"] for row in first(job["texts"], job["count"])]
    folder = Path(job["scratch"]) / "onnx"
    model = load(job["encoder"])
    export_onnx(model, folder)
    quantize_dynamic(folder / FILE, folder / "int8.onnx", weight_type=QuantType.QInt8, per_channel=True)
    settings = onnxruntime.SessionOptions()
    if asked_threads() is not None:
        settings.intra_op_num_threads = asked_threads()
    session = onnxruntime.InferenceSession(folder / "int8.onnx", settings, providers=["CPUExecutionProvider"])
    tokenizer = model.tokenizer.backend_tokenizer
    tokenizer.no_padding()
    tokenizer.enable_truncation(model.card.max_length)

    def embed(rows: list[str]) -> np.ndarray:
        encoded = tokenizer.encode_batch_fast(rows)
        order = sorted(range(len(rows)), key=lambda place: -len(encoded[place].ids))
        found = np.zeros((len(rows), model.model.dim), dtype=np.float32)
        for start in range(0, len(order), BATCH):
            chosen = order[start : start + BATCH]
            feeds = {name: np.zeros((len(chosen), len(encoded[chosen[0]].ids)), dtype=np.int64) for name in INPUTS}
            for row, place in enumerate(chosen):
                ids = encoded[place].ids
                feeds["input_ids"][row, : len(ids)], feeds["attention_mask"][row, : len(ids)] = ids, 1
            found[chosen] = session.run([EMBEDDING], feeds)[0]
        return found

    embed(texts[: job["warm"]])
    clock = Clock()
    vectors = embed(texts)
    clock.stop()
    np.save(job["vectors"], vectors)
    report(texts=len(texts), clock=clock, threads=asked_threads())


if __name__ == "__main__":
    main()
