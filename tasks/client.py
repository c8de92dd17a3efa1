"""A client of the HTTP API in one file, which needs Python's standard library alone and can be copied anywhere.

::

    client = Client("https://example.com/api/", token)
    client.publish("encode", "resize", {"image": 7}, key="resize-7")
    for claim in client.claim("encode", worker="bot-1", limit=10, wait=20):
        with claim.heartbeating():
            result = work(claim.task["data"])
        claim.resolve(result)

Whatever the server refuses is an :class:`ApiError`. Where a connection breaks or the server is not there, calls that
may be made twice are made again, with pauses; the others raise :class:`Unreachable` at once, for nobody knows whether
they were carried out: to publish without a key, or what has ended once more, to claim, to end a claim.
"""

import http.client
import json
import random
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

LONGEST_PAUSE = 10.0
# Claims that one request ends.
MOST_ENDED = 1000


class ApiError(Exception):
    """The server refused: ``code`` is for programs, the text for people, ``status`` is that of HTTP."""

    def __init__(self, status: int, code: str, detail: str) -> None:
        super().__init__(f"{detail} ({code})")
        self.status, self.code, self.detail = status, code, detail


class LeaseLost(ApiError):
    """The claim has ended, or its lease ran out. Nothing was changed; stop working on the task."""


class Unreachable(ApiError):
    """No answer came, so that nobody knows whether the call was carried out."""

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
        # The token must not follow a redirection to somebody else.
        self._opener = urllib.request.build_opener(_NoRedirects)

    def __repr__(self) -> str:
        return f"<Client of {self.base_url}>"

    def health(self) -> Any:
        """Whether the server and its database answer."""
        return self._call("GET", "health")

    def publish(self, queue: str, action: str, data: Any = None, **options: Any) -> Any:
        """Publish a task: ``{"task": ..., "outcome": ...}``.

        Only with a ``key`` is it tried again, and not with ``clear_failed`` or ``clear_succeeded``: the first try may
        have had the task run, and end, meanwhile.
        """
        body = {"action": action, "data": data, **options}
        again = options.get("key") is not None and not (options.get("clear_failed") or options.get("clear_succeeded"))
        return self._call("POST", f"queues/{_quote(queue)}/tasks", body, again=again)

    def publish_many(self, queue: str, tasks: list[dict[str, Any]]) -> list[Any]:
        """Publish tasks, each a dictionary of what :meth:`publish` takes; one result for each, in order."""
        again = all(task.get("key") is not None for task in tasks)
        path = f"queues/{_quote(queue)}/tasks/bulk"
        return list(self._call("POST", path, {"tasks": tasks}, again=again)["results"])

    def claim(self, queue: str, *, worker: str, wait: float = 0.0, **options: Any) -> list["Claim"]:
        """Claim up to ``limit`` tasks (one by default), waiting up to ``wait`` seconds for the first."""
        body = {"worker": worker, "wait": wait, **options}
        answer = self._call("POST", f"queues/{_quote(queue)}/claims", body, timeout=self.timeout + wait)
        return [Claim(self, found, options.get("lease")) for found in answer["claims"]]

    def resolve_many(self, queue: str, results: dict["Claim", Any]) -> list["Claim"]:
        """End claims of a queue, each with its result; return those that were held no more.

        By hundreds in one request, and tried again: asked once more, the server answers as it did.
        """
        lost, claims = [], list(results)
        for start in range(0, len(claims), MOST_ENDED):
            part = claims[start : start + MOST_ENDED]
            ends = [{"task": claim.task["id"], "token": claim._token, "result": results[claim]} for claim in part]
            answer = self._call("POST", f"queues/{_quote(queue)}/claims/resolve", {"claims": ends}, again=True)
            lost += [claim for claim, end in zip(part, answer["results"], strict=True) if end["outcome"] != "completed"]
        for claim in lost:
            claim.lost = True
        return lost

    def task(self, pk: int) -> Any:
        """One task, with its runs."""
        return self._call("GET", f"tasks/{pk}")

    def tasks(self, **filters: Any) -> Iterator[Any]:
        """All tasks that match (``queue``, ``status``, ``metadata`` and so on), one page after the other."""
        if "metadata" in filters:
            filters["metadata"] = json.dumps(filters["metadata"])
        return self._pages("tasks", "tasks", filters)

    def cancel(self, pk: int) -> Any:
        """Cancel a task that nobody runs."""
        return self._call("POST", f"tasks/{pk}/cancel", {}, again=True)

    def requeue(self, pk: int) -> Any:
        """Have a task that is a dead letter run again."""
        return self._call("POST", f"tasks/{pk}/requeue", {})

    def queues(self) -> Iterator[Any]:
        """The queues that this token is for."""
        return self._pages("queues", "queues", {})

    def queue(self, name: str) -> Any:
        """One queue and how it is configured."""
        return self._call("GET", f"queues/{_quote(name)}")

    def create_queue(self, name: str, **settings: Any) -> Any:
        """Make a queue."""
        return self._call("POST", "queues", {"name": name, **settings})

    def configure_queue(self, name: str, **settings: Any) -> Any:
        """Change settings of a queue; those not given stay."""
        return self._call("PATCH", f"queues/{_quote(name)}", settings, again=True)

    def pause(
        self, name: str, *, publish: bool = False, claim: bool = False, reason: str = "", until: str | None = None
    ) -> Any:
        """Say what of a queue is paused, why, and until when (ISO 8601, or until it is resumed)."""
        body = {"publish": publish, "claim": claim, "reason": reason, "until": until}
        return self._call("PUT", f"queues/{_quote(name)}/pause", body, again=True)

    def resume(self, name: str) -> Any:
        """End all pauses of a queue."""
        return self.pause(name)

    def _pages(self, path: str, what: str, filters: dict[str, Any]) -> Iterator[Any]:
        while True:
            given = {name: value for name, value in filters.items() if value is not None}
            page = self._call("GET", f"{path}?{urllib.parse.urlencode(given, doseq=True)}")
            yield from page[what]
            if page["next"] is None:
                return
            filters = {**filters, "after": page["next"]}

    def _call(
        self, method: str, path: str, body: Any = None, *, again: bool | None = None, timeout: float | None = None
    ) -> Any:
        """The answer. ``again``: whether it may be carried out twice; by default reading may."""
        again = method == "GET" if again is None else again
        for tried in range(self.retries + 1):
            pause = min(LONGEST_PAUSE, 0.2 * 2**tried) * random.uniform(0.5, 1.0)
            try:
                return self._once(method, path, body, timeout or self.timeout)
            except _Later as later:
                if tried == self.retries:
                    raise later.error from None
                pause = max(pause, min(LONGEST_PAUSE, later.seconds))
            except (Unreachable, _Unavailable):
                if tried == self.retries or not again:
                    raise
            time.sleep(pause)
        raise AssertionError("the last try returns or raises")

    def _once(self, method: str, path: str, body: Any, timeout: float) -> Any:
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
            raise ApiError(200, "http", "the answer is no JSON; does base_url lead to the API?") from error
        except (OSError, http.client.HTTPException) as error:
            raise Unreachable(f"{method} {path.partition('?')[0]}: {type(error).__name__}: {error}") from error


