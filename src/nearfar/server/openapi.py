"""The description of all paths (OpenAPI 3.1), and a page that shows it without any script or other server."""

from __future__ import annotations

import json
from collections.abc import Sequence
from html import escape
from typing import Any

import nearfar
from nearfar.server.endpoints import Endpoint
from nearfar.server.schemas import object_schema

FAULTS = {
    "400": "There is no text, or the body is no JSON.",
    "401": "The API key is missing or wrong.",
    "408": "The body was not complete in time.",
    "413": "The body, a text or the number of texts is too large.",
    "415": "The body is declared to be something else than JSON.",
    "422": "A field is missing or of another type, or something is no text.",
    "424": "The model is of another kind, or failed.",
    "429": "Too many texts wait; the header Retry-After says when to try again.",
    "503": "The model is being loaded, or the server is shutting down.",
    "504": "There was no answer in time.",
}
JSON, READY = "application/json", {"status": "ready"}
CARD = {"id": "model", "object": "model", "created": 1_763_424_000, "owned_by": "nearfar"}
INFO = {
    "model_id": "model", "model_dtype": "float32", "model_type": {"embedding": {"pooling": "mean"}},
    "embedding_size": 384, "tasks": [{"name": "topic", "kind": "classes", "pairs": False, "labels": ["delivery"]}],
    "max_concurrent_requests": 4_096, "max_input_length": 256, "max_batch_tokens": 2_048,
    "max_client_batch_size": 2_048, "auto_truncate": True, "tokenization_workers": 1, "version": nearfar.__version__,
}  # fmt: skip
PAGES: dict[str, tuple[str, str, Any]] = {
    "/info": ("The model and the limits of the server.", JSON, INFO),
    "/health": ("200 if requests are answered, else 503; the same as /health/ready.", JSON, READY),
    "/health/ready": ("Readiness: 200 if requests are answered, else 503.", JSON, READY),
    "/health/live": ("Liveness: 200 as long as the process answers.", JSON, {"status": "alive"}),
    "/metrics": ("Counters and histograms for Prometheus.", "text/plain", "nearfar_ready 1"),
    "/v1/models": ("The model as OpenAI lists it.", JSON, {"object": "list", "data": [CARD]}),
    "/v1/models/{name}": ("The model by its name, or 404.", JSON, CARD),
    "/openapi.json": ("This description.", JSON, {"openapi": "3.1.0"}),
    "/docs": ("This description as a page.", "text/html", "<!doctype html>"),
}
"""The paths that are read with GET: what they give, as what, and an example."""


