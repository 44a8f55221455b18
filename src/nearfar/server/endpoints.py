"""The endpoints: those of text-embeddings-inference, and ``/classify`` as Infinity has it."""

from __future__ import annotations

import time
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

import nearfar
from nearfar.server.errors import failed, invalid, wrong_model
from nearfar.server.models import Rows, Scores, ServedHead, ServedModel, answers, find_head, unit
from nearfar.server.schemas import Choice, Field, Flag, Group, Inputs, Name, Positive, Text, Texts
from nearfar.server.schemas import Rows as RowsKind
from nearfar.server.service import Call, Service

Values = dict[str, Any]
Answer = Callable[[Service, Call, Values], Awaitable[Any]]

TRUNCATE = Field(
    "truncate", Flag(), "Truncate texts that are longer than the model reads; false refuses them.", default=True
)
DIRECTION = Field("truncation_direction", Choice(names=("right",)), "Long texts are truncated at their end.", "right")
PROMPT = Field("prompt_name", Name(), "Not used: put prompts into the texts.", None)
RAW = Field("raw_scores", Flag(), "Logits instead of probabilities.", default=False)
TASK = Field("task", Name(), "Which task, of a model that was trained on several.", None)
MODEL = Field("model", Name(), "The name of the model; any name is accepted.", None)
DIMENSIONS = Field(
    "dimensions", Positive(), "Keep only the first dimensions of each embedding, scaled to length 1.", None
)


@dataclass(frozen=True)
class Endpoint:
    """A path, what it reads and how it is answered."""

    path: str
    summary: str
    fields: tuple[Field, ...]
    answer: Answer
    example: Values
    result: Any
    """An example of the response."""
    count: Callable[[Values], int] = field(default=lambda values: len(values["inputs"]))
    """How many texts a request has."""


def require_embeddings(model: ServedModel) -> None:
    """Refuse models that read pairs only."""
    if not model.embeds:
        raise wrong_model("this model reads pairs of texts, so it has no embeddings of single ones; try /predict.")


def shortened(vectors: NDArray[np.float32], dimensions: int | None, *, normalize: bool) -> NDArray[np.float32]:
    """(n, d) embeddings as they were asked for."""
    if not np.isfinite(vectors).all():
        raise failed()
    if dimensions is not None:
        if dimensions > vectors.shape[1]:
            raise invalid(f"'dimensions' is {dimensions}, and the embeddings of this model have {vectors.shape[1]}.")
        vectors, normalize = vectors[:, :dimensions], True
    return unit(vectors) if normalize else vectors


def _no_prompt(values: Values) -> None:
    if values.get("prompt_name") is not None:
        raise invalid("this model has no prompts; leave 'prompt_name' out, and put the prompt into the texts.")


async def _embed(service: Service, call: Call, values: Values) -> Any:
    require_embeddings(call.model)
    _no_prompt(values)
    vectors = await service.embed(call, values["inputs"], truncate=values["truncate"])
    return shortened(vectors, values["dimensions"], normalize=values["normalize"]).tolist()


def read_rows(head: ServedHead, inputs: str | list[str] | list[list[str]]) -> tuple[Rows, bool]:
    """The texts or pairs of ``/predict``, and whether they are a list."""
    if isinstance(inputs, str):
        rows, several = [[inputs]], False
    elif isinstance(inputs[0], str):  # a pair, or texts one after the other: the model decides
        several = not head.paired
        rows = [inputs] if head.paired else [[text] for text in inputs]
    else:
        rows, several = inputs, True
    if len(rows[0]) != (2 if head.paired else 1):
        wanted = 'pairs of texts: "inputs": [["left", "right"]]' if head.paired else 'single texts: "inputs": ["text"]'
        raise invalid(f"this model reads {wanted}.")
    return [(row[0], row[1]) for row in rows] if head.paired else [row[0] for row in rows], several


