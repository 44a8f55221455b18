"""``nearfar train``: a recipe or a data file, and flags, to a trained model."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nearfar.cli import options
from nearfar.errors import OutputError, Problem, RecipeError, SettingError, did_you_mean

if TYPE_CHECKING:
    from rich.console import Console

    from nearfar.pipeline import Summary
    from nearfar.recipe import Override, Recipe
    from nearfar.recipe.tasks import TaskRecipe

FILES = ("data.train", "data.dev", "data.test", "data.names", "data.unlabeled")
FOLDERS = ("encoder.name", "objective.weighting")
"""Keys that may name a file or a folder; those of tasks and stages end in the same way."""


def train(
    source: Annotated[
        str | None,
        typer.Argument(help=f"A recipe (.toml), or the training data: {options.DATA_HELP}", metavar="RECIPE|FILE"),
    ] = None,
    out: Annotated[
        str, typer.Option("--out", metavar="PATH", help="Folder for the model; with --on ray also s3:// or gs://.")
    ] = "model",
    objective: Annotated[str | None, typer.Option(help="Training objective; see 'nearfar objectives'.")] = None,
    encoder: options.Encoder = None,
    dev: Annotated[str | None, typer.Option(help="Dev data: a file, or a share such as 0.1.")] = None,
    test: Annotated[str | None, typer.Option(help="Test data: a file, or a share such as 0.1.")] = None,
    text: options.Text = None,
    pair: options.Pair = None,
    label: options.Label = None,
    label_separator: options.LabelSeparator = None,
    score: options.Score = None,
    names: Annotated[
        str | None,
        typer.Option(
            metavar="FILE|auto|none", help="Class names: a TOML, JSON or CSV file of labels and descriptions."
        ),
    ] = None,
    unlabeled: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Texts without labels, beside the training data or with --names alone."),
    ] = None,
    adapt: Annotated[
        bool, typer.Option("--adapt", help="Train the encoder on the texts of --unlabeled first (simcse).")
    ] = False,
    class_weight: Annotated[
        str | None, typer.Option(metavar="none|balanced", help="Weights of classes: 'balanced' for rare classes.")
    ] = None,
    keep_vectors: Annotated[
        bool, typer.Option("--keep-vectors", help="Keep the vectors of all training texts for 'nearfar extend'.")
    ] = False,
    encoding: options.Encoding = None,
    invalid: options.Invalid = None,
    large: options.Large = False,
    epochs: Annotated[int | None, typer.Option(help="Passes over the training data.")] = None,
    batch_size: Annotated[int | None, typer.Option(help="Rows in a batch.")] = None,
    learning_rate: Annotated[float | None, typer.Option(help="Peak learning rate of the encoder.")] = None,
    max_length: Annotated[int | None, typer.Option(help="Tokens at which a text is truncated.")] = None,
    pooling: Annotated[str | None, typer.Option(help="first, mean or pooler.")] = None,
    precision: Annotated[str | None, typer.Option(help="auto, fp32 or bf16.")] = None,
    no_estimate: Annotated[
        bool, typer.Option("--no-estimate", help="Do not estimate how good the model is, and do not calibrate it.")
    ] = False,
    seed: Annotated[int | None, typer.Option(help="Seed of all random numbers.")] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Any recipe key, e.g. training.warmup=0.1.")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue the interrupted run in --out.")] = False,
    overwrite: options.Overwrite = False,
    on: Annotated[
        str, typer.Option("--on", metavar="local|ray", help="Where to train; on this machine, torchrun starts several.")
    ] = "local",
    workers: Annotated[int | None, typer.Option(min=1, help="Processes on Ray; unset: one.")] = None,
    address: Annotated[str, typer.Option(help="Of the Ray cluster; auto finds the one of this machine.")] = "auto",
    cpus_per_worker: Annotated[float, typer.Option(min=0.1, help="CPUs of each process on Ray.")] = 1,
    gpus_per_worker: Annotated[float, typer.Option(min=0, help="GPUs of each process on Ray.")] = 0,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check recipe and data, print the recipe, and stop.")
    ] = False,
) -> None:
    """Fine-tune an encoder from a recipe, or directly from a data file."""
    flags = options.given(
        ("objective.name", "--objective", objective),
        ("encoder.name", "--encoder", encoder),
        ("data.dev", "--dev", dev),
        ("data.test", "--test", test),
        ("data.text", "--text", text),
        ("data.pair", "--pair", pair),
        ("data.label", "--label", label),
        ("data.label_separator", "--label-separator", label_separator),
        ("data.score", "--score", score),
        ("data.names", "--names", names),
        ("data.unlabeled", "--unlabeled", True if unlabeled is not None and source is None else unlabeled),
        ("data.adapt", "--adapt", adapt or None),
        ("objective.class_weight", "--class-weight", class_weight),
        ("head.keep_vectors", "--keep-vectors", keep_vectors or None),
        ("data.encoding", "--encoding", encoding),
        ("data.invalid", "--invalid", invalid),
        ("data.large", "--large", large or None),
        ("training.epochs", "--epochs", epochs),
        ("batches.size", "--batch-size", batch_size),
        ("training.learning_rate", "--learning-rate", learning_rate),
        ("encoder.max_length", "--max-length", max_length),
        ("encoder.pooling", "--pooling", pooling),
        ("training.precision", "--precision", precision),
        ("training.estimate", "--no-estimate", False if no_estimate else None),
        ("seed", "--seed", seed),
    )
    source = unlabeled if source is None else source  # without labels, class names choose training texts
    if resume and overwrite:
        raise OutputError("--resume continues the run in --out and --overwrite removes it: give one of them.")
    _check_place(on, workers, out)
    recipe = gather_recipe(source, out, gather_overrides(flags, set_ or []), resume=resume)
    if dry_run:
        from nearfar.pipeline.train import plan_recipe

        plan = plan_recipe(recipe)
        for note in plan.notes:
            sys.stderr.write(f"note: {note}\n")
        sys.stdout.write(plan.recipe_text())
        return

    from nearfar.cli.progress import console_callback
    from nearfar.pipeline import train

    console = options.open_console(stderr=True)
    shown = console_callback(console)
    if on == "ray":
        from nearfar.pipeline.ray_workers import RayWorkers, train_on_ray

        where = RayWorkers(workers=workers or 1, address=address, cpus=cpus_per_worker, gpus=gpus_per_worker)
        summary = train_on_ray(recipe, out, where, resume=resume, overwrite=overwrite, callbacks=[shown])
    else:
        summary = train(recipe, Path(out), resume=resume, overwrite=overwrite, callbacks=[shown])
    if summary.progress is not None and os.environ.get("RANK", "0") == "0":
        show_summary(summary, console, store=out if "://" in out else None)


def _check_place(on: str, workers: int | None, out: str) -> None:
    """Refuse a place that there is not, and workers that nobody would start."""
    if on not in ("local", "ray"):
        raise SettingError(f"--on is local or ray, got {on!r}.{did_you_mean(on, ('local', 'ray'))}")
    if on == "ray":
        from nearfar.cluster import require_ray

        require_ray()
    elif "://" in out:
        raise SettingError(f"{out}: a model in an object store is for --on ray; name a folder, and copy it afterwards.")
    elif workers is not None:
        raise SettingError(
            f"--workers {workers} is for --on ray; on this machine start several processes with torchrun "
            f"--nproc-per-node {workers}."
        )


def show_summary(summary: Summary, console: Console, store: str | None = None) -> None:
    """Print the scores of a finished run, which weights were kept, and what to do next."""
    from nearfar.cli.tables import SHOWN, report_table, task_table

    one_task = "" in summary.metrics
    for split, reports in summary.reports.items():
        if one_task:
            report = summary.report(split)
            before = summary.before.get(split)
            console.print(report_table(report, f"{split}: {report.rows:,} rows", before=before, most=SHOWN))
        else:
            console.print(task_table(split, reports, summary.metrics))
    if summary.estimate is not None:
        console.print(str(summary.estimate), highlight=False, soft_wrap=True)
    if summary.progress is not None and summary.progress.best is not None:
        score = "the best on the dev rows" if one_task else "the best mean on the dev rows"
        console.print(f"kept {_kept(summary, summary.progress.best['step'], score)}", highlight=False)
    task = "" if one_task else f" --task {next(iter(summary.metrics))}"
    if not summary.classifies:
        console.print(_gain(summary), highlight=False, soft_wrap=True)
    use = f"predict {summary.out}{task} FILE" if summary.classifies else f"search {summary.out} CORPUS 'a query'"
    line = f"saved to {store}; copy it to a disk to use it" if store else f"saved to {summary.out}; try: nearfar {use}"
    console.print(line, highlight=False, soft_wrap=True, markup=False)


def _gain(summary: Summary) -> str:
    """What training has changed, on the test rows if there are some, else on the dev rows."""
    for split in ("test", "dev"):
        if split in summary.reports and split in summary.before:
            metric = summary.metrics[""]
            after, before = summary.report(split).scores, summary.before[split]
            if metric not in after:  # dev and test rows may be of different types
                metric = next(iter(after))
            score, start = round(after[metric], 4), round(before[metric], 4)
            return f"{split} {metric} {score:.4f}, untrained encoder {start:.4f} ({score - start:+.4f})"
    return (
        "not evaluated, because there are no dev or test rows: --dev 0.2 holds out some pairs, --test names a file; "
        "the model is then compared with the untrained encoder"
    )


def _kept(summary: Summary, best: int, score: str) -> str:
    """Which weights were kept, in words."""
    kept = summary.progress.kept if summary.progress is not None else None
    if summary.untrained:
        return f"the untrained encoder (step 0), {score}: training has not made it better"
    return f"the weights of step {kept}, {score if kept == best else 'the last'}"


def gather_recipe(
    source: str | None, out: Path | str, overrides: Sequence[Override], *, resume: bool
) -> Recipe | TaskRecipe:
    """The recipe of a file, of a folder to resume, or of flags alone, with the overrides."""
    from nearfar.recipe import build_recipe, read_recipe, resolve_paths
    from nearfar.recipe.tasks import has_tasks, read_task_recipe

    if source is not None and not source.endswith(".toml"):
        return resolve_paths(build_recipe({"data": {"train": source}}, overrides, where="nearfar train"), Path.cwd())
    if source is None and not resume:
        message, remedy = "neither a recipe nor a data file is given", "Write: nearfar train FILE --out model/"
        if any(override.path == ("data", "names") for override in overrides):
            message = "class names are given, and no texts"
            remedy = "Add labeled texts, nearfar train FILE --names ..., or texts without labels, --unlabeled FILE."
        raise RecipeError([Problem("nearfar train", message, remedy)])
    path = Path(out) / "recipe.toml" if source is None else Path(source)
    if source is None and not path.is_file():
        raise OutputError(f"{out}: there is no run to resume; name the recipe or the data file as well.")
    if has_tasks(path):
        _check_task_flags(overrides)
        return read_task_recipe(path, overrides)
    return resolve_paths(read_recipe(path, overrides), path.absolute().parent)


def _check_task_flags(overrides: Sequence[Override]) -> None:
    """Refuse flags for tables that each of several tasks has."""
    problems = [
        Problem(
            override.flag,
            f"a recipe of several tasks has no table [{override.path[0]}] for all of them",
            f"Write it in a [[task]]; for the first one: --set task.0.{'.'.join(override.path)}=VALUE.",
        )
        for override in overrides
        if override.path[0] in ("data", "head", "objective")
    ]
    if problems:
        raise RecipeError(problems)


def gather_overrides(flags: Sequence[tuple[str, str, object]], settings: Sequence[str]) -> list[Override]:
    """The overrides that flags, as ``(recipe key, flag, value)``, and ``--set`` give."""
    from nearfar.recipe import Override, parse_override

    here = Path.cwd()
    overrides: list[Override] = []
    problems: list[Problem] = []
    for key, flag, value in flags:
        overrides.append(Override(tuple(key.split(".")), _from_here(key, value, here), f"{flag} {value}"))
    for text in settings:
        try:
            override = parse_override(text)
            key = ".".join(override.path)
            overrides.append(Override(override.path, _from_here(key, override.value, here), override.flag))
        except RecipeError as error:
            problems.extend(error.problems)
    if problems:
        raise RecipeError(problems)
    return overrides


def _from_here(key: str, value: object, here: Path) -> object:
    """Paths in flags are relative to the current folder, not to that of the recipe; shares become numbers."""
    if not isinstance(value, str):
        return value
    key = ".".join(key.split(".")[-2:])
    if key in FOLDERS and os.path.isdir(here / value):
        return str(here / value)
    if key not in FILES:
        return value
    try:
        return float(value)
    except ValueError:
        pass
    if value in ("auto", "-") or value.startswith(("hub:", "sample:")):
        return value
    if value == "none":
        return None
    return str(here / Path(value).expanduser())
