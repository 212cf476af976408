"""The log of the service: to standard error, for people on a terminal, as JSON elsewhere."""

import logging
import sys

import structlog
from structlog.typing import Processor


def configure_logs() -> None:
    """Send what structlog and the standard library's loggers say to standard error, in one form."""
    shared: list[Processor] = [
        structlog.stdlib.add_logger_name,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_formatter(shared, terminal=sys.stderr.isatty()))
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    logging.getLogger("alembic").setLevel(logging.WARNING)


def _formatter(shared: list[Processor], *, terminal: bool) -> logging.Formatter:
    rendering: list[Processor] = [structlog.stdlib.ProcessorFormatter.remove_processors_meta]
    if terminal:
        rendering.append(structlog.dev.ConsoleRenderer())
    else:
        rendering += [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
    return structlog.stdlib.ProcessorFormatter(foreign_pre_chain=shared, processors=rendering)
