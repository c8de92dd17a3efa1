"""A listener that hears nothing goes on trying, and says why; the rest needs servers that go away (tests/faults)."""

import logging

import psycopg
import pytest
from django.db import connection

from tests.processes import wait_until

if connection.vendor == "postgresql":
    from stator.worker import listener
    from stator.worker.listener import Listener

pytestmark = [pytest.mark.postgresql, pytest.mark.django_db(transaction=True)]


@pytest.fixture
def listening(monkeypatch):
    monkeypatch.setattr(listener, "PATIENCE", 0.0)
    one = Listener("default", "", lambda label: None)
    one.start()
    yield one
    one.stop(5.0)


def old_driver(self, **options):
    """As of psycopg 3.1."""
    raise TypeError("Connection.notifies() got an unexpected keyword argument 'timeout'")


def test_error_of_any_kind_is_told_and_does_not_end_the_thread(monkeypatch, caplog, request):
    caplog.set_level(logging.WARNING, "stator.worker")
    monkeypatch.setattr(listener, "PING_TIMEOUT", 0.05)
    with monkeypatch.context() as patch:
        patch.setattr(psycopg.Connection, "notifies", old_driver)
        one = request.getfixturevalue("listening")
        wait_until(lambda: len(caplog.records) >= 3)
        assert one.trouble == f"TypeError: {caplog.records[0].message_text}"
        assert "unexpected keyword argument 'timeout'" in one.trouble
        assert not one.alive
    wait_until(lambda: one.alive)
    assert one.trouble == ""


class Waits(list):
    """In place of an event: the waits so far; stopped after four."""

    def is_set(self):
        return len(self) >= 4

    def wait(self, seconds):
        self.append(seconds)


def test_error_after_each_connection_is_repeated_with_growing_pauses(monkeypatch):
    monkeypatch.setattr(psycopg.Connection, "notifies", old_driver)
    monkeypatch.setattr(listener, "PING_TIMEOUT", 0.05)
    one = Listener("default", "", lambda label: None)
    one._stopped = waits = Waits()
    with one._ear, one._mouth:
        one._work()
    assert waits == sorted(waits)
    assert waits[-1] > 4 * waits[0]
