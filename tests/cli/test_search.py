"""``nearfar index`` and ``nearfar search``: a saved index, one query, queries from a terminal."""

from __future__ import annotations

import io
import json
import os
import pty
import select
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import nearfar
from nearfar.cli import main

DOCUMENTS = [
    {"doc_id": "h1", "doc": "track your order"},
    {"doc_id": "h2", "doc": "reset your password [in settings] :100:"},
    {"doc_id": "h3", "doc": "ask for your money back"},
]


@pytest.fixture(autouse=True)
def _inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in DOCUMENTS))


def call(*arguments: str, stdin: str = "") -> tuple[int, str, str]:
    """Run the command in this process: exit code, standard output, standard error."""
    streams = [io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2)]
    code: Any = 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["nearfar", *arguments])
        patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin.encode())))
        patch.setattr(sys, "stdout", streams[0])
        patch.setattr(sys, "stderr", streams[1])
        try:
            main()
        except SystemExit as stop:
            code = stop.code or 0
    out, errors = (stream.buffer.getvalue().decode() for stream in streams)  # type: ignore[attr-defined]
    assert "Traceback" not in errors
    return int(code), out, errors


def found(*arguments: str, stdin: str = "") -> list[tuple[str, list[str]]]:
    """Of a successful search, each query with the ids of its documents."""
    code, out, errors = call("search", *arguments, stdin=stdin)
    assert code == 0, errors
    rows = [json.loads(line) for line in out.splitlines()]
    return [(row["query"], [result["doc_id"] for result in row["results"]]) for row in rows]


def test_an_index_is_searched_as_its_corpus_is():
    code, out, errors = call("index", "toy", "corpus.jsonl", "--out", "index")
    assert (code, out) == (0, "")
    assert "3 documents in index; try: nearfar search toy index" in errors
    query = "how do I reset my password"
    assert found("toy", "index", query) == found("toy", "corpus.jsonl", query)
    assert call("search", "toy", "index", query)[1] == call("search", "toy", "corpus.jsonl", query)[1]
    assert found("toy", "index", "-", "--top", "1", stdin="ask for your money back\ntrack your order\n") == [
        ("ask for your money back", ["h3"]),
        ("track your order", ["h1"]),
    ]


def test_without_a_query_and_a_terminal_queries_come_from_standard_input():
    assert found("toy", "corpus.jsonl", "--top", "1", stdin="track your order\n") == [("track your order", ["h1"])]


def test_a_query_may_be_one_word_and_a_result_may_go_to_a_file():
    ((query, documents),) = found("toy", "corpus.jsonl", "password")
    assert (query, sorted(documents)) == ("password", ["h1", "h2", "h3"])
    assert call("search", "toy", "corpus.jsonl", "password", "--out", "found.jsonl")[0] == 0
    assert json.loads(Path("found.jsonl").read_text())["query"] == "password"


def test_an_index_keeps_blank_rows_out():
    Path("blank.csv").write_text('doc\na saw\n" "\n\na pear\n')
    code, _, errors = call("index", "toy", "blank.csv", "--out", "index")
    assert code == 1
    assert "blank.csv:3" in errors
    assert not Path("index").exists()
    assert call("index", "toy", "blank.csv", "--out", "index", "--invalid", "drop")[0] == 0
    assert [json.loads(line)["doc"] for line in Path("index/documents.jsonl").read_text().splitlines()] == [
        "a saw",
        "a pear",
    ]


def test_another_model_and_a_damaged_index_are_refused_in_one_line():
    call("index", "toy", "corpus.jsonl", "--out", "index")
    Path("few.csv").write_text("text_a,text_b\na saw,a red saw\nrain,a cloud\npear,an apple\n")
    assert call("train", "few.csv", "--encoder", "toy", "--epochs", "1", "--out", "model")[0] == 0
    code, out, errors = call("search", "model", "index", "saw")
    assert (code, out) == (1, "")
    assert "another model" in errors
    assert errors.count("\n") == 1
    Path("index/vectors.npy").write_bytes(b"no")
    code, _, errors = call("search", "toy", "index", "saw")
    assert code == 1
    assert "index: the index is damaged: vectors.npy has changed" in errors


