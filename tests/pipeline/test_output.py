"""Output folders, full disks and interrupted saves: an error before the work, and never a loss."""

from __future__ import annotations

import errno
import json
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from rich.console import Console

from nearfar.cli import main
from nearfar.errors import DataError, NearfarError, OutputError
from nearfar.files import write_atomic, write_errors
from nearfar.pipeline import train as train_recipe
from nearfar.pipeline.output import check_output, check_room, open_output
from nearfar.recipe import build_recipe
from nearfar.training import Callback, Journal

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


def test_a_name_that_no_folder_can_have_is_refused_before_the_work(tmp_path):
    with pytest.raises(OutputError, match="cannot be looked at: File name too long"):
        check_output(tmp_path / ("x" * 300), resume=False, overwrite=False)


@pytest.mark.parametrize("name", ["toy", "minilm", "sentence-transformers/all-MiniLM-L6-v2"])
def test_the_name_of_a_built_in_encoder_is_refused(name, tmp_path, monkeypatch):
    """Later commands would open the encoder, and the work would seem to have done nothing."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(OutputError, match=f"{name}: this is the name of an encoder"):
        check_output(Path(name), resume=False, overwrite=False)
    assert check_output(tmp_path / name, resume=False, overwrite=False)


def test_a_journal_that_finds_no_room_says_so():
    """And an error of another kind stays what it is."""
    with pytest.raises(OutputError, match=r"/dev/full: the journal could not be written: there is no room left"):
        Journal(Path("/dev/full")).write({"kind": "step"})
    with pytest.raises(ZeroDivisionError), write_errors(Path("model"), "the model"):
        1 / 0  # noqa: B018


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
        "from nearfar.pipeline import train as train_recipe\nfrom nearfar.recipe import build_recipe\nfrom nearfar.errors import OutputError\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "class Fill:\n"
        " def step(self, entry):\n"
        "  if entry['step'] == 3: resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, resource.RLIM_INFINITY))\n"
        " def evaluation(self, entry): pass\n def message(self, text): pass\n def begin(self, steps): pass\n def end(self): pass\n"
        "values = {'data': {'train': sys.argv[1]}, 'encoder': {'name': 'toy'}, 'batches': {'size': 8}, 'training': {'epochs': 3, 'checkpoint_every': 1}}\n"
        "try:\n train_recipe(build_recipe(values, [], where='t'), Path(sys.argv[2]), callbacks=(Fill(),))\n"
        "except OutputError as error:\n print(error)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))\n"
        "values['training'] = {'max_steps': 3}\n"
        "try:\n train_recipe(build_recipe(values, [], where='t'), Path(sys.argv[2] + '-2'), callbacks=(Fill(),))\n"
        "except OutputError as error:\n print(error)\n"
    )
    out = tmp_path / "model"
    done = subprocess.run([sys.executable, "-c", script, source, str(out)], capture_output=True, text=True, timeout=120)
    stored, saved = done.stdout.splitlines() or [done.stderr] * 2
    assert "the checkpoint could not be written: there is no room left" in stored
    assert "--resume" in stored
    assert "the model could not be written: there is no room left" in saved
    names = sorted(path.name for path in (out / "checkpoints").iterdir())
    assert names == ["step-00000001", "step-00000002"]
    values = {
        "data": {"train": source},
        "encoder": {"name": "toy"},
        "batches": {"size": 8},
        "training": {"epochs": 3, "checkpoint_every": 1},
    }
    summary = train_recipe(build_recipe(values, [], where="t"), out, resume=True)
    assert summary.progress is not None
    assert summary.progress.step == 6
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] == resource.RLIM_INFINITY


def test_a_disk_without_room_is_named_before_the_first_step(tmp_path):
    """The recipe is the first file of a run; 100 bytes of it can be written."""
    values = {"data": {"train": texts(tmp_path)}, "encoder": {"name": "toy"}}
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, before[1]))
    try:
        with pytest.raises(OutputError, match=r"model: recipe\.toml could not be written: there is no room left\."):
            train_recipe(build_recipe(values, [], where="t"), tmp_path / "model")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert not list((tmp_path / "model").iterdir())


@pytest.mark.parametrize(
    ("number", "ends"), [(errno.ENOSPC, SystemExit), (errno.EFBIG, SystemExit), (errno.EIO, OSError)]
)
def test_a_full_disk_is_a_message_in_every_command(monkeypatch, capsys, number, ends):
    def write(**_: object) -> None:
        raise OSError(number, os.strerror(number), "tuned/tune.json")

    monkeypatch.setitem(main.__globals__, "app", write)
    with pytest.raises(ends):
        main()
    full = "error: tuned/tune.json: there is no room left to write: make room and give the same command again."
    assert (full in capsys.readouterr().err) == (ends is SystemExit)


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
    write_atomic(path, "old")

    def fail(*_: object) -> None:
        raise OSError("stop")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="stop"):
        write_atomic(path, "new")
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
        train_recipe(build_recipe(values, [], where="t"), tmp_path / "m")
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
    train_recipe(build_recipe(values, [], where="t"), tmp_path / "m")
    metrics = json.loads((tmp_path / "m" / "metrics.json").read_text())
    card = (tmp_path / "m" / "README.md").read_text()

    for split in ("dev", "test"):
        assert f"| {split} | {metrics[split]['accuracy']:.4f} |" in card
    assert "flatter" in card


@pytest.mark.parametrize("changes", [{"encoder": {"name": "no-such/encoder"}}, {"training": {"trackers": ["wandb"]}}])
def test_an_old_model_stays_until_the_new_run_begins(tmp_path, changes):
    """--overwrite with an encoder that cannot be opened, or a tracker that is not installed, costs nothing."""
    values = {"data": {"train": texts(tmp_path)}, "encoder": {"name": "toy"}, "training": {"epochs": 1}}
    train_recipe(build_recipe(values, [], where="t"), tmp_path / "m")
    before = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "m").iterdir()}
    with pytest.raises(NearfarError):
        train_recipe(build_recipe({**values, **changes}, [], where="t"), tmp_path / "m", overwrite=True)
    assert {path.name: path.stat().st_mtime_ns for path in (tmp_path / "m").iterdir()} == before


def test_files_can_be_read_by_others(tmp_path):
    """A model that one account trains another may serve."""
    values = {
        "data": {"train": texts(tmp_path)},
        "encoder": {"name": "toy", "pooling": "mean"},
        "training": {"epochs": 1},
    }
    train_recipe(build_recipe(values, [], where="t"), tmp_path / "m")
    modes = {path.name: path.stat().st_mode & 0o777 for path in (tmp_path / "m").rglob("*") if path.is_file()}
    assert "nearfar.safetensors" in modes
    assert set(modes.values()) == {0o644}


@pytest.mark.parametrize(
    ("names", "ours"),
    [
        (["recipe.toml", "train.csv"], False),
        (["recipe.toml", ".git"], False),
        (["checkpoints", "thesis.tex"], False),
        (["journal.jsonl"], False),
        (["recipe.toml"], True),
        (["recipe.toml", "checkpoints"], True),
        (["recipe.toml", "journal-1.jsonl"], True),
        (["recipe.toml", "stages"], True),
        (["nearfar.json", "notes.md"], True),
    ],
)
def test_a_recipe_among_other_things_makes_no_model_folder(tmp_path, names, ours):
    """The folder of a project has a recipe, too, and often checkpoints of other tools: it is neither replaced nor resumed."""
    for name in names:
        (tmp_path / name).write_text("")
    for settings in ({"overwrite": True, "resume": False}, {"overwrite": False, "resume": True}):
        if ours:
            check_output(tmp_path, **settings)
            continue
        with pytest.raises(OutputError, match=r"not replaced|no run to resume"):
            check_output(tmp_path, **settings)


@pytest.mark.parametrize(
    "changes",
    [
        {"data": {"train": "{out}/t.csv"}},
        {"data": {"train": "{out}/../t.csv", "test": "{out}/t.csv"}},
        {"encoder": {"name": "{out}"}},
        {"objective": {"name": "label-aware", "weighting": "{out}/old"}},
    ],
)
def test_what_a_run_is_made_from_is_not_overwritten(tmp_path, changes):
    """Data, or an encoder, in the folder that is to be replaced: the run is refused, and all of it is still there."""
    out = tmp_path / "m"
    (out / "old").mkdir(parents=True)
    (out / "nearfar.json").write_text("{}")
    train = texts(tmp_path)
    texts(out)
    values = {"data": {"train": train, "dev": 0}, "encoder": {"name": "toy"}, "training": {"epochs": 1}}
    for table, keys in changes.items():
        values[table] = {**values.get(table, {}), **{key: value.format(out=out) for key, value in keys.items()}}
    with pytest.raises(OutputError, match=r"the run reads .*m.* Choose another --out"):
        train_recipe(build_recipe(values, [], where="t"), out, overwrite=True)
    assert sorted(path.name for path in out.iterdir()) == ["nearfar.json", "old", "t.csv"]


def test_a_split_of_a_folder_is_not_overwritten(tmp_path):
    """What stands behind # is no part of its path."""
    (tmp_path / "nearfar.json").write_text("{}")
    (tmp_path / "rows").mkdir()
    with pytest.raises(OutputError, match="the run reads"):
        check_output(tmp_path, resume=False, overwrite=True, reads=(None, 0.1, "toy", f"{tmp_path / 'rows'}#train"))


