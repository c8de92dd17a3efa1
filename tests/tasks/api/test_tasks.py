"""The HTTP API: who may do what, what is taken and what is answered."""

import json
import logging

import pytest
from django.db import OperationalError
from django.test import Client
from django.test.utils import CaptureQueriesContext

from stator.testing import drain
from tasks.api import queues as queues_module
from tasks.api.rates import rates
from tasks.api.urls import api
from tasks.models import Queue, Run, Task
from tasks.queue.consumers import Consumer, Verb
from tests.tasks.serving import token

pytestmark = pytest.mark.django_db

WRONG = "tk_" + "0" * 12 + "_" + "A" * 43
NOBODYS = "00000000-0000-8000-8000-000000000000"
LEASE = {"lease": 30}

# Method, path, body, the verb that it needs, and what the right token is answered. ``{task}`` waits, ``{held}`` is
# claimed, ``{dead}`` is errored.
ENDPOINTS = [
    ("GET", "queues", None, "query", 200),
    ("POST", "queues", {"name": "new"}, "configure", 201),
    ("GET", "queues/{queue}", None, "query", 200),
    ("PATCH", "queues/{queue}", LEASE, "configure", 200),
    ("PUT", "queues/{queue}/pause", {"claim": True, "reason": "full"}, "configure", 200),
    ("POST", "queues/{queue}/tasks", {"action": "resize"}, "publish", 201),
    ("POST", "queues/{queue}/tasks/bulk", {"tasks": [{"action": "resize"}]}, "publish", 200),
    ("POST", "queues/{queue}/claims", {"worker": "bot-2"}, "claim", 200),
    ("POST", "queues/{queue}/claims/resolve", {"claims": [{"task": 1, "token": NOBODYS}]}, "claim", 200),
    ("GET", "tasks", None, "query", 200),
    ("GET", "tasks/{task}", None, "query", 200),
    ("POST", "tasks/{task}/cancel", None, "publish", 200),
    ("POST", "tasks/{dead}/requeue", None, "publish", 200),
    ("POST", "tasks/{held}/claim/verify", {}, "claim", 200),
    ("POST", "tasks/{held}/claim/heartbeat", {}, "claim", 200),
    ("POST", "tasks/{held}/claim/resolve", {}, "claim", 200),
    ("POST", "tasks/{held}/claim/release", {}, "claim", 200),
    ("POST", "tasks/{held}/claim/fail", {"error": "no"}, "claim", 200),
    ("POST", "tasks/{held}/claim/cancel", {}, "claim", 200),
]
each_endpoint = pytest.mark.parametrize(
    ("method", "path", "body", "verb", "good"), ENDPOINTS, ids=[f"{method} {path}" for method, path, *_ in ENDPOINTS]
)


@pytest.fixture(autouse=True)
def fresh_rates():
    rates.forget()


@pytest.fixture
def queue():
    return Queue.objects.create(name="encode", actions_elsewhere=True, http_actions=["resize"])


@pytest.fixture
def call(client):
    """``call(method, path, body, token)``: the status and the JSON of the answer."""

    def ask(method, path, body=None, token="", **headers):
        if token:
            headers["Authorization"] = f"Bearer {token}"
        options = {} if body is None else {"data": body, "content_type": "application/json"}
        answer = getattr(client, method.lower())(f"/api/{path}", headers=headers, **options)
        assert answer["Content-Type"].startswith("application/json"), answer.content
        found = answer.json()
        if answer.status_code >= 400:
            assert sorted(found) == ["detail", "error"]
            assert "\n" not in found["detail"]
            assert "Traceback" not in found["detail"]
        return answer.status_code, found

    return ask


class Scene:
    """A queue with a task that waits, one that is held and one that is a dead letter."""

    def __init__(self, queue):
        self.queue = queue
        self.held = queue.publish("resize", {"image": 1}, metadata={"title": "held"}).task
        [self.claim] = queue.claim(worker="bot-1", lease=600)
        self.dead = queue.publish("resize", {"image": 2}, max_attempts=1).task
        [claim] = queue.claim(worker="bot-1")
        claim.fail("broken")
        self.task = queue.publish("resize", {"image": 3}, key="image-3", metadata={"title": "abc"}).task

    def path(self, path):
        return path.format(queue=self.queue.name, task=self.task.pk, held=self.held.pk, dead=self.dead.pk)

    def body(self, path, body):
        return {**body, "token": str(self.claim.token)} if "/claim/" in path else body

    def untouched(self):
        rows = Task.objects.order_by("pk").values_list("pk", "state", "state_claim", "state_locked_until")
        runs = Run.objects.order_by("pk").values_list("pk", "ended", "outcome")
        queues = Queue.objects.order_by("pk").values_list("name", "lease", "claim_paused")
        return [list(rows), list(runs), list(queues)]


