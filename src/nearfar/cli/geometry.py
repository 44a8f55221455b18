"""``nearfar geometry``: the embedding geometry of a model, beside that of another one."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nearfar.cli import options

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from nearfar.cli.windows import Survey, Windows
    from nearfar.encoding import Model


def geometry(
    model: options.Model,
    source: options.Data,
    pairs: Annotated[
        str | None, typer.Option(metavar="FILE", help="Pairs whose positives give the alignment, such as STS.")
    ] = None,
    before: Annotated[
        str | None, typer.Option(metavar="MODEL", help="Another model to compare with, such as the pretrained one.")
    ] = None,
    layers: Annotated[bool, typer.Option("--layers", help="Measure every layer of the encoder, too.")] = False,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the random pairs, where not all are compared.")] = 0,
    text: Annotated[str | None, typer.Option("--text", help="Column with the text.")] = None,
    pair: options.Pair = None,
    invalid: options.Invalid = None,
    large: options.Large = False,
    batch_size: options.BatchSize = 64,
    device: options.Device = None,
    json_: options.Json = False,
) -> None:
    """Measure the embedding space of a model: alignment, uniformity, anisotropy, effective rank, cosines, layers."""
    from nearfar.cli.embed import WINDOW
    from nearfar.cli.geometry_tables import geometry_tables
    from nearfar.cli.options import handling, one_standard_input, open_console, print_notes
    from nearfar.cli.windows import Windows
    from nearfar.data import Layout, read
    from nearfar.encoding import load
    from nearfar.encoding.pretrained import find
    from nearfar.pipeline.evaluate import require_vectors
    from nearfar.pipeline.geometry import measure_space, positive_pairs

    options.use_device(device)
    choice = handling(invalid)
    one_standard_input(source, pairs)
    names = [model] if before is None else [before, model]
    for name in names:
        find(name)  # before a long file is read, or embedded by the other model
    positives = None if pairs is None else positive_pairs(read(pairs, Layout(large=large), invalid=choice))
    rows = Windows(source, Layout(text=text, pair=pair, large=large), invalid=choice, size=WINDOW)
    survey = rows.survey()
    notes = [f"{source}: {note}" for note in survey.notes]
    if positives is not None:
        notes.append(f"{pairs}: {positives.description}" + ("" if len(positives) else "; so there is no alignment"))
    sample = _sample(rows, survey, seed) if layers else None
    spaces = []
    for name in names:
        loaded = load(name)
        require_vectors(loaded)
        with tempfile.TemporaryDirectory(prefix="nearfar-") as folder:
            vectors = _embed(loaded, rows, survey, batch_size, Path(folder) / "vectors.npy")
            space = measure_space(
                name, loaded, vectors, positives=positives, layer_texts=sample, seed=seed, batch_size=batch_size
            )
            spaces.append(space)
    if json_:
        first = spaces[0].to_dict() if before is not None else None
        values = {"file": source, "pairs": pairs, "before": first, "model": spaces[-1].to_dict()}
        sys.stdout.write(json.dumps(values, ensure_ascii=False, indent=2) + "\n")
    else:
        open_console().print(geometry_tables(spaces, source))
    print_notes(notes)


def _embed(model: Model, rows: Windows, survey: Survey, batch_size: int, target: Path) -> NDArray[np.float32]:
    """(n, d) vectors of all texts in a memory-mapped file; memory holds those of one window."""
    import numpy as np
    from numpy.lib.format import open_memmap

    from nearfar.cli.progress import EmbeddingProgress
    from nearfar.evaluation import embed_table

    total = survey.rows * len(survey.first.texts)
    vectors: Any = open_memmap(target, mode="w+", dtype=np.float32, shape=(total, model.model.dim))
    done = 0
    with EmbeddingProgress(total) as progress:
        for texts in _texts(rows, survey):
            vectors[done : done + len(texts)] = embed_table(model.model, model.tokenize(texts), batch_size=batch_size)
            done += len(texts)
            progress.reach(done)
    vectors.flush()
    return np.load(target, mmap_mode="r")  # type: ignore[no-any-return]


def _texts(rows: Windows, survey: Survey) -> Iterator[list[str]]:
    """The texts of each window; of pairs both, of triplets all three."""
    for window in rows.again(survey):
        yield [text for column in window.texts for text in column]


def _sample(rows: Windows, survey: Survey, seed: int) -> list[str]:
    """A random sample of the texts, in their order; all where there are few."""
    from nearfar.pipeline.geometry import LAYER_TEXTS
    from nearfar.seeds import generator

    total = survey.rows * len(survey.first.texts)
    chosen = set(generator(seed, "geometry", "layers").choice(total, min(total, LAYER_TEXTS), replace=False).tolist())
    every = (text for texts in _texts(rows, survey) for text in texts)
    return [text for index, text in enumerate(every) if index in chosen]
