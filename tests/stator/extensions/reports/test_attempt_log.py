"""What is kept of the lines that an attempt logs: the last ones, bounded, without credentials."""

import logging
from types import SimpleNamespace

import pytest

from stator.extensions.reports.attempt_log import LOG, MAX_BYTES, MAX_LINES, AttemptLog, keep_logs
from stator.graph.running import RUNNING


@pytest.fixture
def running():
    """Two claims whose attempt this context runs, in a process that keeps logs."""
    before = logging.getLogRecordFactory()
    keep_logs()
    claims = [SimpleNamespace(kept={}, finished=0.0) for _ in range(2)]
    token = RUNNING.set(claims)
    yield claims
    RUNNING.reset(token)
    logging.setLogRecordFactory(before)


def test_the_last_lines_are_kept():
    log = AttemptLog()
    for number in range(MAX_LINES + 5):
        log.add(f"line {number}")
    lines = log.text.splitlines()
    assert (len(lines), lines[0], lines[-1]) == (MAX_LINES, "line 5", f"line {MAX_LINES + 4}")


@pytest.mark.parametrize("text", ["x" * 1000, "\N{EURO SIGN}" * 1000, "x" * 10 * MAX_BYTES, "long\n" * MAX_BYTES])
def test_bytes_are_bounded_whatever_is_logged(text):
    log = AttemptLog()
    for _ in range(100):
        log.add(text)
    log.add("the last line")
    assert len(log.text.encode()) <= MAX_BYTES
    assert log.text.endswith("the last line")


def test_credentials_and_characters_that_no_database_stores_are_masked():
    log = AttemptLog()
    log.add("password=hunter2 and a NUL: \x00")
    assert log.text == "password=*** and a NUL: \ufffd"


def test_records_of_any_logger_are_kept_with_all_claims_of_the_attempt(running):
    silent = logging.getLogger("tests.that.does.not.propagate")
    silent.propagate = False
    logging.getLogger("shop").warning("charged %s", 7)
    silent.error("no %d", "number")
    try:
        raise ValueError("too much")
    except ValueError:
        logging.getLogger("shop").exception("gave up")
    logging.getLogger("shop").debug("below its level")
    first, other = running
    assert LOG.of(first) is LOG.of(other)
    lines = LOG.of(first).text.splitlines()
    assert [line.partition(" ")[2] for line in lines[:3]] == [
        "WARNING shop: charged 7", "ERROR tests.that.does.not.propagate: no %d", "ERROR shop: gave up",
    ]  # fmt: skip
    assert lines[-1] == "ValueError: too much"


def test_nothing_is_kept_outside_of_attempts_and_each_attempt_has_a_log_of_its_own(running):
    claims = running
    logging.getLogger("shop").warning("first")
    again = [claims[0]]
    RUNNING.set(again)
    logging.getLogger("shop").warning("second")
    assert "first" not in LOG.of(claims[0]).text
    RUNNING.set(None)
    logging.getLogger("shop").warning("outside")
    assert LOG.of(claims[0]).text.endswith("WARNING shop: second")
    # A thread that an attempt left behind logs after its end.
    RUNNING.set(again)
    again[0].finished = 1.0
    logging.getLogger("shop").warning("late")
    assert "late" not in LOG.of(claims[0]).text
    again[0].finished = 0.0
    # As records of other processes are made, before their values are set.
    RUNNING.set(again)
    logging.makeLogRecord({"name": "far", "msg": "away"})
    assert "away" not in LOG.of(claims[0]).text
