"""A model in ``mteb``, the benchmark of text embeddings: ``mteb.evaluate(MtebEncoder("model"), tasks)``.

mteb is an optional package (``pip install 'nearfar[mteb]'``), imported only for the description of the model.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from nearfar.encoding import Model, load
from nearfar.encoding.vectors import fingerprint
from nearfar.errors import SettingError
from nearfar.estimators.estimator import TextEstimator


class MtebEncoder:
    """An encoder that implements mteb's ``EncoderProtocol``: text vectors, compared by their cosine.

    Its revision is a hash of weights, tokenizer and settings, so cached results of mteb are never used for another
    model that was saved to the same folder.

    Args:
        model: a model folder, an encoder by name, or a loaded model.
        name: the name of the results, as ``owner/name``; None: ``nearfar/`` and the name of the folder.
        batch_size: texts encoded at once.
    """

    def __init__(
        self, model: str | Path | Model | TextEstimator, *, name: str | None = None, batch_size: int = 64
    ) -> None:
        if isinstance(model, TextEstimator):
            model = model.model_
        if name is None:
            if isinstance(model, Model):
                raise SettingError("MtebEncoder: name is needed for a loaded model, such as 'me/model'.")
            name = f"nearfar/{Path(model).expanduser().resolve().name}"
        if name.count("/") != 1 or not all(name.split("/")):
            raise SettingError(f"MtebEncoder: name must be owner/name, got {name!r}; try 'me/model'.")
        self.model = model if isinstance(model, Model) else load(model)
        if self.model.card.joined:
            raise SettingError("MtebEncoder: this model reads pairs of texts joined into one; mteb needs text vectors.")
        self.name = name
        self.batch_size = batch_size
        prints = fingerprint(self.model)
        self.revision = hashlib.sha256("".join(prints[key] for key in sorted(prints)).encode()).hexdigest()[:16]

    def encode(self, inputs: Iterable[Mapping[str, Any]], **settings: Any) -> NDArray[np.float32]:
        """(n, d) vectors of the texts of all batches; ``batch_size`` in the settings overrides the default."""
        texts = [str(text) for batch in inputs for text in batch["text"]]
        return self.model.embed(texts, batch_size=int(settings.get("batch_size") or self.batch_size))

    def similarity(self, embeddings1: Any, embeddings2: Any) -> Tensor:
        """(n, m) cosines of all pairs."""
        return _directions(embeddings1) @ _directions(embeddings2).T

    def similarity_pairwise(self, embeddings1: Any, embeddings2: Any) -> Tensor:
        """(n,) cosines row by row."""
        return (_directions(embeddings1) * _directions(embeddings2)).sum(dim=1)

    @property
    def mteb_model_meta(self) -> Any:
        """The description of the model in the results of mteb."""
        from mteb.models.model_meta import ModelMeta

        return ModelMeta.create_empty(
            overwrites={
                "name": self.name,
                "revision": self.revision,
                "n_parameters": sum(weight.numel() for weight in self.model.model.parameters()),
                "max_tokens": self.model.card.max_length,
                "embed_dim": self.model.model.dim,
                "framework": ["PyTorch"],
                "similarity_fn_name": "cosine",
                "use_instructions": False,
            }
        )


def _directions(vectors: Any) -> Tensor:
    """(n, d) of length one; a single vector is one row."""
    tensor = torch.as_tensor(vectors, dtype=torch.float32)
    return F.normalize(tensor if tensor.ndim > 1 else tensor[None], dim=1)
