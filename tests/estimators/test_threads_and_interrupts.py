"""Several threads, Ctrl-C, temporary folders."""

from __future__ import annotations

import gc
import os
import signal
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import nearfar
from nearfar import Callback, Classifier
from nearfar.encoding import TextModel
from nearfar.estimators import Encoder
from tests.estimators.test_same_weights import weights

QUICK = {"encoder": "toy", "precision": "fp32"}


def test_two_fits_in_two_threads_do_not_disturb_each_other(texts, labels, tmp_path):
    def fitted(seed: int) -> Classifier:
        return Classifier(**QUICK, epochs=4, random_state=seed).fit(texts, labels)

    alone = [fitted(seed) for seed in (0, 1)]
    with ThreadPoolExecutor(2) as pool:
        together = list(pool.map(fitted, (0, 1)))
    for place, pair in enumerate(zip(alone, together, strict=True)):
        for name, clf in zip(("alone", "together"), pair, strict=True):
            clf.save(tmp_path / f"{name}-{place}")
        one, other = (weights(tmp_path / f"{name}-{place}") for name in ("alone", "together"))
        assert all(np.array_equal(one[name], other[name]) for name in one)


def test_loading_in_one_thread_does_not_disturb_a_fit_in_another(texts, labels, tmp_path):
    Classifier(**QUICK, epochs=4).fit(texts, labels).save(tmp_path / "alone")
    done = threading.Event()

    def load() -> None:
        while not done.is_set():
            nearfar.load("toy")

    thread = threading.Thread(target=load)
    thread.start()
    try:
        Classifier(**QUICK, epochs=4).fit(texts, labels).save(tmp_path / "beside")
    finally:
        done.set()
        thread.join()
    one, other = weights(tmp_path / "alone"), weights(tmp_path / "beside")
    assert all(np.array_equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize("fast", [True, False])
@pytest.mark.parametrize("head", ["nearest-center", "native"])
def test_eight_threads_predict_what_one_predicts(texts, labels, tmp_path, monkeypatch, head, fast):
    objective = "cross-entropy" if head == "native" else "supcon"
    clf = Classifier(**QUICK, epochs=1, objective=objective, head=head).fit(texts, labels)
    assert clf.card.native == (head == "native")
    clf.save(tmp_path / "model")
    batches = [[f"{text} {number}" * (1 + number) for text in texts] for number in range(24)]
    alone = nearfar.load(tmp_path / "model")
    if not fast:
        monkeypatch.setattr(TextModel, "inputs", lambda model, table, rows: table.padded(rows))
    expected = [alone.predict_proba(batch) for batch in batches]
    shared = nearfar.load(tmp_path / "model")
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(shared.predict_proba, batches))
    for answer, truth in zip(answers, expected, strict=True):
        np.testing.assert_array_equal(answer, truth)


class Stop(Callback):
    """Ctrl-C after a step."""

    def __init__(self, at: int, how: str) -> None:
        self.at, self.how, self.steps = at, how, 0

    def step(self, entry) -> None:
        self.steps = entry["step"]
        if entry["step"] == self.at:
            if self.how == "signal":
                os.kill(os.getpid(), signal.SIGINT)
            else:
                raise KeyboardInterrupt


@pytest.mark.parametrize("how", ["signal", "raised"])
def test_an_interrupted_fit_keeps_the_best_model_so_far(texts, labels, how):
    stop = Stop(2, how)
    clf = Classifier(**QUICK, epochs=50, batch_size=6, callbacks=[stop])
    with pytest.warns(UserWarning, match="interrupted after step 2; the model has the best weights so far"):
        assert clf.fit(texts, labels, validation=(texts, labels)) is clf
    assert stop.steps == 2
    assert clf.predict(texts).shape == (12,)
    assert clf.scores_["accuracy"] >= 0
    assert [entry["step"] for entry in clf.history_ if entry["kind"] == "step"] == [1, 2]


def test_an_interrupted_encoder_is_usable():
    pairs = [(f"an apple of {n}", f"apple {n}") for n in range(8)]
    encoder = Encoder(**QUICK, epochs=50, batch_size=4, callbacks=[Stop(3, "signal")])
    with pytest.warns(UserWarning, match="interrupted after step 3"):
        encoder.fit(pairs)
    assert encoder.encode(["an apple"]).shape == (1, 64)


def test_callbacks_follow_and_nothing_is_printed(texts, labels, capfd):
    class Seen(Callback):
        def __init__(self) -> None:
            self.entries: list = []

        def step(self, entry) -> None:
            self.entries.append(entry["loss"])

        def evaluation(self, entry) -> None:
            self.entries.append(entry["scores"])

    seen = Seen()
    Classifier(**QUICK, epochs=1, callbacks=[seen]).fit(texts, labels, validation=0.5)
    assert len(seen.entries) >= 2
    assert capfd.readouterr() == ("", "")
    Classifier(**QUICK, epochs=1, verbose=True).fit(texts, labels)
    out, err = capfd.readouterr()
    assert "1/1" in err
    assert "objective: supcon" in out + err


def test_temporary_folders_are_removed_and_the_model_is_not_lost(texts, labels, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    clf = Classifier(**QUICK, epochs=1).fit(texts, labels)
    (folder,) = tmp_path.iterdir()
    expected = clf.predict_proba(texts)
    clf.fit(texts, labels)
    gc.collect()
    assert not folder.exists()
    clf.save(tmp_path / "kept")
    del clf
    gc.collect()
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]
    np.testing.assert_array_equal(nearfar.load(tmp_path / "kept").predict_proba(texts), expected)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork on this system")
def test_a_process_that_is_forked_leaves_the_folder_alone(texts, labels):
    clf = Classifier(**QUICK, epochs=1).fit(texts, labels)
    folder = clf._folder.path
    child = os.fork()
    if child == 0:
        registry: list = list(vars(weakref.finalize)["_registry"])
        finalizers = [one for one in registry if one.alive and one.peek()[2][:1] == (folder,)]
        for one in finalizers:
            one()
        os._exit(len(finalizers))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1
    assert (folder / "nearfar.json").is_file()


def test_a_failed_fit_keeps_the_model_of_before(texts, labels, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    clf = Classifier(**QUICK, epochs=1).fit(texts, labels)
    before = clf.predict_proba(texts)
    with pytest.raises(nearfar.errors.DataError):
        clf.fit(texts, labels[:3])
    gc.collect()
    np.testing.assert_array_equal(clf.predict_proba(texts), before)
    assert len(list(Path(tmp_path).iterdir())) == 1
