"""The text model: a pretrained transformer, a pooling, and a class head where one is wanted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from nearfar.encoding.cpu_parallel import encode
from nearfar.encoding.heads import Head, LinearHead
from nearfar.encoding.pooling_modes import Pooling, pool
from nearfar.encoding.sources import LONGEST, Source, find
from nearfar.encoding.tokens import Inputs, TokenTable
from nearfar.encoding.toy import toy_config, toy_tokenizer
from nearfar.encoding.unpadded import FAMILIES, Noise, Stream, scale_heads, take_apart
from nearfar.errors import EncoderError, SettingError

DROPOUTS = (
    "hidden_dropout_prob", "attention_probs_dropout_prob", "hidden_dropout", "attention_dropout", "dropout",
    "embedding_dropout", "mlp_dropout", "activation_dropout", "dropout_rate", "pooler_dropout", "summary_first_dropout",
    "summary_last_dropout", "seq_classif_dropout", "classifier_dropout_prob", "classifier_dropout",
)  # fmt: skip


@dataclass(frozen=True)
class Output:
    """What the model makes of a batch of texts."""

    embedding: Tensor
    """(b, d) pooled text vectors."""
    logits: Tensor | None
    """(b, c) class logits, where the model has a class head."""
    states: Tensor
    """Last hidden states: (b, l, d) with a mask, (t, d) of a stream with its owners."""
    mask: Tensor | None = None
    """(b, l) 1 for real tokens, special ones included."""
    owners: Tensor | None = None
    """(t,) which text of the batch each token of a stream belongs to."""

    def tokens(self) -> tuple[Tensor, Tensor]:
        """(t, d) states of all real tokens, and (t,) the text each belongs to."""
        if self.owners is not None:
            return self.states, self.owners
        assert self.mask is not None
        real = self.mask.bool()
        return self.states[real], real.nonzero()[:, 0]


class TextModel(nn.Module):
    """Token ids to text vectors and, with a head, to class logits.

    Args:
        network: what ``AutoModel`` or ``AutoModelForSequenceClassification`` opened.
        pooling: how token vectors become a text vector.
        native: whether ``network`` brings the architecture's own class head.
        head: our class head on the pooled vector, for a network without one.
        fast: whether an encoder of BERT's family takes the fast path; any other runs as ``AutoModel`` has it.
        drophead: in training, the probability of each attention head of each text to be dropped; BERT's family only.
        cutoff: in training, the share of the embeddings' coordinates that become zero, the same for all tokens of a
            text; BERT's family only.
    """

    def __init__(
        self,
        network: Any,
        *,
        pooling: Pooling,
        native: bool = False,
        head: Head | None = None,
        fast: bool = True,
        drophead: float = 0.0,
        cutoff: float = 0.0,
    ) -> None:
        super().__init__()
        for setting, value, usual in (("drophead", drophead, 0.2), ("cutoff", cutoff, 0.1)):
            if not 0 <= value < 1:
                raise SettingError(f"encoder.{setting} must be 0 or more and below 1, got {value}; try {usual}.")
        if native and head is not None:
            raise SettingError("TextModel: a network with its own class head takes no second head.")
        self.network = network
        self.head: Head | None = head
        self.pooling: Pooling = pooling
        self.native = native
        known = take_apart(network)
        if known is None and (drophead or cutoff):
            raise SettingError(
                f"encoder.{'drophead' if drophead else 'cutoff'} reaches into the layers of {', '.join(FAMILIES)}, and "
                f"this encoder is {network.config.model_type}; set it to 0, or choose one of these."
            )
        self._parts = known and replace(known, drophead=drophead, cutoff=cutoff)
        self.body = self._parts if fast else None

    @property
    def dim(self) -> int:
        """Width of a text vector."""
        return int(self.network.config.hidden_size)

    @property
    def classes(self) -> int:
        """How many classes the head tells apart; 0 without a head."""
        if self.native:
            return int(self.network.config.num_labels)
        return 0 if self.head is None else self.head.classes

    def inputs(self, table: TokenTable, rows: Sequence[int] | NDArray[np.int64]) -> Inputs:
        """Rows of a table in the form this model reads fastest."""
        return table.padded(rows) if self.body is None else table.stream(rows)

    def forward(self, inputs: Inputs, *, logits_only: bool = False) -> Output:
        """A batch, padded or as a stream -> states, text vectors, logits.

        With ``logits_only`` the rest may be left out where that saves work: the states are then those of the first
        tokens, and the text vectors mean nothing.
        """
        if isinstance(inputs, Stream):
            return self._stream(inputs, firsts=logits_only and (self.native or self.pooling != "mean"))
        return self._padded(inputs.tensors)

    def _stream(self, stream: Stream, *, firsts: bool) -> Output:
        if self.body is None:
            raise SettingError("TextModel: this encoder has no fast path; give it a padded batch.")
        states = encode(self.body, stream, training=self.training, firsts=firsts)
        sizes = torch.tensor(stream.lengths, device=states.device)
        heads = (states if firsts else states[sizes.cumsum(0) - sizes])[stream.place]  # (b, d): the first tokens
        base = self.network.base_model
        pooler = None
        if self.native or self.pooling == "pooler":
            pooler = None if getattr(base, "pooler", None) is None else base.pooler(heads.unsqueeze(1))
        if self.pooling == "mean" and not firsts:
            embedding = torch.segment_reduce(states.float(), "mean", lengths=sizes, unsafe=True)[stream.place]
        else:
            embedding = _present(pooler) if self.pooling == "pooler" else heads
        logits = self.head(embedding) if self.head is not None else None
        if self.native:
            logits = _head_of(self.network, heads, pooler, stream.ids)
        owners = stream.place.argsort() if firsts else torch.repeat_interleave(stream.place.argsort(), sizes)
        return Output(embedding=embedding, logits=logits, states=states, owners=owners)

    def _padded(self, inputs: dict[str, Tensor]) -> Output:
        with self._shaken():
            return self._as_it_is(inputs)

    @contextmanager
    def _shaken(self) -> Iterator[None]:
        """In training, the network drops heads and cuts coordinates while this lasts, where it is to."""
        parts = self._parts
        if parts is None or not self.training or not (parts.drophead or parts.cutoff):
            yield
            return
        noise = Noise(training=True)

        def behead(_module: nn.Module, given: tuple[Tensor]) -> tuple[Tensor]:
            values = given[0]  # (b, l, d)
            scales = noise.heads(len(values), parts.heads, parts.drophead).to(values)
            return (scale_heads(values, scales.unsqueeze(1).expand(-1, values.shape[1], -1)),)

        def cut(_module: nn.Module, _given: Any, made: Tensor) -> Tensor:
            gone = noise.cut(len(made), made.shape[2], parts.cutoff).to(made.device)
            return made.masked_fill(gone.unsqueeze(1), 0)

        handles = []
        if parts.drophead:
            handles += [layer.mix.register_forward_pre_hook(behead) for layer in parts.layers]
        if parts.cutoff:
            handles.append(self.network.base_model.embeddings.register_forward_hook(cut))
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def _as_it_is(self, inputs: dict[str, Tensor]) -> Output:
        logits: Tensor | None = None
        if self.native:
            passed: list[Any] = []
            base = self.network.base_model
            handle = base.register_forward_hook(lambda _module, _inputs, output: passed.append(output))
            try:
                logits = self.network(**inputs).logits
            finally:
                handle.remove()
            output = passed[0]
        else:
            output = self.network(**inputs)
        states = output[0]
        pooler = getattr(output, "pooler_output", None)
        embedding = pool(self.pooling, states, inputs["attention_mask"], pooler)
        if self.head is not None:
            logits = self.head(embedding)
        return Output(embedding=embedding, logits=logits, states=states, mask=inputs["attention_mask"])


def _head_of(network: Any, firsts: Tensor, pooler: Tensor | None, ids: Tensor) -> Tensor:
    """(b, d) first tokens through the architecture's own class head -> (b, c).

    The network runs as always, but its encoder answers with what is already known.
    """
    from transformers.modeling_outputs import BaseModelOutputWithPooling

    base = network.base_model
    known = BaseModelOutputWithPooling(
        last_hidden_state=cast(torch.FloatTensor, firsts.unsqueeze(1)), pooler_output=cast(Any, pooler)
    )
    base.forward = lambda *_arguments, **_settings: known
    try:
        logits: Tensor = network(input_ids=ids[:1].unsqueeze(0)).logits
    finally:
        del base.forward
    return logits


def _present(tensor: Tensor | None) -> Tensor:
    if tensor is None:
        raise SettingError("pooling 'pooler' needs an encoder that has a pooler; use 'first' or 'mean'.")
    return tensor


@dataclass(frozen=True)
class Built:
    """A model, ready to train or to use, with what the user should know about it."""

    model: TextModel
    tokenizer: Any
    max_length: int
    normalize: bool
    """Whether the text vectors leave the model with length one."""
    notes: tuple[str, ...]
    pools: bool = False
    """Whether the encoder says itself how its text vectors are pooled, as sentence encoders do."""


def build(
    name: str,
    *,
    classes: Sequence[str] | None,
    seed: int,
    pooling: Pooling | None = None,
    max_length: int | None = None,
    dropout: float | None = None,
    fast: bool = True,
    drophead: float = 0.0,
    cutoff: float = 0.0,
) -> Built:
    """Open an encoder for training.

    With ``classes`` and no ``pooling`` it has the architecture's own class head, so that the saved folder opens in
    ``AutoModelForSequenceClassification``; with ``pooling`` it has ours, and so has the encoder of an architecture that
    classifies with its decoder. Without ``classes`` it has no head.
    ``seed`` draws all that the checkpoint does not hold; ``fast=False`` keeps to ``AutoModel``'s own computation.
    ``drophead`` and ``cutoff`` are noise of the training, as dropout is: they are no part of what is saved.
    """
    source = find(name)
    config = open_config(source)
    native = classes is not None and pooling is None and _encoder_of_two(config) is None
    before = labels_of(config)
    if native and classes is not None:
        config.id2label = dict(enumerate(classes))
        config.label2id = {label: place for place, label in enumerate(classes)}
        config.problem_type = "single_label_classification"
    if dropout is not None:
        for key in DROPOUTS:
            if getattr(config, key, None) is not None or key == "classifier_dropout":
                setattr(config, key, dropout)
    head = None
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network, fresh = open_network(source, config, native=native)
        renamed = native and before is not None and classes is not None and not _alike(before, classes)
        redrawn = renamed and _redraw(network, fresh)
        if classes is not None and not native:
            head = LinearHead(int(config.hidden_size), len(classes), dropout=0.1 if dropout is None else dropout)
    tokenizer = open_tokenizer(source)
    chosen: Pooling = pooling or source.pooling or "mean"
    if chosen == "pooler":
        require_pooler(network.base_model, name)
    notes = [source.note] if source.note else []
    if redrawn:
        notes.append(f"the class head of {name} is for other labels ({', '.join(before or ())}), so a new one is drawn")
    unexpected = sorted(key for key in fresh if not _of_class_head(key, network, native=native))
    if unexpected and source.location:
        notes.append(f"not in the checkpoint of {name}, so drawn at random: {', '.join(unexpected[:6])}"
                     + (f" and {len(unexpected) - 6} more" if len(unexpected) > 6 else ""))  # fmt: skip
    model = TextModel(network, pooling=chosen, native=native, head=head, fast=fast, drophead=drophead, cutoff=cutoff)
    if fast and model.body is None:
        notes.append(f"{config.model_type} has no fast path: it runs as AutoModel has it")
    return Built(
        model=model,
        tokenizer=tokenizer,
        max_length=choose_length(source, network, tokenizer, max_length),
        normalize=source.normalize,
        notes=tuple(notes),
        pools=source.pooling is not None and bool(source.location),
    )


def open_config(source: Source) -> Any:
    """The architecture's settings."""
    if not source.location:
        return toy_config()
    from transformers import AutoConfig

    with _refusals(source):
        config: Any = AutoConfig.from_pretrained(source.location, trust_remote_code=False)
    config._attn_implementation = None  # a folder may name attention that is code on the hub
    return config


