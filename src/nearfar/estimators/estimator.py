"""What classifiers and encoders share: parameters, the fitted model, its folder, and copies of both."""

from __future__ import annotations

import inspect
import json
import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError

from nearfar.data import Layout
from nearfar.errors import SettingError
from nearfar.estimators.folder import ModelFolder
from nearfar.estimators.trainer import KEYS, layout_of
from nearfar.files import write_atomic
from nearfar.recipe import Recipe, read_recipe

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from nearfar.encoding import Card, Model

RECIPE = "recipe.toml"


class TextEstimator(BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """The base of estimators for texts.

    A fitted estimator holds a model, ``model_``, and the folder that it was read from. Copies and pickles carry the
    files of the folder; no object of torch is pickled.
    """

    _folder: ModelFolder
    _model: Model
    encoder: Any
    columns: Mapping[str, Any] | None

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.string = True
        tags.input_tags.two_d_array = False
        return tags

    def __sklearn_is_fitted__(self) -> bool:
        return not {"_folder", "_model"}.isdisjoint(self.__dict__)

    @property
    def model_(self) -> Model:
        """The trained model: `nearfar.encoding.Model`."""
        model: Model | None = self.__dict__.get("_model")
        if model is None:
            if "_folder" not in self.__dict__:
                raise NotFittedError(
                    f"this {type(self).__name__} has not been fitted yet: call fit first, or open a saved one with "
                    "nearfar.load."
                )
            from nearfar.encoding import load
            from nearfar.encoding.formats import use_precision

            model = self._model = load(self._folder.path)
            exact = getattr(self, "precision", None) == "fp32"
            use_precision(model, "fp32" if exact else None)
        return model

    @property
    def card(self) -> Card:
        """What ``nearfar.json`` says of the model."""
        return self.model_.card

    @property
    def labels(self) -> tuple[str, ...] | None:
        """The names of the classes as the model folder has them; None without a class head."""
        return self.model_.labels

    @property
    def recipe_(self) -> Recipe:
        """The recipe that the model was trained by, with nothing left open."""
        return read_recipe(self._path() / RECIPE)

    @property
    def scores_(self) -> dict[str, float]:
        """The scores on the validation rows, where there were some, by metric."""
        dev = self._metrics().get("dev", {})
        return {name: value for name, value in dev.items() if isinstance(value, float)}

    @property
    def history_(self) -> list[dict[str, Any]]:
        """One entry for each step and each evaluation of the training."""
        return [json.loads(line) for path in self._journals() for line in path.read_text("utf-8").splitlines()]

    def save(self, path: str | os.PathLike[str]) -> None:
        """Save the model as a folder, which ``nearfar.load`` and the commands open, and SentenceTransformer too.

        A model that is there is replaced; a folder with other things is refused.
        """
        target = Path(path)
        self.model_.save(target)
        for journal in self._journals():
            if journal.parent.resolve() != target.resolve():
                write_atomic(target / journal.name, journal.read_bytes())

    def save_pretrained(self, path: str | os.PathLike[str]) -> None:
        """The same as `save`, by the name it has in transformers and sentence-transformers."""
        self.save(path)

    def push_to_hub(
        self,
        repository: str,
        *,
        private: bool | None = None,
        revision: str | None = None,
        token: str | None = None,
        commit_message: str = "Upload a model of nearfar",
    ) -> str:
        """Upload the model to the Hugging Face Hub in one commit; returns the address of the commit.

        Args:
            repository: ``"name"`` or ``"owner/name"``, created where it does not exist.
            private: whether a new repository is private; None leaves it to the owner's settings.
            revision: the branch, created where it does not exist.
            token: an access token; None for that of ``hf auth login`` or ``HF_TOKEN``.
            commit_message: the message of the commit.
        """
        return self.model_.push_to_hub(
            repository, private=private, revision=revision, token=token, commit_message=commit_message
        )

    @classmethod
    def from_pretrained(
        cls, name: str | os.PathLike[str], *, revision: str | None = None, token: str | None = None
    ) -> Self:
        """A fitted estimator from a folder or from the Hugging Face Hub, as ``nearfar.load`` opens it."""
        from nearfar.encoding import load
        from nearfar.encoding.formats import use_precision

        model = load(os.fspath(name), revision=revision, token=token)
        use_precision(model)
        return cls.of_model(model, os.fspath(name))

    @classmethod
    def of_model(cls, model: Model, name: str) -> Self:
        """The fitted estimator of an open model; ``name`` is what it was opened by."""
        folder = None if model.folder is None else ModelFolder(model.folder, temporary=False)
        parameters = {} if folder is None else parameters_of(folder, inspect.signature(cls).parameters)
        if model.predicts_scores and "task" in inspect.signature(cls).parameters:
            parameters["task"] = "scores"
        estimator = cls(**{"encoder": name, **parameters})
        estimator._open(folder, model)
        return estimator

    def embed(self, texts: Any, *, batch_size: int = 64) -> NDArray[np.float32]:
        """(n, d) the embeddings of texts."""
        from nearfar.estimators.rows import read_texts

        model = self.model_
        records = read_texts(texts, self._layout())
        rows: Any = list(zip(*records.texts, strict=True)) if len(records.texts) > 1 else records.texts[0]
        return model.embed(rows, batch_size=batch_size)

    def _repr_html_(self) -> str:
        """A small card for notebooks."""
        from nearfar.estimators.display import card

        return card(type(self).__name__, self._about())

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        return {"text/plain": repr(self), "text/html": self._repr_html_()}

    def _about(self) -> list[tuple[str, str]]:
        """What the card says: names and values."""
        if not self.__sklearn_is_fitted__():
            changed = [f"{name}={value!r}" for name, value in self.get_params(deep=False).items() if value is not None]
            return [("state", "not fitted"), ("settings", ", ".join(changed))]
        card, given = self.card, self._folder.settings() if "_folder" in self.__dict__ else {}
        about = [("encoder", str(self.encoder)), ("objective", str(card.objective.get("name", "none")))]
        if card.head is not None:
            about.append(("head", str(card.head["kind"])))
        if "rows" in given:
            about.append(("training rows", f"{given['rows']:,}"))
        if self.model_.folder is not None:
            scores = [f"{name} {value:.4f}" for name, value in self.scores_.items()]
            about.append(("validation", ", ".join(scores) or "no validation rows"))
        return about

    def __getstate__(self) -> dict[str, Any]:
        state = {name: value for name, value in self.__dict__.items() if name not in ("_model", "_folder")}
        if self.__sklearn_is_fitted__():
            folder = ModelFolder.make()
            self.save(folder.path)
            state["_files"] = folder.files()
        return state

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        files = state.get("_files")
        self.__dict__.update({name: value for name, value in state.items() if name != "_files"})
        if files is not None:
            self._folder = ModelFolder.from_files(files)

    def _layout(self) -> Layout:
        """The columns of tables that the parameters name."""
        return layout_of(self.columns)

    def _finish(self, folder: ModelFolder, **more: object) -> Self:
        """Take over a trained folder."""
        known = {name: value for name, value in self.get_params(deep=False).items() if _is_plain(value)}
        folder.write_settings({"estimator": type(self).__name__, "parameters": known, **more})
        self._open(folder)
        return self

    def _open(self, folder: ModelFolder | None, model: Model | None = None) -> None:
        """Become the estimator of a model; one that another library has saved has no folder."""
        for name in ("_model", "_folder"):
            self.__dict__.pop(name, None)
        if folder is not None:
            self._folder = folder
        if model is not None:
            self._model = model

    def _path(self) -> Path:
        """The folder of the model."""
        if self.model_.folder is None:
            raise SettingError("nearfar has not trained this model, so it has no recipe and no history.")
        return self.model_.folder

    def _journals(self) -> list[Path]:
        folder = self.model_.folder
        return [] if folder is None else sorted(folder.glob("journal*.jsonl"))

    def _metrics(self) -> dict[str, Any]:
        try:
            values: dict[str, Any] = json.loads((self._path() / "metrics.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return values


def _is_plain(value: object) -> bool:
    """Whether JSON gives the value back as it is."""
    try:
        return bool(json.loads(json.dumps(value)) == value)
    except (TypeError, ValueError):
        return False


def parameters_of(folder: ModelFolder, known: Mapping[str, object]) -> dict[str, Any]:
    """The parameters of the estimator that a folder is from; for other models, what their recipe says."""
    parameters = folder.settings().get("parameters")
    if not isinstance(parameters, dict):
        try:
            recipe = tomllib.loads((folder.path / RECIPE).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        parameters = {"objective": recipe.get("objective", "auto"), "random_state": recipe.get("seed", 0)}
        for name, key in KEYS.items():
            table, _, entry = key.partition(".")
            if entry in recipe.get(table, {}):
                parameters[name] = recipe[table][entry]
    return {name: value for name, value in parameters.items() if name in known}
