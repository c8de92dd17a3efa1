"""Each line's list shows the rows that its number counts: for each kind of problem that links to a list."""

import re
from collections.abc import Callable
from typing import Any

import pytest
from django.contrib import admin
from django.contrib.auth.models import User
from django.test import Client, RequestFactory

from stator.admin.access import Pages
from stator.extensions.overview.problems import shown_problem
from stator.extensions.problems.kinds import KINDS, problems_in
from stator.extensions.problems.survey import survey
from stator.models import Worker
from tasks.extensions.problems.kinds import KINDS as OF_TASKS
from tasks.extensions.schedules.problems.kinds import KINDS as OF_SCHEDULES
from tasks.models import Queue, Schedule, Task
from tests.stator.making import ago, change, put
from tests.stator.overviews import failing, held, worker
from tests.testapp.operators import Parcel, ParcelGraph

pytestmark = pytest.mark.django_db

MODELS: list[Any] = [Parcel, Task, Schedule]


def resting(due: float, **columns: Any) -> Parcel:
    parcel: Parcel = put(Parcel, state_ready=False, state_next_attempt=ago(-due), **columns)
    return parcel


def quarantined() -> None:
    put(Parcel, state_crashes=3, state_changed=ago(90_000))
    resting(600, state_crashes=4, state_failures=2)


def unknown_state() -> None:
    for name in ("mislaid", "mislaid", "stolen"):
        change(put(Parcel, state_ready=False), state=name)


def stuck() -> None:
    quarantined()
    resting(600, state_changed=ago(90_000))
    put(Parcel, state="stamped", state_ready=False, state_next_attempt=ago(-600), state_changed=ago(90_000))


def slow() -> None:
    quarantined()
    put(Parcel, state_changed=ago(600))
    put(Parcel)
    put(Parcel, state="stamped")
    resting(-5)


def full_limit() -> None:
    held()
    for seconds in (600, 1):
        put(Parcel, state_changed=ago(seconds))
    put(Parcel, state="stamped")


def far_future() -> None:
    resting(800 * 86400)
    resting(800 * 86400, state_crashes=3)
    resting(600)


def failing_without_a_report() -> None:
    quarantined()
    resting(600, state_failures=1)
    failing(2)


def dead_letters() -> None:
    for number in range(22):
        queue = Queue.objects.create(name=f"q{number}", actions_elsewhere=True)
        for _ in range(2 if number < 20 else 1):
            change(queue.publish("resize").task, state="errored", state_ready=False)


# The code of the problem, what makes it, and how many problems of it have a list.
LISTED: dict[str, tuple[Callable[[], None], int]] = {
    "quarantined": (quarantined, 1), "unknown_state": (unknown_state, 1), "stuck": (stuck, 1), "slow": (slow, 1),
    "far_future": (far_future, 1), "failing": (failing_without_a_report, 1),
    "full_limit": (full_limit, 1),  # stator.extensions.limits
    "dead_letters": (dead_letters, 21),
}  # fmt: skip

# They link to a page, a section or nothing.
UNLISTED = {
    "no_worker", "incomplete", "silent_worker", "late_leases", "deaf_worker", "versions", "unserved", "queue_paused",
    "same_name", "queue_unclaimable", "starved", "unread", "read_only",
    *("ticks_failed", "schedule_late"),  # tasks.extensions.schedules
    "throttled",  # tasks.extensions.throttles
    "paused",  # stator.extensions.pauses
    "shadow",  # stator.extensions.shadow
    *("waiting", "circle"),  # stator.extensions.related
    "awaits_nobody",  # stator.extensions.events
}  # fmt: skip


@pytest.mark.parametrize("code", LISTED)
def test_list_has_the_rows_that_the_number_counts(
    code: str, admin_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker()
    Worker.objects.update(models=["testapp.parcel", "tasks.task", "tasks.schedule"])
    if code == "full_limit":
        monkeypatch.setattr(ParcelGraph.packed, "concurrency", 1)
    make, many = LISTED[code]
    make()
    found = [one for one in problems_in(survey("default", MODELS)) if one.code == code]
    lists = [(one, address) for one in found if (address := list_of(one))]
    assert len(lists) == many
    for one, address in lists:
        [number] = re.findall(r"\d+", one.sentence)[:1]
        shown = admin_client.get(address)
        assert shown.status_code == 200, address
        assert shown.context["cl"].result_count == int(number), (one.sentence, address)


def list_of(problem: Any) -> str:
    """Return the address of the list to which the text of a problem, or else a button, leads."""
    request = RequestFactory().get("/")
    request.user = User(is_superuser=True, is_active=True, is_staff=True)
    shown: dict[str, Any] = shown_problem(problem, Pages(admin.site, request))
    addresses = [str(shown["url"]), *(action["url"] for action in shown["actions"])]
    return next((address for address in addresses if "?" in address), "")


def test_each_kind_is_here() -> None:
    codes = {kind.code for kind in (*KINDS, *OF_TASKS, *OF_SCHEDULES) if kind.find or kind.read}
    assert codes == {*LISTED, *UNLISTED}
