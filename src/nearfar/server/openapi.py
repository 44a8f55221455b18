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
PAGES = {
    "/info": "The model and the limits of the server.",
    "/health": "200 if requests are answered, else 503; the same as /health/ready.",
    "/health/ready": "Readiness: 200 if requests are answered, else 503.",
    "/health/live": "Liveness: 200 as long as the process answers.",
    "/metrics": "Counters and histograms for Prometheus.",
    "/v1/models": "The model as OpenAI lists it.",
    "/openapi.json": "This description.",
    "/docs": "This description as a page.",
}


def describe(endpoints: Sequence[Endpoint], *, keyed: bool) -> dict[str, Any]:
    """The OpenAPI document."""
    paths: dict[str, Any] = {endpoint.path: {"post": _operation(endpoint)} for endpoint in endpoints}
    for path, summary in PAGES.items():
        paths[path] = {"get": {"summary": summary, "responses": {"200": {"description": "OK"}}}}
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


def _operation(endpoint: Endpoint) -> dict[str, Any]:
    name = "OpenAIError" if endpoint.path.startswith("/v1/") else "Error"
    fault = {"application/json": {"schema": {"$ref": f"#/components/schemas/{name}"}}}
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
            **{status: {"description": text, "content": fault} for status, text in FAULTS.items()},
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
    return f"<table>{''.join(rows)}</table><pre>{escape(command)}\n\n{escape(json.dumps(answer))}</pre>"
