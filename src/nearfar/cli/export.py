"""``nearfar export``: a model as other tools open it: an ONNX graph, or a classifier of transformers."""

from __future__ import annotations

import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from nearfar.cli import options
from nearfar.cli.options import handling, open_console, print_notes
from nearfar.errors import OutputError, SettingError, counted

if TYPE_CHECKING:
    from nearfar.data import Layout, Records
    from nearfar.encoding import Model
    from nearfar.exports.heads import LabelType
    from nearfar.exports.quality import Quality

TARGETS = ("onnx", "transformers")
FILE = "model.onnx"
PROBES = ("where is my order", "the invoice is wrong", "a film about two brothers", "water boils at 100 degrees", "no")


def export(
    model: options.Model,
    out: Annotated[Path, typer.Option("--out", help="Folder for the exported model.")],
    to: Annotated[
        str,
        typer.Option(
            "--to",
            metavar="onnx|transformers",
            help="onnx: a graph for onnxruntime, used without torch. transformers: a folder that "
            "AutoModelForSequenceClassification opens; for a task of several.",
        ),
    ] = "transformers",
    int8: Annotated[
        bool, typer.Option("--int8", help="8-bit weights: a quarter of the size, faster, less exact.")
    ] = False,
    data: Annotated[
        str | None,
        typer.Option("--data", metavar="FILE", help="Rows to compare on; unset: the training rows, if they are there."),
    ] = None,
    text: options.Text = None,
    pair: options.Pair = None,
    label: options.Label = None,
    invalid: options.Invalid = None,
    encoding: options.Encoding = None,
    task: options.Task = None,
    force: Annotated[bool, typer.Option("--force", help="Keep an export that is less exact than the limit.")] = False,
    overwrite: options.Overwrite = False,
) -> None:
    """Export a model: to ONNX, with a table of what it costs, or to transformers."""
    from nearfar.encoding.task_model import export_task, holds_tasks, load_tasks

    if to not in TARGETS:
        raise SettingError(f"--to is onnx or transformers, got {to!r}.")
    if to == "transformers" and (int8 or data is not None):
        raise SettingError(f"{'--int8' if int8 else '--data'} is for --to onnx; leave it out, or add --to onnx.")
    _check_folder(out, overwrite=overwrite)
    if to == "onnx":
        from nearfar.data import Layout

        layout = Layout(text=text, pair=pair, label=label, encoding=encoding)
        if task is not None:
            raise SettingError("--task is for --to transformers; an ONNX graph has all tasks of a model.")
        _onnx(model, out, int8=int8, data=data, layout=layout, drop=handling(invalid) == "drop", force=force)
        return
    if not holds_tasks(model):
        raise SettingError(
            f"{model}: this model has one task, so there is nothing to take apart: --to onnx exports it for use "
            "without nearfar; its folder opens in SentenceTransformer, and in AutoModelForSequenceClassification if "
            'it was trained with head.kind = "native".'
        )
    tasks = load_tasks(model)
    export_task(tasks, tasks.card(task).name, out)
    sys.stderr.write(f"saved to {out}; open it with AutoModelForSequenceClassification.from_pretrained\n")


def _check_folder(out: Path, *, overwrite: bool) -> None:
    if out.is_file():
        raise OutputError(f"{out}: this is a file; give a folder for the model.")
    if (out / "nearfar.json").exists():
        raise OutputError(f"{out}: the folder holds a model of nearfar, which would be lost; choose another --out.")
    if out.is_dir() and any(out.iterdir()) and not overwrite:
        raise OutputError(
            f"{out}: the folder is not empty. Replace its files with --overwrite, or choose another --out."
        )


