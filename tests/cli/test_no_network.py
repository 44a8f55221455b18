"""With local folders nothing is sent anywhere: not by nearfar, and not by the libraries it uses."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RUN = """
import json, os, sys
attempts = open(sys.argv[1], "a", buffering=1)

def forbid(event, arguments):
    local = event == "socket.connect" and isinstance(arguments[1], str | bytes)  # a socket of this machine's files
    if event in ("socket.connect", "socket.getaddrinfo", "socket.gethostbyname", "socket.sendto") and not local:
        attempts.write(f"{event} {arguments[-1]!r} {os.getpid()}\\n")
        raise OSError("the network is forbidden")

sys.addaudithook(forbid)  # nothing can take it back, and processes that are forked have it, too
from tests import preloaded
from nearfar.cli import main

preloaded._forked = True
for words in json.loads(sys.argv[2]):
    sys.argv = ["nearfar", *words]
    print(words, file=sys.stderr, flush=True)
    try:
        with preloaded.preloaded_workers() if words[0] in ("study", "tune") else __import__("contextlib").nullcontext():
            main()
    except SystemExit as left:
        assert not left.code, (words, left.code)
"""
STUDY = """
[study]
name = "small"
folds = 2
seeds = [2]
[[data]]
name = "texts"
file = "train.csv"
[[contender]]
name = "plain"
objective = { name = "cross-entropy" }
[[contender]]
name = "supcon"
objective = { name = "supcon" }
[recipe.encoder]
name = "toy"
[recipe.training]
epochs = 1
"""
COMMANDS = [
    ["check", "train.csv", "--encoder", "toy"],
    ["train", "train.csv", "--encoder", "toy", "--epochs", "1", "--dev", "0.25", "--out", "first"],
    ["train", "train.csv", "--encoder", "first", "--epochs", "1", "--out", "model"],
    ["predict", "model", "train.csv", "--out", "labels.csv"],
    ["evaluate", "model", "train.csv"],
    ["embed", "model", "train.csv", "--out", "vectors.npy"],
    ["geometry", "model", "train.csv"],
    ["search", "model", "train.csv", "train.csv", "--out", "found.jsonl"],
    ["whiten", "model", "train.csv", "--out", "whitened"],
    ["report", "model", "--data", "train.csv", "--out", "page.html"],
    ["study", "run", "study.toml", "--out", "study", "--workers", "1"],
]


@pytest.mark.slow
def test_nothing_is_sent_anywhere(tmp_path):
    rows = [f"{word} number {number},{label}" for number in range(8) for word, label in (("apple", "a"), ("saw", "b"))]
    (tmp_path / "train.csv").write_text("text,label\n" + "\n".join(rows) + "\n")
    (tmp_path / "study.toml").write_text(STUDY)
    online = {name: value for name, value in os.environ.items() if not name.endswith("_OFFLINE")}
    environment = {**online, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]), "HF_HOME": str(tmp_path)}
    command = [sys.executable, "-c", RUN, "attempts.txt", json.dumps(COMMANDS)]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=600)
    assert (tmp_path / "attempts.txt").read_text() == ""
    assert done.returncode == 0, done.stderr[-3000:]
    assert (tmp_path / "page.html").is_file()


def test_the_network_is_noticed(tmp_path):
    """The same hook, and a command that needs the hub: what is forbidden is what would have been sent."""
    code = RUN.replace("from tests import preloaded", "import socket").partition("preloaded._forked")[0]
    code += "\ntry:\n    socket.create_connection(('127.0.0.1', 9))\nexcept OSError: pass\n"
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    subprocess.run([sys.executable, "-c", code, "attempts.txt", "[]"], cwd=tmp_path, env=environment, check=True)
    assert "socket.getaddrinfo" in (tmp_path / "attempts.txt").read_text()