def test_the_recipe_beside_a_model_is_the_one_that_trained_it(tmp_path):
    """A run that ended before its first checkpoint may be resumed with another recipe, which is then written down."""

    class Fail(Callback):
        def step(self, entry: dict[str, object]) -> None:
            raise MemoryError

        evaluation = step

    values = {"data": {"train": texts(tmp_path)}, "encoder": {"name": "toy"}, "training": {"epochs": 1}}
    with pytest.raises(MemoryError):
        train_recipe(build_recipe(values, [], where="t"), tmp_path / "m", callbacks=(Fail(),))
    values["training"] = {"epochs": 2}
    train_recipe(build_recipe(values, [], where="t"), tmp_path / "m", resume=True)
    assert "\nepochs = 2\n" in (tmp_path / "m" / "recipe.toml").read_text()


def test_dev_and_test_rows_of_different_kinds_have_a_table_each(tmp_path):
    """Scored pairs choose the weights, labeled ones are tested on: the model is saved, and its card has both."""
    rows = [{"text_a": f"apple {n}", "text_b": f"pear {n // 2}"} for n in range(8)]
    for name, key in (("train", None), ("dev", "score"), ("test", "label")):
        given = [
            {**row, "text_a": f"{row['text_a']} {name}", **({key: n % 2} if key else {})} for n, row in enumerate(rows)
        ]
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in given))
    values = {
        "data": {name: str(tmp_path / f"{name}.jsonl") for name in ("train", "dev", "test")},
        "encoder": {"name": "toy"},
        "training": {"epochs": 1},
    }
    train_recipe(build_recipe(values, [], where="t"), tmp_path / "m")
    metrics = json.loads((tmp_path / "m" / "metrics.json").read_text())
    card = (tmp_path / "m" / "README.md").read_text()
    assert f"| data | spearman | pearson | mse |\n|---|---|---|---|\n| dev | {metrics['dev']['spearman']:.4f} |" in card
    assert "|\n\n| data | f1 | precision |" in card
    assert f"| test | {metrics['test']['f1']:.4f} |" in card
