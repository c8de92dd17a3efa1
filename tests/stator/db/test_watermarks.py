"""Under an old snapshot, polls and claims begin at a watermark; what lies before it is found at each interval."""

from types import SimpleNamespace

import pytest

from stator.graph.outcomes import Waiting
from stator.worker import watermarks
from stator.worker.dispatcher import Lanes
from stator.worker.outage import Outages
from stator.worker.scheduler import Scheduler
from tests.stator.making import FREE, LEASED, ago, automatic, change, locked_elsewhere, operations_of, put
from tests.stator.worker.fakes import at_once
from tests.testapp.fairness import Consignment, Enquiry, Rescue, Sender, Ticket
from tests.testapp.models import Line

pytestmark = [pytest.mark.postgresql, pytest.mark.usefixtures("transactional_db")]

# Of a poll and a claim that dead entries slow down: all of them count as slow.
ALWAYS = -1.0


class Worker:
    """The polls and claims of a worker on one model, and its clock."""

    def __init__(self, model, monkeypatch, **settings):
        self.now = 1000.0
        self.operations = operations_of(model, **settings)
        self.scheduler = Scheduler([self.operations], Lanes(()), self.operations.settings, at_once)
        monkeypatch.setattr(watermarks, "time", SimpleNamespace(monotonic=lambda: self.now))
        self.slow(monkeypatch, ALWAYS)

    def slow(self, monkeypatch, seconds):
        monkeypatch.setattr("stator.worker.watermarks.SLOW", seconds)
        monkeypatch.setattr("stator.worker.watermarks.SLOW_EACH", 0.0)
        monkeypatch.setattr("stator.db.claims.SLOW", seconds)

    def poll(self, *, later=0.0):
        self.now += later
        return self.scheduler.look(Outages())[self.operations]

    def claim(self, limit=10):
        """Claim rows of the states without a limit of their own; their keys."""
        states = [state for state in automatic(self.operations) if not state.concurrency]
        return [claim.pk for claim in self.operations.claim(states, limit)]

    @property
    def interval(self):
        return self.operations.settings.POLL_INTERVAL

    def begin_at_watermark(self):
        """Take what is there, and go on from a watermark."""
        self.claim()
        self.poll()
        self.poll()
        self.claim()


def ticket(**columns):
    return put(Ticket, **columns)


def enquiry(**columns):
    return put(Enquiry, tenant="a", **columns)


def consignment(**columns):
    sender, _ = Sender.objects.get_or_create(name="a")
    return put(Consignment, sender=sender, **columns)


MAKERS = {
    Line: lambda **columns: put(Line, **columns),
    Ticket: ticket,
    Rescue: lambda **columns: put(Rescue, **columns),
    Enquiry: enquiry,
    Consignment: consignment,
}


@pytest.fixture(params=MAKERS, ids=lambda model: model.__name__)
def kind(request):
    """A model, by age, by priority, fair, or with both, and what makes a row of it."""
    return request.param, MAKERS[request.param]


def test_rows_that_arrive_are_claimed_at_once(kind, monkeypatch):
    model, make = kind
    worker = Worker(model, monkeypatch)
    worker.begin_at_watermark()
    for _ in range(3):
        rows = [make() for _ in range(3)]
        assert worker.poll().ready
        assert worker.claim() == [row.pk for row in rows]
    assert not worker.poll().ready


def test_worker_that_has_nothing_else_to_do_looks_at_everything(monkeypatch):
    early = put(Line, state_changed=ago(500), **LEASED)
    worker = Worker(Line, monkeypatch)
    worker.begin_at_watermark()
    change(early, **FREE, state_ready=True)
    assert not worker.poll().ready
    worker.scheduler.soon(at_once=True)
    assert worker.poll().ready
    assert worker.claim() == [early.pk]


