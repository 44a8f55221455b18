"""Shingles of words: which words count, how they are drawn, and that texts of a group share them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from itertools import combinations

import numpy as np
import pytest

from nearfar.batching import ShingleSampler
from nearfar.batching.shingle_sampler import CHUNK, STOP_WORDS, content_words, word_shingles
from nearfar.errors import SettingError

VOCABULARY = [f"w{number}" for number in range(60)]


def sentences(rows, seed=1):
    source = np.random.default_rng(seed)
    return [" ".join(["the", *source.choice(VOCABULARY, 5)]) for _ in range(rows)]


def test_stop_words_count_only_where_there_are_no_others():
    """Lower case, each word once; punctuation splits."""
    assert content_words("The Car, the car and a RED car!") == ["car", "red"]
    assert content_words("who is it") == ["who", "is", "it"]
    assert content_words("... --- ...") == []
    assert content_words("Müller's 42 Öfen") == ["müller", "42", "öfen"]
    assert 150 < len(STOP_WORDS) < 400


@pytest.mark.parametrize(("words", "subsets"), [(1, 4), (2, 6), (3, 4), (4, 1), (9, 1)])
def test_every_set_of_words_is_drawn_equally_often(words, subsets):
    """A text of four different words, one of them twice: t of 4 without order, without a favorite."""
    shingles = word_shingles(["red red car near house"] * 6000, words=words, source=np.random.default_rng(1))
    counts = Counter(shingles.tolist())

    assert len(counts) == subsets
    assert max(counts.values()) - min(counts.values()) < 6 * np.sqrt(6000 / subsets)


def test_the_order_of_words_does_not_matter_and_their_borders_do():
    """Shingles are sets of words, not strings run together."""
    source = np.random.default_rng(1)
    one, two, three, four = word_shingles(["red car", "car RED", "redcar", "re dcar"], words=2, source=source)

    assert one == two
    assert len({int(one), int(three), int(four)}) == 3


def test_shingles_are_the_same_in_every_process():
    """No salted hash: a resumed run must find the same groups."""
    code = (
        "import numpy as np; from nearfar.batching.shingle_sampler import word_shingles; "
        "print(word_shingles(['hot soup', 'red car'], words=2, source=np.random.default_rng(1)).tolist())"
    )
    answers = {
        subprocess.run(
            [sys.executable, "-c", code],
            check=True,
            capture_output=True,
            text=True,
            env={**os.environ, "PYTHONHASHSEED": salt},
        ).stdout
        for salt in ("1", "2")
    }

    assert answers == {f"{word_shingles(['soup hot', 'car red'], words=2, source=np.random.default_rng(2)).tolist()}\n"}


def test_a_text_without_words_is_a_group_of_its_own():
    """They share nothing, so they share no group."""
    shingles = word_shingles(["?", "!", "", "..."], words=1, source=np.random.default_rng(1))

    assert len(set(shingles.tolist())) == 4


@pytest.mark.parametrize("shingle", [1, 2])
def test_texts_of_a_group_share_the_words(shingle):
    """Shingles of all texts by hand, with the same draws, then groups of equal ones."""
    texts = sentences(3000)
    sampler = ShingleSampler(texts=texts, size=8, seed=1, group=8, shingle=shingle)
    batches = sampler.batches(0)
    bags = [set(content_words(text)) for text in texts]
    similar = np.mean(
        [len(bags[one] & bags[two]) >= shingle for batch in batches for one, two in combinations(batch, 2)]
    )
    source = np.random.default_rng(1).permutation(3000).reshape(-1, 8)
    random = np.mean([len(bags[one] & bags[two]) >= shingle for batch in source for one, two in combinations(batch, 2)])

    assert sampler.report is not None
    assert sampler.report.measure == "words"
    assert sampler.report.similarity > 1.5 * sampler.report.random
    assert similar > random + 0.1
    if shingle == 1:
        assert sampler.report.rows_in_groups > 2900


def test_the_reported_overlap_is_that_of_a_loop():
    """Common words by all words, mean over pairs, mean over batches."""
    texts = sentences(160)
    sampler = ShingleSampler(texts=texts, size=16, seed=1)
    bags = [set(text.split()) - {"the"} for text in texts]
    slow = np.mean(
        [
            np.mean([len(bags[a] & bags[b]) / len(bags[a] | bags[b]) for a, b in combinations(batch, 2)])
            for batch in sampler.batches(0)
        ]
    )

    assert sampler.report is not None
    assert sampler.report.similarity == pytest.approx(slow)


def test_identical_texts_can_be_kept_apart():
    """Four copies of each text: with ids, no group of two has the same text twice."""
    texts = sentences(50) * 4
    same = np.tile(np.arange(50), 4)
    sampler = ShingleSampler(texts=texts, size=2, seed=1, group=2, same=same)
    order = np.concatenate(sampler.batches(0))
    free = np.concatenate(ShingleSampler(texts=texts, size=2, seed=1, group=2).batches(0))

    def twins(rows):
        return int((same[rows[1:]] == same[rows[:-1]]).sum())

    assert twins(order) < 12 < twins(free)


class Slices:
    """Texts that are only there while they are looked at, as from a file."""

    def __init__(self, rows):
        self.rows, self.longest = rows, 0

    def __len__(self):
        return self.rows

    def __getitem__(self, at):
        if isinstance(at, slice):
            numbers = range(self.rows)[at]
            self.longest = max(self.longest, len(numbers))
            return [self[number] for number in numbers]
        return f"topic{at % 977} detail{at}"


def test_texts_are_read_in_slices():
    """More texts than a chunk: never all of them at once, and groups reach from one chunk to another."""
    texts = Slices(2 * CHUNK + 100)
    sampler = ShingleSampler(texts=texts, size=32, seed=1)
    order = np.concatenate(sampler.batches(0))
    topics = order % 977
    far = np.abs(order[1:] - order[:-1])[topics[1:] == topics[:-1]]

    assert texts.longest == CHUNK
    assert sorted(order.tolist()) == list(range(len(texts)))
    assert (far > CHUNK).sum() > 1000


def test_an_empty_shingle_is_refused():
    """At least one word."""
    with pytest.raises(SettingError, match=r"batches\.shingle_size must be 1 word or more, got 0"):
        ShingleSampler(texts=["a b"], size=8, seed=1, shingle=0)
