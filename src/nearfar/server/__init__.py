"""HTTP server of a model: ``nearfar serve``, and its parts for other programs."""

from __future__ import annotations

import importlib.util

import nearfar.errors

if any(importlib.util.find_spec(name) is None for name in ("starlette", "uvicorn")):
    raise nearfar.errors.SettingError(
        "the server needs starlette and uvicorn, which are not installed: pip install 'nearfar[serve]'."
    )

from nearfar.server.app import application, describe_paths
from nearfar.server.process import background, run
from nearfar.server.settings import Limits, Settings, read_keys

__all__ = ["Limits", "Settings", "application", "background", "describe_paths", "read_keys", "run"]
