"""``nearfar embed``: any number of rows in the memory of one window, whole or not at all, and continued to the byte."""

from __future__ import annotations

import gzip
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nearfar
from nearfar.cli import embed, main, windows
from nearfar.cli.progress import EmbeddingProgress
from nearfar.data import Layout, read, readers, table
from nearfar.encoding import Model
from nearfar.encoding import load as open_model
from nearfar.encoding.vectors import ORIGIN, VectorFile, header
from nearfar.errors import DataError, OutputError
from nearfar.files import part_of, progress_of

load = open_model
"""As it is before the tests put a model that is open already in its place."""

W = 8
"""Rows in a window of these tests."""
WORDS = ("apple", "hammer", "a ripe plum on a table", "saw", "pears, cherries and grapes in an old bowl", "nail")


def text(number: int) -> str:
    return f"{WORDS[number % len(WORDS)]} {number}"


def write_rows(path: Path, count: int, **others: object) -> list[str]:
    texts = [text(number) for number in range(count)]
    path.write_text("".join(json.dumps({"text": each, **others}) + "\n" for each in texts))
    return texts


def call(*arguments: str, stdin: str = "") -> tuple[int, bytes, str]:
    """Run the command in this process: exit status, standard output, standard error."""
    stdout, stderr = (io.TextIOWrapper(io.BytesIO(), write_through=True) for _ in range(2))
    saved = sys.argv, sys.stdin, sys.stdout, sys.stderr
    sys.argv, sys.stdin = ["nearfar", *arguments], io.TextIOWrapper(io.BytesIO(stdin.encode()))
    sys.stdout, sys.stderr = stdout, stderr
    status: Any = 0
    try:
        main()
    except SystemExit as left:
        status = left.code or 0
    finally:
        sys.argv, sys.stdin, sys.stdout, sys.stderr = saved
    return int(status), stdout.buffer.getvalue(), stderr.buffer.getvalue().decode()  # type: ignore[attr-defined]


@pytest.fixture(scope="module")
def model() -> Model:
    return open_model("toy")


