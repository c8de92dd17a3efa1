"""One event is one line, whatever is in it; on a terminal, its traceback is indented below. Security rule S7."""

import io
import json
import logging
import sys
from types import SimpleNamespace

import pytest

from stator.logs import CLEAR_LINE, JsonFormatter, LineFormatter, TerminalFormatter, describe, events_to

HOSTILE = ["\n", "\r", "\r\n", "\x1b[2J", "\x00", "\x85", "\u2028", "\u2029", "\u202e", "\u2066", "\ud800", "\x9b31m"]


def record_of(message="stator.attempt_failed", exc_info=None, **fields):
    record = logging.makeLogRecord({"msg": message, "levelname": "WARNING", "levelno": 30, **fields})
    record.exc_info = exc_info
    return record


def raised(message):
    try:
        raise ValueError(message)
    except ValueError:
        return sys.exc_info()


@pytest.mark.parametrize("formatter", [LineFormatter(), JsonFormatter()], ids=["plain", "json"])
def test_event_with_hostile_text_is_one_harmless_line(formatter):
    for text in HOSTILE:
        record = record_of(f"stator.x{text}y", raised(f"a{text}b"), pk=f"7{text}stator.forged", model=text)
        line = formatter.format(record)
        assert len(line.splitlines()) == 1
        assert text not in line
        line.encode()


def test_line_has_time_level_event_and_fields_plain_or_as_json():
    line = LineFormatter().format(record_of(model="shop.invoice", pk=7))
    assert line[26:] == "WARNING stator.attempt_failed model=shop.invoice pk=7"
    event = json.loads(JsonFormatter().format(record_of(model="shop.invoice", pk=7)))
    assert event.pop("at") > 0
    assert event == {"level": "warning", "event": "stator.attempt_failed", "model": "shop.invoice", "pk": 7}


def test_terminal_gets_the_traceback_on_lines_of_its_own():
    record = record_of(exc_info=raised("gone"), pk=7)
    first, *others = TerminalFormatter().format(record).removeprefix(CLEAR_LINE).split("\n")
    assert first == LineFormatter().format(record).partition(" | ")[0]
    assert others[0] == "    Traceback (most recent call last):"
    assert others[-1] == "    ValueError: gone"
    assert "        raise ValueError(message)" in others


@pytest.mark.parametrize("text", HOSTILE, ids=ascii)
def test_no_line_of_a_traceback_on_a_terminal_looks_like_an_event(text):
    forged = f"a{text}2026-11-24 10:00:00 INFO stator.forged"
    record = record_of(f"stator.x{text}y", raised(forged), pk=f"7{text}stator.forged", model=text)
    shown = TerminalFormatter().format(record).removeprefix(CLEAR_LINE)
    first, *others = shown.splitlines()
    assert first.count("stator.x") == first.count("stator.forged") == 1
    assert others == shown.split("\n")[1:]
    assert all(line.startswith("    ") for line in others)
    assert text == "\n" or text not in shown
    shown.encode()


@pytest.mark.parametrize(
    "formatter", [LineFormatter(), JsonFormatter(), TerminalFormatter()], ids=["plain", "json", "terminal"]
)
def test_traceback_of_an_event_has_a_bound_and_no_credentials(formatter):
    line = formatter.format(record_of(exc_info=raised("password=hunter2 " + "x" * 100_000)))
    assert "hunter2" not in line
    assert len(line) < 10_000


def test_events_of_workers_alone_go_to_the_stream_and_only_meanwhile():
    stream, loggers = io.StringIO(), [logging.getLogger(name) for name in ("stator", "tasks")]
    before = [(logger.handlers[:], logger.level, logger.propagate) for logger in loggers]
    with events_to(stream, as_json=True):
        logging.getLogger("stator.worker").info("stator.progress", extra={"handled": 3})
        logging.getLogger("tasks.dead_letters").info("tasks.dead_letter", extra={"task": 7})
        logging.getLogger("other").warning("not ours")
    events = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [(event["level"], event["event"]) for event in events] == [
        ("info", "stator.progress"), ("info", "tasks.dead_letter"),
    ]  # fmt: skip
    assert [(logger.handlers, logger.level, logger.propagate) for logger in loggers] == before


