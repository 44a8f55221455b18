"""A run that was killed and resumed ends with the same weights, bit for bit, as one that was not."""

from __future__ import annotations

import json
import shutil
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nearfar.errors import CheckpointError
from nearfar.training.checkpoints import CheckpointStore, damage

from .runs import digest, losses, recipe_for, train_in_child, write_texts

STEPS = 18  # 48 training rows in batches of 8, three epochs
OBJECTIVES = ("cross-entropy", "triple-entropy", "cross-entropy+supcon")


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_texts(tmp_path_factory.mktemp("data") / "train.csv")


def child(children: Any, *arguments: Any) -> int:
    process = children.Process(target=train_in_child, args=arguments)
    process.start()
    process.join(120)
    assert process.exitcode is not None
    return int(process.exitcode)


@pytest.fixture(scope="module")
def undisturbed(children: Any, texts: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """One uninterrupted run of each objective."""
    folders = {}
    for objective in OBJECTIVES:
        folders[objective] = tmp_path_factory.mktemp("whole") / "model"
        assert child(children, str(texts), str(folders[objective]), objective, {}, None, False) == 0
    return folders


KILLS = [
    (OBJECTIVES[number % len(OBJECTIVES)], int(step))
    for number, step in enumerate([*np.random.default_rng(5).permutation(np.arange(1, STEPS + 1)), 7, 11, 13])
]


@pytest.mark.slow
@pytest.mark.parametrize(("objective", "step"), KILLS)
def test_a_killed_run_resumes_to_the_same_bits(children, texts, undisturbed, tmp_path, objective, step):
    """kill -9 right after any step, in any epoch: the resumed run has the weights and journal of the whole one."""
    out = tmp_path / "model"
    assert child(children, str(texts), str(out), objective, {}, step, False) == -signal.SIGKILL
    assert not (out / "nearfar.json").exists()

    assert child(children, str(texts), str(out), objective, {}, None, True) == 0

    whole = undisturbed[objective]
    assert digest(out) == digest(whole)
    assert losses(out) == losses(whole)


def test_a_run_on_several_threads_resumes_to_the_same_bits(children, texts, undisturbed, tmp_path):
    """The parts of a batch draw their dropout from the run's own stream, which is kept."""
    whole, out = tmp_path / "whole", tmp_path / "model"
    assert child(children, str(texts), str(whole), OBJECTIVES[0], {}, None, False, 3) == 0
    assert child(children, str(texts), str(out), OBJECTIVES[0], {}, 9, False, 3) == -signal.SIGKILL
    assert child(children, str(texts), str(out), OBJECTIVES[0], {}, None, True, 3) == 0

    assert digest(out) == digest(whole)
    assert losses(out) == losses(whole)
    assert digest(whole) != digest(undisturbed[OBJECTIVES[0]])  # whose batches are in one part


def test_enough_kill_points_are_tried():
    """At least twenty, in all three epochs and for all objectives."""
    assert len(KILLS) >= 20
    assert {(step - 1) // 6 for _, step in KILLS} == {0, 1, 2}
    assert {objective for objective, _ in KILLS} == set(OBJECTIVES)


def test_a_run_killed_again_and_again_still_ends_the_same(children, texts, undisturbed, tmp_path):
    """Three kills in a row, the second one before any new checkpoint was written."""
    out = tmp_path / "model"
    for step, resume in ((5, False), (5, True), (15, True)):
        assert child(children, str(texts), str(out), "triple-entropy", {}, step, resume) == -signal.SIGKILL
    assert child(children, str(texts), str(out), "triple-entropy", {}, None, True) == 0

    assert digest(out) == digest(undisturbed["triple-entropy"])
    assert losses(out) == losses(undisturbed["triple-entropy"])


def test_how_often_checkpoints_are_written_changes_nothing(children, texts, undisturbed, tmp_path):
    """A run with a checkpoint every epoch, and more of them kept, has the same weights."""
    out = tmp_path / "model"
    changes = {"training": {"epochs": 3, "learning_rate": 1e-3, "checkpoint_every": "epoch", "keep_checkpoints": 5}}
    assert child(children, str(texts), str(out), "cross-entropy", changes, None, False) == 0

    assert digest(out) == digest(undisturbed["cross-entropy"])


@pytest.fixture(scope="module")
def interrupted(children: Any, texts: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A triple-entropy run killed after step 11, with checkpoints of steps 8 and 10."""
    out = tmp_path_factory.mktemp("killed") / "model"
    child(children, str(texts), str(out), "triple-entropy", {}, 11, False)
    assert [path.name for path in sorted((out / "checkpoints").glob("step-*"))] == ["step-00000008", "step-00000010"]
    return out


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def zero(path: Path) -> None:
    path.write_bytes(bytes(path.stat().st_size))


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(bytes(content))


FILES = ("model.safetensors", "optimizer.safetensors", "order.safetensors", "state.json", "MANIFEST.json")
HARM = {"truncated": truncate, "zeroed": zero, "missing": Path.unlink, "one bit flipped": flip}


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("harm", HARM)
def test_damage_to_any_file_of_a_checkpoint_is_noticed(interrupted, tmp_path, file, harm):
    """Truncated, zeroed, missing or changed by one bit: the store falls back to the one before, and says so."""
    copy = shutil.copytree(interrupted / "checkpoints", tmp_path / "checkpoints")
    HARM[harm](copy / "step-00000010" / file)

    checkpoint, warnings = CheckpointStore(copy).newest()

    assert checkpoint is not None
    assert checkpoint.state["step"] == 8
    assert len(warnings) == 1
    assert "step-00000010" in warnings[0]


def test_a_damaged_checkpoint_is_passed_over_and_the_bits_still_agree(
    children, texts, undisturbed, interrupted, tmp_path
):
    """Falling back costs time and changes nothing."""
    out = shutil.copytree(interrupted, tmp_path / "model")
    truncate(out / "checkpoints" / "step-00000010" / "optimizer.safetensors")
    assert child(children, str(texts), str(out), "triple-entropy", {}, None, True) == 0

    assert digest(out) == digest(undisturbed["triple-entropy"])


def test_without_any_whole_checkpoint_the_run_starts_over(children, texts, undisturbed, interrupted, tmp_path):
    """Even then the end is the same, and the journal holds every step once."""
    out = shutil.copytree(interrupted, tmp_path / "model")
    for path in (out / "checkpoints").glob("step-*"):
        zero(path / "model.safetensors")
    assert child(children, str(texts), str(out), "triple-entropy", {}, None, True) == 0

    assert digest(out) == digest(undisturbed["triple-entropy"])
    assert losses(out) == losses(undisturbed["triple-entropy"])


def test_damaged_best_weights_make_a_checkpoint_unusable(interrupted, tmp_path):
    """A checkpoint counts as whole only with the best weights it refers to."""
    copy = shutil.copytree(interrupted / "checkpoints", tmp_path / "checkpoints")
    state = json.loads((copy / "step-00000010" / "state.json").read_text())
    zero(copy / state["best"]["weights"] / "model.safetensors")

    _, warnings = CheckpointStore(copy).newest()

    assert "best weights" in warnings[0]


def test_a_half_written_checkpoint_is_invisible(interrupted, tmp_path):
    """What a kill leaves in the middle of a write has another name, and goes with the next write."""
    copy = shutil.copytree(interrupted / "checkpoints", tmp_path / "checkpoints")
    shutil.copytree(copy / "step-00000010", copy / ".writing-step-00000012")
    store = CheckpointStore(copy)

    assert store.newest()[0].state["step"] == 10  # type: ignore[union-attr]
    store.write(12, {"step": 12}, {})
    assert not list(copy.glob(".writing-*"))
    assert damage(copy / "step-00000012") is None


@pytest.mark.parametrize("keep", [1, 2])
@pytest.mark.parametrize("best", [False, True])
def test_damaged_checkpoints_do_not_take_the_place_of_new_ones(interrupted, tmp_path, keep, best):
    """A run that had to go back keeps what it writes, and what it went back to until then."""
    copy = shutil.copytree(interrupted / "checkpoints", tmp_path / "checkpoints")
    zero(copy / "step-00000010" / "model.safetensors")
    store = CheckpointStore(copy, keep=keep)
    if best:
        store.write_best(9, {})
        assert store.newest()[0].state["step"] == 8  # type: ignore[union-attr]
    else:
        store.write(9, {"step": 9}, {})
        assert store.newest()[0].state["step"] == 9  # type: ignore[union-attr]
    assert not (copy / "step-00000010").exists()


def test_another_recipe_or_other_data_is_refused(texts, interrupted, tmp_path):
    """A checkpoint is continued only with what it was started with."""

    from nearfar.pipeline import train

    other = write_texts(tmp_path / "other.csv", rows=63)
    for number, recipe in enumerate(
        (
            recipe_for(texts, objective="triple-entropy", training={"learning_rate": 2e-3}),
            recipe_for(other, objective="triple-entropy"),
        )
    ):
        out = shutil.copytree(interrupted, tmp_path / str(number))
        before = (out / "recipe.toml").read_text()
        with pytest.raises(CheckpointError, match="another recipe or other data"):
            train(recipe, out, resume=True)
        assert (out / "recipe.toml").read_text() == before  # a refusal changes nothing