@pytest.fixture(autouse=True)
def _inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: Model) -> None:
    """A folder of its own, small windows, and the toy encoder without the seconds of opening it again."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(embed, "WINDOW", W)
    monkeypatch.setattr(nearfar.encoding, "load", lambda name: model if name == "toy" else load(name))


class Stop(BaseException):
    """As abrupt as a power cut, but inside one process."""


def stop_at(monkeypatch: pytest.MonkeyPatch, window: int) -> None:
    """Break off when the vectors of a window (from 0 on) are to be written."""
    append, calls = VectorFile.append, iter(range(1_000))

    def broken(self: VectorFile, vectors: Any) -> None:
        if next(calls) == window:
            raise Stop
        append(self, vectors)

    monkeypatch.setattr(VectorFile, "append", broken)


def interrupted(monkeypatch: pytest.MonkeyPatch, *arguments: str, window: int = 2) -> None:
    with monkeypatch.context() as patch:
        stop_at(patch, window)
        with pytest.raises(Stop):
            call("embed", *arguments)


# The same vectors as from Python


@pytest.mark.parametrize("count", [1, W - 1, W, W + 1, 2 * W, 5 * W + 3])
def test_windows_of_any_fill_give_the_vectors_of_the_python_side(model, count):
    """One float32 row a text in the order of the file, in a file such as numpy.save writes."""
    texts = write_rows(Path("rows.jsonl"), count)
    status, _, errors = call("embed", "toy", "rows.jsonl", "--out", "v.npy")
    assert status == 0, errors
    found = np.load("v.npy", mmap_mode="r")
    assert found.dtype == np.float32
    assert found.shape == (count, 64)
    np.testing.assert_allclose(found, model.embed(texts), atol=1e-5)
    saved = io.BytesIO()
    np.save(saved, found)
    assert Path("v.npy").read_bytes() == saved.getvalue()
    assert f"{count} vector" in errors
    assert sorted(path.name for path in Path().iterdir()) == ["rows.jsonl", "v.npy"]


def test_a_file_within_one_window_is_equal_to_the_bit(model):
    """Then the very same batches are computed."""
    texts = write_rows(Path("rows.jsonl"), W)
    call("embed", "toy", "rows.jsonl", "--out", "v.npy")
    assert np.array_equal(np.load("v.npy"), model.embed(texts))


@pytest.mark.parametrize(
    "name", ["rows.jsonl", "rows.txt", "rows.csv", "rows.jsonl.gz", "rows.json", "rows.parquet", "-"]
)
def test_every_source_and_standard_output_give_the_same_bytes(name):
    """Standard input is read once and kept; standard output gets the count first, as the format wants it."""
    texts = write_rows(Path("plain.jsonl"), 3 * W + 1)
    plain = Path("plain.jsonl").read_bytes()
    if name == "rows.txt":
        Path(name).write_text("\n".join(texts))
    elif name == "rows.csv":
        Path(name).write_text("text\n" + "".join(f'"{each}"\n' for each in texts))
    elif name == "rows.json":
        Path(name).write_text(json.dumps([{"text": each} for each in texts]))
    elif name == "rows.parquet":
        import pyarrow
        import pyarrow.parquet

        pyarrow.parquet.write_table(pyarrow.table({"text": texts}), name)
    elif name != "-":
        Path(name).write_bytes(gzip.compress(plain) if name.endswith(".gz") else plain)
    assert call("embed", "toy", "plain.jsonl", "--out", "v.npy")[0] == 0
    status, out, errors = call("embed", "toy", name, "--out", "-", stdin=plain.decode() if name == "-" else "")
    assert status == 0, errors
    assert out == Path("v.npy").read_bytes()


def test_pairs_are_embedded_by_a_model_of_pairs(model, monkeypatch):
    """And refused before the work by one of single texts."""
    rows = [{"text_a": text(n), "text_b": text(n + 1)} for n in range(W + 2)]
    Path("pairs.jsonl").write_text("\n".join(map(json.dumps, rows)))
    status, _, errors = call("embed", "toy", "pairs.jsonl", "--out", "v.npy")
    assert status == 1
    assert "the file has pairs" in errors
    assert not list(Path().glob("v.npy*"))
    from dataclasses import replace

    joined = Model(model.model, model.tokenizer, replace(model.card, joined=True))
    monkeypatch.setattr(nearfar.encoding, "load", lambda _name: joined)
    assert call("embed", "toy", "pairs.jsonl", "--out", "v.npy")[0] == 0
    expected = joined.embed([(row["text_a"], row["text_b"]) for row in rows])
    np.testing.assert_allclose(np.load("v.npy"), expected, atol=1e-5)


# One window at a time


def test_the_reader_is_never_more_than_a_window_ahead(monkeypatch):
    """Rows that are read and not yet embedded fit in one window."""
    write_rows(Path("rows.jsonl"), 10 * W + 3)
    read_rows, ahead, counted = 0, [], readers.rows_of  # type: ignore[attr-defined]

    def counting(*arguments: Any) -> Iterator[Any]:
        nonlocal read_rows
        read_rows = 0
        for row in counted(*arguments):
            read_rows += 1
            yield row

    append = VectorFile.append

    def watching(self: VectorFile, vectors: Any) -> None:
        ahead.append(read_rows - self.done)
        append(self, vectors)

    monkeypatch.setattr(readers, "rows_of", counting)
    monkeypatch.setattr(table, "PEEK", W)
    monkeypatch.setattr(VectorFile, "append", watching)
    assert call("embed", "toy", "rows.jsonl", "--out", "v.npy")[0] == 0
    assert ahead == [W] * 10 + [3]


@pytest.mark.parametrize("name", ["rows.jsonl", "rows.txt.gz"])
def test_memory_does_not_grow_with_the_file(monkeypatch, model, name):
    """Ten times the rows, the same peak: far below the size of the file."""
    monkeypatch.setattr(Model, "embed", lambda _self, texts, batch_size: np.zeros((len(texts), 64), np.float32))
    monkeypatch.setattr(table, "PEEK", W)

    def peak(count: int) -> int:
        lines = (f"{n} " + "lorem ipsum " * 200 for n in range(count))
        if name == "rows.jsonl":
            Path(name).write_text("".join(json.dumps({"text": line}) + "\n" for line in lines))
        else:
            Path(name).write_bytes(gzip.compress("\n".join(lines).encode(), 1))
        tracemalloc.start()
        try:
            status, _, errors = call("embed", "toy", name, "--out", "v.npy", "--overwrite")
            assert status == 0, errors
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    peak(W)  # what is made once
    small, large = peak(100), peak(1_000)
    assert large < small + 200_000, (small, large)  # the file grew by two million


# Refused before the work


@pytest.fixture
def _no_vectors(monkeypatch: pytest.MonkeyPatch) -> None:
    def embed(*_: object, **__: object) -> None:
        raise AssertionError("a vector was computed")

    monkeypatch.setattr(Model, "embed", embed)


@pytest.mark.usefixtures("_no_vectors")
@pytest.mark.parametrize(
    ("bad", "expected"),
    [
        ('{"text": ""}', "the text is empty"),
        ('{"text": 7}', "not a string"),
        ('{"txt": "x"}', "missing"),
        ("{]", "not JSON"),
    ],
)
def test_a_bad_row_is_refused_with_its_line_before_any_vector(bad, expected):
    """All of them are listed, wherever they stand."""
    texts = write_rows(Path("rows.jsonl"), 6 * W)
    lines = Path("rows.jsonl").read_text().splitlines()
    lines[4 * W] = lines[5 * W + 1] = bad
    Path("rows.jsonl").write_text("\n".join(lines))
    status, _, errors = call("embed", "toy", "rows.jsonl", "--out", "v.npy")
    assert status == 1
    assert len(texts) > 5 * W + 1
    for line in (4 * W + 1, 5 * W + 2):
        assert f"rows.jsonl:{line}: " in errors
    assert expected in errors
    assert "2 problems in all" in errors
    assert not list(Path().glob("v.npy*"))


@pytest.mark.usefixtures("_no_vectors")
@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["empty.jsonl", "--out", "v.npy"], "empty.jsonl: the file is empty"),
        (["blank.csv", "--out", "v.npy", "--invalid", "drop"], "no rows are left"),
        (["rows.jsonl", "--out", "there.npy"], "--overwrite"),
        (["rows.jsonl", "--out", "."], "this is a folder"),
        (["rows.jsonl", "--out", "no/v.npy"], "there is no folder"),
        (["rows.jsonl", "--out", "-", "--resume"], "leave --resume out"),
        (["rows.jsonl", "--out", "v.npy", "--text", "txet"], "Did you mean 'text'?"),
        (["rows.jsonl", "--out", "v.npy", "--invalid", "keep"], "refuse or drop"),
    ],
)
def test_what_cannot_work_is_refused_before_any_vector(arguments, expected):
    """With the remedy, and with nothing left behind."""
    write_rows(Path("rows.jsonl"), 3)
    Path("empty.jsonl").write_text("")
    Path("blank.csv").write_text('text,label\n" ",a\n"",b\n')
    Path("there.npy").write_text("kept")
    status, _, errors = call("embed", "toy", *arguments)
    assert status == 1
    assert expected in errors
    assert Path("there.npy").read_text() == "kept"
    assert not list(Path().glob("*.part*"))


@pytest.mark.usefixtures("_no_vectors")
def test_too_little_room_is_refused_before_any_vector(monkeypatch):
    """The size of the file is known before the first vector; what was there of an earlier run stays."""
    write_rows(Path("rows.jsonl"), 3)
    usage = shutil.disk_usage(".")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=100))
    status, _, errors = call("embed", "toy", "rows.jsonl", "--out", "v.npy")
    assert status == 1
    assert "GB free, and the vectors need" in errors
    assert not list(Path().glob("v.npy*"))


TRICKY = {
    "late column.jsonl": [*['{"sentence": "a"}'] * 30, '{"sentence": "b", "text": "c"}', '{"sentence": ""}'],
    "late harmless column.jsonl": [*['{"text": "a"}'] * 30, '{"text": "b", "comment": "c"}', '{"comment": "d"}'],
    "two texts.csv": ["question,review", *["a,b"] * 20],
    "no text.csv": ["a,b", *["1,2"] * 20],
    "ragged.csv": ["text,label", *["a,b"] * 20, "a", ",x", *["c,d"] * 20, '"open'],
    "pairs.tsv": ["text_a\ttext_b", *["a\tb"] * 20, "\tb", "a\t", "\t"],
    "blank lines.txt": ["", *["a", ""] * 20],
    "faults.jsonl": ["[1]", '{"text": null}', "", *['{"text": "a"}'] * 20, '{"text": "\\ud800"}', '{"text": ["a"]}']
    * 3,
    "only blanks.txt": ["", " "],
}


def reading(name: str, invalid: Any) -> tuple[Any, Any]:
    """The records of a file read at once, or what is wrong with it."""
    try:
        return read(name, invalid=invalid, need="text"), None
    except DataError as refusal:
        return None, refusal.problems


@pytest.mark.parametrize("invalid", ["refuse", "drop"])
@pytest.mark.parametrize("name", TRICKY)
def test_windows_say_what_reading_at_once_says(monkeypatch, name, invalid):
    """The same rows, the same notes, and the same refusals with the same lines, in the same order."""
    monkeypatch.setattr(table, "PEEK", 10)
    Path(name).write_text("\n".join(TRICKY[name]) + "\n")
    rows = windows.Windows(name, Layout(), invalid=invalid, size=W)
    whole, problems = reading(name, invalid)
    if whole is None:
        with pytest.raises(DataError) as caught:
            rows.survey()
        assert caught.value.problems == problems
        return
    survey = rows.survey()
    parts = list(rows.again(survey))
    assert survey.rows == len(whole) == sum(map(len, parts))
    assert survey.notes == whole.notes
    assert [line for part in parts for line in part.lines] == whole.lines
    for place, column in enumerate(whole.texts):
        assert [each for part in parts for each in part.texts[place]] == column
    assert all(len(part) <= W for part in parts)


def test_tricky_files_are_refused_and_accepted():
    """The comparison above sees both, and dropping helps some: a list that proves nothing would be no guard."""
    for name, lines in TRICKY.items():
        Path(name).write_text("\n".join(lines) + "\n")
    accepted = {
        invalid: {name for name in TRICKY if reading(name, invalid)[0] is not None} for invalid in ("refuse", "drop")
    }
    assert accepted["refuse"] < accepted["drop"] < set(TRICKY)


def test_very_many_problems_are_counted_as_reading_at_once_counts_them(monkeypatch):
    """The list is cut at the same place, and dropped rows are reported by number and first line."""
    monkeypatch.setattr(sys.modules["nearfar.data.values"], "MAX_PROBLEMS", 20)
    Path("bad.jsonl").write_text('{"text": "a"}\n' + '{"text": ""}\n' * 50 + '{"text": 1}\n' * 9)
    with pytest.raises(DataError) as at_once:
        read("bad.jsonl", need="text")
    with pytest.raises(DataError) as by_windows:
        windows.Windows("bad.jsonl", Layout(), invalid="refuse", size=W).survey()
    assert by_windows.value.problems == at_once.value.problems
    assert "39 more problems" in str(by_windows.value)
    dropping = windows.Windows("bad.jsonl", Layout(), invalid="drop", size=W).survey()
    assert dropping.notes == read("bad.jsonl", invalid="drop", need="text").notes
    assert len(dropping.notes) == 2


def test_a_source_that_changes_during_the_run_is_refused(monkeypatch):
    """Vectors of other texts must not appear under the name; nothing is left to be continued."""
    write_rows(Path("rows.jsonl"), 3 * W)
    survey = windows.Windows.survey

    def then_change(self: windows.Windows) -> windows.Survey:
        found = survey(self)
        Path("rows.jsonl").write_text(Path("rows.jsonl").read_text().replace("nail", "wire"))
        return found

    monkeypatch.setattr(windows.Windows, "survey", then_change)
    status, _, errors = call("embed", "toy", "rows.jsonl", "--out", "v.npy")
    assert status == 1
    assert "has changed while it was read" in errors
    assert not list(Path().glob("v.npy*"))


def test_dropped_rows_leave_no_gap(model):
    """Windows with many bad rows, or none but bad ones, are as good as others."""
    texts = write_rows(Path("rows.jsonl"), 2 * W + 1)
    lines = Path("rows.jsonl").read_text().splitlines()
    Path("holes.jsonl").write_text("\n".join([*['{"text": " "}'] * (2 * W), *lines, *['{"text": ""}'] * (W + 1)]))
    status, _, errors = call("embed", "toy", "holes.jsonl", "--out", "v.npy", "--invalid", "drop")
    assert status == 0, errors
    assert f"{3 * W + 1} rows dropped because the text is empty (first on line 1)" in errors
    np.testing.assert_allclose(np.load("v.npy"), model.embed(texts), atol=1e-5)


# Interrupted and continued


@pytest.fixture
def whole(tmp_path: Path) -> bytes:
    """Rows in a file, and the bytes of its vectors when nothing interrupts."""
    write_rows(Path("rows.jsonl"), 5 * W + 3)
    assert call("embed", "toy", "rows.jsonl", "--out", "whole.npy")[0] == 0
    return Path("whole.npy").read_bytes()


IN_CHILDREN = """
import io, json, os, resource, signal, sys
os.chdir(sys.argv[1])
import nearfar.encoding
from nearfar.cli import embed, main
embed.WINDOW, limit = int(sys.argv[2]), int(sys.argv[3])
model = nearfar.encoding.load("toy")
nearfar.encoding.load = lambda name: model

