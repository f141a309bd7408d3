"""The log of an agent: stdlib `logging` on standard error, as lines or as JSON.

It tells what the agent does and why, and holds no message and no secret. What a peer may have a
part in, a name or a path, is escaped as on standard output.
"""

import json
import logging
import sys
import time

from drupelet_host.base.output import printable

ROOT = "drupelet"
_LEVELS = (logging.WARNING, logging.INFO, logging.DEBUG)


class _LineFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        """One line: time, level, logger, text."""
        head = f"{_time_of(record)} {record.levelname.lower():<7} {record.name}"
        return f"{head}: {printable(record.getMessage())}"


class _JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        """One JSON object, in ASCII."""
        row = {
            "time": _time_of(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "text": printable(record.getMessage()),
        }
        return json.dumps(row)


def _time_of(record: logging.LogRecord) -> str:
    seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
    return f"{seconds}.{int(record.msecs):03d}Z"


def begin(verbosity: int, as_json: bool) -> None:
    """Log warnings; with a verbosity of 1 what happens, of 2 each frame, too."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_JsonFormatter() if as_json else _LineFormatter())
    logger = logging.getLogger(ROOT)
    for earlier in list(logger.handlers):
        logger.removeHandler(earlier)
    logger.addHandler(handler)
    logger.setLevel(_LEVELS[min(verbosity, len(_LEVELS) - 1)])
    logger.propagate = False
