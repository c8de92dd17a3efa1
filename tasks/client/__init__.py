"""A client of the HTTP API. This folder needs only Python's standard library and can be copied anywhere.

::

    client = Client("https://example.com/api/", token)
    client.publish("encode", "resize", {"image": 7}, key="resize-7")
    for claim in client.consume("encode", worker="bot-1"):
        claim.resolve(work(claim.task["data"]))

If the server refuses a call, :class:`ApiError` is raised. If the connection breaks or the server is unavailable (500,
502, 503, 504), calls that are safe to repeat are repeated, with growing pauses. The end of a claim is retried for as
long as its lease lasts. Other calls raise :class:`Unreachable` at once, since nobody knows whether they were carried
out: publishing without a key, requeuing, and claiming.
"""

import http.client
import itertools
import json
import random
import threading
import time
import traceback
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeAlias, cast

# Relative, so that a copy of the folder works under any name.
from .consuming import ConsumerLoop, LoopClaim

MAX_PAUSE = 10.0
# The most claims that one request ends, and the most characters of an error or a reason.
MAX_ENDED, MAX_TOLD = 1000, 8000
# The most characters of a text about progress.
MAX_TEXT = 200

# An object of an answer. Its values are Any: programs index into what they know is there.
Answer: TypeAlias = dict[str, Any]

# The query of a request to start over.
_OVER = "?start_over=true"


class ApiError(Exception):
    """A refusal by the server: ``code`` is for programs, the text for people, ``status`` is the HTTP status."""

    def __init__(self, status: int, code: str, detail: str) -> None:
        super().__init__(f"{detail} ({code})")
        self.status, self.code, self.detail = status, code, detail


class LeaseLost(ApiError):
    """The claim has ended, or its lease ran out. Nothing was changed; stop working on the task."""


class Unreachable(ApiError):
    """No answer came, so nobody knows whether the call was carried out."""

    def __init__(self, detail: str) -> None:
        super().__init__(0, "unreachable", detail)


