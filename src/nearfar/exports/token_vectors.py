"""Static token vectors of an encoder: every token alone, principal components, weights by frequency."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from nearfar.encoding.model import Model
from nearfar.encoding.tokens import Padded

BATCH = 512
DIMS = 256
"""Principal components that are kept at most."""
SMOOTH = 1e-2
"""a of the weight a / (a + p) of a token with the frequency p: SIF, Arora et al. 2017."""
PRIOR = 100_000
"""How many tokens of texts have the same say in a frequency as Zipf's law."""


def static_vectors(model: Model, texts: Sequence[str], *, dims: int = DIMS) -> NDArray[np.float32]:
    """(v, d) a vector for each token; the vector of a text is the sum of those of its tokens, with length one."""
    alone = _alone(model)
    special = list(model.tokenizer.all_special_ids)
    words = np.setdiff1d(np.arange(len(alone)), special)
    centered = alone - alone[words].mean(axis=0)
    _, directions = np.linalg.eigh(centered[words].T @ centered[words])
    reduced = centered @ directions[:, ::-1][:, :dims]
    reduced *= (SMOOTH / (SMOOTH + frequencies(model.tokenizer, texts, len(alone))))[:, None]
    reduced[special] = 0
    return np.ascontiguousarray(reduced, dtype=np.float32)


def frequencies(tokenizer: Any, texts: Sequence[str], size: int) -> NDArray[np.float64]:
    """(v,) how frequent each token is: by Zipf's law of its rank in the vocabulary, and by many texts."""
    counts = np.zeros(size)
    for ids in tokenizer(list(texts), add_special_tokens=False, verbose=False)["input_ids"] if len(texts) else ():
        np.add.at(counts, ids, 1)
    ranks = 1 / np.arange(1, size + 1)
    shares: NDArray[np.float64] = (counts + PRIOR * ranks / ranks.sum()) / (counts.sum() + PRIOR)
    return shares


def _alone(model: Model) -> NDArray[np.float64]:
    """(v, d) the vector of each token between the special tokens of a text."""
    size = min(model.model.vocabulary, len(model.tokenizer))
    before, after = _surroundings(model.tokenizer)
    rows = [[*before, token, *after] for token in range(size)]
    vectors = []
    with torch.inference_mode():
        for start in range(0, size, BATCH):
            ids = torch.tensor(rows[start : start + BATCH])
            inputs = Padded({"input_ids": ids, "attention_mask": torch.ones_like(ids)})
            vectors.append(model.model(inputs.to(next(model.model.parameters()).device)).embedding.float().cpu())
    values = torch.cat(vectors)
    return (torch.nn.functional.normalize(values, dim=1) if model.card.normalize else values).double().numpy()


def _surroundings(tokenizer: Any) -> tuple[list[int], list[int]]:
    """The special tokens before a text, and behind it."""
    nothing, text = tokenizer("")["input_ids"], tokenizer("a")["input_ids"]
    place = 0
    while place < len(nothing) and nothing[place] == text[place]:
        place += 1
    return nothing[:place], nothing[place:]
