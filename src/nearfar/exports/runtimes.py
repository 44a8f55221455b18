"""The libraries that compute exported models, opened so that they send no usage data."""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any

QUIET = "ORT_DISABLE_TELEMETRY"
"""The variable of onnxruntime, which from version 1.29 on sends usage data unless it is set before the first use."""
REPORTER = "openvino_telemetry"
"""The package with which openvino sends usage data when it is imported; it works without the package, too."""


def import_onnxruntime() -> Any:
    """Import onnxruntime without its usage data; a value that the user has set stays."""
    os.environ.setdefault(QUIET, "1")
    return importlib.import_module("onnxruntime")


def import_openvino() -> Any:
    """Import openvino without its usage data, as if the package that sends them were not installed."""
    if REPORTER in sys.modules or "openvino" in sys.modules:  # the program has decided on it
        return importlib.import_module("openvino")
    sys.modules[REPORTER] = None  # type: ignore[assignment]
    try:
        return importlib.import_module("openvino")
    finally:
        del sys.modules[REPORTER]