async def _scores(service: Service, call: Call, head: ServedHead, rows: Rows, values: Values) -> list[Scores]:
    outputs = await service.outputs(call, head, rows, truncate=values.get("truncate", True))
    if not np.isfinite(outputs).all():
        raise failed()
    return answers(head, outputs, raw=values["raw_scores"])


def _labeled(scores: Scores) -> list[dict[str, Any]]:
    return [{"score": score, "label": label} for label, score in scores]


async def _predict(service: Service, call: Call, values: Values) -> Any:
    head = find_head(call.model, values["task"])
    rows, several = read_rows(head, values["inputs"])
    found = [_labeled(scores) for scores in await _scores(service, call, head, rows, values)]
    return found if several else found[0]


async def _classify(service: Service, call: Call, values: Values) -> Any:
    head = find_head(call.model, values["task"])
    rows, _ = read_rows(head, values["input"])
    found = await _scores(service, call, head, rows, values)
    return {
        "object": "classify",
        "data": [_labeled(scores) for scores in found],
        "model": service.settings.model_name,
        "usage": usage(call),
        "id": f"nearfar-{uuid.uuid4()}",
        "created": int(time.time()),
    }


def usage(call: Call) -> dict[str, int]:
    """The tokens of a request as OpenAI counts them."""
    return {"prompt_tokens": call.timing.tokens, "total_tokens": call.timing.tokens}


def _rank_head(model: ServedModel, task: str | None) -> ServedHead | None:
    """The head that scores pairs; None for the cosine of embeddings."""
    fitting = [head for head in model.heads if head.paired and head.kind in ("scores", "cosine")]
    if task is not None:
        head = find_head(model, task)
        if head not in fitting:
            raise wrong_model("this task gives no score of a pair of texts; name another, or leave 'task' out.")
        return head
    if len(fitting) == 1:
        return fitting[0]
    if not model.embeds:
        raise wrong_model("this model gives classes of pairs and no scores, so it cannot rank; try /predict.")
    return None


async def _cosines(service: Service, call: Call, query: str, texts: list[str], *, truncate: bool) -> list[float]:
    require_embeddings(call.model)
    vectors = shortened(await service.embed(call, [query, *texts], truncate=truncate), None, normalize=True)
    return np.clip(vectors[1:] @ vectors[0], -1.0, 1.0).tolist()  # type: ignore[no-any-return]


async def _rerank(service: Service, call: Call, values: Values) -> Any:
    query, texts = values["query"], values["texts"]
    head = _rank_head(call.model, values["task"])
    if head is None:
        scores = await _cosines(service, call, query, texts, truncate=values["truncate"])
    else:
        pairs = [(query, text) for text in texts]
        scores = [row[0][1] for row in await _scores(service, call, head, pairs, values)]
    order = sorted(range(len(texts)), key=lambda place: -scores[place])
    shown = values["return_text"]
    return [{"index": place, **({"text": texts[place]} if shown else {}), "score": scores[place]} for place in order]


async def _similarity(service: Service, call: Call, values: Values) -> Any:
    inputs, more = values["inputs"], values["parameters"] or {"truncate": True}
    return await _cosines(service, call, inputs["source_sentence"], inputs["sentences"], truncate=more["truncate"])


async def _tokenize(service: Service, call: Call, values: Values) -> Any:
    _no_prompt(values)
    return await service.tokens(call, values["inputs"], special=values["add_special_tokens"])


def _predictions() -> list[dict[str, Any]]:
    return [{"score": 0.91, "label": "delivery"}, {"score": 0.09, "label": "payment"}]


