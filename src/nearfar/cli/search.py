"""``nearfar search``: the texts of a corpus or of a saved index that are nearest to each query."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nearfar.cli import options
from nearfar.errors import Interrupted, OutputError, SettingError, counted

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from rich.table import Table

    from nearfar.data.corpora import Corpus
    from nearfar.encoding import Model
    from nearfar.evaluation.index import SearchIndex
    from nearfar.shards.index import ShardedIndex

LONGEST = 300
"""Characters of a document that a terminal shows."""
MANY = 5_000
"""Documents from which on a saved index is recommended."""
PROMPT = "query> "


def search(
    model: options.Model,
    corpus: Annotated[
        str,
        typer.Argument(
            help=f"Texts to search among: an index made by 'nearfar index', or a file: {options.DATA_HELP}",
            metavar="INDEX|CORPUS",
        ),
    ],
    queries: Annotated[
        str | None,
        typer.Argument(
            help="A text in quotes, a file of texts or a ranking, or - for standard input; unset: a prompt.",
            metavar="QUERY|QUERIES",
            show_default=False,
        ),
    ] = None,
    top: Annotated[int, typer.Option("--top", min=1, help="Documents of each query.")] = 10,
    out: options.OutLines = "-",
    json_: Annotated[bool, typer.Option("--json", help="Print JSON lines on a terminal, too.")] = False,
    text: Annotated[str | None, typer.Option("--text", help="Column with the text in the queries.")] = None,
    corpus_text: options.CorpusText = None,
    encoding: options.Encoding = None,
    invalid: options.Invalid = None,
    large: options.Large = False,
    batch_size: options.BatchSize = 64,
    device: options.Device = None,
    precision: options.Precision = None,
    overwrite: options.Overwrite = False,
    on: Annotated[
        str, typer.Option("--on", metavar="local|ray", help="Where the parts of an index of VECTORS are searched.")
    ] = "local",
    address: options.Address = "auto",
    workers: options.Workers = None,
) -> None:
    """Find the texts nearest to a query, or to each query of a file.

    The result is readable on a terminal; into a file or a pipe it is one JSON object per line with the query and its
    results. Without a query, queries are asked for until Ctrl-D.
    """
    from nearfar.cli.options import check_target, handling, one_standard_input, print_notes, write_lines
    from nearfar.data.sources import locate

    options.use_device(device)
    options.use_precision(precision)
    choice = handling(invalid)
    prompted = queries is None and corpus != "-" and sys.stdin.isatty()
    given = "-" if queries is None else queries
    check_query(given)
    one_standard_input(corpus, given)
    if prompted and out != "-":
        raise OutputError("--out needs queries: a text in quotes, a file, or - for standard input.")
    check_target(out, overwrite=overwrite)
    if not prompted and not is_text(given):
        locate(given)  # refuses a file that does not exist before the model is opened
    where = (on, workers, address)
    opened = open_searchable(model, corpus, corpus_text, encoding, batch_size, invalid=choice, large=large, where=where)
    notes = list(opened.notes)
    if top > len(opened.index):
        every = counted(len(opened.index), "document")
        notes.append(f"--top {top:,} is more than there is: all {every} of {corpus} are ranked")
    readable = out == "-" and not json_ and sys.stdout.isatty()
    if prompted:
        print_notes(notes)
        answer_prompt(opened, top, readable=readable)
        return
    asked = _queries(given, text, encoding, choice, large=large)
    rows = opened.answers(asked, top, batch_size)
    if readable:
        _print(rows)
    else:
        write_lines(out, rows)
    print_notes([*notes, *(f"{asked.source}: {note}" for note in asked.notes)])


def _queries(given: str, text: str | None, encoding: str | None, invalid: options.Handling, *, large: bool) -> Corpus:
    """The queries: one from the command line, or those of a file."""
    from nearfar.data.corpora import Corpus, read_queries

    if is_text(given):
        return Corpus([given], None, "the query")
    return read_queries(given, text=text, encoding=encoding, invalid=invalid, large=large)


def is_text(given: str) -> bool:
    """Whether an argument is a query rather than the name of a file: also one word, if there is no such file.

    >>> is_text("reset my password"), is_text("password"), is_text("queries.csv"), is_text("-"), is_text("data/queries")
    (True, True, False, False, False)
    """
    from nearfar.cli.predict import quoted
    from nearfar.data.sources import format_of

    if quoted(given):
        return True
    if given in ("-", "") or given.startswith(("hub:", "sample:")) or format_of(Path(given)) is not None:
        return False
    return not any(mark in given for mark in "/\\#") and not Path(given).exists()


def check_query(given: str) -> None:
    """Refuse a query without a word."""
    if not given.strip():
        raise SettingError("the query is empty; write what to search for, such as 'reset my password'.")


@dataclass(frozen=True)
class Searchable:
    """A model and the documents it searches."""

    model: Model
    index: SearchIndex | ShardedIndex
    notes: tuple[str, ...] = ()

    def answers(self, queries: Corpus, top: int, batch_size: int) -> Iterator[dict[str, object]]:
        """For each query the nearest documents, as JSON has them."""
        from nearfar.cli.progress import search_progress

        vectors = embed_texts(self.model, queries.texts, batch_size)
        with search_progress() as progress:
            scores, ranked = self.index.search(vectors, top=top, progress=progress)
        for number, query in enumerate(queries.texts):
            nearest = zip(ranked[number].tolist(), scores[number].tolist(), strict=True)
            row: dict[str, object] = {} if queries.ids is None else {"query_id": queries.ids[number]}
            yield row | {
                "query": query,
                "results": [
                    {"rank": rank, **self.index.document(at), "score": round(score, 6)}
                    for rank, (at, score) in enumerate(nearest, 1)
                    if at >= 0
                ],
            }


def open_searchable(
    name: str,
    corpus: str,
    text: str | None,
    encoding: str | None,
    batch_size: int,
    *,
    invalid: options.Handling,
    large: bool,
    advise: bool = True,
    where: tuple[str, int | None, str] = ("local", None, "auto"),
) -> Searchable:
    """The model, and the index of the corpus: a saved one, or one that is computed now."""
    from nearfar.data.corpora import read_corpus
    from nearfar.data.sources import locate
    from nearfar.encoding import load
    from nearfar.evaluation.index import SearchIndex, is_index
    from nearfar.pipeline.evaluate import require_vectors
    from nearfar.shards.index import is_sharded_index

    if is_index(Path(corpus)) or is_sharded_index(Path(corpus)):
        index = _saved_index(corpus, where)
        if text is not None:
            raise SettingError(f"--corpus-text names a column of a file, and {corpus} is an index; leave it out.")
        model = options.prepared(load(name))
        index.check(model)
        return Searchable(model, index)
    locate(corpus)
    documents = read_corpus(corpus, text=text, encoding=encoding, invalid=invalid, large=large)
    model = options.prepared(load(name))
    require_vectors(model)
    notes = [f"{corpus}: {note}" for note in documents.notes]
    if advise and len(documents) >= MANY:
        notes.append(f"to search {corpus} again in less time: nearfar index {name} {corpus} --out INDEX")
    vectors = embed_texts(model, documents.texts, batch_size)
    return Searchable(model, SearchIndex(documents.texts, documents.ids, vectors, model, corpus), tuple(notes))


def _saved_index(folder: str, where: tuple[str, int | None, str]) -> SearchIndex | ShardedIndex:
    """A saved index, of a corpus or of shards."""
    from nearfar.evaluation.index import SearchIndex
    from nearfar.shards.executors import executor_for
    from nearfar.shards.index import ShardedIndex, is_sharded_index

    on, workers, address = where
    if not is_sharded_index(Path(folder)):
        if on != "local" or workers is not None:
            raise SettingError(f"--on and --workers are for an index of VECTORS, and {folder} is one of a corpus.")
        return SearchIndex.load(folder)
    away = on != "local" or workers is not None
    return ShardedIndex.load(folder, executor_for(on, workers, address, 1, 0.0) if away else None)


def embed_texts(model: Model, texts: Sequence[str], batch_size: int) -> NDArray[np.float32]:
    """(n, d) embeddings of the texts, each distinct text computed once, with progress on standard error."""
    from nearfar.cli.progress import embedding_progress
    from nearfar.evaluation import embed_table
    from nearfar.pipeline.loaders import distinct

    different, (rows,) = distinct([texts])
    with embedding_progress(model.model, len(different)):
        return embed_table(model.model, model.tokenize(different), batch_size=batch_size)[rows]


def answer_prompt(opened: Searchable, top: int, *, readable: bool) -> None:
    """Ask for queries and answer them, until Ctrl-D or Ctrl-C."""
    from nearfar.cli.options import write_lines
    from nearfar.data.corpora import Corpus

    sys.stderr.write(f"{counted(len(opened.index), 'document')}; type a query, or Ctrl-D to leave\n")
    while True:
        try:
            query = _read_line()
        except EOFError:
            sys.stderr.write("\n")
            return
        except KeyboardInterrupt:
            raise Interrupted("") from None
        if query.strip():
            rows = opened.answers(Corpus([query.strip()], None, "the query"), top, 1)
            if readable:
                _print(rows, headings=False)
            else:
                write_lines("-", rows)


def _read_line() -> str:
    """A line from the terminal, with its history where the system has one; the prompt is not part of the output."""
    if sys.stdout.isatty():
        with suppress(ImportError):
            import readline  # noqa: F401  # arrow keys and history
        return input(PROMPT)
    sys.stderr.write(PROMPT)
    sys.stderr.flush()
    return input()


def _print(rows: Iterator[dict[str, object]], *, headings: bool = True) -> None:
    """Show results on a terminal."""
    from rich.text import Text

    console = options.open_console()
    for row in rows:
        if headings:
            console.print(Text(str(row["query"]), style="bold"), soft_wrap=True)
        console.print(_table(row["results"]), highlight=False)
        console.print()


def _table(results: object) -> Table:
    from rich.table import Column, Table
    from rich.text import Text

    assert isinstance(results, list)
    named = bool(results) and "doc_id" in results[0]
    numbers = Column(justify="right"), Column(justify="right")
    table = Table(*numbers, *([Column(max_width=24)] if named else []), Column(), box=None, show_header=False)
    for result in results:
        words = " ".join(result["doc"].split())
        words = words if len(words) <= LONGEST else f"{words[:LONGEST].rstrip()} ..."
        ids = [Text(result["doc_id"])] if named else []
        table.add_row(str(result["rank"]), f"{result['score']:.4f}", *ids, Text(words))
    return table
