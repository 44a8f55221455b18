"""A model in mteb, on tasks that are defined here: no network, no cache."""

from __future__ import annotations

import subprocess
import sys
import warnings

import numpy as np
import pytest
from scipy.stats import spearmanr

from nearfar.encoding import load as open_model
from nearfar.errors import SettingError
from nearfar.integrations import MtebEncoder

LEFT = ["a cat sat", "dogs bark", "rain", "the sun is out", "one more text", "a long sentence about many small things"]
RIGHT = ["the cat sat on a mat", "a dog barks", "snow", "it is sunny", "nothing alike", "a short one"]
SCORES = [4.5, 4.0, 2.0, 3.5, 0.5, 1.0]


@pytest.fixture(scope="module")
def encoder() -> MtebEncoder:
    return MtebEncoder("toy")


def test_texts_of_all_batches_are_embedded_in_order(encoder):
    """mteb gives an iterable of batches; vectors are those of the model."""
    batches = [{"text": LEFT[:4]}, {"text": LEFT[4:]}]

    vectors = encoder.encode(batches, task_metadata=None, hf_split="test", hf_subset="default", batch_size=2)

    np.testing.assert_allclose(vectors, open_model("toy").embed(LEFT), atol=1e-6)


def test_similarities_are_cosines_of_all_pairs_and_row_by_row(encoder):
    """Of lengths other than one, and of a single vector."""
    source = np.random.default_rng(3)
    left, right = 5 * source.standard_normal((3, 8)), source.standard_normal((3, 8))
    lengths = np.outer(np.linalg.norm(left, axis=1), np.linalg.norm(right, axis=1))
    expected = left @ right.T / lengths

    np.testing.assert_allclose(encoder.similarity(left, right), expected, atol=1e-6)
    np.testing.assert_allclose(encoder.similarity_pairwise(left, right), np.diag(expected), atol=1e-6)
    np.testing.assert_allclose(encoder.similarity(left[0], right), expected[:1], atol=1e-6)


def test_the_name_is_that_of_the_folder_and_the_revision_that_of_the_weights(encoder):
    """Other weights in a folder of the same name must not get the results of the old ones."""
    model = open_model("toy")
    assert (encoder.name, encoder.revision) == ("nearfar/toy", MtebEncoder(model, name="nearfar/toy").revision)
    next(model.model.parameters()).data.add_(1)

    assert MtebEncoder(model, name="nearfar/toy").revision != encoder.revision


@pytest.mark.parametrize("name", ["plain", "a/b/c", "/b", "a/"])
def test_a_name_that_mteb_cannot_file_is_refused(name):
    with pytest.raises(SettingError, match="owner/name"):
        MtebEncoder("toy", name=name)


def test_an_open_model_needs_a_name():
    with pytest.raises(SettingError, match="name is needed"):
        MtebEncoder(open_model("toy"))


def test_mteb_is_not_loaded_before_it_is_used():
    code = "import sys, nearfar.integrations; print('mteb' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)

    assert done.stdout.strip() == "False", done.stderr


def test_mteb_measures_what_we_do_on_a_task_of_its_own(encoder, tmp_path):
    """Spearman's correlation of a small STS task, by mteb's own evaluation and by SciPy on the model's vectors."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        mteb = pytest.importorskip("mteb", reason="mteb is not installed: pip install 'nearfar[mteb]'")
        from datasets import Dataset, DatasetDict
        from mteb.abstasks.sts import AbsTaskSTS
        from mteb.abstasks.task_metadata import TaskMetadata

        class LocalSTS(AbsTaskSTS):
            metadata = TaskMetadata(
                name="LocalSTS", description="Made up.", reference=None, type="STS", category="t2t",
                modalities=["text"], dataset={"path": "local/sts", "revision": "1"}, eval_splits=["test"],
                eval_langs=["eng-Latn"], main_score="cosine_spearman", date=("2024-01-01", "2024-01-02"),
                domains=["Written"], task_subtypes=[], license="cc0-1.0", annotations_creators="derived", dialect=[],
                sample_creation="created", bibtex_citation="",
            )  # fmt: skip

            def load_data(self, **_):
                rows = Dataset.from_dict({"sentence1": LEFT, "sentence2": RIGHT, "score": SCORES})
                self.dataset = DatasetDict({"test": rows})
                self.data_loaded = True

        result = mteb.evaluate(encoder, LocalSTS(), cache=None, co2_tracker=False, show_progress_bar=False)
    scores = result.task_results[0].scores["test"][0]
    vectors = [open_model("toy").embed(side).astype(np.float64) for side in (LEFT, RIGHT)]
    one, other = (side / np.linalg.norm(side, axis=1, keepdims=True) for side in vectors)
    expected = spearmanr((one * other).sum(axis=1), SCORES).statistic

    assert scores["main_score"] == pytest.approx(expected, abs=1e-6)
    assert scores["spearman"] == pytest.approx(expected, abs=1e-6)
    assert (result.model_name, result.model_revision) == (encoder.name, encoder.revision)
