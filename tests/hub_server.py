"""A stand-in for the Hugging Face Hub on the loopback interface: the endpoints that ``huggingface_hub`` calls to create
repositories and branches, to commit (regular files and LFS) and to download.

Repositories are kept in memory as commits: each a mapping from paths to contents. Access is as on the hub: whoever has
no token does not see private repositories, and nobody writes without the owner's token.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest

OWNER = "me"
TOKEN = "hf_secret"
LARGE = (".safetensors", ".bin")
Files = dict[str, bytes]


@dataclass
class Repository:
    """Branches of commits; all commits by their ids, with their messages in order."""

    private: bool = False
    commits: dict[str, Files] = field(default_factory=dict)
    branches: dict[str, str] = field(default_factory=dict)
    messages: list[str] = field(default_factory=list)

    def commit(self, branch: str, files: Files, message: str) -> str:
        oid = hashlib.sha1(repr((len(self.commits), message, sorted(files))).encode()).hexdigest()
        self.commits[oid] = files
        self.branches[branch] = oid
        self.messages.append(message)
        return oid

    def resolve(self, revision: str) -> str | None:
        return self.branches.get(revision, revision if revision in self.commits else None)

    def files(self, revision: str = "main") -> Files:
        """What a revision holds."""
        return self.commits[self.branches.get(revision, revision)]


@dataclass
class Hub:
    """The state of the server."""

    address: str = ""
    repositories: dict[str, Repository] = field(default_factory=dict)
    objects: Files = field(default_factory=dict)
    """What was uploaded by LFS, by SHA-256."""
    requests: list[str] = field(default_factory=list)
    """Methods and paths in order."""

    def add(self, name: str, files: Files, *, private: bool = False) -> Repository:
        """A repository with one commit."""
        made = self.repositories[name] = Repository(private)
        made.commit("main", files, "initial commit")
        return made


def git_oid(content: bytes) -> str:
    """The id of a blob in git."""
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


class Handler(BaseHTTPRequestHandler):
    """One request; answers are JSON or the content of a file."""

    protocol_version = "HTTP/1.1"
    hub: Hub

    def log_message(self, *arguments: Any) -> None:
        """Nothing is printed."""

    def _handle(self) -> None:
        self.body = self._body()
        path = unquote(urlsplit(self.path).path)
        self.hub.requests.append(f"{self.command} {path}")
        for method, pattern, answer in ROUTES:
            if self.command in method.split("|") and (matched := re.fullmatch(pattern, path)):
                answer(self, **matched.groupdict())
                return
        self._fail(404, "no such endpoint")

    do_GET = do_HEAD = do_POST = do_PUT = _handle  # noqa: N815 - names of the standard library

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        parts = []
        while size := int(self.rfile.readline(), 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(parts)

    # Answers

    def _send(self, content: bytes, headers: dict[str, str], status: int = 200) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(content)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def _json(self, values: Any, status: int = 200) -> None:
        self._send(json.dumps(values).encode(), {"Content-Type": "application/json"}, status)

    def _fail(self, status: int, message: str, code: str = "") -> None:
        self._send(b"", {"X-Error-Message": message, **({"X-Error-Code": code} if code else {})}, status)

    # Access

    @property
    def _known(self) -> bool:
        return self.headers.get("Authorization") == f"Bearer {TOKEN}"

    def _repository(self, name: str, *, write: bool = False) -> Repository | None:
        """A repository that the client may see; else the answer is given."""
        repository = self.hub.repositories.get(name)
        if repository is None or (repository.private and not self._known):
            self._fail(404 if self._known else 401, "Repository not found", "RepoNotFound")
            return None
        if write and not (self._known and name.startswith(f"{OWNER}/")):
            self._fail(403, "Forbidden: you must use a write token to upload to a repository.")
            return None
        return repository

    def _revision(self, name: str, revision: str, *, write: bool = False) -> tuple[Repository, str] | None:
        repository = self._repository(name, write=write)
        if repository is None:
            return None
        oid = repository.resolve(revision)
        if oid is None:
            self._fail(404, f"Invalid rev id: {revision}", "RevisionNotFound")
            return None
        return repository, oid

    # Endpoints

    def create(self) -> None:
        asked = json.loads(self.body)
        if not self._known:
            return self._fail(401, "Invalid username or password.")
        name = f"{asked['organization'] or OWNER}/{asked['name']}"
        if not name.startswith(f"{OWNER}/"):
            return self._fail(403, f"You don't have the rights to create a model under this namespace: {name}")
        values = {"url": f"{self.hub.address}/{name}", "name": name, "id": name}
        if name in self.hub.repositories:
            return self._json({"error": "You already created this model repo", **values}, 409)
        self.hub.add(
            name, {".gitattributes": b"*.safetensors filter=lfs\n"}, private=asked.get("visibility") == "private"
        )
        return self._json(values)

    def branch(self, name: str, branch: str) -> None:
        repository = self._repository(name, write=True)
        if repository is None:
            return None
        if branch in repository.branches:
            return self._fail(409, "Reference already exists")
        repository.branches[branch] = repository.branches["main"]
        return self._json({})

    def info(self, name: str, revision: str = "main") -> None:
        if seen := self._revision(name, revision or "main"):
            repository, oid = seen
            files = [{"rfilename": path} for path in sorted(repository.commits[oid])]
            self._json({"id": name, "modelId": name, "sha": oid, "private": repository.private, "siblings": files})

    def tree(self, name: str, revision: str) -> None:
        if seen := self._revision(name, revision):
            repository, oid = seen
            self._json([self._entry(path, content) for path, content in sorted(repository.commits[oid].items())])

    def _entry(self, path: str, content: bytes) -> dict[str, Any]:
        entry: dict[str, Any] = {"type": "file", "path": path, "size": len(content), "oid": git_oid(content)}
        if path.endswith(LARGE):
            sha = hashlib.sha256(content).hexdigest()
            entry["lfs"] = {"oid": sha, "size": len(content), "pointerSize": 134}
        return entry

    def file(self, name: str, revision: str, path: str) -> None:
        if seen := self._revision(name, revision):
            repository, oid = seen
            content = repository.commits[oid].get(path)
            if content is None:
                return self._fail(404, "Entry not found", "EntryNotFound")
            large = path.endswith(LARGE)
            etag = hashlib.sha256(content).hexdigest() if large else git_oid(content)
            return self._send(content, {"ETag": f'"{etag}"', "X-Repo-Commit": oid})
        return None

    def validate(self) -> None:
        text = json.loads(self.body)["content"]
        metadata = re.match(r"---\n(.*?)\n---\n", text, re.DOTALL)
        if metadata is None:
            return self._json({"warnings": [{"message": "empty or missing yaml metadata"}], "errors": []})
        if not all(re.match(r"[\w-]+: ", line) for line in metadata[1].splitlines()):
            return self._json({"warnings": [], "errors": [{"message": "not YAML"}]}, 400)
        return self._json({"warnings": [], "errors": []})

    def preupload(self, name: str, revision: str) -> None:
        if seen := self._revision(name, revision, write=True):
            present = seen[0].commits[seen[1]]
            files = []
            for asked in json.loads(self.body)["files"]:
                path = asked["path"]
                mode = "lfs" if path.endswith(LARGE) else "regular"
                known = {"oid": git_oid(present[path])} if path in present and mode == "regular" else {}
                files.append({"path": path, "uploadMode": mode, "shouldIgnore": False, **known})
            self._json({"files": files, "commitOid": seen[1]})

    def batch(self, name: str) -> None:
        if self._repository(name, write=True):
            objects = [
                asked
                | {"actions": {"upload": {"href": f"{self.hub.address}/lfs/{asked['oid']}"}}}
                | {"authenticated": True}
                for asked in json.loads(self.body)["objects"]
            ]
            self._json({"transfer": "basic", "objects": objects})

    def store(self, oid: str) -> None:
        if hashlib.sha256(self.body).hexdigest() != oid:
            return self._fail(400, "the content has another hash")
        self.hub.objects[oid] = self.body
        return self._json({})

    def commit(self, name: str, revision: str) -> None:
        seen = self._revision(name, revision, write=True)
        if seen is None:
            return
        repository, oid = seen
        files, message = dict(repository.commits[oid]), ""
        for line in self.body.splitlines():
            operation = json.loads(line)
            value = operation["value"]
            match operation["key"]:
                case "header":
                    message = value["summary"]
                case "file":
                    files[value["path"]] = base64.b64decode(value["content"])
                case "lfsFile":
                    files[value["path"]] = self.hub.objects[value["oid"]]
                case "deletedFile":
                    del files[value["path"]]
                case other:
                    raise AssertionError(f"{other} is no operation of nearfar")
        made = repository.commit(revision, files, message)
        self._json({"commitUrl": f"{self.hub.address}/{name}/commit/{made}", "commitOid": made})


NAME, REVISION = r"(?P<name>[\w.-]+/[\w.-]+)", r"(?P<revision>[^/]+)"
ROUTES: tuple[tuple[str, str, Any], ...] = (
    ("POST", "/api/repos/create", Handler.create),
    ("POST", "/api/validate-yaml", Handler.validate),
    ("GET", f"/api/models/{NAME}(?:/revision/{REVISION})?", Handler.info),
    ("GET", f"/api/models/{NAME}/tree/{REVISION}", Handler.tree),
    ("POST", f"/api/models/{NAME}/branch/(?P<branch>.+)", Handler.branch),
    ("POST", f"/api/models/{NAME}/preupload/{REVISION}", Handler.preupload),
    ("POST", f"/api/models/{NAME}/commit/{REVISION}", Handler.commit),
    ("POST", rf"/{NAME}\.git/info/lfs/objects/batch", Handler.batch),
    ("PUT", "/lfs/(?P<oid>[0-9a-f]{64})", Handler.store),
    ("GET|HEAD", f"/{NAME}/resolve/{REVISION}/(?P<path>.+)", Handler.file),
)


@contextmanager
def serving() -> Iterator[Hub]:
    """A hub with no repositories, at ``hub.address`` until the block ends."""
    hub = Hub()
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("BoundHandler", (Handler,), {"hub": hub}))
    hub.address = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def reachable(monkeypatch: pytest.MonkeyPatch, folder: Path) -> Iterator[Hub]:
    """A hub that ``huggingface_hub`` reaches in this process, with an empty cache below ``folder`` and a token."""
    from huggingface_hub import constants

    with serving() as hub:
        settings = {
            "ENDPOINT": hub.address,
            "HUGGINGFACE_CO_URL_TEMPLATE": hub.address + "/{repo_id}/resolve/{revision}/{filename}",
            "HF_HUB_OFFLINE": False,
            "HF_HUB_DISABLE_XET": True,
            "HF_HUB_CACHE": str(folder / "hub-cache"),
            "HF_TOKEN_PATH": str(folder / "no-token"),
        }
        for name, value in settings.items():
            monkeypatch.setattr(constants, name, value)
        monkeypatch.setenv("HF_TOKEN", TOKEN)
        yield hub
