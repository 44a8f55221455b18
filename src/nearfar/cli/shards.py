"""What ``embed`` and ``predict`` do with many files: shards in a folder, with progress on standard error."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nearfar.errors import OutputError, counted

if TYPE_CHECKING:
    from nearfar.shards.manifest import Kind
    from nearfar.shards.run import Options


def is_sharded(source: str, out: str) -> bool:
    """Whether a command is about many files or shards; refuses many files without a folder for them."""
    from nearfar.files import is_remote
    from nearfar.shards.storage import is_pattern

    if out.endswith("/") or is_remote(out):
        return True
    if is_remote(source) or (is_pattern(source) and " " not in source and not Path(source).exists()):
        raise OutputError(
            f"{source}: many files give many shards; name a folder for them that ends in /: --out FOLDER/."
        )
    return False


def run_sharded(
    what: tuple[Kind, str, str, str],
    values: Mapping[str, Any],
    where: tuple[str, int | None, str, int, float],
    *,
    overwrite: bool,
) -> None:
    """Compute the shards of some files.

    Args:
        what: the kind, the model, the source and the folder.
        values: the options of the run.
        where: ``--on``, ``--workers``, ``--address``, ``--threads`` and ``--gpus-per-worker``.
        overwrite: start again where there is another run.
    """
    from nearfar.shards.executors import executor_for
    from nearfar.shards.manifest import summary
    from nearfar.shards.run import Options, run_files

    kind, model, source, out = what
    options = _remembered(model, source, Options(**values))
    with _reporting() as report:
        outcome = run_files(
            kind, model, [source], out, options, executor_for(*where), overwrite=overwrite, report=report
        )
    if not outcome.computed:
        sys.stderr.write(f"{out}: all shards are there; nothing was computed\n")
    more = f", vectors of {outcome.manifest.settings['dim']} numbers" if kind == "embed" else ""
    sys.stderr.write(f"{summary(outcome.manifest.results)} of {out}{more}\n")
    if kind == "embed":
        sys.stderr.write(f"to search them: nearfar index {out} --out INDEX\n")


def vectors_in_shards(
    model: str, folder: str, values: Mapping[str, Any], where: tuple[str, int | None, str, int, float]
) -> Callable[[Sequence[str]], Iterable[Any]]:
    """What embeds texts in shards of a folder, as :func:`run_sharded` does with files; gives their vectors."""
    from nearfar.shards.executors import executor_for
    from nearfar.shards.run import Options
    from nearfar.shards.text_vectors import shard_vectors

    options = Options(text="text", large=True, only=True, **values)

    def embed(texts: Sequence[str]) -> Iterable[Any]:
        with _reporting() as report:
            return shard_vectors(model, texts, folder, options, executor_for(*where), report)

    return embed


@contextmanager
def _reporting() -> Iterator[Callable[[int, int], None]]:
    """Show how many rows are done, and first how many were."""
    from nearfar.cli.progress import EmbeddingProgress

    progress: list[EmbeddingProgress] = []

    def report(done: int, total: int) -> None:
        if progress:
            progress[0].reach(done)
            return
        if done:
            sys.stderr.write(f"continuing: {done:,} of {counted(total, 'row')} are done\n")
        progress.append(EmbeddingProgress(total, done).__enter__())

    try:
        yield report
    finally:
        for bar in progress:
            bar.__exit__(None, None, None)


def _remembered(model: str, source: str, options: Options) -> Options:
    """The options with the columns that the model was trained on, where none are named and the files have them."""
    from nearfar.cli.columns import remembered
    from nearfar.shards.inputs import columns_of_file, known_format
    from nearfar.shards.storage import expand

    first = expand([source])[0].name
    known_format(first)
    layout = remembered(model, first, options.layout, task=options.task, columns=columns_of_file(first, options.layout))
    return replace(options, text=layout.text, pair=layout.pair)
