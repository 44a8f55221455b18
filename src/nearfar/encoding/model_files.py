"""The files that make up a model folder: copied to another folder, or uploaded to the Hugging Face Hub.

Whatever else is in the folder stays where it is: checkpoints, journals, the files of trackers, data.
"""

from __future__ import annotations

import os
import re
import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable
from fnmatch import fnmatch
from pathlib import Path
from tempfile import TemporaryDirectory

from nearfar.encoding import hub
from nearfar.encoding.digests import DIGESTS, digest_lines
from nearfar.encoding.inspection import inspect
from nearfar.encoding.model_folder import CARD, EXTRAS, HEADS, read_card
from nearfar.encoding.pretrained import STAGING
from nearfar.errors import EncoderError, OutputError, SettingError
from nearfar.files import flush_tree, remove, unwritable

WEIGHTS = ("model.safetensors", "model-*.safetensors", "model.safetensors.index.json", EXTRAS, HEADS)
TOKENIZER = (
    *("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"),
    *("vocab.txt", "vocab.json", "merges.txt", "bpe.codes", "tokenizer.model", "spiece.model"),
    *("sentencepiece.bpe.model", "*.tiktoken", "chat_template.jinja"),
)
MODULES = (
    *("modules.json", "sentence_bert_config.json", "config_sentence_transformers.json"),
    *("[1-9]_*/config.json", "[1-9]_*/model.safetensors"),
)
ABOUT = ("README.md", "recipe.toml", "metrics.json", "estimator.json")
LAYOUT = ("config.json", *WEIGHTS, *TOKENIZER, *MODULES, CARD, DIGESTS, *ABOUT)
"""Patterns of the files of a model; ``*`` also stands for a slash, so that folders need one of their own."""
FOLDER_NAME = '"this-folder"'
"""What the model card calls the model in its examples."""


def is_model_file(name: str) -> bool:
    """Whether a name, with ``/`` between folder and file, is that of a file of a model.

    >>> is_model_file("2_Dense/config.json"), is_model_file("checkpoints/model.safetensors"), is_model_file("train.csv")
    (True, False, False)
    """
    return any(name.count("/") == pattern.count("/") and fnmatch(name, pattern) for pattern in LAYOUT)


def files_of(folder: Path) -> dict[str, Path]:
    """The files of a complete model folder of nearfar by their names in it; an error for any other folder."""
    if read_card(folder) is None:
        raise EncoderError(
            f"{folder}: the folder holds no {CARD}, so it is no complete model of nearfar. "
            "Give the folder that training saved to."
        )
    inspect(folder)
    return _present(folder)


def _present(folder: Path) -> dict[str, Path]:
    paths = [*folder.glob("*"), *folder.glob("[1-9]_*/*")]
    names = {path.relative_to(folder).as_posix(): path for path in sorted(paths) if path.is_file()}
    return {name: path for name, path in names.items() if is_model_file(name)}


def copy_model(source: Path, to: Path) -> None:
    """Copy the files of a model; a model that is there is replaced, any other folder with files is refused."""
    files = files_of(source)
    if to.exists() and os.path.samefile(source, to):
        return
    check_target(to)
    staging = to / STAGING
    try:
        remove(staging)
        for name, path in files.items():
            (staging / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, staging / name)
        if DIGESTS not in files:
            (staging / DIGESTS).write_text(digest_lines({name: staging / name for name in files}), encoding="utf-8")
        flush_tree(staging)
        for name in sorted(_present(to), key=lambda name: name != CARD):  # without its card it is no complete model
            remove(to / name)
        for entry in sorted(staging.iterdir(), key=lambda entry: entry.name == CARD):
            remove(to / entry.name)
            os.replace(entry, to / entry.name)
        staging.rmdir()
    except OSError as cause:
        raise unwritable(to, cause) from cause


def check_target(folder: Path) -> None:
    """Refuse to save a model to a file, or into a folder with other things than a model of nearfar."""
    if folder.is_file():
        raise OutputError(f"{folder}: this is a file; give a folder for the model.")
    if folder.is_dir() and any(folder.iterdir()) and not (folder / CARD).is_file():
        raise OutputError(
            f"{folder}: the folder is not empty, and holds something else than a model of nearfar, so it is not "
            "replaced. Choose another folder."
        )


def publish(folder: Path, repository: str, commit: hub.Commit) -> str:
    """Upload a model to the hub in one commit; the address of the commit.

    The examples of the model card name the repository; recipe and settings name data and encoder without their folders.
    """
    files: dict[str, Path | bytes] = dict(files_of(folder))
    changes: dict[str, Callable[[str], str]] = {
        "README.md": lambda text: text.replace(FOLDER_NAME, f'"{repository}"'),
        "recipe.toml": without_folders,
        "estimator.json": without_folders,
    }
    for name in changes.keys() & files.keys():
        files[name] = changes[name]((folder / name).read_text(encoding="utf-8")).encode()
    files[DIGESTS] = digest_lines(files).encode()
    return hub.upload(repository, files, commit, replaces=is_model_file)


def without_folders(recipe: str) -> str:
    """A recipe, or settings as JSON, whose absolute paths are file names.

    >>> without_folders('train = "/home/me/data/train.csv"  # a/b')
    'train = "train.csv"  # a/b'
    """
    return re.sub(r'"(?:~|[A-Za-z]:)?[/\\][^"\n]*?([^"/\\\n]+)[/\\]*"', r'"\1"', recipe)


class SavedModel(ABC):
    """What can be saved as a model folder, and with it: copied, uploaded and downloaded again."""

    @abstractmethod
    def save(self, path: str | Path) -> None:
        """Save the model to a folder; a model that is there is replaced."""

    def save_pretrained(self, path: str | Path) -> None:
        """The same as :meth:`save`, by the name it has in transformers and sentence-transformers."""
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
            private: whether a new repository is private; None leaves it to the owner's settings. True refuses an
                existing public repository.
            revision: the branch, created where it does not exist.
            token: an access token; None for that of ``hf auth login`` or ``HF_TOKEN``.
            commit_message: the message of the commit.
        """
        if not commit_message.strip():
            raise SettingError("commit_message is empty; give a few words, or leave it out.")
        commit = hub.Commit(message=commit_message, private=private, revision=revision, token=token)
        with TemporaryDirectory() as folder:
            self.save(Path(folder) / "model")
            return publish(Path(folder) / "model", repository, commit)
