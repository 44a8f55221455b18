"""The Hugging Face Hub: download the files of an encoder as data, and upload files in one commit."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nearfar.errors import EncoderError, NearfarError, OutputError

READ = ["*.json", "*.safetensors", "*.txt", "*.model", "*.tiktoken", "*.jinja", "*.codes", "README.md",
        "recipe.toml", "SHA256SUMS"]  # fmt: skip
NOT_READ = ["onnx/*", "openvino/*", "checkpoint*/*", "*.py"]
LOGIN = "Log in with 'hf auth login', set HF_TOKEN, or pass token in Python"


@dataclass(frozen=True, kw_only=True)
class Commit:
    """How files are uploaded.

    Args:
        message: the commit message.
        private: whether a new repository is private; None leaves it to the owner's settings. True also refuses an
            existing public repository.
        revision: the branch, created where it does not exist; None for ``main``.
        token: an access token; None for that of ``hf auth login`` or ``HF_TOKEN``.
    """

    message: str
    private: bool | None = None
    revision: str | None = None
    token: str | None = None


def download(repository: str, *, revision: str | None = None, token: str | None = None) -> Path:
    """The folder of a repository in the local cache, downloaded where needed; no code and no pickles."""
    from huggingface_hub import snapshot_download

    name = repository if revision is None else f"{repository}@{revision}"
    with _errors(name, EncoderError, "the encoder cannot be opened", _DOWNLOAD):
        folder = Path(
            snapshot_download(repository, revision=revision, token=token, allow_patterns=READ, ignore_patterns=NOT_READ)
        )
    if not any(folder.glob("*.safetensors")):
        raise EncoderError(
            f"{name}: there are no weights in safetensors for it on the hub, and nearfar never reads pickled ones; "
            "convert the checkpoint first and give its folder, or choose another encoder."
        )
    return folder


def upload(
    repository: str, files: Mapping[str, Path | bytes], commit: Commit, *, replaces: Callable[[str], bool]
) -> str:
    """Upload files in one commit, and create the repository where it does not exist.

    ``replaces`` says by its name whether a file is part of an earlier upload: one that is not uploaded again is deleted
    in the same commit. Returns the address of the commit.
    """
    from huggingface_hub import CommitOperationAdd, CommitOperationDelete, HfApi, get_token

    if commit.token is None and get_token() is None:
        raise OutputError(f"{repository}: uploading needs an access token with write permission. {LOGIN}.")
    api = HfApi(token=commit.token, library_name="nearfar")
    with _errors(repository, OutputError, "the model cannot be uploaded", _UPLOAD):
        repository = api.create_repo(repository, private=commit.private, exist_ok=True).repo_id
        if commit.private and not api.model_info(repository).private:
            raise OutputError(
                f"{repository}: this repository exists and is public, and private=True was asked for, so nothing was "
                "uploaded. Make it private in its settings on the hub, or choose another name."
            )
        if commit.revision is not None:
            api.create_branch(repository, branch=commit.revision, exist_ok=True)
        present = api.list_repo_files(repository, revision=commit.revision)
        stale = [name for name in present if name not in files and replaces(name)]
        operations: list[Any] = [
            CommitOperationAdd(path_in_repo=name, path_or_fileobj=content) for name, content in files.items()
        ]
        operations += [CommitOperationDelete(path_in_repo=name) for name in stale]
        done = api.create_commit(
            repository, operations=operations, commit_message=commit.message, revision=commit.revision
        )
    return str(done.commit_url)


_DOWNLOAD = (
    "If this is meant to be an id on the Hugging Face hub: is it spelled right, and is the hub reachable? "
    "Otherwise give the path of a folder, or 'minilm'."
)
_UPLOAD = "Is the hub reachable? The model is unchanged in its folder."


@contextmanager
def _errors(name: str, kind: type[NearfarError], what: str, otherwise: str) -> Iterator[None]:
    """Turn the errors of the hub's client into one message; a token is in none of them."""
    from huggingface_hub.errors import (
        GatedRepoError,
        HfHubHTTPError,
        HFValidationError,
        LocalEntryNotFoundError,
        OfflineModeIsEnabled,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    try:
        yield
    except NearfarError:
        raise
    except Exception as cause:  # network, spelling, rights: the client has a class for each
        if type(cause) is RuntimeError and isinstance(cause.__cause__, Exception):
            cause = cause.__cause__  # what kept one file from being uploaded
        status = cause.response.status_code if isinstance(cause, HfHubHTTPError) else None
        match cause:
            case LocalEntryNotFoundError():
                why = "there is no such folder, and no such model in the local cache of the hub, which is not reachable"
                raise kind(f"{name}: {why}. {otherwise}") from cause
            case HFValidationError():
                remedy = "A name on the hub is 'name' or 'owner/name', of letters, digits, '-', '_' and '.'."
            case RevisionNotFoundError():
                remedy = "The revision is a branch, a tag or a commit of the repository."
            case GatedRepoError():
                remedy = f"Ask for access on its page on the hub. {LOGIN}."
            case RepositoryNotFoundError():
                remedy = f"{otherwise} A private repository needs a token: {LOGIN[0].lower()}{LOGIN[1:]}."
            case OfflineModeIsEnabled():
                remedy = "Unset HF_HUB_OFFLINE and connect to the network."
            case _ if status in (401, 403):
                remedy = f"The token is not valid for this repository, or has no permission to do this. {LOGIN}."
            case _:
                remedy = otherwise
        raise kind(f"{name}: {what}: {first_line(cause)} {remedy}") from cause


def first_line(error: BaseException) -> str:
    """The first line of an error's text, or its class where it has none."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]
