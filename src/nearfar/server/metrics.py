"""What the server counts, in the text format of Prometheus: of one process, or of several together."""

from __future__ import annotations

import bisect
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from nearfar.server.memory import resident_memory

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
TOKENS = (8, 16, 32, 64, 128, 256, 512, 1_024, 2_048, 4_096, 8_192, 16_384)

Labels = tuple[str, ...]
Values = dict[str, Any]
"""What each metric of a process has counted, by its name, as JSON has it."""


class Counter:
    """A number that only grows, for each combination of labels."""

    kind = "counter"

    def __init__(self, name: str, description: str, labels: Sequence[str] = ()) -> None:
        self.name, self.description, self.labels = name, description, tuple(labels)
        self._lock = threading.Lock()
        self._values: dict[Labels, float] = {} if labels else {(): 0.0}

    def add(self, amount: float = 1, *labels: str) -> None:
        """Count further ones."""
        with self._lock:
            self._values[labels] = self._values.get(labels, 0.0) + amount

    def value(self, *labels: str) -> float:
        """How many there are."""
        return self._values.get(labels, 0.0)

    def values(self) -> list[Any]:
        """What was counted, as JSON has it."""
        with self._lock:
            return [[labels, value] for labels, value in self._values.items()]

    def total(self, processes: Mapping[str, Any]) -> list[str]:
        """The samples of several processes, added."""
        whole = Counter(self.name, self.description, self.labels)
        for values in processes.values():
            for labels, value in values:
                whole.add(value, *labels)
        return whole.lines()

    def lines(self) -> list[str]:
        """The samples, a line each."""
        with self._lock:
            values = sorted(self._values.items())
        return [f"{self.name}{_braces(self.labels, labels)} {_number(value)}" for labels, value in values]


class Gauge:
    """A number that is looked up when it is asked for."""

    kind, labels = "gauge", ()

    def __init__(self, name: str, description: str, read: Callable[[], float]) -> None:
        self.name, self.description, self._read = name, description, read

    def values(self) -> float:
        """The number now."""
        return self._read()

    def total(self, processes: Mapping[str, Any]) -> list[str]:
        """The samples of several processes, each by itself."""
        return [
            f"{self.name}{_braces(('worker',), (process,))} {_number(value)}" for process, value in processes.items()
        ]

    def lines(self) -> list[str]:
        """The sample."""
        return [f"{self.name} {_number(self._read())}"]


class Histogram:
    """How values are distributed, for each combination of labels."""

    kind = "histogram"

    def __init__(self, name: str, description: str, bounds: Sequence[float], labels: Sequence[str] = ()) -> None:
        self.name, self.description, self.labels = name, description, tuple(labels)
        self.bounds = tuple(bounds)
        self._lock = threading.Lock()
        self._counts: dict[Labels, list[int]] = {}
        self._sums: dict[Labels, float] = {}

    def observe(self, value: float, *labels: str) -> None:
        """Add a value."""
        counts = [0] * (len(self.bounds) + 1)
        counts[bisect.bisect_left(self.bounds, value)] = 1
        self._add(counts, value, labels)

    def values(self) -> list[Any]:
        """What was counted, as JSON has it."""
        with self._lock:
            return [[labels, list(counts), self._sums[labels]] for labels, counts in self._counts.items()]

    def total(self, processes: Mapping[str, Any]) -> list[str]:
        """The samples of several processes, added."""
        whole = Histogram(self.name, self.description, self.bounds, self.labels)
        for values in processes.values():
            for labels, counts, total in values:
                whole._add(counts, total, tuple(labels))
        return whole.lines()

    def _add(self, counts: Sequence[int], total: float, labels: Labels) -> None:
        with self._lock:
            before = self._counts.get(labels, [0] * len(counts))
            self._counts[labels] = [one + other for one, other in zip(before, counts, strict=True)]
            self._sums[labels] = self._sums.get(labels, 0.0) + total

    def lines(self) -> list[str]:
        """The samples, a line each: cumulative counts, their sum and their number."""
        with self._lock:
            snapshot = [(labels, list(counts), self._sums[labels]) for labels, counts in sorted(self._counts.items())]
        lines = []
        for labels, counts, total in snapshot:
            reached = 0
            for bound, count in zip((*self.bounds, float("inf")), counts, strict=True):
                reached += count
                shown = "+Inf" if bound == float("inf") else f"{bound:g}"
                lines.append(f"{self.name}_bucket{_braces((*self.labels, 'le'), (*labels, shown))} {reached}")
            braces = _braces(self.labels, labels)
            lines += [f"{self.name}_sum{braces} {_number(total)}", f"{self.name}_count{braces} {reached}"]
        return lines


def _braces(names: Labels, values: Labels) -> str:
    if not names:
        return ""
    pairs = zip(names, values, strict=True)
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in pairs) + "}"


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(value)


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


class Metrics:
    """All metrics of a server."""

    def __init__(self) -> None:
        started = time.time()
        path = ("path",)
        self.requests = Counter("nearfar_requests_total", "Requests by path and status.", ("path", "status"))
        self.request_seconds = Histogram("nearfar_request_seconds", "Time of a request.", SECONDS, path)
        self.texts = Counter("nearfar_texts_total", "Texts that were computed, pairs as one.", path)
        self.tokens = Counter("nearfar_tokens_total", "Tokens that were computed.", path)
        self.queue_seconds = Histogram("nearfar_queue_seconds", "Time that texts waited for their batch.", SECONDS)
        self.compute_seconds = Histogram("nearfar_batch_seconds", "Time that a batch took.", SECONDS)
        self.batch_texts = Histogram("nearfar_batch_texts", "Texts of a batch.", SIZES)
        self.batch_tokens = Histogram("nearfar_batch_tokens", "Tokens of a batch.", TOKENS)
        self.reloads = Counter("nearfar_model_reloads_total", "Times the model was loaded again.", ("result",))
        self._all: list[Counter | Gauge | Histogram] = [
            self.requests, self.request_seconds, self.texts, self.tokens, self.queue_seconds, self.compute_seconds,
            self.batch_texts, self.batch_tokens, self.reloads,
            Gauge("process_start_time_seconds", "When the process started.", lambda: started),
            Gauge("process_resident_memory_bytes", "Memory of the process.", resident_memory),
        ]  # fmt: skip

    def gauge(self, name: str, description: str, read: Callable[[], float]) -> None:
        """Add a number that is looked up when it is asked for."""
        self._all.append(Gauge(name, description, read))

    def values(self, *, gauges: bool) -> Values:
        """The gauges, or all that was counted, as JSON has it."""
        return {metric.name: metric.values() for metric in self._all if isinstance(metric, Gauge) == gauges}

    def text(self, processes: Mapping[str, Values] | None = None) -> str:
        """All samples: of this process, or of several by their names, counters added and gauges side by side."""
        lines: list[str] = []
        for metric in self._all:
            lines += [f"# HELP {metric.name} {metric.description}", f"# TYPE {metric.name} {metric.kind}"]
            if processes is None:
                lines += metric.lines()
            else:
                lines += metric.total({name: of[metric.name] for name, of in processes.items() if metric.name in of})
        return "\n".join(lines) + "\n"
