"""The HTTP API: which token may do what, and that nothing else opens anything."""

import logging
import re

import pytest
from django.test import Client

from tasks.api.urls import api
from tasks.extensions.api.models import Consumer, Verb
from tasks.models import Queue
from tests.tasks.serving import NOBODYS, token

pytestmark = pytest.mark.django_db

WRONG = "tk_" + "0" * 12 + "_" + "A" * 43
LEASE = {"lease": 30}
SCHEDULE = {"queue": "encode", "action": "resize", "name": "new", "period": 60}


PAUSED = {"claim_paused": True, "publish_paused": False, "pause_reason": "full", "pause_author": "full"}


def of_task(status):
    return {"task": {"status": status}}


# Method, path, body, the verb that it needs, and what the right token is answered: the status, and a part of the body.
# ``{task}`` waits, ``{held}`` is claimed, ``{dead}`` is errored.
ENDPOINTS = [
    ("GET", "queues", None, "query", 200),
    ("POST", "queues", {"name": "new"}, "configure", 201, {"name": "new", "http_actions": []}),
    ("GET", "queues/{queue}", None, "query", 200, {"name": "encode"}),
    ("PATCH", "queues/{queue}", LEASE, "configure", 200, LEASE),
    ("DELETE", "queues/{queue}", None, "configure", 409, {"error": "not_empty"}),
    ("PUT", "queues/{queue}/pause", {"claim": True, "reason": "full"}, "configure", 200, PAUSED),
    ("POST", "queues/{queue}/tasks", {"action": "resize"}, "publish", 201, {"outcome": "inserted"}),
    ("POST", "queues/{queue}/tasks/bulk", {"tasks": [{"action": "resize"}]}, "publish", 200),
    ("POST", "queues/{queue}/claims", {"worker": "bot-2"}, "claim", 200),
    ("POST", "queues/{queue}/claims/heartbeat", {"claims": [{"task": 1, "token": NOBODYS}]}, "claim", 200),
    ("POST", "queues/{queue}/claims/resolve", {"claims": [{"task": 1, "token": NOBODYS}]}, "claim", 200),
    ("POST", "queues/{queue}/claims/fail", {"claims": [{"task": 1, "token": NOBODYS, "error": "no"}]}, "claim", 200),
    ("POST", "queues/{queue}/batches", {"on_done": {"action": "resize"}}, "publish", 201),
    ("GET", "batches/{batch}", None, "query", 200),
    ("POST", "batches/{batch}/close", None, "publish", 200, {"state": "ending"}),
    ("POST", "batches/{batch}/cancel", None, "publish", 200, {"state": "canceled"}),
    ("POST", "batches/{batch}/requeue", None, "publish", 200),
    ("GET", "tasks", None, "query", 200),
    ("GET", "tasks/{task}", None, "query", 200, {"key": "image-3"}),
    ("GET", "tasks/{task}/explain", None, "query", 200, {"status": "pending"}),  # tasks.extensions.problems
    ("POST", "tasks/{held}/change", {"timeout": 30}, "publish", 200, {"timeout": 30}),
    ("POST", "tasks/{task}/cancel", None, "publish", 200, {"status": "canceled"}),
    ("POST", "tasks/{dead}/requeue", None, "publish", 200, {"status": "pending"}),
    ("POST", "tasks/{held}/claim/verify", {}, "claim", 200),
    ("POST", "tasks/{held}/claim/heartbeat", {}, "claim", 200),
    ("PUT", "tasks/{held}/claim/progress", {"done": 1}, "claim", 200),  # tasks.extensions.progress
    ("GET", "tasks/{held}/claim/steps", None, "claim", 200),  # tasks.extensions.steps
    ("PUT", "tasks/{held}/claim/steps/{name}", {"result": 7}, "claim", 200),  # tasks.extensions.steps
    ("POST", "tasks/{held}/claim/resolve", {}, "claim", 200, of_task("completed")),
    ("POST", "tasks/{held}/claim/release", {}, "claim", 200, of_task("pending")),
    ("POST", "tasks/{held}/claim/fail", {"error": "no"}, "claim", 200, of_task("pending")),
    ("POST", "tasks/{held}/claim/cancel", {}, "claim", 200, of_task("canceled")),
    ("GET", "schedules", None, "query", 200),
    ("POST", "schedules", SCHEDULE, "configure", 201, SCHEDULE),
    ("GET", "schedules/{schedule}", None, "query", 200),
    ("PATCH", "schedules/{schedule}", {"enabled": False}, "configure", 200, {"enabled": False}),
    ("DELETE", "schedules/{schedule}", None, "configure", 200),
    ("POST", "schedules/{schedule}/run", None, "publish", 200),
]


