import pytest
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from starlette.testclient import TestClient

from nearfar.workbench.guard import Guard, host_allowed


@pytest.fixture
def client():
    def answer(request):
        return PlainTextResponse("inside")

    app = Starlette(routes=[Route("/{path:path}", answer, methods=["GET", "POST"])])
    return TestClient(Guard(app, token="secret"), base_url="http://127.0.0.1:8000")


OURS = {"Origin": "http://127.0.0.1:8000", "X-Nearfar-Token": "secret"}


def test_the_page_needs_the_token_and_scripts_do_not(client):
    assert client.get("/").status_code == 401
    assert client.get("/?token=wrong").status_code == 401
    assert client.get("/?token=secret").text == "inside"
    assert client.get("/api/column/x", headers={"X-Nearfar-Token": "secret"}).text == "inside"
    assert client.get("/assets/main.js").text == "inside"


@pytest.mark.parametrize(
    ("changed", "status"),
    [
        ({}, 200),
        ({"Origin": "http://evil.example"}, 403),  # a form or script of another site
        ({"Origin": "null"}, 403),  # a sandboxed frame
        ({"Origin": "http://127.0.0.1:9000"}, 403),  # another server of this machine
        ({"Host": "evil.example:8000", "Origin": "http://evil.example:8000"}, 403),  # DNS rebinding
        ({"X-Nearfar-Token": ""}, 401),
        ({"Content-Length": "9000000000"}, 413),
    ],
)
def test_requests_of_strangers_are_refused(client, changed, status):
    answer = client.post("/api/decide", headers=OURS | changed, content=b"")
    assert answer.status_code == status
    if status != 200:
        assert answer.json()["error"].endswith(".")


def test_a_post_without_an_origin_is_refused(client):
    assert client.post("/api/decide", headers={"X-Nearfar-Token": "secret"}).status_code == 403


def test_every_answer_has_the_headers_that_protect_the_page(client):
    for answer in (client.get("/?token=secret"), client.get("/")):
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "no-referrer"


def test_a_page_of_another_machine_lacks_a_header_that_browsers_would_complain_about(client):
    policy = "cross-origin-opener-policy"
    assert client.get("/?token=secret", headers={"host": "127.0.0.1:80"}).headers[policy] == "same-origin"
    for host in ("192.168.1.4:80", "evil.example", "[::1"):
        assert policy not in client.get("/?token=secret", headers={"host": host}).headers


def test_hosts():
    assert host_allowed("localhost:1")
    assert host_allowed("192.168.1.4:80")
    assert host_allowed("box:80", ["box"])
    for wrong in ("", "evil.example", "127.0.0.1.evil.example:80", "[::1", "a:b:c"):
        assert not host_allowed(wrong)
