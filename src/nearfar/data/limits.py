"""How much readers take in: characters of a text or a line, of a source that is held whole, and of compressed files."""

from __future__ import annotations

from dataclasses import dataclass

MAX_CHARS = 10_000_000
"""Characters of a text, a cell or a line; several books."""
WHOLE = 50
"""A source that is held in memory before its first row, a .json file or standard input, may have so many times more."""
EXPANSION = 100
"""How many times larger than a compressed file its content may be; texts shrink to a third or a tenth."""
FREE = 32_000_000
"""Bytes that the content of any compressed file may have, however small the file is."""

LIFT = "lift all limits with data.large (--large)"


class TooLargeError(Exception):
    """The content of a compressed file is far larger than the file."""

    def __init__(self, size: int) -> None:
        super().__init__(size)
        self.size = size

    @property
    def problem(self) -> tuple[str, str]:
        """Message and remedy."""
        most = max(FREE, EXPANSION * self.size)
        message = f"{_bytes(self.size)} of the file have more than {_bytes(most)} of content"
        return message, f"Check where it comes from; {LIFT} if it is meant to be so large."


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of one source."""

    chars: int = MAX_CHARS
    """The most characters of a text, a cell or a line."""
    large: bool = False
    """Whether there are no limits at all."""

    @property
    def line(self) -> int | None:
        """The most characters of a line; None for any number."""
        return None if self.large else self.chars

    @property
    def whole(self) -> int | None:
        """The most bytes of a source that is held in memory before its first row; None for any number."""
        return None if self.large else WHOLE * self.chars

    def check_expansion(self, size: int, content: int) -> None:
        """Raise TooLargeError where a file of ``size`` bytes has far more ``content``."""
        if not self.large and content > max(FREE, EXPANSION * size):
            raise TooLargeError(size)


def too_long(limit: int, what: str = "line") -> tuple[str, str]:
    """Message and remedy for a line or a text with more characters than the limit."""
    remedy = f"Split it into several texts, raise data.max_chars, or {LIFT}."
    return f"a {what} of more than {limit:,} characters", remedy


def _bytes(number: int) -> str:
    """
    >>> _bytes(999), _bytes(20_000), _bytes(3_500_000_000)
    ('999 bytes', '20 kB', '3.5 GB')
    """
    for size, unit in ((10**9, "GB"), (10**6, "MB"), (10**3, "kB")):
        if number >= size:
            return f"{number / size:.3g} {unit}"
    return f"{number} bytes"
