"""``nearfar geometry`` and ``nearfar whiten``: what the space of a model looks like, and straightening it."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib.format import open_memmap
from numpy.typing import NDArray
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from nearfar.cli.embed import WINDOW
from nearfar.cli.output import handling, one_standard_input, print_notes
from nearfar.cli.progress import EmbeddingProgress
from nearfar.cli.windows import Survey, Windows
from nearfar.data import Layout, read
from nearfar.encoding import Model, load
from nearfar.encoding.sources import find
from nearfar.errors import DataError, OutputError, Problem, counted
from nearfar.evaluation import embed_table
from nearfar.evaluation.geometry import MEASURES, CosineHistogram
from nearfar.pipeline.evaluate import require_vectors
from nearfar.pipeline.geometry import LAYER_TEXTS, Positives, Space, measure_space, positive_pairs
from nearfar.pipeline.output import check_output, open_output
from nearfar.pipeline.whitened_model import check_method, save_straightened, straightened
from nearfar.seeds import generator

BARS = 20
"""Lines of a histogram on the screen, at most."""
WIDEST = 30
"""The longest bar."""
NAMES = {
    "alignment": ("alignment", "distance² of like texts: lower is nearer"),
    "uniformity": ("uniformity", "lower is more even; 0 is one point"),
    "anisotropy": ("anisotropy", "mean cosine of random pairs; 0 is balanced"),
    "effective_rank": ("effective rank", "how many directions are used"),
}


def geometry_command(
    model_name: str,
    source: str,
    layout: Layout,
    invalid: str | None,
    batch_size: int,
    *,
    pairs: str | None,
    before: str | None,
    layers: bool,
    seed: int,
    as_json: bool,
) -> None:
    """Embed the texts, measure the vectors, and print it; with ``before``, next to those of another model."""
    choice = handling(invalid)
    one_standard_input(source, pairs)
    names = [model_name] if before is None else [before, model_name]
    for name in names:
        find(name)  # before a long file is read, or embedded by the other model
    positives = None if pairs is None else positive_pairs(read(pairs, invalid=choice))
    rows = Windows(source, layout, invalid=choice, size=WINDOW)
    survey = rows.survey()
    notes = [f"{source}: {note}" for note in survey.notes]
    if positives is not None:
        notes.append(f"{pairs}: {positives.words}" + ("" if len(positives) else "; so there is no alignment"))
    sample = _sampled(rows, survey, seed) if layers else None
    spaces = [_space(name, rows, survey, positives, sample, seed, batch_size) for name in names]
    if as_json:
        values: dict[str, Any] = {
            "file": source,
            "pairs": pairs,
            "before": spaces[0].to_dict() if before is not None else None,
            "model": spaces[-1].to_dict(),
        }
        sys.stdout.write(json.dumps(values, ensure_ascii=False, indent=2) + "\n")
    else:
        Console().print(_tables(spaces, source))
    print_notes(notes)


def whiten_command(
    model_name: str,
    source: str,
    out: Path,
    layout: Layout,
    invalid: str | None,
    batch_size: int,
    *,
    method: str,
    dims: int | None,
    remove: int | None,
    overwrite: bool,
) -> None:
    """Fit a map to the texts of the file, and save the model with it."""
    chosen = check_method(method, dims=dims, remove=remove)
    choice = handling(invalid)
    if out.exists() and Path(model_name).expanduser().exists() and out.samefile(Path(model_name).expanduser()):
        raise OutputError(f"{out}: this is the model itself; choose another --out.")
    if not overwrite and out.is_dir() and any(out.iterdir()):
        raise OutputError(f"{out}: the folder is not empty. Replace it with --overwrite, or choose another --out.")
    check_output(out, resume=False, overwrite=overwrite)
    model = load(model_name)
    require_vectors(model)
    records = read(source, layout, invalid=choice, need="text")
    texts = list(dict.fromkeys(text for column in records.texts for text in column))
    if len(texts) < 2:
        raise DataError([_one_text(source, texts[0])])
    with EmbeddingProgress(len(texts)) as progress:
        mapped, notes = straightened(
            model, texts, method=chosen, dims=dims, remove=remove, batch_size=batch_size, watch=progress.reach
        )
    open_output(out, resume=False)
    save_straightened(mapped, out, origin=model_name)
    print_notes([*(f"{source}: {note}" for note in records.notes), *notes])
    old, new = model.model.dim, mapped.model.dim
    width = f"vectors of {old} numbers become {new}" if new != old else f"vectors keep their {old} numbers"
    kind = "whitening" if chosen == "whitening" else "all-but-the-top map"
    sys.stderr.write(f"{width}, by the {kind} of {counted(len(texts), 'text')}; saved to {out}\n")


def _one_text(source: str, text: str) -> Problem:
    return Problem(
        source, "a map is fitted to texts that differ, and there is only one", value=text,
        remedy="Give texts like those that the model is meant for, ten for each direction or more.",
    )  # fmt: skip


def _space(
    name: str,
    rows: Windows,
    survey: Survey,
    positives: Positives | None,
    sample: Sequence[str] | None,
    seed: int,
    batch_size: int,
) -> Space:
    model = load(name)
    require_vectors(model)
    with tempfile.TemporaryDirectory(prefix="nearfar-") as folder:
        vectors = _embedded(model, rows, survey, batch_size, Path(folder) / "vectors.npy")
        return measure_space(
            name, model, vectors, positives=positives, layer_texts=sample, seed=seed, batch_size=batch_size
        )


def _embedded(model: Model, rows: Windows, survey: Survey, batch_size: int, target: Path) -> NDArray[np.float32]:
    """(n, d) vectors of all texts, on the disk: memory holds those of one window."""
    total = survey.rows * len(survey.first.texts)
    vectors: Any = open_memmap(target, mode="w+", dtype=np.float32, shape=(total, model.model.dim))
    done = 0
    with EmbeddingProgress(total) as progress:
        for texts in _texts(rows, survey):
            found = embed_table(model.model, model.tokenize(texts), batch_size=batch_size)
            vectors[done : done + len(texts)] = found
            done += len(texts)
            progress.reach(done)
    vectors.flush()
    return np.load(target, mmap_mode="r")  # type: ignore[no-any-return]


def _texts(rows: Windows, survey: Survey) -> Iterator[list[str]]:
    """The texts of each window; of pairs both, of triplets all three."""
    for window in rows.again(survey):
        yield [text for column in window.texts for text in column]


def _sampled(rows: Windows, survey: Survey, seed: int) -> list[str]:
    """Some of the texts, in their order; all where there are few."""
    total = survey.rows * len(survey.first.texts)
    chosen = generator(seed, "geometry", "layers").choice(total, min(total, LAYER_TEXTS), replace=False)
    wanted = set(chosen.tolist())
    found: list[str] = []
    start = 0
    for texts in _texts(rows, survey):
        found += [text for place, text in enumerate(texts, start) if place in wanted]
        start += len(texts)
    return found


def _tables(spaces: Sequence[Space], source: str) -> RenderableType:
    last = spaces[-1].report
    parts: list[RenderableType] = [
        Text(f"{source}: {counted(last.rows, 'vector')} of {counted(last.dim, 'number')}", style="italic"),
        _measures(spaces),
    ]
    if last.zeros:
        parts.append(Text(f"{counted(last.zeros, 'vector')} of zeros: no direction, and a cosine of 0 with everything"))
    if spaces[-1].layers is not None:
        parts.append(_layers(spaces))
    step = _step([space.report.histogram for space in spaces])
    parts += [part for space in spaces for part in _histogram(space, step, named=len(spaces) > 1)]
    return Group(*parts)


def _columns(table: Table, spaces: Sequence[Space]) -> None:
    titles = ["value"] if len(spaces) == 1 else ["before", "after"]
    for title in titles:
        table.add_column(title, justify="right")
    if len(spaces) > 1:
        table.add_column("change", justify="right")


def _cells(values: Sequence[float | None]) -> list[str]:
    cells = ["-" if value is None else f"{_rounded(value):.4f}" for value in values]
    if len(values) > 1:
        first, last = values[0], values[-1]
        cells.append("-" if first is None or last is None else f"{_rounded(last - first):+.4f}")
    return cells


def _rounded(value: float) -> float:
    """To four digits, and nothing is below nothing.

    >>> _rounded(-0.00001)
    0.0
    """
    return round(value, 4) + 0.0


def _measures(spaces: Sequence[Space]) -> Table:
    table = Table()
    table.add_column("measure")
    _columns(table, spaces)
    table.add_column("")
    for key in MEASURES:
        name, words = NAMES[key]
        error = spaces[-1].report.uniformity_error
        if key == "uniformity" and error:
            words += f"; ± {error:.4f} by sampling"
        table.add_row(name, *_cells([space.report.scores.get(key) for space in spaces]), words)
    return table


def _layers(spaces: Sequence[Space]) -> RenderableType:
    table = Table(title="anisotropy by layer", title_justify="left")
    table.add_column("behind")
    _columns(table, spaces)
    depth = max(len(space.layers or ()) for space in spaces)
    for layer in range(depth):
        values = [(space.layers or ())[layer] if layer < len(space.layers or ()) else None for space in spaces]
        table.add_row("embeddings" if layer == 0 else f"layer {layer}", *_cells(values))
    return table


def _step(histograms: Sequence[CosineHistogram]) -> int:
    """How many bins become one line: few where all cosines are near each other, the same for all models."""
    used = [
        place
        for one in histograms
        for place, counts in enumerate(zip(one.positive, one.random, strict=True))
        if any(counts)
    ]
    return -(-(max(used) + 1 - min(used)) // BARS) if used else 1


def _histogram(space: Space, step: int, *, named: bool) -> list[RenderableType]:
    """Cosines of positives beside those of random pairs, as bars; only where there are any."""
    histogram = space.report.histogram
    kinds = {"like": _merged(histogram.positive, step), "random": _merged(histogram.random, step)}
    kinds = {kind: counts for kind, counts in kinds.items() if sum(counts)}
    if not kinds:
        return []
    used = [place for counts in kinds.values() for place, count in enumerate(counts) if count]
    title = Text(f"cosines{f' of {space.model}' if named else ''}", style="italic")
    table = Table(title=title, title_justify="left")
    table.add_column("from", justify="right")
    for kind, counts in kinds.items():
        table.add_column(f"{kind} pairs ({sum(counts):,})", min_width=WIDEST)
    for place in range(min(used), max(used) + 1):
        bars = [_bar(counts[place], sum(counts), max(counts)) for counts in kinds.values()]
        table.add_row(f"{histogram.edges[place * step]:+.2f}", *bars)
    return [table]


def _merged(counts: Sequence[int], step: int) -> list[int]:
    return [sum(counts[start : start + step]) for start in range(0, len(counts), step)]


def _bar(count: int, total: int, most: int) -> Text:
    """As long as its share of the longest, with its share of all in percent; what is there is never invisible."""
    if not count:
        return Text("")
    length = max(1, round((WIDEST - 6) * count / most))
    return Text(f"{'█' * length} {100 * count / total:.1f}")