def describe(endpoints: Sequence[Endpoint], *, keyed: bool) -> dict[str, Any]:
    """The OpenAPI document."""
    paths: dict[str, Any] = {endpoint.path: {"post": _operation(endpoint)} for endpoint in endpoints}
    for path, (summary, media, example) in PAGES.items():
        answer = {"description": "OK", "content": {media: {"schema": _shape(example), "example": example}}}
        operation: dict[str, Any] = {"summary": summary, "responses": {"200": answer}}
        if path.startswith("/health") and path != "/health/live":
            operation["responses"]["503"] = {"description": FAULTS["503"], "content": _fault(path)}
        if "{name}" in path:
            operation["parameters"] = [{"name": "name", "in": "path", "required": True, "schema": {"type": "string"}}]
            operation["responses"]["404"] = {"description": "There is no such model.", "content": _fault(path)}
        paths[path] = {"get": operation}
    error = {"type": "object", "properties": {"error": {"type": "string"}, "error_type": {"type": "string"}}}
    fault = {
        "type": "object",
        "properties": {
            "error": {
                "type": "object",
                "properties": {name: {"type": ["string", "null"]} for name in ("message", "type", "param", "code")},
            }
        },
    }
    components: dict[str, Any] = {"schemas": {"Error": error, "OpenAIError": fault}}
    document: dict[str, Any] = {
        "openapi": "3.1.0",
        "info": {"title": "nearfar", "version": nearfar.__version__, "description": "Embeddings and classes of texts."},
        "paths": paths,
        "components": components,
    }
    if keyed:
        components["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
        document["security"] = [{"key": []}]
    return document


def _fault(path: str) -> dict[str, Any]:
    name = "OpenAIError" if path.startswith("/v1/") else "Error"
    return {JSON: {"schema": {"$ref": f"#/components/schemas/{name}"}}}


def _operation(endpoint: Endpoint) -> dict[str, Any]:
    return {
        "summary": endpoint.summary,
        "operationId": endpoint.path.strip("/").replace("/", "_"),
        "requestBody": {
            "required": True,
            "content": {"application/json": {"schema": object_schema(endpoint.fields), "example": endpoint.example}},
        },
        "responses": {
            "200": {
                "description": "OK",
                "content": {"application/json": {"schema": _shape(endpoint.result), "example": endpoint.result}},
            },
            **{status: {"description": text, "content": _fault(endpoint.path)} for status, text in FAULTS.items()},
        },
    }


def _shape(value: Any) -> dict[str, Any]:
    """The schema of a response, by its example."""
    if isinstance(value, dict):
        return {"type": "object", "properties": {name: _shape(inner) for name, inner in value.items()}}
    if isinstance(value, list):
        return {"type": "array", "items": _shape(value[0])}
    if isinstance(value, bool):
        return {"type": "boolean"}
    return {"type": "integer" if isinstance(value, int) else "number" if isinstance(value, float) else "string"}


STYLE = """
:root { color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif; }
body { max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
h2 { margin-top: 2.5rem; font-size: 1.15rem; } code, pre { font: 0.9em ui-monospace, monospace; }
pre { overflow-x: auto; padding: 0.75rem; border: 1px solid #8886; border-radius: 4px; }
table { border-collapse: collapse; } th, td { text-align: left; vertical-align: top; padding: 0.25rem 1rem 0.25rem 0; }
@media (max-width: 40rem) { .fields tr, .fields td { display: block; padding: 0; } .fields tr { margin: 0.75rem 0; } }
"""


def render_page(document: dict[str, Any]) -> str:
    """The document as a page of HTML."""
    parts = []
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            parts.append(f"<h2><code>{method.upper()} {escape(path)}</code></h2><p>{escape(operation['summary'])}</p>")
            if method == "post":
                parts.append(_request(path, operation))
    rows = "".join(f"<tr><td>{status}<td>{escape(text)}" for status, text in FAULTS.items())
    title = f"{document['info']['title']} {document['info']['version']}"
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{escape(title)}</title>'
        f'<meta name="viewport" content="width=device-width"><style>{STYLE}</style><h1>{escape(title)}</h1>'
        '<p>All paths of this server; <a href="openapi.json">openapi.json</a> has the same for programs.</p>'
        f"{''.join(parts)}<h2>Refused requests</h2><p>The body is <code>"
        f"{escape(json.dumps({'error': 'a sentence', 'error_type': 'Validation'}))}</code>, below <code>/v1</code> as "
        f"OpenAI has it.</p><table>{rows}</table></html>\n"
    )


def _request(path: str, operation: dict[str, Any]) -> str:
    content = operation["requestBody"]["content"]["application/json"]
    required = content["schema"]["required"]
    rows = []
    for name, field in content["schema"]["properties"].items():
        default = "required" if name in required else f"default {json.dumps(field.get('default'))}"
        rows.append(f"<tr><td><code>{escape(name)}</code><td>{escape(default)}<td>{escape(field['description'])}")
    answer = operation["responses"]["200"]["content"]["application/json"]["example"]
    command = f"curl SERVER{path} -H 'Content-Type: application/json' -d '{json.dumps(content['example'])}'"
    return f"<table class='fields'>{''.join(rows)}</table><pre>{escape(command)}\n\n{escape(json.dumps(answer))}</pre>"
