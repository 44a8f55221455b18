"""``nearfar train``: a recipe or a data file, and flags, to a trained model."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nearfar.cli import options
from nearfar.errors import OutputError, Problem, RecipeError

if TYPE_CHECKING:
    from nearfar.recipe import Override, Recipe

FILES = ("data.train", "data.dev", "data.test")
FOLDERS = ("encoder.name", "objective.weighting")
"""Keys that may name a file or a folder; those of tasks and stages end in the same way."""


def train(
    source: Annotated[
        str | None,
        typer.Argument(help=f"A recipe (.toml), or the training data: {options.DATA_HELP}", metavar="RECIPE|FILE"),
    ] = None,
    out: Annotated[Path, typer.Option("--out", help="Folder for the model.")] = Path("model"),
    objective: Annotated[str | None, typer.Option(help="Training objective; see 'nearfar objectives'.")] = None,
    encoder: options.Encoder = None,
    dev: Annotated[str | None, typer.Option(help="Dev data: a file, or a share such as 0.1.")] = None,
    test: Annotated[str | None, typer.Option(help="Test data: a file, or a share such as 0.1.")] = None,
    text: options.Text = None,
    pair: options.Pair = None,
    label: options.Label = None,
    score: options.Score = None,
    invalid: options.Invalid = None,
    epochs: Annotated[int | None, typer.Option(help="Passes over the training data.")] = None,
    batch_size: Annotated[int | None, typer.Option(help="Rows in a batch.")] = None,
    learning_rate: Annotated[float | None, typer.Option(help="Peak learning rate of the encoder.")] = None,
    max_length: Annotated[int | None, typer.Option(help="Tokens at which a text is truncated.")] = None,
    pooling: Annotated[str | None, typer.Option(help="first, mean or pooler.")] = None,
    precision: Annotated[str | None, typer.Option(help="auto, fp32 or bf16.")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of all random numbers.")] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Any recipe key, e.g. training.warmup=0.1.")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue the interrupted run in --out.")] = False,
    overwrite: options.Overwrite = False,
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
        ("data.score", "--score", score),
        ("data.invalid", "--invalid", invalid),
        ("training.epochs", "--epochs", epochs),
        ("batches.size", "--batch-size", batch_size),
        ("training.learning_rate", "--learning-rate", learning_rate),
        ("encoder.max_length", "--max-length", max_length),
        ("encoder.pooling", "--pooling", pooling),
        ("training.precision", "--precision", precision),
        ("seed", "--seed", seed),
    )
    if resume and overwrite:
        raise OutputError("--resume continues the run in --out and --overwrite removes it: give one of them.")
    from nearfar.cli.tasks import recipe_with_tasks, train_tasks_command

    overrides = gather_overrides(flags, set_ or [])
    if (tasks := recipe_with_tasks(source, out, resume=resume)) is not None:
        train_tasks_command(tasks, out, overrides, resume=resume, overwrite=overwrite, dry_run=dry_run)
        return
    recipe = gather_recipe(source, out, overrides, resume=resume)
    if dry_run:
        from nearfar.pipeline.data import read_data
        from nearfar.pipeline.rows import check_targets
        from nearfar.pipeline.stages import plan_stages, written
        from nearfar.recipe import to_toml

        data = read_data(recipe)
        check_targets(data)
        stages, notes = plan_stages(recipe, data)
        for note in (*data.notes, *notes):
            sys.stderr.write(f"note: {note}\n")
        sys.stdout.write(to_toml(written(stages)))
        return
    from rich.console import Console

    from nearfar.cli.tables import report_table
    from nearfar.pipeline import run

    console = Console(stderr=True)
    summary = run(recipe, out, resume=resume, overwrite=overwrite, console=console)
    if summary.progress is None or not _first_process():
        return
    for name, report in summary.reports.items():
        console.print(report_table(report, f"{name}: {report.rows:,} rows"))
    best = summary.progress.best
    if best is not None and best["step"]:  # step 0 was reported when training ended
        console.print(f"kept the weights of step {best['step']}, the best on the dev rows", highlight=False)
    use = "predict" if summary.classifies else "embed"
    console.print(f"saved to {out}; try: nearfar {use} {out} FILE", highlight=False, soft_wrap=True, markup=False)


def gather_recipe(source: str | None, out: Path, overrides: Sequence[Override], *, resume: bool) -> Recipe:
    """The recipe of a file, of a folder to resume, or of flags alone, with the overrides."""
    from nearfar.recipe import build_recipe, read_recipe, resolve_paths

    if source is None:
        stored = out / "recipe.toml"
        if not resume:
            message, remedy = "neither a recipe nor a data file is given", "Write: nearfar train FILE --out model/"
            raise RecipeError([Problem("nearfar train", message, remedy)])
        if not stored.is_file():
            raise OutputError(f"{out}: there is no run to resume; name the recipe or the data file as well.")
        return resolve_paths(read_recipe(stored, overrides), stored.parent.absolute())
    if source.endswith(".toml"):
        path = Path(source)
        return resolve_paths(read_recipe(path, overrides), path.absolute().parent)
    return resolve_paths(build_recipe({"data": {"train": source}}, overrides, where="nearfar train"), Path.cwd())


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


def _first_process() -> bool:
    return os.environ.get("RANK", "0") == "0"
