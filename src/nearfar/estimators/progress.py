"""Progress of a fit: a bar in a notebook or on a terminal."""

from __future__ import annotations

import warnings
from typing import Any

from nearfar.experiments.records import Record
from nearfar.training.contracts import Callback, EvaluationEntry, StepEntry


class ProgressBar(Callback):
    """A bar with loss and dev metric, and the messages of the run above it; widgets in a notebook that has them."""

    def __init__(self) -> None:
        self.bar: Any = None
        self.values: dict[str, str] = {}

    def message(self, text: str) -> None:
        """Write a line."""
        _tqdm().write(text)

    def begin(self, steps: int) -> None:
        """Start a bar."""
        self.values = {}
        self.bar = _tqdm()(total=steps, desc="training", unit="step")

    def step(self, entry: StepEntry) -> None:
        """Move the bar; a resumed run begins in the middle of it."""
        self.values["loss"] = f"{entry['loss']:.4f}"
        self.bar.set_postfix(self.values, refresh=False)
        self.bar.update(entry["step"] - self.bar.n)

    def evaluation(self, entry: EvaluationEntry) -> None:
        """Show the dev metric from now on."""
        self.values[f"dev {entry['metric']}"] = f"{entry['scores'][entry['metric']]:.4f}"
        if self.bar is not None:
            self.bar.set_postfix(self.values)

    def end(self) -> None:
        """Leave the bar as it is."""
        if self.bar is not None:
            self.bar.close()
            self.bar = None


def _tqdm() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a notebook without ipywidgets gets a bar of characters, and no advice
        from tqdm.auto import tqdm
    return tqdm


class TrialBar:
    """A bar of the trials of a comparison, with what failed and who leads; nothing where it is not shown."""

    def __init__(self, *, shown: bool) -> None:
        self.shown = shown
        self.bar: Any = None

    def begin(self, done: int, total: int) -> None:
        """Start the bar."""
        if self.shown:
            self.bar = _tqdm()(total=total, initial=done, desc="trials", unit="trial")

    def message(self, text: str) -> None:
        """Write a line."""
        if self.shown:
            _tqdm().write(text)

    def trial(self, record: Record, done: int, total: int, left: float | None, leader: str | None) -> None:
        """Move the bar."""
        del left
        if not record.done:
            self.message(f"{record.contender}, seed {record.seed}, fold {record.fold}: failed: {record.reason}")
        if self.bar is not None:
            self.bar.total = total
            self.bar.set_postfix_str(leader or "", refresh=False)
            self.bar.update(done - self.bar.n)

    def end(self) -> None:
        """Leave the bar as it is."""
        if self.bar is not None:
            self.bar.close()
            self.bar = None
