"""``nearfar mine``: hard negatives, as triplets or as labeled pairs."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Sequence
from typing import IO, TYPE_CHECKING, Annotated

import typer

from nearfar.cli import options
from nearfar.errors import DataError, Problem, SettingError, counted, did_you_mean

if TYPE_CHECKING:
    from nearfar.pipeline.mined import Mined
    from nearfar.pipeline.mining import Mining

FORMS = ("triplets", "pairs")
POWERS = "powers"


def mine(
    model: options.Model,
    source: options.Data,
    out: Annotated[str, typer.Option("--out", help="A .jsonl file, or - for standard output.")],
    corpus: Annotated[
        str | None,
        typer.Option("--corpus", metavar="FILE", help="Where negatives come from; unset: the right texts of FILE."),
    ] = None,
    form: Annotated[
        str, typer.Option("--as", metavar="triplets|pairs", help="Rows to write: triplets, or pairs with label 1 or 0.")
    ] = "triplets",
    positions: Annotated[
        str,
        typer.Option(
            metavar="A-B|powers",
            help="Ranks that negatives are drawn from, 1 being the nearest text; powers: the ranks 100 + 2^j.",
        ),
    ] = "10-50",
    per_anchor: Annotated[
        int | None, typer.Option(min=1, help="Negatives of an anchor; unset: 5 of a window, all of the powers.")
    ] = None,
    margin: Annotated[
        float | None, typer.Option(help="How far below those of all positives a negative's cosine must be.")
    ] = None,
    max_score: Annotated[float | None, typer.Option(help="Highest cosine of a negative with its anchor.")] = None,
    oversample: Annotated[
        bool, typer.Option("--oversample", help="Repeat positive pairs until there are as many as negative ones.")
    ] = False,
    memory: Annotated[
        float,
        typer.Option(
            metavar="GB", help="Memory for vectors; if they need more, they go to disk, and search is approximate."
        ),
    ] = 4.0,
    seed: options.Seed = 2,
    text: options.Text = None,
    pair: options.Pair = None,
    label: options.Label = None,
    score: options.Score = None,
    corpus_text: options.CorpusText = None,
    encoding: options.Encoding = None,
    invalid: options.Invalid = None,
    large: options.Large = False,
    batch_size: options.BatchSize = 64,
    device: options.Device = None,
    precision: options.Precision = None,
    overwrite: options.Overwrite = False,
    shards: Annotated[
        str | None,
        typer.Option(
            metavar="FOLDER",
            help="Keep the vectors in shards here, computed by --workers or --on ray; the same command continues.",
        ),
    ] = None,
    rows_per_shard: options.RowsPerShard = 65_536,
    on: options.On = "local",
    address: options.Address = "auto",
    workers: options.Workers = None,
    threads: options.Threads = 1,
    gpus_per_worker: options.Gpus = 0,
) -> None:
    """Mine hard negatives for positive pairs: texts that are near an anchor and not known to be its positives.

    With --shards FOLDER the texts are embedded by one process for each core, or by a Ray cluster; an interrupted
    command continues with the vectors that are there.
    """
    from nearfar.cli.options import check_target, handling, one_standard_input, print_notes, write_target
    from nearfar.cli.progress import search_progress
    from nearfar.cli.search import embed_texts
    from nearfar.cli.shards import vectors_in_shards
    from nearfar.data import Layout, read
    from nearfar.data.corpora import read_corpus
    from nearfar.encoding import load
    from nearfar.pipeline import mining
    from nearfar.pipeline.evaluate import require_vectors

    options.use_device(device)
    options.use_precision(precision)
    settings = mining.Mining(
        window=parse_positions(positions), per_anchor=per_anchor, margin=margin, max_score=max_score, seed=seed,
        memory=memory,
    )  # fmt: skip
    choice = handling(invalid)
    if form not in FORMS:
        raise SettingError(f"--as is {' or '.join(FORMS)}, got {form!r}.{did_you_mean(form, FORMS)}")
    if oversample and form != "pairs":
        raise SettingError("--oversample repeats positive pairs, and triplets have one each; use it with --as pairs.")
    if corpus_text is not None and corpus is None:
        raise SettingError("--corpus-text names a column of the file in --corpus; give --corpus, too.")
    if shards is None and (on != "local" or workers is not None):
        raise SettingError("--on and --workers compute shards of vectors; name a folder for them: --shards FOLDER.")
    one_standard_input(source, corpus)
    check_target(out, overwrite=overwrite)
    loaded = options.prepared(load(model))
    require_vectors(loaded)
    layout = Layout(text=text, pair=pair, label=label, score=score, encoding=encoding, large=large, disk="auto")
    records = read(source, layout, invalid=choice)
    notes = [f"{source}: {note}" for note in records.notes]
    documents: Sequence[str] | None = None
    if corpus is not None:
        searched = read_corpus(corpus, text=corpus_text, invalid=choice, large=large, disk="auto")
        documents = searched.texts
        notes += [f"{corpus}: {note}" for note in searched.notes]
    embed_all = None
    if shards is not None:
        values = {"batch_size": batch_size, "device": device, "precision": precision, "rows_per_shard": rows_per_shard}
        embed_all = vectors_in_shards(model, shards, values, (on, workers, address, threads, gpus_per_worker))
    with search_progress() as progress:
        mined = mining.mine(
            records, lambda texts: embed_texts(loaded, texts, batch_size), settings, corpus=documents,
            progress=progress, embed_all=embed_all,
        )  # fmt: skip
    if not mined.count:
        raise DataError(_no_negatives(corpus or source, mined, settings))
    written = 0

    def write(file: IO[bytes]) -> None:
        nonlocal written
        for row in _rows(mined, form, oversample=oversample):
            file.write((json.dumps(row, ensure_ascii=False) + "\n").encode(errors="backslashreplace"))
            written += 1

    write_target(out, write)
    print_notes([*notes, *_remarks(mined, settings)])
    target = "" if out == "-" else f" in {out}"
    sys.stderr.write(
        f"{counted(mined.count, 'negative')} for {counted(len(mined.positives), 'anchor')} out of "
        f"{counted(mined.documents, 'document')}: {counted(written, form.removesuffix('s'))}{target}\n"
    )


def _rows(mined: Mined, form: str, *, oversample: bool) -> Iterator[dict[str, str | int]]:
    if form == "triplets":
        for anchor, positive, negative in mined.triplets():
            yield {"anchor": anchor, "positive": positive, "negative": negative}
    else:
        for one, other, label in mined.pairs(oversample=oversample):
            yield {"text_a": one, "text_b": other, "label": label}


def parse_positions(text: str) -> tuple[int, int] | None:
    """A window such as ``10-50``, one rank such as ``7``, or None for ``powers``.

    >>> parse_positions("10-50"), parse_positions("7"), parse_positions("powers")
    ((10, 50), (7, 7), None)
    """
    if text == POWERS:
        return None
    match = re.fullmatch(r"([0-9]{1,12})(?:-([0-9]{1,12}))?", text.strip())
    first, last = (int(match[1]), int(match[2] or match[1])) if match else (0, 0)
    if not 1 <= first <= last:
        raise SettingError(
            f"--positions is a window of ranks from 1 on, such as 10-50, or {POWERS}; got {text!r}."
            f"{did_you_mean(text, [POWERS])}"
        )
    return first, last


def _remarks(mined: Mined, settings: Mining) -> list[str]:
    """What was skipped, one line each."""
    counts = mined.counts
    bare, fewer = int((counts == 0).sum()), int(((counts > 0) & (counts < (settings.per_anchor or 0))).sum())
    remarks = (
        (mined.known, "document", "skipped: the anchor itself, or a known positive of it"),
        (mined.too_near, "document", "excluded by --margin"),
        (mined.too_high, "document", "excluded by --max-score"),
        (mined.beyond, "position", "skipped: the corpus ends before"),
        (mined.without_positive, "left text", "without a positive, so no anchor"),
        (bare, "anchor", "without any negative"),
        (fewer, "anchor", f"with fewer negatives than --per-anchor {settings.per_anchor}"),
    )
    search = []
    if mined.recall is not None:
        mean = f", mean cosine of negatives with their anchors {mined.similarity or 0:.2f}"
        search = [f"approximate search in vectors on disk: recall {mined.recall:.2f}{mean}"]
    return [*search, *(f"{counted(number, thing)} {remark}" for number, thing, remark in remarks if number)]


def _no_negatives(source: str, mined: Mined, settings: Mining) -> Problem:
    """Why no negative is left."""
    first = 101 if settings.window is None else settings.window[0]
    documents = counted(mined.documents, "document")
    message = f"{documents}, and the positions begin at {first:,}"
    remedy = "Give a larger --corpus, or earlier --positions, such as 1-10."
    if mined.too_near or mined.too_high:
        message, remedy = "no document passes --margin and --max-score", "Loosen them, or take later --positions."
    elif mined.allowed < min(first, mined.documents):
        message = (
            f"of {documents} at most {mined.allowed:,} are not known positives of an anchor, directly or through other "
            f"positive pairs, and the positions begin at {first:,}"
        )
        if not mined.allowed:
            remedy = "Give a larger --corpus; every text here is connected to every other by positive pairs."
    return Problem(source, f"no negatives can be found: {message}", remedy)
