"""``nearfar.Classifier``: a text classifier with the interface of scikit-learn."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin
from sklearn.metrics import r2_score
from sklearn.utils import RegressorTags

from nearfar.data import Layout, Records, RowType, read_memory
from nearfar.data.values import label_of
from nearfar.errors import MEMORY, DataError, EncoderError, Problem, SettingError
from nearfar.estimators.display import Page
from nearfar.estimators.estimator import TextEstimator
from nearfar.estimators.folder import SETTINGS, ModelFolder
from nearfar.estimators.rows import (
    Labels,
    LabelType,
    indicator_names,
    is_matrix,
    is_table,
    label_type,
    labeled_rows,
    read_texts,
    row_count,
    target_type,
    text_columns,
    with_weights,
)
from nearfar.estimators.trainer import column_keys, recipe_of, train_folder

logger = logging.getLogger(__name__)

GIVEN = "given rows"
"""What reports call rows in memory."""
SHOWN = 12
"""Classes that a card lists."""

if TYPE_CHECKING:
    from nearfar.encoding import Model
    from nearfar.evaluation.estimate import Estimate
    from nearfar.training import Callback


def _texts_alone(texts: Any, name: str) -> Any:
    return texts if is_table(texts) else text_columns(texts, name)


class Classifier(ClassifierMixin, TextEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """A text classifier: a pretrained encoder, fine-tuned with a contrastive or another objective, and a class head.

    No settings are needed: what is not given is chosen by the data, as in ``nearfar train``. The same data, seed and
    settings give the same weights as the command.

    Args:
        encoder: a short name, a model folder, or a name on the Hugging Face Hub.
        objective: the name of a training objective, or a dictionary with its ``name`` and settings.
        label_names: what the classes are called: a dictionary of labels with a description or a list of them each, or
            a file with one; ``"auto"`` takes labels that are words, None takes no names. Names that fit the labeled
            texts join the training.
        class_weight: ``"balanced"``, or a dictionary with the weight of each class.
        random_state: the seed of all random numbers.
        verbose: show the progress of ``fit``.
        head: the class head: ``"auto"``, ``"trained"``, ``"logistic"``, ``"nearest-center"`` or ``"neighbors"``.
        epochs: passes over the training texts.
        max_steps: stop after so many optimizer steps.
        batch_size: texts in a batch of training.
        learning_rate: the peak learning rate of the encoder.
        max_length: tokens at which a text is truncated.
        pooling: ``"first"``, ``"mean"`` or ``"pooler"``.
        precision: ``"auto"``, ``"fp32"`` or ``"bf16"``.
        estimate: whether ``fit`` ends with how good the model is on new texts; False is faster, with the same weights,
            and enough where something else measures, such as ``cross_val_score``.
        task: ``"scores"`` predicts one number for each text (regression) instead of a class; ``"auto"`` and
            ``"classes"`` predict classes.
        columns: which columns of data frames and data sets are read, where their names do not say it, such as
            ``{"text": "body", "label": "intent"}``; ``pair`` is the second text of a pair; of several labels a text
            ``label_separator`` or ``label_columns`` say where they are.
        invalid: ``"refuse"``, or ``"drop"`` to leave out training rows that cannot be used.
        callbacks: objects that follow the training: `nearfar.Callback`.
        settings: any other recipe keys, such as ``{"training.warmup": 0.1}``.

    Attributes:
        classes_: (c,) the classes, sorted.
        model_: the trained model.
        recipe_: the recipe with everything that was chosen.
        scores_: the scores on the validation rows, where there were some.
        estimate_: how good the model is on new texts, on the validation rows or by cross-validation; or None.
        history_: one entry for each step and evaluation of the training.

    >>> import nearfar
    >>> texts = ["where is my parcel", "the parcel is late", "i was charged twice", "the invoice is wrong"]
    >>> clf = nearfar.Classifier("toy").fit(texts, ["delivery", "delivery", "payment", "payment"])
    >>> clf.classes_.tolist(), clf.predict_proba(texts).shape
    (['delivery', 'payment'], (4, 2))
    """

    def __init__(
        self,
        encoder: Any = "minilm",
        *,
        objective: str | Mapping[str, Any] = "auto",
        label_names: Any = "auto",
        class_weight: str | Mapping[Any, float] | None = None,
        random_state: Any = 0,
        verbose: bool = False,
        head: str = "auto",
        epochs: int | None = None,
        max_steps: int | None = None,
        batch_size: int | None = None,
        learning_rate: float | None = None,
        max_length: int | None = None,
        pooling: str | None = None,
        precision: str = "auto",
        estimate: bool = True,
        task: str = "auto",
        columns: Mapping[str, Any] | None = None,
        invalid: str = "refuse",
        callbacks: Sequence[Callback] = (),
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        self.encoder = encoder
        self.objective = objective
        self.label_names = label_names
        self.class_weight = class_weight
        self.random_state = random_state
        self.verbose = verbose
        self.head = head
        self.epochs = epochs
        self.max_steps = max_steps
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.max_length = max_length
        self.pooling = pooling
        self.precision = precision
        self.estimate = estimate
        self.task = task
        self.columns = columns
        self.invalid = invalid
        self.callbacks = callbacks
        self.settings = settings

    def fit(
        self,
        texts: Any = None,
        labels: Any = None,
        *,
        unlabeled: Any = None,
        validation: Any = None,
        sample_weight: Any = None,
    ) -> Self:
        """Train on labeled texts.

        Args:
            texts: a list, a NumPy array or a Series of texts, a list of ``(left, right)`` pairs; or a data frame, a
                ``datasets.Dataset`` or a dictionary of columns.
            labels: the class of each text, or its score with ``task="scores"``; for several labels a text
                (multi-label) a list of lists, or a matrix of 0 and 1; of a table the name of its column, or None to
                recognize it by its name.
            unlabeled: texts without labels: beside labeled ones, some of them join the training if the labeled texts
                show that it is right; in place of ``texts``, for classes that ``label_names`` describes.
            validation: rows that choose the best weights: ``(texts, labels)``, a table, or a share of the texts such
                as 0.1; 0 for none, None for a tenth of at least 1,000 texts.
            sample_weight: how much each text counts in a cross-entropy, and in a logistic or nearest-center head; of a
                table the name of its column, too.
        """
        self._refuse_unsupported(texts, unlabeled)
        if texts is not None:
            data, layout, kind = self._rows(texts, labels, "train")
        else:
            data, layout = _texts_alone(unlabeled, "train"), self._layout()
            kind = label_type(list(self.label_names)) if isinstance(self.label_names, Mapping) else "str"
        if sample_weight is not None:
            data, layout = with_weights(data, layout, sample_weight)
        rows, more = {"train": data}, column_keys(layout)
        if texts is None:
            more["data.unlabeled"] = True
        elif unlabeled is not None:
            rows["unlabeled"] = _texts_alone(unlabeled, "unlabeled")
        if validation is not None:
            if isinstance(validation, int | float):
                more["data.dev"] = float(validation)
            else:
                split = isinstance(validation, tuple) and len(validation) == 2
                dev_texts, dev_labels = validation if split else (validation, None)
                dev, columns, _ = self._rows(dev_texts, dev_labels, "dev")
                invalid: Any = self.invalid
                rows["dev"] = read_memory(dev, f"{MEMORY}dev", columns, invalid=invalid)
        parameters = self.get_params(deep=False)
        recipe = recipe_of(type(self).__name__, parameters, more)
        folder, _ = train_folder(recipe, rows, self.callbacks, verbose=bool(self.verbose))
        matrix = {"indicators": indicator_names(labels)} if is_matrix(labels) else {}
        return self._finish(folder, label_type=kind, rows=row_count(data), **matrix)

    def predict(self, texts: Any, *, batch_size: int = 64, reject: float | None = None) -> Any:
        """(n,) the most probable class of each text; with ``task="scores"`` its score.

        A model of several labels a text gives a list of the labels that apply for each text, the most likely first; if
        it was fitted with a matrix of 0 and 1, it gives such a matrix.

        Args:
            texts: as in ``fit``, without labels.
            batch_size: texts encoded together.
            reject: None instead of a class for texts that fit none of the classes: 0.05 rejects about 5 % of the texts
                that do fit.
        """
        if reject is not None:
            return self._rejecting(texts, batch_size, reject)
        if self.model_.predicts_scores:
            return self._scores(read_texts(texts, self._layout()), batch_size)
        probabilities = self.predict_proba(texts, batch_size=batch_size)
        if not self.model_.multilabel:
            return self.classes_[probabilities.argmax(axis=1)]
        applies = probabilities >= self._thresholds()
        if self._indicators is not None:
            return applies.astype(np.int64)
        order = np.argsort(-probabilities, axis=1, kind="stable")
        return [self.classes_[row[applies[number, row]]].tolist() for number, row in enumerate(order)]

    def predict_proba(self, texts: Any, *, batch_size: int = 64) -> NDArray[np.float32]:
        """(n, c) the probability of each class, in the order of ``classes_``; of several labels each by itself."""
        model = self.model_
        records = read_texts(texts, self._layout())
        if model.predicts_scores:
            raise SettingError("this model predicts a score for each text, and no probabilities; use predict.")
        return self._probabilities(model, records, batch_size)

    def typicality(self, texts: Any, *, batch_size: int = 64) -> NDArray[np.float32]:
        """(n,) how typical each text is of the classes, from 0 to 1: the share of in-scope texts that fit less well."""
        return self._typical(texts, batch_size)[1]

    def _typical(self, texts: Any, batch_size: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """(n, c) probabilities in the order of ``classes_``, and (n,) typicality."""
        from nearfar.encoding.predictor import predictor_of

        records, predictor = read_texts(texts, self._layout()), predictor_of(self.model_)
        predictor.check(records)
        rows = predictor.texts(records.texts)
        probabilities, typicality = self.model_.typical_probabilities(rows, batch_size=batch_size)
        return probabilities[:, self._labels.order], typicality

    def _rejecting(self, texts: Any, batch_size: int, level: float) -> NDArray[Any]:
        from nearfar.encoding.scope import check_level

        check_level(level)
        probabilities, typicality = self._typical(texts, batch_size)
        labels: NDArray[Any] = self.classes_[probabilities.argmax(axis=1)].astype(object)
        labels[typicality < level] = None
        return labels

    def score(self, texts: Any, labels: Any = None, sample_weight: Any = None) -> float:
        """The share of texts whose class, or whose set of labels, is predicted; unknown labels are refused.

        With ``task="scores"`` it is the coefficient of determination, as regressors of scikit-learn have it.
        """
        model = self.model_
        data, layout, _ = self._rows(texts, labels, "score")
        records = read_memory(data, f"{MEMORY}score", layout, need="any")
        from nearfar.pipeline.data import class_numbers

        if model.predicts_scores:
            if records.scores is None:
                raise DataError(Problem(records.source, "the rows have no scores", "Give a number for each text."))
            return float(r2_score(records.scores, self._scores(records, 64), sample_weight=sample_weight))
        assert model.labels is not None
        if model.multilabel:
            wanted = class_numbers(records, model.labels, RowType.MULTILABEL)[:, self._labels.order] > 0
            known = self._probabilities(model, records, 64)[:, self._known] >= self._thresholds()[self._known]
            return float(np.average((known == wanted).all(axis=1), weights=sample_weight))
        truth = class_numbers(records, model.labels)
        predicted = self._labels.order[self._probabilities(model, records, 64).argmax(axis=1)]
        return float(np.average(predicted == truth, weights=sample_weight))

    def extend(self, texts: Any, labels: Any = None) -> Classifier:
        """A new classifier that also knows these texts, of new classes or of known ones; this one stays as it is.

        The encoder is not trained again: the class head is brought up to date, in seconds.

        Args:
            texts: the new texts alone, as in ``fit``.
            labels: the class of each text; of a table the name of its column, or None to recognize it.
        """
        from nearfar.encoding.predictor import predictor_of
        from nearfar.pipeline import extension

        data, layout, kind = self._rows(texts, labels, "extend")
        records = read_memory(data, f"{MEMORY}extend", layout)
        predictor_of(self.model_).check(records)
        with self.model_.model.unpacked():  # the head is fitted in fp32, as the command does it
            extended = extension.extend(self.model_, records)
        for note in extended.notes:
            logger.info(note)
        folder = ModelFolder.make()
        extension.save_extension(extended, folder.path, origin=str(self.model_.folder))
        about = self._folder.settings() if "_folder" in self.__dict__ else {}
        same = about.get("label_type", "str") == kind
        copy = type(self)(**self.get_params(deep=False))
        rows = about.get("rows", 0) + row_count(data)
        return copy._finish(folder, label_type=kind if same else "str", rows=rows)

    def report(self, texts: Any, labels: Any = None) -> Page:
        """The report page on labeled texts: scores, confusion, mistakes, an embedding map and more.

        In a notebook it is shown inline; ``report(...).save("report.html")`` writes it to a file.
        """
        from nearfar.report import read_source, render_page
        from nearfar.report.single_run import add_predictions

        folder = self._path()
        data, layout, _ = self._rows(texts, labels, "report")
        records = read_memory(data, f"{MEMORY}report", layout)
        with TemporaryDirectory(prefix="nearfar-report-") as scratch:
            source, notes = add_predictions(read_source(folder), replace(records, source=GIVEN), Path(scratch))
            page = Page(render_page(source))
        for note in notes:
            logger.info(note)
        return page

    @property
    def estimate_(self) -> Estimate | None:
        """How good the model is on new texts, with an interval and baselines; None where that was not estimated.

        >>> import nearfar
        >>> texts = [f"{thing} number {n}" for n in range(8) for thing in ("apple", "hammer")]
        >>> clf = nearfar.Classifier("toy").fit(texts, ["fruit", "tool"] * 8)
        >>> clf.estimate_.metric, clf.estimate_.rows
        ('accuracy', 16)
        """
        from nearfar.evaluation.estimate import Estimate

        values = self._metrics().get("estimate")
        return None if values is None else Estimate(**values)

    @property
    def classes_(self) -> NDArray[Any]:
        """(c,) the classes, sorted; those of a matrix of 0 and 1 in the order of its columns."""
        if self.model_.predicts_scores:
            raise AttributeError("this model predicts scores, and has no classes")
        return self._labels.classes if self._indicators is None else self._indicators

    def _thresholds(self) -> NDArray[np.float64]:
        """(c,) the lowest probability at which each label applies."""
        chosen: dict[str, float] = self.card.task.get("thresholds", {})
        return np.array([chosen.get(str(label_of(name)), 0.5) for name in self.classes_.tolist()])

    def _about(self) -> list[tuple[str, str]]:
        about = super()._about()
        if self.__sklearn_is_fitted__() and not self.model_.predicts_scores:
            names = [str(name) for name in self.classes_[:SHOWN]]
            more = f" and {len(self.classes_) - SHOWN:,} more" if len(self.classes_) > SHOWN else ""
            about.insert(0, ("classes", f"{len(self.classes_)}: {', '.join(names)}{more}"))
        return about

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = True
        if self.task == "scores":
            tags.estimator_type, tags.classifier_tags, tags.regressor_tags = "regressor", None, RegressorTags()
        return tags

    def _scores(self, records: Records, batch_size: int) -> NDArray[np.float32]:
        """(n,) the score of each text."""
        from nearfar.encoding.predictor import predictor_of

        predictor = predictor_of(self.model_)
        predictor.check(records)
        return self.model_.scores(predictor.texts(records.texts), batch_size=batch_size)

    def _probabilities(self, model: Any, records: Records, batch_size: int) -> NDArray[np.float32]:
        from nearfar.encoding.predictor import predictor_of

        predictor = predictor_of(model)
        predictor.check(records)
        probabilities = model.probabilities(predictor.texts(records.texts), batch_size=batch_size)
        probabilities = probabilities[:, self._labels.order]
        if self._indicators is None:
            return np.asarray(probabilities)
        every = np.zeros((len(probabilities), len(self._indicators)), dtype=np.float32)
        every[:, self._known] = probabilities
        return every

    def _rows(self, texts: Any, labels: Any, name: str) -> tuple[Any, Layout, LabelType]:
        if self.task == "scores":
            data, layout = labeled_rows(texts, labels, self._layout(), name, target="score")
            return data, layout, "float"
        data, layout = labeled_rows(texts, labels, self._layout(), name)
        kind = (
            target_type(data, layout)
            if is_table(texts) and (labels is None or isinstance(labels, str))
            else (label_type(labels))
        )
        return data, layout, kind

    def _open(self, folder: ModelFolder | None, model: Model | None = None) -> None:
        super()._open(folder, model)
        names = self.model_.labels
        if self.model_.predicts_scores:
            return
        if names is None:
            raise SettingError("this model has no class head; open it with nearfar.Encoder.")
        about = {} if folder is None else folder.settings()
        columns = about.get("indicators")
        try:
            self._labels = Labels.of(names, about.get("label_type", "str"))
            self._indicators = None if columns is None else np.array(columns)
            if self._indicators is not None and self._indicators.ndim != 1:
                raise ValueError("indicators that are no list of labels")
        except (ValueError, TypeError, OverflowError) as cause:
            place = "" if folder is None else f"{folder.path / SETTINGS}: "
            raise EncoderError(f"{place}these are not labels of the model ({cause}). Is the file damaged?") from cause
        every = self._labels.classes if self._indicators is None else self._indicators
        self._known = np.flatnonzero(np.isin(every, self._labels.classes))

    def _refuse_unsupported(self, texts: object, unlabeled: object) -> None:
        if texts is None and unlabeled is None:
            raise SettingError(
                "fit takes texts with their labels, or unlabeled texts for the classes that label_names describes, or "
                "both."
            )
        if self.task not in ("auto", "classes", "scores"):
            raise SettingError(f"task is 'auto', 'classes' or 'scores', got {self.task!r}.")
        if not (self.label_names is None or isinstance(self.label_names, str | os.PathLike | Mapping)):
            raise SettingError(
                f"label_names is a dictionary of labels and descriptions, a file, 'auto' or None, "
                f"got {self.label_names!r}."
            )
        for label, phrases in self.label_names.items() if isinstance(self.label_names, Mapping) else ():
            given = [phrases] if isinstance(phrases, str) else phrases
            if not isinstance(given, Iterable) or not all(isinstance(phrase, str) for phrase in given):
                raise SettingError(
                    f"label_names: the description of {label!r} is a string or a list of strings, got {phrases!r}."
                )
