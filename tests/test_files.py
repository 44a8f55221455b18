"""Atomic writes, locks and full disks: a file exists whole or not at all, whatever happens in between."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from nearfar.errors import OutputError
from nearfar.files import (
    FolderClaim,
    atomic,
    atomic_folder,
    check_writable,
    existing_parent,
    is_full,
    lock,
    lock_named,
    new_mode,
    only_process,
    remove,
    sha256_of,
    write_atomic,
)


@pytest.mark.parametrize("umask", [0o022, 0o027, 0o077])
def test_the_umask_says_who_may_read_a_file(tmp_path, umask):
    before = os.umask(umask)
    try:
        write_atomic(tmp_path / "a.txt", "a")
        (tmp_path / "plain.txt").write_text("b")
        (tmp_path / "folder").mkdir()
        modes = [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("a.txt", "plain.txt", "folder")]
        assert modes == [new_mode(), new_mode(), new_mode(folder=True)] == [0o666 & ~umask] * 2 + [0o777 & ~umask]
    finally:
        os.umask(before)


def test_a_written_file_is_readable_by_everybody_and_alone(tmp_path):
    write_atomic(tmp_path / "a.txt", "äöü\n")
    write_atomic(tmp_path / "b.bin", b"\0", tmp_path / ".b")
    assert (tmp_path / "a.txt").read_text(encoding="utf-8") == "äöü\n"
    assert stat.S_IMODE((tmp_path / "b.bin").stat().st_mode) == 0o644
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.txt", "b.bin"]


@pytest.mark.parametrize("temporary", [None, ".a.new"])
def test_an_error_leaves_the_old_file_and_nothing_else(tmp_path, temporary):
    path = tmp_path / "a.txt"
    write_atomic(path, "old")

    def stop(file: Path) -> None:
        file.write_text("half")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), atomic(path, temporary and tmp_path / temporary) as file:
        stop(file)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_is_replaced_whole_or_stays(tmp_path):
    path, temporary = tmp_path / "step-1", tmp_path / ".writing"
    temporary.mkdir()
    (temporary / "left by a killed process").touch()
    with atomic_folder(path, temporary) as folder:
        (folder / "a").write_text("1")
    with pytest.raises(ZeroDivisionError), atomic_folder(path, temporary) as folder:
        (folder / "b").write_text(str(1 / 0))
    assert [entry.name for entry in tmp_path.rglob("*")] == ["step-1", "a"]


def test_a_second_process_is_kept_out(tmp_path):
    with only_process(tmp_path / "study", ".lock", "another process runs this study."):
        code = (
            "import sys, pathlib; from nearfar.files import only_process\n"
            "with only_process(pathlib.Path(sys.argv[1]), '.lock', 'another process runs this study.'): pass"
        )
        done = subprocess.run([sys.executable, "-c", code, tmp_path / "study"], capture_output=True, text=True)
        assert "OutputError" in done.stderr
        assert "study: another process runs this study." in done.stderr
        with (tmp_path / "study" / ".lock").open("rb") as file, pytest.raises(BlockingIOError):
            lock(file)
    with only_process(tmp_path / "study", ".lock", "another process runs this study."):
        pass


def test_a_folder_is_claimed_by_one_at_a_time_and_nothing_is_left_in_it(tmp_path):
    folder = tmp_path / "model"
    first, second = FolderClaim(folder, "it is taken."), FolderClaim(folder, "it is taken.")
    first.take()  # there is none to take yet
    folder.mkdir()
    first.take()
    first.take()
    with pytest.raises(OutputError, match=r"model: it is taken\."):
        second.take()
    assert not list(folder.iterdir())
    first.close()
    second.take()
    second.close()


def test_a_file_that_was_renamed_meanwhile_is_not_taken(tmp_path):
    """Who opens a file before another process renames it holds the finished file, and would write into it."""
    path = tmp_path / "a.part"
    path.touch()
    with path.open("rb") as first, path.open("rb") as second:
        assert lock_named(first, path)
        assert not lock_named(second, path)
        path.rename(tmp_path / "a")
        first.close()
        assert not lock_named(second, path)


def test_what_is_full_is_told_from_other_errors(tmp_path):
    assert is_full(OSError(errno.ENOSPC, "x"))
    assert is_full(RuntimeError("No space left on device"))
    assert not is_full(OSError(errno.EACCES, "x"))
    with pytest.raises(OutputError, match="nothing can be written there: No such file or directory"):
        check_writable(tmp_path / "none", tmp_path / "none")


def test_small_helpers(tmp_path):
    (tmp_path / "folder" / "inside").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "folder")
    assert existing_parent(tmp_path / "no" / "such") == tmp_path
    remove(tmp_path / "link")
    assert (tmp_path / "folder" / "inside").is_dir()
    remove(tmp_path / "folder")
    remove(tmp_path / "folder")
    assert not list(tmp_path.iterdir())
    assert sha256_of(Path(os.devnull)).startswith("e3b0c44298fc1c14")


def test_abandoned_temporary_files_are_removed(tmp_path: Path):
    """Those of killed processes; one that a process still writes is locked, and a new one may not be locked yet."""
    names = (".a.csv-12345678", ".a.csv-abcdefgh", ".a.csv-new45678", ".b.csv-12345678")
    _, written, young, other = paths = [tmp_path / name for name in names]
    for path in paths:
        path.touch()
        if path != young:
            os.utime(path, (0, 0))
    with written.open("rb") as file:
        lock(file)
        write_atomic(tmp_path / "a.csv", "x")
    assert {path.name for path in tmp_path.iterdir()} == {"a.csv", written.name, young.name, other.name}