@pytest.fixture
def scene(queue):
    return Scene(queue)


class TestPermissions:
    def refused(self, call, scene, endpoint, given, status, code):
        method, path, body, *_ = endpoint
        before = scene.untouched()
        found = call(method, scene.path(path), scene.body(path, body), given)
        assert (found[0], found[1]["error"]) == (status, code)
        assert scene.untouched() == before
        return found[1]["detail"]

    def test_matrix_has_every_endpoint(self):
        named = {
            (method, path.replace("{dead}", "{task}").replace("{held}", "{task}")) for method, path, *_ in ENDPOINTS
        }
        there = {
            (method.upper(), path.removeprefix("/api/").replace("{pk}", "{task}"))
            for path, methods in api.get_openapi_schema()["paths"].items()
            for method in methods
        }
        assert there - named == {("GET", "health")}

    @each_endpoint
    def test_without_a_token_and_with_a_wrong_one_the_answer_is_the_same(
        self, call, scene, method, path, body, verb, good
    ):
        endpoint = (method, path, body)
        right = token()
        prefix = Consumer.objects.get().prefix
        disabled, expired = token("disabled", enabled=False), token("expired", expires="2020-01-01T00:00:00+00:00")
        wrong = ["", WRONG, f"tk_{prefix}_{'A' * 43}", right[:-1], "x", disabled, expired]
        details = {self.refused(call, scene, endpoint, given, 401, "unauthorized") for given in wrong}
        assert len(details) == 1

    @each_endpoint
    def test_token_in_the_query_string_is_not_looked_at(self, client, scene, method, path, body, verb, good):
        url = f"/api/{scene.path(path)}?token={token()}&access_token={token('other')}"
        answer = getattr(client, method.lower())(url, scene.body(path, body), content_type="application/json")
        assert answer.status_code == 401
        assert answer["WWW-Authenticate"] == "Bearer"

    @each_endpoint
    def test_token_of_another_queue(self, call, scene, method, path, body, verb, good):
        other = token(queues=[Queue.objects.create(name="other")])
        if "{queue}" in path or (method, path) == ("POST", "queues"):
            self.refused(call, scene, (method, path, body), other, 403, "forbidden")
        elif "{" in path:
            self.refused(call, scene, (method, path, body), other, 404, "not_found")
        else:
            status, found = call(method, path, body, other)
            assert status == 200
            assert [queue["name"] for queue in found.get("queues", [])] in ([], ["other"])
            assert not found.get("tasks")

    @pytest.mark.parametrize("only", [*Verb.values, None])
    @each_endpoint
    def test_token_with_one_verb(self, call, scene, only, method, path, body, verb, good):
        given = token(verbs=[only] if only else [])
        if only == verb:
            assert call(method, scene.path(path), scene.body(path, body), given)[0] == good
        else:
            detail = self.refused(call, scene, (method, path, body), given, 403, "forbidden")
            assert detail == f"this token may not {verb}; it may {only or 'do nothing'}"

    @each_endpoint
    def test_full_token_of_the_queue(self, call, scene, method, path, body, verb, good):
        given = token(queues=[scene.queue])
        status, found = call(method, scene.path(path), scene.body(path, body), given)
        # A new queue would be none of its queues.
        assert status == (403 if (method, path) == ("POST", "queues") else good), found

    @each_endpoint
    def test_full_token(self, call, scene, method, path, body, verb, good):
        status, found = call(method, scene.path(path), scene.body(path, body), token())
        assert status == good, found

    @pytest.mark.parametrize("path", [path for _, path, *_ in ENDPOINTS if "/claim/" in path])
    def test_claim_is_ended_by_its_own_token_alone(self, call, scene, path):
        [endpoint] = [each for each in ENDPOINTS if each[1] == path]
        given, before = token(), scene.untouched()
        other = scene.queue.claim(worker="bot-2")[0]
        before = scene.untouched()
        for wrong in (NOBODYS, str(other.token)):
            status, found = call("POST", scene.path(path), {**endpoint[2], "token": wrong}, given)
            assert (status, found["error"]) == (409, "lease_lost")
        assert scene.untouched() == before

    def test_there_are_no_tasks_for_those_who_may_not_see_them(self, call, scene):
        other = token(queues=[Queue.objects.create(name="other")])
        hidden = call("GET", f"tasks/{scene.task.pk}", None, other)
        missing = call("GET", "tasks/999999", None, other)
        assert hidden[0] == missing[0] == 404
        assert hidden[1]["detail"].replace(str(scene.task.pk), "N") == missing[1]["detail"].replace("999999", "N")

    def test_unknown_queue(self, call, queue):
        assert call("GET", "queues/nowhere", None, token())[0] == 404
        limited = token("limited", queues=[queue])
        assert call("GET", "queues/nowhere", None, limited)[0] == 403

    @pytest.mark.parametrize("header", ["Bearer", "Bearer ", "Basic {}", "{}", "Bearer {} x", "Token {}", "bearer\t{}"])
    def test_header_has_one_form(self, client, queue, header):
        answer = client.get("/api/queues", headers={"Authorization": header.format(token())})
        assert answer.status_code == 401

    def test_scheme_is_of_any_case(self, client, queue):
        assert client.get("/api/queues", headers={"Authorization": f"bearer  {token()}"}).status_code == 200

    def test_cookies_open_nothing_and_csrf_does_not_apply(self, admin_client, queue):
        strict = Client(enforce_csrf_checks=True)
        strict.cookies = admin_client.cookies
        url, body = "/api/queues/encode/tasks", {"action": "resize"}
        assert strict.post(url, body, content_type="application/json").status_code == 401
        headers = {"Authorization": f"Bearer {token()}", "Origin": "https://evil.example"}
        assert strict.post(url, body, content_type="application/json", headers=headers).status_code == 201

    def test_nothing_of_the_token_is_logged(self, client, queue, caplog, settings):
        settings.DEBUG = True
        given = token()
        with caplog.at_level(logging.DEBUG):
            for header in (f"Bearer {given[:-1]}", f"Basic {given}", f"Bearer {given}"):
                client.get("/api/queues", headers={"Authorization": header})
        logged = "".join(str(record.__dict__) for record in caplog.records if record.name != "django.db.backends")
        assert given[:-1] not in logged


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