class Claim:
    """A task that this program holds, until it ends the claim or the lease runs out."""

    def __init__(self, client: Client, answer: dict[str, Any], wanted: float | None = None) -> None:
        self.task: dict[str, Any] = answer["task"]
        self.attempt: int = answer["attempt"]
        self.lease: float = answer["lease"]
        self.lost = False
        self._client, self._token, self._wanted = client, answer["token"], wanted

    def __repr__(self) -> str:
        return f"<Claim of task {self.task['id']}, attempt {self.attempt}>"

    def verify(self) -> None:
        """Ask whether it is still held; ``LeaseLost`` if not. Do so right before what cannot be undone."""
        self._call("verify", again=True)

    def heartbeat(self, lease: float | None = None) -> None:
        """Hold it for ``lease`` seconds from now; by default as long as was asked for when it was claimed."""
        self.lease = self._call("heartbeat", again=True, lease=self._wanted if lease is None else lease)["lease"]

    def resolve(self, result: Any = None) -> None:
        """Done."""
        self._call("resolve", result=result)

    def release(self, reason: str = "") -> None:
        """Hand it back, for another worker."""
        self._call("release", reason=reason)

    def fail(self, error: str) -> None:
        """Say that the attempt failed, and why."""
        self._call("fail", error=error)

    def cancel(self, reason: str = "") -> None:
        """Say that it need not be done at all."""
        self._call("cancel", reason=reason)

    @contextmanager
    def heartbeating(self, every: float | None = None) -> Iterator["Claim"]:
        """Heartbeats from a thread, by default three in each lease. ``lost`` turns true when the claim is."""
        ended = threading.Event()
        thread = threading.Thread(target=self._beat, args=(ended, every), name=f"heartbeat of {self}", daemon=True)
        thread.start()
        try:
            yield self
        finally:
            ended.set()
            thread.join()

    def _beat(self, ended: threading.Event, every: float | None) -> None:
        while not ended.wait(every or self.lease / 3):
            try:
                self.heartbeat()
            except LeaseLost:
                return
            except ApiError:
                # The next heartbeat may get through; if none does, the lease runs out and that is told.
                continue

    def _call(self, verb: str, *, again: bool = False, **values: Any) -> Any:
        body = {"token": self._token, **{name: value for name, value in values.items() if value is not None}}
        try:
            return self._client._call("POST", f"tasks/{self.task['id']}/claim/{verb}", body, again=again)
        except LeaseLost:
            self.lost = True
            raise


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *args: Any, **kwargs: Any) -> None:
        return None


class _Unavailable(ApiError):
    """The server answers, but its database does not: as good as no answer."""


class _Later(Exception):
    """Nothing was done; it may be asked again in so many seconds, whatever it was."""

    def __init__(self, error: ApiError, seconds: float) -> None:
        super().__init__(str(error))
        self.error, self.seconds = error, seconds


def _error_of(response: urllib.error.HTTPError) -> Exception:
    try:
        body = json.load(response)
        code, detail = str(body["error"]), str(body["detail"])
    except (ValueError, TypeError, KeyError, OSError, http.client.HTTPException):
        # From something between the server and us, in its own shape.
        code, detail = "http", f"HTTP {response.code} {response.reason}"
    if code == "lease_lost":
        return LeaseLost(response.code, code, detail)
    if code in ("rate_limited", "busy"):
        return _Later(ApiError(response.code, code, detail), _seconds(response.headers.get("Retry-After", "1")))
    if response.code in (502, 503, 504):
        return _Unavailable(response.code, code, detail)
    return ApiError(response.code, code, detail)


def _seconds(text: str) -> float:
    return float(text) if text.isdecimal() else 1.0


def _quote(name: str) -> str:
    return urllib.parse.quote(name, safe="")