SENTENCES = (
    Field("source_sentence", Text(), "The text that the others are compared with."),
    Field("sentences", Texts(), "The other texts."),
)
ENDPOINTS = (
    Endpoint(
        "/embed",
        "The embeddings of texts.",
        (
            Field("inputs", Inputs(), "A text or a list of texts."),
            Field("normalize", Flag(), "Scale embeddings to length 1.", default=True),
            DIMENSIONS,
            TRUNCATE,
            DIRECTION,
            PROMPT,
        ),
        _embed,
        {"inputs": ["where is my parcel", "i was charged twice"]},
        [[0.031, -0.127, 0.054], [0.083, 0.022, -0.146]],
    ),
    Endpoint(
        "/predict",
        "The classes of texts or pairs with their scores, the best first.",
        (Field("inputs", RowsKind(), "A text, a list of texts, or a list of pairs."), TASK, RAW, TRUNCATE, DIRECTION),
        _predict,
        {"inputs": "where is my parcel"},
        _predictions(),
        lambda values: 1 if isinstance(values["inputs"], str) else len(values["inputs"]),
    ),
    Endpoint(
        "/rerank",
        "Texts in the order of their similarity to a query: by a task that scores pairs, else by cosine similarity.",
        (
            Field("query", Text(), "What is searched for."),
            Field("texts", Texts(), "The texts to order."),
            Field("return_text", Flag(), "Return the texts, too.", default=False),
            TASK,
            RAW,
            TRUNCATE,
            DIRECTION,
        ),
        _rerank,
        {"query": "late parcel", "texts": ["where is my parcel", "i was charged twice"]},
        [{"index": 0, "score": 0.83}, {"index": 1, "score": 0.12}],
        lambda values: 1 + len(values["texts"]),
    ),
    Endpoint(
        "/similarity",
        "The cosine similarity of a text to others.",
        (
            Field("inputs", Group(fields=SENTENCES), "The texts."),
            Field("parameters", Group(fields=(TRUNCATE, DIRECTION, PROMPT)), "How texts are read.", None),
        ),
        _similarity,
        {"inputs": {"source_sentence": "late parcel", "sentences": ["where is my parcel", "i was charged twice"]}},
        [0.83, 0.12],
        lambda values: 1 + len(values["inputs"]["sentences"]),
    ),
    Endpoint(
        "/tokenize",
        "The tokens of texts.",
        (
            Field("inputs", Inputs(), "A text or a list of texts."),
            Field("add_special_tokens", Flag(), "With the special tokens of the model.", default=True),
            PROMPT,
        ),
        _tokenize,
        {"inputs": "a parcel"},
        [[{"id": 1037, "text": "a", "special": False, "start": 0, "stop": 1}]],
    ),
    Endpoint(
        "/classify",
        "The classes of texts as Infinity answers them.",
        (Field("input", RowsKind(), "A text, a list of texts, or a list of pairs."), MODEL, TASK, RAW),
        _classify,
        {"input": ["where is my parcel"]},
        {
            "object": "classify",
            "data": [_predictions()],
            "model": "model",
            "usage": {"prompt_tokens": 6, "total_tokens": 6},
            "id": "nearfar-d9c0",
            "created": 1_763_424_000,
        },
        lambda values: 1 if isinstance(values["input"], str) else len(values["input"]),
    ),
)


def info(service: Service) -> dict[str, Any]:
    """What ``/info`` answers: the fields of text-embeddings-inference, and the tasks."""
    model, limits = service.slot.current(), service.limits
    labels = model.heads[0].labels if len(model.heads) == 1 else ()
    kind: dict[str, Any] = {"embedding": {"pooling": model.pooling}}
    if labels:
        names = {str(number): label for number, label in enumerate(labels)}
        kind = {"classifier": {"id2label": names, "label2id": {label: int(key) for key, label in names.items()}}}
    return {
        "model_id": service.settings.model_name,
        "model_sha": None,
        "model_dtype": model.dtype,
        "model_type": kind,
        "embedding_size": model.dim if model.embeds else None,
        "tasks": [
            {"name": head.name or None, "kind": head.kind, "pairs": head.paired, "labels": list(head.labels)}
            for head in model.heads
        ],
        "max_concurrent_requests": limits.queue,
        "max_input_length": model.max_length,
        "max_batch_tokens": service.batches.tokens,
        "max_batch_requests": None,
        "max_client_batch_size": limits.texts,
        "auto_truncate": True,
        "tokenization_workers": 1,
        "version": nearfar.__version__,
        "sha": None,
        "docker_label": None,
    }
