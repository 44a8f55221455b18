"""Progress on standard error: a live bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TaskProgressColumn, TextColumn

from nearfar.cli.options import open_console
from nearfar.errors import duration

if TYPE_CHECKING:
    from nearfar.encoding import TextModel
    from nearfar.training.contracts import Callback, EvaluationEntry, StepEntry

SECONDS = 10.0
"""Time between the lines of work that usually takes seconds, where there is no terminal."""
DELAY = 1.0
"""After how many seconds such work gets a bar on a terminal."""


class EmbeddingProgress:
    """How many texts are done, how fast, and the time left; a context that releases the terminal at its end.

    Args:
        total: texts to embed.
        start: texts that an earlier process has embedded.
        lines: whether to print lines where there is no terminal.
        brief: for work that usually takes seconds: the bar comes after one and goes away at the end, and lines come
            every 10 seconds.
    """

    def __init__(self, total: int, start: int = 0, *, lines: bool = True, brief: bool = False) -> None:
        self.total = total
        self.start = start
        self.lines = lines
        self.done = self.printed = start
        self.brief = brief
        self.began = self.last = time.perf_counter()
        console = open_console(stderr=True)
        self.bar: Progress | None = None
        if console.is_terminal:
            speed = TextColumn("{task.fields[speed]} texts/s  {task.fields[left]} left")
            self.bar = Progress(
                TextColumn("embedding"), BarColumn(), MofNCompleteColumn(), speed, console=console, transient=brief
            )
            self.task = self.bar.add_task("", total=total, completed=start, speed="-", left="-")

    def __enter__(self) -> EmbeddingProgress:
        if self.bar is not None and not self.brief:
            self.bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self.bar is not None:
            self.bar.stop()

    def add(self, texts: int) -> None:
        """Move the bar by texts that are computed but not written; lines only count what is written."""
        if self.bar is not None:
            self.reach(self.done + texts)

    def reach(self, done: int) -> None:
        """Show that this many texts are done; a line is printed about 20 times, and not for the last text."""
        self.done = done
        now = time.perf_counter()
        per_second = (done - self.start) / max(now - self.began, 1e-9)
        speed, left = f"{per_second:,.0f}", duration((self.total - done) / per_second) if per_second else "-"
        if self.bar is not None:
            self.bar.update(self.task, completed=done, speed=speed, left=left)
            if self.brief and done < self.total and now - self.began >= DELAY:
                self.bar.start()
        elif (
            self.lines
            and done - self.printed >= self.total / LINES
            and done < self.total
            and (not self.brief or now - self.last >= SECONDS)
        ):
            self.printed, self.last = done, now
            sys.stderr.write(f"{done:,}/{self.total:,} texts  {speed} texts/s  {left} left\n")


@contextmanager
def embedding_progress(model: TextModel, total: int) -> Iterator[None]:
    """Show how many of so many texts a model has encoded within the block."""
    with EmbeddingProgress(total, brief=True) as progress:
        handle = model.register_forward_hook(
            lambda _model, _inputs, output: progress.reach(progress.done + len(output.embedding))
        )
        try:
            yield
        finally:
            handle.remove()


@contextmanager
def search_progress() -> Iterator[Callable[[float], None]]:
    """Show the share of a search that is done: a bar that goes away, or a line every 10 seconds."""
    console = open_console(stderr=True)
    began = last = time.perf_counter()

    def lines(share: float) -> None:
        nonlocal last
        if time.perf_counter() - last >= SECONDS:
            last = time.perf_counter()
            sys.stderr.write(f"searching: {share:.0%}\n")

    if not console.is_terminal:
        yield lines
        return
    bar = Progress(TextColumn("searching"), BarColumn(), TaskProgressColumn(), console=console, transient=True)
    task = bar.add_task("", total=1.0)

    def move(share: float) -> None:
        bar.update(task, completed=share)
        if share < 1 and time.perf_counter() - began >= DELAY:
            bar.start()  # not before the search: texts may have to be embedded first, with a bar of their own

    try:
        yield move
    finally:
        bar.stop()


LINES = 20
"""About how many lines a plain log has, evaluations aside."""


def console_callback(console: Console | None = None) -> Callback:
    """What shows a run on a console, standard error by default."""
    console = console or open_console(stderr=True)
    return LiveBar(console) if console.is_terminal else PlainLog(console)


class LiveBar:
    """A bar with loss, dev metric, texts per second and time left."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.dev = ""
        self.bar: Progress | None = None

    def message(self, text: str) -> None:
        """Print a line, above the bar where there is one."""
        self.console.print(text, highlight=False, soft_wrap=True, markup=False)

    def begin(self, steps: int) -> None:
        """Start a bar of so many steps."""
        self.bar = Progress(
            SpinnerColumn(), TextColumn("epoch {task.fields[epoch]}"), BarColumn(), MofNCompleteColumn(),
            TextColumn("loss {task.fields[loss]}{task.fields[dev]}  {task.fields[speed]} texts/s"),
            TextColumn("{task.fields[left]} left"), console=self.console, transient=False,
        )  # fmt: skip
        self.task = self.bar.add_task("", total=steps, epoch=1, loss="-", dev="", speed="-", left="-")
        self.clock = Clock(steps)
        self.bar.start()

    def step(self, entry: StepEntry) -> None:
        """Move the bar."""
        assert self.bar is not None
        left, speed = self.clock.tick(entry)
        self.bar.update(
            self.task,
            completed=entry["step"],
            epoch=entry["epoch"],
            loss=f"{entry['loss']:.4f}",
            dev=self.dev,
            speed=f"{speed:.0f}",
            left=duration(left),
        )

    def evaluation(self, entry: EvaluationEntry) -> None:
        """Show the dev metric from now on."""
        self.dev = f"  dev {entry['metric']} {entry['scores'][entry['metric']]:.4f}"
        self.message(evaluation_line(entry))

    def end(self) -> None:
        """Stop the bar and give the terminal back."""
        if self.bar is not None:
            self.bar.stop()
            self.bar = None


