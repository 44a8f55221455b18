"""Many files to shards: the same bytes whoever computes them, and only what is missing is computed."""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import nearfar
from nearfar.errors import DataError, NearfarError, OutputError, SettingError
from nearfar.shards.executors import LocalExecutor
from nearfar.shards.index_build import Settings, build_index
from nearfar.shards.run import Options, run_files
from nearfar.shards.vectors import VectorFolder
from tests.shards.conftest import contents, texts, write_corpus

ROWS = 20


def embed(corpus, out, **options):
    return nearfar.embed_files("toy", corpus, out, **{"workers": 1, "rows_per_shard": ROWS} | options)


def test_vectors_are_those_of_the_model(corpus, tmp_path):
    """Row by row, with texts, ids and the rows in their files."""
    import pyarrow.parquet as pq

    folder = embed(corpus, tmp_path / "out")
    every = np.concatenate(list(folder))
    assert len(folder) == len(every) == 150
    assert np.allclose(every, nearfar.load("toy").encode(texts(150)), atol=1e-6)
    table = pq.read_table(tmp_path / "out" / "shard-000003.parquet").to_pydict()
    assert table["text"] == texts(ROWS, 50)
    assert table["id"][0] == "d50"
    assert table["row"] == list(range(1, 21))
    assert folder.document(50) == {"doc_id": "d50", "doc": texts(1, 50)[0]}
    assert sorted(contents(tmp_path / "out")) == ["manifest.json", *(f"shard-{n:06}.parquet" for n in range(9))]


@pytest.mark.parametrize(("dtype", "error"), [("fp32", 0), ("fp16", 1e-3), ("int8", 1e-2)])
@pytest.mark.parametrize("form", ["parquet", "npy"])
def test_vectors_are_stored_in_three_types(corpus, tmp_path, dtype, error, form):
    """Each is close to single precision."""
    plain = np.concatenate(list(embed(corpus, tmp_path / "plain")))
    folder = embed(corpus, tmp_path / "out", dtype=dtype, file_format=form)
    vectors = np.concatenate(list(folder))
    assert vectors.dtype == np.float32
    assert np.abs(vectors - plain).max() <= error * np.abs(plain).max()
    assert "doc" in folder.document(149)


def test_only_the_missing_shards_are_computed_and_the_bytes_are_the_same(corpus, tmp_path):
    """After a whole run, and after one that lost some files and the records of some others."""
    embed(corpus, tmp_path / "out")
    before = contents(tmp_path / "out")
    times = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "out").iterdir()}
    embed(corpus, tmp_path / "out")
    assert {path.name: path.stat().st_mtime_ns for path in (tmp_path / "out").iterdir()} == times
    (tmp_path / "out" / "shard-000004.parquet").unlink()
    (tmp_path / "out" / "shard-000006.parquet").write_bytes(b"cut off")
    with pytest.raises(DataError, match=r"shard-000004.parquet is missing. Delete the file and give the command"):
        VectorFolder.open(str(tmp_path / "out")).vectors(4)
    embed(corpus, tmp_path / "out")
    assert contents(tmp_path / "out") == before
    again = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "out").iterdir()}
    changed = {name for name in times if again[name] != times[name]}
    assert changed == {"manifest.json", "shard-000004.parquet", "shard-000006.parquet"}


def command(corpus: Path, out: Path, *more: str) -> list[str]:
    flags = ["--rows-per-shard", str(ROWS), *more]
    return [sys.executable, "-m", "nearfar", "embed", "toy", f"{corpus}/*.parquet", "--out", f"{out}/", *flags]


def wait_for(out: Path, shards: int, process: subprocess.Popen) -> int:
    """Wait until so many shards are done; how many they are."""
    while process.poll() is None:
        done = len(list((out / "done").glob("shard-*.json")))
        if done >= shards:
            return done
        time.sleep(0.02)
    raise AssertionError(process.communicate())


@pytest.mark.slow
def test_killed_workers_and_a_killed_driver_change_no_byte(tmp_path):
    """Two processes give the bytes of one; what was done is not computed again."""
    corpus = write_corpus(tmp_path / "corpus", 4, 2000)
    embed(corpus, tmp_path / "alone")
    out = tmp_path / "out"
    driver = subprocess.Popen(command(corpus, out, "--workers", "2"), stderr=subprocess.PIPE, text=True)
    wait_for(out, 5, driver)
    children = Path(f"/proc/{driver.pid}/task/{driver.pid}/children").read_text().split()
    workers = [pid for pid in children if b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes()]
    os.kill(int(workers[-1]), signal.SIGKILL)
    done = wait_for(out, 20, driver)
    driver.send_signal(signal.SIGKILL)
    driver.communicate()
    kept = {path.name: path.stat().st_mtime_ns for path in out.glob("shard-*")}
    last = subprocess.run(command(corpus, out, "--workers", "2"), capture_output=True, text=True)
    assert last.returncode == 0, last.stderr
    assert "continuing: " in last.stderr
    assert contents(out) == contents(tmp_path / "alone")
    same = [name for name, at in kept.items() if (out / name).stat().st_mtime_ns == at]
    assert len(same) >= done


