"""Every path gives what the model itself gives, in the form of the convention, and refuses what does not fit."""

from __future__ import annotations

import asyncio
import base64
import json
import shutil
from typing import Any

import numpy as np
import pytest
from starlette.testclient import TestClient
from tests.server.conftest import CLASSES, PAIRS, TEXTS, client_of
from typer.testing import CliRunner

import nearfar
from nearfar.cli.app import app
from nearfar.errors import SettingError
from nearfar.server import Limits, Settings, application


def ask(client, path, **body):
    response = client.post(path, json=body)
    assert response.status_code == 200, response.text
    return response.json()


def refused(client, path, status, kind, body, **more):
    response = client.post(path, json=body, **more)
    assert response.status_code == status, response.text
    assert response.json()["error_type"] == kind
    assert len(response.json()["error"]) > 20
    return response.json()["error"]


def unit(vectors):
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def test_embeddings_are_those_of_the_model(classes, classes_folder):
    """As they are, scaled, cut and scaled, and as OpenAI has them, also as base64."""
    own = nearfar.load(classes_folder).embed(TEXTS)
    raw = ask(classes, "/embed", inputs=TEXTS, normalize=False)
    assert np.allclose(raw, own, atol=1e-6)
    assert np.allclose(ask(classes, "/embed", inputs=TEXTS), unit(own), atol=1e-6)
    assert np.allclose(ask(classes, "/embed", inputs=TEXTS[0]), unit(own)[:1], atol=1e-6)
    assert np.allclose(ask(classes, "/embed", inputs=TEXTS, dimensions=7), unit(own[:, :7]), atol=1e-6)
    answer = ask(classes, "/v1/embeddings", input=TEXTS, model="any", user="somebody")
    assert [row["index"] for row in answer["data"]] == [0, 1, 2, 3]
    assert np.allclose([row["embedding"] for row in answer["data"]], unit(own), atol=1e-6)
    assert answer["object"] == "list"
    assert answer["model"] == "classes"
    tokens = sum(len(row) for row in ask(classes, "/tokenize", inputs=TEXTS))
    assert answer["usage"] == {"prompt_tokens": tokens, "total_tokens": tokens}
    coded = ask(classes, "/v1/embeddings", input=TEXTS[0], encoding_format="base64")["data"][0]["embedding"]
    assert np.allclose(np.frombuffer(base64.b64decode(coded), dtype="<f4"), unit(own)[0], atol=1e-6)


def test_classes_with_probabilities(classes, classes_folder):
    """All classes, the best first; one text gives one list; logits on demand; /classify has the same."""
    model = nearfar.load(classes_folder)
    chances = model.predict_proba(TEXTS)
    many = ask(classes, "/predict", inputs=[[text] for text in TEXTS])
    for row, scores in zip(chances, many, strict=True):
        assert {one["label"]: one["score"] for one in scores} == pytest.approx(
            dict(zip(model.classes_, row.tolist(), strict=True)), abs=1e-5
        )
        assert scores[0]["score"] >= scores[1]["score"]
    assert ask(classes, "/predict", inputs=TEXTS[0])[0]["label"] == many[0][0]["label"]
    assert [row[0]["label"] for row in ask(classes, "/predict", inputs=TEXTS)] == [row[0]["label"] for row in many]
    raw = ask(classes, "/predict", inputs=TEXTS[0], raw_scores=True)
    odds = np.exp(raw[0]["score"] - raw[1]["score"])
    assert odds / (1 + odds) == pytest.approx(many[0][0]["score"], abs=1e-5)
    answer = ask(classes, "/classify", input=TEXTS, model="any")
    assert answer["object"] == "classify"
    assert [row[0]["label"] for row in answer["data"]] == [row[0]["label"] for row in many]
    assert answer["usage"]["total_tokens"] > 8


