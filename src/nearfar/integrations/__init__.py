"""Models of nearfar in other packages, each imported only where it is used."""

from nearfar.integrations.mteb import MtebEncoder

__all__ = ["MtebEncoder"]
