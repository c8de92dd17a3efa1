"""``python -m tasks.extensions.isolation.isolated``: reads one request, runs its action and writes one answer."""

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from types import SimpleNamespace
from typing import TYPE_CHECKING, BinaryIO, TextIO
from uuid import UUID

from django.db import connections

from stator.exceptions import NotBegun, TryAgainLater
from stator.extensions.isolation.child import serve_worker
from stator.extensions.isolation.messages import SAY_EVERY
from stator.extensions.isolation.surroundings import Surroundings
from stator.extensions.reports.attempt_log import LOG, keep_logs
from stator.graph.failures import describe, text_of
from stator.graph.running import RUNNING
from stator.texts import Json, JsonObject
from tasks.actions.registry import Context, find
from tasks.actions.values import storable
from tasks.conf import load_settings
from tasks.extensions.isolation.calls import START_AGAIN
from tasks.failures import Cancel, Release

if TYPE_CHECKING:
    from stator.querysets import HeldClaim

Say = Callable[[JsonObject], None]


def serve(requests: BinaryIO, answers: TextIO, options: dict[str, object]) -> None:
    """Run the action that the request names, and answer."""
    answers.write(json.dumps({"ready": True}) + "\n")
    request = json.loads(requests.readline())

    def say(said: JsonObject) -> None:
        answers.write(json.dumps(said) + "\n")

    say(answer_to(request, say))


def answer_to(request: JsonObject, say: Say) -> JsonObject:
    """Return the action's value as an answer, or how the action ended, with what it logged."""
    running = SimpleNamespace(kept={}, finished=0.0)
    keep_logs()
    RUNNING.set([running])
    answer = _answer_to(request, say)
    log = LOG.of(running)
    return answer | {"log": log.text} if log else answer


def _answer_to(request: JsonObject, say: Say) -> JsonObject:
    try:
        # Before the claim is looked up too: another schema has other rows.
        with Surroundings.of(request).entered():
            return {"value": carry_out(request, say)}
    except NotBegun as error:
        return {"not_begun": error.after, "reason": error.reason}
    except (Release, Cancel) as end:
        return {"outcome": end.outcome, "reason": text_of(end.reason)}
    except TryAgainLater as later:
        return {"after": later.after, "reason": str(later.reason)}
    except BaseException as error:  # noqa: BLE001 - whatever it raises is the answer
        kind, failure = type(error), describe(error)
        return {
            "module": kind.__module__,
            "name": kind.__qualname__,
            "message": failure.message,
            "traceback": failure.traceback,
            "fingerprint": failure.fingerprint,
            "final": failure.deliberate,
        }


def carry_out(request: JsonObject, say: Say) -> Json:
    """Run the action and return its value as JSON; ``say`` tells the worker how far it is."""
    # Imported by name: these modules need Django to be set up.
    claims, models, begun = map(import_module, ("stator.claims", "tasks.models", "tasks.queue.begun"))
    if path := import_module("stator.db.files").missing_file(connections[request["using"]]):
        raise NotBegun(START_AGAIN, f"the attempt did not begin: database file {path} does not exist")
    with claims.preparing():
        claim = claims.find(models.Task, request["task"], UUID(request["token"]), using=request["using"])
    action = find(request["action"], request["queue"], claim.instance.data)
    context = Context(claim.instance, claim, request["worker"])
    if request["mark"]:
        with claims.preparing():
            begun.mark(claim.instance, claim.token)
    with _saying(claim, say):
        value = asyncio.run(action.acall(context)) if action.is_async else action.call(context)
    return None if value is None else json.loads(storable(action.result_of(value), load_settings()))


@contextmanager
def _saying(claim: "HeldClaim", say: Say) -> Iterator[None]:
    """Tell the worker what the attempt says of itself, from a thread: the action may hold this one."""
    # Imported by name, as above.
    over, news = threading.Event(), import_module("stator.rows.news")

    def work() -> None:
        while not over.wait(SAY_EVERY):
            news.send_news(claim, say)

    thread = threading.Thread(target=work, name="tasks-progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


if __name__ == "__main__":
    serve_worker(serve)