def labels_of(config: Any) -> tuple[str, ...] | None:
    """The classes of a classifier of transformers; None for any other, and for heads of scores or of many labels."""
    kinds = getattr(config, "architectures", None) or []
    if not any(str(kind).endswith("ForSequenceClassification") for kind in kinds):
        return None
    if config.num_labels < 2 or config.problem_type not in (None, "single_label_classification"):
        return None
    return tuple(str(config.id2label.get(place, place)) for place in range(config.num_labels))


def _alike(labels: Sequence[str], others: Sequence[str]) -> bool:
    """Whether these are the same classes in the same order, but for capitals."""
    return [label.casefold() for label in labels] == [other.casefold() for other in others]


def _redraw(network: Any, fresh: set[str]) -> bool:
    """Draw what tells the classes apart anew where it came from the checkpoint; whether there was any."""
    from transformers import AutoModelForSequenceClassification

    classes = int(network.config.num_labels)
    known = {
        name: weight
        for name, weight in network.named_parameters()
        if _of_class_head(name, network, native=True) and name not in fresh and len(weight) == classes
    }
    if known:
        kind: Any = AutoModelForSequenceClassification
        drawn = dict(kind.from_config(network.config, dtype=torch.float32).named_parameters())
        for name, weight in known.items():
            weight.data.copy_(drawn[name].data)
    return bool(known)


