"""A process that runs trials: ``python -m nearfar.experiments.worker STUDY``. One trial a line in, one outcome out.

It leaves the records itself, so that nothing is lost between a finished trial and whoever started the process. When
that one is gone, standard input ends, and so does this process at once.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import queue
import shutil
import signal
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Literal, NotRequired, TextIO, TypedDict

from nearfar.errors import NearfarError
from nearfar.experiments.records import write_record
from nearfar.experiments.trial import Trial
from nearfar.experiments.trials import perform, warm_up

SCRATCH = "scratch"
LOG = "log.jsonl"


class Outcome(TypedDict):
    """What a process says of a trial."""

    id: str
    status: Literal["done", "failed"]
    error: NotRequired[str]
    """Why the study cannot go on."""


def main() -> None:
    """Serve one study until standard input ends."""
    study = Path(sys.argv[1])
    channel = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what libraries print is no outcome
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    waiting: queue.Queue[str] = queue.Queue()
    threading.Thread(target=_listen, args=(sys.stdin, waiting), daemon=True).start()
    while True:
        trial = Trial.from_json(json.loads(waiting.get()))
        channel.write(json.dumps(serve(trial, study)) + "\n")
        channel.flush()
        give_back()


def serve(trial: Trial, study: Path) -> Outcome:
    """Run a trial in a folder of its own, and leave nothing of it but its record."""
    place = study / SCRATCH
    place.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(dir=place, prefix=f"{trial.id}-"))
    log(study, "started", trial.id)
    try:
        warm_up()
        record, files = perform(trial, scratch)
        fresh = write_record(study, record, files)
    except NearfarError as error:
        return {"id": trial.id, "status": "failed", "error": str(error)}
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    log(study, ("finished" if record.done else "failed") if fresh else "repeated", trial.id)
    return {"id": trial.id, "status": record.status}


def give_back() -> None:
    """Return memory that a trial has freed to the system.

    Tensors of texts of all lengths leave the heap of glibc in pieces that it keeps, and a process of many trials would
    grow from one to the next. Other systems have no such call, and nothing happens there.
    """
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def log(study: Path, event: str, name: str) -> None:
    """One line more about what happened when."""
    line = json.dumps({"time": round(time.time(), 3), "event": event, "id": name, "process": os.getpid()}) + "\n"
    with (study / LOG).open("ab", buffering=0) as file:  # one write: lines of several processes do not mix
        file.write(line.encode())


def _listen(source: TextIO, waiting: queue.Queue[str]) -> None:
    for line in source:
        waiting.put(line)
    os._exit(0)


if __name__ == "__main__":
    main()
