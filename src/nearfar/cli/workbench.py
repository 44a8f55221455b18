"""``nearfar label`` and ``nearfar explore``: the local web application."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nearfar.cli import options
from nearfar.errors import SettingError, counted

if TYPE_CHECKING:
    from nearfar.workbench.explorer import Method
    from nearfar.workbench.project import Texts
    from nearfar.workbench.server import Address

Folder = Annotated[
    Path | None,
    typer.Option("--out", help="Folder of the project: labels, vectors, model, exports; unset: NAME.nearfar."),
]
Host = Annotated[str, typer.Option("--host", help="Address to listen on; the default is reachable from here only.")]
Port = Annotated[int, typer.Option("--port", min=0, max=65_535, help="Port; 0 takes a free one.")]
Browser = Annotated[bool, typer.Option("--browser/--no-browser", help="Open the page in the browser.")]
Classes = Annotated[
    str | None, typer.Option("--classes", metavar="A,B,...", help="Names of classes; more can be added on the page.")
]
MapMethod = Annotated[
    str, typer.Option("--map", metavar="auto|tsne|pca", help="The map; auto: t-SNE where openTSNE is installed.")
]


def label(
    source: options.Data,
    classes: Classes = None,
    out: Folder = None,
    encoder: Annotated[str, typer.Option(help="The encoder that is fine-tuned: minilm, toy, a folder.")] = "minilm",
    text: options.Text = None,
    label_column: options.Label = None,
    encoding: options.Encoding = None,
    invalid: options.Invalid = None,
    method: MapMethod = "auto",
    seed: options.Seed = 0,
    device: options.Device = None,
    host: Host = "127.0.0.1",
    port: Port = 0,
    browser: Browser = True,
    files: Annotated[
        bool, typer.Option("--files", help="Write labeled.csv and labeled.jsonl of the project, and show no page.")
    ] = False,
) -> None:
    """Label texts in the browser, one keystroke a label, while a model is trained on the labels so far.

    The texts that teach the model most come first. Every label is written at once; the same command continues. The
    project folder has the labels (labeled.csv, labeled.jsonl) and the model. The file itself is not changed.
    """
    _check_installed()
    from nearfar.workbench.app import Workbench
    from nearfar.workbench.embeddings import Embeddings
    from nearfar.workbench.explorer import Explorer
    from nearfar.workbench.label_queue import LabelQueue
    from nearfar.workbench.project import default_folder, open_project
    from nearfar.workbench.server import serve
    from nearfar.workbench.trainer import Trainer

    options.use_device(device)
    names = [name for name in (classes or "").split(",") if name.strip()]
    texts = _read(source, text, label_column, encoding, invalid)
    if not files:
        _check_models(encoder)
    with open_project(texts, out or default_folder(source), names) as project:
        embeddings = Embeddings(encoder, texts.texts, project.folder)
        explorer = Explorer(project, embeddings, method=_method(method), seed=seed)
        queue = LabelQueue(project, embeddings, seed=seed)
        trainer = Trainer(project, encoder, after=embeddings.opened, then=explorer.find_suspects, random_state=seed)
        _print_recovered(project.log.recovered)
        if not files:
            embeddings.start(explorer.compute)
            serve(
                Workbench(project, embeddings, explorer, queue, trainer),
                host=host,
                port=port,
                announce=lambda address: _announce(address, browser=browser),
            )
            embeddings.stop()
        labeled = len(project.result_rows())
        if labeled or files:
            places = ", ".join(str(path) for path in project.export())
            sys.stderr.write(f"{counted(labeled, 'labeled text')} in {places}\n")


def explore(
    model: options.Model,
    source: options.Data,
    compare: Annotated[
        str | None, typer.Option("--compare", help="A second model for a map beside it, such as the untrained encoder.")
    ] = None,
    out: Folder = None,
    text: options.Text = None,
    label_column: options.Label = None,
    encoding: options.Encoding = None,
    invalid: options.Invalid = None,
    method: MapMethod = "auto",
    seed: options.Seed = 0,
    device: options.Device = None,
    host: Host = "127.0.0.1",
    port: Port = 0,
    browser: Browser = True,
    files: Annotated[
        bool, typer.Option("--files", help="Write the map for embedding-atlas and TensorBoard, and show no page.")
    ] = False,
) -> None:
    """Explore texts on a map in the browser: labels, predictions, clusters, label errors, duplicates, search.

    Corrected labels are written to a new file in the project folder, with a list of changes; the file itself is not
    changed.
    """
    _check_installed()
    from nearfar.workbench.app import Workbench
    from nearfar.workbench.embeddings import Embeddings
    from nearfar.workbench.explorer import Explorer
    from nearfar.workbench.label_queue import LabelQueue
    from nearfar.workbench.project import default_folder, open_project
    from nearfar.workbench.server import serve

    options.use_device(device)
    texts = _read(source, text, label_column, encoding, invalid)
    _check_models(model, compare)
    with open_project(texts, out or default_folder(source)) as project:
        embeddings = Embeddings(model, texts.texts, project.folder)
        compared = None if compare is None else Embeddings(compare, texts.texts, project.folder)
        explorer = Explorer(project, embeddings, compared=compared, method=_method(method), seed=seed)
        if files:
            embeddings.compute()
            explorer.compute()
            for path in explorer.write_files():
                sys.stdout.write(f"{path}\n")
            return
        _print_recovered(project.log.recovered)
        embeddings.start(explorer.compute)
        serve(
            Workbench(project, embeddings, explorer, LabelQueue(project, embeddings, seed=seed)),
            host=host,
            port=port,
            announce=lambda address: _announce(address, browser=browser),
        )
        if project.changes():
            places = ", ".join(str(path) for path in project.export())
            sys.stderr.write(f"{counted(len(project.changes()), 'changed label')} in {places}\n")


def _check_installed() -> None:
    """Refuse to start without the packages of the extra."""
    if any(importlib.util.find_spec(name) is None for name in ("starlette", "uvicorn")):
        raise SettingError(
            "the page needs starlette and uvicorn, which are not installed: pip install 'nearfar[explore]'."
        )


def _read(source: str, text: str | None, label: str | None, encoding: str | None, invalid: str | None) -> Texts:
    from nearfar.data import Layout
    from nearfar.workbench.project import read_texts

    texts = read_texts(source, Layout(text=text, label=label, encoding=encoding), invalid=options.handling(invalid))
    options.print_notes(texts.notes, source)
    return texts


def _check_models(*names: str | None) -> None:
    """Refuse a model that does not exist, before a project or a page is opened."""
    from nearfar.encoding import find

    for name in names:
        if name is not None:
            find(name)


def _method(name: str) -> Method:
    from nearfar.workbench.explorer import METHODS

    if name not in METHODS:
        raise SettingError(f"--map is auto, tsne or pca, got {name!r}.")
    return METHODS[name]


def _print_recovered(count: int) -> None:
    if count:
        sys.stderr.write(
            f"note: the last label was cut off ({counted(count, 'byte')}) and is removed; label it again\n"
        )


def _announce(address: Address, *, browser: bool) -> None:
    sys.stderr.write(f"open {address.url}\nCtrl-C ends it; every label is on the disk already\n")
    sys.stderr.flush()
    if not address.is_local:
        sys.stderr.write(
            "warning: other machines can reach this page, under the name or address of this one, and what they send is "
            "not encrypted\n"
        )
    if browser:
        import webbrowser

        webbrowser.open(address.url)
