"""What a tune keeps from call to call: what was asked for, and the time that was spent."""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypedDict

from nearfar.errors import OutputError
from nearfar.experiments.records import STUDY
from nearfar.experiments.search_space import Prepared
from nearfar.experiments.study_schema import Values
from nearfar.experiments.trial_runner import LOCK
from nearfar.experiments.worker import SCRATCH
from nearfar.files import write_atomic

STATE = "tune.json"
BEGUN = (LOCK, SCRATCH, STUDY, f".{STUDY}", f".{STATE}")
"""What a tune has in its folder that was killed before it wrote its state."""
FORMAT = 1


class Identity(TypedDict):
    """What must be the same for a tune to go on."""

    rows: str
    kind: str
    folds: int
    rounds: int
    metric: str
    seed: int
    settings: Values


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
    """What is kept from call to call."""

    identity: Identity
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
        values = {"format": FORMAT, **asdict(self), "spent": round(self.spent, 3)}
        write_atomic(out / STATE, json.dumps(values, indent=1, ensure_ascii=False) + "\n", out / f".{STATE}")


def identity_of(prepared: Prepared) -> Identity:
    """What must be the same for a tune to go on."""
    plan, request = prepared.planned.plan, prepared.request
    settings = {".".join(override.path): override.value for override in request.settings}
    return {
        "rows": plan.data[0].digest[:16],
        "kind": prepared.row_type.value,
        "folds": request.folds,
        "rounds": request.rounds,
        "metric": plan.metric,
        "seed": request.seed,
        "settings": json.loads(json.dumps(settings, default=str)),
    }


def open_state(out: Path, identity: Identity) -> State:
    """What was done in this folder before, if it was the same tune."""
    if out.exists() and not out.is_dir():
        raise OutputError(f"{out}: this is a file; give a folder with --out.")
    path = out / STATE
    if not path.is_file():
        if out.is_dir() and any(entry.name not in BEGUN for entry in out.iterdir()):
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
    other = [
        f"{key}: {before.get(key)!r}, not {value!r}" for key, value in identity.items() if value != before.get(key)
    ]
    if other or values.get("format") != FORMAT:
        raise OutputError(
            f"{out}: another tune is in this folder ({', '.join(other) or 'another format'}). Choose another --out, or "
            "remove the folder."
        )
    return state
