"""A plain server: FastAPI and ``SentenceTransformer.encode``, one call a request in FastAPI's threads."""

from __future__ import annotations

import sys

import uvicorn
from fastapi import FastAPI
from pydantic import BaseModel
from sentence_transformers import SentenceTransformer


class Inputs(BaseModel):
    inputs: str | list[str]


def make(encoder: str) -> FastAPI:
    app = FastAPI()
    model = SentenceTransformer(encoder, device="cpu")

    @app.post("/embed")
    def embed(request: Inputs) -> list[list[float]]:
        texts = [request.inputs] if isinstance(request.inputs, str) else request.inputs
        return model.encode(texts, normalize_embeddings=True, show_progress_bar=False).tolist()

    @app.get("/health")
    def health() -> dict[str, str]:
        return {"status": "ready"}

    return app


if __name__ == "__main__":
    uvicorn.run(make(sys.argv[1]), port=int(sys.argv[2]), log_level="warning", access_log=False)
