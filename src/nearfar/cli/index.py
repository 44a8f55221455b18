"""``nearfar index``: the embeddings of a corpus, saved to be searched."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from nearfar.cli import options
from nearfar.errors import SettingError, counted


def index(
    model: options.Model,
    corpus: Annotated[str, typer.Argument(help=f"Texts to search among: {options.DATA_HELP}", metavar="CORPUS")],
    out: Annotated[Path, typer.Option("--out", help="Folder for the index.")],
    text: options.Text = None,
    encoding: options.Encoding = None,
    invalid: options.Invalid = None,
    large: options.Large = False,
    batch_size: options.BatchSize = 64,
    device: options.Device = None,
    precision: options.Precision = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the index in --out.")] = False,
) -> None:
    """Compute the embeddings of a corpus and save them as a folder that 'nearfar search' reads.

    The index belongs to its model: 'nearfar search' refuses it with another one.
    """
    from nearfar.cli.options import handling, print_notes
    from nearfar.cli.search import open_searchable
    from nearfar.evaluation.index import check_folder, is_index

    options.use_device(device)
    options.use_precision(precision)
    choice = handling(invalid)
    check_folder(out, overwrite=overwrite)
    if is_index(Path(corpus)):
        raise SettingError(f"{corpus} is an index already; name the file of the texts.")
    opened = open_searchable(model, corpus, text, encoding, batch_size, invalid=choice, large=large, advise=False)
    opened.index.save(out, overwrite=overwrite)
    print_notes(opened.notes)
    sys.stderr.write(
        f"{counted(len(opened.index), 'document')} in {out}; try: nearfar search {model} {out} 'words to search for'\n"
    )
