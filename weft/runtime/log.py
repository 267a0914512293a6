"""Logs from facts: lines for people on a console, JSON for machines; always on stderr."""

import logging
import sys
from typing import Any, get_args

import structlog

from weft.protocol.facts import (
    AppChanged,
    AttemptChanged,
    Closed,
    Fact,
    MasterPlanned,
    NodeChanged,
    Placed,
    QueueChanged,
    Remark,
    RunFact,
    TaskStarted,
    TaskStopped,
)
from weft.runtime.factlines import fact_to_dict

_LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40}
# The other facts come once or more for every task: they are metrics, and lines of the event log.
_LOGGED = (AppChanged, AttemptChanged, NodeChanged, QueueChanged, MasterPlanned)
_OF_TASKS = {Placed, Closed, TaskStarted, TaskStopped, *get_args(RunFact)}


def configure(role: str, as_json: bool = False, level: str = "info") -> Any:
    """Set logging up for this process; returns its logger."""
    renderer: Any = (
        structlog.processors.JSONRenderer()
        if as_json
        else structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())
    )
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso" if as_json else "%H:%M:%S", utc=as_json),
            structlog.processors.format_exc_info if as_json else _keep,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(_LEVELS.get(level, 20)),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr)
    return structlog.get_logger(role=role)


def _keep(_: Any, __: str, event: Any) -> Any:
    return event


def log_fact(logger: Any, fact: Fact | RunFact, now: float) -> None:
    """Log a fact that is worth a line."""
    if type(fact) in _OF_TASKS:
        return
    if isinstance(fact, Remark):
        report = logger.warning if fact.level == "warning" else logger.info
        report(fact.text, **dict(fact.fields))
    elif isinstance(fact, _LOGGED):
        data = fact_to_dict(fact, now)
        name = data.pop("fact")
        data.pop("now_s")
        logger.info(name, **{key: value for key, value in data.items() if value not in ("", ())})
