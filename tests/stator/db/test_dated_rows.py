"""What rows with dates of their own have in common: those that time out by one, and those not attempted before one."""

import re
from datetime import timedelta
from typing import Any, NamedTuple

import pytest
from django.db import connection

from stator.conf import Settings
from stator.db.probe import look
from stator.runner import StatorRunner
from stator.signals import transitioned
from tests.sizes import CROWDED, PATIENCE
from tests.stator.making import ago, operations_of, put, raw, row
from tests.stator.running import connected, work
from tests.testapp.dated import Circular, Offer, Watch
from tests.testapp.faults import Job

pytestmark = pytest.mark.usefixtures("transactional_db")


class Kind(NamedTuple):
    """``found``: what a poll says of a row whose date has come; ``ends``: the state to which a worker moves it."""

    model: Any
    column: str
    found: str
    ends: str
    given: dict[str, str]

    def put(self, seconds):
        return put(self.model, **{self.column: ago(seconds)}, **self.given)

    def looked(self, operations):
        return getattr(look(operations)[operations], self.found)


@pytest.fixture(
    params=[
        Kind(Watch, "alert_after", "past", "down", {}),
        Kind(Circular, "send_after", "due", "answered", {"name": "answered"}),
    ],
    ids=["deadline", "start"],
)
def kind(request):
    return request.param


@pytest.fixture(params=["vendor", "portable"])
def operations(kind, request):
    return operations_of(kind.model, request.param)


def test_poll_finds_rows_whose_date_has_come_however_that_was_written(kind, operations):
    one = kind.put(-3600)
    assert not kind.looked(operations)
    with connection.cursor() as cursor:
        cursor.execute(f"UPDATE {kind.model._meta.db_table} SET {kind.column} = %s WHERE id = %s", [ago(1), one.pk])
    assert kind.looked(operations)


def test_poll_tells_when_the_next_date_comes(kind, operations):
    kind.put(-3600)
    assert look(operations)[operations].next_due is None
    kind.put(-0.5)
    assert 0 < look(operations)[operations].next_due <= 0.5


def test_poll_of_several_models_keeps_their_answers_apart(kind, operations):
    jobs, offers = operations_of(Job), operations_of(Offer)
    kind.put(-60)
    raw(kind.model).update(**{kind.column: ago(1)})
    put(Offer, expires=ago(-3600))
    found = look(jobs, operations, offers)
    assert [(getattr(found[each], kind.found), found[each].ready) for each in (jobs, operations, offers)] == [
        (False, False), (True, False), (False, True),
    ]  # fmt: skip


def test_sqlite_and_mariadb_find_them_by_the_index_of_each(kind):
    if connection.vendor == "postgresql":
        pytest.skip("tests/stator/db/test_postgresql_plans.py asks its planner")
    moments = [ago(-100 - number) for number in range(2000)]
    kind.model.objects.bulk_create(kind.model(**{kind.column: moment}) for moment in moments)
    with connection.cursor() as cursor:
        cursor.execute(f"ANALYZE TABLE {kind.model._meta.db_table}" if connection.vendor == "mysql" else "ANALYZE")
        cursor.fetchall()
    operations = operations_of(kind.model)
    found = [operations.past(each) for each in operations.deadlines if each.column or connection.vendor == "sqlite"]
    if operations.starts:
        found = [operations.due()[1], operations.beginning(operations.starts[0], 1)]
    assert found
    for rows in found:
        plan = rows.order_by().values("pk")[:1].explain()
        assert re.search(r"USING (COVERING )?INDEX st_(at|try)| range \S+ st_(at|try)", plan), plan


def test_model_without_dates_is_asked_nothing_more():
    job = operations_of(Job)
    assert not job.deadlines
    assert not job.starts
    assert len(job.due()) == 2
    assert not [index for index in Job._meta.indexes if index.name.startswith(("st_at", "st_try"))]


def test_worker_heeds_a_date_within_a_poll_of_it(kind):
    one = kind.put(-0.3)
    worker = StatorRunner([kind.model], schedule_interval=500.0, run_for=PATIENCE).worker()
    with connected(transitioned, lambda **values: worker.stop()):
        worker.run()
    found = row(one)
    assert found.state == kind.ends
    after = found.state_changed - getattr(found, kind.column)
    assert timedelta(0) < after < timedelta(seconds=Settings().POLL_INTERVAL + CROWDED)


def test_worker_until_idle_does_what_is_late_and_does_not_wait_for_what_is_not(kind):
    late, early = kind.put(1), kind.put(-3600)
    was = early.state
    work(kind.model)
    assert [row(each).state for each in (late, early)] == [kind.ends, was]
    assert row(early).state_attempts == 0