def test_pairs_several_labels_and_tasks(folders):
    """Heads of every kind answer, and those that read something else refuse."""
    own = nearfar.load(folders["pairs"])
    with client_of(folders["pairs"]) as client:
        answer = ask(client, "/predict", inputs=[list(pair) for pair in PAIRS])
        assert [row[0]["label"] for row in answer] == own.predict(PAIRS).tolist()
        assert ask(client, "/predict", inputs=list(PAIRS[0]))[0]["label"] == answer[0][0]["label"]
        refused(client, "/predict", 422, "Validation", {"inputs": "one text"})
        assert "pairs" in refused(client, "/embed", 424, "Backend", {"inputs": "one text"})
        refused(client, "/rerank", 424, "Backend", {"query": "a", "texts": ["b"]})
        refused(client, "/similarity", 424, "Backend", {"inputs": {"source_sentence": "a", "sentences": ["b"]}})
    with client_of(folders["several"]) as client:
        chances = nearfar.load(folders["several"]).predict_proba([TEXTS[0]])[0]
        assert sum(one["score"] for one in ask(client, "/predict", inputs=TEXTS[0])) == pytest.approx(chances.sum())
    tasks: Any = nearfar.load(folders["tasks"])
    with client_of(folders["tasks"]) as client:
        answer = ask(client, "/predict", inputs=TEXTS, task="things")
        assert [row[0]["label"] for row in answer] == tasks.predict(TEXTS, task="things").tolist()
        scores = ask(client, "/predict", inputs=[list(pair) for pair in PAIRS], task="alike")
        assert [row[0]["score"] for row in scores] == pytest.approx(
            tasks.predict(PAIRS, task="alike").tolist(), abs=1e-5
        )
        ranked = ask(client, "/rerank", query="an apple", texts=["a saw", "a plum"])
        pairs = [("an apple", "a saw"), ("an apple", "a plum")]
        expected = tasks.predict(pairs, task="alike")
        assert [row["index"] for row in ranked] == np.argsort(-expected).tolist()
        assert [row["score"] for row in ranked] == pytest.approx(sorted(expected, reverse=True), abs=1e-5)
        assert "things, alike" in refused(client, "/predict", 422, "Validation", {"inputs": "a"})
        assert "'things'" in refused(client, "/predict", 422, "Validation", {"inputs": "a", "task": "thing"})
        refused(client, "/rerank", 424, "Backend", {"query": "a", "texts": ["b"], "task": "things"})
        assert {task["name"] for task in client.get("/info").json()["tasks"]} == {"things", "alike"}


def test_an_encoder_has_no_classes_and_ranks_by_cosine(folders):
    """424 for the wrong kind of model; the order is that of the cosines."""
    with client_of("toy", name="small") as client:
        for path, body in (("/predict", {"inputs": "a"}), ("/classify", {"input": ["a"]})):
            assert "no class head" in refused(client, path, 424, "Backend", body)
        vectors = unit(nearfar.load("toy").embed(["a saw", *TEXTS]))
        cosines = vectors[1:] @ vectors[0]
        body = {"inputs": {"source_sentence": "a saw", "sentences": TEXTS}, "parameters": {"truncate": True}}
        assert ask(client, "/similarity", **body) == pytest.approx(cosines.tolist(), abs=1e-5)
        ranked = ask(client, "/rerank", query="a saw", texts=TEXTS, return_text=True)
        assert [row["text"] for row in ranked] == [TEXTS[place] for place in np.argsort(-cosines)]
        assert "text" not in ask(client, "/rerank", query="a saw", texts=TEXTS)[0]
        info = client.get("/info").json()
        assert info["model_id"] == "small"
        assert info["model_type"] == {"embedding": {"pooling": "mean"}}
        assert info["embedding_size"] == 64


@pytest.mark.parametrize("kind", ["onnx", "static"])
def test_an_exported_model_is_served_without_torch(kind, folders, classes, tmp_path):
    """The same answers as the export itself gives; an ONNX graph gives those of the model."""
    target = str(tmp_path / "exported")
    rows = tmp_path / "rows.csv"
    rows.write_text("text,label\n" + "".join(f"{row},{label}\n" for row, label in zip(TEXTS, CLASSES, strict=True)))
    more = ["--data", str(rows), "--force"] if kind == "static" else []
    done = CliRunner().invoke(app, ["export", folders["classes"], "--to", kind, "--out", target, *more])
    assert done.exit_code == 0, done.output
    own = nearfar.load(target)
    with client_of(target) as client:
        assert np.allclose(ask(client, "/embed", inputs=TEXTS), unit(own.embed(TEXTS)), atol=1e-5)
        answer = ask(client, "/predict", inputs=TEXTS)
        assert [row[0]["label"] for row in answer] == list(own.predict(TEXTS))
        assert [row[0]["score"] for row in answer] == pytest.approx(own.predict_proba(TEXTS).max(axis=1), abs=1e-5)
        assert len(ask(client, "/tokenize", inputs="a saw")[0]) >= 2
        if kind == "onnx":
            assert np.allclose(ask(client, "/embed", inputs=TEXTS), ask(classes, "/embed", inputs=TEXTS), atol=0.02)
            assert ask(client, "/tokenize", inputs="a saw") == ask(classes, "/tokenize", inputs="a saw")
            refused(client, "/embed", 413, "Validation", {"inputs": "word " * 900, "truncate": False})