def open_network(source: Source, config: Any, *, native: bool) -> tuple[Any, set[str]]:
    """The weights in fp32, and the names of those that the checkpoint did not hold."""
    from transformers import AutoModel, AutoModelForSequenceClassification

    kind: Any = AutoModelForSequenceClassification if native else _encoder_of_two(config) or AutoModel
    if not source.location:
        return kind.from_config(config), set()
    with _refusals(source), quiet_transformers():
        network, report = kind.from_pretrained(
            source.location, config=config, dtype=torch.float32, use_safetensors=True, trust_remote_code=False,
            ignore_mismatched_sizes=native, output_loading_info=True,
        )  # fmt: skip
    mismatched = {key[0] if isinstance(key, tuple) else key for key in report["mismatched_keys"]}
    return network, set(report["missing_keys"]) | mismatched


def _encoder_of_two(config: Any) -> Any:
    """The class of the encoder alone, of architectures that have a decoder too, such as T5; None of all others."""
    from transformers import MODEL_FOR_TEXT_ENCODING_MAPPING

    known: Any = MODEL_FOR_TEXT_ENCODING_MAPPING
    kind = known.get(type(config), None)
    return kind if kind is not None and kind.__name__.endswith("EncoderModel") else None


def open_tokenizer(source: Source) -> Any:
    """The tokenizer that belongs to the encoder."""
    if not source.location:
        return toy_tokenizer()
    from transformers import AutoTokenizer

    with _refusals(source), quiet_transformers():
        tokenizer = AutoTokenizer.from_pretrained(source.location, trust_remote_code=False)
    if source.lower and tokenizer.is_fast:
        _lower_first(tokenizer.backend_tokenizer)
    if set(tokenizer.get_vocab()) <= set(tokenizer.all_special_tokens):
        raise EncoderError(
            f"{source.name}: its tokenizer has no vocabulary; its files are missing. Is the folder whole?"
        )
    if tokenizer.pad_token_id is None:
        raise EncoderError(
            f"{source.name}: its tokenizer has no padding token, so this is no text encoder nearfar can use."
        )
    return tokenizer