@pytest.fixture
def configure(monkeypatch):
    """Configures loggers as a project does: each that is named has one handler and a level, and no other has any."""

    def configure(handler=None, **levels):
        # In the test itself: pytest adds handlers of its own when that begins.
        for name in ("root", "stator", "tasks"):
            logger = logging.getLogger(None if name == "root" else name)
            monkeypatch.setattr(logger, "handlers", [handler] if name in levels else [])
            monkeypatch.setattr(logger, "level", levels.get(name, logging.WARNING if name == "root" else 0))
        logging.root.manager._clear_cache()

    yield configure
    monkeypatch.undo()
    logging.root.manager._clear_cache()


class Kept(logging.Handler):
    def __init__(self):
        super().__init__()
        self.told = []

    def emit(self, record):
        self.told.append(record.getMessage())


def say():
    logging.getLogger("stator.worker").info("stator.progress")
    logging.getLogger("tasks.dead_letters").warning("tasks.dead_letter")


def test_events_go_where_the_project_wants_all_events_unless_json_was_asked_for(configure):
    stream, handler = io.StringIO(), Kept()
    configure(handler, root=logging.INFO)
    with events_to(stream, as_json=False):
        say()
        assert logging.getLogger("stator").handlers == []
    assert (handler.told, stream.getvalue()) == (["stator.progress", "tasks.dead_letter"], "")
    with events_to(stream, as_json=True):
        say()
    assert (len(handler.told), len(stream.getvalue().splitlines())) == (2, 2)


def test_events_of_a_logger_that_the_project_configured_go_there_at_its_level(configure):
    stream, handler = io.StringIO(), Kept()
    configure(handler, stator=logging.ERROR)
    with events_to(stream, as_json=False):
        say()
        logging.getLogger("stator.worker").error("stator.attempt_failed")
        assert logging.getLogger("stator").handlers == [handler]
    assert handler.told == ["stator.attempt_failed"]
    assert [line[26:] for line in stream.getvalue().splitlines()] == ["WARNING tasks.dead_letter"]


def worker_with(handled, moved):
    recorder = SimpleNamespace(handled={"shop.invoice": handled}, moved=moved, failed=2, lost=0)
    return SimpleNamespace(recorder=recorder, attempts=SimpleNamespace(running={1: None}))


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_progress_line_tells_attempts_rate_and_states():
    worker = worker_with(1200, {("shop.invoice", "paid"): 900, ("shop.invoice", "sent\x1b"): 300})
    assert describe(worker, 55.4) == "1,200 attempts  55/s  running 1  failed 2  | paid 900  sent\\x1b 300"


def test_events_on_a_terminal_replace_the_progress_line(configure):
    stream = Terminal()
    configure()
    with events_to(stream, as_json=False):
        say()
    events = [event[26:] for event in stream.getvalue().split(CLEAR_LINE)[1:]]
    assert events == ["INFO stator.progress\n", "WARNING tasks.dead_letter\n"]


@pytest.mark.parametrize("formatter", [LineFormatter, TerminalFormatter])
def test_equal_tracebacks_are_written_once_a_minute_with_a_count(formatter, monkeypatch):
    now = 1000.0
    monkeypatch.setattr("stator.logs.time.monotonic", lambda: now)
    shown = formatter()
    first, second, third = (shown.format(record_of(exc_info=raised("gone"), pk=pk)) for pk in range(3))
    assert "raise ValueError" in first
    assert "raise ValueError" not in second + third
    assert second.endswith("the same traceback as 0 s ago, 1 more since")
    assert "pk=2" in third
    assert third.endswith("the same traceback as 0 s ago, 2 more since")
    assert "raise ValueError" in shown.format(record_of(exc_info=raised("lost")))
    now += 61
    assert "raise ValueError" in shown.format(record_of(exc_info=raised("gone")))
    # JSON has each.
    for _ in range(2):
        assert "raise ValueError" in json.loads(JsonFormatter().format(record_of(exc_info=raised("gone"))))["traceback"]
