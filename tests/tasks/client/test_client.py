"""The client: what it sends, when it tries again, and that it needs nothing but Python."""

import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tasks import client as module
from tasks.api.schemas import FailIn, ReasonIn
from tasks.api.urls import api
from tasks.client import ApiError, Client, HttpClaim, LeaseLost, Unreachable, consuming
from tests.processes import wait_until
from tests.sizes import PATIENCE
from tests.tasks.serving import NOBODYS

LOST = (409, {"error": "lease_lost", "detail": "gone"}, {})
DROPPED = None
OF_TASK = {"heartbeat_interval": None, "max_unexpected_retries": None}
HELD = {**OF_TASK, "lease": 30, "unexpected_errors": 0}
LISTS = {name: [] for name in ("reasons", "schedules", "objects", "tasks", "queues", "claims")}
ANYTHING = {"results": [{"task": 7, "outcome": "failed"}], "next": None, "waited": 0.0, **LISTS, **HELD}


class Scripted(ThreadingHTTPServer):
    """Answers what it is told to, in order and the last again and again; notes what it was asked."""

    daemon_threads = True

    def __init__(self):
        self.script, self.asked, self.waiting = [], [], []
        super().__init__(("127.0.0.1", 0), Handler)

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}/api"


class Handler(BaseHTTPRequestHandler):
    def answer(self):
        length = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(length)) if length else None
        self.server.asked.append((self.command, self.path, body, dict(self.headers)))
        script = self.server.script
        found = script.pop(0) if len(script) > 1 else script[0]
        if found is DROPPED:
            self.close_connection = True
            return
        status, value, headers = found
        text = value if isinstance(value, bytes) else json.dumps(value).encode()
        self.send_response(status)
        for name, header in {"Content-Length": str(len(text)), **headers}.items():
            self.send_header(name, header)
        self.end_headers()
        self.wfile.write(text)

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = answer

    def log_message(self, *args):
        pass


