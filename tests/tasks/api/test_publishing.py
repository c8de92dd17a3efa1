"""The HTTP API: publishing, claiming and searching tasks."""

import pytest
from django.test.utils import CaptureQueriesContext

from stator.testing import drain
from tasks.models import Queue, Task
from tests.tasks.serving import token

pytestmark = pytest.mark.django_db


class TestPublishing:
    def test_publishes_as_python_does(self, call, queue):
        body = {
            "action": "resize", "data": {"image": 7}, "key": "image-7", "priority": 3, "metadata": {"title": "abc"},
            "lease": 20, "timeout": 30, "invisible_for": 0, "max_attempts": 2, "retention": 60,
            "worker_ids": ["bot-1"], "worker_count": 1,
        }  # fmt: skip
        status, found = call("POST", "queues/encode/tasks", body, token())
        assert (status, found["outcome"]) == (201, "inserted")
        task = Task.objects.get()
        for name, value in body.items():
            if name != "invisible_for":
                assert getattr(task, name) == value
        assert found["task"]["id"] == task.pk
        assert found["task"]["status"] == "pending"
        assert found["task"]["queue"] == "encode"

    def test_key_is_published_once(self, call, queue):
        given, body = token(), {"action": "resize", "key": "image-7", "data": 1}
        assert call("POST", "queues/encode/tasks", body, given)[0] == 201
        status, found = call("POST", "queues/encode/tasks", {**body, "data": 2}, given)
        assert (status, found["outcome"], found["task"]["data"]) == (200, "matched", 1)
        status, found = call("POST", "queues/encode/tasks", {**body, "data": 2, "update": True}, given)
        assert (status, found["outcome"], found["task"]["data"]) == (200, "matched", 2)
        queue.claim(worker="bot-1")
        assert call("POST", "queues/encode/tasks", body, given)[1]["outcome"] == "running"
        assert Task.objects.count() == 1

    def test_bulk_is_all_or_nothing_in_few_statements(self, call, queue, django_assert_max_num_queries):
        given = token()
        tasks = [{"action": "resize", "data": n, "key": f"image-{n}"} for n in range(300)]
        with django_assert_max_num_queries(30):
            status, found = call("POST", "queues/encode/tasks/bulk", {"tasks": tasks}, given)
        assert status == 200
        assert [result["task"]["data"] for result in found["results"]] == list(range(300))
        assert {result["outcome"] for result in found["results"]} == {"inserted"}
        status, found = call("POST", "queues/encode/tasks/bulk", {"tasks": [{"action": "a"}, {"action": ""}]}, given)
        assert status == 422
        assert Task.objects.count() == 300

    def test_paused_queue_refuses(self, call, queue):
        given = token()
        call("PUT", "queues/encode/pause", {"publish": True, "reason": "the disk is full"}, given)
        status, found = call("POST", "queues/encode/tasks", {"action": "resize"}, given)
        assert (status, found["error"]) == (409, "paused")
        assert "the disk is full" in found["detail"]

    def test_unknown_actions_are_refused_where_they_run_here(self, call):
        Queue.objects.create(name="inside", actions_elsewhere=False)
        status, found = call("POST", "queues/inside/tasks", {"action": "nothing"}, token())
        assert (status, found["error"]) == (422, "unknown_action")

    def test_tasks_of_djangos_framework_are_refused(self, call, queue):
        body = {"action": "django:tests.testapp.tasks.add", "data": {"args": [1], "kwargs": {}, "backend": "default"}}
        status, found = call("POST", "queues/encode/tasks", body, token())
        assert (status, found["error"], Task.objects.exists()) == (422, "invalid", False)
        assert "enqueue it there" in found["detail"]

    def test_exclusive_queue_wants_its_key(self, call):
        Queue.objects.create(name="alone", kind="exclusive", exclusive_key="title", actions_elsewhere=True)
        assert call("POST", "queues/alone/tasks", {"action": "a"}, token())[0] == 422
        assert not Task.objects.exists()

    def test_cancel_and_requeue(self, call, scene):
        given = token()
        status, found = call("POST", f"tasks/{scene.task.pk}/cancel", None, given)
        assert (status, found["status"]) == (200, "canceled")
        status, found = call("POST", f"tasks/{scene.dead.pk}/requeue", None, given)
        assert (status, found["status"]) == (200, "pending")
        assert call("POST", f"tasks/{scene.held.pk}/cancel", None, given)[0] == 409
        assert call("POST", f"tasks/{scene.held.pk}/requeue", None, given)[0] == 409
        scene.claim.verify()

    def test_attempts_are_those_of_the_task(self, call, queue):
        Queue.objects.update(same_worker_again=True)
        task, given = queue.publish("resize", key="k", max_attempts=2).task, token()

        def attempts():
            told = {
                call("GET", f"tasks/{task.pk}", None, given)[1]["attempts"],
                call("GET", "tasks", None, given)[1]["tasks"][0]["attempts"],
                call("POST", "queues/encode/tasks", {"action": "resize", "key": "k"}, given)[1]["task"]["attempts"],
            }
            assert told == {Task.objects.get().attempts}
            return told.pop()

        assert attempts() == 0
        for _ in range(2):
            queue.claim(worker="bot-1")[0].fail("no")
        assert attempts() == 2
        assert call("POST", f"tasks/{task.pk}/requeue", None, given)[1]["attempts"] == attempts() == 0
        [claim] = queue.claim(worker="bot-1")
        assert attempts() == 1
        claim.resolve()
        assert attempts() == 1

    def test_attempts_of_an_action_in_python_are_told_as_well(self, call, queue):
        task, given = queue.publish("echo", 7).task, token()
        drain(Task)
        assert Task.objects.get().status == "completed"
        assert call("GET", f"tasks/{task.pk}", None, given)[1]["attempts"] == Task.objects.get().attempts == 1
        assert [each["attempts"] for each in call("GET", "tasks", None, given)[1]["tasks"]] == [1]


