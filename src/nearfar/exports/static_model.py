"""A model that was exported to static token vectors: a text is the mean of its tokens, computed by NumPy."""

from __future__ import annotations

import os
from pathlib import Path
from typing import final

import numpy as np
from numpy.typing import NDArray

from nearfar.errors import EncoderError, SettingError
from nearfar.exports.exported_model import CARD, EMBEDDING, TOKENIZER, ExportedModel, read_card_file
from nearfar.exports.sums import check_sums

FILE, HEADS = "model.safetensors", "heads.safetensors"
VECTORS = "embeddings"
"""The name of the token vectors, which model2vec reads, too."""
CHUNK = 1024
"""Texts that are computed at once."""


@final
class StaticModel(ExportedModel):
    """Token vectors and linear heads.

    Args:
        path: the folder of the export.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        folder = Path(path)
        check_sums(folder, (FILE, HEADS, CARD, TOKENIZER))
        super().__init__(folder / FILE, read_card_file(folder))
        self.kind = "static"
        self._vectors = _tensors(folder / FILE).get(VECTORS, np.zeros((0, 0), np.float32))
        least = self._tokenizer.get_vocab_size()
        if self._vectors.ndim != 2 or self._vectors.shape[1] != self.card.dim or len(self._vectors) < least:
            raise EncoderError(
                f"{folder / FILE}: it holds {self._vectors.shape} token vectors, and the card and the tokenizer need "
                f"({least}, {self.card.dim}). Export the model again."
            )
        self._heads = {} if not self.card.heads else _tensors(folder / HEADS)
        for head in self.card.heads:
            width = len(head.labels) or 1
            shapes = [self._heads.get(f"{head.output}.{name}", np.zeros(0)).shape for name in ("weight", "bias")]
            if shapes != [(width, self.card.dim), (width,)]:
                raise EncoderError(
                    f"{folder / HEADS}: the weights of its head are missing or of another model. Export the model "
                    "again."
                )

    def _run(
        self, rows: list[tuple[str, ...]], output: str, width: int, batch_size: int, *, together: int = 1
    ) -> NDArray[np.float32]:
        if batch_size < 1:
            raise SettingError(f"batch_size must be 1 or more, got {batch_size}.")
        assert together == 1, "only heads of single texts are exported"
        result = np.zeros((len(rows), width), dtype=np.float32)
        for start in range(0, len(rows), CHUNK):
            vectors = self._embed([row[0] for row in rows[start : start + CHUNK]])
            if output != EMBEDDING:
                vectors = vectors @ self._heads[f"{output}.weight"].T + self._heads[f"{output}.bias"]
            result[start : start + CHUNK] = vectors
        return result

    def _embed(self, texts: list[str]) -> NDArray[np.float32]:
        """(n, d) the sum of the token vectors of each text, of length one; zero for a text without tokens."""
        encoded = self._tokenizer.encode_batch_fast(texts, add_special_tokens=False)
        ids = [one.ids for one in encoded]
        sizes = np.array([len(one) for one in ids])
        sums = np.zeros((len(texts), self.card.dim), dtype=np.float32)
        real = np.flatnonzero(sizes)
        if len(real):
            tokens = self._vectors[np.concatenate([ids[place] for place in real])]
            begins = np.cumsum(sizes[real]) - sizes[real]
            sums[real] = np.add.reduceat(tokens, begins, axis=0)
        sums /= np.maximum(np.linalg.norm(sums, axis=1, keepdims=True), 1e-12)
        return sums


def is_static(folder: Path) -> bool:
    """Whether a folder holds static token vectors of nearfar."""
    return (folder / CARD).is_file() and (folder / FILE).is_file() and not (folder / "nearfar.json").exists()


def _tensors(path: Path) -> dict[str, NDArray[np.float32]]:
    from safetensors.numpy import load_file

    try:
        return {name: values.astype(np.float32, copy=False) for name, values in load_file(path).items()}
    except Exception as cause:  # safetensors and the system have errors of their own
        raise EncoderError(f"{path}: these weights cannot be read ({cause}). Export the model again.") from cause
