"""Configures structured logging: JSON, or colored lines for a terminal. Lines about a job have its kind, namespace and name."""

from __future__ import annotations

import logging
import sys
from typing import Any, TextIO

import structlog

from dlop.operator.settings import LogFormat, LogLevel


def set_up_logging(log_format: LogFormat, level: LogLevel, *, stream: TextIO | None = None) -> None:
    """Configure structlog and the standard library's logging to write to `stream`, by default stderr."""
    stream = sys.stderr if stream is None else stream
    is_console = log_format is LogFormat.CONSOLE or (log_format is LogFormat.AUTO and stream.isatty())
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=not is_console),
            *_renderers(is_console=is_console, colors=stream.isatty()),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        logger_factory=structlog.WriteLoggerFactory(stream),
        cache_logger_on_first_use=True,
    )
    # Warnings of libraries go to the same stream.
    logging.basicConfig(stream=stream, level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s")


def _renderers(*, is_console: bool, colors: bool) -> list[Any]:
    # Use plain tracebacks. Tracebacks with local variables take a second each and can expose user data.
    if is_console:
        return [structlog.dev.ConsoleRenderer(colors=colors, exception_formatter=structlog.dev.plain_traceback)]
    return [structlog.processors.format_exc_info, structlog.processors.EventRenamer("msg"), structlog.processors.JSONRenderer()]
