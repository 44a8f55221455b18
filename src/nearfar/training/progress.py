"""What a person sees of a run: a live bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn

from nearfar.training.contracts import EvaluationEntry, StepEntry

LINES = 20
"""About how many lines a plain log has, evaluations aside."""


class LiveBar:
    """A bar with loss, dev metric, texts per second and time left."""

    def __init__(self, console: Console, steps: int) -> None:
        self.steps = steps
        self.console = console
        self.dev = ""
        self.bar = Progress(
            SpinnerColumn(), TextColumn("epoch {task.fields[epoch]}"), BarColumn(), MofNCompleteColumn(),
            TextColumn("loss {task.fields[loss]}{task.fields[dev]}  {task.fields[speed]} texts/s"),
            TextColumn("{task.fields[left]} left"),
            console=console, transient=False,
        )  # fmt: skip
        self.task = self.bar.add_task("", total=steps, epoch=1, loss="-", dev="", speed="-", left="-")
        self.clock = Clock(steps)
        self.bar.start()

    def step(self, entry: StepEntry) -> None:
        """Move the bar."""
        left, speed = self.clock.tick(entry)
        self.bar.update(
            self.task, completed=entry["step"], epoch=entry["epoch"], loss=f"{entry['loss']:.4f}", dev=self.dev,
            speed=f"{speed:.0f}", left=duration(left),
        )  # fmt: skip

    def evaluation(self, entry: EvaluationEntry) -> None:
        """Show the dev metric from now on."""
        self.dev = f"  dev {entry['metric']} {entry['scores'][entry['metric']]:.4f}"
        self.bar.console.print(evaluation_line(entry), highlight=False)

    def message(self, text: str) -> None:
        """Print above the bar."""
        self.bar.console.print(text, highlight=False, markup=False)

    def begin(self, steps: int) -> None:
        """The bar was started when it was made."""

    def end(self) -> None:
        """Leave the bar as it is and give the terminal back."""
        self.bar.stop()


class PlainLog:
    """A line now and then, for files and pipes."""

    def __init__(self, console: Console, steps: int) -> None:
        self.console = console
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

    def message(self, text: str) -> None:
        """Print a line."""
        self.console.print(text, highlight=False, soft_wrap=True, markup=False)

    def begin(self, steps: int) -> None:
        """Nothing is shown before the first step."""

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
            self.first = int(entry["step"]) - 1
        done = entry["step"] - self.first
        per_step = (time.perf_counter() - self.began) / done
        now = float(entry["texts_per_second"])
        self.speed = now if done == 1 else 0.9 * self.speed + 0.1 * now
        return per_step * (self.steps - entry["step"]), self.speed


def evaluation_line(entry: EvaluationEntry) -> str:
    """One line on an evaluation."""
    scores = "  ".join(f"{name} {value:.4f}" for name, value in entry["scores"].items())
    mark = "  (best so far)" if entry["best"] else ""
    end = "  no gain for too long: stopping" if entry["stopped"] else ""
    return f"dev after step {entry['step']}: {scores}{mark}{end}"


def about(seconds: float) -> str:
    """An estimate of a time; nothing takes none.

    >>> about(0.2), about(200)
    ('about 1 s', 'about 3 min 20 s')
    """
    return f"about {duration(max(seconds, 1))}"


def duration(seconds: float) -> str:
    """A time as people say it.

    >>> duration(42), duration(200), duration(7300)
    ('42 s', '3 min 20 s', '2 h 1 min')
    """
    whole = round(seconds)
    if whole < 100:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"
