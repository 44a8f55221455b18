"""The device that models are opened on: a GPU where there is one, or what was asked for."""

from __future__ import annotations

import torch

from nearfar.errors import SettingError

_chosen: str | None = None


def use_device(name: str | None) -> None:
    """Open the models of this process on a device; None: on a GPU where there is one. Commands call it once."""
    global _chosen
    choose_device(name)
    _chosen = name


def choose_device(name: str | None = None) -> torch.device:
    """The device of a name, refused where this machine does not have it; None: that of ``use_device``, or the best.

    >>> choose_device("cpu")
    device(type='cpu')
    """
    name = name or _chosen
    known = available_devices()
    if name is None:
        return torch.device(next(best for best in ("cuda", "mps", "cpu") if best in known))
    if name not in known:
        remedy = "Choose one of these, or none."
        if name.startswith("cuda") and "cuda" not in known:
            remedy = "CUDA needs a GPU, its driver, and a build of torch for it."
        raise SettingError(f"the device is {name!r}, and torch has: {', '.join(known)}. {remedy}")
    return torch.device(name)


def available_devices() -> list[str]:
    """The names of the devices of this machine."""
    devices = ["cpu"]
    if torch.cuda.is_available():
        devices += ["cuda", *(f"cuda:{number}" for number in range(torch.cuda.device_count()))]
    if torch.backends.mps.is_available():
        devices.append("mps")
    return devices