def _onnx(model: str, out: Path, *, int8: bool, data: str | None, layout: Layout, drop: bool, force: bool) -> None:
    """Write the graph beside the folder, compare it with the model, and keep it where it is good enough."""
    from nearfar.encoding import load
    from nearfar.encoding.task_model import is_task_model, load_tasks
    from nearfar.exports.onnx_graph import export_onnx
    from nearfar.exports.onnx_model import OnnxModel
    from nearfar.exports.quality import compare, compare_tasks

    opened = load(model)
    records, notes = _rows(model, opened, data, layout, drop=drop)
    tasks = load_tasks(model, opened) if is_task_model(opened.card) else None
    export_onnx(opened, out, tasks=tasks, label_type=_label_type(opened), int8=int8)
    exported = OnnxModel(out)
    rows = list(zip(*records.texts[:2], strict=True)) if opened.card.joined else list(records.texts[0])
    labels = [str(one) for one in records.labels] if records.labels is not None else None
    quality = compare(opened, exported, rows, labels)
    problem = quality.problem
    if tasks is not None:
        difference = compare_tasks(tasks, exported, rows)
        notes.append(f"the outputs of all tasks differ by at most {difference:.2g}")
    _print(quality, exported.card.precision)
    print_notes(notes)
    if problem is not None and not force:
        shutil.rmtree(out)
        raise OutputError(f"{out}: the export is not kept: {problem}. --force keeps it all the same.")
    sys.stderr.write(f"saved to {out}; open it with nearfar.load({str(out)!r}), or {FILE} in it with onnxruntime\n")


def _rows(model: str, opened: Model, data: str | None, layout: Layout, *, drop: bool) -> tuple[Records, list[str]]:
    """What models are compared on: the rows given, those of the training, or a few texts of ours."""
    from nearfar.cli.columns import remembered
    from nearfar.data import Records, read
    from nearfar.recipe import read_recipe
    from nearfar.recipe.tasks import has_tasks

    recipe = Path(model) / "recipe.toml"
    if data is None and recipe.is_file() and not has_tasks(recipe):
        named = read_recipe(recipe).data.train
        if not named.startswith("memory:") and (named.startswith("sample:") or Path(named).exists()):
            data = named
    if data is None:
        texts = [f"{start} {end}" for start in PROBES for end in PROBES]
        columns = (texts, texts[::-1]) if opened.card.joined else (texts,)
        note = "the training rows are not at hand, so a few texts were compared; --data names rows of yours"
        return Records(columns, None, None, list(range(1, len(texts) + 1)), "texts of nearfar"), [note]
    records = read(data, remembered(model, data, layout), invalid="drop" if drop else "refuse")
    if len(records.texts) != 2 and opened.card.joined:
        raise SettingError(f"{data}: this model reads pairs of texts; name both columns: --text and --pair.")
    known = set(opened.labels or ())
    unknown = sorted({str(one) for one in records.labels or ()} - known) if known else []
    if unknown:
        return replace(records, labels=None), [f"the model has no class {unknown[0]!r}, so accuracy is not compared"]
    return records, list(records.notes)


def _label_type(opened: Model) -> LabelType:
    """What the labels were before they became names: an estimator remembers it."""
    from nearfar.estimators.folder import ModelFolder

    settings = {} if opened.folder is None else ModelFolder(opened.folder, temporary=False).settings()
    kind = settings.get("label_type", "str")
    return cast("LabelType", kind if kind in ("str", "int", "float", "bool") else "str")


def _print(quality: Quality, precision: str) -> None:
    from rich.table import Table

    table = Table(title=f"compared on {counted(quality.texts, 'text')}", title_justify="left", title_style="italic")
    for name in ("", "model", f"ONNX, {precision}"):
        table.add_column(name, justify="right" if name else "left")
    sides = (quality.before, quality.after)
    table.add_row("size", *(f"{side.megabytes:,.1f} MB" if side.megabytes else "" for side in sides))
    table.add_row("texts per second", *(f"{side.texts_per_second:,.0f}" for side in sides))
    table.add_row("one text", *(f"{side.milliseconds:.1f} ms" for side in sides))
    table.add_row("mean 1 - cosine", "", f"{quality.distance:.2g} (limit {quality.limit:.2g})")
    if quality.changed is not None:
        table.add_row("other labels", "", f"{quality.changed:.1f} %")
    if quality.before.accuracy is not None:
        table.add_row("accuracy", *(f"{side.accuracy:.1f} %" for side in sides))
    open_console().print(table)
