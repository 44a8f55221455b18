"""The ``nearfar`` command. Importing it loads neither torch nor transformers."""

from nearfar.cli.app import app, main

__all__ = ["app", "main"]
