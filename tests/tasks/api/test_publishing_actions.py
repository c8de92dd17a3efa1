"""Which actions a program may have run over HTTP: those that the queue lists, and never one in Python beside them."""

import pytest
from django.core.exceptions import ValidationError
from django.db import connection

import tasks
from stator.testing import attempt, drain
from tasks.actions import registry
from tasks.api import queues as module
from tasks.models import Queue, Task
from tests.tasks.making import fresh

pytestmark = pytest.mark.django_db

deleted = []


@pytest.fixture(autouse=True)
def nothing_deleted():
    deleted.clear()


@pytest.fixture
def register(monkeypatch):
    """``register(name, queue)``: an action in Python, for the time of the test."""

    def add(name, queue=""):
        monkeypatch.setitem(registry.registry, name, dict(registry.registry.get(name, {})))
        tasks.action(name, queue=queue)(lambda **data: deleted.append(data))

    return add


@pytest.fixture
def ask(call, given):
    """``ask(path, body)``: the status and the JSON of the answer to a consumer that may do everything."""
    return lambda path, body, method="post": call(method, path, body, given)


def test_action_in_python_that_the_queue_does_not_list_never_runs(ask, register):
    Queue.objects.create(name="tenant", actions_elsewhere=True)
    for name, bound_to in (("internal.delete", ""), ("own.delete", "tenant")):
        register(name, bound_to)
        status, _ = ask("queues/tenant/tasks", {"action": name, "data": {"account": 7}})
        assert (status, Task.objects.count()) == (403, 0)


def test_name_that_waits_for_an_action_to_come_never_runs(ask, register):
    queue = Queue.objects.create(name="tenant", actions_elsewhere=True)
    status, found = ask("queues/tenant/tasks", {"action": "internal.delete_account", "data": {"account": 7}})
    assert status == 201
    register("internal.delete_account")
    drain(Task)
    assert deleted == []
    # A program elsewhere may have it all the same.
    [claim] = queue.claim(worker="bot-1")
    assert claim.task.pk == found["task"]["id"]


def test_action_that_the_queue_lists_runs(ask, register):
    Queue.objects.create(name="tenant", http_actions=["delete"])
    register("delete")
    assert ask("queues/tenant/tasks", {"action": "delete", "data": {"account": 7}})[0] == 201
    assert ask("queues/tenant/tasks/bulk", {"tasks": [{"action": "delete", "data": {"account": 8}}]})[0] == 200
    drain(Task)
    assert deleted == [{"account": 7}, {"account": 8}]


def test_refusals_name_what_to_do(ask, register):
    Queue.objects.create(name="tenant", http_actions=["resize"])
    register("delete", "tenant")
    for action, status, code, detail in (
        ("delete", 403, "action_not_allowed", "does not accept action 'delete' over HTTP; list it in"),
        ("rezise", 409, "unknown_action", "did you mean 'resize'?"),
        # Names that are not listed are no business of programs.
        ("delet", 409, "unknown_action", "has no action 'delet'; list it in http_actions of the queue"),
    ):
        for path, body in (("tasks", {"action": action}), ("tasks/bulk", {"tasks": [{"action": action}]})):
            told, found = ask(f"queues/tenant/{path}", body)
            assert (told, found["error"], detail in found["detail"]) == (status, code, True), found
    assert not Task.objects.exists()


def test_name_that_is_listed_must_be_one_that_the_code_has_or_programs_elsewhere(ask):
    queue = Queue.objects.create(name="tenant", http_actions=["nowhere"])
    assert ask("queues/tenant/tasks", {"action": "nowhere"})[1]["error"] == "unknown_action"
    Queue.objects.update(actions_elsewhere=True)
    assert ask("queues/tenant/tasks", {"action": "nowhere"})[0] == 201
    assert not queue.tasks.get().elsewhere_only


def test_key_of_a_task_of_python_does_not_have_it_run_again_or_changed(ask, register):
    queue = Queue.objects.create(name="tenant", actions_elsewhere=True)
    register("delete")
    task = queue.publish("delete", {"account": 7}, key="k").task
    body = {"action": "elsewhere", "data": {"account": 8}, "key": "k"}
    assert ask("queues/tenant/tasks", {**body, "update": True})[1]["error"] == "action_not_allowed"
    drain(Task)
    assert deleted == [{"account": 7}]
    for clear in ("clear_succeeded", "clear_failed"):
        assert ask("queues/tenant/tasks", {**body, clear: True})[1]["error"] == "action_not_allowed"
    assert ask("queues/tenant/tasks", body)[1]["outcome"] == "duplicate"
    assert fresh(task).status == "completed"


