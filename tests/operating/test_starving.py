"""One tenant whose objects hold the line: it is named, with fair_by, and a command lets the others through."""

import json
import re
import shlex
from io import StringIO

import pytest
from django.core.management import call_command
from django.db import connection

from stator.extensions.problems.survey import survey
from stator.models import Worker
from stator.testing import drain
from tasks.models import Queue, Task
from tests.operating.tools import overview, shell
from tests.queries import unbounded
from tests.stator.making import ago, change, raw
from tests.testapp.explained import Errand
from tests.testapp.fairness import Enquiry

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def live():
    """A worker that lives for longer than anything has waited."""
    models = ["testapp.errand", "testapp.enquiry", "tasks.task"]
    Worker.objects.create(id="b" * 12, host="oak", pid=7, version="1", models=models, database="default")
    raw(Worker).update(started=ago(9000))


def fill(model, values, **columns):
    """Rows that are ready, the first in line first; the last of them has waited for five minutes."""
    raw(model).bulk_create([model(**value, **columns) for value in values])
    rows = list(raw(model).order_by("pk"))
    for place, row in enumerate(rows):
        row.state_changed, row.state_ready = ago(300 + len(values) - place), True
    raw(model).bulk_update(rows, ["state_changed", "state_ready"])


def told():
    status = shell("stator", "status", "testapp.Errand", "testapp.Enquiry", "tasks.Task", "--json")
    return [one for one in json.loads(status)["troubles"] if one["code"] == "starved"]


ONE_MANY = [{"tenant": 7}] * 240 + [{"tenant": 8}, {"tenant": 9}]


def test_value_that_holds_the_line_is_named_and_its_command_lets_others_through():
    fill(Errand, ONE_MANY)
    [found] = told()
    assert found["level"] == "warning"
    assert re.fullmatch(
        r"one tenant holds the line: 200 of the first 200 objects have it; 2 other values wait behind them, the first "
        r"for 5 m( \d+ s)?",
        found["sentence"],
    )
    assert found["detail"] == "tenant=7; behind it 8, 9"
    assert 'fair_by = "tenant"' in found["remedy"]
    assert "one tenant holds the line" in (page := overview())
    assert found["command"] in page
    shell(*shlex.split(found["command"])[1:])
    assert not told()
    drain(Errand)
    assert not raw(Errand).filter(tenant__in=[8, 9], state="new", state_ready=True).exists()
    assert raw(Errand).filter(tenant=7, state_ready=True).count() == 240


@pytest.mark.parametrize(
    ("model", "values"),
    [
        pytest.param(Enquiry, [{"tenant": str(one["tenant"])} for one in ONE_MANY], id="they take turns"),
        pytest.param(Errand, [{"tenant": number % 4} for number in range(240)], id="nobody has many"),
        pytest.param(Errand, [{"tenant": 7}] * 40 + [{"tenant": 8}] * 5, id="few"),
    ],
)
def test_line_that_nobody_holds_is_no_problem(model, values):
    fill(model, values)
    assert not told()


def test_others_that_have_just_come_do_not_starve():
    fill(Errand, ONE_MANY)
    raw(Errand).exclude(tenant=7).update(state_changed=ago(5))
    assert not told()


def test_few_rows_are_read_and_only_if_they_wait(django_assert_max_num_queries):
    fill(Errand, ONE_MANY)
    # Both ends of the line are read at once if the database unites queries with limits.
    ends = 1 if connection.features.supports_slicing_ordering_in_compound else 2
    with django_assert_max_num_queries(15 + ends) as queries:
        survey("default", [Errand])
    asked = [one["sql"] for one in queries.captured_queries]
    assert not unbounded(asked)
    raw(Errand).update(state_changed=ago(1))
    with django_assert_max_num_queries(len(asked) - 1 - ends):
        survey("default", [Errand])


def publish(queue, count, **metadata):
    queue.publish_many([{"action": "echo", "metadata": metadata} for _ in range(count)])


@pytest.mark.django_db(transaction=True)
def test_queue_that_holds_the_line_of_all_is_named_and_another_worker_serves_the_rest():
    busy, other = (Queue.objects.create(name=name) for name in ("busy", "other"))
    publish(busy, 230)
    publish(other, 2)
    raw(Task).update(state_changed=ago(300))
    raw(Task).filter(queue=other).update(priority=9_999_999_999_999)
    [found] = told()
    assert found["sentence"].startswith(
        "one queue holds the line: 200 of the first 200 tasks have it; another value waits"
    )
    assert found["detail"] == "queue=busy; behind it other"
    _, *arguments = shlex.split(found["command"])
    assert arguments == ["runstator", "tasks.Task", "--exclude-queue", "busy"]
    call_command(*arguments, "--until-idle", stdout=StringIO(), stderr=StringIO())
    assert set(other.tasks.values_list("state", flat=True)) == {"completed"}
    assert not told()


@pytest.mark.django_db(transaction=True)
def test_tenant_in_metadata_that_holds_a_queue_is_named_and_another_worker_serves_the_rest():
    queue = Queue.objects.create(name="mail")
    publish(queue, 230, tenant="acme", kind="bill")
    publish(queue, 2, tenant="bolt", kind="bill")
    raw(Task).update(state_changed=ago(300))
    [found] = told()
    assert found["sentence"].startswith("one tenant holds the line: 200 of the first 200 tasks have it")
    assert found["detail"] == "queue mail: tenant=acme; behind it bolt"
    assert "fair_by = 'tenant'" in found["remedy"]
    _, *arguments = shlex.split(found["command"])
    call_command(*arguments, "--until-idle", stdout=StringIO(), stderr=StringIO())
    assert queue.tasks.filter(state="completed").count() == 2
    assert not told()


def test_paused_queue_holds_nothing():
    busy, other = (Queue.objects.create(name=name) for name in ("busy", "other"))
    publish(busy, 230)
    publish(other, 2)
    raw(Task).update(state_changed=ago(300))
    busy.pause(publish=False, claim=True)
    assert not told()
    change(busy, claim_paused=False)
    assert told()