REFUSED = {
    "an empty query": (["search", "toy", "corpus.jsonl", "  "], "the query is empty"),
    "no such index": (["search", "toy", "indexx", "saw"], "no such file"),
    "no such file of queries": (["search", "toy", "corpus.jsonl", "queries.csv"], "no such file"),
    "a folder of something else": (["search", "toy", ".", "saw"], "not one saved by datasets"),
    "an index of an index": (["index", "toy", "index", "--out", "other"], "is an index already"),
    "a column of an index": (["search", "toy", "index", "saw", "--corpus-text", "doc"], "leave it out"),
    "an index in its own way": (["index", "toy", "corpus.jsonl", "--out", "index"], "--overwrite"),
    "a file in its way": (["index", "toy", "corpus.jsonl", "--out", "corpus.jsonl"], "this is a file"),
    "a file instead of a folder": (["index", "toy", "corpus.jsonl", "--out", "corpus.jsonl/index"], "is a file"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_wrong_input_is_refused_with_one_line(case: str):
    arguments, message = REFUSED[case]
    if "index" in arguments[2:]:
        assert call("index", "toy", "corpus.jsonl", "--out", "index")[0] == 0
    code, out, errors = call(*arguments)
    assert (code, out) == (1, "")
    assert message in errors
    assert errors.startswith("error: ")
    assert errors.count("\n") == 1


class Terminal:
    """A command on a terminal of its own."""

    def __init__(self, *arguments: str) -> None:
        self.process, self.screen = pty.fork()
        if self.process == 0:  # pragma: no cover  # replaced at once
            os.environ |= {"COLUMNS": "80", "TERM": "dumb"}
            os.execv(sys.executable, [sys.executable, "-m", "nearfar", *arguments])
        self.seen = ""

    def wait_for(self, text: str) -> str:
        """Everything that was shown since the last call, up to this text."""
        end = time.monotonic() + 120
        while text not in self.seen:
            assert time.monotonic() < end, self.seen
            if select.select([self.screen], [], [], 1)[0]:
                self.seen += os.read(self.screen, 65536).decode()
        shown, _, self.seen = self.seen.partition(text)
        return shown

    def type(self, keys: str) -> None:
        os.write(self.screen, keys.encode())

    def leave(self, key: str) -> int:
        """Press a key until the command has ended; its exit code.

        Python's ``input`` notices a Ctrl-C that comes after the prompt, but before it waits for keys, only with the
        next key; on a busy machine this happens.
        """
        end = time.monotonic() + 120
        try:
            while time.monotonic() < end:
                self.type(key)
                while select.select([self.screen], [], [], 15)[0]:
                    if not os.read(self.screen, 65536):
                        break
            os.kill(self.process, signal.SIGKILL)
        except OSError:  # the other side is closed
            pass
        os.close(self.screen)
        return os.waitstatus_to_exitcode(os.waitpid(self.process, 0)[1])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["index", "toy", "corpus.jsonl", "--out", "s3://bucket/index"], "this command writes to a disk only"),
        (["index", "vectors/", "--out", "gs://bucket/index"], "this command writes to a disk only"),
        (["mine", "toy", "pairs.csv", "--out", "s3://bucket/mined.jsonl"], "this command writes to a disk only"),
        (["search", "toy", "s3://bucket/index", "order"], "this command reads files on a disk only"),
        (["train", "s3://bucket/pairs.csv", "--encoder", "toy"], "this command reads files on a disk only"),
        (["search", "s3://bucket/model", "corpus.jsonl", "order"], "models are opened from a disk or from the hub"),
    ],
)
def test_object_stores_are_refused_where_only_disks_are_used(words: list[str], message: str):
    """In one line, and no folder called s3: is made."""
    if "vectors/" in words:
        nearfar.embed_files("toy", "corpus.jsonl", "vectors", text="doc", workers=1)
    Path("pairs.csv").write_text("text_a,text_b\na red apple,an apple\na saw,a tool\n")
    before = {*os.listdir()}
    code, out, errors = call(*words)
    assert (code, out) == (1, "")
    (line,) = errors.splitlines()
    assert line.startswith(("error: s3://bucket/", "error: gs://bucket/"))
    assert message in line
    assert {*os.listdir()} == before


def test_a_terminal_asks_for_queries_until_it_is_left():
    call("index", "toy", "corpus.jsonl", "--out", "index")
    terminal = Terminal("search", "toy", "index", "--top", "2")
    assert "3 documents; type a query" in terminal.wait_for("query> ")
    terminal.type("\n")
    terminal.wait_for("query> ")
    terminal.type("reset your password [in settings] :100:\n")
    lines = terminal.wait_for("query> ").splitlines()
    (best,) = [line for line in lines if "h2" in line]
    assert best.split()[:2] == ["1", "1.0000"]
    assert "reset your password [in settings] :100:" in best  # no markup, no emoji
    assert terminal.leave("\x03") == 130


@pytest.mark.slow
def test_the_end_of_the_input_leaves_the_prompt_without_an_error():
    terminal = Terminal("search", "toy", "corpus.jsonl", "--json")
    terminal.wait_for("query> ")
    terminal.type("track your order\n")
    assert '"query": "track your order", "results": [{"rank": 1, "doc_id": "h1"' in terminal.wait_for("query> ")
    assert terminal.leave("\x04") == 0
