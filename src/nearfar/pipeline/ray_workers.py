"""Training by the workers of a Ray cluster: the same loop as everywhere, started and restarted by Ray Train.

Ray Train places the workers, makes their process group, and starts all of them again when one is lost. Everything else
is in the folder of the run, which all workers can write to: a worker that starts again resumes from the newest whole
checkpoint, as ``--resume`` does. In an object store, the first worker keeps a copy of its folder there.
"""

from __future__ import annotations

import importlib
import importlib.util
import logging
import secrets
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from nearfar.cluster import connected, refuse_impossible
from nearfar.encoding.model_folder import CARD
from nearfar.errors import NearfarError, OutputError, ProcessError, SettingError
from nearfar.pipeline.output import RECIPE, holds_run
from nearfar.pipeline.train import Summary, train
from nearfar.recipe import Recipe
from nearfar.recipe.tasks import TaskRecipe
from nearfar.shards.mirror import OWN, RunMirror
from nearfar.shards.run import alone
from nearfar.shards.storage import Storage
from nearfar.training import Callback

LOST = 20
"""How often workers may be lost in a run before it is given up."""
PAUSE = 0.2
"""Seconds between two looks at what the first worker has reported."""


@dataclass(frozen=True, kw_only=True)
class RayWorkers:
    """Where a training runs."""

    workers: int = 1
    """Processes; each has a share of every batch."""
    address: str = "auto"
    """Of the cluster; ``auto`` finds the one of this machine."""
    cpus: float = 1
    """Of each worker."""
    gpus: float = 0
    """Of each worker."""


@dataclass(frozen=True)
class _Job:
    """What a worker is to do."""

    recipe: Recipe | TaskRecipe
    out: str
    remote: bool
    """Whether ``out`` is in an object store."""
    run: str
    """Tells this run from others."""
    resume: bool
    overwrite: bool
    before: tuple[int, int] | None
    """What tells the recipe file apart that was in the folder before the run; None: there was none."""
    events: Any
    """The actor that takes what is reported."""


class _Events:
    """An actor: what the first worker reports, in the order it comes, and why the run must end."""

    def __init__(self) -> None:
        self.waiting: list[tuple[str, Any]] = []
        self.error: tuple[type[NearfarError], Any] | None = None

    def add(self, name: str, value: Any = None) -> None:
        self.waiting.append((name, value))

    def take(self) -> list[tuple[str, Any]]:
        waiting, self.waiting = self.waiting, []
        return waiting

    def refuse(self, kind: type[NearfarError], content: Any) -> None:
        self.error = self.error or (kind, content)

    def refused(self) -> tuple[type[NearfarError], Any] | None:
        return self.error


class _Reporter(Callback):
    """Sends what a callback receives to the process that started the run."""

    def __init__(self, events: Any, named: Callable[[str], str]) -> None:
        self.events, self.named = events, named

    def message(self, text: str) -> None:
        self.events.add.remote("message", self.named(text))

    def begin(self, steps: int) -> None:
        self.events.add.remote("begin", steps)

    def step(self, entry: Any) -> None:
        self.events.add.remote("step", entry)

    def evaluation(self, entry: Any) -> None:
        self.events.add.remote("evaluation", entry)

    def end(self) -> None:
        self.events.add.remote("end")