class TestQueues:
    def test_made_and_configured(self, call):
        given = token()
        body = {"name": "alone", "kind": "exclusive", "exclusive_key": "title", "lease": 20, "max_attempts": 3}
        status, found = call("POST", "queues", body, given)
        assert status == 201
        assert {name: found[name] for name in body} == body
        assert call("POST", "queues", body, given)[0] == 409
        status, found = call("PATCH", "queues/alone", {"lease": None, "retention": 5, "one_per_worker": True}, given)
        assert status == 200
        assert (found["lease"], found["retention"], found["one_per_worker"]) == (None, 5, True)
        assert found["max_attempts"] == 3
        queue = Queue.objects.get()
        assert (queue.lease, queue.retention, queue.one_per_worker, queue.kind) == (None, 5, True, "exclusive")

    @pytest.mark.parametrize(
        "body",
        [
            {}, {"name": ""}, {"name": "a/b"}, {"name": "a\n"}, {"name": "x" * 101}, {"name": "a", "kind": "odd"},
            {"name": "a", "kind": "exclusive"}, {"name": "a", "exclusive_key": "title"}, {"name": "a", "lease": 0},
            {"name": "a", "lease": "x"}, {"name": "a", "max_attempts": 0}, {"name": "a", "more": 1}, {"name": None},
            {"name": "a", "kind": "exclusive", "exclusive_key": "7"},
            {"name": "a", "one_per_worker": None}, {"name": "a", "lease": 1e300}, [], "x", None,
        ],
    )  # fmt: skip
    def test_wrong_ones_are_not(self, call, body):
        body = json.dumps(body) if body in ("x", None) else body
        status, found = call("POST", "queues", body, token())
        assert (status, found["error"]) == (422, "invalid")
        assert not Queue.objects.exists()

    @pytest.mark.parametrize(
        "body", [{"kind": "exclusive"}, {"exclusive_key": "x"}, {"name": "x"}, {"same_worker_again": None}]
    )
    def test_kind_key_and_name_stay(self, call, queue, body):
        assert call("PATCH", "queues/encode", body, token())[0] == 422

    def test_paused_and_resumed(self, call, queue):
        given = token()
        queue.publish("resize")
        body = {"claim": True, "reason": "the disk is full", "until": "2130-01-31T12:00:00Z"}
        status, found = call("PUT", "queues/encode/pause", body, given)
        assert status == 200
        assert (found["claim_paused"], found["publish_paused"], found["pause_reason"]) == (
            True,
            False,
            "the disk is full",
        )
        assert found["pause_until"].startswith("2130-01-31T")
        assert found["pause_author"] == "full"
        claims = {"worker": "bot-1"}
        assert call("POST", "queues/encode/claims", claims, given)[1]["claims"] == []
        assert call("POST", "queues/encode/tasks", {"action": "resize"}, given)[0] == 201
        status, found = call("PUT", "queues/encode/pause", {}, given)
        assert (found["claim_paused"], found["pause_reason"], found["pause_until"]) == (False, "", None)
        assert len(call("POST", "queues/encode/claims", claims, given)[1]["claims"]) == 1

    @pytest.mark.parametrize("until", ["2130-01-31T12:00:00", "soon", 10**30, "9999-12-31T23:59:59-05:00"])
    def test_pauses_end_at_a_moment(self, call, queue, until):
        given = token()
        assert call("PUT", "queues/encode/pause", {"claim": True, "until": until}, given)[0] == 422
        assert call("GET", "queues", None, given)[1]["queues"][0]["pause_until"] is None

    def test_page_by_page(self, call):
        for name in "cab":
            Queue.objects.create(name=name)
        given = token()
        _, page = call("GET", "queues?limit=2", None, given)
        assert [queue["name"] for queue in page["queues"]] == ["a", "b"]
        _, page = call("GET", f"queues?limit=2&after={page['next']}", None, given)
        assert ([queue["name"] for queue in page["queues"]], page["next"]) == (["c"], None)


