"""Everything about the texts that a map can show, computed in the background after their vectors."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.cluster import MiniBatchKMeans

from nearfar.data.records import normalized
from nearfar.errors import NearfarError, SettingError
from nearfar.seeds import stream
from nearfar.workbench import map_files
from nearfar.workbench.embeddings import Embeddings
from nearfar.workbench.project import Project
from nearfar.workbench.projection import Neighbors, has_tsne, nearest, principal_components, tsne
from nearfar.workbench.suspects import Suspicion, suspicions

logger = logging.getLogger(__name__)

NEIGHBORS = 45
NOTHING = 65_535
"""The number of a class or cluster that a text does not have."""
SAME = 0.97
"""Cosine from which on two texts are near-duplicates."""
CLUSTERS = 12
FOUND = 200
"""Most texts that a search by meaning returns."""
MOST_GROUPS = 500

Method = Literal["auto", "pca", "tsne"]
METHODS: dict[str, Method] = {"auto": "auto", "pca": "pca", "tsne": "tsne"}


class Explorer:
    """Coordinates, clusters, predictions, suspected label errors and duplicates of the texts of a project.

    Args:
        project: texts and labels.
        embeddings: their vectors.
        compared: those of another model, such as the encoder before training.
        method: the map: ``"pca"``, ``"tsne"``, or ``"auto"`` for t-SNE where openTSNE is installed.
        seed: the seed of all random choices.
    """

    def __init__(
        self,
        project: Project,
        embeddings: Embeddings,
        *,
        compared: Embeddings | None = None,
        method: Method = "auto",
        seed: int = 0,
    ) -> None:
        if method == "tsne" and not has_tsne():
            raise SettingError("--map tsne needs openTSNE; install it with: pip install 'nearfar[explore]'")
        self.project, self.embeddings, self.compared, self.seed = project, embeddings, compared, seed
        self.tsne = has_tsne() if method == "auto" else method == "tsne"
        self.stage = "embedding the texts"
        """What is computed now; empty when everything is done."""
        self.generation = 0
        """Grows with every result."""
        self.error: str | None = None
        self.neighbors: Neighbors | None = None
        self.suspects: list[Suspicion] = []
        self._searched: tuple[tuple[str, ...], list[str | None]] = ((), [])
        """Classes and labels of the last search for label errors."""
        self._columns: dict[str, NDArray[Any]] = {}
        self._versions: dict[str, int] = {}
        self._lower: list[str] | None = None
        self._lock = threading.Lock()
        self._search = threading.Lock()

    def compute(self) -> None:
        """Compute everything, what is quick first; errors are kept as sentences."""
        try:
            self._compute()
        except NearfarError as error:
            self.error = str(error)
        except Exception as error:
            logger.exception("the map could not be computed")
            self.error = f"The map could not be computed: {error}"
        self.stage = ""

    def _compute(self) -> None:
        vectors = self.embeddings.vectors
        self.stage = "computing the map"
        self._set("place", principal_components(vectors))
        if self.embeddings.probabilities is not None:
            chances = self.embeddings.probabilities
            self._set("prediction", chances.argmax(axis=1).astype(np.uint16))
            self._set("confidence", chances.max(axis=1).astype(np.float32))
        self.stage = "computing clusters"
        clusters = min(CLUSTERS, len(np.unique(vectors[:1000], axis=0)))
        means = MiniBatchKMeans(clusters, n_init=3, random_state=stream(self.seed, "clusters") % 2**32)
        self._set("cluster", means.fit_predict(vectors).astype(np.uint16))
        self.stage = "searching neighbors"
        if len(vectors) > 1:
            self.neighbors = nearest(vectors, NEIGHBORS, seed=self.seed)
            self._set("duplicate", self._duplicates())
            self.stage = "searching label errors"
            self.find_suspects()
            if self.tsne and len(vectors) > 3:
                self.stage = "improving the map (t-SNE)"
                self._set("place", tsne(vectors, self.neighbors, self._columns["place"], seed=self.seed))
        if self.compared is not None:
            self.stage = f"embedding the texts with {self.compared.name}"
            self.compared.compute()
            if self.compared.complete:
                self.stage = "computing the second map"
                self._set("place_before", self._second_map(self.compared.vectors))

    def _second_map(self, vectors: NDArray[np.float32]) -> NDArray[np.float32]:
        plane = principal_components(vectors)
        if not self.tsne or len(vectors) < 4:
            return plane
        return tsne(vectors, nearest(vectors, NEIGHBORS, seed=self.seed), plane, seed=self.seed)

    def find_suspects(self) -> None:
        """Search label errors among the labels that there are now, those that were given on the page too."""
        if self.neighbors is None:
            return
        with self._search:
            labels = self.project.labels()
            classes = self.project.classes
            numbers = self._numbers(labels, classes)
            suspects = suspicions(self.embeddings.vectors, numbers, self.neighbors[0], seed=self.seed)
            doubt = np.zeros(len(self.project.texts), dtype=np.float32)
            for place, one in enumerate(suspects):
                doubt[one.row] = 1 - place / (len(suspects) + 1)
            self._searched, self.suspects = (classes, labels), suspects
            self._set("suspicion", doubt)

    def state(self) -> dict[str, Any]:
        """What is there and what is computed."""
        return {
            "stage": self.error or self.stage,
            "generation": self.generation,
            "columns": dict(self._versions),
            "predicts": list(self.embeddings.classes),
            "map": "t-SNE" if self.tsne else "PCA",
            "compared": None if self.compared is None else self.compared.name,
            "suspects": len(self.suspect_rows()),
        }

    def column(self, name: str) -> NDArray[Any] | None:
        """One number for each text, as the page receives it; None where it is not computed."""
        if name == "label":
            return self._numbers(self.project.labels(), self.project.classes).astype(np.uint16)
        return self._columns.get(name)

    def row(self, row: int) -> dict[str, Any]:
        """What is known about a text."""
        about: dict[str, Any] = {}
        if "prediction" in self._columns:
            about["prediction"] = self.embeddings.classes[int(self._columns["prediction"][row])]
            about["confidence"] = float(self._columns["confidence"][row])
        if "cluster" in self._columns:
            about["cluster"] = int(self._columns["cluster"][row])
        return about

    def suspect_rows(self) -> list[dict[str, Any]]:
        """Suspected label errors that nobody has checked or changed since, the most suspicious first."""
        classes, labels = self._searched
        return [
            {
                "row": one.row,
                "suggested": classes[one.suggested],
                "quality": one.quality,
                "share": one.share,
                "by": one.by,
            }
            for one in self.suspects
            if not self.project.decision(one.row).checked and self.project.label(one.row) == labels[one.row]
        ]

    def duplicate_groups(self) -> list[list[int]]:
        """Groups of texts that are equal or nearly equal, the largest first."""
        groups = self._columns.get("duplicate")
        if groups is None:
            return []
        rows = np.flatnonzero(groups != NOTHING)
        members: dict[int, list[int]] = {}
        for row in rows.tolist():
            members.setdefault(int(groups[row]), []).append(row)
        return sorted(members.values(), key=lambda group: (-len(group), group))[:MOST_GROUPS]

    def containing(self, query: str) -> list[int]:
        """The texts that contain some words, whatever their case and spaces."""
        with self._lock:
            if self._lower is None:
                self._lower = [normalized(text) for text in self.project.texts.texts]
        words = normalized(query)
        return [row for row, text in enumerate(self._lower) if words in text]

    def near(self, query: str) -> list[int]:
        """The texts that are nearest to a new text in meaning."""
        if not self.embeddings.done:
            raise SettingError("the texts are not embedded yet; try again in a moment.")
        return self._nearest(self.embeddings.embed(query))

    def like(self, row: int) -> list[int]:
        """The texts that are nearest to one of them, itself first."""
        if not 0 <= row < len(self.project.texts) or not self.embeddings.ready[row]:
            raise SettingError(f"text {row} is not embedded yet; try again in a moment.")
        return [row, *(other for other in self._nearest(self.embeddings.vectors[row]) if other != row)]

    def _nearest(self, vector: NDArray[np.float32]) -> list[int]:
        cosines = self.embeddings.vectors @ vector
        cosines[~self.embeddings.ready] = -2
        order: list[int] = np.argsort(-cosines, kind="stable")[:FOUND].tolist()
        return order

    def write_files(self) -> list[str]:
        """Write the map for embedding-atlas and for the projector of TensorBoard; returns the files."""
        if self.neighbors is None or "place" not in self._columns:
            raise SettingError("the map is not computed yet; try again in a moment.")
        folder = self.project.folder
        table = map_files.MapTable(
            self.project.texts.texts,
            self.project.labels(),
            [self.row(row).get("prediction") for row in range(len(self.project.texts))],
            self._columns["place"],
            self.embeddings.vectors,
            self.neighbors,
        )
        return [
            str(path) for path in (*map_files.write_atlas(folder, table), *map_files.write_projector(folder, table))
        ]

    def _duplicates(self) -> NDArray[np.uint16]:
        """(n,) the number of the group of texts that are nearly equal; ``NOTHING`` for texts without such another."""
        from scipy.sparse import coo_array
        from scipy.sparse.csgraph import connected_components

        assert self.neighbors is not None
        rows, cosines = self.neighbors
        n = len(rows)
        left, place = np.nonzero(cosines >= SAME)
        same: dict[str, int] = {}
        pairs = [(row, same.setdefault(normalized(text), row)) for row, text in enumerate(self.project.texts.texts)]
        equal = np.array([pair for pair in pairs if pair[0] != pair[1]], dtype=np.int64).reshape(-1, 2)
        one, other = np.concatenate([left, equal[:, 0]]), np.concatenate([rows[left, place], equal[:, 1]])
        links = coo_array((np.ones(len(one), dtype=np.int8), (one, other)), shape=(n, n))
        _, groups = connected_components(links, directed=False)
        sizes = np.bincount(groups)
        large = np.flatnonzero(sizes > 1)[: NOTHING - 1]
        numbers = np.full(len(sizes), NOTHING, dtype=np.uint16)
        numbers[large] = np.arange(len(large))
        found: NDArray[np.uint16] = numbers[groups]
        return found

    @staticmethod
    def _numbers(labels: Sequence[str | None], classes: Sequence[str]) -> NDArray[np.int64]:
        """(n,) the number of the class of each text; -1, which is ``NOTHING`` as an unsigned number, without one."""
        numbers = {name: number for number, name in enumerate(classes)}
        return np.array([-1 if label is None else numbers[label] for label in labels], dtype=np.int64)

    def _set(self, name: str, values: NDArray[Any]) -> None:
        self._columns[name] = np.ascontiguousarray(values)
        self.generation += 1
        self._versions[name] = self.generation