def test_row_that_is_ready_again_before_the_watermark_is_claimed_after_an_interval(kind, monkeypatch):
    model, make = kind
    early = make(state_changed=ago(500), **LEASED)
    worker = Worker(model, monkeypatch)
    worker.begin_at_watermark()
    change(early, **FREE, state_ready=True)
    late = make()
    # Until then, others may pass it.
    assert worker.claim(1) == [late.pk]
    assert worker.claim() == []
    assert worker.poll(later=worker.interval).ready
    later = make()
    assert worker.claim() == [early.pk, later.pk]
    assert not worker.poll(later=worker.interval).ready


def test_urgent_row_that_is_ready_again_before_the_watermark_comes_first_after_an_interval(monkeypatch):
    urgent = put(Ticket, urgency=1, state_changed=ago(500), **LEASED)
    worker = Worker(Ticket, monkeypatch)
    worker.begin_at_watermark()
    change(urgent, **FREE, state_ready=True)
    usual, first = put(Ticket), put(Ticket, urgency=2)
    assert worker.claim(1) == [first.pk], "by priority from the watermark on"
    worker.poll(later=worker.interval)
    assert worker.claim() == [urgent.pk, usual.pk]


def test_more_rows_before_the_watermark_than_one_claim_takes_are_claimed_without_further_polls(kind, monkeypatch):
    model, make = kind
    rows = [make(state_changed=ago(500 - number), **LEASED) for number in range(5)]
    worker = Worker(model, monkeypatch)
    worker.begin_at_watermark()
    for each in rows:
        change(each, **FREE, state_ready=True)
    worker.poll(later=worker.interval)
    assert [worker.claim(2) for _ in range(4)] == [[row.pk for row in rows[at : at + 2]] for at in (0, 2, 4, 6)]


def test_row_that_others_have_locked_is_claimed_an_interval_after_its_release(kind, monkeypatch):
    model, make = kind
    row = make(state_changed=ago(500))
    worker = Worker(model, monkeypatch)
    with locked_elsewhere(row):
        worker.begin_at_watermark()
        assert worker.poll(later=worker.interval).ready
        assert worker.claim() == []
    assert worker.poll(later=worker.interval).ready
    assert worker.claim() == [row.pk]


def test_row_that_was_committed_late_is_claimed_an_interval_after_that(monkeypatch):
    worker = Worker(Line, monkeypatch)
    worker.begin_at_watermark()
    # Its place in the line is the time of the statement, not of the commit.
    late = put(Line, state_changed=ago(30))
    assert not worker.poll().ready
    assert worker.poll(later=worker.interval).ready
    assert worker.claim() == [late.pk]


def test_lease_that_ran_out_before_the_watermark_is_found_as_often_as_leases_are_reaped(monkeypatch):
    worker = Worker(Line, monkeypatch, REAP_INTERVAL=5.0)
    worker.begin_at_watermark()
    row = put(Line, **LEASED)
    change(row, state_locked_until=ago(30))
    assert not worker.poll().expired
    assert worker.poll(later=5.0).expired
    change(row, state_locked_until=ago(0))
    assert worker.poll().expired, "as all that ran out since"


def test_row_that_is_due_before_the_watermark_is_found_after_an_interval(monkeypatch):
    row = put(Line)
    worker = Worker(Line, monkeypatch)
    [claim] = worker.operations.claim(automatic(worker.operations), 1)
    worker.operations.record([(claim, Waiting(600.0))])
    worker.begin_at_watermark()
    change(row, state_next_attempt=ago(30))
    assert not worker.poll().due
    assert worker.poll(later=worker.interval).due
    change(row, state_next_attempt=ago(0))
    assert worker.poll().due


def test_rows_before_the_watermark_are_claimed_at_once_when_polls_are_fast_again(kind, monkeypatch):
    model, make = kind
    row = make(state_changed=ago(500), **LEASED)
    worker = Worker(model, monkeypatch)
    worker.begin_at_watermark()
    worker.slow(monkeypatch, 600.0)
    worker.poll(later=worker.interval)
    change(row, **FREE, state_ready=True)
    assert worker.claim() == [row.pk]