def test_dead_letter_of_python_is_not_run_again(ask, register):
    queue = Queue.objects.create(name="tenant", actions_elsewhere=True)
    register("delete")
    task = queue.publish("delete", max_attempts=1).task
    [claim] = queue.claim(worker="bot-1")
    claim.fail("no")
    assert ask(f"tasks/{task.pk}/requeue", {})[1]["error"] == "action_not_allowed"
    assert fresh(task).status == "errored"
    Queue.objects.update(http_actions=["delete"])
    assert ask(f"tasks/{task.pk}/requeue", {})[0] == 200


def test_update_over_http_leaves_the_task_to_programs_elsewhere_and_one_in_python_takes_it_back(ask, register):
    queue = Queue.objects.create(name="tenant", actions_elsewhere=True)
    task = queue.publish("crop", key="k", worker_count=2).task
    rows = Task.objects.values_list("action", "elsewhere_only")
    assert ask("queues/tenant/tasks", {"action": "shrink", "key": "k", "update": True})[1]["outcome"] == "matched"
    assert set(rows.all()) == {("shrink", True)}
    register("shrink")
    drain(Task)
    assert deleted == []
    assert queue.publish("shrink", key="k", update=True).outcome == "matched"
    assert set(rows.all()) == {("shrink", False)}
    drain(Task)
    assert deleted == [{}, {}]
    assert fresh(task).status == "completed"


def test_attempt_that_is_made_all_the_same_runs_nothing(ask, register):
    Queue.objects.create(name="tenant", actions_elsewhere=True)
    assert ask("queues/tenant/tasks", {"action": "delete"})[0] == 201
    register("delete")
    outcome = attempt(Task.objects.get())
    assert "external programs only" in outcome.failure.message
    assert deleted == []


class TestConfiguring:
    def test_list_can_be_made_shorter_over_http_and_never_longer(self, ask):
        queue = Queue.objects.create(name="tenant", http_actions=["resize", "fetch"])
        for names in (["resize", "fetch", "echo"], ["echo"], ["not-there-yet"]):
            status, found = ask("queues/tenant", {"http_actions": names}, "patch")
            assert (status, found["error"]) == (403, "forbidden")
            assert f"{names[-1]!r} cannot be added over HTTP" in found["detail"]
        assert ask("queues/tenant", {"http_actions": ["fetch"], "lease": 9}, "patch")[1]["http_actions"] == ["fetch"]
        assert ask("queues/tenant", {"http_actions": ["resize"]}, "patch")[0] == 403
        assert ask("queues/tenant", {"lease": 8}, "patch")[1]["http_actions"] == ["fetch"]
        assert ask("queues/tenant", {"http_actions": []}, "patch")[1]["http_actions"] == []
        queue.refresh_from_db()
        assert (queue.http_actions, queue.lease) == ([], 8)

    def test_list_that_was_made_shorter_meanwhile_stays_so(self, ask, monkeypatch):
        Queue.objects.create(name="tenant", http_actions=["resize"])
        found = module.queue_of

        def slow(consumer, name):
            queue = found(consumer, name)
            Queue.objects.update(http_actions=[])
            return queue

        monkeypatch.setattr(module, "queue_of", slow)
        assert ask("queues/tenant", {"http_actions": ["resize"]}, "patch")[0] == 403
        assert Queue.objects.get().http_actions == []

    def test_queue_that_is_made_over_http_lists_nothing(self, ask):
        assert ask("queues", {"name": "new", "http_actions": ["resize"]})[0] == 403
        assert not Queue.objects.exists()
        status, found = ask("queues", {"name": "new", "actions_elsewhere": True})
        assert (status, found["http_actions"], found["actions_elsewhere"]) == (201, [], True)

    def test_programs_elsewhere_may_come_to_a_queue_without_python_being_theirs(self, ask, register):
        Queue.objects.create(name="tenant")
        register("delete")
        assert ask("queues/tenant", {"actions_elsewhere": True}, "patch")[0] == 200
        assert ask("queues/tenant/tasks", {"action": "delete"})[0] == 403

    def test_wrong_lists_are_refused(self):
        for names, told in (
            (None, "must be a list"), (["two words"], "is not the name"), (["x"] * 2, "'x' is listed twice"),
            (["django:tests.testapp.tasks.add"], "is a task of Django's framework"), (["a"] * 1001, "at most 1000"),
        ):  # fmt: skip
            with pytest.raises(ValidationError, match=told):
                Queue.objects.create(name="tenant", http_actions=names)
        assert not Queue.objects.exists()

    def test_queues_that_are_inserted_past_the_model_list_nothing(self):
        with connection.cursor() as cursor:
            cursor.execute(
                "INSERT INTO tasks_queue (name, kind, exclusive_key, same_worker_again, worker_retries, one_per_worker,"
                " actions_elsewhere, publish_paused, claim_paused, pause_reason, pause_author)"
                " VALUES ('old', 'simple', '', %s, 0, %s, %s, %s, %s, '', '')",
                [False] * 5,
            )
        assert Queue.objects.get().http_actions == []
