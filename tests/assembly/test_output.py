"""Output folders, full disks and interrupted saves: an error before the work, and never a loss."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from rich.console import Console

from nearfar.assembly import output, run
from nearfar.assembly.output import check_output, check_room, open_output, write_whole
from nearfar.errors import DataError, NearfarError, OutputError
from nearfar.recipe import build_recipe

QUIET = Console(quiet=True)


def texts(folder: Path) -> str:
    rows = [f"{'apple' if n % 2 else 'hammer'} {n},{'fruit' if n % 2 else 'tool'}" for n in range(16)]
    (folder / "t.csv").write_text("text,label\n" + "\n".join(rows) + "\n")
    return str(folder / "t.csv")


def test_a_folder_below_a_file_is_refused_before_the_work(tmp_path):
    """Nobody can make that folder."""
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="cannot be made"):
        check_output(tmp_path / "file" / "model", resume=False, overwrite=False)


def test_a_folder_that_cannot_be_written_is_refused_before_the_work():
    """A read-only folder, seen by a user whom its mode binds: a child process that gives up its rights."""
    with tempfile.TemporaryDirectory() as name:
        os.chmod(name, 0o555)
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                if os.getuid() == 0:
                    os.setuid(65534)
                check_output(Path(name), resume=False, overwrite=False)
                os.write(writing, b"accepted")
            except OutputError as error:
                os.write(writing, str(error).encode())
            finally:
                os._exit(0)
        os.close(writing)
        os.waitpid(child, 0)
        assert b"nothing can be written there" in os.read(reading, 1_000)
        os.close(reading)


def test_too_little_room_is_refused_before_the_work(tmp_path):
    """The free space is compared with what checkpoints and model need."""
    check_room(tmp_path, 1_000, keep=2)
    with pytest.raises(OutputError, match=r"GB free, and this run may need"):
        check_room(tmp_path, 10**15, keep=2)


def test_a_disk_that_fills_up_keeps_the_earlier_checkpoints(tmp_path):
    """Writing past the limit of file size is refused by the system: the run stops with the remedy, and can resume."""
    source = texts(tmp_path)
    script = (
        "import resource, sys, signal\nfrom pathlib import Path\nfrom rich.console import Console\n"
        "from nearfar.assembly import run\nfrom nearfar.recipe import build_recipe\nfrom nearfar.errors import OutputError\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "class Fill:\n"
        " def step(self, entry):\n"
        "  if entry['step'] == 3: resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, resource.RLIM_INFINITY))\n"
        " def evaluation(self, entry): pass\n def notice(self, text): pass\n"
        "values = {'data': {'train': sys.argv[1]}, 'encoder': {'name': 'toy'}, 'batches': {'size': 8}, 'training': {'epochs': 3, 'checkpoint_every': 1}}\n"
        "try:\n run(build_recipe(values, [], where='t'), Path(sys.argv[2]), console=Console(quiet=True), listeners=(Fill(),))\n"
        "except OutputError as error:\n print(error)\n"
    )
    out = tmp_path / "model"
    done = subprocess.run([sys.executable, "-c", script, source, str(out)], capture_output=True, text=True, timeout=120)
    assert "no room left" in done.stdout, done.stdout + done.stderr
    assert "--resume" in done.stdout
    names = sorted(path.name for path in (out / "checkpoints").iterdir())
    assert names == ["step-00000001", "step-00000002"]
    values = {
        "data": {"train": source},
        "encoder": {"name": "toy"},
        "batches": {"size": 8},
        "training": {"epochs": 3, "checkpoint_every": 1},
    }
    summary = run(build_recipe(values, [], where="t"), out, console=QUIET, resume=True)
    assert summary.progress is not None
    assert summary.progress.step == 6
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] == resource.RLIM_INFINITY


def test_overwriting_replaces_a_model_and_nothing_else(tmp_path):
    """A folder that holds no model of ours is left alone."""
    own, other = tmp_path / "own", tmp_path / "other"
    own.mkdir()
    other.mkdir()
    (own / "nearfar.json").write_text("{}")
    (own / "old.safetensors").write_text("")
    (other / "thesis.tex").write_text("years of work")

    assert check_output(own, resume=False, overwrite=True)
    assert len(list(own.iterdir())) == 2  # looking changes nothing
    open_output(own, resume=False)
    assert not list(own.iterdir())
    with pytest.raises(OutputError, match="not replaced"):
        check_output(other, resume=False, overwrite=True)
    assert (other / "thesis.tex").read_text() == "years of work"


def test_files_are_whole_or_not_there(tmp_path, monkeypatch):
    """A write that fails half-way leaves the old content."""
    path = tmp_path / "metrics.json"
    write_whole(path, "old")

    def fail(*_: object) -> None:
        raise OSError("stop")

    monkeypatch.setattr(output.os, "fsync", fail)
    with pytest.raises(OSError, match="stop"):
        write_whole(path, "new")
    assert path.read_text() == "old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["metrics.json"]


def test_problems_of_all_files_are_listed_together(tmp_path):
    """Train, dev and test are read before anything is refused; a label only the test file has is one of the problems."""
    texts(tmp_path)
    (tmp_path / "dev.csv").write_text("text,label\n,fruit\n")
    (tmp_path / "test.csv").write_text("text,label\na spoon,cutlery\n")
    values = {
        "data": {
            name: str(tmp_path / file) for name, file in (("train", "t.csv"), ("dev", "dev.csv"), ("test", "test.csv"))
        }
    }
    with pytest.raises(DataError) as caught:
        run(build_recipe(values, [], where="t"), tmp_path / "m", console=QUIET)
    text = str(caught.value)
    assert "dev.csv:2" in text
    assert "test.csv:2" in text
    assert "cutlery" in text
    assert not (tmp_path / "m").exists()


def test_metrics_and_card_tell_the_same(tmp_path):
    """metrics.json has dev and test scores; the card shows them, and says what chose the weights."""
    values = {
        "data": {"train": texts(tmp_path), "dev": 0.25, "test": 0.25},
        "encoder": {"name": "toy"},
        "training": {"epochs": 1},
    }
    run(build_recipe(values, [], where="t"), tmp_path / "m", console=QUIET)
    metrics = json.loads((tmp_path / "m" / "metrics.json").read_text())
    card = (tmp_path / "m" / "README.md").read_text()

    for split in ("dev", "test"):
        assert f"| {split} | {metrics[split]['accuracy']:.4f} |" in card
    assert "flatter" in card


@pytest.mark.parametrize("changes", [{"encoder": {"name": "no-such/encoder"}}, {"training": {"trackers": ["wandb"]}}])
def test_an_old_model_stays_until_the_new_run_begins(tmp_path, changes):
    """--overwrite with an encoder that cannot be opened, or a tracker that is not installed, costs nothing."""
    values = {"data": {"train": texts(tmp_path)}, "encoder": {"name": "toy"}, "training": {"epochs": 1}}
    run(build_recipe(values, [], where="t"), tmp_path / "m", console=QUIET)
    before = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "m").iterdir()}
    with pytest.raises(NearfarError):
        run(build_recipe({**values, **changes}, [], where="t"), tmp_path / "m", console=QUIET, overwrite=True)
    assert {path.name: path.stat().st_mtime_ns for path in (tmp_path / "m").iterdir()} == before


def test_files_can_be_read_by_others(tmp_path):
    """A model that one account trains another may serve."""
    values = {
        "data": {"train": texts(tmp_path)},
        "encoder": {"name": "toy", "pooling": "mean"},
        "training": {"epochs": 1},
    }
    run(build_recipe(values, [], where="t"), tmp_path / "m", console=QUIET)
    modes = {path.name: path.stat().st_mode & 0o777 for path in (tmp_path / "m").rglob("*") if path.is_file()}
    assert "nearfar.safetensors" in modes
    assert set(modes.values()) == {0o644}
