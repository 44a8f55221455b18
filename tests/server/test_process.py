"""A server that is really started: clients of others, clients that misbehave, reload, start and stop."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import numpy as np
import openai
import pytest
from tests.server.conftest import TEXTS

import nearfar
from nearfar.errors import EncoderError, SettingError
from nearfar.server import Limits, Settings, background, read_keys
from nearfar.server import process as processes

LIMITS = Limits(queue=64, texts=32, timeout=3.0, body=100_000)


@pytest.fixture(scope="module")
def address(folders, tmp_path_factory):
    """A server of a copy of the classifier, which is looked at often."""
    place = tmp_path_factory.mktemp("live") / "model"
    shutil.copytree(folders["classes"], place)
    with background(Settings(str(place), port=0, limits=LIMITS, watch=0.05)) as found:
        yield found


def sent(address: str, data: bytes) -> socket.socket:
    """A connection on which some bytes were sent."""
    host, _, port = address.removeprefix("http://").partition(":")
    connection = socket.create_connection((host, int(port)), timeout=20)
    connection.sendall(data)
    return connection


def post(body: bytes, length: int | None = None) -> bytes:
    size = len(body) if length is None else length
    return b"POST /embed HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (
        size,
        body,
    )


def sample(address: str, name: str) -> float:
    """A metric without labels."""
    lines = httpx.get(f"{address}/metrics").text.splitlines()
    return float(next(line.split()[1] for line in lines if line.startswith(f"{name} ")))


def test_the_client_of_openai(address, classes_folder):
    """Embeddings, which it asks for as base64, dimensions, models, and its own exceptions."""
    own = nearfar.load(classes_folder).embed(TEXTS)
    own /= np.linalg.norm(own, axis=1, keepdims=True)
    with openai.OpenAI(base_url=f"{address}/v1", api_key="none", max_retries=0) as client:
        answer = client.embeddings.create(model="model", input=TEXTS)
        assert np.allclose([row.embedding for row in answer.data], own, atol=1e-6)
        assert answer.usage.total_tokens > 8
        assert answer.model == "model"
        numbers = client.embeddings.create(model="model", input=TEXTS[0], encoding_format="float", dimensions=5)
        assert np.linalg.norm(numbers.data[0].embedding) == pytest.approx(1, abs=1e-5)
        assert [model.id for model in client.models.list()] == ["model"]
        with pytest.raises(openai.BadRequestError, match="is empty"):
            client.embeddings.create(model="model", input="")
        with pytest.raises(openai.UnprocessableEntityError, match="token ids"):
            client.embeddings.create(model="model", input=[[1, 2, 3]])


def test_many_clients_at_once_each_get_their_own(address):
    """Texts of all requests are mixed in batches, and come back to those who sent them."""
    texts = [f"{text} number {number}" for number in range(40) for text in TEXTS]
    with httpx.Client(base_url=address, timeout=20) as client:
        alone = {text: client.post("/embed", json={"inputs": text}).json()[0] for text in texts[:20]}

        def ask(text: str) -> bool:
            found = client.post("/embed", json={"inputs": [text, "another"]})
            return found.status_code == 200 and np.allclose(found.json()[0], alone[text], atol=1e-5)

        with ThreadPoolExecutor(16) as pool:
            assert all(pool.map(ask, list(alone) * 5))
    assert sample(address, "nearfar_queue_texts") == 0


def test_too_many_texts_at_once_are_refused_with_a_time(address):
    """429 with Retry-After, and everything that was accepted is answered."""
    with httpx.Client(base_url=address, timeout=20) as client, ThreadPoolExecutor(12) as pool:
        body = {"inputs": ["word " * 300] * 32}
        answers = list(pool.map(lambda _: client.post("/embed", json=body), range(24)))
    assert {answer.status_code for answer in answers} <= {200, 429, 504}
    assert any(answer.status_code == 200 for answer in answers)
    refused = [answer for answer in answers if answer.status_code == 429]
    assert refused
    assert all(int(answer.headers["retry-after"]) >= 1 for answer in refused)
    assert sample(address, "nearfar_queue_texts") == 0


def test_clients_that_go_away_leave_nothing_behind(address):
    """Before, within and after their request; the server goes on."""
    whole = post(json.dumps({"inputs": ["word " * 200] * 8}).encode())
    for cut in (0, 10, 100, len(whole) - 5, len(whole)):
        connection = sent(address, whole[:cut])
        connection.setsockopt(
            socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0"
        )  # a reset, as of a killed process
        connection.close()
    assert httpx.post(f"{address}/embed", json={"inputs": "a"}, timeout=20).status_code == 200
    until = time.monotonic() + 10
    while sample(address, "nearfar_queue_texts") and time.monotonic() < until:
        time.sleep(0.02)
    assert sample(address, "nearfar_queue_texts") == 0


def test_slow_clients_are_cut_off(address, monkeypatch):
    """A body that never ends is answered with 408; a header that never ends is closed."""
    monkeypatch.setattr("nearfar.server.protocol.GRACE", 0.5)
    began = time.monotonic()
    with sent(address, post(b'{"inputs": ', 500)) as body, sent(address, b"POST /embed HTTP/1.1\r\nHost") as header:
        assert b" 408 " in body.recv(1_000)
        with contextlib.suppress(ConnectionResetError):
            assert header.recv(1_000) == b""
    assert time.monotonic() - began < 15


@pytest.mark.parametrize(
    "data",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", b"GET\r\n\r\n", b"GET / HTTP/1.1\r\nbroken\r\n\r\n",
        b"GET / HTTP/1.1\r\nhost: a\r\nx: " + b"y" * 200_000, b"POST /embed HTTP/1.1\r\nhost: a\r\ncontent-length: -1\r\n\r\n",
    ],
    ids=["TLS", "no version", "no colon", "a huge header", "a negative length"],
)  # fmt: skip
def test_what_is_no_http_is_refused(address, data):
    with contextlib.suppress(ConnectionError), sent(address, data) as connection:
        assert b" 400 " in connection.recv(1_000)


def test_a_header_without_an_end_is_refused_before_it_fills_the_memory(address):
    """Also one that comes in small parts; the limit holds for a header alone, not for the bodies of many requests."""
    body = post(b'{"inputs": "' + b"a " * 30_000 + b'"}')
    with sent(address, body) as connection:
        assert b" 200 " in connection.recv(1_000)
    with sent(address, b"GET / HTTP/1.1\r\nhost: a\r\n") as connection, contextlib.suppress(ConnectionError):
        for _ in range(1_000):
            connection.sendall(b"x: " + b"y" * 1_000 + b"\r\n")
        assert b" 400 " in connection.recv(1_000)


def test_a_changed_folder_is_loaded_without_losing_a_request(folders, tmp_path):
    """Requests run on all the time; the answers change from the one model to the other, and none fails."""
    current = tmp_path / "current"
    current.symlink_to(folders["classes"])
    stop = threading.Event()
    statuses: list[tuple[int, int]] = []
    with background(Settings(str(current), port=0, watch=0.05)) as address, httpx.Client(base_url=address) as client:

        def ask() -> None:
            while not stop.is_set():
                answer = client.post("/predict", json={"inputs": "a saw"}, timeout=30)
                statuses.append((answer.status_code, len(answer.json())))

        def wait_for(condition: Any) -> None:
            until = time.monotonic() + 60
            while not condition():
                assert time.monotonic() < until, httpx.get(f"{address}/metrics").text
                time.sleep(0.02)

        threads = [threading.Thread(target=ask) for _ in range(3)]
        for thread in threads:
            thread.start()
        try:
            link = tmp_path / "next"
            link.symlink_to(folders["several"])
            os.replace(link, current)
            wait_for(lambda: statuses[-1:] == [(200, 3)])
            broken = tmp_path / "broken"
            shutil.copytree(folders["classes"], broken)
            (broken / "nearfar.json").write_text("{")
            link.symlink_to(broken)
            os.replace(link, current)
            reloads = 'nearfar_model_reloads_total{result="failed"} 1'
            wait_for(lambda: reloads in client.get("/metrics").text)
            assert client.get("/health").status_code == 200
        finally:
            stop.set()
            for thread in threads:
                thread.join()
    assert set(statuses) == {(200, 2), (200, 3)}


def test_what_cannot_be_served_is_said_before(tmp_path):
    """A folder without a model, a port in use, keys that cannot be read."""
    with pytest.raises(EncoderError), background(Settings(str(tmp_path), port=0)):
        pass
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(SettingError, match="cannot be used"):
        processes.listen(Settings("toy", port=taken.getsockname()[1]))
    with pytest.raises(SettingError, match="none: there is no such file; it has the API keys"):
        read_keys(tmp_path / "none")
    with pytest.raises(SettingError, match=r"cannot be read \(Is a directory\)"):
        read_keys(tmp_path)
    (tmp_path / "keys").write_bytes(b"\xff\xfe")
    with pytest.raises(SettingError, match="not UTF-8"):
        read_keys(tmp_path / "keys")
    (tmp_path / "keys").write_text("# old\n\n")
    with pytest.raises(SettingError, match="no API key"):
        read_keys(tmp_path / "keys")
    (tmp_path / "keys").write_text("# old\nfirst\n second \n")
    assert read_keys(tmp_path / "keys") == ("first", "second")


def start(*words: str) -> tuple[subprocess.Popen[str], str]:
    """The command in a process of its own, and its address."""
    process = subprocess.Popen(
        [sys.executable, "-m", "nearfar", "serve", *words, "--port", "0"], stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    line = process.stderr.readline()
    while line and not line.startswith("serving"):
        line = process.stderr.readline()
    return process, line.split()[3] if line else ""


def wait_until_ready(address: str) -> None:
    until = time.monotonic() + 120
    while time.monotonic() < until:
        with contextlib.suppress(httpx.HTTPError):
            if httpx.get(f"{address}/health", timeout=60).status_code == 200:
                return
        time.sleep(0.05)
    raise AssertionError("the server was not ready in time")


def check_counts(address: str) -> None:
    """Whichever process is asked: the requests of all of them are in the metrics, a moment later."""
    wanted = 'nearfar_requests_total{path="/tokenize",status="200"} 30'
    for _ in range(30):  # a connection each, which any process may take
        assert httpx.post(f"{address}/tokenize", json={"inputs": "a"}, timeout=60).status_code == 200
    until = time.monotonic() + 60
    pages = [""]
    while not all(wanted in page.splitlines() and page.count("\nnearfar_ready{") == 2 for page in pages):
        assert time.monotonic() < until, pages[0]
        time.sleep(0.1)
        pages = [httpx.get(f"{address}/metrics", timeout=60).text for _ in range(10)]


def wait_until_accepted(address: str, asked: list[Any], *, texts: int) -> None:
    """Until each request is answered, or waits in the queue with its texts, by the metrics of all processes."""
    until, waiting = time.monotonic() + 60, 0.0
    while sum(answer.done() for answer in asked) + waiting / texts < len(asked):
        assert time.monotonic() < until
        page = httpx.get(f"{address}/metrics", timeout=60).text.splitlines()
        waiting = sum(float(line.split()[-1]) for line in page if line.startswith("nearfar_queue_texts"))


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
def test_the_command_answers_what_it_accepted_before_it_ends(workers, folders):
    """SIGTERM during requests: all of them are answered, the status is 0, and the log is JSON without texts."""
    process, address = start(folders["classes"], "--workers", str(workers), "--max-batch-tokens", "256")
    try:
        wait_until_ready(address)
        if workers > 1:
            check_counts(address)
        body = {"inputs": ["secret " * 100] * 100}
        with ThreadPoolExecutor(4) as pool:
            asked = [pool.submit(httpx.post, f"{address}/embed", json=body, timeout=60) for _ in range(4)]
            wait_until_accepted(address, asked, texts=100)
            process.send_signal(signal.SIGTERM)
            assert [answer.result().status_code for answer in asked] == [200] * 4
        assert process.stderr is not None
        log = process.stderr.read()
        assert process.wait(60) == 0, log
    finally:
        process.kill()
        process.wait()
        process.stderr.close()
    lines = [json.loads(line) for line in log.splitlines() if line.startswith("{")]
    assert [line["texts"] for line in lines if line.get("path") == "/embed"] == [100] * 4
    assert "secret" not in log


def test_the_command_ends_with_a_message_where_there_is_no_model(tmp_path, capsys):
    """No address is printed; signals are as they were."""
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(EncoderError, match=tmp_path.name):
        processes.run(Settings(str(tmp_path), port=0))
    assert "serving" not in capsys.readouterr().err
    assert signal.getsignal(signal.SIGTERM) is before


@pytest.mark.slow
def test_several_processes_without_a_model_end_with_one_message(tmp_path):
    """As one process does; none is started again and again."""
    done = subprocess.run(
        [sys.executable, "-m", "nearfar", "serve", str(tmp_path), "--workers", "2", "--port", "0"],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    *before, last = done.stderr.splitlines()
    assert last.startswith(f"error: {tmp_path}: the folder holds no config.json")
    assert not any(line.startswith(("serving", "error: ")) for line in before)
