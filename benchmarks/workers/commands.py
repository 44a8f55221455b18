"""Runs commands of nearfar in one process, each as ``python -m nearfar`` does, so that torch is loaded once.

One JSON object a line comes in: the ``words`` of a command, the ``folder`` it runs in, and the files for its standard
output (``out``) and standard error (``err``). One a line goes out: the exit ``status``. The first line that goes out
has the file of the package (``nearfar``). Nothing else of the package is imported here.
"""

from __future__ import annotations

import json
import os
import runpy
import sys
import traceback
from typing import Any


def main() -> None:
    import nearfar

    channel = os.fdopen(os.dup(1), "w", encoding="utf-8")
    channel.write(json.dumps({"nearfar": nearfar.__file__}) + "\n")
    channel.flush()
    for line in sys.stdin:
        job: dict[str, Any] = json.loads(line)
        channel.write(json.dumps({"status": run(job)}) + "\n")
        channel.flush()


def run(job: dict[str, Any]) -> int:
    """The exit status of one command; an exception is printed with its traceback, and is a 1."""
    os.chdir(job["folder"])
    sys.argv = ["nearfar", *job["words"]]
    with open(job["out"], "wb") as out, open(job["err"], "wb") as err:
        os.dup2(out.fileno(), 1)
        os.dup2(err.fileno(), 2)
    try:
        runpy.run_module("nearfar", run_name="__main__")
        status = 0
    except SystemExit as left:
        status = left.code if isinstance(left.code, int) else int(left.code is not None)
    except Exception:
        traceback.print_exc()
        status = 1
    sys.stdout.flush()
    sys.stderr.flush()
    return status


if __name__ == "__main__":
    main()