class TestBodies:
    URL = "/api/queues/encode/tasks"

    def post(self, client, content, content_type="application/json"):
        headers = {"Authorization": f"Bearer {token(f'c{Consumer.objects.count()}')}"}
        answer = client.post(self.URL, content, content_type=content_type, headers=headers)
        assert not Task.objects.exists()
        return answer.status_code, answer.json()["error"], answer.json()["detail"]

    @pytest.mark.parametrize(
        "kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", ""]
    )
    def test_other_kinds_are_refused(self, client, queue, kind):
        assert self.post(client, b'{"action": "a"}', kind)[:2] == (415, "unsupported_media_type")

    @pytest.mark.parametrize(
        "content", [b"{", b"{'a': 1}", b"\xff", b'{"action": NaN}', b"1" * 5000, b'{"action": "a"} x']
    )
    def test_what_is_no_json(self, client, queue, content):
        assert self.post(client, content)[:2] == (400, "bad_request")

    @pytest.mark.parametrize(
        "content",
        [
            b"", b"[]", b"null", b"7", b'"x"', b"{}", b'{"action": ""}', b'{"action": 7}',
            b'{"action": "a", "more": 1}', b'{"action": "a", "priority": 9223372036854775808}',
            b'{"action": "a", "priority": 1.5}', b'{"action": "a", "data": 1e999}',
            b'{"action": "a", "data": "\\u0000"}', b'{"action": "a\\u0000"}',
            b'{"action": "a", "data": {"\\ud800": 1}}', b'{"action": "a", "metadata": {"x": [1]}}',
            b'{"action": "a", "metadata": {"": 1}}', b'{"action": "a", "max_attempts": 0}',
            b'{"action": "a", "worker_count": 0}', b'{"action": "a", "worker_ids": "bot-1"}',
            b'{"action": "a", "timeout": -1}', b'{"action": "a", "key": ""}', b'{"action": "' + b"a" * 201 + b'"}',
        ],
    )  # fmt: skip
    def test_what_cannot_be_published(self, client, queue, content):
        status, code, detail = self.post(client, content)
        assert (status, code) == (422, "invalid")
        assert detail

    def test_payload_is_bounded(self, client, queue, settings):
        settings.STATOR_TASKS = {"PAYLOAD_LIMIT": 1000}
        status, code, detail = self.post(client, json.dumps({"action": "a", "data": "x" * 1000}))
        assert (status, code) == (422, "invalid")
        assert "1,002 bytes" in detail

    def test_body_is_bounded(self, client, queue, settings):
        settings.DATA_UPLOAD_MAX_MEMORY_SIZE = 1000
        assert self.post(client, json.dumps({"action": "a", "data": "x" * 1000}))[:2] == (413, "too_large")

    @pytest.mark.parametrize("depth", [60, 150, 100_000])
    def test_depth_is_bounded(self, client, queue, depth):
        content = b'{"action": "a", "data": ' + b"[" * depth + b"]" * depth + b"}"
        assert self.post(client, content)[:2] == (422, "invalid")

    def test_mistakes_are_named_by_place_without_the_value(self, client, queue):
        content = json.dumps({"action": "a", "priority": "the secret"})
        _, _, detail = self.post(client, content)
        assert detail.startswith("body.priority: ")
        assert "secret" not in detail

    def test_cannot_know_who_asks_before_the_token_is_right(self, client, queue):
        answer = client.post(self.URL, b"{", content_type="text/plain")
        assert answer.status_code == 401


