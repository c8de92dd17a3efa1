"""The log of a worker: one line for each event, plain or JSON; on terminals, tracebacks and a progress line."""

import json
import logging
import os
import shutil
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from typing import Any, TextIO

from stator import __version__
from stator.graph.failures import TRACEBACK_LENGTH, bounded
from stator.texts import MOMENT, escape

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}

# An equal traceback is only counted for this many seconds; and the most tracebacks that are remembered.
REPEATED, MAX_STACKS = 60.0, 100

# Moves to the start of the line and clears it.
CLEAR_LINE = "\r\x1b[K"

# The loggers of a worker: the framework's and its task queue's.
LOGGERS = ("stator", "tasks")

LOGGED_AT_START = (
    "CONCURRENCY", "CONCURRENCY_PER_MODEL", "THREADS", "LEASE", "REAP_INTERVAL", "POLL_INTERVAL", "SCHEDULE_INTERVAL",
    "SHUTDOWN_TIMEOUT", "MAX_RUNTIME",
)  # fmt: skip


# The schemas that a worker names at its start; it counts the others.
MAX_SCOPES = 20


# Return fields that each event of this context gets.
CONTEXT: list[Callable[[], Mapping[str, object]]] = []


class LineFormatter(logging.Formatter):
    """Formats events as ``2026-01-31 12:00:00 +0000 WARNING stator.lease_lost model=shop.invoice pk=7``."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as one line without control characters."""
        stack = f" | {self.stack(record)}" if record.exc_info else ""
        return escape(f"{self.line(record)}{stack}")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._repetitions = _Repetitions()

    def stack(self, record: logging.LogRecord) -> str:
        """Return the traceback of an event, or how often it was written a moment ago."""
        return self._repetitions.shorten(_stack(self, record), time.monotonic())

    def line(self, record: logging.LogRecord) -> str:
        """Return the time, the level, the name and the fields of an event."""
        fields = "".join(f" {name}={_listed(value)}" for name, value in _fields(record).items())
        at = datetime.fromtimestamp(record.created).astimezone()
        return f"{at.strftime(MOMENT)} {record.levelname} {record.getMessage()}{fields}"


class TerminalFormatter(LineFormatter):
    """Formats events for a terminal: a traceback follows on lines of its own, indented, as no event is."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as lines without other control characters; the first one replaces the progress line."""
        stack = self.stack(record).splitlines() if record.exc_info else []
        return CLEAR_LINE + "\n".join([escape(self.line(record)), *(f"    {escape(line)}" for line in stack)])


class JsonFormatter(logging.Formatter):
    """Formats events as one JSON object per line: ``at``, ``level``, ``event`` and the fields of the event."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as one line of JSON."""
        line = {"at": round(record.created, 3), "level": record.levelname.lower(), "event": record.getMessage()}
        if record.exc_info:
            line["traceback"] = _stack(self, record)
        return json.dumps(line | _fields(record), default=str)


@contextmanager
def events_to(stream: TextIO, as_json: bool) -> Iterator[None]:
    """Write the events of ``LOGGERS`` to ``stream``, and nowhere else, while the context is open.

    A logger that the project has configured, directly or through the root logger, is left alone unless ``as_json``.
    """
    handler = logging.StreamHandler(stream)
    plain = TerminalFormatter() if stream.isatty() else LineFormatter()
    handler.setFormatter(JsonFormatter() if as_json else plain)
    ours = [logger for logger in map(logging.getLogger, LOGGERS) if as_json or not logger.hasHandlers()]
    before = [(logger, logger.propagate, logger.level) for logger in ours]
    for logger, _, level in before:
        logger.addHandler(handler)
        logger.propagate = False
        logger.setLevel(level or logging.INFO)
    try:
        yield
    finally:
        for logger, propagate, level in before:
            logger.removeHandler(handler)
            logger.propagate = propagate
            logger.setLevel(level)


class ProgressLine:
    """Shows the progress of a worker: on a terminal a line that is rewritten, elsewhere an event every 10 s."""

    def __init__(self, stream: TextIO = sys.stderr, every: float = 10.0) -> None:
        self._stream = stream
        self._live = stream.isatty()
        self._every = 0.5 if self._live else every
        self._shown = time.monotonic()
        self._before = 0

    def __call__(self, worker: Any) -> None:
        """Show the progress, unless it was shown a moment ago."""
        now = time.monotonic()
        if now - self._shown < self._every:
            return
        handled = sum(worker.recorder.handled.values())
        per_second = (handled - self._before) / (now - self._shown)
        self._shown, changed, self._before = now, handled != self._before, handled
        if self._live:
            # A line that is too long would wrap, and only its last part would be cleared.
            width = shutil.get_terminal_size().columns - 1
            self._stream.write(f"{CLEAR_LINE}{describe(worker, per_second)[:width]}")
            self._stream.flush()
        elif changed:
            logging.getLogger("stator.worker").info("stator.progress", extra=progress_fields(worker, per_second))

    def close(self) -> None:
        """End the progress line."""
        if self._live and self._before:
            self._stream.write("\n")


