"""How log lines look: JSON for machines, colours for people. Lines about a job bear its kind, namespace and name."""

from __future__ import annotations

import logging
import sys
from typing import Any, TextIO

import structlog

from dlop.operator.settings import LogFormat, LogLevel


def set_up_logging(log_format: LogFormat, level: LogLevel, *, stream: TextIO | None = None) -> None:
    """From now on, log like this: to a stream, by default the standard error."""
    stream = sys.stderr if stream is None else stream
    for_people = log_format is LogFormat.CONSOLE or (log_format is LogFormat.AUTO and stream.isatty())
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=not for_people),
            *_last_processors(for_people=for_people, colours=stream.isatty()),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        logger_factory=structlog.WriteLoggerFactory(stream),
        cache_logger_on_first_use=True,
    )
    # What libraries have to say, on the same stream.
    logging.basicConfig(stream=stream, level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s")


def _last_processors(*, for_people: bool, colours: bool) -> list[Any]:
    # Plain tracebacks: those that show the values of variables cost a second each, and tell what is nobody's business.
    if for_people:
        return [structlog.dev.ConsoleRenderer(colors=colours, exception_formatter=structlog.dev.plain_traceback)]
    return [structlog.processors.format_exc_info, structlog.processors.EventRenamer("msg"), structlog.processors.JSONRenderer()]