def test_tokens_have_places(classes):
    """Ids, words and places in the text; special tokens are at no place, and can be left out."""
    (row,) = ask(classes, "/tokenize", inputs="a saw")
    assert row[0] == {"id": 2, "text": "[CLS]", "special": True, "start": None, "stop": None}
    assert "".join("a saw"[token["start"] : token["stop"]] for token in row[1:-1]) == "asaw"
    assert ask(classes, "/tokenize", inputs=["a saw"], add_special_tokens=False) == [row[1:-1]]


@pytest.mark.parametrize("kind", ["classes", "tasks"])
def test_a_folder_that_is_written_over_does_not_change_the_model_in_memory(kind, folders, tmp_path):
    """Files that are copied over others keep their place on the disk; a mapped one would change, or end the process."""
    folder = shutil.copytree(folders[kind], tmp_path / "model")
    body = {"inputs": TEXTS, **({"task": "things"} if kind == "tasks" else {})}
    with client_of(str(folder), watch=0) as client:
        for path in folder.rglob("*.safetensors"):  # before the weights have been used
            with path.open("r+b") as file:
                file.write(bytes(path.stat().st_size))
        answer = ask(client, "/predict", **body)
    with client_of(folders[kind]) as client:
        assert answer == ask(client, "/predict", **body)