def train_on_ray(
    recipe: Recipe | TaskRecipe,
    out: Path | str,
    where: RayWorkers,
    *,
    resume: bool = False,
    overwrite: bool = False,
    callbacks: Sequence[Callback] = (),
) -> Summary:
    """Train by the workers of a cluster; see :func:`nearfar.pipeline.train` for the other arguments.

    Args:
        recipe: what to train; its files and its encoder are read by every worker.
        out: the folder of the model, which all nodes share, or a URI such as ``s3://bucket/model``.
        where: the cluster and its workers.
        resume: continue the run in the folder.
        overwrite: replace what is in the folder.
        callbacks: follow the run: its messages, steps and evaluations.
    """
    place = Storage(str(out))
    if not place.local and not _check_remote(place, recipe, resume=resume, overwrite=overwrite):
        for callback in callbacks:
            callback.message(f"{out}: this run has finished; there is nothing to resume.")
        return Summary(Path(str(out)), None, {}, {})
    with connected(where.address) as ray, nullcontext() if place.local else alone(place):
        wanted = {
            "CPU": ("--workers", where.workers * where.cpus),
            "GPU": ("--gpus-per-worker", where.workers * where.gpus),
        }
        refuse_impossible(ray.cluster_resources(), wanted)
        _require_package(ray)
        here = _on_node(ray.get_runtime_context().get_node_id())  # a lost node must not take them along
        events = ray.remote(_Events).options(num_cpus=0, scheduling_strategy=here).remote()
        run, folder = secrets.token_hex(8), place.path if place.local else place.name
        before = _stamp(Path(folder)) if place.local else None
        job = _Job(recipe, folder, not place.local, run, resume, overwrite, before, events)
        storage = tempfile.mkdtemp(prefix="nearfar-ray-")
        try:
            with _Shown(ray, events, callbacks) as shown:
                _fit(job, where, storage)
        except Exception as cause:
            raise ProcessError(
                f"{out}: workers of this run were lost more than {LOST} times, so it was given up: {_first(cause)}. "
                "The same command with --resume continues from the last checkpoint."
            ) from cause
        finally:
            shutil.rmtree(storage, ignore_errors=True)
        refused = ray.get(events.refused.remote())
        if refused is not None:
            kind, content = refused
            raise kind(content)
        assert shown.summary is not None
        return replace(shown.summary, out=Path(str(out)))


def _check_remote(place: Storage, recipe: Recipe | TaskRecipe, *, resume: bool, overwrite: bool) -> bool:
    """Refuse an object store that has something else; returns False when the run in it has finished."""
    if isinstance(recipe, TaskRecipe) and recipe.stage:
        raise SettingError(f"{place.name}: stages before tasks need a folder that all nodes share, no object store.")
    names = {name.partition("/")[0] for name in place.listing(recursive=True)} - OWN
    if names and not holds_run(names):
        raise OutputError(
            f"{place.name}: there is something else than a model of nearfar ({min(names)}), so it is not replaced. "
            "Choose another --out."
        )
    if names and not (resume or overwrite):
        raise OutputError(
            f"{place.name}: there is a model or a run already. Continue it with --resume, replace it with --overwrite, "
            "or choose another --out."
        )
    return not (resume and CARD in names)


def _fit(job: _Job, where: RayWorkers, storage: str) -> None:
    """Run the workers to their end, through the loss of some of them."""
    library: Any = importlib.import_module("ray.train")
    torch_trainer: Any = importlib.import_module("ray.train.torch")
    resources = {"CPU": where.cpus, **({"GPU": where.gpus} if where.gpus else {})}
    trainer = torch_trainer.TorchTrainer(
        _work,
        train_loop_config={"job": job},
        scaling_config=library.ScalingConfig(
            num_workers=where.workers, use_gpu=where.gpus > 0, resources_per_worker=resources
        ),
        run_config=library.RunConfig(
            storage_path=storage,
            failure_config=library.FailureConfig(max_failures=LOST),
            logging_config=library.LoggingConfig(log_level="ERROR"),
        ),
    )
    logging.getLogger("ray").setLevel(logging.CRITICAL)
    trainer.fit()


