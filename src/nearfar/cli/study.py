"""The verbs below ``nearfar study``, and their flags."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

study_app = typer.Typer(
    name="study",
    help="Compare contenders over data sets, seeds and folds.",
    no_args_is_help=True,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@study_app.command()
def run(
    file: Annotated[Path, typer.Argument(help="A study file (.toml).", metavar="FILE")],
    out: Annotated[
        Path | None, typer.Option("--out", help="Folder of the study; unset: beside FILE, under its name.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the plan, the trials and how long they will take, and stop.")
    ] = False,
    retry_failed: Annotated[bool, typer.Option("--retry-failed", help="Run trials again that failed before.")] = False,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Processes on this machine; unset: one for each core.")
    ] = None,
    threads: Annotated[
        int | None, typer.Option(min=1, help="Threads of each process; unset: one, or more if cores are left.")
    ] = None,
    on: Annotated[str, typer.Option("--on", metavar="local|ray", help="Where trials run.")] = "local",
    address: Annotated[str, typer.Option(help="Of the Ray cluster; auto finds the one of this machine.")] = "auto",
    cpus_per_trial: Annotated[float, typer.Option(min=0.1, help="CPUs of each trial on Ray.")] = 1,
    gpus_per_trial: Annotated[float, typer.Option(min=0, help="GPUs of each trial on Ray.")] = 0,
) -> None:
    """Run a study, or what is left of it: finished trials are never run again."""
    from nearfar.cli.study_actions import study_dry_run, study_run_command
    from nearfar.cluster import require_ray
    from nearfar.errors import SettingError
    from nearfar.experiments.local_executor import LocalExecutor
    from nearfar.experiments.ray_executor import RayExecutor
    from nearfar.experiments.trial_runner import Executor

    if on not in ("local", "ray"):
        raise SettingError(f"--on is local or ray, got {on!r}.")
    executor: Executor = LocalExecutor(workers, threads)
    if on == "ray":
        require_ray()
        executor = RayExecutor(address, cpus_per_trial, gpus_per_trial)
    if dry_run:
        study_dry_run(file, out, executor, retry_failed=retry_failed)
    else:
        study_run_command(file, out, executor, retry_failed=retry_failed)


@study_app.command()
def show(folder: Annotated[Path, typer.Argument(help="The folder of a study.", metavar="STUDY")]) -> None:
    """Print the table of a study and what may be said of it, finished or not."""
    from nearfar.cli.study_actions import study_show_command

    study_show_command(folder)
