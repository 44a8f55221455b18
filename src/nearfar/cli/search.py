"""``nearfar search``: the texts of a corpus that are nearest to each query."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console

from nearfar.cli.embed import WINDOW, Bar, Lines
from nearfar.cli.predict import check_target, handling, one_standard_input, say_notes, write_target
from nearfar.encoding import Model, load
from nearfar.errors import counted
from nearfar.evaluation import embed_table, top_documents
from nearfar.pipeline.corpora import read_corpus, read_queries
from nearfar.pipeline.evaluate import require_vectors
from nearfar.pipeline.rows import distinct


def search_command(
    model_name: str,
    corpus_source: str,
    query_source: str,
    out: str,
    invalid: str | None,
    batch_size: int,
    *,
    top: int,
    text: str | None,
    corpus_text: str | None,
    overwrite: bool,
) -> None:
    """Write one JSON object a query, with the nearest documents."""
    choice = handling(invalid)
    one_standard_input(corpus_source, query_source)
    check_target(out, overwrite=overwrite)
    model = load(model_name)
    require_vectors(model)
    corpus = read_corpus(corpus_source, text=corpus_text, invalid=choice)
    queries = read_queries(query_source, text=text, invalid=choice)
    notes = [f"{read.source}: {note}" for read in (corpus, queries) for note in read.notes]
    if top > len(corpus):
        notes.append(
            f"--top {top:,} is more than there is: all {counted(len(corpus), 'document')} of {corpus_source} are ranked"
        )
    texts, (documents, asked) = distinct([corpus.texts, queries.texts])
    vectors = embed_texts(model, texts, batch_size)
    scores, places = top_documents(vectors[asked], vectors[documents], top=top, normalize=True)

    def write(file: IO[bytes]) -> None:
        for number, query in enumerate(queries.texts):
            row: dict[str, Any] = {} if queries.ids is None else {"query_id": queries.ids[number]}
            row["query"] = query
            row["results"] = [
                {
                    "rank": rank,
                    **({} if corpus.ids is None else {"doc_id": corpus.ids[place]}),
                    "doc": corpus.texts[place],
                    "score": round(score, 6),
                }
                for rank, (place, score) in enumerate(
                    zip(places[number].tolist(), scores[number].tolist(), strict=True), 1
                )
            ]
            file.write((json.dumps(row, ensure_ascii=False) + "\n").encode())

    write_target(out, write)
    say_notes(notes)


def embed_texts(model: Model, texts: Sequence[str], batch_size: int) -> NDArray[np.float32]:
    """(n, d) vectors of the texts; how far it is shows on standard error."""
    console = Console(stderr=True)
    progress = Bar(console, len(texts), 0) if console.is_terminal else Lines(len(texts), 0)
    done = 0

    def advance(_model: object, _inputs: object, output: Any) -> None:
        nonlocal done
        before, done = done, done + len(output.embedding)
        if isinstance(progress, Bar) or before // WINDOW < done // WINDOW:
            progress.reach(done)

    handle = model.model.register_forward_hook(advance)
    try:
        return embed_table(model.model, model.tokenize(texts), batch_size=batch_size)
    finally:
        handle.remove()
        progress.close()
