"""No model, tenant or priority starves the others, with real workers."""

import threading
import time

import pytest
from django.db import connection, connections

from stator.runner import StatorRunner
from tests.stator.making import ago, put, raw
from tests.testapp.fairness import Consignment, Crowd, CrowdGraph, Guest, Sender, Ticket

pytestmark = pytest.mark.usefixtures("transactional_db")

FLOOD = 100_000
OF_CROWD = "state, state_ready, state_changed, state_attempts, state_failures, state_crashes, state_version"
DOUBLE = f"INSERT INTO testapp_crowd ({OF_CROWD}) SELECT {OF_CROWD} FROM testapp_crowd LIMIT %s"
MANNERS = [("threaded", "threaded"), ("narrow", "awaited")]


@pytest.fixture
def begun(monkeypatch):
    """When the attempt on each row began."""
    found = {}
    monkeypatch.setattr(CrowdGraph, "begun", found)
    return found


class Observer:
    """Called by a worker on its way: lets a guest come in while the crowd is served, and stops once it was served."""

    def __init__(self, begun, state, seconds):
        self._begun, self._state, self._end = begun, state, time.monotonic() + seconds
        self.came = self.guest = None

    def __call__(self, worker):
        if self.guest is None and len(self._begun) >= 10:
            thread = threading.Thread(target=self._come)
            thread.start()
            thread.join()
        if self._served is not None or time.monotonic() > self._end:
            worker.stop()

    def _come(self):
        try:
            # As by a program that knows nothing of workers: none is notified.
            raw(Guest).bulk_create([Guest(state=self._state)])
            self.came = time.monotonic()
            self.guest = raw(Guest).get().pk
        finally:
            connections.close_all()

    @property
    def _served(self):
        return self._begun.get(("guest", self.guest))

    @property
    def waited(self):
        assert self._served is not None, f"it was not served at all: {len(self._begun)} were"
        return self._served - self.came


@pytest.mark.parametrize(("of_crowd", "of_guest"), MANNERS)
def test_model_with_a_hundred_thousand_ready_rows_does_not_hold_up_the_one_of_another(begun, of_crowd, of_guest):
    raw(Crowd).create(state=of_crowd)
    with connection.cursor() as cursor:
        for power in range(17):
            cursor.execute(DOUBLE, [FLOOD - 2**power])
    waited = []
    # Six times before it is believed that it takes longer: other processes may have had the machine.
    while len(waited) < 6 and min(waited, default=1.0) >= 1.0:
        raw(Guest).all().delete()
        observer = Observer(begun, of_guest, seconds=30)
        StatorRunner([Crowd, Guest], progress=observer).run()
        assert len(begun) < FLOOD, "there was no crowd any more"
        waited.append(observer.waited)
    assert min(waited) < 1.0, waited


def test_place_in_line_follows_priority_age_and_key_among_rows_of_its_own_value():
    late, first = put(Ticket, urgency=5, state_changed=ago(1)), put(Ticket, urgency=1)
    put(Ticket, urgency=9, state_changed=ago(1000))
    put(Ticket, urgency=5, state_changed=ago(60))
    assert in_line(first) == ("Ready, and next in line.", {"ahead": 0})
    assert in_line(late) == ("Ready, with 2 objects before it.", {"ahead": 2})
    for urgency in (1, 5, 5):
        put(Consignment, sender=Sender.objects.get_or_create(pk=1)[0], urgency=urgency, state_changed=ago(50))
    mine = put(Consignment, sender=Sender.objects.create(pk=2), urgency=5)
    assert in_line(mine) == (
        "Ready, and next in line of sender 2; the values of sender take turns.",
        {"ahead": 0, "fair_by": "sender", "value": "2"},
    )
    put(Consignment, sender_id=2, urgency=1)
    sentence, numbers = in_line(mine)
    assert sentence == "Ready, with 1 object of sender 2 before it; the values of sender take turns."
    assert numbers["ahead"] == 1


def in_line(instance):
    reason = next(reason for reason in instance.explain() if reason.code == "in_line")
    return reason.sentence, reason.numbers
