"""``nearfar geometry``: the embedding geometry of a model, beside that of another one."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from nearfar.cli import options
from nearfar.errors import counted
from nearfar.evaluation.geometry import MEASURES, CosineHistogram
from nearfar.pipeline.geometry import Space

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from nearfar.cli.windows import Survey, Windows
    from nearfar.encoding import Model


BARS = 20
"""Most lines of a histogram."""
WIDEST = 30
"""The longest bar."""
MEANINGS = {
    "alignment": "squared distance of positive pairs: lower is closer",
    "uniformity": "lower is more even; 0 is one point",
    "anisotropy": "mean cosine of random pairs; 0 is isotropic",
    "effective_rank": "how many directions are used",
}


def geometry_tables(spaces: Sequence[Space], source: str) -> RenderableType:
    """All tables for one model, or for two side by side."""
    last = spaces[-1].report
    about = f"{source}: {counted(last.rows, 'vector')} of {counted(last.dim, 'number')}"
    parts: list[RenderableType] = [Text(about, style="italic"), _measures(spaces)]
    if last.zeros:
        parts.append(Text(f"{counted(last.zeros, 'vector')} of zeros: no direction, and a cosine of 0 with everything"))
    if spaces[-1].layers is not None:
        parts.append(_layers(spaces))
    step = bins_per_line([space.report.histogram for space in spaces])
    histograms = [_histogram(space, step, named=len(spaces) > 1) for space in spaces]
    return Group(*parts, *(table for table in histograms if table is not None))


def _table(spaces: Sequence[Space], first: str, title: str | None = None) -> Table:
    table = Table(title=title, title_justify="left")
    table.add_column(first)
    for name in ["value"] if len(spaces) == 1 else ["before", "after", "change"]:
        table.add_column(name, justify="right")
    return table


def _cells(values: Sequence[float | None]) -> list[str]:
    cells = ["-" if value is None else f"{_rounded(value):.4f}" for value in values]
    if len(values) > 1:
        first, last = values[0], values[-1]
        cells.append("-" if first is None or last is None else f"{_rounded(last - first):+.4f}")
    return cells


def _rounded(value: float) -> float:
    """To four digits, without a negative zero.

    >>> _rounded(-0.00001)
    0.0
    """
    return round(value, 4) + 0.0


def _measures(spaces: Sequence[Space]) -> Table:
    table = _table(spaces, "measure")
    table.add_column("")
    for measure in MEASURES:
        meaning = MEANINGS[measure]
        error = spaces[-1].report.uniformity_error
        if measure == "uniformity" and error:
            meaning += f"; ± {error:.4f} by sampling"
        values = [space.report.scores.get(measure) for space in spaces]
        table.add_row(measure.replace("_", " "), *_cells(values), meaning)
    return table


def _layers(spaces: Sequence[Space]) -> Table:
    table = _table(spaces, "after", "anisotropy by layer")
    every = [space.layers or () for space in spaces]
    for layer in range(max(map(len, every))):
        values = [layers[layer] if layer < len(layers) else None for layers in every]
        table.add_row("embeddings" if layer == 0 else f"layer {layer}", *_cells(values))
    return table


def bins_per_line(histograms: Sequence[CosineHistogram]) -> int:
    """How many bins become one line: few where all cosines are close to each other, the same for all models."""
    counts = [zip(one.positive, one.random, strict=True) for one in histograms]
    used = [index for bins in counts for index, both in enumerate(bins) if any(both)]
    return -(-(max(used) + 1 - min(used)) // BARS) if used else 1


def _histogram(space: Space, step: int, *, named: bool) -> Table | None:
    """Cosines of positive pairs beside those of random pairs, as bars; None without any."""
    histogram = space.report.histogram
    kinds = {
        kind: [sum(counts[start : start + step]) for start in range(0, len(counts), step)]
        for kind, counts in (("positive", histogram.positive), ("random", histogram.random))
        if sum(counts)
    }
    if not kinds:
        return None
    used = [index for counts in kinds.values() for index, count in enumerate(counts) if count]
    title = Text(f"cosines{f' of {space.model}' if named else ''}", style="italic")
    table = Table(title=title, title_justify="left")
    table.add_column("from", justify="right")
    for kind, counts in kinds.items():
        table.add_column(f"{kind} pairs ({sum(counts):,})", min_width=WIDEST)
    for index in range(min(used), max(used) + 1):
        bars = [_bar(counts[index], sum(counts), max(counts)) for counts in kinds.values()]
        table.add_row(f"{histogram.edges[index * step]:+.2f}", *bars)
    return table


def _bar(count: int, total: int, most: int) -> Text:
    """A bar relative to the longest, with its percentage of all; never empty where there is something."""
    if not count:
        return Text("")
    length = max(1, round((WIDEST - 6) * count / most))
    return Text(f"{'█' * length} {100 * count / total:.1f}")


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
    batch_size: options.BatchSize = 64,
    json_: options.Json = False,
) -> None:
    """Measure the embedding space of a model: alignment, uniformity, anisotropy, effective rank, cosines, layers."""
    from rich.console import Console

    from nearfar.cli.embed import WINDOW
    from nearfar.cli.options import handling, one_standard_input, print_notes
    from nearfar.cli.windows import Windows
    from nearfar.data import Layout, read
    from nearfar.encoding import load
    from nearfar.encoding.pretrained import find
    from nearfar.pipeline.evaluate import require_vectors
    from nearfar.pipeline.geometry import measure_space, positive_pairs

    choice = handling(invalid)
    one_standard_input(source, pairs)
    names = [model] if before is None else [before, model]
    for name in names:
        find(name)  # before a long file is read, or embedded by the other model
    positives = None if pairs is None else positive_pairs(read(pairs, invalid=choice))
    rows = Windows(source, Layout(text=text, pair=pair), invalid=choice, size=WINDOW)
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
        Console().print(geometry_tables(spaces, source))
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