NOT_TEXT = {"inputs": [1]}
REFUSED = {
    "no field": (422, "Validation", {}),
    "no object": (422, "Validation", ["a"]),
    "an empty list": (400, "Empty", {"inputs": []}),
    "an empty text": (400, "Empty", {"inputs": ["a", ""]}),
    "a number": (422, "Validation", {"inputs": 1.5}),
    "token ids": (422, "Tokenizer", NOT_TEXT),
    "lists of token ids": (422, "Tokenizer", {"inputs": [[1, 2]]}),
    "null in a list": (422, "Tokenizer", {"inputs": [None]}),
    "an object in a list": (422, "Tokenizer", {"inputs": [{"text": "a"}]}),
    "a wrong flag": (422, "Validation", {"inputs": "a", "normalize": 1}),
    "too many dimensions": (422, "Validation", {"inputs": "a", "dimensions": 65}),
    "no dimensions": (422, "Validation", {"inputs": "a", "dimensions": 0}),
    "another direction": (422, "Validation", {"inputs": "a", "truncation_direction": "Left"}),
    "a prompt": (422, "Validation", {"inputs": "a", "prompt_name": "query"}),
    "too many texts": (413, "Validation", {"inputs": ["a"] * 2_049}),
    "too many characters": (413, "Validation", {"inputs": "a" * 200_001}),
    "too many tokens": (413, "Validation", {"inputs": "word " * 900, "truncate": False}),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_refused(classes, case):
    """The status and kind of text-embeddings-inference, with a sentence."""
    status, kind, body = REFUSED[case]
    refused(classes, "/embed", status, kind, body)


def test_bodies_that_are_no_json(classes):
    """400 for malformed ones, 422 for half a surrogate pair, 415 for other types, 413 for large ones."""
    kind = {"content-type": "application/json"}
    bodies = [b"", b" ", b"{", b"\xff\xfe", b"[" * 100_000, b'{"inputs": ' + b"1" * 5_000 + b"}", b'{"inputs": "\x00"}']
    assert [classes.post("/embed", content=body, headers=kind).status_code for body in bodies] == [400] * 7
    half = json.dumps({"inputs": "\ud800"})
    assert classes.post("/embed", content=half, headers=kind).status_code == 422
    assert classes.post("/embed", data={"inputs": "a"}).status_code == 415
    large = json.dumps({"inputs": ["a" * 100] * 40_000})
    assert classes.post("/embed", content=large, headers=kind).status_code == 413
    streamed = classes.post("/embed", content=(b" " * 1_000_000 for _ in range(5)), headers=kind)
    assert streamed.status_code == 413
    assert "4,000,000 bytes" in streamed.json()["error"]


WORDS = {
    "nothing": ("/embed", b"", "the body is empty"),
    "half of it": ("/embed", b'{"inputs": ["a"', "at line 1, column 16"),
    "another encoding": ("/embed", '{"inputs": "é"}'.encode("latin-1"), "not encoded as UTF-8"),
    "a long number": ("/embed", b'{"inputs": ' + b"1" * 5_000 + b"}", "too many digits"),
    "a number": ("/embed", b'{"inputs": 3}', "'inputs' must be a text or a list of texts."),
    "the name of other paths": ("/embed", b'{"input": "a"}', "calls it 'input', as other paths do"),
    "another direction": ("/embed", b'{"inputs": "a", "truncation_direction": "left"}', "must be 'right'."),
    "a pair": ("/predict", b'{"inputs": [["a", "b"]]}', "this model reads single texts"),
    "another path": ("/embeddings", b"{}", "there is no such path; GET /docs lists all paths."),
    "another method": ("/info", b"{}", "this path has another method: GET"),
}


@pytest.mark.parametrize("case", WORDS)
def test_what_is_wrong_is_said(classes, case):
    """What was found, and what to send instead."""
    path, body, words = WORDS[case]
    answer = classes.post(path, content=body, headers={"content-type": "application/json"})
    assert words in answer.json()["error"]


@pytest.mark.parametrize("origin", ["page.example", "https://page.example/", "https://a b", ""])
def test_an_origin_is_written_as_browsers_send_it(origin):
    """Another one would never be met, and nobody would know why."""
    with pytest.raises(SettingError, match="is no origin of web pages"):
        Settings("toy", origins=(origin,))


def test_errors_below_v1_are_those_of_openai(classes):
    """An object with message, type, param and code."""
    error = classes.post("/v1/embeddings", json={"input": ""}).json()["error"]
    assert error == {"message": "'input' is empty; leave empty texts out.", "type": "invalid_request_error",
                     "param": None, "code": "Empty"}  # fmt: skip
    assert classes.get("/v1/models/other").json()["error"]["type"] == "not_found_error"
    assert classes.get("/v1/models/classes").json() == classes.get("/v1/models").json()["data"][0]
    assert classes.get("/embed").status_code == 405
    assert classes.get("/embed").headers["allow"] == "POST"
    assert classes.get("/none").json()["error_type"] == "Validation"


def test_a_key_is_needed_everywhere_but_for_probes():
    """401 without a key, with another one and with another scheme; any of the keys opens."""
    with client_of("toy", keys=("first-key", "second-key")) as client:
        for header in ({}, {"authorization": "Bearer no"}, {"authorization": "Basic first-key"}):
            for path in ("/metrics", "/docs", "/v1/models", "/none"):
                assert client.get(path, headers=header).status_code == 401
            answer = client.post("/embed", json={"inputs": "a"}, headers=header)
            assert answer.status_code == 401
            assert answer.headers["www-authenticate"] == "Bearer"
        assert client.get("/health").status_code == client.get("/health/live").status_code == 200
        for key in ("first-key", "second-key"):
            header = {"authorization": f"Bearer {key}"}
            assert client.post("/embed", json={"inputs": "a"}, headers=header).status_code == 200
        assert "securitySchemes" in client.get("/openapi.json", headers=header).json()["components"]


def test_other_origins_are_refused_unless_they_are_named():
    """No CORS headers by default; with an origin, for that one alone."""
    ask_first = {"origin": "https://page.example", "access-control-request-method": "POST"}
    with client_of("toy") as client:
        assert "access-control-allow-origin" not in client.get("/health", headers=ask_first).headers
        assert client.options("/embed", headers=ask_first).status_code == 405
    with client_of("toy", origins=("https://page.example",)) as client:
        allowed = client.options("/embed", headers=ask_first).headers
        assert allowed["access-control-allow-origin"] == "https://page.example"
        other = client.get("/health", headers={"origin": "https://other.example"}).headers
        assert "access-control-allow-origin" not in other


def test_the_documentation_needs_no_other_server(classes):
    """All paths, the fields of each, and no address, script or image in the page."""
    document = classes.get("/openapi.json").json()
    page = classes.get("/docs")
    assert page.headers["content-security-policy"].startswith("default-src 'none'")
    for path in ("/v1/embeddings", "/embed", "/predict", "/rerank", "/similarity", "/tokenize", "/classify"):
        content = document["paths"][path]["post"]["requestBody"]["content"]["application/json"]
        assert path in page.text
        assert all(name in page.text for name in content["schema"]["properties"])
        assert classes.post(path, json=content["example"]).status_code == 200
    assert "//" not in page.text.replace("<!doctype html>", "")
    assert "<script" not in page.text
    assert "<img" not in page.text


def test_answers_have_what_the_documentation_says(classes):
    """The media type and all fields of every path, those that are read with GET, too."""
    document = classes.get("/openapi.json").json()
    assert "/v1/models/{name}" in document["paths"]

    def check(schema, value, place):
        if schema["type"] == "object":
            for name, inner in schema["properties"].items():
                assert name in value, (place, name)
                if value[name] is not None:
                    check(inner, value[name], f"{place}.{name}")
        elif schema["type"] == "array":
            check(schema["items"], value[0], f"{place}[0]")
        else:
            kinds = {"string": str, "boolean": bool, "integer": int, "number": float}
            assert isinstance(value, kinds[schema["type"]]), (place, value)

    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            ((media, content),) = operation["responses"]["200"]["content"].items()
            body = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("example")
            answer = classes.request(method, path.replace("{name}", "classes"), json=body)
            assert answer.status_code == 200, (path, answer.text)
            assert answer.headers["content-type"].startswith(media), path
            if media == "application/json" and path != "/info":  # of /info, each kind of model has other fields
                check(content["schema"], answer.json(), path)
            elif path == "/info":
                assert set(content["schema"]["properties"]) <= set(answer.json())


def test_metrics_and_logs_have_no_texts(classes, caplog):
    """Requests, texts and tokens are counted; a log line says everything but the texts."""
    secret = "a very secret parcel"
    with caplog.at_level("INFO", logger="nearfar.server"):
        ask(classes, "/embed", inputs=[secret, secret])
        classes.post("/embed", json={"inputs": [secret, 1]})
        classes.get(f"/{secret}")
    assert [record.status for record in caplog.records] == [200, 422, 404]
    assert caplog.records[0].texts == 2
    assert caplog.records[0].tokens > 8
    assert "secret" not in "".join(str(vars(record)) for record in caplog.records)
    text = classes.get("/metrics").text
    assert "secret" not in text
    assert 'nearfar_requests_total{path="other",status="404"} ' in text
    assert 'nearfar_texts_total{path="/embed"} ' in text
    assert "nearfar_queue_texts 0\n" in text
    assert classes.get("/metrics").headers["content-type"].startswith("text/plain; version=0.0.4")


def test_before_the_model_is_loaded_the_process_is_alive_but_not_ready(monkeypatch):
    """503 with Retry-After until then; a fault of the server is a 500 that tells nothing."""
    started: Any = application(Settings("toy", watch=0))
    client = TestClient(started, raise_server_exceptions=False)  # without its start, nothing is loaded
    assert client.get("/health/live").status_code == 200
    for answer in (client.get("/health"), client.post("/embed", json={"inputs": "a"})):
        assert answer.status_code == 503
        assert answer.headers["retry-after"] == "1"
        assert answer.json()["error_type"] == "Unhealthy"
    monkeypatch.setattr("nearfar.server.app.info", lambda _: 1 / 0)
    answer = client.get("/info")
    assert answer.status_code == 500
    assert "division" not in answer.text
    started.service.close()


def test_limits_that_contradict_each_other_are_refused():
    """With a sentence each."""
    with pytest.raises(SettingError, match="could never be accepted"):
        Limits(queue=10, texts=11)
    with pytest.raises(SettingError, match="time limit"):
        Limits(timeout=0)
    with pytest.raises(SettingError, match="body must be 1 or more"):
        Limits(body=0)
    with pytest.raises(SettingError, match="port"):
        Settings("toy", port=70_000)
    with pytest.raises(SettingError, match="API key"):
        Settings("toy", keys=("two words",))


@pytest.mark.parametrize(("words", "logged"), [("on <TCPTransport>; the handler is closed", 0), ("another fault", 1)])
def test_a_connection_that_uvloop_finds_closed_is_no_fault_of_the_server(caplog, words, logged):
    """It raises RuntimeError where other event loops raise ConnectionError."""
    app: Any = application(Settings("toy", watch=0))

    async def send(_: Any) -> None:
        raise RuntimeError(words)

    async def ask() -> None:
        await app({"type": "http", "path": "/health/live", "method": "GET", "headers": []}, None, send)

    asyncio.run(ask())
    assert sum(record.message == "a request failed" for record in caplog.records) == logged
    app.service.close()
