"""``nearfar extend``: more classes, or more texts, for a trained classifier, in seconds."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from nearfar.cli import options
from nearfar.errors import OutputError, counted


def extend(
    model: options.Model,
    source: options.Data,
    out: Annotated[Path, typer.Option("--out", help="Folder for the extended model; the old one is not changed.")],
    text: options.Text = None,
    pair: options.Pair = None,
    label: options.Label = None,
    encoding: options.Encoding = None,
    invalid: options.Invalid = None,
    large: options.Large = False,
    batch_size: options.BatchSize = 64,
    overwrite: options.Overwrite = False,
) -> None:
    """Add classes, or texts of known classes, to a trained classifier without training it again.

    The file has the new texts alone. The encoder stays as it is; the class head is brought up to date from the class
    centers in the model, or from the vectors of its training texts if it was trained with --keep-vectors.
    """
    from nearfar.cli.columns import remembered
    from nearfar.cli.options import handling, print_notes
    from nearfar.data import Layout, read
    from nearfar.encoding import load
    from nearfar.encoding.predictor import predictor_of
    from nearfar.pipeline import extension
    from nearfar.pipeline.output import check_output, open_output

    choice = handling(invalid)
    folder = Path(model).expanduser()
    if out.exists() and folder.exists() and out.samefile(folder):
        raise OutputError(f"{out}: this is the model itself, which is never changed; choose another --out.")
    if not overwrite and out.is_dir() and any(out.iterdir()):
        raise OutputError(f"{out}: the folder is not empty. Replace it with --overwrite, or choose another --out.")
    check_output(out, resume=False, overwrite=overwrite, reads=[source, model])
    loaded = load(model)
    layout = remembered(model, source, Layout(text=text, pair=pair, label=label, encoding=encoding, large=large))
    records = read(source, layout, invalid=choice)
    predictor_of(loaded).check(records)
    extended = extension.extend(loaded, records, batch_size=batch_size)
    open_output(out, resume=False)
    extension.save_extension(extended, out, origin=model)
    print_notes([*(f"{source}: {note}" for note in records.notes), *extended.notes])
    labels, known = extended.model.labels or (), len(loaded.labels or ())
    added = f"{counted(len(extended.added), 'new class', 'new classes')} beside {known}" if extended.added else ""
    what = added or f"no new class, {counted(len(labels), 'class', 'classes')} as before"
    sys.stderr.write(f"{counted(extended.texts, 'text')}, {what}; saved to {out}; try: nearfar predict {out} FILE\n")