class Client:
    """One consumer of the API at ``base_url``. ``timeout``: seconds for an answer; ``retries``: further tries."""

    def __init__(self, base_url: str, token: str, *, timeout: float = 30.0, retries: int = 4) -> None:
        if urllib.parse.urlsplit(base_url).scheme not in ("http", "https"):
            raise ValueError(f"base_url={base_url!r} must start with https:// or http://")
        self.base_url = base_url.rstrip("/") + "/"
        self.timeout, self.retries = timeout, retries
        self._token = token
        # The token must not follow a redirect to another server.
        self._opener = urllib.request.build_opener(_NoRedirects)

    def __repr__(self) -> str:
        return f"<Client of {self.base_url}>"

    def health(self) -> Answer:
        """Check that the server and its database answer."""
        return self._call("GET", "health")

    def publish(self, queue: str, action: str, data: object = ..., **options: object) -> Answer:
        """Publish a task and return ``{"task": ..., "outcome": ...}``; ``data``: if left out, null.

        The call is retried only with a ``key``, and without ``clear_failed`` and ``clear_succeeded``: with these, a
        second try could run the task again, if the first one published it and it has ended meanwhile.
        """
        body = {"action": action, **({} if data is ... else {"data": data}), **options}
        return self._call("POST", f"queues/{_quote(queue)}/tasks", body, again=_may_repeat([options], options))

    def publish_many(self, queue: str, tasks: Sequence[Mapping[str, object]], **options: object) -> list[Answer]:
        """Publish tasks, each a dictionary of arguments of :meth:`publish`; return one result for each, in order.

        ``options``: ``update``, ``clear_failed`` and ``clear_succeeded``, for all of them; and ``batch``: the number of
        a batch, or a dictionary of arguments of :meth:`open_batch` for a new one, which ends with the last task.
        """
        path, body = f"queues/{_quote(queue)}/tasks/bulk", {"tasks": tasks, **options}
        return list(self._call("POST", path, body, again=_may_repeat(tasks, options))["results"])

    def open_batch(self, queue: str, *, key: str | None = None, **actions: object) -> Answer:
        """Open a batch, which does not end before :meth:`close_batch`.

        ``actions``: the tasks ``on_done``, ``on_failed`` and ``on_first_failure``.
        """
        body = {"key": key, **actions}
        return self._call("POST", f"queues/{_quote(queue)}/batches", body, again=key is not None)

    def batch(self, number: int) -> Answer:
        """Return one batch with the counts of its tasks."""
        return self._call("GET", f"batches/{number}")

    def close_batch(self, number: int) -> Answer:
        """Let an open batch end with its last task."""
        return self._call("POST", f"batches/{number}/close", {}, again=True)

    def cancel_batch(self, number: int, *, running: bool = False, reason: str = "") -> Answer:
        """Cancel a batch with its waiting tasks, and with ``running`` also claimed ones."""
        return self._call("POST", f"batches/{number}/cancel{_canceling(running, reason)}", {}, again=True)

    def requeue_batch(self, number: int, *, start_over: bool = False) -> Answer:
        """Requeue up to 10,000 dead letters of a batch; with ``start_over`` their recorded steps run again."""
        return self._call("POST", f"batches/{number}/requeue{_OVER * start_over}", {})

    def claim(self, queue: str, *, worker: str, wait: float = 0.0, **options: object) -> list["HttpClaim"]:
        """Claim up to ``limit`` tasks (one by default), waiting up to ``wait`` seconds for the first."""
        return self._claim(queue, worker, wait, options, time.sleep)

    def consume(self, queue: str, *, worker: str, wait: float = 5.0, **options: Any) -> "ConsumerLoop[HttpClaim]":
        """Return the loop of a worker, which claims tasks until it is stopped: iterate over it, or ``run`` it.

        ``wait``: seconds for which one request waits, and so the longest time until a stopped loop ends. ``limit``,
        ``lease`` and ``metadata`` are passed to :meth:`claim`, the other options to :class:`ConsumerLoop`.
        """
        wanted: dict[str, object] = {
            name: options.pop(name) for name in ("limit", "lease", "metadata") if name in options
        }
        loop = _Loop(**options)
        loop.claim = partial(self._claim, queue, worker, wait, wanted)
        return loop

    def _claim(
        self, queue: str, worker: str, wait: float, options: dict[str, object], sleep: Callable[[float], None]
    ) -> list["HttpClaim"]:
        path, end, left = f"queues/{_quote(queue)}/claims", time.monotonic() + wait, wait
        while True:
            body = {"worker": worker, "wait": left, **options}
            try:
                answer, sent = self._answered("POST", path, body, timeout=self.timeout + left, sleep=sleep)
                break
            except ApiError as error:
                # The server has no room for another waiting claim: try again for the time that is left, at last without
                # waiting.
                if error.code != "busy" or not left:
                    raise
            left = max(0.0, end - time.monotonic())
        wanted, since = cast("float | None", options.get("lease")), sent + answer["waited"]
        return [HttpClaim(self, claim, wanted, since) for claim in answer["claims"]]

    def resolve_many(self, queue: str, results: Mapping["HttpClaim", object]) -> list["HttpClaim"]:
        """Complete claims of one queue, each with its result; return the claims that were lost.

        One request ends up to ``MAX_ENDED`` claims. Requests are retried: the server repeats its first answer.
        """
        return self._end_many(queue, "resolve", "result", results)

    def fail_many(self, queue: str, errors: Mapping["HttpClaim", object]) -> list["HttpClaim"]:
        """End claims of one queue without success, each with its error; return the claims that were lost.

        Requests are split and retried as by :meth:`resolve_many`.
        """
        return self._end_many(queue, "fail", "error", {claim: _error_text(error) for claim, error in errors.items()})

    def task(self, pk: int) -> Answer:
        """Return one task, with its runs."""
        return self._call("GET", f"tasks/{pk}")

    def tasks(self, **filters: object) -> Iterator[Answer]:
        """Yield all tasks that match (``queue``, ``status``, ``metadata`` and so on), page by page."""
        if "metadata" in filters:
            filters["metadata"] = json.dumps(filters["metadata"])
        return self._pages("tasks", "tasks", filters)

    def explain(self, pk: int) -> list[Answer]:
        """Return the reasons why a task is not moving, the most decisive first."""
        return list(self._call("GET", f"tasks/{pk}/explain")["reasons"])

    def cancel(self, pk: int, *, running: bool = False, reason: str = "") -> Answer:
        """Cancel a task that waits, and with ``running`` also one that a worker holds."""
        return self._call("POST", f"tasks/{pk}/cancel{_canceling(running, reason)}", {}, again=True)

    def change(self, pk: int, **options: object) -> Answer:
        """Change options of a task that has not ended; options that are not given stay."""
        return self._call("POST", f"tasks/{pk}/change", options, again=True)

    def requeue(self, pk: int, *, start_over: bool = False) -> Answer:
        """Requeue a dead letter; with ``start_over`` its recorded steps run again."""
        return self._call("POST", f"tasks/{pk}/requeue{_OVER * start_over}", {})

    def queues(self) -> Iterator[Answer]:
        """Yield the queues that this token may use."""
        return self._pages("queues", "queues", {})

    def queue(self, name: str) -> Answer:
        """Return one queue and its configuration."""
        return self._call("GET", f"queues/{_quote(name)}")

    def create_queue(self, name: str, **settings: object) -> Answer:
        """Create a queue."""
        return self._call("POST", "queues", {"name": name, **settings})

    def configure_queue(self, name: str, **settings: object) -> Answer:
        """Change settings of a queue; settings that are not given stay."""
        return self._call("PATCH", f"queues/{_quote(name)}", settings, again=True)

    def delete_queue(self, name: str, *, tasks: bool = False) -> Answer:
        """Delete a queue without tasks; with ``tasks`` also up to 10,000 tasks."""
        return self._call("DELETE", f"queues/{_quote(name)}{'?tasks=true' if tasks else ''}")

    def pause(
        self, name: str, *, publish: bool = False, claim: bool = False, reason: str = "", until: str | None = None
    ) -> Answer:
        """Set whether publishing and claiming are paused, why, and until when (ISO 8601; None: until it is resumed)."""
        body = {"publish": publish, "claim": claim, "reason": reason, "until": until}
        return self._call("PUT", f"queues/{_quote(name)}/pause", body, again=True)

    def resume(self, name: str) -> Answer:
        """End all pauses of a queue."""
        return self.pause(name)

    def schedules(self, **filters: object) -> Iterator[Answer]:
        """Yield the schedules that match (``queue``, ``name``, ``entity``), page by page."""
        return self._pages("schedules", "schedules", filters)

    def schedule(self, pk: int) -> Answer:
        """Return one schedule."""
        return self._call("GET", f"schedules/{pk}")

    def create_schedule(self, name: str, *, queue: str, action: str, **options: object) -> Answer:
        """Create a schedule, with ``period`` or ``cron`` among its options."""
        return self._call("POST", "schedules", {"name": name, "queue": queue, "action": action, **options})

    def change_schedule(self, pk: int, **options: object) -> Answer:
        """Change options of a schedule; options that are not given stay. ``enabled=False`` pauses it."""
        return self._call("PATCH", f"schedules/{pk}", options, again=True)

    def run_schedule(self, pk: int) -> Answer:
        """Fire one extra tick of a schedule now."""
        return self._call("POST", f"schedules/{pk}/run", {})

    def delete_schedule(self, pk: int) -> Answer:
        """Delete a schedule."""
        return self._call("DELETE", f"schedules/{pk}")

    def managed_objects(self, label: str, **filters: object) -> Iterator[Answer]:
        """Yield the managed objects of a model that match (``state``), page by page."""
        return self._pages(f"objects/{_quote(label)}", "objects", filters)

    def managed_object(self, label: str, pk: object) -> Answer:
        """Return one managed object with the reasons why it does not move, the events it takes, and its history."""
        return self._call("GET", f"objects/{_quote(label)}/{_quote(str(pk))}")

    def send(self, label: str, pk: object, event: str, payload: object = None, *, key: str = "") -> Answer:
        """Send an event to a managed object and return ``outcome``, ``missing``, ``note`` and ``object``.

        The call is retried only with a ``key``, which the object takes once from this consumer.
        """
        path = f"objects/{_quote(label)}/{_quote(str(pk))}/events/{_quote(event)}"
        return self._call("POST", path, {"payload": payload, "key": key}, again=bool(key))

    def _end_many(self, queue: str, how: str, name: str, values: Mapping["HttpClaim", object]) -> list["HttpClaim"]:
        """End claims in parts, each with its value under this name; return the claims that were lost."""
        lost, claims = [], list(values)
        for start in range(0, len(claims), MAX_ENDED):
            part = claims[start : start + MAX_ENDED]
            ends = [{"task": claim.task["id"], "token": claim._token, name: values[claim]} for claim in part]
            until = min(claim._until for claim in part)
            path = f"queues/{_quote(queue)}/claims/{how}"
            answer = self._call("POST", path, {"claims": ends}, again=True, until=until)
            for claim, end in zip(part, answer["results"], strict=True):
                claim._note_end(lost=end["outcome"] == "lease_lost")
            lost += [claim for claim in part if claim.lost]
        return lost

    def _pages(self, path: str, what: str, filters: dict[str, object]) -> Iterator[Answer]:
        while True:
            given = {name: value for name, value in filters.items() if value is not None}
            page = self._call("GET", f"{path}?{urllib.parse.urlencode(given, doseq=True)}")
            yield from page[what]
            if page["next"] is None:
                return
            filters = {**filters, "after": page["next"]}

    def _call(self, method: str, path: str, body: object = None, **options: Any) -> Any:
        """Return the answer; ``options`` are passed to :meth:`_answered`."""
        return self._answered(method, path, body, **options)[0]

    def _answered(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        again: bool | None = None,
        timeout: float | None = None,
        until: float = 0.0,
        sleep: Callable[[float], None] | None = None,
    ) -> tuple[Any, float]:
        """Return the answer, and the monotonic time when the answered try was sent.

        ``again``: whether the call may be carried out twice; by default only a GET may. It is retried ``retries``
        times, and beyond that until the monotonic time ``until``.
        """
        again = method == "GET" if again is None else again
        for tried in itertools.count():
            sent = time.monotonic()
            pause = min(MAX_PAUSE, 0.2 * 2 ** min(tried, 10)) * random.uniform(0.5, 1.0)
            try:
                return self._once(method, path, body, timeout or self.timeout), sent
            except _Limited as limited:
                if self._is_last(tried, until):
                    raise
                pause = max(pause, min(MAX_PAUSE, limited.seconds))
            except (Unreachable, _Unavailable):
                if not again or self._is_last(tried, until):
                    raise
            (sleep or time.sleep)(pause)
        raise AssertionError("the last try returns or raises")

    def _is_last(self, tried: int, until: float) -> bool:
        return tried >= self.retries and time.monotonic() >= until

    def _once(self, method: str, path: str, body: object, timeout: float) -> object:
        request = urllib.request.Request(self.base_url + path, method=method)
        request.add_header("Authorization", f"Bearer {self._token}")
        request.add_header("Accept", "application/json")
        if body is not None:
            request.data = json.dumps(body, allow_nan=False).encode()
            request.add_header("Content-Type", "application/json")
        try:
            with self._opener.open(request, timeout=timeout) as response:
                return json.load(response)
        except urllib.error.HTTPError as error:
            with error:
                raise _error_of(error) from None
        except ValueError as error:
            raise ApiError(
                200, "http", "the answer is not JSON; check that base_url is the address of the API"
            ) from error
        except (OSError, http.client.HTTPException) as error:
            raise Unreachable(f"{method} {path.partition('?')[0]}: {type(error).__name__}: {error}") from error


