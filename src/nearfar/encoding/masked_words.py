"""Masked words: some tokens of a text are hidden, and a head on the encoder's states names them; for training only."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nearfar.encoding.encoder import Built, open_config, quiet_transformers
from nearfar.encoding.sources import find
from nearfar.encoding.tokens import Inputs, Padded
from nearfar.encoding.unpadded import BERT_LIKE, FAMILIES, Stream
from nearfar.errors import SettingError
from nearfar.shapes import expect

SHARE = 0.15
"""Of the tokens that are to be named."""
MASKED, REPLACED = 0.8, 0.1
"""Of these, how many become the mask token and how many another token; the others stay as they are."""


@dataclass(frozen=True)
class Hidden:
    """A batch with some of its tokens hidden."""

    inputs: Inputs
    places: Tensor
    """(m,) which tokens are to be named, counted through the batch, padding included where there is some."""
    words: Tensor
    """(m,) their ids."""


class MaskedWords(nn.Module):
    r"""Devlin et al. 2019, arXiv:1810.04805: the head of a masked language model, and what it has to fill in.

    The logits of a state x are :math:`W \, \mathrm{norm}(\mathrm{act}(A x + a)) + b` with W the word embeddings of
    the encoder itself: a tied weight, which is stored with the encoder and not with the head.

    Args:
        dense: A and a.
        activation: act.
        norm: norm.
        bias: (v,) b.
        words: (v, e) the encoder's word embeddings.
        mask_id: the tokenizer's mask token.
        special_ids: tokens that are never hidden, nor put in place of others.
        vocabulary: how many tokens the tokenizer knows; the encoder may have room for more.
    """

    special: Tensor
    ordinary: Tensor

    def __init__(
        self,
        dense: nn.Linear,
        activation: Callable[[Tensor], Tensor],
        norm: nn.LayerNorm,
        bias: Tensor,
        words: nn.Parameter,
        *,
        mask_id: int,
        special_ids: list[int],
        vocabulary: int,
    ) -> None:
        super().__init__()
        self.dense, self.norm = dense, norm
        self._activation = [activation]  # in a list: some are modules, which have no place in a checkpoint
        self.bias = nn.Parameter(bias.detach().clone())
        self.words = words
        self.mask_id = mask_id
        special = torch.tensor(sorted(set(special_ids)))
        every = torch.arange(min(vocabulary, len(words)))
        self.register_buffer("special", special, persistent=False)
        self.register_buffer("ordinary", every[~torch.isin(every, special)], persistent=False)
        self.register_state_dict_post_hook(_leave_out)  # type: ignore[no-untyped-call]
        self.register_load_state_dict_pre_hook(_put_back)  # type: ignore[no-untyped-call]

    def hide(self, inputs: Inputs) -> Hidden:
        """Choose tokens by torch's generator: each that is not special with probability 0.15.

        Of those, 80 % become the mask token, 10 % another token, and 10 % stay as they are.
        """
        ids = inputs.ids if isinstance(inputs, Stream) else inputs.tensors["input_ids"]
        chance, kind = torch.rand(2, *ids.shape).to(ids.device)
        chosen = (chance < SHARE) & ~torch.isin(ids, self.special)
        others = self.ordinary[torch.randint(len(self.ordinary), ids.shape).to(ids.device)]
        changed = torch.where(kind < MASKED, self.mask_id, torch.where(kind < MASKED + REPLACED, others, ids))
        hidden = torch.where(chosen, changed, ids)
        made: Inputs
        if isinstance(inputs, Stream):
            made = replace(inputs, ids=hidden)
        else:
            made = Padded({**inputs.tensors, "input_ids": hidden})
        return Hidden(made, chosen.flatten().nonzero()[:, 0], ids[chosen])

    def forward(self, states: Tensor) -> Tensor:
        """(m, d) states of hidden tokens -> (m, v) logits of all words."""
        expect(states=(states, "m d"))
        return F.linear(self.norm(self._activation[0](self.dense(states))), self.words, self.bias)


def _leave_out(_module: nn.Module, state: dict[str, Any], prefix: str, _metadata: Any) -> None:
    state.pop(f"{prefix}words", None)


def _put_back(module: nn.Module, state: dict[str, Any], prefix: str, *_more: Any) -> None:
    state[f"{prefix}words"] = module.words


def masked_words(name: str, built: Built, *, seed: int) -> tuple[MaskedWords, str | None]:
    """The head of the checkpoint that ``built`` was opened from, or a new one, which the note then says.

    ``seed`` draws a new head.
    """
    from transformers import AutoModelForMaskedLM

    kind: Any = AutoModelForMaskedLM
    network, tokenizer = built.model.network, built.tokenizer
    family = network.config.model_type
    if family not in FAMILIES:
        raise SettingError(
            f"objective.mlm_weight is above 0, and {name} is {family}, which nearfar has no head of masked words for; "
            f"set it to 0, or choose an encoder of {', '.join(FAMILIES)}."
        )
    if tokenizer.mask_token_id is None:
        raise SettingError(
            f"objective.mlm_weight is above 0, and the tokenizer of {name} has no mask token; set it to 0, or choose "
            "an encoder that was trained to fill masks."
        )
    source = find(name)
    note = None
    with torch.random.fork_rng(devices=[]), quiet_transformers():
        torch.manual_seed(seed)
        if source.location:
            whole, report = kind.from_pretrained(
                source.location, config=open_config(source), dtype=torch.float32, use_safetensors=True,
                trust_remote_code=False, output_loading_info=True,
            )  # fmt: skip
            missing = [key for key in report["missing_keys"] if not key.startswith(f"{whole.base_model_prefix}.")]
        else:
            whole, missing = kind.from_config(network.config), ["all"]
    if missing:
        note = (
            f"the checkpoint of {name} has no head that names masked words (objective.mlm_weight): a new one is drawn"
        )
    words = network.base_model.get_input_embeddings().weight
    head = MaskedWords(
        *_taken(whole, family), words, mask_id=int(tokenizer.mask_token_id),
        special_ids=list(tokenizer.all_special_ids), vocabulary=len(tokenizer),
    )  # fmt: skip
    return head.to(words.device), note


def _taken(whole: Any, family: str) -> tuple[nn.Linear, Callable[[Tensor], Tensor], nn.LayerNorm, Tensor]:
    """The parts of a masked language model's head, whatever its architecture calls them."""
    if family == "distilbert":
        return whole.vocab_transform, whole.activation, whole.vocab_layer_norm, whole.vocab_projector.bias
    if family == "electra":
        head = whole.generator_predictions
        return head.dense, head.activation, head.LayerNorm, whole.generator_lm_head.bias
    if family == "bert":
        head = whole.cls.predictions
        return head.transform.dense, head.transform.transform_act_fn, head.transform.LayerNorm, head.decoder.bias
    assert family in BERT_LIKE
    return whole.lm_head.dense, F.gelu, whole.lm_head.layer_norm, whole.lm_head.decoder.bias