@pytest.fixture
def server():
    scripted = Scripted()
    thread = threading.Thread(target=scripted.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    yield scripted
    scripted.shutdown()
    scripted.server_close()
    thread.join()


@pytest.fixture(autouse=True)
def pauses(monkeypatch):
    """The pauses that the client makes, without making them."""
    made = []
    monkeypatch.setattr(module.time, "sleep", made.append)
    return made


@pytest.fixture
def client(server):
    return Client(server.url, "tk_secret", timeout=PATIENCE, retries=3)


def answers(server, *script):
    server.script = [found if found is DROPPED else (*found, {})[:3] for found in script]


def claimed(pk=7, lease=30.0, token="t"):
    return {"task": {"id": pk, **OF_TASK}, "attempt": 1, "lease": lease, "token": token}


def claim(client, **given):
    return HttpClaim(client, claimed(**given), None, module.time.monotonic())


class Clock:
    """A replacement of ``time`` for the client: seconds pass while it pauses, and with each answer of the server."""

    def __init__(self, seconds_to_answer):
        self.now, self.seconds_to_answer = 1000.0, seconds_to_answer

    def monotonic(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds


@pytest.fixture
def clock(server, monkeypatch):
    """``clock(seconds)``: from now on each answer takes so long, by the clock of the client alone."""

    def begin(seconds_to_answer):
        made = Clock(seconds_to_answer)
        for each in (module, consuming):
            monkeypatch.setattr(each, "time", made)
        once = Client._once

        def slow(self, *arguments):
            try:
                return once(self, *arguments)
            finally:
                made.now += made.seconds_to_answer

        monkeypatch.setattr(Client, "_once", slow)
        return made

    return begin


def test_token_goes_in_the_header_and_nowhere_else(client, server):
    answers(server, (200, {"claims": [], "waited": 0.0}))
    assert client.claim("a/b c", worker="bot-1", limit=5, wait=2) == []
    [(method, path, body, headers)] = server.asked
    assert (method, path) == ("POST", "/api/queues/a%2Fb%20c/claims")
    assert body == {"worker": "bot-1", "limit": 5, "wait": 2}
    assert headers["Authorization"] == "Bearer tk_secret"
    assert headers["Content-Type"] == "application/json"
    assert "secret" not in path + repr(body) + repr(client)


# Each kind of answer after which nobody knows what was done.
UNKNOWN = [DROPPED, (500, {"error": "internal", "detail": "x"}), (502, b"<html>bad gateway</html>")]

KEYED, CLEARING = {"action": "a", "key": "k"}, {"clear_failed": True}
HELD_ENDS = {"claims": [{"task": 7, "token": "t", "result": 1}]}, {"claims": [{"task": 7, "token": "t", "error": "x"}]}
EVERY = [{"publish": False, "claim": claim, "reason": "", "until": None} for claim in (False, True)]
# Each verb: its call, what it sends, and whether it is sent again where no answer has told what came of it.
VERBS = [
    ("health", lambda client: client.health(), "GET health", None, True),
    ("publish", lambda client: client.publish("q", "a"), "POST queues/q/tasks", {"action": "a"}, False),
    ("publish", lambda client: client.publish("q", "a", key="k"), "POST queues/q/tasks", KEYED, True),
    ("publish", lambda client: client.publish("q", "a", key="k", **CLEARING), "POST queues/q/tasks", KEYED | CLEARING,
     False),
    ("publish", lambda client: client.publish("q", "a", key="k", clear_succeeded=True), "POST queues/q/tasks",
     KEYED | {"clear_succeeded": True}, False),
    ("publish_many", lambda client: client.publish_many("q", [KEYED]), "POST queues/q/tasks/bulk", {"tasks": [KEYED]},
     True),
    ("publish_many", lambda client: client.publish_many("q", [KEYED, {"action": "b"}]), "POST queues/q/tasks/bulk",
     {"tasks": [KEYED, {"action": "b"}]}, False),
    ("publish_many", lambda client: client.publish_many("q", [KEYED], **CLEARING), "POST queues/q/tasks/bulk",
     {"tasks": [KEYED], **CLEARING}, False),
    ("publish_many", lambda client: client.publish_many("q", [KEYED], batch={"key": "b"}), "POST queues/q/tasks/bulk",
     {"tasks": [KEYED], "batch": {"key": "b"}}, True),
    ("publish_many", lambda client: client.publish_many("q", [KEYED], batch={"on_done": "b"}),
     "POST queues/q/tasks/bulk", {"tasks": [KEYED], "batch": {"on_done": "b"}}, False),
    ("open_batch", lambda client: client.open_batch("q", on_done="b"), "POST queues/q/batches",
     {"key": None, "on_done": "b"}, False),
    ("open_batch", lambda client: client.open_batch("q", key="k"), "POST queues/q/batches", {"key": "k"}, True),
    ("batch", lambda client: client.batch(7), "GET batches/7", None, True),
    ("close_batch", lambda client: client.close_batch(7), "POST batches/7/close", {}, True),
    ("cancel_batch", lambda client: client.cancel_batch(7, running=True), "POST batches/7/cancel?running=true", {},
     True),
    ("requeue_batch", lambda client: client.requeue_batch(7, start_over=True),
     "POST batches/7/requeue?start_over=true", {}, False),
    ("claim", lambda client: client.claim("q", worker="w"), "POST queues/q/claims", {"worker": "w", "wait": 0.0},
     False),
    ("resolve_many", lambda client: client.resolve_many("q", {claim(client): 1}), "POST queues/q/claims/resolve",
     HELD_ENDS[0], True),
    ("fail_many", lambda client: client.fail_many("q", {claim(client): "x"}), "POST queues/q/claims/fail",
     HELD_ENDS[1], True),
    ("task", lambda client: client.task(7), "GET tasks/7", None, True),
    ("tasks", lambda client: list(client.tasks(queue="q")), "GET tasks?queue=q", None, True),
    ("explain", lambda client: client.explain(7), "GET tasks/7/explain", None, True),
    ("cancel", lambda client: client.cancel(7, running=True), "POST tasks/7/cancel?running=true", {}, True),
    ("change", lambda client: client.change(7, timeout=3), "POST tasks/7/change", {"timeout": 3}, True),
    ("requeue", lambda client: client.requeue(7), "POST tasks/7/requeue", {}, False),
    ("queues", lambda client: list(client.queues()), "GET queues?", None, True),
    ("queue", lambda client: client.queue("q"), "GET queues/q", None, True),
    ("create_queue", lambda client: client.create_queue("q"), "POST queues", {"name": "q"}, False),
    ("configure_queue", lambda client: client.configure_queue("q", lease=3), "PATCH queues/q", {"lease": 3}, True),
    ("delete_queue", lambda client: client.delete_queue("q", tasks=True), "DELETE queues/q?tasks=true", None, False),
    ("pause", lambda client: client.pause("q", claim=True), "PUT queues/q/pause", EVERY[1], True),
    ("resume", lambda client: client.resume("q"), "PUT queues/q/pause", EVERY[0], True),
    ("schedules", lambda client: list(client.schedules(queue="q")), "GET schedules?queue=q", None, True),
    ("schedule", lambda client: client.schedule(3), "GET schedules/3", None, True),
    ("create_schedule", lambda client: client.create_schedule("s", queue="q", action="a", period=60),
     "POST schedules", {"name": "s", "queue": "q", "action": "a", "period": 60}, False),
    ("change_schedule", lambda client: client.change_schedule(3, enabled=False), "PATCH schedules/3",
     {"enabled": False}, True),
    ("run_schedule", lambda client: client.run_schedule(3), "POST schedules/3/run", {}, False),
    ("delete_schedule", lambda client: client.delete_schedule(3), "DELETE schedules/3", None, False),
    ("managed_objects", lambda client: list(client.managed_objects("shop.Order", state="paid")),
     "GET objects/shop.Order?state=paid", None, True),
    ("managed_object", lambda client: client.managed_object("shop.Order", 7), "GET objects/shop.Order/7", None, True),
    ("send", lambda client: client.send("shop.Order", 7, "approve"), "POST objects/shop.Order/7/events/approve",
     {"payload": None, "key": ""}, False),
    ("send", lambda client: client.send("shop.Order", 7, "approve", key="mail-17"),
     "POST objects/shop.Order/7/events/approve", {"payload": None, "key": "mail-17"}, True),
    ("claim.verify", lambda client: claim(client).verify(), "POST tasks/7/claim/verify", {}, True),
    ("claim.heartbeat", lambda client: claim(client).heartbeat(), "POST tasks/7/claim/heartbeat", {}, True),
    ("claim.note_error", lambda client: claim(client).note_error(), "POST tasks/7/claim/heartbeat",
     {"unexpected": True}, True),
    ("claim.resolve", lambda client: claim(client).resolve(), "POST tasks/7/claim/resolve", {}, True),
    ("claim.release", lambda client: claim(client).release(), "POST tasks/7/claim/release", {"reason": ""}, True),
    ("claim.hand_back", lambda client: claim(client).hand_back(), "POST tasks/7/claim/release", {"begun": False},
     True),
    ("claim.fail", lambda client: claim(client).fail("x"), "POST tasks/7/claim/fail", {"error": "x"}, True),
    ("claim.cancel", lambda client: claim(client).cancel(), "POST tasks/7/claim/cancel", {"reason": ""}, True),
]  # fmt: skip
# Tested below by themselves, or no call of their own.
OTHERS = {"consume", "claim.progress", "claim.step", "claim.heartbeating", "claim.heartbeat_due", "claim.lost"}


def test_table_has_every_verb():
    own = {name for name in vars(Client) if not name.startswith("_")}
    of_claims = {f"claim.{name}" for name in vars(HttpClaim) if not name.startswith("_")}
    assert own | of_claims == {name for name, *_ in VERBS} | OTHERS & (own | of_claims)


@pytest.mark.parametrize(("name", "call", "address", "body", "again"), VERBS, ids=[name for name, *_ in VERBS])
def test_verb_sends_its_request_and_again_only_if_it_may_be_carried_out_twice(
    server, pauses, name, call, address, body, again
):
    client = Client(server.url, "tk_secret", timeout=PATIENCE, retries=4)
    if again:
        answers(server, *UNKNOWN, (503, {"error": "x", "detail": "y"}), (200, ANYTHING))
        call(client)
    for lost in [] if again else UNKNOWN:
        answers(server, lost)
        with pytest.raises(ApiError):
            call(client)
    assert (len(server.asked), len(pauses)) == ((5, 4) if again else (3, 0))
    sent = body | {"token": "t"} if name.startswith("claim.") else body
    asked = [(f"{method} {path.removeprefix('/api/')}", given) for method, path, given, _ in server.asked]
    assert asked == [(address, sent)] * len(asked)


@pytest.mark.needs("batches", "schedules")
@pytest.mark.needs("events", "problems")
def test_addresses_are_those_of_the_api():
    paths = api.get_openapi_schema()["paths"]
    known = [(re.sub(r"\{\w+\}", r"[^/]+", path.removeprefix("/api/")), [*methods]) for path, methods in paths.items()]
    for _, _, address, *_ in VERBS:
        method, path = address.partition("?")[0].split()
        assert any(method.lower() in methods and re.fullmatch(pattern, path) for pattern, methods in known), address


def test_it_gives_up_after_its_retries(client, server, pauses):
    answers(server, DROPPED)
    with pytest.raises(Unreachable, match="GET tasks/7: "):
        client.task(7)
    assert len(server.asked) == 4
    assert len(pauses) == 3


def test_nobody_at_the_address(pauses):
    with pytest.raises(Unreachable):
        Client("http://127.0.0.1:9", "tk_secret", retries=1).health()
    assert len(pauses) == 1


@pytest.mark.parametrize(("status", "code"), [(429, "rate_limited"), (503, "busy")])
def test_what_was_not_done_is_asked_again_when_the_server_says(client, server, pauses, status, code):
    later = (status, {"error": code, "detail": "later"}, {"Retry-After": "7"})
    answers(server, later, (200, {"claims": [], "waited": 0.0}))
    assert client.claim("q", worker="bot-1") == []
    assert pauses == [7.0]
    answers(server, later)
    with pytest.raises(ApiError) as refused:
        client.publish("q", "a")
    assert (refused.value.status, refused.value.code) == (status, code)


def test_refusal_is_raised_and_not_tried_again(client, server):
    answers(server, (422, {"error": "invalid", "detail": "body.action: Field required"}))
    with pytest.raises(ApiError, match=r"body.action: Field required \(invalid\)") as refused:
        client.publish("q", "", key="k")
    assert (refused.value.status, refused.value.code) == (422, "invalid")
    assert len(server.asked) == 1


def test_redirections_are_not_followed_with_the_token(client, server):
    answers(server, (302, b"", {"Location": "http://127.0.0.1:9/elsewhere"}))
    with pytest.raises(ApiError) as refused:
        client.task(7)
    assert refused.value.status == 302
    assert len(server.asked) == 1


@pytest.mark.parametrize("base_url", ["file:///etc/passwd", "example.com", "ftp://example.com"])
def test_addresses_are_of_http(base_url):
    with pytest.raises(ValueError, match="must start with https://"):
        Client(base_url, "tk_secret")


def test_many_claims_are_ended_by_thousands_and_tried_again(client, server, pauses, monkeypatch):
    monkeypatch.setattr(module, "MAX_ENDED", 2)
    claims = [claim(client, pk=pk, token=f"t{pk}") for pk in (1, 2, 3)]
    outcomes = [[(1, "completed"), (2, "lease_lost")], [(3, "completed")]]
    script = [(200, {"results": [{"task": pk, "outcome": told} for pk, told in part]}, {}) for part in outcomes]
    answers(server, DROPPED, *script)
    assert client.resolve_many("a/b", {claim: {"n": claim.task["id"]} for claim in claims}) == [claims[1]]
    assert [claim.lost for claim in claims] == [False, True, False]
    paths, bodies = {asked[1] for asked in server.asked}, [asked[2] for asked in server.asked]
    assert paths == {"/api/queues/a%2Fb/claims/resolve"}
    assert bodies[0] == bodies[1]
    assert bodies[2] == {"claims": [{"task": 3, "token": "t3", "result": {"n": 3}}]}


def test_heartbeat_sends_how_far_the_work_is_once(client, server):
    answers(server, (200, HELD))
    held = claim(client)
    held.progress(1, 2)
    held.progress(2, 2, "both")
    for _ in range(2):
        held.heartbeat()
    wanted = {"done": 2, "total": 2, "text": "both"}
    assert [body.get("progress") for _, _, body, _ in server.asked] == [wanted, None]


def test_step_is_called_unless_it_is_recorded_and_its_record_is_sent_until_it_arrives(client, server):
    recorded = {"steps": [{"name": "charge", "result": 7}]}
    answers(server, (200, recorded), DROPPED, (503, {"error": "x", "detail": "x"}), (200, {"result": [1, 2]}), LOST)
    held = claim(client)
    assert held.step("charge", lambda: pytest.fail("it is recorded")) == 7
    assert held.step("print it/now", lambda: (1, 2)) == [1, 2]
    with pytest.raises(ValueError, match="step 'charge' is used twice in one claim; give each step a name of its own"):
        held.step("charge", list)
    with pytest.raises(LeaseLost):
        held.step("mail", list)
    assert held.lost
    method, path, body, _ = server.asked[3]
    assert (method, path) == ("PUT", "/api/tasks/7/claim/steps/print%20it%2Fnow")
    assert body == {"token": "t", "result": [1, 2]}
    assert [path.rpartition("/")[2] for _, path, _, _ in server.asked].count("steps") == 1


def test_heartbeats_go_on_while_it_works_outlast_an_outage_and_end_with_it_or_when_the_claim_is_lost(client, server):
    answers(server, (200, HELD), (500, {"error": "internal", "detail": "x"}), (200, HELD))
    with claim(client).heartbeating(every=0.01) as held:
        wait_until(lambda: len(server.asked) >= 4)
    assert not held.lost
    assert {path for _, path, _, _ in server.asked} == {"/api/tasks/7/claim/heartbeat"}
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("heartbeat of")]
    asked = len(server.asked)
    answers(server, LOST)
    with claim(client).heartbeating(every=0.01) as held:
        wait_until(lambda: held.lost)
    assert len(server.asked) == asked + 1


def test_pages_are_followed(client, server):
    answers(server, (200, {"tasks": [1, 2], "next": "2"}), (200, {"tasks": [3], "next": None}))
    assert list(client.tasks(queue="q", status="errored", metadata={"title": "a&b"}, worker=None)) == [1, 2, 3]
    assert [path.partition("?")[2] for _, path, _, _ in server.asked] == [
        "queue=q&status=errored&metadata=%7B%22title%22%3A+%22a%26b%22%7D",
        "queue=q&status=errored&metadata=%7B%22title%22%3A+%22a%26b%22%7D&after=2",
    ]


@pytest.mark.parametrize(
    ("waited", "left"),
    [
        # Sent 25 s ago, claimed at once, answered late.
        (0.0, 5.0),
        # Claimed after 20 of the 25 s.
        (20.0, 25.0),
    ],
)
def test_lease_is_counted_from_before_the_claim(client, server, clock, waited, left):
    answers(server, (200, {"claims": [claimed()], "waited": waited}))
    now = clock(25.0)
    [held] = client.claim("q", worker="bot-1", wait=20)
    now.now += left - 0.1
    assert not held.lost
    now.now += 0.1
    assert held.lost


@pytest.mark.parametrize(
    "hold", [lambda held: held.heartbeat(), lambda held: held.verify()], ids=["heartbeat", "verify"]
)
def test_lease_is_counted_from_before_the_heartbeat_that_was_answered(client, server, clock, hold):
    answers(server, DROPPED, (200, {**HELD, "lease": 20}))
    now = clock(7.0)
    held = claim(client)
    now.now += 29.0
    # The first is lost, and the second is sent after that and a pause.
    hold(held)
    sent = now.now - 7.0
    now.now = sent + 19.9
    assert not held.lost
    now.now = sent + 20.0
    assert held.lost


def test_claim_that_was_ended_is_not_lost_later(client, server, clock):
    answers(server, (200, {"task": {}}))
    now = clock(0.0)
    held = claim(client)
    held.resolve()
    now.now += 60.0
    assert not held.lost


def test_end_of_a_claim_is_tried_again_while_its_lease_lasts_and_then_raised(client, server, clock):
    answers(server, DROPPED)
    now = clock(0.0)
    held = claim(client, lease=100.0)
    with pytest.raises(Unreachable, match="POST tasks/7/claim/resolve: "):
        held.resolve({"ok": True})
    assert held.lost
    # With pauses of 10 s at most.
    assert 100.0 <= now.now - 1000.0 <= 110.0
    assert 10 <= len(server.asked) <= 40
    assert {repr(body) for _, _, body, _ in server.asked} == {repr({"token": "t", "result": {"ok": True}})}


def test_server_that_lets_no_more_claims_wait_is_asked_until_the_wait_is_over(client, server, clock):
    busy = (503, {"error": "busy", "detail": "later"}, {"Retry-After": "1"})
    answers(server, *[busy] * 10, (200, {"claims": [], "waited": 0.0}))
    now = clock(0.5)
    assert client.claim("q", worker="bot-1", wait=10) == []
    waits = [body["wait"] for _, _, body, _ in server.asked]
    assert waits[0] == 10
    assert waits == sorted(waits, reverse=True)
    assert now.now - 1000.0 >= 10
    answers(server, busy)
    with pytest.raises(ApiError) as refused:
        client.claim("q", worker="bot-1", wait=10)
    assert refused.value.code == "busy"


@pytest.mark.parametrize("error", ["bad\0x", "bad \udcffx", ValueError("bad\0\ud800x")], ids=["NUL", "half", "both"])
def test_errors_are_sent_without_what_no_database_stores(client, server, error):
    answers(server, (200, ANYTHING))
    claim(client).fail(error)
    client.fail_many("q", {claim(client): error})
    texts = [server.asked[0][2]["error"], server.asked[1][2]["claims"][0]["error"]]
    assert all(
        "bad" in text and "x" in text and "\0" not in text and text.isprintable() for text in map(str.strip, texts)
    )


def test_errors_and_reasons_of_any_length_are_sent_as_the_server_takes_them(client, server):
    answers(server, (200, ANYTHING))
    errors = ["x" * 9000 + "end", "", TimeoutError(), ValueError("y" * 9000)]
    for error in errors:
        claim(client).fail(error)
    client.fail_many("q", {claim(client): error for error in errors[:1]})
    client.fail_many("q", {claim(client): error for error in errors[1:2]})
    texts = [body["error"] for _, _, body, _ in server.asked[:4]]
    texts += [body["claims"][0]["error"] for _, _, body, _ in server.asked[4:]]
    assert all(FailIn(token=NOBODYS, error=text) for text in texts)
    assert [texts[0][-3:], texts[2].strip(), texts[4:]] == ["end", "TimeoutError", texts[:2]]
    claim(client).release("z" * 9000)
    claim(client).cancel("z" * 9000)
    reasons = [ReasonIn(token=NOBODYS, reason=body["reason"]).reason for _, _, body, _ in server.asked[6:]]
    assert reasons == ["z" * 8000] * 2
