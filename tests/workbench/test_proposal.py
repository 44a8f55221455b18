import numpy as np
import pytest

from nearfar.workbench.proposal import WARM, Pool, propose


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


def test_with_hundreds_of_labels_uncertain_texts_of_several_regions_come_first():
    vectors, truth = blobs([150, 150])
    middle = vectors[:6] + vectors[150:156]
    vectors = np.concatenate([vectors, middle / np.linalg.norm(middle, axis=1, keepdims=True)])
    truth = np.append(truth, [0] * 6)
    pool = pool_of(vectors, truth, [row for row in range(300) if row % 4])
    assert len(pool.known()) >= WARM
    chosen = propose(pool, 6)
    assert chosen[0] >= 300
    assert set(truth[chosen[chosen < 300]].tolist()) == {0, 1}


@pytest.mark.parametrize("count", [1, 3])
def test_equal_texts_are_no_problem(count):
    vectors = np.tile(np.eye(4, dtype=np.float32)[:1], (5, 1))
    assert len(propose(Pool(vectors, np.full(5, -1), np.ones(5, dtype=np.bool_), 2), count)) == count
