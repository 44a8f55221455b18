"""Where data may come from: files, folders saved by datasets, the hub, samples."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from nearfar.data import Layout, read, samples
from nearfar.data.sources import locate
from nearfar.errors import DataError, Problem


def only(source: str, *arguments: object, **settings: object) -> Problem:
    with pytest.raises(DataError) as caught:
        read(source, *arguments, **settings)  # type: ignore[arg-type]
    assert len(caught.value.problems) == 1, caught.value.problems
    assert caught.value.problems[0].where == source
    return caught.value.problems[0]


@pytest.fixture(autouse=True)
def _offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No network, caches in a folder of the test, no progress bars."""
    import huggingface_hub.constants

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    monkeypatch.setattr(datasets.config, "HF_MODULES_CACHE", tmp_path / "modules")
    datasets.disable_progress_bars()


def dataset(*labels: int) -> datasets.Dataset:
    return datasets.Dataset.from_dict(
        {"text": [f"row {i}" for i in range(len(labels))], "label": list(labels)},
        features=datasets.Features(
            {"text": datasets.Value("string"), "label": datasets.ClassLabel(names=["no", "yes"])}
        ),
    )


def test_paths_are_relative_to_the_base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A relative path starts at the base, an absolute one does not, and ~ is the home folder."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.txt").write_text("x")
    assert read("a.txt", base=tmp_path / "in").source == "a.txt"
    assert len(read(str(tmp_path / "in" / "a.txt"), base=Path("/nowhere"))) == 1
    monkeypatch.setenv("HOME", str(tmp_path))
    assert len(read("~/in/a.txt")) == 1


def test_missing_file(tmp_path: Path) -> None:
    """A missing file is reported with the nearest name in its folder."""
    (tmp_path / "train.csv").write_text("text\nx\n")
    problem = only(str(tmp_path / "trian.csv"))
    assert problem.message == "there is no such file"
    assert "Did you mean 'train.csv'?" in problem.remedy
    assert "there is no folder" in only(str(tmp_path / "no" / "train.csv")).message
    assert "there is no such file" in only(str(tmp_path / "train.csv" / "x.csv")).message


@pytest.mark.parametrize("source", ["", "  ", "a\0b.csv", "x" * 5_000 + ".csv", "hub:", "sample:"])
def test_sources_that_name_nothing(source: str) -> None:
    """Nothing named, or nothing a file system can hold, is refused."""
    with pytest.raises(DataError):
        read(source)


def test_unknown_ending(tmp_path: Path) -> None:
    """A format that is not supported lists those that are."""
    for name in ("a.doc", "a", "a.parquet.gz", "a.xlsx.gz"):
        (tmp_path / name).write_text("x")
        problem = only(str(tmp_path / name))
        assert "not supported" in problem.message
        assert all(
            ending in problem.remedy for ending in (".csv", ".tsv", ".jsonl", ".json", ".parquet", ".txt", ".gz")
        )


def test_not_a_plain_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pipes, sockets and devices are refused without being opened."""
    os.mkfifo(tmp_path / "a.csv")
    assert "not a plain file" in only(str(tmp_path / "a.csv")).message
    with socket.socket(socket.AF_UNIX) as server:
        monkeypatch.chdir(tmp_path)  # socket names may not be long
        server.bind("b.csv")
        assert "not a plain file" in only("b.csv").message
    assert "not a plain file" in only("/dev/null").message


@pytest.mark.parametrize("name", ["a.csv", "a.jsonl", "a.parquet"])
def test_unreadable_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """A file without read permission is refused with what to do about it."""
    (tmp_path / name).write_text("text\nx\n")

    def denied(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", denied)  # root may read anything, so a mode will not do
    problem = only(str(tmp_path / name))
    assert "permission denied" in problem.message
    assert "chmod" in problem.remedy


def test_unreadable_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder that may not be entered is reported as such."""

    def denied(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "stat", denied)
    assert "may not be entered" in only(str(tmp_path / "a.csv")).message


