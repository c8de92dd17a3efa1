"""The HTTP API: schedules are listed, made, changed, run and deleted."""

import pytest

from stator.runner import StatorRunner
from tasks.models import Queue, Schedule
from tests.tasks.serving import token

pytestmark = pytest.mark.django_db

BODY = {"queue": "encode", "action": "resize", "name": "refresh", "entity": "shop-7", "period": 60, "jitter": 15}


def test_made_changed_run_and_deleted(call, queue, given):
    status, made = call("POST", "schedules", {**BODY, "data": {"image": 7}, "metadata": {"title": "abc"}}, given)
    assert status == 201, made
    assert {name: made[name] for name in BODY} == BODY
    assert (made["state"], made["enabled"], made["data"], made["tick_index"]) == ("waiting", True, {"image": 7}, 0)
    path = f"schedules/{made['id']}"
    assert call("GET", path, None, given) == (200, made)

    status, found = call("PATCH", path, {"period": None, "cron": "0 4 * * *", "jitter": 0}, given)
    assert (status, found["period"], found["cron"], found["data"]) == (200, None, "0 4 * * *", {"image": 7})
    assert call("POST", f"{path}/run", None, given)[0] == 200
    StatorRunner([Schedule]).run_single_cycle()
    [task] = queue.tasks.all()
    assert (task.action, task.data, task.metadata["entity"], task.metadata["schedule"]) == (
        "resize",
        {"image": 7},
        "shop-7",
        made["id"],
    )

    assert call("PATCH", path, {"enabled": False}, given)[1]["enabled"] is False
    status, found = call("POST", f"{path}/run", None, given)
    assert (status, found["error"]) == (409, "paused")
    assert call("DELETE", path, None, given) == (200, {"deleted": made["id"]})
    assert call("GET", path, None, given)[0] == 404
    assert queue.tasks.count() == 1


def test_listed_page_by_page_with_filters(call, queue, given):
    Queue.objects.create(name="other", http_actions=["resize"], actions_elsewhere=True)
    for name in ("a", "b", "c"):
        assert call("POST", "schedules", {**BODY, "name": name}, given)[0] == 201
    assert call("POST", "schedules", {**BODY, "name": "d", "queue": "other"}, given)[0] == 201

    status, page = call("GET", "schedules?limit=3", None, given)
    assert (status, [each["name"] for each in page["schedules"]]) == (200, ["a", "b", "c"])
    rest = call("GET", f"schedules?after={page['next']}", None, given)[1]
    assert ([each["name"] for each in rest["schedules"]], rest["next"]) == (["d"], None)
    for query, names in (("queue=other", ["d"]), ("name=b", ["b"]), ("entity=x", []), ("entity=shop-7&name=a", ["a"])):
        found = call("GET", f"schedules?{query}", None, given)[1]["schedules"]
        assert [each["name"] for each in found] == names, query
    assert call("GET", "schedules?queue=none", None, given)[0] == 404


def test_what_cannot_work_is_refused(call, queue, given):
    for changes in (
        {"period": None}, {"period": 5}, {"more": 1}, {"until": "soon"},
    ):  # fmt: skip
        status, found = call("POST", "schedules", {**BODY, **changes}, given)
        assert (status in (400, 422), found["error"]) == (True, "invalid"), changes
    assert not Schedule.objects.exists()


def test_actions_that_the_queue_does_not_list_are_not_scheduled_over_http(call, queue, given):
    """Not even unknown ones of a queue for programs elsewhere: the code here may have such an action later."""
    status, found = call("POST", "schedules", {**BODY, "action": "other"}, given)
    assert (status, found["error"]) == (403, "action_not_allowed")
    schedule = Schedule.objects.create(name="ours", queue=queue, action="other", period=60)
    for method, path, body in (("PATCH", "", {"enabled": False}), ("POST", "/run", None), ("DELETE", "", None)):
        status, found = call(method, f"schedules/{schedule.pk}{path}", body, given)
        assert (status, found["error"]) == (403, "action_not_allowed"), method
    assert call("GET", f"schedules/{schedule.pk}", None, given)[0] == 200


def test_those_that_call_a_function_are_shown_to_tokens_for_all_queues_alone(call, queue, given):
    schedule = Schedule.objects.create(name="function", period=60)
    status, found = call("GET", f"schedules/{schedule.pk}", None, given)
    assert (status, found["queue"]) == (200, None)
    assert call("PATCH", f"schedules/{schedule.pk}", {"enabled": False}, given)[0] == 403
    limited = token("limited", queues=[queue])
    assert call("GET", f"schedules/{schedule.pk}", None, limited)[0] == 404
    assert call("GET", "schedules", None, limited)[1]["schedules"] == []
