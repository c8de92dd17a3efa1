"""The process of an isolated action: it reads one request, runs the action and writes one answer."""

import asyncio
import json
import os
import signal
import sys
from importlib import import_module
from typing import Any
from uuid import UUID

import django
from django.db import DatabaseError, InterfaceError, connections

from stator.exceptions import NotBegun, TryAgainLater
from stator.graph.failures import describe, text_of
from stator.worker.supervisor import end_with, handlers_for_children
from tasks.actions.isolation import START_AGAIN
from tasks.actions.isolation.surroundings import take_over, take_over_settings
from tasks.actions.registry import Context, find
from tasks.actions.values import storable
from tasks.conf import load_settings
from tasks.failures import Cancel, Release


def main() -> None:
    """Carry out the request on standard input."""
    # A signal to the whole service, as systemd sends it, is meant for the worker, which waits for the action or kills
    # it. The handler does nothing; ignoring the signal instead would be inherited by the action's child processes.
    for number in handlers_for_children((signal.SIGINT, signal.SIGTERM)):
        signal.signal(number, lambda *_: None)
    request = json.loads(sys.stdin.buffer.readline())
    # The worker keeps the other end of standard input open as long as it lives.
    end_with(0)
    # Output of the action goes to the error output, so that standard output has only the answer.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    take_over(request)
    answers.write(json.dumps(attempt(request)).encode() + b"\n")
    answers.flush()


def attempt(request: dict[str, Any]) -> dict[str, Any]:
    """Set Django up, run the action and return the answer."""
    try:
        django.setup()
    except (DatabaseError, InterfaceError) as error:
        # Some app asks its database when it is loaded.
        why = describe(error).message.partition("\n")[0]
        return {"not_begun": START_AGAIN, "reason": f"the attempt did not begin: Django could not be set up: {why}"}
    take_over_settings(request)
    with import_module("stator.db.files").watched_files():
        answer = answer_to(request)
    connections.close_all()
    return answer


def answer_to(request: dict[str, Any]) -> dict[str, Any]:
    """Return the action's value as an answer, or how the action ended."""
    try:
        return {"value": carry_out(request)}
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


def carry_out(request: dict[str, Any]) -> Any:
    """Run the action and return its value as JSON."""
    # Imported by name: these modules need Django to be set up.
    claims, models = import_module("stator.claims"), import_module("tasks.models")
    if path := import_module("stator.db.files").missing_file(connections[request["using"]]):
        raise NotBegun(START_AGAIN, f"the attempt did not begin: database file {path} does not exist")
    with claims.preparing():
        claim = claims.find(models.Task, request["task"], UUID(request["token"]), using=request["using"])
    found = find(request["action"], request["queue"], claim.instance.data)
    context = Context(claim.instance, claim)
    value = asyncio.run(found.acall(context)) if found.is_async else found.call(context)
    return storable(found.result_of(value), "the result", load_settings())


if __name__ == "__main__":
    main()
