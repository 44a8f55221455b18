"""``nearfar push``: a model folder to the Hugging Face Hub."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from nearfar.errors import EncoderError


def push(
    model: Annotated[Path, typer.Argument(help="A model folder.", metavar="MODEL")],
    repository: Annotated[str, typer.Argument(help="The name on the hub: name or owner/name.", metavar="REPOSITORY")],
    private: Annotated[
        bool, typer.Option("--private", help="Create a private repository; an existing public one is refused.")
    ] = False,
    revision: Annotated[str | None, typer.Option(help="The branch, created if it does not exist; unset: main.")] = None,
    message: Annotated[str, typer.Option(help="The commit message.")] = "Upload a model of nearfar",
) -> None:
    """Upload a model to the Hugging Face Hub: weights, tokenizer, model card, recipe and scores, in one commit.

    The access token is that of 'hf auth login' or of the variable HF_TOKEN.
    """
    from nearfar.encoding.hub import Commit
    from nearfar.encoding.model_files import publish

    if not model.is_dir():
        raise EncoderError(f"{model}: there is no such folder; give the folder that training saved to.")
    commit = Commit(message=message, private=private or None, revision=revision)
    typer.echo(publish(model, repository, commit))
