"""``nearfar whiten``: fit a linear map to the embeddings of a model, and store the model with it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from nearfar.cli import options
from nearfar.errors import DataError, OutputError, Problem, counted


def whiten(
    model: options.Model,
    source: options.Data,
    out: Annotated[Path, typer.Option("--out", help="Folder for the model with the map.")],
    method: Annotated[
        str, typer.Option(metavar="whitening|all-but-the-top", help="The linear map to fit.")
    ] = "whitening",
    dims: Annotated[
        int | None, typer.Option(min=1, help="Principal components that a whitening keeps; unset: all.")
    ] = None,
    remove: Annotated[
        int | None,
        typer.Option(min=0, help="Principal components that all-but-the-top removes; unset: a hundredth of them."),
    ] = None,
    text: options.Text = None,
    pair: options.Pair = None,
    encoding: options.Encoding = None,
    invalid: options.Invalid = None,
    large: options.Large = False,
    batch_size: options.BatchSize = 64,
    device: options.Device = None,
    overwrite: options.Overwrite = False,
) -> None:
    """Whiten the embeddings of a model without training: fit a linear map to texts and store it after the pooling."""
    from nearfar.cli.options import handling, print_notes
    from nearfar.cli.progress import EmbeddingProgress
    from nearfar.data import Layout, read
    from nearfar.encoding import load
    from nearfar.pipeline import whitened_model
    from nearfar.pipeline.evaluate import require_vectors
    from nearfar.pipeline.output import check_output, open_output

    options.use_device(device)
    chosen = whitened_model.check_method(method, dims=dims, remove=remove)
    choice = handling(invalid)
    if out.exists() and Path(model).expanduser().exists() and out.samefile(Path(model).expanduser()):
        raise OutputError(f"{out}: this is the model itself; choose another --out.")
    if not overwrite and out.is_dir() and any(out.iterdir()):
        raise OutputError(f"{out}: the folder is not empty. Replace it with --overwrite, or choose another --out.")
    check_output(out, resume=False, overwrite=overwrite)
    loaded = load(model)
    require_vectors(loaded)
    records = read(source, Layout(text=text, pair=pair, encoding=encoding, large=large), invalid=choice, need="text")
    texts = list(dict.fromkeys(text for column in records.texts for text in column))
    if len(texts) < 2:
        message = "a map is fitted to different texts, and there is only one"
        remedy = "Give texts like those that the model will encode, ten or more for each direction."
        raise DataError(Problem(source, message, remedy, value=texts[0]))
    with EmbeddingProgress(len(texts)) as progress:
        mapped, notes = whitened_model.whiten(
            loaded, texts, method=chosen, dims=dims, remove=remove, batch_size=batch_size, progress=progress.reach
        )
    open_output(out, resume=False)
    whitened_model.save_whitened(mapped, out, origin=model)
    print_notes([*(f"{source}: {note}" for note in records.notes), *notes])
    old, new = loaded.model.dim, mapped.model.dim
    width = f"vectors of {old} numbers become {new}" if new != old else f"vectors keep their {old} numbers"
    kind = "whitening" if chosen == "whitening" else "all-but-the-top map"
    sys.stderr.write(f"{width}, by the {kind} of {counted(len(texts), 'text')}; saved to {out}\n")
