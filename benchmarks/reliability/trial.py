"""One call in a process of its own, with bounds on time and memory: how it ended."""

from __future__ import annotations

import json
import os
import resource
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

SECONDS = 20.0
"""Of processor time that a call may take."""
WAIT = 3600.0
"""Of time on the clock, on a machine that may be busy."""
MEMORY = 2 * 2**30
"""Bytes that a call may take beside what the process had before."""

End = Literal["answered", "refused", "traceback", "hang", "memory", "crash", "same numbers", "other numbers"]


@dataclass(frozen=True)
class Outcome:
    """How a call ended, and what it said."""

    end: End
    answer: str = ""
    seconds: float = 0.0


def attempt(call: Callable[[], str]) -> Outcome:
    """Call in a forked process; the imports of this one are there already, so that a call is quick."""
    reading, writing = os.pipe()
    began = time.monotonic()
    child = os.fork()
    if child == 0:
        os.close(reading)
        _child(call, writing)
    os.close(writing)
    pieces: list[bytes] = []
    with os.fdopen(reading, "rb", buffering=0) as pipe:
        while time.monotonic() - began < WAIT:
            ready, _, _ = select.select([pipe], [], [], 0.5)
            if ready:
                piece = pipe.read(2**16)
                if not piece:
                    break
                pieces.append(piece)
        else:
            os.kill(child, signal.SIGKILL)
    _, status, used = os.wait4(child, 0)
    seconds = used.ru_utime + used.ru_stime
    text = b"".join(pieces).decode("utf-8", errors="replace")
    if not text:
        late = os.WIFSIGNALED(status) and os.WTERMSIG(status) in (signal.SIGKILL, signal.SIGXCPU)
        return Outcome("hang" if late else "crash", f"status {status}", seconds)
    end, answer = json.loads(text)
    if end in ("answered", "refused") and seconds > SECONDS:
        end = "hang"
    return Outcome(end, answer, seconds)


def _child(call: Callable[[], str], writing: int) -> None:
    from nearfar.errors import NearfarError

    signal.signal(signal.SIGINT, signal.SIG_DFL)
    before = _resident()
    virtual = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) * os.sysconf("SC_PAGE_SIZE")
    resource.setrlimit(resource.RLIMIT_AS, (virtual + 2 * MEMORY, virtual + 2 * MEMORY))
    resource.setrlimit(resource.RLIMIT_CPU, (int(SECONDS) + 1, int(SECONDS) + 2))
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # panics of libraries in Rust print there
    try:
        try:
            result = ("answered", call())
        except NearfarError as error:
            str(error).encode()
            result = ("refused", str(error))
    except MemoryError:
        result = ("memory", traceback.format_exc())
    except BaseException:  # whatever it is, it is what is looked for
        result = ("traceback", traceback.format_exc())
    if _resident() - before > MEMORY:
        result = ("memory", f"{(_resident() - before) / 2**30:.1f} GB")
    content = json.dumps(result).encode()
    while content:
        content = content[os.write(writing, content) :]
    sys.stdout.flush()
    os._exit(0)


def _resident() -> int:
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
