"""What the project's code logs during an attempt: kept in memory, bounded, and stored with its failure."""

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence

from stator.graph.kept import HasKept, Kept
from stator.graph.running import RUNNING
from stator.texts import bounded, text_of

# The most lines and bytes that are kept of an attempt, the last ones, and the most characters of a line.
MAX_LINES, MAX_BYTES, MAX_LINE = 200, 16_384, 2000

_FORMAT = logging.Formatter(datefmt="%H:%M:%S")


class AttemptLog:
    """The last lines that one attempt logged. Any thread may add to it.

    ``attempt``: what distinguishes the attempt from another one of the same claim.
    """

    __slots__ = ("_lines", "_lock", "_size", "attempt")

    def __init__(self, attempt: int = 0) -> None:
        self.attempt = attempt
        self._lines: deque[tuple[str, int]] = deque()
        self._size = 0
        self._lock = threading.Lock()

    def add(self, text: str) -> None:
        """Add the lines of a text, and drop the first ones that are too many."""
        for line in text.splitlines()[-MAX_LINES:]:
            cut = line[:MAX_LINE]
            size = len(cut.encode(errors="replace")) + 1
            with self._lock:
                self._lines.append((cut, size))
                self._size += size
                while self._size > MAX_BYTES or len(self._lines) > MAX_LINES:
                    self._size -= self._lines.popleft()[1]

    @classmethod
    def of(cls, text: str) -> "AttemptLog":
        """Return a log with the lines of a text, as an isolated process sent it."""
        log = cls()
        log.add(text)
        return log

    @property
    def text(self) -> str:
        """All lines as they are stored: credentials are masked."""
        with self._lock:
            lines = [line for line, _ in self._lines]
        return bounded("\n".join(lines), MAX_BYTES)


# What an attempt logged, if it did.
LOG = Kept[AttemptLog | None]("log", None)


def keep_logs() -> None:
    """Have this process keep what attempts log: every record of any logger whose level lets it pass.

    The records are taken where they are made. A handler would get nothing of loggers that do not propagate, and on the
    root logger it would keep ``logging`` from printing the warnings of a project that configures no handler.
    """
    made = logging.getLogRecordFactory()
    if not isinstance(made, _Factory):
        logging.setLogRecordFactory(_Factory(made))


class _Factory:
    """Makes records as before, and adds those that are made during an attempt to its log."""

    def __init__(self, made: Callable[..., logging.LogRecord]) -> None:
        self._made = made

    def __call__(self, *args: object, **kwargs: object) -> logging.LogRecord:
        record = self._made(*args, **kwargs)
        # A record that comes from elsewhere, as from another process, has no name yet. What the code of an attempt has
        # left behind may log after its end.
        if (claims := RUNNING.get()) and not claims[0].finished and record.name is not None:
            _log_of(claims).add(_text_of(record))
        return record


def _log_of(claims: Sequence[HasKept]) -> AttemptLog:
    """Return the log that all claims of an attempt share."""
    log = LOG.of(claims[0])
    if log is None or log.attempt != id(claims):
        log = AttemptLog(id(claims))
        for claim in claims:
            LOG.note(claim, log)
    return log


def _text_of(record: logging.LogRecord) -> str:
    try:
        message = record.getMessage()
    except BaseException:  # noqa: BLE001 - wrong arguments, or their __str__; the handlers of the project report it
        message = text_of(record.msg)
    failed = record.exc_info and record.exc_info[0] is not None
    stack = f"\n{_FORMAT.formatException(record.exc_info)}" if failed else ""  # type: ignore[arg-type]
    return f"{_FORMAT.formatTime(record, _FORMAT.datefmt)} {record.levelname} {record.name}: {message}{stack}"
