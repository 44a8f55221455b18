"""Many files to shards, by several processes or a Ray cluster: ``nearfar.embed_files`` and ``predict_files``."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from nearfar.errors import SettingError, did_you_mean

if TYPE_CHECKING:
    from nearfar.shards.manifest import Kind, Manifest
    from nearfar.shards.vectors import VectorFolder

Names = str | os.PathLike[str]


def embed_files(
    model: Names,
    files: Names | Sequence[Names],
    out: Names,
    *,
    workers: int | None = None,
    ray: str | None = None,
    overwrite: bool = False,
    **options: Any,
) -> VectorFolder:
    """Embed the texts of many files into a folder of shards; the same call continues a run that was interrupted.

    In a script with several workers, call it below ``if __name__ == "__main__":``.

    Args:
        model: a model folder, or the name of an encoder.
        files: files, folders or patterns such as ``"data/*.parquet"``, on a disk or as ``s3://`` or ``gs://``.
        out: the folder of the shards.
        workers: processes; None for one for each core.
        ray: the address of a Ray cluster that computes the shards, or ``"auto"``; None for this machine.
        overwrite: start again where the folder has another run.
        **options: ``text``, ``pair``, ``id``, ``encoding``, ``invalid``, ``large``, ``batch_size``, ``precision``,
            ``device``, ``dtype`` (``"fp32"``, ``"fp16"`` or ``"int8"``), ``file_format`` (``"parquet"`` or ``"npy"``),
            ``rows_per_shard``, ``only``, ``threads`` and ``gpus``, as the flags of ``nearfar embed``.

    Returns:
        The folder: ``for vectors in folder`` gives the vectors shard by shard.

    >>> import nearfar, tempfile
    >>> from pathlib import Path
    >>> folder = Path(tempfile.mkdtemp())
    >>> for name in ("a.txt", "b.txt"):
    ...     _ = (folder / name).write_text("an apple\\na saw\\n")
    >>> [vectors.shape for vectors in nearfar.embed_files("toy", folder / "*.txt", folder / "out", workers=1)]
    [(2, 64), (2, 64)]
    """
    from nearfar.shards.vectors import VectorFolder

    _run("embed", model, files, out, (workers, ray), options, overwrite=overwrite)
    return VectorFolder.open(os.fspath(out))


def predict_files(
    model: Names,
    files: Names | Sequence[Names],
    out: Names,
    *,
    workers: int | None = None,
    ray: str | None = None,
    overwrite: bool = False,
    **options: Any,
) -> Manifest:
    """Predict the labels of the texts of many files into a folder of shards: the rows with their predictions.

    Args:
        model: a model folder.
        files: as for ``embed_files``.
        out: the folder of the shards.
        workers: processes; None for one for each core.
        ray: the address of a Ray cluster that computes the shards, or ``"auto"``; None for this machine.
        overwrite: start again where the folder has another run.
        **options: those of ``embed_files`` apart from ``dtype`` and ``id``, with ``file_format`` ``"jsonl"`` or
            ``"parquet"``, and ``task``, ``top``, ``min_probability`` and ``reject``, as the flags of
            ``nearfar predict``.

    Returns:
        The manifest: the files and how many rows they have.

    >>> import nearfar, tempfile
    >>> from pathlib import Path
    >>> folder = Path(tempfile.mkdtemp())
    >>> nearfar.Classifier("toy", epochs=1).fit(["an apple", "a saw"] * 4, ["fruit", "tool"] * 4).save(folder / "model")
    >>> _ = (folder / "a.txt").write_text("an apple\\na saw\\n")
    >>> done = nearfar.predict_files(folder / "model", folder / "a.txt", folder / "out", workers=1)
    >>> [result.rows for result in done.results]
    [2]
    """
    return _run("predict", model, files, out, (workers, ray), options, overwrite=overwrite)


def _run(
    kind: Kind,
    model: Names,
    files: Names | Sequence[Names],
    out: Names,
    where: tuple[int | None, str | None],
    options: dict[str, Any],
    *,
    overwrite: bool,
) -> Manifest:
    from nearfar.shards.executors import executor_for
    from nearfar.shards.run import Options, run_files

    threads, gpus = options.pop("threads", 1), options.pop("gpus", 0)
    known = [each.name for each in fields(Options)]
    for name in options:
        if name not in known:
            listed = ", ".join([*known, "threads", "gpus"])
            raise SettingError(f"there is no option {name!r}; there are: {listed}.{did_you_mean(name, known)}")
    workers, ray = where
    executor = executor_for("local" if ray is None else "ray", workers, ray or "auto", threads, gpus)
    sources = [files] if isinstance(files, str | os.PathLike) else list(files)
    names = [os.fspath(source) for source in sources]
    outcome = run_files(
        kind, os.fspath(model), names, os.fspath(out), Options(**options), executor, overwrite=overwrite
    )
    return outcome.manifest