class TestErrors:
    @pytest.mark.parametrize("path", ["nowhere", "", "queues/encode/nowhere", "tasks/x", "queues//tasks"])
    def test_paths_that_are_none(self, call, queue, path):
        assert call("GET", path, None, token())[0] == 404

    @pytest.mark.parametrize(
        ("method", "path"), [("DELETE", "queues/encode"), ("GET", "queues/encode/tasks"), ("PUT", "tasks")]
    )
    def test_methods_that_are_none(self, call, queue, method, path):
        status, found = call(method, path, None, token())
        assert (status, found["error"]) == (405, "method_not_allowed")

    @pytest.mark.parametrize("debug", [True, False])
    def test_faults_of_ours_are_told_to_the_log_alone(self, call, queue, monkeypatch, caplog, settings, debug):
        settings.DEBUG = debug

        def broken(*args, **kwargs):
            raise RuntimeError("SELECT secret FROM tasks_queue")

        monkeypatch.setattr(queues_module, "queue_of", broken)
        status, found = call("GET", "queues/encode", None, token())
        assert (status, found["error"]) == (500, "internal")
        assert "secret" not in found["detail"]
        [record] = [record for record in caplog.records if record.name == "tasks.api"]
        assert "SELECT secret" in str(record.exc_info[1])

    def test_database_that_cannot_be_used(self, call, queue, monkeypatch):
        def broken(*args, **kwargs):
            raise OperationalError("password authentication failed for user x")

        monkeypatch.setattr(queues_module, "queue_of", broken)
        status, found = call("GET", "queues/encode", None, token())
        assert (status, found["error"]) == (503, "unavailable")
        assert "password" not in found["detail"]

    def test_health_needs_no_token(self, call, client, monkeypatch):
        assert call("GET", "health") == (200, {"status": "ok"})
        assert client.head("/api/health").status_code == 200

        def broken():
            raise OperationalError("gone")

        monkeypatch.setattr(queues_module.connection, "ensure_connection", broken)
        assert call("GET", "health")[0] == client.head("/api/health").status_code == 503


class TestRates:
    def test_too_many_requests_in_a_minute(self, client, queue, monkeypatch):
        given, codes = token(requests_per_minute=3), []
        for _ in range(5):
            answer = client.get("/api/queues", headers={"Authorization": f"Bearer {given}"})
            codes.append(answer.status_code)
        # The minute may have turned in between.
        assert codes in ([200, 200, 200, 429, 429], [200] * 5, [200] * 4 + [429])
        assert answer.status_code == 200 or 1 <= int(answer["Retry-After"]) <= 60

    def test_setting_holds_for_those_without_their_own(self, client, queue, settings):
        settings.STATOR_TASKS = {"API_REQUESTS_PER_MINUTE": 1}
        headers = {"Authorization": f"Bearer {token()}"}
        assert 429 in [client.get("/api/queues", headers=headers).status_code for _ in range(4)]

    def test_wrong_tokens_take_nothing_from_the_right_one(self, client, queue):
        given = token(requests_per_minute=2)
        for _ in range(10):
            client.get("/api/queues", headers={"Authorization": f"Bearer {given[:-1]}"})
        assert client.get("/api/queues", headers={"Authorization": f"Bearer {given}"}).status_code == 200


@pytest.fixture
def connection_queries():
    from django.db import connection

    def count(act):
        with CaptureQueriesContext(connection) as queries:
            act()
        return len(queries)

    return count


@pytest.mark.parametrize(
    ("name", "address"),
    [("a" * 101, "a" * 101), ("nul\0", "nul%00"), ("half\ud800", "half%ED%A0%80"), ("", None)],
)
def test_name_of_a_queue_that_no_database_keeps_is_refused(client, name, address):
    bearer = {"HTTP_AUTHORIZATION": f"Bearer {token()}"}
    body = json.dumps({"name": name})
    answer = client.post("/api/queues", body, content_type="application/json", **bearer)
    assert answer.status_code == 422
    assert answer.json()["detail"]
    assert not Queue.objects.exists()
    if address:
        body = json.dumps({"action": "resize"})
        answer = client.post(f"/api/queues/{address}/tasks", body, content_type="application/json", **bearer)
        assert answer.status_code in (404, 422)
        assert answer.json()["detail"]
