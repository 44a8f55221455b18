"""``nearfar.Encoder``: a text encoder that is fine-tuned on pairs, triplets or plain texts."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import TransformerMixin

from nearfar.data import Layout, Records, RowType, read_memory, row_type_of
from nearfar.errors import MEMORY, DataError, Problem, SettingError
from nearfar.estimators.display import Page
from nearfar.estimators.estimator import TextEstimator
from nearfar.estimators.rows import encoder_rows, is_table, labeled_rows, read_texts
from nearfar.estimators.trainer import recipe_of, train_folder

logger = logging.getLogger(__name__)

if TYPE_CHECKING:
    from nearfar.encoding import Model
    from nearfar.evaluation.index import SearchIndex
    from nearfar.training import Callback


@dataclass(frozen=True, slots=True)
class Hit:
    """A text that a search has found."""

    index: int
    """Its place in the corpus."""
    score: float
    """The cosine similarity to the query."""
    text: str


class EmbeddingEstimator(TextEstimator):
    """The base of estimators that compare texts by their embeddings."""

    def encode(self, texts: Any, *, batch_size: int = 64, normalize: bool = False) -> NDArray[np.float32]:
        """(n, d) the embeddings of texts.

        Args:
            texts: a list, a NumPy array or a Series of texts, or a table with a column of texts.
            batch_size: texts computed at once.
            normalize: whether to scale each embedding to length 1.
        """
        vectors = self.embed(texts, batch_size=batch_size)
        if normalize:
            vectors = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
        return vectors

    def transform(self, texts: Any) -> NDArray[np.float32]:
        """(n, d) the embeddings of texts, for pipelines of scikit-learn."""
        return self.encode(texts)

    def similarity(self, left: Any, right: Any, *, batch_size: int = 64) -> NDArray[np.float32]:
        """(n, m) the cosine similarity of each of n texts to each of m others.

        >>> import nearfar
        >>> nearfar.Encoder("toy").similarity(["an apple"], ["an apple", "a saw"]).round(4).tolist()[0][0]
        1.0
        """
        rows = self.encode(left, batch_size=batch_size, normalize=True)
        columns = self.encode(right, batch_size=batch_size, normalize=True)
        cosines: NDArray[np.float32] = np.clip(rows @ columns.T, -1.0, 1.0)
        return cosines

    def search(self, queries: Any, corpus: Any, *, top: int = 10, batch_size: int = 64) -> list[list[Hit]]:
        """For each query the most similar texts of a corpus, the best first.

        Args:
            queries: texts, or one text.
            corpus: texts to search among, or an index of them: :meth:`index`, or an index of many shards that
                ``nearfar.shards.index.ShardedIndex.load`` has opened.
            top: how many are returned for each query.
            batch_size: texts computed at once.

        >>> import nearfar
        >>> nearfar.Encoder("toy").search(["a saw"], ["an apple", "a saw"], top=1)[0][0].text
        'a saw'
        """
        if top < 1:
            raise SettingError(f"top must be 1 or more, got {top}.")
        from nearfar.evaluation.index import SearchIndex
        from nearfar.shards.index import ShardedIndex

        asked = read_texts([queries] if isinstance(queries, str) else queries, self._layout(), "queries")
        saved = isinstance(corpus, SearchIndex | ShardedIndex)
        index = corpus if saved else self.index(corpus, batch_size=batch_size)
        index.check(self.model_)
        scores, places = index.search(self.encode(asked, batch_size=batch_size), top=top)
        return [
            [
                Hit(int(place), float(score), index.document(int(place))["doc"])
                for score, place in zip(*row, strict=True)
                if place >= 0
            ]
            for row in zip(scores, places, strict=True)
        ]

    def index(self, corpus: Any, *, batch_size: int = 64) -> SearchIndex:
        """The embeddings of a corpus for many searches; ``save`` writes them to a folder.

        ``nearfar.SearchIndex.load`` opens the folder again, and ``nearfar search`` reads it, too. An index belongs to
        its model: another one is refused.

        Args:
            corpus: texts to search among.
            batch_size: texts computed at once.

        >>> import nearfar
        >>> enc = nearfar.Encoder("toy")
        >>> index = enc.index(["an apple", "a saw"])
        >>> enc.search("a saw", index, top=1)[0][0].text
        'a saw'
        """
        from nearfar.evaluation.index import SearchIndex

        documents = read_texts(corpus, self._layout(), "corpus")
        vectors = self.encode(documents, batch_size=batch_size)
        return SearchIndex(list(documents.texts[0]), None, vectors, self.model_, documents.source)


class Encoder(TransformerMixin, EmbeddingEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """A text encoder: pretrained, and fine-tuned by ``fit``, which decides by the rows how.

    Without ``fit`` it encodes with the pretrained weights.

    Args:
        encoder: a short name, a model folder, also one of sentence-transformers, or a name on the Hugging Face Hub.
        objective: the name of a training objective, or a dictionary with its ``name`` and settings; ``"auto"`` follows
            from the rows, None leaves the pretrained weights as they are.
        random_state: the seed of all random numbers.
        verbose: show the progress of ``fit``.
        epochs: passes over the training rows.
        max_steps: stop after so many optimizer steps.
        batch_size: rows in a batch of training.
        learning_rate: the peak learning rate.
        max_length: tokens at which a text is truncated.
        pooling: ``"first"``, ``"mean"`` or ``"pooler"``.
        precision: ``"auto"``, ``"fp32"`` or ``"bf16"``.
        columns: which columns of data frames and data sets are read, where their names do not say it, such as
            ``{"text": "question", "pair": "answer"}``; also ``score``, ``label``, ``negative``, ``query_id`` and
            ``doc_id``.
        invalid: ``"refuse"``, or ``"drop"`` to leave out training rows that cannot be used.
        callbacks: objects that follow the training: `nearfar.Callback`.
        settings: any other recipe keys, such as ``{"batches.shuffle": "clusters"}``.

    Attributes:
        model_: the trained model.
        recipe_: the recipe with everything that was chosen.
        scores_: the scores on the validation rows, where there were some.
        history_: one entry for each step and evaluation of the training.

    >>> import nearfar
    >>> pairs = [("a red apple", "an apple that is red"), ("a saw", "a tool to cut wood"), ("rain", "wet weather")]
    >>> enc = nearfar.Encoder("toy", epochs=1).fit(pairs)
    >>> enc.encode(["an apple", "a saw"]).shape
    (2, 64)
    """

    def __init__(
        self,
        encoder: Any = "minilm",
        *,
        objective: str | Mapping[str, Any] | None = "auto",
        random_state: Any = 0,
        verbose: bool = False,
        epochs: int | None = None,
        max_steps: int | None = None,
        batch_size: int | None = None,
        learning_rate: float | None = None,
        max_length: int | None = None,
        pooling: str | None = None,
        precision: str = "auto",
        columns: Mapping[str, Any] | None = None,
        invalid: str = "refuse",
        callbacks: Sequence[Callback] = (),
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        self.encoder = encoder
        self.objective = objective
        self.random_state = random_state
        self.verbose = verbose
        self.epochs = epochs
        self.max_steps = max_steps
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.max_length = max_length
        self.pooling = pooling
        self.precision = precision
        self.columns = columns
        self.invalid = invalid
        self.callbacks = callbacks
        self.settings = settings

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.requires_fit = False
        return tags

    def fit(self, data: Any, labels: Any = None, *, validation: Any = None) -> Self:
        """Train on pairs, triplets or plain texts.

        Args:
            data: a list of ``(a, b)``, ``(a, b, score)`` or ``(anchor, positive, negative)`` tuples, or of texts; or a
                data frame, a ``datasets.Dataset`` or a dictionary of columns.
            labels: classes of single texts, as scikit-learn passes them: texts of a class are pulled together.
            validation: rows that choose the best weights, in a form that ``data`` can have, or a share of the rows
                such as 0.1; 0 for none, None for a tenth of at least 1,000 rows.
        """
        if self.objective is None:
            self._open(None)
            _ = self.model_
            return self
        rows, more = self._rows(data, labels)
        if isinstance(validation, int | float):
            more["data.dev"] = float(validation)
        elif validation is not None:
            rows["dev"] = self._read(validation, None, "dev")
        recipe = recipe_of(type(self).__name__, self.get_params(deep=False), more)
        folder, _ = train_folder(recipe, rows, self.callbacks, verbose=bool(self.verbose))
        return self._finish(folder, rows=len(rows["train"]))

    def report(self, data: Any) -> Page:
        """The report page on texts, pairs or triplets: the geometry of their embeddings before and after training.

        In a notebook it is shown inline; ``report(...).save("report.html")`` writes it to a file.
        """
        from nearfar.report import read_source, render_page
        from nearfar.report.single_run import add_geometry

        records = replace(self._read(data, None, "report"), source="given rows")
        source, notes = add_geometry(read_source(self._path()), records)
        for note in notes:
            logger.info(note)
        return Page(render_page(source))

    @property
    def model_(self) -> Model:
        """The trained model; before ``fit`` the pretrained one."""
        if self.__sklearn_is_fitted__():
            return super().model_
        opened: tuple[str, Model] | None = self.__dict__.get("_pretrained")
        name = str(self.encoder)
        if opened is None or opened[0] != name:
            from nearfar.encoding import load

            opened = self._pretrained = (name, load(name))
        return opened[1]

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in super().__getstate__().items() if name != "_pretrained"}

    def _read(self, data: Any, labels: Any, name: str) -> Records:
        if labels is not None:
            rows, layout = labeled_rows(data, labels, self._layout(), name)
        else:
            rows, layout = (data, self._layout()) if is_table(data) else (encoder_rows(data, name), Layout())
        return read_memory(rows, f"{MEMORY}{name}", layout, invalid=self.invalid)  # type: ignore[arg-type]

    def _rows(self, data: Any, labels: Any) -> tuple[dict[str, Records], dict[str, object]]:
        """The training rows, and the objective where it follows from them."""
        records = self._read(data, labels, "train")
        if self.objective != "auto" or labels is not None:
            return {"train": records}, {}
        plain = records.shape == "texts"
        row_type = row_type_of(records, pairwise=not plain, plain=plain and records.labels is None)
        if isinstance(row_type, Problem):
            raise DataError(row_type)
        return {"train": records}, {} if row_type is RowType.LABELED else {"objective.name": row_type.objective}