class TestClaims:
    def claim(self, call, given, **body):
        status, found = call("POST", "queues/encode/claims", {"worker": "bot-1", **body}, given)
        assert status == 200, found
        return found["claims"]

    def test_most_urgent_first_with_metadata_and_limit(self, call, queue):
        for n in range(6):
            queue.publish("resize", n, priority=10 - n, metadata={"title": "ab"[n % 2]})
        given = token()
        found = self.claim(call, given, limit=2, metadata={"title": "b"}, lease=45)
        assert [claim["task"]["data"] for claim in found] == [5, 3]
        assert found[0]["attempt"] == 1
        assert found[0]["lease"] == pytest.approx(45, abs=0.1)
        assert found[0]["task"]["status"] == "running"
        assert len(self.claim(call, given, limit=10)) == 4
        assert self.claim(call, given, limit=10) == []

    def test_life_of_a_claim(self, call, queue):
        queue.publish("resize", {"image": 7})
        given = token()
        [claim] = self.claim(call, given, lease=20)
        base, body = f"tasks/{claim['task']['id']}/claim/", {"token": claim["token"]}
        assert 15 < call("POST", f"{base}verify", body, given)[1]["lease"] <= 20
        assert call("POST", f"{base}heartbeat", {**body, "lease": 90}, given)[1]["lease"] == pytest.approx(90, abs=0.2)
        assert call("POST", f"{base}heartbeat", body, given)[1]["lease"] == pytest.approx(90, abs=0.2)
        assert 80 < call("POST", f"{base}verify", body, given)[1]["lease"] <= 90
        status, found = call("POST", f"{base}resolve", {**body, "result": {"ok": True}}, given)
        assert (status, found["task"]["status"], found["task"]["result"]) == (200, "completed", {"ok": True})
        for verb in ("verify", "heartbeat", "release", "cancel"):
            status, found = call("POST", base + verb, body, given)
            assert (status, found["error"]) == (409, "lease_lost")
        assert Task.objects.get().result == {"ok": True}

    @pytest.mark.parametrize("verb", ["resolve", "release", "fail", "cancel"])
    def test_end_is_answered_again_to_a_program_that_lost_the_answer(self, call, queue, verb):
        task, given = queue.publish("resize", max_attempts=9).task, token()
        [claim] = self.claim(call, given)
        body = {"token": claim["token"], **({"error": "broken"} if verb == "fail" else {})}
        first = call("POST", f"tasks/{task.pk}/claim/{verb}", body, given)
        assert first[0] == 200
        assert call("POST", f"tasks/{task.pk}/claim/{verb}", body, given) == first
        assert task.runs.count() == 1
        task.refresh_from_db()
        assert task.state_version == (verb in ("resolve", "cancel"))

    def test_result_that_is_read_otherwise_than_it_was_written_is_the_same(self, call, queue):
        task, given = queue.publish("resize").task, token()
        [claim] = self.claim(call, given)
        path, body = f"tasks/{task.pk}/claim/resolve", {"token": claim["token"], "result": [1e23, {"n": 1.0}]}
        first = call("POST", path, body, given)
        assert first[0] == 200
        assert call("POST", path, body, given) == first
        assert call("POST", path, {**body, "result": [1e23, {"n": 2}]}, given)[0] == 409

    def test_released_failed_and_canceled(self, call, queue):
        given = token()
        for verb, extra, status in (
            ("release", {"reason": "busy"}, "pending"), ("fail", {"error": "broken"}, "pending"),
            ("cancel", {"reason": "old"}, "canceled"),
        ):  # fmt: skip
            task = queue.publish("resize").task
            [claim] = self.claim(call, given, worker=f"bot-{verb}")
            body = {"token": claim["token"], **extra}
            assert call("POST", f"tasks/{task.pk}/claim/{verb}", body, given)[1]["task"]["status"] == status
            run = task.runs.get()
            assert run.outcome == {"release": "released", "fail": "failed", "cancel": "canceled"}[verb]
            assert next(iter(extra.values())) in run.reason
            queue.tasks.all().delete()

    def test_claim_is_found_again_by_its_token_alone(self, call, scene):
        assert Task.find_claim(scene.held.pk, scene.claim.token).worker == "bot-1"

    @pytest.mark.parametrize("name", ["", "x" * 101, "bot\n1", 7, None])
    def test_workers_have_names(self, call, queue, name):
        assert call("POST", "queues/encode/claims", {"worker": name}, token())[0] == 422


