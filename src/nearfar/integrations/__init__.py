"""Adapters to other packages, which are imported only where they are used."""

from nearfar.integrations.mteb import MtebEncoder

__all__ = ["MtebEncoder"]