def test_an_input_that_has_changed_is_refused(corpus, tmp_path):
    """Between start and resumption, by name; the shards stay."""
    embed(corpus, tmp_path / "out")
    before = contents(tmp_path / "out")
    shutil.copy(corpus / "0.parquet", corpus / "1.parquet")
    with pytest.raises(OutputError, match=r"cannot be continued, because the input .*1.parquet has .* Undo that"):
        embed(corpus, tmp_path / "out")
    (corpus / "1.parquet").unlink()
    with pytest.raises(OutputError, match=r"because the input .*1.parquet is gone"):
        embed(corpus, tmp_path / "out")
    assert contents(tmp_path / "out") == before
    embed(corpus, tmp_path / "out", overwrite=True)
    assert len(VectorFolder.open(str(tmp_path / "out"))) == 100


@pytest.mark.parametrize("change", ["gone", "changed"])
def test_an_input_that_changes_during_a_run_is_refused(corpus, tmp_path, change):
    """With its name; what is done stays, and with the file restored the run goes on to the same bytes."""
    embed(corpus, tmp_path / "alone")
    last, aside = corpus / "2.parquet", tmp_path / "aside"
    shutil.copy2(last, aside)

    def report(done: int, _total: int) -> None:
        if done == 20:
            last.unlink()
            if change == "changed":
                shutil.copy(corpus / "0.parquet", last)

    options = Options(rows_per_shard=20)
    what = "it is gone" if change == "gone" else "it has changed since the run began"
    with pytest.raises(NearfarError, match=rf"2.parquet: {what}. Restore it .*\n6 of 9 shards are done .* stay there"):
        run_files("embed", "toy", [str(corpus)], str(tmp_path / "out"), options, LocalExecutor(1), report=report)
    shutil.copy2(aside, last)
    embed(corpus, tmp_path / "out")
    assert contents(tmp_path / "out") == contents(tmp_path / "alone")


def test_a_missing_or_cut_shard_is_named_and_computed_again(corpus, tmp_path):
    """Alone: the others stay as they are."""
    out = tmp_path / "out"
    folder = embed(corpus, out)
    before = contents(out)
    times = {path: path.stat().st_mtime_ns for path in out.glob("shard-*")}
    (out / "shard-000001.parquet").unlink()
    (out / "shard-000003.parquet").write_bytes(before["shard-000003.parquet"][:100])
    with pytest.raises(DataError, match=r"damaged: shard-000001.parquet is missing. Delete the file and give the comm"):
        folder.vectors(1)
    with pytest.raises(DataError, match=r"shard-000003.parquet has 100 bytes, and the manifest says"):
        folder.vectors(3)
    with pytest.raises(DataError, match=r"shard-000001.parquet is missing"):
        build_index(str(out), tmp_path / "index", Settings(), LocalExecutor(1))
    embed(corpus, out)
    assert contents(out) == before
    assert sum(path.stat().st_mtime_ns == at for path, at in times.items()) == len(times) - 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dtype": "fp16"}, "dtype was 'fp32' and is 'fp16'"),
        ({"rows_per_shard": 7}, "rows per shard was 20 and is 7"),
        ({"batch_size": 8}, "batch size was 64 and is 8"),
    ],
)
def test_other_settings_are_refused(corpus, tmp_path, options, message):
    """A folder has the results of one run."""
    embed(corpus, tmp_path / "out")
    with pytest.raises(OutputError, match=message):
        embed(corpus, tmp_path / "out", **options)


def test_two_runs_on_one_output_are_refused(corpus, tmp_path):
    """The second one, while the first one is at work."""
    from nearfar.files import FolderClaim

    (tmp_path / "out").mkdir()
    claim = FolderClaim(tmp_path / "out", "")
    claim.take()
    try:
        with pytest.raises(OutputError, match=r"another run is filling this folder. Let it finish"):
            embed(corpus, tmp_path / "out")
    finally:
        claim.close()
    embed(corpus, tmp_path / "out")