class TestPermissions:
    def refused(self, call, scene, endpoint, given, status, code):
        method, path, body, *_ = endpoint
        found = call(method, scene.path(path), scene.body(path, body), given)
        assert (found[0], found[1]["error"]) == (status, code), (method, path, given)
        return found[1]["detail"]

    def test_matrix_has_every_endpoint(self):
        named = {(method, re.sub(r"\{(dead|held|schedule)\}", "{task}", path)) for method, path, *_ in ENDPOINTS}
        there = {
            (method.upper(), path.removeprefix("/api/").replace("{pk}", "{task}").replace("{number}", "{batch}"))
            for path, methods in api.get_openapi_schema()["paths"].items()
            for method in methods
            # A token names managed objects beside its verbs and queues.
            if not path.startswith("/api/objects/")
        }
        assert there - named == {("GET", "health")}

    def test_without_a_token_and_with_a_wrong_one_the_answer_is_the_same(self, call, scene):
        right = token()
        prefix = Consumer.objects.get().prefix
        disabled, expired = token("disabled", enabled=False), token("expired", expires="2020-01-01T00:00:00+00:00")
        before = scene.untouched()
        wrong = ["", WRONG, f"tk_{prefix}_{'A' * 43}", right[:-1], "x", disabled, expired]
        told = {self.refused(call, scene, each, given, 401, "unauthorized") for each in ENDPOINTS for given in wrong}
        assert (len(told), scene.untouched()) == (1, before)

    def test_token_in_the_query_string_is_not_looked_at(self, client, scene):
        query = f"?token={token()}&access_token={token('other')}"
        for method, path, body, *_ in ENDPOINTS:
            ask = getattr(client, method.lower())
            answer = ask(f"/api/{scene.path(path)}{query}", scene.body(path, body), content_type="application/json")
            assert (answer.status_code, answer["WWW-Authenticate"]) == (401, "Bearer"), (method, path)

    def test_token_of_another_queue(self, call, scene):
        other = token(queues=[Queue.objects.create(name="other")])
        before = scene.untouched()
        for endpoint in ENDPOINTS:
            method, path, body, *_ = endpoint
            if "{queue}" in path or (method, path) in (("POST", "queues"), ("POST", "schedules")):
                self.refused(call, scene, endpoint, other, 403, "forbidden")
            elif "{" in path:
                self.refused(call, scene, endpoint, other, 404, "not_found")
            else:
                status, found = call(method, path, body, other)
                assert status == 200
                assert [queue["name"] for queue in found.get("queues", [])] in ([], ["other"])
                assert not found.get("tasks")
                assert not found.get("schedules")
        assert scene.untouched() == before

    @pytest.mark.parametrize("only", [*Verb.values, None])
    def test_token_with_one_verb_may_do_nothing_else(self, call, scene, only):
        given, before = token(verbs=[only] if only else []), scene.untouched()
        for endpoint in ENDPOINTS:
            verb = endpoint[3]
            if verb != only:
                detail = self.refused(call, scene, endpoint, given, 403, "forbidden")
                assert detail == f"this token may not {verb}; it may {only or 'do nothing'}"
        assert scene.untouched() == before

    @pytest.mark.parametrize("endpoint", ENDPOINTS, ids=[f"{method} {path}" for method, path, *_ in ENDPOINTS])
    def test_token_with_the_verb_is_answered(self, call, scene, endpoint):
        method, path, body, verb, good, *shown = endpoint
        status, found = call(method, scene.path(path), scene.body(path, body), token(verbs=[verb]))
        assert status == good, found
        for name, value in (shown[0] if shown else {}).items():
            told = found[name]
            assert (told | value if isinstance(value, dict) else value) == told, name

    def test_claim_is_ended_by_its_own_token_alone(self, call, scene):
        given = token()
        [other] = scene.queue.claim(worker="bot-2")
        before = scene.untouched()
        for method, path, body, *_ in ENDPOINTS:
            for wrong in (NOBODYS, str(other.token)) if "/claim/" in path and body is not None else ():
                status, found = call(method, scene.path(path), {**body, "token": wrong}, given)
                assert (status, found["error"]) == (409, "lease_lost"), path
        assert scene.untouched() == before

    def test_there_are_no_tasks_for_those_who_may_not_see_them(self, call, scene):
        other = token(queues=[Queue.objects.create(name="other")])
        hidden = call("GET", f"tasks/{scene.task.pk}", None, other)
        missing = call("GET", "tasks/999999", None, other)
        assert hidden[0] == missing[0] == 404
        assert hidden[1]["detail"].replace(str(scene.task.pk), "N") == missing[1]["detail"].replace("999999", "N")

    def test_unknown_queue_is_shown_only_to_tokens_for_all_queues(self, call, queue):
        assert call("GET", "queues/nowhere", None, token())[0] == 404
        limited = token("limited", queues=[queue])
        assert call("GET", "queues/nowhere", None, limited)[0] == 403

    def test_header_has_one_form(self, client, queue):
        given = token()
        for form in ("Bearer", "Bearer ", "Basic {}", "{}", "Bearer {} x", "Token {}", "bearer\t{}"):
            answer = client.get("/api/queues", headers={"Authorization": form.format(given)})
            assert answer.status_code == 401, form

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


def test_site_that_has_the_api_alone_needs_no_sessions(call, queue, settings):
    settings.MIDDLEWARE = [f"django.middleware.{name}Middleware" for name in ("security.Security", "common.Common")]
    settings.ROOT_URLCONF = "benchmarks.served_urls"
    bearer = token()
    assert call("GET", "queues", token=WRONG)[0] == 401
    assert call("POST", "queues/encode/tasks", {"action": "resize"}, bearer)[0] == 201
    _, found = call("POST", "queues/encode/claims", {"worker": "bot"}, bearer)
    [claim] = found["claims"]
    status, _ = call("POST", f"tasks/{claim['task']['id']}/claim/resolve", {"token": claim["token"]}, bearer)
    assert status == 200
