"""``nearfar serve``: a model behind HTTP."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from nearfar.cli import options


def serve(
    model: options.Model,
    host: Annotated[str, typer.Option(help="Address to listen at; 0.0.0.0 for every network.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65_535, help="Port; 0 for any free one.")] = 8080,
    workers: Annotated[int, typer.Option(min=1, help="Processes, each with a model of its own.")] = 1,
    name: Annotated[
        str | None, typer.Option(help="What clients call the model; unset: the name of its folder.")
    ] = None,
    api_key: Annotated[
        str | None,
        typer.Option(envvar="NEARFAR_API_KEY", help="A key that requests must have; other users may see it in ps."),
    ] = None,
    api_key_file: Annotated[
        Path | None, typer.Option(help="File with keys, one a line; a request must have one of them.")
    ] = None,
    max_batch_tokens: Annotated[
        int | None, typer.Option(min=1, help="Tokens computed together; unset: 2048, on a GPU 16384.")
    ] = None,
    max_queue: Annotated[
        int, typer.Option(min=1, help="Texts that may wait; a request beyond them is answered with 429.")
    ] = 4_096,
    timeout: Annotated[float, typer.Option(min=0.001, help="Seconds that a request may take.")] = 30.0,
    max_body: Annotated[int, typer.Option(min=1, help="Bytes of a request.")] = 4_000_000,
    max_texts: Annotated[int, typer.Option(min=1, help="Texts of a request.")] = 2_048,
    cors_origin: Annotated[
        list[str] | None, typer.Option(help="A web page that may use the server, as https://host; may be repeated.")
    ] = None,
    watch: Annotated[
        float, typer.Option(min=0, help="Seconds between looks at the model folder; 0: never load it again.")
    ] = 2.0,
    device: options.Device = None,
    precision: options.Precision = None,
    openapi: Annotated[
        bool, typer.Option("--openapi", help="Print the description of all paths (OpenAPI) and end.")
    ] = False,
) -> None:
    """Serve a model over HTTP: embeddings, classes, ranking.

    The paths are those of OpenAI (/v1/embeddings), text-embeddings-inference (/embed, /predict, /rerank, /similarity,
    /tokenize, /info, /health, /metrics) and Infinity (/classify); /docs describes them. A changed model folder is
    loaded again without losing a request. Needs the extra 'serve'.
    """
    from nearfar.server import Limits, Settings, describe_paths, read_keys, run

    if openapi:
        sys.stdout.write(json.dumps(describe_paths(), indent=2) + "\n")
        return
    options.use_device(device)
    options.use_precision(precision)
    keys = (() if api_key is None else (api_key,)) + (() if api_key_file is None else read_keys(api_key_file))
    run(
        Settings(
            model,
            name=name,
            host=host,
            port=port,
            workers=workers,
            limits=Limits(max_batch_tokens, max_queue, timeout, max_body, max_texts),
            keys=keys,
            origins=tuple(cors_origin or ()),
            watch=watch,
            device=device,
            precision=precision,
        )
    )
