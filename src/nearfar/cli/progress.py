"""Progress of computing embeddings on standard error: a bar on a terminal, lines elsewhere."""

from __future__ import annotations

import sys
import time
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from nearfar.cli.training_progress import LINES
from nearfar.training import duration


class EmbeddingProgress:
    """How many texts are done, how fast, and the time left; a context that releases the terminal at its end.

    Args:
        total: texts to embed.
        start: texts that an earlier process has embedded.
        lines: whether to print lines where there is no terminal.
    """

    def __init__(self, total: int, start: int = 0, *, lines: bool = True) -> None:
        self.total = total
        self.start = start
        self.lines = lines
        self.done = self.printed = start
        self.began = time.perf_counter()
        console = Console(stderr=True)
        self.bar: Progress | None = None
        if console.is_terminal:
            speed = TextColumn("{task.fields[speed]} texts/s  {task.fields[left]} left")
            self.bar = Progress(TextColumn("embedding"), BarColumn(), MofNCompleteColumn(), speed, console=console)
            self.task = self.bar.add_task("", total=total, completed=start, speed="-", left="-")

    def __enter__(self) -> EmbeddingProgress:
        if self.bar is not None:
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
        per_second = (done - self.start) / max(time.perf_counter() - self.began, 1e-9)
        speed, left = f"{per_second:,.0f}", duration((self.total - done) / per_second) if per_second else "-"
        if self.bar is not None:
            self.bar.update(self.task, completed=done, speed=speed, left=left)
        elif self.lines and done - self.printed >= self.total / LINES and done < self.total:
            self.printed = done
            sys.stderr.write(f"{done:,}/{self.total:,} texts  {speed} texts/s  {left} left\n")