def _work(config: dict[str, Any]) -> None:
    """A worker: the whole run, from its beginning or from where the workers before have left it."""
    import ray
    import torch

    job: _Job = config["job"]
    if ray.get(job.events.refused.remote()) is not None:
        return  # Ray has started the workers again, but the run cannot succeed
    rank = torch.distributed.get_rank() if torch.distributed.is_initialized() else 0
    out, mirror = Path(job.out), None
    if job.remote:
        out = Path(tempfile.gettempdir()) / f"nearfar-run-{job.run}-{rank}"
        shutil.rmtree(out, ignore_errors=True)
        mirror = RunMirror(out, job.out, job.run)
        begun = mirror.begun()
        if begun or job.resume:
            mirror.pull()
    else:
        begun = job.before != _stamp(out) and (out / RECIPE).exists()
    if torch.distributed.is_initialized():
        torch.distributed.barrier()  # all have looked before the first one begins

    def named(text: str) -> str:
        return text.replace(str(out), job.out)

    try:
        summary = train(
            job.recipe, out, resume=job.resume or begun, overwrite=job.overwrite and not begun,
            callbacks=[_Reporter(job.events, named)] if rank == 0 else [], mirror=mirror,
        )  # fmt: skip
    except ProcessError:
        raise  # another worker is lost: Ray starts all of them again
    except NearfarError as error:
        content = getattr(error, "problems", None) or named(str(error))
        ray.get(job.events.refuse.remote(type(error), content))
        raise
    finally:
        if job.remote:
            shutil.rmtree(out, ignore_errors=True)
    if rank == 0:
        ray.get(job.events.add.remote("summary", summary))


class _Shown:
    """Passes what the first worker reports on to callbacks, in a thread, while the workers run."""

    def __init__(self, ray: Any, events: Any, callbacks: Sequence[Callback]) -> None:
        self.ray, self.events, self.callbacks = ray, events, callbacks
        self.summary: Summary | None = None
        self._begun = False
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> _Shown:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _run(self) -> None:
        last = False
        while not last:
            last = self._done.is_set()  # and one look more, for what came before
            for name, value in self.ray.get(self.events.take.remote()):
                self._pass_on(name, value)
            time.sleep(0 if last else PAUSE)

    def _pass_on(self, name: str, value: Any) -> None:
        if name == "summary":
            self.summary = value
            return
        if name == "begin" and self._begun:  # the worker that was to report the end is lost
            self._pass_on("end", None)
        if name in ("begin", "end"):
            self._begun = name == "begin"
        for callback in self.callbacks:
            method = getattr(callback, name)
            method() if name == "end" else method(value)


def _stamp(out: Path) -> tuple[int, int] | None:
    """What tells the recipe file of a folder from another one of the same name."""
    try:
        state = (out / RECIPE).stat()
    except OSError:
        return None
    return state.st_mtime_ns, state.st_ino


def _on_node(node: str) -> Any:
    """Schedules something on one node and no other."""
    strategies: Any = importlib.import_module("ray.util.scheduling_strategies")
    return strategies.NodeAffinitySchedulingStrategy(node, soft=False)


def _require_package(ray: Any) -> None:
    """Refuse a cluster with nodes that lack this package, or what Ray Train needs."""

    def missing() -> str | None:  # travels as it is: a node without the package could not look it up
        try:
            importlib.import_module("nearfar")
        except ImportError as error:
            return f"nearfar ({error})"
        lacks = [name for name in ("torch", "pydantic", "requests") if importlib.util.find_spec(name) is None]
        return lacks[0] if lacks else None

    nodes = [node for node in ray.nodes() if node["Alive"] and node["Resources"].get("CPU", 0) > 0]
    task = ray.remote(missing)
    checks = [task.options(num_cpus=0, scheduling_strategy=_on_node(node["NodeID"])).remote() for node in nodes]
    for node, check in zip(nodes, checks, strict=True):
        lacks = ray.get(check)
        if lacks is not None:
            raise SettingError(
                f"the Ray node {node['NodeManagerAddress']} cannot import {lacks}: install nearfar[ray] in the same "
                "version on every node, and start the cluster in that environment."
            )


def _first(error: BaseException) -> str:
    """The first line of an error message, without its full stop."""
    lines = str(error).strip().splitlines()
    return (lines[0] if lines else type(error).__name__).rstrip(".")