class PlainLog:
    """A line now and then, for files and pipes."""

    def __init__(self, console: Console) -> None:
        self.console = console

    def message(self, text: str) -> None:
        """Print a line."""
        self.console.print(text, highlight=False, soft_wrap=True, markup=False)

    def begin(self, steps: int) -> None:
        """Spread the lines over the steps."""
        self.every = max(1, steps // LINES)
        self.clock = Clock(steps)

    def step(self, entry: StepEntry) -> None:
        """Print every so often."""
        left, speed = self.clock.tick(entry)
        if entry["step"] % self.every == 0 or entry["step"] == entry["steps"]:
            self.message(
                f"step {entry['step']}/{entry['steps']}  epoch {entry['epoch']}  loss {entry['loss']:.4f}  "
                f"{speed:.0f} texts/s  {duration(left)} left"
            )

    def evaluation(self, entry: EvaluationEntry) -> None:
        """Print the dev scores."""
        self.message(evaluation_line(entry))

    def end(self) -> None:
        """Nothing is left to do."""


class Clock:
    """Time left and speed, from the recent steps of this process."""

    def __init__(self, steps: int) -> None:
        self.steps = steps
        self.began = time.perf_counter()
        self.first: int | None = None
        self.speed = 0.0

    def tick(self, entry: StepEntry) -> tuple[float, float]:
        """Seconds left, texts per second."""
        if self.first is None:
            self.first = entry["step"] - 1
        done = entry["step"] - self.first
        per_step = (time.perf_counter() - self.began) / done
        now = entry["texts_per_second"]
        self.speed = now if done == 1 else 0.9 * self.speed + 0.1 * now
        return per_step * (self.steps - entry["step"]), self.speed


def evaluation_line(entry: EvaluationEntry) -> str:
    """One line on an evaluation."""
    scores = "  ".join(f"{name} {value:.4f}" for name, value in entry["scores"].items())
    mark = "  (best so far)" if entry["best"] else ""
    end = "  no gain for too long: stopping" if entry["stopped"] else ""
    return f"dev after step {entry['step']}: {scores}{mark}{end}"
