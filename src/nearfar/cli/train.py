"""``nearfar train``: flags and recipe to a run."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from nearfar.errors import OutputError, Problem, RecipeError
from nearfar.recipe import Override, Recipe, build_recipe, parse_override, read_recipe, resolve_paths, to_toml

FILES = ("data.train", "data.dev", "data.test")
FOLDERS = ("encoder.name", "objective.weighting")
"""Keys that may name a file or a folder; those of tasks and stages end in the same way."""


def train_command(
    source: str | None,
    out: Path,
    given: Sequence[tuple[str, str, object]],
    settings: Sequence[str],
    *,
    resume: bool,
    overwrite: bool,
    dry_run: bool,
) -> None:
    """Put the recipe together, run it, and say what came out."""
    if resume and overwrite:
        raise OutputError("--resume continues the run in --out and --overwrite removes it: give one of them.")
    from nearfar.cli.tasks import recipe_with_tasks, train_tasks_command

    if (tasks := recipe_with_tasks(source, out, resume=resume)) is not None:
        laid_over = gather_overrides(given, settings)
        train_tasks_command(tasks, out, laid_over, resume=resume, overwrite=overwrite, dry_run=dry_run)
        return
    recipe = gather_recipe(source, out, given, settings, resume=resume)
    if dry_run:
        from nearfar.pipeline.data import read_data
        from nearfar.pipeline.rows import check_targets
        from nearfar.pipeline.stages import plan_stages, written

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
    if best is not None and best["step"]:  # step 0 was told of when the training ended
        console.print(f"kept the weights of step {best['step']}, the best on the dev rows", highlight=False)
    use = "predict" if summary.classifies else "embed"
    console.print(f"saved to {out}; try: nearfar {use} {out} FILE", highlight=False, soft_wrap=True, markup=False)


def gather_recipe(
    source: str | None, out: Path, given: Sequence[tuple[str, str, object]], settings: Sequence[str], *, resume: bool
) -> Recipe:
    """The recipe of a file, a folder to resume, or of flags alone; every flag lies over it."""
    here = Path.cwd()
    overrides = gather_overrides(given, settings)
    if source is None:
        stored = out / "recipe.toml"
        if not resume:
            problem = Problem(
                "nearfar train", "neither a recipe nor a data file is given", "Write: nearfar train FILE --out model/"
            )
            raise RecipeError([problem])
        if not stored.is_file():
            raise OutputError(f"{out}: there is no run to resume; name the recipe or the data file as well.")
        return resolve_paths(read_recipe(stored, overrides), stored.parent.absolute())
    if source.endswith(".toml"):
        path = Path(source)
        return resolve_paths(read_recipe(path, overrides), path.absolute().parent)
    return resolve_paths(build_recipe({"data": {"train": source}}, overrides, where="nearfar train"), here)


def gather_overrides(given: Sequence[tuple[str, str, object]], settings: Sequence[str]) -> list[Override]:
    """What flags and ``--set`` lay over a recipe."""
    here = Path.cwd()
    overrides, problems = list[Override](), list[Problem]()
    for key, flag, value in given:
        spoken = f"{flag} {value}"
        overrides.append(Override(tuple(key.split(".")), _from_here(key, value, here), spoken))
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
    """Files named by flags count from the current folder, not from that of the recipe; shares become numbers."""
    if not isinstance(value, str):
        return value
    own = ".".join(key.split(".")[-2:])
    if own in FOLDERS and os.path.isdir(here / value):
        return str(here / value)
    if own not in FILES:
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
