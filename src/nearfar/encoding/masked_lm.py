"""Masked language modeling: some tokens of a text are masked, and a head predicts them; for training only."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nearfar.encoding.architectures import BERT_LIKE
from nearfar.encoding.pretrained import Built, find, from_checkpoint, open_config, quiet_transformers
from nearfar.encoding.tokens import Inputs, Padded
from nearfar.errors import SettingError
from nearfar.shapes import expect

FAMILIES = (*BERT_LIKE, "distilbert")
"""The architectures whose heads are known."""
SHARE = 0.15
"""Of the tokens that are to be predicted."""
MASKED, REPLACED = 0.8, 0.1
"""Of these, how many become the mask token and how many another token; the others are unchanged."""


@dataclass(frozen=True)
class MaskedBatch:
    """A batch with some of its tokens masked."""

    inputs: Inputs
    places: Tensor
    """(m,) which tokens are to be predicted, counted through the batch, padding included where there is some."""
    words: Tensor
    """(m,) their ids."""


class MaskedLMHead(nn.Module):
    r"""Devlin et al. 2019, arXiv:1810.04805: the head of a masked language model, and the masking.

    The logits of a state x are :math:`W \, \mathrm{norm}(\mathrm{act}(A x + a)) + b` with W the word embeddings of
    the encoder: a tied weight, which is stored with the encoder and not with the head.

    Args:
        dense: A and a.
        activation: act.
        norm: norm.
        bias: (v,) b.
        words: (v, e) the encoder's word embeddings.
        tokenizer: with a mask token; its special tokens are never masked, nor put in place of others.
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
        tokenizer: Any,
    ) -> None:
        super().__init__()
        self.dense, self.norm = dense, norm
        self._activation = [activation]  # in a list: some are modules, which would enter the checkpoint
        self.bias = nn.Parameter(bias.detach().clone())
        self.words = words
        self.mask_id = int(tokenizer.mask_token_id)
        special = torch.tensor(sorted(set(tokenizer.all_special_ids)))
        every = torch.arange(min(len(tokenizer), len(words)))  # the encoder may have more embeddings than tokens
        self.register_buffer("special", special, persistent=False)
        self.register_buffer("ordinary", every[~torch.isin(every, special)], persistent=False)
        self.register_state_dict_post_hook(_without_words)  # type: ignore[no-untyped-call]
        self.register_load_state_dict_pre_hook(_with_words)  # type: ignore[no-untyped-call]

    def mask(self, inputs: Inputs) -> MaskedBatch:
        """Choose tokens by torch's generator: each that is not special with probability 0.15.

        Of those, 80 % become the mask token, 10 % another token, and 10 % are unchanged.
        """
        ids = inputs.tensors["input_ids"] if isinstance(inputs, Padded) else inputs.ids
        chance, kind = torch.rand(2, *ids.shape).to(ids.device)
        chosen = (chance < SHARE) & ~torch.isin(ids, self.special)
        others = self.ordinary[torch.randint(len(self.ordinary), ids.shape).to(ids.device)]
        changed = torch.where(kind < MASKED, self.mask_id, torch.where(kind < MASKED + REPLACED, others, ids))
        masked = torch.where(chosen, changed, ids)
        batch: Inputs
        if isinstance(inputs, Padded):
            batch = Padded({**inputs.tensors, "input_ids": masked})
        else:
            batch = replace(inputs, ids=masked)
        return MaskedBatch(batch, chosen.flatten().nonzero()[:, 0], ids[chosen])

    def forward(self, states: Tensor) -> Tensor:
        """(m, d) states of masked tokens -> (m, v) logits of all words."""
        expect(states=(states, "m d"))
        return F.linear(self.norm(self._activation[0](self.dense(states))), self.words, self.bias)


def _without_words(_module: nn.Module, state: dict[str, Any], prefix: str, _metadata: Any) -> None:
    state.pop(f"{prefix}words", None)


def _with_words(module: nn.Module, state: dict[str, Any], prefix: str, *_more: Any) -> None:
    state[f"{prefix}words"] = module.words


def make_masked_lm_head(name: str, built: Built, *, seed: int) -> tuple[MaskedLMHead, str | None]:
    """The head of the checkpoint that ``built`` was opened from, or a new one drawn from ``seed``, with a note."""
    from transformers import AutoModelForMaskedLM

    auto: Any = AutoModelForMaskedLM
    network, tokenizer = built.model.network, built.tokenizer
    family = network.config.model_type
    if family not in FAMILIES:
        raise SettingError(
            f"objective.mlm_weight is above 0, and {name} is {family}, which nearfar has no masked language model head "
            f"for; set it to 0, or choose an encoder of {', '.join(FAMILIES)}."
        )
    if tokenizer.mask_token_id is None:
        raise SettingError(
            f"objective.mlm_weight is above 0, and the tokenizer of {name} has no mask token; set it to 0, or choose "
            "an encoder that was trained to fill masks."
        )
    source, note = find(name), None
    with torch.random.fork_rng(devices=[]), quiet_transformers():
        torch.manual_seed(seed)
        if source.location:
            model, report = from_checkpoint(auto, source, open_config(source))
            missing = [key for key in report["missing_keys"] if not key.startswith(f"{model.base_model_prefix}.")]
        else:
            model, missing = auto.from_config(network.config), ["all"]
    if missing:
        note = f"the checkpoint of {name} has no masked language model head (objective.mlm_weight): a new one is drawn"
    words = network.base_model.get_input_embeddings().weight
    return MaskedLMHead(*_parts(model, family), words, tokenizer=tokenizer).to(words.device), note


def _parts(model: Any, family: str) -> tuple[nn.Linear, Callable[[Tensor], Tensor], nn.LayerNorm, Tensor]:
    """The modules of a masked language model's head, whatever its architecture calls them."""
    if family == "distilbert":
        return model.vocab_transform, model.activation, model.vocab_layer_norm, model.vocab_projector.bias
    if family == "electra":
        head = model.generator_predictions
        return head.dense, head.activation, head.LayerNorm, model.generator_lm_head.bias
    if family == "bert":
        head = model.cls.predictions
        return head.transform.dense, head.transform.transform_act_fn, head.transform.LayerNorm, head.decoder.bias
    assert family in BERT_LIKE
    return model.lm_head.dense, F.gelu, model.lm_head.layer_norm, model.lm_head.decoder.bias
