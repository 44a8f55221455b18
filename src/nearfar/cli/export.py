"""``nearfar export``: a model as other tools open it, with a table of what that costs."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from nearfar.cli import options
from nearfar.cli.options import handling, open_console, print_notes
from nearfar.errors import OutputError, SettingError, counted
from nearfar.files import atomic_folder

if TYPE_CHECKING:
    from nearfar.data import Layout, Records
    from nearfar.encoding import Model
    from nearfar.exports.heads import LabelType
    from nearfar.exports.quality import Quality

TARGETS = {"onnx": "ONNX", "openvino": "OpenVINO", "static": "static vectors", "transformers": "transformers"}
OPENS = {
    "onnx": "nearfar.load({0!r}), or model.onnx in it with onnxruntime",
    "openvino": "nearfar.load({0!r}), or openvino_model.xml in it with OpenVINO",
    "static": "nearfar.load({0!r})",
    "transformers": "AutoModelForSequenceClassification.from_pretrained",
    "encoder": "AutoModel or SentenceTransformer",
}
PROBES = ("where is my order", "the invoice is wrong", "a film about two brothers", "water boils at 100 degrees", "no")


def export(
    model: options.Model,
    out: Annotated[Path, typer.Option("--out", help="Folder for the exported model.")],
    to: Annotated[
        str,
        typer.Option(
            "--to",
            metavar="|".join(TARGETS),
            help="onnx: a graph for onnxruntime, used without torch. openvino: the same for OpenVINO. static: a vector "
            "for each token, tens of times faster and less accurate. transformers: a folder that "
            "AutoModelForSequenceClassification opens, where it can express the model.",
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
    large: options.Large = False,
    task: options.Task = None,
    force: Annotated[bool, typer.Option("--force", help="Keep an export that is less exact than the limit.")] = False,
    overwrite: options.Overwrite = False,
) -> None:
    """Export a model to ONNX, OpenVINO, static vectors or transformers, with a table of what it costs."""
    from nearfar.data import Layout
    from nearfar.encoding import load
    from nearfar.encoding.task_model import holds_tasks, load_tasks
    from nearfar.exports.quality import compare, compare_tasks
    from nearfar.exports.task_folder import export_task

    if to not in TARGETS:
        *first, last = TARGETS
        raise SettingError(f"--to is {', '.join(first)} or {last}, got {to!r}.")
    if int8 and to not in ("onnx", "openvino"):
        raise SettingError("--int8 is for --to onnx and --to openvino; leave it out, or add one of these.")
    if task is not None and to != "transformers":
        raise SettingError("--task is for --to transformers; an ONNX graph has all tasks of a model.")
    _check_folder(out, overwrite=overwrite)
    if to == "transformers" and holds_tasks(model):
        several = load_tasks(model)
        export_task(several, several.card(task).name, out)
        sys.stderr.write(f"saved to {out}; open it with {OPENS['transformers']}\n")
        return
    if task is not None:
        raise SettingError(f"{model}: this model has one task, so --task {task} names none; leave it out.")
    opened = load(model)
    layout = Layout(text=text, pair=pair, label=label, encoding=encoding, large=large)
    rows = _rows(model, opened, data, layout, drop=handling(invalid) == "drop")
    tasks = load_tasks(model, opened) if holds_tasks(model) else None
    with atomic_folder(out, out.with_name(f".{out.name}-compared")) as folder:  # what was there stays after a refusal
        exported, answers = _write(to, opened, folder, rows, int8=int8, tasks=tasks)
        quality = compare(opened, exported, rows.given, rows.labels, answers=answers)
        notes = list(rows.notes)
        if tasks is not None:
            difference = compare_tasks(tasks, exported, rows.given)
            notes.append(f"the outputs of all tasks differ by at most {difference:.2g}")
        _print(quality, TARGETS[to] + (f", {quality.kind}" if to in ("onnx", "openvino") else ""))
        print_notes(notes)
        if quality.problem is not None and not force:
            raise OutputError(f"{out}: the export is not kept: {quality.problem}. --force keeps it all the same.")
    how = OPENS["encoder" if to == "transformers" and opened.labels is None else to]
    sys.stderr.write(f"saved to {out}; open it with {how.format(str(out))}\n")


def _check_folder(out: Path, *, overwrite: bool) -> None:
    if out.is_file():
        raise OutputError(f"{out}: this is a file; give a folder for the model.")
    if out.name in ("", ".."):
        raise OutputError(f"{out}: the export is a folder of its own; give it a name, such as --out exported.")
    if (out / "nearfar.json").exists():
        raise OutputError(f"{out}: the folder holds a model of nearfar, which would be lost; choose another --out.")
    if out.is_dir() and any(out.iterdir()) and not overwrite:
        raise OutputError(
            f"{out}: the folder is not empty. Replace its files with --overwrite, or choose another --out."
        )
    if out.is_dir() and any(out.iterdir()) and not _is_export(out):
        raise OutputError(f"{out}: the folder holds no export, and its files would be lost; choose another --out.")


def _is_export(folder: Path) -> bool:
    """Whether a folder looks like one that an export wrote."""
    from nearfar.exports.folders import is_exported

    return is_exported(folder) or ((folder / "config.json").is_file() and any(folder.glob("*.safetensors")))


@dataclass(frozen=True)
class _Rows:
    """What models are compared on, and what a static head is fitted to."""

    given: list[Any]
    """Texts or pairs."""
    labels: list[str] | None
    fitted: list[str] | None
    """The training texts, where others are compared on; None: those that are compared on."""
    own: bool
    """Whether they are texts of ours, because no rows are at hand."""
    notes: list[str]


def _write(to: str, opened: Model, out: Path, rows: _Rows, *, int8: bool, tasks: Any) -> tuple[Any, list[str] | None]:
    """Write the export; the model to compare, and the labels to take for its own, if others are fairer."""
    label_type = _label_type(opened)
    if to == "static":
        from nearfar.exports.static_export import MOST, export_static, held_out_labels
        from nearfar.exports.static_model import StaticModel

        if rows.own and (opened.labels is not None or opened.predicts_scores):
            raise SettingError(
                "the head of a static model is fitted to texts, and the training rows are not at hand; name some rows "
                "with --data."
            )
        fitted = rows.given if rows.fitted is None else rows.fitted
        export_static(opened, out, fitted, label_type=label_type)
        exported = StaticModel(out)
        return exported, held_out_labels(opened, exported, rows.given[:MOST]) if rows.fitted is None else None
    if to == "transformers":
        from nearfar.encoding import load
        from nearfar.exports.transformers_folder import export_transformers

        export_transformers(opened, out)
        return _as_before(load(out), opened), None
    if to == "openvino":
        from nearfar.exports.openvino_export import export_openvino
        from nearfar.exports.openvino_model import OpenVinoModel

        export_openvino(opened, out, tasks=tasks, label_type=label_type, int8=int8)
        return OpenVinoModel(out), None
    from nearfar.exports.onnx_graph import export_onnx
    from nearfar.exports.onnx_model import OnnxModel

    export_onnx(opened, out, tasks=tasks, label_type=label_type, int8=int8)
    return OnnxModel(out), None


def _as_before(exported: Model, opened: Model) -> Model:
    """A folder of transformers states neither its pooling nor that it reads pairs; compare what the model has."""
    from nearfar.encoding import Model
    from nearfar.encoding.encoder import TextModel

    card = replace(
        exported.card, pooling=opened.card.pooling, joined=opened.card.joined, normalize=opened.card.normalize
    )
    network = TextModel(
        exported.model.network, pooling=card.pooling, native=card.native, transform=opened.model.transform
    )
    return Model(network, exported.tokenizer, card, folder=exported.folder)


def _rows(model: str, opened: Model, data: str | None, layout: Layout, *, drop: bool) -> _Rows:
    """The rows given, those of the training, or a few texts of ours."""
    from nearfar.cli.columns import remembered
    from nearfar.data import read
    from nearfar.recipe.training_texts import training_source

    def opened_rows(name: str) -> Records:
        return read(name, remembered(model, name, layout), invalid="drop" if drop else "refuse")

    training = training_source(Path(model))
    chosen = data or training
    if chosen is None:
        texts = [f"{start} {end}" for start in PROBES for end in PROBES]
        pairs: list[Any] = list(zip(texts, texts[::-1], strict=True)) if opened.card.joined else texts
        note = "the training rows are not at hand, so a few texts were compared; --data names rows of yours"
        return _Rows(pairs, None, None, own=True, notes=[note])
    records = opened_rows(chosen)
    if len(records.texts) != 2 and opened.card.joined:
        raise SettingError(f"{chosen}: this model reads pairs of texts; name both columns: --text and --pair.")
    labels = None if records.labels is None else [str(one) for one in records.labels]
    notes = list(records.notes)
    unknown = sorted(set(labels or ()) - set(opened.labels or ())) if opened.labels else []
    if unknown:
        labels = None
        notes = [f"the model has no class {unknown[0]!r}, so accuracy is not compared"]
    given = list(zip(*records.texts[:2], strict=True)) if opened.card.joined else list(records.texts[0])
    fitted = None
    if data is not None and training is not None and Path(training).resolve() != Path(data).resolve():
        fitted = list(opened_rows(training).texts[0])
    return _Rows(given, labels, fitted, own=False, notes=notes)


def _label_type(opened: Model) -> LabelType:
    """What the labels were before they became names: an estimator remembers it."""
    from nearfar.estimators.folder import ModelFolder

    settings = {} if opened.folder is None else ModelFolder(opened.folder, temporary=False).settings()
    kind = settings.get("label_type", "str")
    return cast("LabelType", kind if kind in ("str", "int", "float", "bool") else "str")


def _print(quality: Quality, name: str) -> None:
    from rich.table import Table

    table = Table(title=f"compared on {counted(quality.texts, 'text')}", title_justify="left", title_style="italic")
    for column in ("", "model", name):
        table.add_column(column, justify="right" if column else "left")
    sides, limits = (quality.before, quality.after), quality.limits
    table.add_row("size", *(f"{side.megabytes:,.1f} MB" if side.megabytes else "" for side in sides))
    table.add_row("texts per second", *(f"{side.texts_per_second:,.0f}" for side in sides))
    table.add_row("one text", *(f"{side.milliseconds:.2g} ms" for side in sides))
    static, scored = quality.kind == "static", quality.before.accuracy is not None
    what = "1 - correlation of similarities" if static else "mean 1 - cosine"
    decides = "" if static and quality.changed is not None else f" (limit {limits.distance:.2g})"
    table.add_row(what, "", f"{quality.distance:.2g}{decides}")
    if quality.changed is not None:
        decides = "" if scored else f" (limit {limits.changed:.0f} %)"
        table.add_row("changed labels", "", f"{quality.changed:.1f} %{decides}")
    if scored:
        lost = f" (limit -{limits.points:.0f})"
        table.add_row("accuracy", *(f"{side.accuracy:.1f} %{end}" for side, end in zip(sides, ("", lost), strict=True)))
    open_console().print(table)
