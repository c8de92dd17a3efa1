"""What an INSERT of managed objects names, and that rows and objects are the same as if it named everything."""

import re
from datetime import UTC, datetime

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from stator import inserts
from stator.columns import FRAMEWORK_COLUMNS
from tests.stator.rows import ago, raw, row
from tests.testapp.basic import Page, Step

pytestmark = pytest.mark.django_db

LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)


def named(queries):
    """The framework's columns that each INSERT names."""
    inserted = (re.match(r'INSERT INTO "\w+" \(([^)]*)\)', query["sql"]) for query in queries)
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
        pages = Page.objects.bulk_create(Page(title=str(number)) for number in range(20))
    assert named(queries) == [set()]
    assert [columns_of(page) for page in pages] == [columns_of(row(page)) for page in pages]


@pytest.mark.parametrize(
    ("state", "ready", "is_due"), [("late", False, True), ("outside", False, False), ("done", False, False)]
)
@pytest.mark.parametrize("bulk", [False, True])
def test_state_that_is_not_attempted_at_once_is_told(state, ready, is_due, bulk):
    step = Step.objects.bulk_create([Step(state=state)])[0] if bulk else Step.objects.create(state=state)
    found = row(step)
    assert (found.state, found.state_ready, found.state_next_attempt is not None) == (state, ready, is_due)
    assert step.state_ready == ready


def test_of_many_that_differ_each_has_its_own():
    steps = [Step(), Step(state="done"), Step(state_changed=LONG_AGO), Step(state_next_attempt=ago(-60))]
    with CaptureQueriesContext(connection) as queries:
        made = Step.objects.bulk_create(steps)
    assert named(queries) == [{"state_ready", "state_changed", "state_next_attempt"}]
    new, done, old, later = (row(step) for step in made)
    assert (new.state_ready, done.state_ready) == (True, False)
    assert (old.state_changed, new.state_next_attempt) == (LONG_AGO, None)
    assert later.state_next_attempt == steps[3].state_next_attempt


def test_copy_begins_anew():
    first = Page.objects.create(title="a", state="review")
    raw(Page).filter(pk=first.pk).update(state_version=7, state_attempts=3, state_changed=LONG_AGO, state_ready=False)
    copied = Page.objects.get(pk=first.pk)
    copied.title, copied.pk = "b", None
    copied._state.adding = True
    with CaptureQueriesContext(connection) as queries:
        copied.save()
    assert named(queries) in ([set()], [{"state_changed"}])
    found = row(copied)
    assert (found.state, found.state_version, found.state_attempts, found.state_ready) == ("review", 0, 0, True)
    assert found.state_changed > LONG_AGO


def test_table_that_django_does_not_make_is_told_everything(monkeypatch):
    monkeypatch.setattr(Page._meta, "managed", False)
    inserts._left_to_defaults.cache_clear()
    try:
        with CaptureQueriesContext(connection) as queries:
            page = Page.objects.create(title="a")
    finally:
        inserts._left_to_defaults.cache_clear()
    [columns] = named(queries)
    # That one Django leaves out itself from 6.0 on.
    assert columns | {"state_changed"} == FRAMEWORK_COLUMNS
    assert columns_of(page) == columns_of(row(page))