def counted(function, number, calls=[0]):
    def called(*arguments, **settings):
        calls[0] += 1
        if calls[0] == number:
            os.kill(os.getpid(), signal.SIGKILL)
        return function(*arguments, **settings)
    return called

def embed(*flags, die=None, full=False):
    # In a child that dies before call number `die` of all that change the disk or compute a window.
    pid = os.fork()
    if pid == 0:
        sys.stderr = open("errors.txt", "w", buffering=1)
        sys.argv = ["nearfar", "embed", "toy", "rows.jsonl", "--out", "v.npy", *flags]
        if die is not None:
            os.fsync, os.replace, os.unlink = (counted(call, die) for call in (os.fsync, os.replace, os.unlink))
            type(model).embed = counted(type(model).embed, die)
        if full:
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
        try:
            main()
            os._exit(0)
        except SystemExit as left:
            os._exit(left.code or 0)
        except BaseException:
            os._exit(99)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

def state():
    left = sorted(name for name in os.listdir() if name.startswith("v.npy"))
    found = open("v.npy", "rb").read() if "v.npy" in left else None
    return {"left": left, "sound": found is None or found == whole, "whole": found == whole}

sys.argv = ["nearfar", "embed", "toy", "rows.jsonl", "--out", "imported.npy"]
try:
    main()  # once here, so that no child has anything left to import
