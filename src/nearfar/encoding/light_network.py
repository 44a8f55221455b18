"""Encoders of BERT's kind opened without transformers, whose import takes most of the seconds of a short command.

The modules have the names that transformers gives them, so the fast path finds them and the weights fit. They compute
nothing but the pooler: for anything else than the fast path, the network of transformers takes over their weights.
What is saved are the files that transformers would write.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from nearfar.encoding.folder_files import read_json, regular_file

KINDS = {
    "bert": "BertModel",
    "roberta": "RobertaModel",
    "xlm-roberta": "XLMRobertaModel",
    "camembert": "CamembertModel",
}
"""Kinds of encoders, and their classes in transformers."""
NUMBERED = ("roberta", "xlm-roberta", "camembert")
"""Those whose positions are counted from behind the padding id."""
WEIGHTS = "model.safetensors"
_SIZES = ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size",
          "max_position_embeddings", "type_vocab_size")  # fmt: skip
_BUFFERS = ("embeddings.position_ids", "embeddings.token_type_ids")
"""In files of earlier versions of transformers, beside the weights."""
_SHARES = ("hidden_dropout_prob", "attention_probs_dropout_prob", "layer_norm_eps")


class _Group(nn.Module):
    """Modules under their names."""

    def __init__(self, /, **modules: nn.Module) -> None:
        super().__init__()
        for name, module in modules.items():
            self.add_module(name, module)


class _Activated(_Group):
    intermediate_act_fn = staticmethod(F.gelu)


class _Pooler(_Group):
    dense: nn.Linear
    activation: nn.Tanh

    def forward(self, states: Tensor) -> Tensor:
        """(b, l, d) -> (b, d) of the first tokens."""
        pooled: Tensor = self.activation(self.dense(states[:, 0]))
        return pooled


class LightNetwork(nn.Module):
    """The modules of an encoder.

    Args:
        settings: those of ``config.json``.
        pooler: whether it has one.
        opener: opens the network of transformers with other weights.
    """

    base_model_prefix = ""

    def __init__(self, settings: Mapping[str, Any], *, pooler: bool, opener: Callable[[], Any]) -> None:
        super().__init__()
        self.config = SimpleNamespace(**{"num_labels": 2, **settings})
        self._settings = dict(settings)
        self._opener = opener
        width, inner = int(settings["hidden_size"]), int(settings["intermediate_size"])
        hidden, inside = float(settings["hidden_dropout_prob"]), float(settings["attention_probs_dropout_prob"])
        padding = int(settings["pad_token_id"])

        def norm() -> nn.LayerNorm:
            return nn.LayerNorm(width, eps=float(settings["layer_norm_eps"]))

        def layer() -> _Group:
            attention = _Group(
                query=nn.Linear(width, width), key=nn.Linear(width, width), value=nn.Linear(width, width),
                dropout=nn.Dropout(inside),
            )  # fmt: skip
            mix = _Group(dense=nn.Linear(width, width), LayerNorm=norm(), dropout=nn.Dropout(hidden))
            down = _Group(dense=nn.Linear(inner, width), LayerNorm=norm(), dropout=nn.Dropout(hidden))
            up = _Activated(dense=nn.Linear(width, inner))
            return _Group(attention=_Group(self=attention, output=mix), intermediate=up, output=down)

        def table(size: str, padding: int | None) -> nn.Embedding:
            rows = int(settings[size])  # not drawn: that would import torch's compiler
            return nn.Embedding(rows, width, padding_idx=padding, _weight=torch.empty(rows, width))

        self.embeddings = _Group(
            word_embeddings=table("vocab_size", padding),
            position_embeddings=table(
                "max_position_embeddings", padding if settings["model_type"] in NUMBERED else None
            ),
            token_type_embeddings=table("type_vocab_size", None),
            LayerNorm=norm(),
            dropout=nn.Dropout(hidden),
        )
        self.encoder = _Group(layer=nn.ModuleList(layer() for _ in range(int(settings["num_hidden_layers"]))))
        self.pooler = _Pooler(dense=nn.Linear(width, width), activation=nn.Tanh()) if pooler else None

    @property
    def base_model(self) -> LightNetwork:
        """The encoder, which is all there is."""
        return self

    def get_input_embeddings(self) -> nn.Module:
        """The vectors of the vocabulary."""
        return self.embeddings.get_submodule("word_embeddings")

    def whole(self) -> Any:
        """The network of transformers, with the very weights of this one."""
        network = self._opener()
        network.load_state_dict(dict(self.named_parameters()), strict=False, assign=True)
        device = next(self.parameters()).device
        return network.to(device).train(self.training)

    def save_pretrained(self, folder: Path) -> None:
        """Write ``config.json`` and ``model.safetensors``."""
        unknown = ("_name_or_path", "torch_dtype", "num_labels")
        settings = {name: value for name, value in self._settings.items() if name not in unknown}
        settings |= {"architectures": [KINDS[settings["model_type"]]], "dtype": "float32"}
        (folder / "config.json").write_text(f"{json.dumps(settings, indent=2, sort_keys=True)}\n", encoding="utf-8")
        tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in self.state_dict().items()}
        save_file(tensors, folder / WEIGHTS, metadata={"format": "pt"})


def light_network(
    folder: Path, opener: Callable[[], Any], *, dropout: Mapping[str, float] | None = None
) -> LightNetwork | None:
    """The encoder of a folder; None where transformers must open it.

    ``dropout`` has the dropout of a training by its names in ``config.json``.
    """
    settings = {**(read_json(folder, "config.json") or {}), **(dropout or {})}
    path = regular_file(folder, WEIGHTS)
    if path is None or not _is_known(settings):
        return None
    try:
        held = {name: tensor for name, tensor in load_file(path).items() if name not in _BUFFERS}
        tensors = {name: tensor.to(torch.float32, copy=True) for name, tensor in held.items()}
    except (OSError, SafetensorError):  # transformers gives the reason
        return None
    with torch.device("meta"):
        network = LightNetwork(settings, pooler="pooler.dense.weight" in tensors, opener=opener)
    shapes = {name: tensor.shape for name, tensor in network.state_dict().items()}
    if shapes != {name: tensor.shape for name, tensor in tensors.items()}:
        return None
    network.load_state_dict(tensors, assign=True)
    return network


def _is_known(settings: Mapping[str, Any]) -> bool:
    """Whether these are the settings of an encoder that has nothing but the modules above."""
    if settings.get("model_type") not in KINDS or settings.get("hidden_act") != "gelu":
        return False
    if any(settings.get(name) for name in ("is_decoder", "add_cross_attention", "chunk_size_feed_forward")):
        return False
    if settings.get("position_embedding_type") not in (None, "absolute"):
        return False
    sizes, shares = ([settings.get(name) for name in names] for names in (_SIZES, _SHARES))
    if not all(type(size) is int and size > 0 for size in sizes):
        return False
    if not all(isinstance(share, float | int) and 0 <= share <= 1 for share in shares):
        return False
    padding = settings.get("pad_token_id")
    fits = type(padding) is int and 0 <= padding < min(settings["vocab_size"], settings["max_position_embeddings"])
    return fits and settings["hidden_size"] % settings["num_attention_heads"] == 0
