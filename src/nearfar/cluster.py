"""A Ray cluster that is there already: connecting to it, and messages where that fails."""

from __future__ import annotations

import importlib
import importlib.util
import logging
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from nearfar.errors import SettingError

SECONDS = 10
"""A cluster that takes longer to answer is not there."""


def require_ray() -> None:
    """Refuse to go on without the package."""
    if importlib.util.find_spec("ray") is None:
        raise SettingError("--on ray needs Ray, which is not installed: pip install ray.")


@contextmanager
def connected(address: str) -> Iterator[Any]:
    """The module ``ray``, connected to the cluster at an address; ``auto`` finds the one of this machine.

    A connection that this process has already is used, and stays.
    """
    require_ray()
    ray: Any = importlib.import_module("ray")
    if ray.is_initialized():
        yield ray
        return
    try:
        _knock(address)
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR, ignore_reinit_error=True)
    except (OSError, ValueError) as cause:
        raise SettingError(
            f"no Ray cluster answers at {address!r}: start one with 'ray start --head' and join others to it "
            "with 'ray start --address HOST:6379', or leave --on ray out."
        ) from cause
    try:
        yield ray
    finally:
        ray.shutdown()


def refuse_impossible(resources: Mapping[str, float], wanted: Mapping[str, tuple[str, float]]) -> None:
    """Refuse to ask for more than the cluster has: ``wanted`` is, by resource, the flag and its value."""
    for name, (flag, number) in wanted.items():
        if number > resources.get(name, 0):
            raise SettingError(
                f"{flag} is {number:g}, but the whole cluster has {resources.get(name, 0):g} {name}s; ask for fewer."
            )


def _knock(address: str) -> None:
    """See whether somebody is there: Ray itself would try for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if host and port.isdecimal():
        socket.create_connection((host, int(port)), timeout=SECONDS).close()
