"""Requests per minute: never more than allowed over all processes, and few writes."""

import threading

import pytest
from django.db import connection, connections
from django.test.utils import CaptureQueriesContext

from tasks.api import rates as module
from tasks.api.errors import TooMany
from tasks.api.rates import Rates
from tasks.consumers import Consumer

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def minute(monkeypatch):
    """A minute that does not end in the middle of a test."""
    monkeypatch.setattr(module, "TruncMinute", lambda now: module.Value("2030-01-31 12:00:00+00:00", MOMENT))
    monkeypatch.setattr(module, "_seconds_left", lambda pk: 30.0)


MOMENT = Consumer._meta.get_field("used_minute").__class__()


@pytest.fixture
def consumer():
    made = Consumer(name="bot")
    made.issue()
    made.save()
    return made


def allowed(rates, consumer, most, asked):
    """How many of so many requests are let through."""
    count = 0
    for _ in range(asked):
        try:
            rates.take(consumer, most)
        except TooMany:
            continue
        count += 1
    return count


@pytest.mark.parametrize("most", [1, 7, 19, 20, 119, 400])
def test_exactly_as_many_as_allowed(consumer, most):
    assert allowed(Rates(), consumer, most, most + 30) == most
    consumer.refresh_from_db()
    assert consumer.used_count == most


def test_over_several_processes_never_more(consumer):
    processes = [Rates() for _ in range(3)]
    count = sum(allowed(processes[turn % 3], consumer, 100, 1) for turn in range(300))
    assert 100 - 2 * 100 // 20 <= count <= 100


def test_threads_of_one_process_waste_nothing(consumer):
    rates, counts = Rates(), []

    def work():
        try:
            counts.append(allowed(rates, consumer, 40, 20))
        finally:
            connections.close_all()

    threads = [threading.Thread(target=work) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(counts) == 40


def test_block_that_another_thread_has_taken_meanwhile_is_not_lost(consumer, monkeypatch):
    rates, ask = Rates(), module._block_from_database
    others = iter([lambda: rates.take(consumer, 40)])

    def ask_while_another_does(pk, most):
        block = ask(pk, most)
        for other in others:
            other()
        return block

    monkeypatch.setattr(module, "_block_from_database", ask_while_another_does)
    rates.take(consumer, 40)
    assert allowed(rates, consumer, 40, 60) == 38


def test_writes_are_few_and_refusals_cost_nothing(consumer):
    rates = Rates()
    with CaptureQueriesContext(connection) as queries:
        assert allowed(rates, consumer, 1000, 1000) == 1000
    writes = [query for query in queries.captured_queries if query["sql"].startswith("UPDATE")]
    assert len(writes) == 20
    assert allowed(rates, consumer, 1000, 1) == 0
    with CaptureQueriesContext(connection) as queries:
        assert allowed(rates, consumer, 1000, 1000) == 0
    assert len(queries) == 0


def test_refusal_says_when_the_minute_ends(consumer):
    rates = Rates()
    rates.take(consumer, 1)
    with pytest.raises(TooMany) as refused:
        rates.take(consumer, 1)
    assert refused.value.status == 429
    assert 29 <= int(refused.value.headers["Retry-After"]) <= 30


def test_consumers_do_not_share(consumer):
    other = Consumer(name="other")
    other.issue()
    other.save()
    rates = Rates()
    assert allowed(rates, consumer, 3, 5) == 3
    assert allowed(rates, other, 3, 5) == 3


def test_a_new_minute_begins_anew(consumer, monkeypatch):
    rates = Rates()
    assert allowed(rates, consumer, 5, 10) == 5
    monkeypatch.setattr(module, "TruncMinute", lambda now: module.Value("2030-01-31 12:01:00+00:00", MOMENT))
    monkeypatch.setattr(module.time, "monotonic", lambda now=module.time.monotonic: now() + 31)
    assert allowed(rates, consumer, 5, 10) == 5


def test_minute_is_that_of_the_database(consumer, monkeypatch):
    monkeypatch.undo()
    assert 0 < module._seconds_left(consumer.pk) <= 60
    Rates().take(consumer, 10)
    consumer.refresh_from_db()
    assert consumer.used_minute.second == consumer.used_minute.microsecond == 0
    assert consumer.used_count == 1
