"""Requests per minute: never more than allowed over all processes, and few writes."""

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from tasks.api import rate_limits as module
from tasks.api.errors import TooMany
from tasks.api.rate_limits import Rates, rates, row_rates
from tasks.extensions.api.models import Consumer
from tasks.models import Queue, Task
from tests.stator.making import at_once
from tests.tasks.serving import token

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def minute(monkeypatch):
    """A minute that does not end in the middle of a test."""
    monkeypatch.setattr(module, "Minute", lambda now: module.Value("2030-01-31 12:00:00+00:00", MOMENT))
    monkeypatch.setattr(module, "_seconds_left", lambda pk: 30.0)


MOMENT = Consumer._meta.get_field("used_minute").__class__()


@pytest.fixture
def consumer():
    made = Consumer(name="bot")
    made.issue()
    made.save()
    return made


def allowed(rates, consumer, most, asked, amount=1):
    """How many of so many requests are let through."""
    count = 0
    for _ in range(asked):
        try:
            rates.take(consumer, most, amount)
        except TooMany:
            continue
        count += 1
    return count


@pytest.mark.parametrize("most", [1, 19, 119])
def test_exactly_as_many_as_allowed(consumer, most):
    assert allowed(Rates(), consumer, most, most + 30) == most
    consumer.refresh_from_db()
    assert consumer.used_count == most


def test_over_several_processes_never_more(consumer):
    processes = [Rates() for _ in range(3)]
    count = sum(allowed(processes[turn % 3], consumer, 100, 1) for turn in range(300))
    assert 100 - 2 * 100 // 20 <= count <= 100


def test_threads_that_ask_at_once_take_one_block(consumer):
    rates = Rates()
    assert at_once(*[lambda: allowed(rates, consumer, 400, 1)] * 8) == [1] * 8
    consumer.refresh_from_db()
    assert consumer.used_count == 400 // module.BLOCKS


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


def test_minute_is_that_of_the_database(consumer, monkeypatch):
    monkeypatch.undo()
    assert 0 < module._seconds_left(consumer.pk) <= 60
    Rates().take(consumer, 10)
    consumer.refresh_from_db()
    assert consumer.used_minute.second == consumer.used_minute.microsecond == 0
    assert consumer.used_count == 1


@pytest.mark.parametrize(("most", "amount"), [(100, 7), (100, 100)])
def test_amounts_are_let_through_as_far_as_they_fit(consumer, most, amount):
    rates = Rates("used_rows")
    assert allowed(rates, consumer, most, most, amount) == most // amount
    # A smaller one may still fit.
    assert allowed(rates, consumer, most, most) == most % amount
    consumer.refresh_from_db()
    assert (consumer.used_rows, consumer.used_count) == (most, 0)


def test_amount_above_what_a_minute_has_is_refused(consumer):
    assert allowed(Rates(), consumer, 5, 3, 6) == 0
    consumer.refresh_from_db()
    assert consumer.used_count == 0


def test_requests_and_rows_are_counted_apart_and_begin_anew_together(consumer, monkeypatch):
    requests, rows = Rates(), Rates("used_rows")
    assert allowed(requests, consumer, 5, 9) == 5
    assert allowed(rows, consumer, 3, 9) == 3
    monkeypatch.setattr(module, "Minute", lambda now: module.Value("2030-01-31 12:01:00+00:00", MOMENT))
    monkeypatch.setattr(module.time, "monotonic", lambda now=module.time.monotonic: now() + 31)
    assert allowed(rows, consumer, 3, 1) == 1
    consumer.refresh_from_db()
    assert (consumer.used_count, consumer.used_rows) == (0, 1)
    assert allowed(requests, consumer, 5, 9) == 5


def test_requests_beyond_the_rate_are_refused_and_wrong_tokens_take_nothing_from_right_ones(client, settings):
    settings.STATOR_TASKS = {"API_REQUESTS_PER_MINUTE": 1}
    for given, codes in (
        (token(requests_per_minute=3), [200, 200, 200, 429, 429]),
        # By the setting.
        (token("other"), [200, 429]),
    ):
        for _ in range(5):
            client.get("/api/queues", headers={"Authorization": f"Bearer {given[:-1]}"})
        answers = [client.get("/api/queues", headers={"Authorization": f"Bearer {given}"}) for _ in codes]
        assert [answer.status_code for answer in answers] == codes
        assert 1 <= int(answers[-1]["Retry-After"]) <= 30


@pytest.mark.needs("shared")
class TestPublishing:
    @pytest.fixture
    def publish(self, client):
        rates._blocks.clear()
        row_rates._blocks.clear()
        Queue.objects.create(name="encode", actions_elsewhere=True)

        def call(*counts, **values):
            if not Consumer.objects.exists():
                call.token = token("bot", **values)
            headers = {"Authorization": f"Bearer {call.token}"}
            body = {"tasks": [{"action": "thumbnail", "worker_count": count} for count in counts]}
            path = "/api/queues/encode/tasks/bulk"
            if len(counts) == 1:
                body, path = body["tasks"][0], "/api/queues/encode/tasks"
            answer = client.post(path, body, content_type="application/json", headers=headers)
            return answer, answer.json().get("error")

        return call

    def test_each_row_counts_and_not_each_request(self, publish):
        assert publish(9, rows_per_minute=30)[0].status_code == 201
        assert publish(9, 1, 1, 6)[0].status_code == 200
        assert publish(1)[0].status_code == 201
        assert Task.objects.count() == 30
        answer, code = publish(1)
        assert (answer.status_code, code) == (429, "rate_limited")
        assert 1 <= int(answer["Retry-After"]) <= 30
        assert "rows left to publish in this minute" in answer.json()["detail"]
        assert Task.objects.count() == 30

    def test_request_that_no_minute_would_have_room_for_is_wrong(self, publish):
        answer, code = publish(1000, rows_per_minute=1000)
        assert (answer.status_code, code) == (400, "invalid")
        told = "1,001 rows are too many for one call; the maximum is 1,000 (worker_count=n is n + 1 rows)"
        assert answer.json()["detail"] == told
