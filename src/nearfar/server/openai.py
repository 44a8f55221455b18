"""The endpoints of OpenAI below ``/v1``: embeddings and models."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np

from nearfar.server.endpoints import DIMENSIONS, MODEL, Endpoint, Values, require_embeddings, shortened, usage
from nearfar.server.schemas import Choice, Field, Inputs, Name
from nearfar.server.service import Call, Service


async def _embeddings(service: Service, call: Call, values: Values) -> Any:
    require_embeddings(call.model)
    vectors = shortened(await service.embed(call, values["input"]), values["dimensions"], normalize=True)
    if values["encoding_format"] == "base64":
        rows = np.ascontiguousarray(vectors, dtype="<f4")
        shown: list[Any] = [base64.b64encode(row.tobytes()).decode("ascii") for row in rows]
    else:
        shown = vectors.tolist()
    data = [{"object": "embedding", "index": place, "embedding": row} for place, row in enumerate(shown)]
    return {"object": "list", "data": data, "model": service.settings.model_name, "usage": usage(call)}


EMBEDDINGS = Endpoint(
    "/v1/embeddings",
    "The embeddings of texts as OpenAI answers them, scaled to length 1.",
    (
        Field("input", Inputs(), "A text or a list of texts."),
        MODEL,
        Field("encoding_format", Choice(names=("float", "base64")), "Numbers, or float32 bytes as base64.", "float"),
        DIMENSIONS,
        Field("user", Name(), "Not used.", None),
    ),
    _embeddings,
    {"input": ["where is my parcel"], "model": "model"},
    {
        "object": "list",
        "data": [{"object": "embedding", "index": 0, "embedding": [0.031, -0.127, 0.054]}],
        "model": "model",
        "usage": {"prompt_tokens": 6, "total_tokens": 6},
    },
    lambda values: len(values["input"]),
)


def model_card(service: Service) -> dict[str, Any]:
    """The model as ``/v1/models`` lists it."""
    created = int(service.slot.loaded_at)
    return {"id": service.settings.model_name, "object": "model", "created": created, "owned_by": "nearfar"}
