"""Log lines as JSON objects, a line each. No text of a request is in them."""

from __future__ import annotations

import json
import logging
import time
import traceback
from typing import IO, Any

STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "color_message"}
"""What every record has; the rest was given with the message."""


class JsonLines(logging.Formatter):
    """A record as one JSON object: time, level, event and what was given with it.

    Of an error the places in the code are written, and not its message, which may have a part of a text.
    """

    def format(self, record: logging.LogRecord) -> str:
        """One line."""
        moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        line: dict[str, Any] = {
            "time": f"{moment}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "event": record.getMessage(),
        }
        given = {name: value for name, value in vars(record).items() if name not in STANDARD}
        error = given.pop("error", None) or (record.exc_info[1] if record.exc_info else None)
        line |= given
        if isinstance(error, BaseException):
            frames = traceback.extract_tb(error.__traceback__)
            line["error"] = type(error).__name__
            line["trace"] = [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in frames]
        return json.dumps(line, default=str)


def write_logs(stream: IO[str], *, level: int = logging.INFO) -> None:
    """Send what the server logs to a stream."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonLines())
    for name, least in (("nearfar.server", level), ("uvicorn", max(level, logging.WARNING))):
        logger = logging.getLogger(name)
        logger.handlers = [handler]
        logger.propagate = False
        logger.setLevel(least)
