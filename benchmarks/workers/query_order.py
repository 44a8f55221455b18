"""The order in which a query strategy of small-text labels texts; runs in an environment that has small-text.

Called with a .npz file (vectors, labels, seed, first rows, batch, count) and the name of the strategy; prints the rows.
"""

from __future__ import annotations

import json
import sys

import numpy as np
from scipy.sparse import csr_matrix
from sklearn.linear_model import LogisticRegression
from small_text import (
    BreakingTies,
    EmbeddingKMeans,
    GreedyCoreset,
    LightweightCoreset,
    PoolBasedActiveLearner,
    PredictionEntropy,
    SklearnClassifierFactory,
    SklearnDataset,
)

STRATEGIES = {
    "breaking-ties": BreakingTies,
    "prediction-entropy": PredictionEntropy,
    "greedy-coreset": GreedyCoreset,
    "lightweight-coreset": LightweightCoreset,
    "embedding-kmeans": EmbeddingKMeans,
}


def main() -> None:
    values = np.load(sys.argv[1])
    vectors, labels, seed = values["vectors"], values["labels"], int(values["seed"])
    np.random.seed(seed)  # noqa: NPY002  # small-text draws from the global generator
    classes = int(labels.max()) + 1
    hidden = SklearnDataset(csr_matrix(vectors), labels.astype(np.int64), target_labels=np.arange(classes))
    head = LogisticRegression(C=10.0, max_iter=200, class_weight="balanced")
    learner = PoolBasedActiveLearner(SklearnClassifierFactory(head, classes), STRATEGIES[sys.argv[2]](), hidden)
    first = values["first"].astype(np.int64)
    learner.initialize_data(first, labels[first])
    order = first.tolist()
    while len(order) < int(values["count"]):
        extra = (
            {"embeddings": vectors}
            if sys.argv[2] in ("embedding-kmeans", "greedy-coreset", "lightweight-coreset")
            else {}
        )
        rows = learner.query(num_samples=int(values["batch"]), **({"query_strategy_kwargs": extra} if extra else {}))
        learner.update(labels[rows])
        order += rows.tolist()
    sys.stdout.write(json.dumps(order) + "\n")


if __name__ == "__main__":
    main()
