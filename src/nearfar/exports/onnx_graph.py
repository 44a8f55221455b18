"""A trained model as an ONNX graph: encoder, pooling, map, normalization and heads, with labels in its metadata."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import json
import logging
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nearfar.encoding.encoder import TextModel, pool
from nearfar.encoding.model import Model
from nearfar.encoding.task_model import TaskCard, TaskModel
from nearfar.errors import EncoderError, SettingError
from nearfar.exports.exported_model import EMBEDDING, FORMAT, INPUTS, TOKENIZER
from nearfar.exports.heads import ExportedCard, ExportedHead, Kind, LabelType, Reads
from nearfar.exports.onnx_model import FILE, METADATA
from nearfar.exports.runtimes import import_onnxruntime
from nearfar.exports.sums import write_sums
from nearfar.files import atomic_folder

if TYPE_CHECKING:
    from onnx import ModelProto

OPSET = 18
LOGITS = "logits"
KEPT_LAYERS = 2
"""Layers that are not quantized: MiniLM's mean 1 - cosine is 0.0067 with two of them kept, and 0.0096 without."""
READS: dict[str, Reads] = {"texts": "texts", "joined": "both-orders", "apart": "apart"}
PROBES = ["a text", "another one, somewhat longer than the first"]


class _Graph(nn.Module):
    """Token ids to text vectors and the outputs of all heads, as plain tensors."""

    def __init__(self, model: Model, tasks: TaskModel | None) -> None:
        super().__init__()
        self.model: TextModel = model.model
        self.model.network.eval()  # where it was opened without transformers, it is made whole now, not while traced
        self.heads = None if tasks is None else tasks.network.head
        self.cards = () if tasks is None else tuple(tasks.tasks.values())
        self.normalize = model.card.normalize

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None = None
    ) -> tuple[Tensor, ...]:
        """(b, l) ids, mask and types -> (b, d) vectors, and (b, k) or (b / 2, k) of each head."""
        tensors = {"input_ids": input_ids, "attention_mask": attention_mask}
        if token_type_ids is not None:
            tensors["token_type_ids"] = token_type_ids
        vectors, outputs = self._encode(tensors)
        outputs += tuple(self._answer(card, vectors) for card in self.cards)
        embedding = vectors if self.model.transform is None else self.model.transform(vectors)
        return (F.normalize(embedding, dim=1) if self.normalize else embedding.float(), *outputs)

    def _encode(self, tensors: dict[str, Tensor]) -> tuple[Tensor, tuple[Tensor, ...]]:
        model, mask = self.model, tensors["attention_mask"]
        if not model.native:
            output = model.network(**tensors)
            vectors = pool(model.pooling, output[0], mask, getattr(output, "pooler_output", None))
            return vectors, () if model.head is None else (model.head(vectors) / model.temperature,)
        output = model.network(**tensors, output_hidden_states=True)
        states = output.hidden_states[-1]
        pooler = model.network.base_model.pooler(states) if model.pooling == "pooler" else None
        return pool(model.pooling, states, mask, pooler), (output.logits / model.temperature,)

    def _answer(self, card: TaskCard, vectors: Tensor) -> Tensor:
        assert self.heads is not None
        columns = [vectors]
        if card.reads != "texts":  # rows come in twos: the left text and the right, or the two orders of a pair
            pairs = vectors[: vectors.shape[0] // 2 * 2].reshape(-1, 2, vectors.shape[1])
            columns = [pairs[:, 0], pairs[:, 1]]
        answer: Tensor = self.heads(card.name, columns)
        return answer


def export_onnx(
    model: Model, out: Path, *, tasks: TaskModel | None = None, label_type: LabelType = "str", int8: bool = False
) -> None:
    """Write a folder with the graph and the tokenizer; a folder that is there is replaced."""
    require("onnx", "onnxscript", *(["onnxruntime"] if int8 else []))
    tokenizer = getattr(model.tokenizer, "backend_tokenizer", None)
    if tokenizer is None:
        raise EncoderError("this model has no fast tokenizer (tokenizer.json), which an export needs.")
    with atomic_folder(out, out.with_name(f".{out.name}-export")) as folder:
        proto, card = _graph(model, tasks, label_type)
        if int8:
            proto, card = _quantized(proto, folder), replace(card, precision="int8")
        _describe(proto, card)
        (folder / FILE).write_bytes(proto.SerializeToString())
        save_tokenizer(tokenizer, folder / TOKENIZER)
        write_sums(folder, (FILE, TOKENIZER))
        (folder / "README.md").write_text(_readme(card), encoding="utf-8")


def require(*packages: str) -> None:
    """Refuse an export without the packages that do it."""
    missing = [name for name in packages if importlib.util.find_spec(name) is None]
    if missing:
        raise SettingError(
            f"this export needs {' and '.join(missing)}, which {'is' if len(missing) == 1 else 'are'} not "
            f"installed: pip install {' '.join(missing)}."
        )


def _graph(model: Model, tasks: TaskModel | None, label_type: LabelType) -> tuple[ModelProto, ExportedCard]:
    graph = _Graph(model, tasks).eval()
    heads = heads_of(model, tasks, label_type)
    probes: Any = [tuple(PROBES)] * 2 if model.card.joined else PROBES
    table = model.tokenize(probes)
    tensors = table.padded(range(2)).tensors
    given = [tensors[name] for name in INPUTS if name in tensors]
    sizes = {0: torch.export.Dim("batch", min=1), 1: torch.export.Dim("length", min=1)}
    kind = model.model.network.config.model_type
    try:
        with quiet(), torch.no_grad():
            program: Any = torch.onnx.export(
                graph, tuple(given), dynamo=True, dynamic_shapes=(sizes,) * len(given), opset_version=OPSET,
                input_names=[name for name in INPUTS if name in tensors],
                output_names=[EMBEDDING, *(head.output for head in heads)],
            )  # fmt: skip
    except torch.onnx.OnnxExporterError as cause:
        raise EncoderError(
            f"the exporter of torch cannot convert an encoder of type {kind} to ONNX, so neither --to onnx nor --to "
            "openvino is possible for this model."
        ) from cause
    proto: ModelProto = program.model_proto
    if not all(size.dim_param for one in proto.graph.input for size in one.type.tensor_type.shape.dim):
        raise EncoderError(
            f"an encoder of type {kind} cannot be traced for any number of texts, so it cannot be exported to ONNX."
        )
    padding = table.padding
    from nearfar import __version__

    card = ExportedCard(
        format=FORMAT, max_length=model.card.max_length, dim=model.model.dim, pad_id=padding.token,
        pad_type=padding.token_type, pad_left=padding.left, typed="token_type_ids" in tensors, heads=heads,
        version=__version__,
    )  # fmt: skip
    return proto, card


def heads_of(model: Model, tasks: TaskModel | None, label_type: LabelType) -> tuple[ExportedHead, ...]:
    """What the heads of a model are in an export."""
    if tasks is not None:
        return tuple(_task_head(card) for card in tasks.tasks.values())
    reads: Reads = "joined" if model.card.joined else "texts"
    if model.predicts_scores:
        return (ExportedHead(name="", output=LOGITS, reads=reads, kind="scores"),)
    if model.labels is None:
        return ()
    kind: Kind = "multilabel" if model.multilabel else "classes"
    thresholds = model.card.task.get("thresholds", {}) if model.multilabel else {}
    return (
        ExportedHead(
            name="", output=LOGITS, reads=reads, kind=kind, labels=model.labels, label_type=label_type,
            thresholds=thresholds,
        ),
    )  # fmt: skip


def _task_head(card: TaskCard) -> ExportedHead:
    kind: Any = "scores" if card.labels is None else "cosine" if card.head.get("kind") == "cosine" else "classes"
    return ExportedHead(
        name=card.name, output=f"{LOGITS}.{card.name}", reads=READS[card.reads], kind=kind, labels=card.labels or (),
        low=card.low, high=card.high, cut=card.cut,
    )  # fmt: skip


def _quantized(proto: ModelProto, folder: Path) -> ModelProto:
    """The graph with 8-bit weights, one scale for each output channel; activations are quantized as they come.

    Weights have 7 bits of precision: without VNNI, products of 8-bit numbers overflow in pairs. The second layers of
    the first two feed-forward blocks, whose inputs have the largest outliers, stay as they are.
    """
    import onnx

    import_onnxruntime()
    from onnxruntime.quantization import QuantType, quantize_dynamic

    source, target = folder / "fp32.onnx", folder / "int8.onnx"
    plain = onnx.ModelProto()
    plain.CopyFrom(proto)
    _copy_shared(plain)
    del plain.graph.value_info[:]  # they are inferred again: the weights of a Gemm, which are transposed, change theirs
    source.write_bytes(plain.SerializeToString())
    with quiet():
        quantize_dynamic(
            source, target, per_channel=True, reduce_range=True, weight_type=QuantType.QInt8,
            op_types_to_quantize=["MatMul", "Gemm", "Gather"], nodes_to_exclude=_narrowing(proto)[:KEPT_LAYERS],
        )  # fmt: skip
    quantized = onnx.load(target)
    source.unlink()
    target.unlink()
    return quantized


def _copy_shared(proto: ModelProto) -> None:
    """Give each linear layer weights of its own: onnxruntime transposes them in place, shared ones several times."""
    weights = {tensor.name: tensor for tensor in proto.graph.initializer}
    used = set[str]()
    for node in proto.graph.node:
        name = node.input[1] if node.op_type == "Gemm" else ""
        if name in used and name in weights:
            copied = proto.graph.initializer.add()
            copied.CopyFrom(weights[name])
            copied.name = node.input[1] = f"{name}.{node.name}"
        used.add(name)


def _narrowing(proto: ModelProto) -> list[str]:
    """The matrix products whose weights have more rows than columns: of a feed-forward block, the second."""
    shapes = {tensor.name: tuple(tensor.dims) for tensor in proto.graph.initializer}
    products = [node for node in proto.graph.node if node.op_type == "MatMul" and node.input[1] in shapes]
    return [node.name for node in products if shapes[node.input[1]][0] > shapes[node.input[1]][1]]


def _describe(proto: ModelProto, card: ExportedCard) -> None:
    del proto.metadata_props[:]
    entry = proto.metadata_props.add()
    entry.key, entry.value = METADATA, json.dumps(card.to_json(), ensure_ascii=False)


def save_tokenizer(tokenizer: Any, path: Path) -> None:
    """Write a tokenizer that neither pads nor cuts."""
    from tokenizers import Tokenizer

    plain = Tokenizer.from_str(tokenizer.to_str())
    plain.no_padding()
    plain.no_truncation()
    plain.save(str(path))


def _readme(card: ExportedCard) -> str:
    labels = [f"- {head.name or 'labels'}: {', '.join(head.labels)}" for head in card.heads if head.labels]
    outputs = f"`{EMBEDDING}`" + (" and logits" if card.heads else "")
    lines = [
        "# Text model in ONNX",
        "",
        f"`{FILE}` maps token ids to {outputs}; `{TOKENIZER}` makes the ids.",
        f"Precision: {card.precision}. At most {card.max_length} tokens a text.",
        "",
        *labels,
        "",
        "```python",
        "import nearfar",
        "",
        'model = nearfar.load("this-folder")  # needs onnxruntime, not torch',
        "```",
        "",
    ]
    return "\n".join(lines)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Keep the exporter's progress and warnings from the user, who gets a table in the end."""
    level = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(level)