except SystemExit as left:
    assert not left.code
whole = open("whole.npy", "rb").read()
full = {"status": embed(full=True), "errors": open("errors.txt").read(), **state()}
full["resumed"] = {"status": embed("--resume"), "errors": open("errors.txt").read(), **state()}
os.unlink("v.npy")
kills = []
while not kills or kills[-1]["status"] == -signal.SIGKILL:
    kills.append({"status": embed(die=len(kills) + 1), **state()})
    if kills[-1]["status"] == -signal.SIGKILL:
        kills[-1]["resumed"] = {"status": embed("--resume"), **state()}
        os.unlink("v.npy")
print(json.dumps({"full": full, "kills": kills}))
"""
"""Runs that are killed and that meet a full disk, as children of one process that has the imports behind it."""

FEW = 2 * W + 3


@pytest.fixture(scope="module")
def fates(tmp_path_factory: pytest.TempPathFactory, model: Model) -> Any:
    folder = tmp_path_factory.mktemp("fates")
    write_rows(folder / "rows.jsonl", FEW)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(embed, "WINDOW", W)
        patch.setattr(nearfar.encoding, "load", lambda _name: model)
        assert call("embed", "toy", str(folder / "rows.jsonl"), "--out", str(folder / "whole.npy"))[0] == 0
    limit = len(header((FEW, 64))) + (W + W // 2) * 64 * 4
    done = subprocess.run(
        [sys.executable, "-c", IN_CHILDREN, str(folder), str(W), str(limit)],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_killed_at_any_moment_and_resumed_gives_the_same_bytes(fates):
    """kill -9 before every call that changes the disk and before every window, each in its turn, and then --resume."""
    *killed, last = fates["kills"]
    assert len(killed) >= 3 * 4  # a window is computed and flushed, the account is flushed and renamed
    assert last == {"status": 0, "left": ["v.npy"], "sound": True, "whole": True}  # no call is left to die at
    assert any(fate["left"] == ["v.npy.part", "v.npy.part.json"] for fate in killed)
    for number, fate in enumerate(killed, 1):
        assert fate["status"] == -signal.SIGKILL
        assert fate["sound"], f"killed before call {number}: the target is there, but not whole"
        assert fate["resumed"] == {"status": 0, "left": ["v.npy"], "sound": True, "whole": True}, number


def test_a_disk_that_fills_up_costs_only_the_last_window(fates):
    """The system refuses to write beyond a limit: the error has the remedy, and the run can be continued."""
    full = fates["full"]
    assert full["status"] == 1, full
    assert "v.npy: there is no room left. Make room and continue with --resume" in full["errors"]
    assert f"{W} of {FEW} vectors are safe in v.npy.part" in full["errors"]
    assert full["left"] == ["v.npy.part", "v.npy.part.json"]
    assert full["resumed"]["status"] == 0, full
    assert f"resuming after {W} of {FEW} texts" in full["resumed"]["errors"]
    assert full["resumed"]["whole"]
    assert full["resumed"]["left"] == ["v.npy"]


def test_several_interruptions_in_a_row(whole, monkeypatch):
    """Every run adds what it can."""
    interrupted(monkeypatch, "toy", "rows.jsonl", "--out", "v.npy", window=1)
    interrupted(monkeypatch, "toy", "rows.jsonl", "--out", "v.npy", "--resume", window=2)
    account = json.loads(progress_of(Path("v.npy")).read_text())
    assert account["done"] == 3 * W
    assert not Path("v.npy").exists()
    status, _, errors = call("embed", "toy", "rows.jsonl", "--out", "v.npy", "--resume")
    assert status == 0, errors
    assert f"resuming after {3 * W} of {5 * W + 3} texts" in errors
    assert Path("v.npy").read_bytes() == whole


def test_resuming_computes_only_what_is_missing(whole, monkeypatch):
    """The work before the interruption is not done again."""
    interrupted(monkeypatch, "toy", "rows.jsonl", "--out", "v.npy", window=4)
    embedded: list[int] = []
    embed = Model.embed

    def counting(self: Model, texts: Any, *, batch_size: int) -> Any:
        embedded.append(len(texts))
        return embed(self, texts, batch_size=batch_size)

    monkeypatch.setattr(Model, "embed", counting)
    assert call("embed", "toy", "rows.jsonl", "--out", "v.npy", "--resume")[0] == 0
    assert embedded == [W, 3]


def test_standard_input_can_be_piped_in_again(whole, monkeypatch):
    """It is the texts that must be the same."""
    with monkeypatch.context() as patch:
        stop_at(patch, 2)
        with pytest.raises(Stop):
            call("embed", "toy", "-", "--out", "v.npy", stdin=Path("rows.jsonl").read_text())
    status, _, errors = call("embed", "toy", "-", "--out", "v.npy", "--resume", stdin=Path("rows.jsonl").read_text())
    assert status == 0, errors
    assert f"resuming after {2 * W}" in errors
    assert Path("v.npy").read_bytes() == whole


def test_without_resume_it_starts_anew_and_says_so(whole, monkeypatch):
    """What --resume would have saved is reported, unless it could not have continued."""
    interrupted(monkeypatch, "toy", "rows.jsonl", "--out", "v.npy")
    interrupted(monkeypatch, "toy", "rows.jsonl", "--out", "v.npy", window=3)
    assert json.loads(progress_of(Path("v.npy")).read_text())["done"] == 3 * W
    status, _, errors = call("embed", "toy", "rows.jsonl", "--out", "v.npy")
    assert status == 0
    assert f"{3 * W} of {5 * W + 3} vectors were in v.npy.part; --resume would have continued" in errors
    assert Path("v.npy").read_bytes() == whole

    interrupted(monkeypatch, "toy", "rows.jsonl", "--out", "w.npy")
    write_rows(Path("rows.jsonl"), W)
    status, _, errors = call("embed", "toy", "rows.jsonl", "--out", "w.npy")
    assert status == 0
    assert "unfinished vectors of another run in w.npy.part are replaced" in errors
    assert "would have" not in errors
    assert np.load("w.npy").shape == (W, 64)


def test_resume_may_always_be_said(whole, monkeypatch):
    """Of a file that is whole, and of one that was never begun."""
    before = Path("whole.npy").stat().st_mtime_ns
    progress_of(Path("whole.npy")).write_text("{}")  # killed between the two last calls
    status, _, errors = call("embed", "toy", "rows.jsonl", "--out", "whole.npy", "--resume")
    assert status == 0
    assert "nothing to resume" in errors
    assert Path("whole.npy").stat().st_mtime_ns == before
    assert not progress_of(Path("whole.npy")).exists()
    status, _, errors = call("embed", "toy", "rows.jsonl", "--out", "v.npy", "--resume")
    assert status == 0
    assert "starting at the beginning" in errors
    assert Path("v.npy").read_bytes() == whole


def test_an_old_file_stays_until_the_new_one_is_whole(whole, monkeypatch):
    """--overwrite replaces it at the end, also over an interruption."""
    Path("v.npy").write_text("old")
    interrupted(monkeypatch, "toy", "rows.jsonl", "--out", "v.npy", "--overwrite")
    assert Path("v.npy").read_text() == "old"
    status, _, errors = call("embed", "toy", "rows.jsonl", "--out", "v.npy", "--resume")
    assert status == 1
    assert "--overwrite" in errors
    assert Path("v.npy").read_text() == "old"
    status, _, errors = call("embed", "toy", "rows.jsonl", "--out", "v.npy", "--resume", "--overwrite")
    assert status == 0, errors
    assert "resuming after" in errors
    assert Path("v.npy").read_bytes() == whole


CHANGES = {
    "a text": "the texts",
    "a row more": "the number of rows, the texts",
    "another column": "the texts",
    "weights": "the weights of the model",
    "pooling": "the settings of the model",
    "tokenizer": "the tokenizer of the model",
}


@pytest.mark.parametrize("change", CHANGES)
def test_another_model_or_source_is_not_continued(change, model, monkeypatch):
    """The error names what has changed; what is there stays, for a run with what it was begun with."""
    write_rows(Path("rows.jsonl"), 4 * W, other="something else")
    arguments = ["toy", "rows.jsonl", "--out", "v.npy"]
    interrupted(monkeypatch, *arguments)
    before = part_of(Path("v.npy")).read_bytes()
    rows = Path("rows.jsonl").read_text()
    with monkeypatch.context() as patch:
        if change == "a text":
            Path("rows.jsonl").write_text(rows.replace("nail 5", "nail 6"))
        elif change == "a row more":
            Path("rows.jsonl").write_text(rows + '{"text": "x"}\n')
        elif change == "another column":
            arguments += ["--text", "other"]
        else:
            from dataclasses import replace

            from nearfar.encoding.pretrained import toy_tokenizer

            other = load("toy")
            if change == "weights":
                next(other.model.parameters()).data[3, 5] += 1e-3
            elif change == "pooling":
                other.card = replace(other.card, pooling="first")
            else:
                other.tokenizer = toy_tokenizer()
                other.tokenizer.add_tokens(["wrench"])
            patch.setattr(nearfar.encoding, "load", lambda _name: other)
        status, _, errors = call("embed", *arguments, "--resume")
    assert status == 1
    assert f"because this has changed: {CHANGES[change]}. Start anew" in errors
    assert part_of(Path("v.npy")).read_bytes() == before
    Path("rows.jsonl").write_text(rows)
    assert call("embed", "toy", "rows.jsonl", "--out", "v.npy", "--resume")[0] == 0


def test_the_same_source_under_another_name_or_date_is_continued(whole, monkeypatch):
    """Names and dates do not matter, texts do."""
    interrupted(monkeypatch, "toy", "rows.jsonl", "--out", "v.npy")
    Path("rows.jsonl").rename("moved.jsonl")
    os.utime("moved.jsonl", (1, 1))
    assert call("embed", "toy", "moved.jsonl", "--out", "v.npy", "--resume")[0] == 0
    assert Path("v.npy").read_bytes() == whole


@pytest.mark.parametrize("damage", ["not JSON", "another format", "no account", "short part", "no part"])
def test_damaged_remains_are_never_trusted(whole, monkeypatch, damage):
    """They are refused or started anew; the vectors are right in the end."""
    interrupted(monkeypatch, "toy", "rows.jsonl", "--out", "v.npy")
    part, account = part_of(Path("v.npy")), progress_of(Path("v.npy"))
    if damage == "not JSON":
        account.write_text('{"done": 16')
    elif damage == "another format":
        account.write_text(json.dumps({**json.loads(account.read_text()), "format": 99}))
    elif damage == "no account":
        account.unlink()
    elif damage == "short part":
        part.write_bytes(part.read_bytes()[:-1])
    else:
        part.unlink()
    status, _, errors = call("embed", "toy", "rows.jsonl", "--out", "v.npy", "--resume")
    if damage == "short part":
        assert status == 1
        assert "shorter than it was" in errors
        assert call("embed", "toy", "rows.jsonl", "--out", "v.npy")[0] == 0
    else:
        assert status == 0
        assert "starting at the beginning" in errors
    assert Path("v.npy").read_bytes() == whole


def test_two_processes_do_not_fill_one_file(whole):
    """The second is refused, whatever its flags, and the first goes on undisturbed."""
    origin = dict.fromkeys(ORIGIN, "x")
    with VectorFile(Path("v.npy"), (3, 2), origin) as first:
        first.open(resume=False)
        first.append(np.ones((1, 2), np.float32))
        for flags in ([], ["--resume"], ["--overwrite"]):
            status, _, errors = call("embed", "toy", "rows.jsonl", "--out", "v.npy", *flags)
            assert status == 1
            assert "another process is filling v.npy.part" in errors
        first.append(np.ones((2, 2), np.float32))
        first.finish()
    assert np.array_equal(np.load("v.npy"), np.ones((3, 2)))


def test_a_file_that_is_just_finished_is_not_cut_off(monkeypatch):
    """Between opening and locking, the other process may have given the part its final name."""
    import fcntl

    part_of(Path("v.npy")).write_bytes(b"all the vectors")
    monkeypatch.setattr(fcntl, "flock", lambda *_: part_of(Path("v.npy")).rename("v.npy"))
    late = VectorFile(Path("v.npy"), (3, 2), dict.fromkeys(ORIGIN, "x"))
    with late, pytest.raises(OutputError, match="another process"):
        late.open(resume=False)
    assert Path("v.npy").read_bytes() == b"all the vectors"


def test_ctrl_c_says_how_to_go_on(whole, monkeypatch):
    """Status 130, and the windows so far are kept."""
    embed, calls = Model.embed, iter(range(100))

    def pressed(self: Model, texts: Any, *, batch_size: int) -> Any:
        if next(calls) == 3:
            signal.raise_signal(signal.SIGINT)
        return embed(self, texts, batch_size=batch_size)

    with monkeypatch.context() as patch:
        patch.setattr(Model, "embed", pressed)
        status, _, errors = call("embed", "toy", "rows.jsonl", "--out", "v.npy")
    assert status == 130
    assert f"stopped after {3 * W} of {5 * W + 3} texts; continue with --resume." in errors
    assert call("embed", "toy", "rows.jsonl", "--out", "v.npy", "--resume")[0] == 0
    assert Path("v.npy").read_bytes() == whole


def test_other_faults_of_the_disk_are_told(monkeypatch):
    """In the words of the system, with a way on."""
    write_rows(Path("rows.jsonl"), 3)

    def fail(*_: object) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "fsync", fail)
    with VectorFile(Path("v.npy"), (3, 2), dict.fromkeys(ORIGIN, "x")) as vectors, pytest.raises(OutputError) as caught:
        vectors.open(resume=False)
    assert "writing failed: Input/output error" in str(caught.value)


# Progress


def test_lines_tell_how_far_it_is(whole):
    """Off a terminal: about twenty lines, none for a single window, nothing on standard output."""
    status, out, errors = call("embed", "toy", "rows.jsonl", "--out", "v.npy")
    assert status == 0
    assert out == b""
    assert len(re.findall(r"^\d+/43 texts  [\d,]+ texts/s  \d+ s left$", errors, re.MULTILINE)) == 5
    write_rows(Path("many.jsonl"), 60 * W)
    assert 15 <= call("embed", "toy", "many.jsonl", "--out", "m.npy")[2].count("texts/s") <= 20
    write_rows(Path("few.jsonl"), W)
    assert "texts/s" not in call("embed", "toy", "few.jsonl", "--out", "f.npy")[2]


def test_a_terminal_has_a_bar_that_every_batch_moves(whole, monkeypatch):
    """Texts a second and the time left; it starts where the interrupted run ended."""
    interrupted(monkeypatch, "toy", "rows.jsonl", "--out", "v.npy")
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "120")
    reached: list[int] = []
    reach = EmbeddingProgress.reach

    def watching(self: EmbeddingProgress, done: int) -> None:
        reached.append(done)
        reach(self, done)

    monkeypatch.setattr(EmbeddingProgress, "reach", watching)
    status, out, errors = call("embed", "toy", "rows.jsonl", "--out", "v.npy", "--batch-size", "4", "--resume")
    assert status == 0
    assert out == b""
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", errors)
    assert "43/43" in plain
    assert "texts/s" in plain
    assert reached[:3] == [2 * W + 4, 2 * W + 8, 3 * W]
    assert reached == sorted(reached)
    assert reached[-1] == 43
