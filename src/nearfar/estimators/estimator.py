"""What classifiers and encoders share: parameters, the fitted model, its folder, and copies of both."""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError

from nearfar.data import Layout
from nearfar.estimators.fitting import KEYS, layout_of
from nearfar.estimators.folder import CARD, ModelFolder
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
    columns: Mapping[str, str] | None

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.string = True
        tags.input_tags.two_d_array = False
        return tags

    def __sklearn_is_fitted__(self) -> bool:
        return "_folder" in self.__dict__

    @property
    def model_(self) -> Model:
        """The trained model: :class:`nearfar.encoding.Model`."""
        model: Model | None = self.__dict__.get("_model")
        if model is None:
            if "_folder" not in self.__dict__:
                raise NotFittedError(
                    f"this {type(self).__name__} has not been fitted yet: call fit first, or open a saved one with "
                    "nearfar.load."
                )
            from nearfar.encoding import load

            model = self._model = load(self._folder.path)
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
        _ = self.model_
        return read_recipe(self._folder.path / RECIPE)

    @property
    def scores_(self) -> dict[str, Any]:
        """The scores on the validation rows, where there were some, by metric."""
        return dict(self._metrics().get("dev", {}).get("scores", self._metrics().get("dev", {})))

    @property
    def history_(self) -> list[dict[str, Any]]:
        """One entry for each step and each evaluation of the training."""
        _ = self.model_
        paths = sorted(self._folder.path.glob("journal*.jsonl"))
        return [json.loads(line) for path in paths for line in path.read_text(encoding="utf-8").splitlines()]

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Save the model as a folder, which ``nearfar.load`` and the commands open, and SentenceTransformer too.

        Args:
            path: the folder.
            overwrite: replace a model that is there.
        """
        model = self.model_
        if "_folder" not in self.__dict__ or not (self._folder.path / CARD).is_file():  # of another library
            self._folder = _written(model)
        self._folder.copy_to(Path(path), overwrite=overwrite)

    def embed(self, texts: Any, *, batch_size: int = 64) -> NDArray[np.float32]:
        """(n, d) the embeddings of texts."""
        from nearfar.estimators.rows import read_texts

        model = self.model_
        records = read_texts(texts, self._layout())
        rows: Any = list(zip(*records.texts, strict=True)) if len(records.texts) > 1 else records.texts[0]
        return model.embed(rows, batch_size=batch_size)

    def __getstate__(self) -> dict[str, Any]:
        state = {name: value for name, value in self.__dict__.items() if name not in ("_model", "_folder")}
        if "_folder" in self.__dict__:
            state["_files"] = self._folder.files()
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

    def _open(self, folder: ModelFolder, model: Model | None = None) -> None:
        self.__dict__.pop("_model", None)
        self._folder = folder
        if model is not None:
            self._model = model

    def _metrics(self) -> dict[str, Any]:
        _ = self.model_
        try:
            values: dict[str, Any] = json.loads((self._folder.path / "metrics.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return values


def _written(model: Model) -> ModelFolder:
    """A folder with a model that nearfar has not trained."""
    from nearfar.encoding import save

    folder = ModelFolder.make()
    save(folder.path, model.model, model.tokenizer, model.card, readme="An encoder that nearfar has not trained.\n")
    return folder


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