class TestSearching:
    def found(self, call, query, given):
        status, page = call("GET", f"tasks?{query}", None, given)
        assert status == 200, page
        return [task["id"] for task in page["tasks"]]

    def test_by_what_tasks_are(self, call, scene):
        given, (held, dead, task) = token(), (scene.held.pk, scene.dead.pk, scene.task.pk)
        Queue.objects.create(name="other", actions_elsewhere=True).publish("resize")
        for query, wanted in {
            "queue=encode": [held, dead, task],
            "queue=encode&status=pending": [task],
            "status=running": [held],
            "status=running&status=errored": [held, dead],
            "key=image-3": [task],
            "action=none": [],
            'metadata={"title":"abc"}': [task],
            'metadata={"title":"abc","more":1}': [],
            "worker=bot-1": [held, dead],
            "held_by=bot-1": [held],
            "older_than=3600": [],
            f"after={held}&queue=encode": [dead, task],
        }.items():
            assert self.found(call, query, given) == wanted, query

    def test_page_by_page(self, call, queue):
        queue.publish_many([{"action": "a"} for _ in range(7)])
        given, seen, after = token(), [], "0"
        while after is not None:
            _, page = call("GET", f"tasks?limit=3&after={after}", None, given)
            assert len(page["tasks"]) <= 3
            seen += [task["id"] for task in page["tasks"]]
            after = page["next"]
        assert seen == list(Task.objects.order_by("pk").values_list("pk", flat=True))

    def test_statements_do_not_grow_with_the_page(self, call, queue, connection_queries):
        queue.publish_many([{"action": "a"} for _ in range(50)])
        given = token()
        few = connection_queries(lambda: call("GET", "tasks?limit=1", None, given))
        assert connection_queries(lambda: call("GET", "tasks?limit=50", None, given)) <= few

    def test_task_with_its_runs(self, call, scene):
        _, found = call("GET", f"tasks/{scene.dead.pk}", None, token())
        [run] = found["runs"]
        assert (run["worker"], run["outcome"], found["status"]) == ("bot-1", "failed", "errored")
        assert "broken" in run["reason"]

    @pytest.mark.parametrize(
        "query",
        [
            "limit=0", "limit=501", "limit=x", "after=-1", "after=x", f"after={10**30}", "status=sleeping",
            "metadata={", "metadata=[]", 'metadata={"1":2}', 'metadata={"a":[1]}', "older_than=-1",
            "older_than=nan", "state=errored",
            "action=%00", "metadata=" + "[" * 5000, 'metadata={"a":NaN}',
        ],
    )  # fmt: skip
    def test_wrong_filters_are_told(self, call, queue, query):
        status, found = call("GET", f"tasks?{query}", None, token())
        assert (status, found["error"]) == (422, "invalid")

    @pytest.mark.parametrize("path", ["tasks/0", f"tasks/{10**30}", "queues/%00", "queues/x'--", "queues/a%2Fb"])
    def test_what_is_not_there(self, call, queue, path):
        assert call("GET", path, None, token())[0] in (404, 422)


@pytest.fixture
def connection_queries():
    from django.db import connection

    def count(act):
        with CaptureQueriesContext(connection) as queries:
            act()
        return len(queries)

    return count
