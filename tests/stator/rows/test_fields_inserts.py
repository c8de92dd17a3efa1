"""An INSERT leaves out the framework's columns; rows and objects are the same as if it named them."""

import re
from datetime import UTC, datetime

import pytest
from asgiref.sync import async_to_sync
from django.db import connection
from django.test.utils import CaptureQueriesContext

from stator.rows import fields
from stator.rows.columns import FRAMEWORK_COLUMNS
from stator.testing import advance, drain
from tests.stator.making import ago, bulk, raw, row
from tests.testapp.basic import Page, Step

pytestmark = pytest.mark.django_db

LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)


def named(queries):
    """The framework's columns that each INSERT names."""
    inserted = (re.match(r'INSERT INTO ["`]\w+["`] \(([^)]*)\)', query["sql"]) for query in queries)
    return [FRAMEWORK_COLUMNS & set(re.findall(r"\w+", found[1])) for found in inserted if found]


def columns_of(instance):
    return {name: getattr(instance, name) for name in sorted(FRAMEWORK_COLUMNS)}


def test_new_object_names_none_of_the_frameworks_columns_and_is_as_its_row():
    with CaptureQueriesContext(connection) as queries:
        page = Page.objects.create(title="a")
    assert named(queries) == [set()]
    assert columns_of(page) == columns_of(row(page))
    assert (page.state_ready, page.state_version, page.state_claim) == (True, 0, None)
    assert 0 <= (datetime.now(UTC) - page.state_changed).total_seconds() < 60


def test_so_do_many_at_once():
    with CaptureQueriesContext(connection) as queries:
        pages = Page.objects.bulk_create(bulk(*(Page(title=str(number)) for number in range(20))))
    assert named(queries) == [set()]
    assert [columns_of(page) for page in pages] == [columns_of(row(page)) for page in pages]


@pytest.mark.parametrize(
    ("state", "ready", "is_due"), [("late", False, True), ("outside", False, False), ("done", False, False)]
)
@pytest.mark.parametrize("many", [False, True])
def test_state_that_is_not_attempted_at_once_is_named_in_the_insert(state, ready, is_due, many):
    step = Step.objects.bulk_create(bulk(Step(state=state)))[0] if many else Step.objects.create(state=state)
    found = row(step)
    assert (found.state, found.state_ready, found.state_next_attempt is not None) == (state, ready, is_due)
    assert step.state_ready == ready


def assigned(**columns):
    step = Step()
    for name, value in columns.items():
        setattr(step, name, value)
    step.save()
    return step


STARTED_LATER = {
    "create": lambda **columns: Step.objects.create(**columns),
    "acreate": lambda **columns: awaited(Step.objects.acreate, **columns),
    "assigned": assigned,
    "asave": lambda **columns: saved_by_async_code(Step(**columns)),
    "get_or_create": lambda **columns: Step.objects.get_or_create(name="a", defaults=columns)[0],
    "bulk_create": lambda **columns: Step.objects.bulk_create(bulk(Step(), Step(**columns)))[1],
    "abulk_create": lambda **columns: awaited(Step.objects.abulk_create, bulk(Step(**columns)))[0],
    "ignore_conflicts": lambda **columns: conflicting(Step(**columns)),
}


@async_to_sync
async def awaited(function, *args, **kwargs):
    return await function(*args, **kwargs)


def saved_by_async_code(step):
    awaited(step.asave)
    return step


def conflicting(step):
    Step.objects.bulk_create([step], ignore_conflicts=True)
    return raw(Step).get()


@pytest.mark.parametrize("create", STARTED_LATER.values(), ids=STARTED_LATER)
@pytest.mark.parametrize("state", ["new", "late"])
def test_object_that_is_created_to_start_later_is_not_attempted_before(create, state):
    due = ago(-3600)
    step = create(state_next_attempt=due, state=state)
    found = row(step)
    assert (found.state, found.state_ready, found.state_next_attempt) == (state, False, due)
    assert not step.state_ready
    raw(Step).exclude(pk=step.pk).delete()
    assert drain(Step) == 0
    advance(3601, Step)
    assert drain(Step) == 1


def test_start_that_is_past_is_now():
    step = Step.objects.create(state_next_attempt=ago(60))
    assert drain(Step) == 1
    assert row(step).state == "done"


def test_of_many_that_differ_each_has_its_own():
    steps = [Step(), Step(state="done"), Step(state_changed=LONG_AGO), Step(state_next_attempt=ago(-60))]
    with CaptureQueriesContext(connection) as queries:
        made = Step.objects.bulk_create(bulk(*steps))
    assert named(queries) == [{"state_ready", "state_changed", "state_next_attempt"}]
    new, done, old, later = (row(step) for step in made)
    assert (new.state_ready, done.state_ready) == (True, False)
    assert (old.state_changed, new.state_next_attempt) == (LONG_AGO, None)
    assert (later.state_ready, later.state_next_attempt) == (False, steps[3].state_next_attempt)


def test_insert_into_an_unmanaged_table_names_every_column(monkeypatch):
    monkeypatch.setattr(Page._meta, "managed", False)
    fields._left_to_defaults.cache_clear()
    try:
        with CaptureQueriesContext(connection) as queries:
            page = Page.objects.create(title="a")
    finally:
        fields._left_to_defaults.cache_clear()
    [columns] = named(queries)
    # That one Django leaves out itself from 6.0 on.
    assert columns | {"state_changed"} == FRAMEWORK_COLUMNS
    assert columns_of(page) == columns_of(row(page))