def test_bad_rows_are_listed_and_the_other_shards_stay(tmp_path):
    """With file and line; dropping them continues the run."""
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    (corpus / "a.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts(60)))
    (corpus / "b.jsonl").write_text('{"text": "one"}\n{"text": " "}\n{"text": "three"}\n')
    with pytest.raises(NearfarError, match=r"b.jsonl:2: column 'text': the text is empty") as error:
        embed(corpus, tmp_path / "out")
    assert "3 of 4 shards are done" in str(error.value)
    with pytest.raises(DataError, match="the run that fills this folder has not finished"):
        VectorFolder.open(str(tmp_path / "out"))
    first = (tmp_path / "out" / "shard-000000.parquet").stat().st_mtime_ns
    folder = embed(corpus, tmp_path / "out", invalid="drop")
    assert (tmp_path / "out" / "shard-000000.parquet").stat().st_mtime_ns == first
    assert [len(vectors) for vectors in folder] == [20, 20, 20, 2]
    assert folder.manifest.results[3].dropped == [2]


def test_a_full_disk_is_one_sentence(tmp_path):
    """What was written before stays, and the same command goes on."""
    corpus = write_corpus(tmp_path / "corpus", 1, 60)
    out = tmp_path / "out"
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)

    def small_files() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (3_000, limits[1]))

    done = subprocess.run(
        command(corpus, out, "--workers", "1"), capture_output=True, text=True, preexec_fn=small_files
    )
    assert done.returncode == 1
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert "there is no room left" in line
    assert "give the same command again" in line
    embed(f"{corpus}/*.parquet", out)
    embed(f"{corpus}/*.parquet", tmp_path / "alone")
    assert contents(out) == contents(tmp_path / "alone")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dtype": "fp8"}, r"dtype is one of fp32, fp16, int8, got 'fp8'"),
        ({"file_format": "csv"}, "format is one of parquet, npy"),
        ({"dtypes": "fp16"}, r"there is no option 'dtypes'.* Did you mean 'dtype'"),
        ({"rows_per_shard": 0}, "rows_per_shard must be 1 or more"),
    ],
)
def test_options_that_do_not_exist_are_refused(corpus, tmp_path, options, message):
    """With those that do."""
    with pytest.raises(SettingError, match=message):
        embed(corpus, tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()


def test_folders_with_something_else_are_left_alone(corpus, tmp_path):
    """A file, and a folder with other files."""
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "thesis.txt").write_text("mine")
    with pytest.raises(OutputError, match=r"something else than shards \(thesis.txt\)"):
        embed(corpus, tmp_path / "out", overwrite=True)
    with pytest.raises(OutputError, match="this is a file"):
        embed(corpus, tmp_path / "out" / "thesis.txt")
    with pytest.raises(DataError, match=r"there is no column 'key'"):
        embed(corpus, tmp_path / "new", id="key")


def test_predictions_of_many_files_are_those_of_one(tmp_path):
    """Every row with its columns and its prediction, as JSON Lines or Parquet."""
    import pyarrow.parquet as pq

    rows = [(text, "even" if place % 2 else "odd") for place, text in enumerate(texts(24))]
    clf = nearfar.Classifier("toy", epochs=1).fit([row[0] for row in rows], [row[1] for row in rows])
    clf.save(tmp_path / "model")
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    for number in range(2):
        lines = [{"id": place, "text": text} for place, text in enumerate(texts(30, 30 * number))]
        (corpus / f"{number}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    with (corpus / "1.jsonl").open("a") as file:
        file.write('{"id": 99, "text": ""}\n')
    options = {"rows_per_shard": 16, "workers": 1, "invalid": "drop"}
    manifest = nearfar.predict_files(tmp_path / "model", corpus, tmp_path / "out", **options)
    lines = [
        json.loads(line)
        for name in sorted(contents(tmp_path / "out"))
        if name != "manifest.json"
        for line in (tmp_path / "out" / name).read_text().splitlines()
    ]
    assert sum(result.rows for result in manifest.results) == len(lines) == 61
    assert [line.get("label") for line in lines[:60]] == clf.predict(texts(60)).tolist()
    assert lines[60] == {"id": 99, "text": "", "not_predicted": "the text is empty"}
    nearfar.predict_files(tmp_path / "model", corpus, tmp_path / "flat", file_format="parquet", **options)
    tables = [pq.read_table(path) for path in sorted((tmp_path / "flat").glob("*.parquet"))]
    assert [row["label"] for table in tables for row in table.to_pylist()] == [line.get("label") for line in lines]
    with pytest.raises(OutputError, match="it is of nearfar predict"):
        nearfar.embed_files(tmp_path / "model", corpus, tmp_path / "out", **options)
    with pytest.raises(SettingError, match="this model has no class head"):
        nearfar.predict_files("toy", corpus, tmp_path / "none", **options)
