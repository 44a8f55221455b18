"""What a tune remembers from call to call: what was asked for, and the time that was spent."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nearfar.errors import OutputError
from nearfar.experiments.runner import LOCK
from nearfar.experiments.search_space import Prepared, Request
from nearfar.experiments.worker import SCRATCH
from nearfar.files import write_atomic

STATE = "tune.json"
FORMAT = 1


class Clock:
    """The time there is, over all calls."""

    def __init__(self, total: float, began: float, before: float) -> None:
        self.total, self.began, self.before = total, began, before

    def spent(self) -> float:
        """Seconds so far, those of earlier calls included."""
        return self.before + time.monotonic() - self.began

    def left(self) -> float:
        """Seconds that are left; below 0 when they are over."""
        return self.total - self.spent()


@dataclass
class State:
    """What is remembered from call to call."""

    identity: dict[str, Any]
    spent: float = 0.0
    searched: float | None = None
    """The minutes for which there was nothing more to try."""
    refit: str | None = None
    """Who is trained on all rows, or is to be next."""
    fitted: str | None = None
    """Whom the finished model is of."""

    def write(self, out: Path, clock: Clock) -> None:
        """Keep it in the folder, with the time that was spent until now."""
        self.spent = clock.spent()
        values = {"format": FORMAT, "identity": self.identity, "spent": round(self.spent, 3),
                  "searched": self.searched, "refit": self.refit, "fitted": self.fitted}  # fmt: skip
        write_atomic(out / STATE, json.dumps(values, indent=1, ensure_ascii=False) + "\n")


def identity_of(request: Request, prepared: Prepared) -> dict[str, Any]:
    """What must be the same for a tune to go on."""
    plan = prepared.planned.plan
    keys = {".".join(override.path): override.value for override in request.settings}
    told = {
        "rows": plan.data[0].digest[:16],
        "kind": prepared.row_type.value,
        "folds": request.folds,
        "rounds": request.rounds,
        "metric": plan.metric,
        "seed": request.seed,
        "settings": keys,
    }
    found: dict[str, Any] = json.loads(json.dumps(told, default=str))
    return found


def open_state(out: Path, identity: dict[str, Any]) -> State:
    """What was done in this folder before, if it was the same tune."""
    if out.exists() and not out.is_dir():
        raise OutputError(f"{out}: this is a file; give a folder with --out.")
    path = out / STATE
    if not path.is_file():
        if out.is_dir() and any(entry.name not in (LOCK, SCRATCH) for entry in out.iterdir()):
            raise OutputError(f"{out}: the folder holds something else than a tune; choose another with --out.")
        return State(identity)
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        before = dict(values["identity"])
        refit = values["refit"]
        state = State(identity, float(values["spent"]), values["searched"], refit, values.get("fitted", refit))
    except (OSError, ValueError, KeyError, TypeError) as cause:
        raise OutputError(
            f"{path}: this cannot be read ({cause}). Choose another --out, or remove the folder."
        ) from cause
    other = [key for key in identity if identity[key] != before.get(key)]
    if other or values.get("format") != FORMAT:
        told = ", ".join(f"{key}: {before.get(key)!r}, not {identity[key]!r}" for key in other) or "another format"
        raise OutputError(
            f"{out}: another tune is in this folder ({told}). Choose another --out, or remove the folder."
        )
    return state
