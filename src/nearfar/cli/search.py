"""``nearfar search``: the texts of a corpus that are nearest to each query."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import IO, TYPE_CHECKING, Annotated, Any

import typer

from nearfar.cli import options
from nearfar.errors import counted

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from nearfar.encoding import Model


def search(
    model: options.Model,
    corpus: Annotated[str, typer.Argument(help=f"Texts to search among: {options.DATA_HELP}", metavar="CORPUS")],
    queries: Annotated[str, typer.Argument(help="Texts to search for, one a row, or a ranking.", metavar="QUERIES")],
    top: Annotated[int, typer.Option("--top", min=1, help="Documents of each query.")] = 10,
    out: options.OutLines = "-",
    text: Annotated[str | None, typer.Option("--text", help="Column with the text in the queries.")] = None,
    corpus_text: options.CorpusText = None,
    invalid: options.Invalid = None,
    batch_size: options.BatchSize = 64,
    overwrite: options.Overwrite = False,
) -> None:
    """Find the texts nearest to each query: one JSON object per line with the query and its results."""
    from nearfar.cli.options import check_target, handling, one_standard_input, print_notes, write_target
    from nearfar.data.corpora import read_corpus, read_queries
    from nearfar.encoding import load
    from nearfar.evaluation import top_documents
    from nearfar.pipeline.evaluate import require_vectors
    from nearfar.pipeline.loaders import distinct

    choice = handling(invalid)
    one_standard_input(corpus, queries)
    check_target(out, overwrite=overwrite)
    loaded = load(model)
    require_vectors(loaded)
    documents = read_corpus(corpus, text=corpus_text, invalid=choice)
    searched = read_queries(queries, text=text, invalid=choice)
    notes = [f"{read.source}: {note}" for read in (documents, searched) for note in read.notes]
    if top > len(documents):
        every = counted(len(documents), "document")
        notes.append(f"--top {top:,} is more than there is: all {every} of {corpus} are ranked")
    texts, (document_rows, query_rows) = distinct([documents.texts, searched.texts])
    vectors = embed_texts(loaded, texts, batch_size)
    scores, ranked = top_documents(vectors[query_rows], vectors[document_rows], top=top, normalize=True)

    def write(file: IO[bytes]) -> None:
        for number, query in enumerate(searched.texts):
            row: dict[str, Any] = {} if searched.ids is None else {"query_id": searched.ids[number]}
            nearest = zip(ranked[number].tolist(), scores[number].tolist(), strict=True)
            row["query"] = query
            row["results"] = [
                {
                    "rank": rank,
                    **({} if documents.ids is None else {"doc_id": documents.ids[at]}),
                    "doc": documents.texts[at],
                    "score": round(score, 6),
                }
                for rank, (at, score) in enumerate(nearest, 1)
            ]
            file.write((json.dumps(row, ensure_ascii=False) + "\n").encode())

    write_target(out, write)
    print_notes(notes)


def embed_texts(model: Model, texts: Sequence[str], batch_size: int) -> NDArray[np.float32]:
    """(n, d) embeddings of the texts, with progress on standard error."""
    from nearfar.cli.embed import WINDOW
    from nearfar.cli.progress import EmbeddingProgress
    from nearfar.evaluation import embed_table

    done = 0
    with EmbeddingProgress(len(texts)) as progress:

        def advance(_model: object, _inputs: object, output: Any) -> None:
            nonlocal done
            before, done = done, done + len(output.embedding)
            if progress.bar is not None or before // WINDOW < done // WINDOW:
                progress.reach(done)

        handle = model.model.register_forward_hook(advance)
        try:
            return embed_table(model.model, model.tokenize(texts), batch_size=batch_size)
        finally:
            handle.remove()
