import json
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from nearfar.cli import app
from nearfar.errors import NearfarError
from nearfar.workbench.server import Address, bind

ROWS = [("where is my parcel", "delivery"), ("i was charged twice", "payment"), ("the lamp is broken", "")]


@pytest.fixture
def data(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "texts.jsonl"
    path.write_text("".join(json.dumps({"text": text, "label": label}) + "\n" for text, label in ROWS))
    return path


def run(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


def test_label_writes_the_files_of_a_project_without_a_page(data):
    done = run("label", data, "--files")
    assert done.exit_code == 0
    assert "2 labeled texts in texts.nearfar/labeled.csv, texts.nearfar/labeled.jsonl" in done.stderr
    rows = [json.loads(line) for line in Path("texts.nearfar/labeled.jsonl").read_text().splitlines()]
    assert [row["label"] for row in rows] == ["delivery", "payment"]


def test_explore_writes_the_map_without_a_page(data):
    done = run("explore", "toy", data, "--files", "--map", "pca", "--out", "map")
    assert done.exit_code == 0, done.stderr
    assert done.stdout.splitlines()[0] == "map/map.parquet"
    assert pq.read_table("map/map.parquet").column("text").to_pylist() == [text for text, _ in ROWS]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("label", "absent.csv"), "absent.csv"),
        (("explore", "toy", "texts.jsonl", "--map", "umap"), "--map is auto, tsne or pca, got 'umap'"),
        (("explore", "toy", "texts.jsonl", "--label", "lable"), "Did you mean 'label'"),
        (("label", "texts.jsonl", "--classes", "x" * 300), "1 to 200 characters"),
        (("explore", "./nowhere", "texts.jsonl"), "./nowhere: there is no such folder"),
        (("explore", "toy", "texts.jsonl", "--compare", "./nowhere"), "./nowhere: there is no such folder"),
        (("label", "texts.jsonl", "--encoder", "./nowhere"), "./nowhere: there is no such folder"),
        (("label", "texts.jsonl", "--encoder", "nowhere"), "nowhere: there is no such folder, and no such model"),
    ],
)
def test_what_does_not_fit_is_refused(data, words, message):
    done = run(*words)
    assert isinstance(done.exception, NearfarError)
    assert message in str(done.exception)
    if "nowhere" in message:
        assert not Path("texts.nearfar").exists()


def test_a_port_that_is_taken_is_a_message(data):
    with bind("127.0.0.1", 0) as taken, pytest.raises(NearfarError, match="Choose another --port"):
        bind("127.0.0.1", taken.getsockname()[1])


def test_addresses():
    assert Address("::1", 80, "t").url == "http://[::1]:80/?token=t"
    assert Address("127.0.0.1", 80, "t").is_local
    assert Address("localhost", 80, "t").is_local
    assert not Address("0.0.0.0", 80, "t").is_local


@pytest.mark.parametrize("words", [("label",), ("explore", "toy")])
def test_a_missing_extra_is_named(data, monkeypatch, words):
    """Without the packages of the extra there is a message that says what to install, and no traceback."""
    monkeypatch.setitem(sys.modules, "starlette", None)  # as if it were not installed
    done = run(*words, data)
    assert isinstance(done.exception, NearfarError)
    assert str(done.exception).endswith("which are not installed: pip install 'nearfar[explore]'.")
