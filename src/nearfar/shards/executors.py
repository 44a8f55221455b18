"""Where shards are computed: in this process, in processes of this machine, or as tasks of a Ray cluster."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

from nearfar.cluster import connected, refuse_impossible
from nearfar.errors import NearfarError, SettingError, counted

ATTEMPTS = 3
"""How often work is begun again that was lost with a process or a node."""
WAITING = 4
"""Tasks for each processor of a cluster that are submitted at a time."""
PACKAGE = "No module named 'nearfar"

Task = Callable[[Any, Any], Any]
"""Takes what all jobs have in common, and a job. A function of a module, so that other processes can import it."""


class Executor(Protocol):
    """Runs jobs, in any order."""

    @property
    def threads(self) -> int:
        """Of each worker."""
        ...

    def session(self) -> AbstractContextManager[Session]:
        """What runs jobs, until the end of the block."""
        ...


class Session(Protocol):
    """An executor at work."""

    travels: bool
    """Whether workers may be on other machines."""

    def share(self, value: Any) -> Any:
        """A large value for all workers, which they get by :func:`fetched`."""
        ...

    def run(
        self, task: Task, common: Any, jobs: Mapping[int, Any], *, small: bool = False
    ) -> Iterator[tuple[int, Any]]:
        """Run all jobs; gives their numbers and results as they are done. What is lost is begun again.

        ``small`` says that starting processes would take longer than the jobs.
        """
        ...


def cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def node_name() -> str:
    """The name of this machine."""
    return os.uname().nodename if hasattr(os, "uname") else "this machine"


def fetched(shared: Any) -> Any:
    """A value that :meth:`Session.share` has sent."""
    kind, value = shared
    if kind == "here":
        return value
    import ray

    return ray.get(value)


@dataclass(frozen=True)
class LocalExecutor:
    """Processes on this machine; a single one is this process."""

    workers: int | None = None
    """None for one for each core, or for each GPU."""
    threads: int = 1

    @contextmanager
    def session(self) -> Iterator[Session]:
        """Nothing has to be prepared."""
        yield _LocalSession(self.workers, self.threads)


class _LocalSession:
    travels = False

    def __init__(self, workers: int | None, threads: int) -> None:
        self.workers, self.threads = workers or max(1, cores() // threads), threads
        self.chosen = workers is not None

    def share(self, value: Any) -> Any:
        return "here", value

    def run(
        self, task: Task, common: Any, jobs: Mapping[int, Any], *, small: bool = False
    ) -> Iterator[tuple[int, Any]]:
        if min(self.workers, len(jobs)) <= 1 or (small and not self.chosen):
            with _torch_threads(self.threads):
                for number, job in jobs.items():
                    yield number, task(common, job)
            return
        left, lost = dict(jobs), 0
        while left:
            before = len(left)
            try:
                for number, result in self._pass(task, common, dict(left)):
                    del left[number]
                    yield number, result
            except BrokenProcessPool:
                lost = lost + 1 if len(left) == before else 1
                if lost >= ATTEMPTS:
                    raise NearfarError(
                        f"the processes ended {counted(lost, 'time')} without finishing one of {len(left):,} parts: is "
                        "there too little memory (fewer --workers)? In a script, call this function below "
                        "if __name__ == '__main__'."
                    ) from None

    def _pass(self, task: Task, common: Any, jobs: Mapping[int, Any]) -> Iterator[tuple[int, Any]]:
        context = multiprocessing.get_context("spawn")  # threads of torch do not survive a fork
        size = min(self.workers, len(jobs))
        others = {*multiprocessing.active_children()}
        with _environment(self.threads):
            pool = ProcessPoolExecutor(size, context, initializer=_begin, initargs=(os.getpid(),))
            waiting = iter(jobs.items())
            running: dict[Any, int] = {}
            try:
                while True:
                    for number, job in waiting:
                        running[pool.submit(task, common, job)] = number
                        if len(running) >= WAITING * size:
                            break
                    if not running:
                        break
                    done, _ = wait(running, return_when=FIRST_COMPLETED)
                    for future in done:
                        yield running.pop(future), future.result()
                pool.shutdown()
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                for child in {*multiprocessing.active_children()} - others:
                    child.terminate()
                pool.shutdown()
                raise


def _begin(parent: int) -> None:
    """In each process of a pool: Ctrl-C is for the parent, and without the parent there is nothing to do."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