class HttpClaim(LoopClaim):
    """A task that this program holds, until it ends the claim or the lease runs out.

    ``wanted``: the lease that was asked for. ``since``: the monotonic time when it began.
    """

    def __init__(self, client: Client, answer: Answer, wanted: float | None, since: float) -> None:
        super().__init__(since)
        self.task: Answer = answer["task"]
        self.attempt: int = answer["attempt"]
        self.lease = answer["lease"]
        self._follow(self.task)
        # How far the work is, and what of that was sent.
        self._reached: dict[str, object] | None = None
        self._sent: dict[str, object] | None = None
        # The results of the recorded steps, once they were asked for, and the names that were used in this claim.
        self._steps: Answer | None = None
        self._used: set[str] = set()
        self._client, self._token, self._wanted = client, answer["token"], wanted

    def __repr__(self) -> str:
        return f"<HttpClaim of task {self.task['id']}, attempt {self.attempt}>"

    def verify(self) -> None:
        """Raise ``LeaseLost`` unless the claim is still held. Call it right before an action that cannot be undone."""
        self._hold("verify")

    def heartbeat(self, lease: float | None = None) -> None:
        """Hold the task for ``lease`` seconds from now; by default the lease that was asked for last."""
        if lease is not None:
            self._wanted = lease
        reached = self._reached
        self._hold("heartbeat", lease=self._wanted, progress=None if reached is self._sent else reached)
        self._sent = reached

    def progress(self, done: float, total: float | None = None, text: str = "") -> None:
        """Say how far the work is; the next heartbeat sends it, so call this as often as you like."""
        self._reached = {"done": done, "total": total, "text": str(text)[:MAX_TEXT]}

    def step(self, name: str, function: Callable[[], object]) -> Any:
        """Call ``function`` and record what it returns; return the record, without a call, if a claim has done so.

        The record is JSON, and is written only while the claim is held. Each name can be used once in a claim; if the
        call raises, nothing is recorded and the name is free again.
        """
        if name in self._used:
            raise ValueError(f"step {name!r} is used twice in one claim; give each step a name of its own")
        path = f"tasks/{self.task['id']}/claim/steps"
        if self._steps is None:
            recorded = self._client._call("GET", path)["steps"]
            self._steps = {step["name"]: step["result"] for step in recorded}
        if name not in self._steps:
            result = function()
            # The same record may be sent again.
            answer, _ = self._call(f"steps/{_quote(name)}", self._until, {"result": result}, method="PUT")
            self._steps[name] = answer["result"]
        self._used.add(name)
        return self._steps[name]

    def note_error(self) -> None:
        """Send a heartbeat that counts an unexpected error; ``unexpected_errors`` is then this worker's total."""
        counted = self.unexpected_errors + 1
        self._hold("heartbeat", lease=self._wanted, unexpected=True)
        self.unexpected_errors = max(self.unexpected_errors, counted)

    def resolve(self, result: object = None) -> None:
        """Complete the task. Like every end of a claim, this is retried while the lease lasts."""
        self._end("resolve", result=result)

    def release(self, reason: str = "") -> None:
        """Return the task for another worker."""
        self._end("release", reason=_sendable(reason[:MAX_TOLD]))

    def fail(self, error: BaseException | str) -> None:
        """End the attempt as failed, with the error; an exception is sent with its traceback."""
        self._end("fail", error=_error_text(error))

    def cancel(self, reason: str = "") -> None:
        """Cancel the task: it need not be done at all."""
        self._end("cancel", reason=_sendable(reason[:MAX_TOLD]))

    def hand_back(self) -> None:
        """Return a task that was not begun, as if it had never been claimed: no attempt counts, and no rejection."""
        self._end("release", begun=False)

    @contextmanager
    def heartbeating(self, every: float | None = None) -> Iterator["HttpClaim"]:
        """Send heartbeats from a thread, by default at the task's interval. ``lost`` becomes true with the claim."""
        ended = threading.Event()
        thread = threading.Thread(target=self._beat, args=(ended, every), name=f"heartbeat of {self}", daemon=True)
        thread.start()
        try:
            yield self
        finally:
            ended.set()
            thread.join()

    def _beat(self, ended: threading.Event, every: float | None) -> None:
        while not ended.wait(every or self._beat_after):
            try:
                self.heartbeat()
            except LeaseLost:
                return
            except ApiError:
                # A later heartbeat may succeed. If none does, the lease runs out and ``lost`` becomes true.
                continue

    def _hold(self, verb: str, **values: object) -> None:
        answer, sent = self._call(verb, 0.0, values)
        self.lease, self._since = float(answer["lease"]), sent
        self._follow(answer)
        self.unexpected_errors = max(self.unexpected_errors, answer["unexpected_errors"])

    def _follow(self, task: Answer) -> None:
        self.heartbeat_interval = task["heartbeat_interval"]
        self.max_unexpected_retries = task["max_unexpected_retries"]

    def _end(self, verb: str, **values: object) -> None:
        # The server answers a repeated end like the first one, so it may be sent again.
        self._call(verb, self._until, values)
        self._note_end(lost=False)

    def _note_end(self, *, lost: bool) -> None:
        self._is_lost, self.ended = lost, not lost

    def _call(self, verb: str, until: float, values: dict[str, object], method: str = "POST") -> tuple[Any, float]:
        body = {"token": self._token, **{name: value for name, value in values.items() if value is not None}}
        path = f"tasks/{self.task['id']}/claim/{verb}"
        try:
            return self._client._answered(method, path, body, again=True, until=until)
        except LeaseLost:
            self._is_lost = True
            raise


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *args: object, **kwargs: object) -> None:
        return None


