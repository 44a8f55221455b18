"""``nearfar index``: the embeddings of a corpus, saved to be searched."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from nearfar.cli import options
from nearfar.errors import SettingError, counted


def index(
    model: Annotated[
        str,
        typer.Argument(
            help="A model folder, or an encoder by name; or a folder of vectors that 'nearfar embed' has made.",
            metavar="MODEL|VECTORS",
        ),
    ],
    corpus: Annotated[
        str | None,
        typer.Argument(
            help=f"Texts to search among, with a MODEL: {options.DATA_HELP}", metavar="CORPUS", show_default=False
        ),
    ] = None,
    *,
    out: Annotated[Path, typer.Option("--out", help="Folder for the index.")],
    text: options.Text = None,
    encoding: options.Encoding = None,
    invalid: options.Invalid = None,
    large: options.Large = False,
    batch_size: options.BatchSize = 64,
    device: options.Device = None,
    precision: options.Precision = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the index in --out.")] = False,
    kind: Annotated[
        str, typer.Option("--kind", metavar="auto|flat|hnsw|ivf|ivf-sq8|ivf-pq", help="Of an index of VECTORS.")
    ] = "auto",
    recall: Annotated[
        float, typer.Option("--recall", help="Share of the nearest ten that a search of VECTORS should find.")
    ] = 0.95,
    lists: Annotated[
        int | None, typer.Option("--lists", min=1, help="Cells of an IVF index of VECTORS; unset: by their number.")
    ] = None,
    rows_per_part: Annotated[int, typer.Option("--rows-per-part", min=1, help="Vectors of a file of the index.")] = (
        1_000_000
    ),
    seed: options.Seed = 0,
    on: options.On = "local",
    address: options.Address = "auto",
    workers: options.Workers = None,
    threads: options.Threads = 1,
) -> None:
    """Compute the embeddings of a corpus and save them as a folder that 'nearfar search' reads.

    Of VECTORS, a folder that 'nearfar embed --out FOLDER/' has made, an index of faiss is built: exact (flat) where
    there are few, else with inverted lists (IVF); its recall is measured. The same command continues an
    interrupted run. The index belongs to its model: 'nearfar search' refuses it with another one.
    """
    if corpus is None:
        _index_vectors(
            (model, out), (kind, recall, lists, rows_per_part, seed), (on, workers, address, threads, 0.0),
            overwrite=overwrite,
        )  # fmt: skip
        return
    from nearfar.cli.options import handling, print_notes
    from nearfar.cli.search import open_searchable
    from nearfar.evaluation.index import SearchIndex, check_folder, is_index

    options.use_device(device)
    options.use_precision(precision)
    choice = handling(invalid)
    check_folder(out, overwrite=overwrite)
    if is_index(Path(corpus)):
        raise SettingError(f"{corpus} is an index already; name the file of the texts.")
    opened = open_searchable(model, corpus, text, encoding, batch_size, invalid=choice, large=large, advise=False)
    assert isinstance(opened.index, SearchIndex)
    opened.index.save(out, overwrite=overwrite)
    print_notes(opened.notes)
    sys.stderr.write(
        f"{counted(len(opened.index), 'document')} in {out}; try: nearfar search {model} {out} 'words to search for'\n"
    )


def _index_vectors(
    paths: tuple[str, Path],
    settings: tuple[str, float, int | None, int, int],
    where: tuple[str, int | None, str, int, float],
    *,
    overwrite: bool,
) -> None:
    """Build an index over a folder of vectors, and print its recall."""
    from nearfar.shards.executors import executor_for
    from nearfar.shards.index_build import Settings, build_index

    vectors, out = paths
    plan = Settings(*settings)  # type: ignore[arg-type]  # the kind is checked there
    done = build_index(vectors, out, plan, executor_for(*where), overwrite=overwrite)
    parts = counted(len(done.parts), "part")
    lists = f", {done.probes} of {counted(done.lists, 'list')} are searched" if done.lists else ""
    lists = f", {counted(done.probes, 'candidate')} of a query" if done.kind == "hnsw" else lists
    sys.stderr.write(f"{counted(done.documents, 'vector')} in {out}: {done.kind}, {parts}{lists}\n")
    sys.stderr.write(f"recall of the nearest 10 against exact search: {done.recall:.3f}\n")
    sys.stderr.write(f"try: nearfar search MODEL {out} 'words to search for'\n")
