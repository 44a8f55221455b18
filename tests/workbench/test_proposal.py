import numpy as np
import pytest

from nearfar.workbench.proposal import NOISE, WARM, Pool, _design, propose


def blobs(sizes, seed=0, dim=8):
    """Directions around as many centers, and the center of each."""
    draw = np.random.default_rng(seed)
    centers = np.eye(dim)[: len(sizes)]
    vectors = np.concatenate(
        [center + 0.15 * draw.standard_normal((size, dim)) for center, size in zip(centers, sizes, strict=True)]
    )
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors.astype(np.float32), np.repeat(np.arange(len(sizes)), sizes)


def pool_of(vectors, truth, labeled=(), classes=2):
    labels = np.full(len(vectors), -1)
    labels[list(labeled)] = truth[list(labeled)]
    return Pool(vectors, labels, labels < 0, classes)


def test_without_labels_each_cluster_is_asked_about_once_the_largest_first():
    vectors, truth = blobs([40, 10, 20])
    chosen = propose(pool_of(vectors, truth, classes=3), 3)
    assert sorted(truth[chosen].tolist()) == [0, 1, 2]
    assert truth[chosen[0]] == 0


def test_the_first_text_is_typical_and_no_outlier():
    vectors, truth = blobs([30, 30])
    vectors = np.concatenate([vectors, -np.eye(8, dtype=np.float32)[:1]])  # alone
    truth = np.append(truth, 0)
    assert 60 not in propose(pool_of(vectors, truth), 2).tolist()


def test_a_region_with_labels_is_left_for_one_without():
    vectors, truth = blobs([40, 40, 40])
    chosen = propose(pool_of(vectors, truth, labeled=[*range(3), *range(40, 43)], classes=3), 2)
    assert 2 in truth[chosen].tolist()


def test_nothing_is_proposed_twice_or_that_is_closed():
    vectors, truth = blobs([12, 9])
    for labeled in ([], [0, 1, 12, 13], list(range(0, 21, 2))):
        pool = pool_of(vectors, truth, labeled)
        chosen = propose(pool, 50).tolist()
        assert sorted(chosen) == np.flatnonzero(pool.open).tolist()
    assert propose(pool_of(vectors, truth, range(21)), 5).tolist() == []


def test_the_same_labels_give_the_same_proposals():
    vectors, truth = blobs([200, 150, 90])
    pool = pool_of(vectors, truth, [0, 210, 400], classes=3)
    assert propose(pool, 10, seed=4).tolist() == propose(pool, 10, seed=4).tolist()


def test_with_some_labels_uncertain_texts_come_first():
    vectors, truth = blobs([150, 150])
    middle = vectors[:6] + vectors[150:156]
    vectors = np.concatenate([vectors, middle / np.linalg.norm(middle, axis=1, keepdims=True)])
    truth = np.append(truth, [0] * 6)
    labeled = [*range(WARM), *range(150, 150 + WARM)]
    assert sorted(propose(pool_of(vectors, truth, labeled), 6).tolist()) == list(range(300, 306))


def test_of_equally_uncertain_texts_those_of_a_class_with_few_labels_come_first():
    """Two pairs of classes alike, of which the second pair has a fifth of the labels."""
    vectors, truth = blobs([60, 60, 60, 60], seed=1)
    halves = [vectors[:10] + vectors[60:70], vectors[120:130] + vectors[180:190]]
    between = np.concatenate(halves)
    vectors = np.concatenate([vectors, between / np.linalg.norm(between, axis=1, keepdims=True)])
    truth = np.append(truth, [0] * 10 + [2] * 10)
    labeled = [*range(40), *range(60, 100), *range(120, 128), *range(180, 188)]
    chosen = propose(pool_of(vectors, truth, labeled, classes=4), 4)
    assert chosen[:2].min() >= 250


def test_the_design_is_that_of_slow_sums():
    """Of all texts, the one after which the weighted variance of predictions is lowest, times its own weight."""
    draw = np.random.default_rng(3)
    vectors, weights, known = draw.standard_normal((25, 6)), draw.uniform(0.2, 1.0, 25), 4

    def variance(rows):
        precision = NOISE * np.eye(6) + sum(np.outer(vectors[row], vectors[row]) for row in rows)
        return sum(w * x @ np.linalg.inv(precision) @ x for w, x in zip(weights, vectors, strict=True))

    rows, expected = list(range(known)), []
    for _ in range(5):
        left = [row for row in range(known, 25) if row not in rows]
        best = max(left, key=lambda row: weights[row] * (variance(rows) - variance([*rows, row])))
        rows.append(best)
        expected.append(best)
    assert _design(vectors, weights, known, 5).tolist() == expected


@pytest.mark.parametrize("count", [1, 3])
def test_equal_texts_are_no_problem(count):
    vectors = np.tile(np.eye(4, dtype=np.float32)[:1], (5, 1))
    assert len(propose(Pool(vectors, np.full(5, -1), np.ones(5, dtype=np.bool_), 2), count)) == count
