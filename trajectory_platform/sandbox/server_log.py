"""What the sandbox server logs, and how: request text is hostile."""

from __future__ import annotations

import logging
from typing import Any

from trajectory_platform.escaping import escaped

LOGGER = "trajectory_platform.sandbox.serving"


class EscapingFormatter(logging.Formatter):
    """One record, one line: request text cannot forge a second one or move the cursor."""

    def format(self, record: logging.LogRecord) -> str:
        """The record as one line of printable characters."""
        return escaped(super().format(record))


def log_config(access_log: bool) -> dict[str, Any]:
    """The logging configuration of a server process: faults, and with ``access_log`` every request, one line each."""
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {
            "line": {"()": f"{__name__}.EscapingFormatter", "format": "%(asctime)s %(levelname)s %(name)s %(message)s"}
        },
        "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "line", "stream": "ext://sys.stderr"}},
        "loggers": {
            "uvicorn": {"handlers": ["stderr"], "level": "WARNING", "propagate": False},
            "uvicorn.access": {"level": "INFO" if access_log else "WARNING"},
            LOGGER: {"handlers": ["stderr"], "level": "WARNING", "propagate": False},
        },
    }