@pytest.mark.parametrize("step", ["is_file", "iterdir"])
def test_folder_that_cannot_be_looked_into(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    """A folder whose files may not be looked at, or not be listed, is reported as such."""

    def denied(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, step, denied)  # root may enter anything
    assert "may not be entered" in only(str(tmp_path)).message


def test_folder_of_something_else(tmp_path: Path) -> None:
    """A folder that datasets did not save is refused, with the files in it that could be read."""
    (tmp_path / "a.csv").write_text("text\nx\n")
    (tmp_path / "b.doc").write_text("x")
    problem = only(str(tmp_path))
    assert "not one saved by datasets" in problem.message
    assert "a.csv" in problem.remedy
    assert "b.doc" not in problem.remedy


def test_a_file_has_no_splits(tmp_path: Path) -> None:
    """A split of a single file is refused; a file with # in its name is read."""
    (tmp_path / "a.txt").write_text("x")
    assert "no split 'dev'" in only(str(tmp_path / "a.txt#dev")).message
    (tmp_path / "b#1.txt").write_text("x")
    assert len(read(str(tmp_path / "b#1.txt"))) == 1
    assert "Did you mean 'a.txt'?" in only(str(tmp_path / "aa.txt#dev")).remedy


def test_parquet(tmp_path: Path) -> None:
    """Parquet rows are numbered from 1, over several row groups, with nulls as faults."""
    path = tmp_path / "a.parquet"
    table = pa.table({"text": ["a", "b", None] * 1_000, "label": [1, 2, 3] * 1_000, "score": [0.5, 1.0, 2.0] * 1_000})
    pq.write_table(table, path, row_group_size=700)
    records = read(str(path), invalid="drop")
    assert len(records) == 2_000
    assert records.lines[:3] == [1, 2, 4]
    assert records.classes() == ("1", "2")
    with pytest.raises(DataError) as caught:
        read(str(path))
    assert [p.line for p in caught.value.problems[:2]] == [3, 6]
    assert read(str(path), Layout(score="score"), invalid="drop").scores == [0.5, 1.0] * 1_000


def test_parquet_faults(tmp_path: Path) -> None:
    """Damaged, empty and doubtful Parquet files are refused."""
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"text": ["a", "b"]}), path)
    whole = path.read_bytes()
    for content in (b"", b"PAR1", b"text\nx\n", whole[:-10], whole[: len(whole) // 2], b"\0" * len(whole)):
        path.write_bytes(content)
        assert "not a Parquet file" in only(str(path)).message
    pq.write_table(pa.table({"text": pa.array([], pa.string())}), path)
    assert "there are no rows" in only(str(path)).message
    pq.write_table(pa.Table.from_arrays([pa.array(["a"]), pa.array(["b"])], names=["text", "text"]), path)
    assert "'text' occur more than once" in only(str(path)).message


def test_class_names_in_parquet(tmp_path: Path) -> None:
    """Class numbers become names where datasets left the names in the file."""
    dataset(1, 0).to_parquet(tmp_path / "a.parquet")
    assert read(str(tmp_path / "a.parquet")).labels == ["yes", "no"]


def test_saved_dataset(tmp_path: Path) -> None:
    """A saved Dataset gives class names; -1 is a missing label; it has no splits."""
    dataset(1, 0, -1).save_to_disk(tmp_path / "d")
    problem = only(str(tmp_path / "d"))
    assert (problem.line, problem.column, problem.message) == (3, "label", "the label is missing")
    records = read("d", base=tmp_path, invalid="drop")
    assert (records.labels, records.lines) == (["yes", "no"], [1, 2])
    assert "without splits" in only(str(tmp_path / "d#test")).message


def test_saved_dataset_dict(tmp_path: Path) -> None:
    """A saved DatasetDict gives train, or the split after #; others are listed."""
    datasets.DatasetDict(train=dataset(1, 0), test=dataset(0)).save_to_disk(tmp_path / "d")
    assert len(read(str(tmp_path / "d"))) == 2
    assert len(read(str(tmp_path / "d#test"))) == 1
    problem = only(str(tmp_path / "d#tset"))
    assert "train, test" in problem.remedy
    assert "Did you mean 'test'?" in problem.remedy
    datasets.DatasetDict(dev=dataset(1)).save_to_disk(tmp_path / "e")
    assert "no split 'train'" in only(str(tmp_path / "e")).message


def test_damaged_folder(tmp_path: Path) -> None:
    """A saved folder that lost its data or its lists is refused."""
    datasets.DatasetDict(train=dataset(1, 0)).save_to_disk(tmp_path / "d")
    arrow = next((tmp_path / "d" / "train").glob("*.arrow"))
    arrow.write_bytes(arrow.read_bytes()[:40])
    assert "datasets" in only(str(tmp_path / "d")).message
    arrow.unlink()
    assert "datasets can open" in only(str(tmp_path / "d")).message
    (tmp_path / "d" / "dataset_dict.json").write_text("{")
    assert "datasets can open" in only(str(tmp_path / "d")).message


def hub_folder(path: Path) -> None:
    """A data set as it stands on the hub, with a configuration of its own."""
    path.mkdir(parents=True)
    for split, texts in {"train": ["a", "b"], "test": ["c"]}.items():
        (path / f"{split}.jsonl").write_text("".join(json.dumps({"text": t, "label": t}) + "\n" for t in texts))
    files = "".join(f"\n  - split: {split}\n    path: {split}.jsonl" for split in ("train", "test"))
    (path / "README.md").write_text(f"---\nconfigs:\n- config_name: part\n  data_files:{files}\n---\n")


@pytest.mark.parametrize("name", ["owner/name", "name", "name/part"])
def test_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """A data set by name, by owner and name, or by name and configuration, with its splits."""
    hub_folder(tmp_path / name.removesuffix("/part"))
    monkeypatch.chdir(tmp_path)
    assert read(f"hub:{name}").texts == (["a", "b"],)
    assert read(f"hub:{name}#test").labels == ["c"]
    assert "train, test" in only(f"hub:{name}#dev").remedy
    assert read(f"hub:{tmp_path / name.removesuffix('/part')}").lines == [1, 2]


def test_hub_out_of_reach(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a network there is a remedy and no traceback."""
    monkeypatch.chdir(tmp_path)
    for source in ("hub:nobody", "hub:nobody/nothing#dev"):
        problem = only(source)
        assert "the hub cannot be reached" in problem.message
        assert "Connect to the network" in problem.remedy


def test_hub_refusal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What datasets refuses for another reason is handed on in one line."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bare").mkdir()
    problem = only("hub:bare")
    assert "the hub has no data set 'bare'" in problem.message
    assert "hub:OWNER/NAME" in problem.remedy


def test_samples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Samples are read by name and split; unknown ones list those there are."""
    import nearfar.data.sources as module

    (tmp_path / "tiny").mkdir()
    for split in ("train", "test"):
        (tmp_path / "tiny" / f"{split}.jsonl").write_text(json.dumps({"text": split, "label": "x"}))
    monkeypatch.setattr(module, "SAMPLES", tmp_path)
    assert samples() == {"tiny": ("test", "train")}
    assert read("sample:tiny").texts == (["train"],)
    assert read("sample:tiny#test").texts == (["test"],)
    problem = only("sample:tiney")
    assert "sample:tiny" in problem.remedy
    assert "Did you mean 'tiny'?" in problem.remedy
    assert "test, train" in only("sample:tiny#dev").remedy
    assert "no sample" in only("sample:../tiny").message


def test_locate_tells_the_format(tmp_path: Path) -> None:
    """Endings count in any case, packed or not."""
    for name, form in {"a.CSV": "csv", "a.Jsonl.GZ": "jsonl", "a.ndjson": "jsonl", "a.json.gz": "json"}.items():
        (tmp_path / name).write_text("x")
        place = locate(name, tmp_path)
        assert (place.format, place.path, place.source) == (form, tmp_path / name, name)
    assert locate("-").format == "stdin"
    assert locate("hub:a/b#dev").split == "dev"
