"""Names, patterns and atomic writes."""

from __future__ import annotations

import os

import pytest

from nearfar.errors import DataError, OutputError, SettingError
from nearfar.shards.storage import Storage, expand


@pytest.fixture
def folder(tmp_path):
    for name in ("a.csv", "b.csv", "c.txt", "deep/d.csv", ".hidden.csv"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x")
    return tmp_path


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("*.csv", ["a.csv", "b.csv"]),
        ("**/*.csv", ["a.csv", "b.csv", "deep/d.csv"]),
        ("[bc].*", ["b.csv", "c.txt"]),
        ("[!b].csv", ["a.csv"]),
        ("?.txt", ["c.txt"]),
        ("deep", ["deep/d.csv"]),
        ("a.csv", ["a.csv"]),
    ],
)
def test_patterns_and_folders_stand_for_files(folder, pattern, found):
    """Sorted; hidden files are left out."""
    names = [os.path.relpath(entry.name, folder) for entry in expand([str(folder / pattern)])]
    assert names == found


def test_relative_names_are_below_the_working_folder(folder, monkeypatch):
    """As users write them."""
    monkeypatch.chdir(folder)
    assert [os.path.basename(entry.name) for entry in expand(["*.csv", "a.csv"])] == ["a.csv", "b.csv"]


@pytest.mark.parametrize(("name", "message"), [("*.xml", "no file fits"), ("none.csv", "there is no such file")])
def test_a_name_without_a_file_is_refused(folder, name, message):
    """With what to do."""
    with pytest.raises(DataError, match=message):
        expand([str(folder / name)])
    with pytest.raises(SettingError, match="no file is named"):
        expand([" "])


def test_an_unknown_scheme_is_refused():
    """In one sentence."""
    with pytest.raises(DataError, match="no files can be reached by nowhere://"):
        expand(["nowhere://bucket/a.csv"])


def test_a_file_is_written_whole_or_not_at_all(tmp_path):
    """No temporary file is left."""
    place = Storage(str(tmp_path / "new" / "a"))
    place.write(b"first")
    place.write(b"second")
    assert place.read() == b"second"
    assert os.listdir(tmp_path / "new") == ["a"]
    with pytest.raises(OutputError, match="writing failed"):
        Storage(str(tmp_path / "new" / "a" / "b")).write(b"")
    place.delete()
    place.delete()
    assert place.entry() is None


def test_missing_credentials_of_google_are_named():
    """In place of what the library says, which is long."""
    with (
        pytest.raises(DataError, match=r"no credentials for gs:// were found. Log in"),
        Storage("gs://b/a").read_errors(),
    ):
        raise OSError("google::cloud::Status(UNAVAILABLE: Could not create a OAuth2 access token to authenticate")