def _lower_first(tokenizer: Any) -> None:
    from tokenizers import normalizers

    own = tokenizer.normalizer
    tokenizer.normalizer = normalizers.Sequence([normalizers.Lowercase(), *([] if own is None else [own])])


def choose_length(source: Source, network: Any, tokenizer: Any, asked: int | None) -> int:
    """How many tokens of a text are read: what was asked, or what the encoder states, within what it can."""
    stated = (getattr(tokenizer, "model_max_length", None), _positions(network))
    limits = [limit for limit in stated if isinstance(limit, int) and 0 < limit < 1_000_000]
    most = _positions(network) or min(limits, default=None)
    if asked is None:
        return min([source.max_length or LONGEST, LONGEST, *limits])
    if most is not None and asked > most:
        raise SettingError(
            f"encoder.max_length is {asked}, but {source.name} reads at most {most} tokens; set {most} or less."
        )
    return asked


def _positions(network: Any) -> int | None:
    """How many tokens the network has positions for; RoBERTa's kind counts them from behind the padding id."""
    positions = getattr(network.config, "max_position_embeddings", None)
    for name, module in network.named_modules():
        if name.endswith("position_embeddings") and isinstance(module, nn.Embedding) and module.padding_idx is not None:
            return module.num_embeddings - module.padding_idx - 1
    return positions if isinstance(positions, int) and positions > 0 else None


def require_pooler(network: Any, name: str) -> tuple[Tensor, Tensor]:
    """Weight and bias of a BERT-style pooler (first token, linear, tanh), or an error."""
    pooler = getattr(network, "pooler", None)
    dense = getattr(pooler, "dense", None)
    if not isinstance(dense, nn.Linear) or not isinstance(getattr(pooler, "activation", None), nn.Tanh):
        raise EncoderError(
            f"{name}: this encoder has no pooler of BERT's kind; set encoder.pooling to 'first' or 'mean'."
        )
    return dense.weight, cast(Tensor, dense.bias)


def _of_class_head(key: str, network: Any, *, native: bool) -> bool:
    return native and not key.startswith(f"{network.base_model_prefix}.")


@contextmanager
def quiet_transformers() -> Iterator[None]:
    """Loading reports and progress bars off: nearfar says itself what a user must know."""
    from transformers import utils

    logging: Any = utils.logging
    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()


@contextmanager
def _refusals(source: Source) -> Iterator[None]:
    try:
        yield
    except Exception as cause:  # tokenizers and safetensors raise bare ones for files that are cut off
        text = str(cause).strip()
        first = text.splitlines()[0] if text else type(cause).__name__
        if "trust_remote_code" in text:
            remedy = "It needs code of its own to run, which nearfar does not execute; choose another encoder."
        elif _pickled(Path(source.location)):
            remedy = "nearfar reads safetensors only, never pickled weights; convert the checkpoint first."
        else:
            remedy = "Is the folder whole?"
        raise EncoderError(f"{source.name}: the encoder cannot be opened: {first} {remedy}") from cause


def _pickled(folder: Path) -> bool:
    """Whether a folder has weights, but none that can be read without running code."""
    return any(folder.glob("*.bin")) and not any(folder.glob("*.safetensors"))