@contextmanager
def _environment(threads: int) -> Iterator[None]:
    """The number of threads for new processes."""
    names = {"OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads), "TOKENIZERS_PARALLELISM": "false"}
    before = {name: os.environ.get(name) for name in names}
    os.environ.update(names)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@contextmanager
def _torch_threads(threads: int) -> Iterator[None]:
    """So many threads of torch and faiss in this process; afterwards as many as before."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@dataclass(frozen=True)
class RayExecutor:
    """Tasks of a Ray cluster that is there already."""

    address: str = "auto"
    workers: int | None = None
    """Tasks at a time; None for as many as the cluster has processors."""
    threads: int = 1
    """Processors of each task."""
    gpus: float = 0
    """GPUs of each task."""

    @contextmanager
    def session(self) -> Iterator[Session]:
        """Connect to the cluster."""
        with connected(self.address) as ray:
            wanted = {"CPU": ("--threads", float(self.threads)), "GPU": ("--gpus-per-worker", self.gpus)}
            refuse_impossible(ray.cluster_resources(), wanted)
            yield _RaySession(ray, self)


class _RaySession:
    travels = True

    def __init__(self, ray: Any, executor: RayExecutor) -> None:
        self.ray, self.executor = ray, executor

    def share(self, value: Any) -> Any:
        return "ray", self.ray.put(value)

    def run(
        self, task: Task, common: Any, jobs: Mapping[int, Any], *, small: bool = False
    ) -> Iterator[tuple[int, Any]]:
        del small  # the processes of a cluster are there
        ray, each = self.ray, self.executor
        remote = ray.remote(task).options(
            num_cpus=each.threads, num_gpus=each.gpus, max_retries=ATTEMPTS, scheduling_strategy="SPREAD"
        )
        reference = ray.put(common)
        waiting = iter(jobs.items())
        running: dict[Any, int] = {}
        try:
            while True:
                room = each.workers or WAITING * max(1, int(ray.cluster_resources().get("CPU", 1)) // each.threads)
                for number, job in waiting:
                    running[remote.remote(reference, job)] = number
                    if len(running) >= room:
                        break
                if not running:
                    return
                ready, _ = ray.wait(list(running), num_returns=1)
                for done in ready:
                    yield running.pop(done), self._result(done)
        finally:
            for left in running:
                ray.cancel(left, force=True)

    def _result(self, reference: Any) -> Any:
        try:
            return self.ray.get(reference)
        except self.ray.exceptions.RayError as error:
            text = str(error)
            if PACKAGE in text:
                raise SettingError(
                    "a node of the cluster does not have nearfar: install the same version on all nodes, pip install "
                    "nearfar."
                ) from None
            if isinstance(error, self.ray.exceptions.RayTaskError):
                raise
            first = (text.strip() or type(error).__name__).splitlines()[0]
            raise NearfarError(
                f"Ray gave a task up after {ATTEMPTS} retries: {first[:200].rstrip('.')}. What is done stays done: "
                "give the same command again."
            ) from None


def executor_for(on: str, workers: int | None, address: str, threads: int, gpus: float) -> Executor:
    """The executor that the flags of a command ask for."""
    if on not in ("local", "ray"):
        raise SettingError(f"--on is local or ray, got {on!r}.")
    return LocalExecutor(workers, threads) if on == "local" else RayExecutor(address, workers, threads, gpus)
