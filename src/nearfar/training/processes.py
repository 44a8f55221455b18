"""Runs of several processes: what the others do when one of them is gone."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from torch.distributed import DistError

from nearfar.errors import ProcessError

SIGNS = ("Connection closed by peer", "Connection reset by peer", "Broken pipe", "gloo", "NCCL", "ncclRemoteError")
"""Words of the errors that torch raises when another process does not answer; gloo's have no type of their own."""


@contextmanager
def lost_processes(out: Path) -> Iterator[None]:
    """Turn the error that follows from the end of another process into a message on how to go on.

    A process that waits for one that is gone gets an error from the network within moments. Its weights are those of
    the step before, and every checkpoint is whole.
    """
    try:
        yield
    except RuntimeError as cause:
        if not _is_lost(cause):
            raise
        raise ProcessError(
            f"{out}: another process of this run has ended, so the run has stopped. Look above for the reason; the "
            "same command with --resume continues from the last checkpoint."
        ) from cause


def _is_lost(error: RuntimeError) -> bool:
    several = os.environ.get("WORLD_SIZE", "1") != "1"  # torch has let go of the others by now
    return several and (isinstance(error, DistError) or any(sign in str(error) for sign in SIGNS))