class _Unavailable(ApiError):
    """The server or its database failed: nobody knows whether the call was carried out."""


class _Limited(ApiError):
    """The server lets no more requests through for now; nothing was done. Try again after ``seconds``."""

    seconds = 1.0


class _Loop(ConsumerLoop[HttpClaim]):
    # Called with the function that sleeps between two tries.
    claim: Callable[[Callable[[float], None]], list["HttpClaim"]]
    lost_errors = (LeaseLost,)
    passing_errors = (Unreachable, _Unavailable, _Limited)

    def take(self) -> list["HttpClaim"]:
        """Claim tasks; wait for some."""
        return self.claim(self.pause)


def _error_of(response: urllib.error.HTTPError) -> Exception:
    try:
        body = json.load(response)
        code, detail = str(body["error"]), str(body["detail"])
    except (ValueError, TypeError, KeyError, OSError, http.client.HTTPException):
        # The answer of a proxy between server and client has a format of its own.
        code, detail = "http", f"HTTP {response.code} {response.reason}"
    if code == "lease_lost":
        return LeaseLost(response.code, code, detail)
    if code in ("rate_limited", "busy"):
        limited, after = _Limited(response.code, code, detail), response.headers.get("Retry-After", "")
        limited.seconds = float(after) if after.isdecimal() else limited.seconds
        return limited
    if response.code in (500, 502, 503, 504):
        return _Unavailable(response.code, code, detail)
    return ApiError(response.code, code, detail)


def _canceling(running: bool, reason: str) -> str:
    wanted = {"running": "true"} if running else {}
    query = urllib.parse.urlencode(wanted | ({"reason": reason} if reason else {}))
    return f"?{query}" if query else ""


def _may_repeat(tasks: Iterable[Mapping[str, object]], options: Mapping[str, object]) -> bool:
    # A new batch would be made twice, too.
    named = [*tasks, batch] if isinstance(batch := options.get("batch"), dict) else tasks
    clears = options.get("clear_failed") or options.get("clear_succeeded")
    return not clears and all(each.get("key") is not None for each in named)


def _error_text(error: object) -> str:
    """Return an error as a text that the server takes: an exception with its traceback, never empty, the end of it."""
    text = "".join(traceback.format_exception(error)) if isinstance(error, BaseException) else str(error)
    return _sendable(text[-MAX_TOLD:]) or "an error without a text"


def _sendable(text: str) -> str:
    """Return a text without the characters that no database stores: NUL, and halves of surrogate pairs."""
    return text.encode("utf-8", "replace").decode().replace("\0", "\N{REPLACEMENT CHARACTER}")


def _quote(name: str) -> str:
    return urllib.parse.quote(name, safe="")
