"""The batching benchmark: its data, its cases and its table, on few rows."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks import batching


@pytest.mark.parametrize("case", ["neighbors", "brute force", "words"])
def test_a_case_runs_in_a_process_of_its_own(case, capsys):
    """From the command line to the table: one line, with as many cells as the header has."""
    batching.main(["--only", case, "700", "--threads", "1"])
    header, _, cells = capsys.readouterr().out.splitlines()[-3:]

    assert cells.count("|") == header.count("|")
    assert cells.startswith(f"| 700 | {case} | ")
    assert cells.endswith("| exact |")


def test_texts_are_the_same_by_slice_and_by_number():
    """Read in parts or one by one, and not all alike."""
    texts = batching.Texts(300)

    assert list(texts[10:20]) == [texts[number] for number in range(10, 20)]
    assert len(texts[0].split()) == batching.LENGTH
    assert len({texts[number] for number in range(300)}) > 290


def test_vectors_have_topics():
    """Some pairs are much nearer than two random rows are."""
    vectors = batching.topics(3000)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    cosines = vectors[:300] @ vectors[300:].T

    assert abs(cosines.mean()) < 0.05
    assert np.median(cosines.max(axis=1)) > 0.4
