"""What a server is started with: its model, its address, its limits and its keys."""

from __future__ import annotations

import math
import os
import re
from dataclasses import dataclass, field
from pathlib import Path

from nearfar.errors import SettingError, counted

CPU_TOKENS, GPU_TOKENS = 2_048, 16_384
"""Tokens of a batch: a processor gains nothing by more, and a request waits for the batch before it."""


@dataclass(frozen=True)
class Limits:
    """What bounds the memory of the server and the time of a request."""

    batch_tokens: int | None = None
    """Tokens that are computed together; None for 2,048, on a GPU for 16,384."""
    queue: int = 4_096
    """Texts that are accepted and not yet answered; a request that would exceed them is refused."""
    timeout: float = 30.0
    """Seconds from the first byte of a request to its answer."""
    body: int = 4_000_000
    """Bytes of a request."""
    texts: int = 2_048
    """Texts of a request."""

    def __post_init__(self) -> None:
        for name in ("batch_tokens", "queue", "body", "texts"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise SettingError(f"the limit {name} must be 1 or more, got {value}.")
        if not (math.isfinite(self.timeout) and self.timeout > 0):
            raise SettingError(f"the time limit must be more than 0 seconds, got {self.timeout:g}.")
        if self.texts > self.queue:
            raise SettingError(
                f"a request may have {counted(self.texts, 'text')}, and the queue holds {self.queue:,}: such a request "
                "could never be accepted; lower --max-texts or raise --max-queue."
            )


@dataclass(frozen=True)
class Settings:
    """All settings of a server."""

    model: str
    """A model folder, an exported one too, or an encoder by name."""
    name: str | None = None
    """What clients call the model; None for the name of its folder."""
    host: str = "127.0.0.1"
    port: int = 8080
    """0 for any free port."""
    workers: int = 1
    limits: Limits = field(default_factory=Limits)
    keys: tuple[str, ...] = field(default=(), repr=False)
    """API keys, of which a request must have one; none: no request needs a key."""
    origins: tuple[str, ...] = ()
    """Origins of web pages that may use the server (CORS)."""
    watch: float = 2.0
    """Seconds between two looks at the model folder, which is loaded again when it has changed; 0 for never."""
    device: str | None = None
    precision: str | None = None
    """``"auto"``, ``"fp32"``, ``"bf16"`` or ``"int8"``; None for what `nearfar.load` chooses."""

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65_535:
            raise SettingError(f"the port must be a number from 0 to 65535, got {self.port}.")
        if self.workers < 1:
            raise SettingError(f"workers must be 1 or more, got {self.workers}.")
        if not (math.isfinite(self.watch) and self.watch >= 0):
            raise SettingError(f"watch must be a number of seconds, or 0 for never, got {self.watch:g}.")
        for origin in self.origins:
            if origin != "*" and not re.fullmatch(r"https?://[^/\s]+", origin):
                raise SettingError(
                    f"{origin!r} is no origin of web pages: it is written as a browser sends it, such as "
                    "https://page.example or http://localhost:3000, without a path."
                )
        for key in self.keys:
            if not key.isascii() or not key.isprintable() or not key or " " in key:
                raise SettingError("an API key must be printable ASCII characters without spaces.")

    @property
    def model_name(self) -> str:
        """What clients call the model."""
        return self.name or os.path.basename(os.path.abspath(self.model)) or self.model


def read_keys(path: Path) -> tuple[str, ...]:
    """The keys of a file, one a line; empty lines and those that begin with # are left out."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        raise SettingError(f"{path}: there is no such file; it has the API keys, one a line.") from None
    except OSError as cause:
        raise SettingError(f"{path}: the API keys cannot be read ({cause.strerror}).") from cause
    except UnicodeDecodeError:
        raise SettingError(f"{path}: the API keys cannot be read, because the file is not UTF-8.") from None
    keys = tuple(line.strip() for line in lines if line.strip() and not line.lstrip().startswith("#"))
    if not keys:
        raise SettingError(f"{path}: there is no API key in this file; write one into it, one a line.")
    return keys