def describe(worker: Any, per_second: float) -> str:
    """Return one line for a terminal: attempts, how many per second, running attempts, moves into each state."""
    states: Counter[str] = Counter()
    for (_, state), count in worker.recorder.moved.items():
        states[state] += count
    into = "  ".join(f"{escape(state)} {count:,}" for state, count in states.most_common(6))
    moved = f"  | {into}" if into else ""
    fields = progress_fields(worker, per_second)
    failed = f"  failed {fields['failed']:,}" if fields["failed"] else ""
    attempts = "attempt" if fields["handled"] == 1 else "attempts"
    return f"{fields['handled']:,} {attempts}  {per_second:,.0f}/s  running {fields['running']}{failed}{moved}"


def progress_fields(worker: Any, per_second: float) -> dict[str, object]:
    """Return the progress as fields of a log event."""
    recorder = worker.recorder
    return {
        "handled": sum(recorder.handled.values()),
        "per_second": round(per_second, 1),
        "running": len(worker.attempts.running),
        "failed": recorder.failed,
        "lost": recorder.lost,
    }


def log_end(summary: Any) -> None:
    """Log why a worker ended and what it did."""
    fields = {
        "ended": summary.ended,
        "handled": sum(summary.handled.values()),
        "failed": summary.failed,
        "lost": summary.lost,
        "unfinished": summary.unfinished,
    }
    logging.getLogger("stator.worker").info("stator.ended", extra=fields)


def log_start(worker: Any) -> None:
    """Log the settings of a starting worker, and the models that it serves in each database."""
    logger, settings = logging.getLogger("stator.worker"), worker.settings
    fields = {name.lower(): getattr(settings, name) for name in LOGGED_AT_START}
    own = {"worker": worker.id, "worker_name": worker.name, "version": __version__, "pid": os.getpid()}
    logger.info("stator.starting", extra={**own, **fields})
    if worker.queues or worker.metadata:
        logger.info("stator.queues", extra={"queues": list(worker.queues), "metadata": dict(worker.metadata)})
    served = worker.served()
    for scope, labels in sorted(served.items())[:MAX_SCOPES]:
        logger.info("stator.serving", extra={**scope.fields(), "models": labels})
    if len(served) > MAX_SCOPES:  # stator.extensions.schemas
        logger.info("stator.serving_others", extra={"schemas": len(served) - MAX_SCOPES})  # stator.extensions.schemas


def log_ready(seconds: float) -> None:
    """Log that a worker has polled for the first time, ``seconds`` after its start."""
    logging.getLogger("stator.worker").info("stator.ready", extra={"seconds": round(seconds, 3)})


def log_stopping(why: str) -> None:
    """Log that a worker stops claiming, and why."""
    logging.getLogger("stator.worker").info("stator.stopping", extra={"why": why})


def _listed(value: object) -> object:
    return ",".join(map(str, value)) if isinstance(value, list | tuple) else value


def _stack(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    # Messages of errors may contain credentials.
    return bounded(formatter.formatException(record.exc_info or (None, None, None)), TRACEBACK_LENGTH)


class _Repetitions:
    """Tracebacks that were written a moment ago; a log has each once, then how often it came again."""

    def __init__(self) -> None:
        # When each was written, and how often it has come since.
        self._written: dict[str, tuple[float, int]] = {}

    def shorten(self, stack: str, now: float) -> str:
        """Return a traceback, or one line in its place if it was written less than ``REPEATED`` seconds ago."""
        at, times = self._written.get(stack, (-REPEATED, 0))
        if now - at < REPEATED:
            self._written[stack] = at, times + 1
            return f"the same traceback as {now - at:.0f} s ago, {times + 1} more since"
        if len(self._written) >= MAX_STACKS:
            self._written.clear()
        self._written[stack] = now, 0
        return stack


def _fields(record: logging.LogRecord) -> dict[str, object]:
    fields = {name: value for name, value in vars(record).items() if name not in _STANDARD}
    for given in CONTEXT:
        fields = {**given(), **fields}
    return fields


@contextmanager
def progress(words: str) -> Iterator[Callable[[int], None]]:
    """Yield a function that shows on a terminal how many objects a long action has done, at most twice a second."""
    shown, live = time.monotonic(), sys.stderr.isatty()

    def show(count: int) -> None:
        nonlocal shown
        if live and (now := time.monotonic()) - shown > 0.5:
            shown = now
            sys.stderr.write(f"{CLEAR_LINE}{count:,} {words}")
            sys.stderr.flush()

    try:
        yield show
    finally:
        if live:
            sys.stderr.write(CLEAR_LINE)
            sys.stderr.flush()
