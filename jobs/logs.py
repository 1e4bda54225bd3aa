"""The job's log as JSON objects, one a line, for log collectors: --log-json."""

from __future__ import annotations

import json
import logging
import sys
from datetime import datetime, timezone
from typing import Any

OPTION = "--log-json"
EXTRA = ("stage", "documents", "seconds")  # what a record may carry beside its message


class JsonLines(logging.Formatter):
    """A record as a JSON object: time (UTC, ISO 8601), level, message, and its stage, documents and seconds."""

    def format(self, record: logging.LogRecord) -> str:
        extra = {name: getattr(record, name) for name in EXTRA if getattr(record, name, None) is not None}
        if record.exc_info:
            extra["exception"] = self.formatException(record.exc_info)
        at = datetime.fromtimestamp(record.created, timezone.utc)
        return json_line(at, record.levelname, record.getMessage(), extra)


def json_line(at: datetime, level: str, message: str, extra: dict[str, Any]) -> str:
    """The object as a line, in ASCII: stderr may have any encoding."""
    return json.dumps({"time": at.isoformat(timespec="milliseconds"), "level": level, "message": message, **extra})


def start_log(as_json: bool) -> None:
    """Send the log, from INFO on, to stderr; as JSON also the warnings of libraries."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if as_json else logging.Formatter("%(asctime)s %(message)s", "%H:%M:%S"))
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    logging.captureWarnings(as_json)


def is_json() -> bool:
    """Whether the log is JSON, so that nothing else may go to stderr."""
    return any(isinstance(handler.formatter, JsonLines) for handler in logging.root.handlers)


def error_line(message: str, code: int, as_json: bool) -> str:
    """The last line of a job that failed."""
    message = " ".join(message.splitlines())
    if as_json:
        return json_line(datetime.now(timezone.utc), "ERROR", message, {"exit_code": code})
    return f"error: {message}"
