"""nearfar: fine-tune text encoders with contrastive and metric-learning objectives."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nearfar.encoding import load as load

__version__ = "0.1.0"
__all__ = ["__version__", "load"]


def __getattr__(name: str) -> object:
    if name == "load":  # imported on first use: torch takes seconds, `nearfar --help` must not
        from nearfar.encoding import load

        return load
    raise AttributeError(f"module 'nearfar' has no attribute {name!r}")
