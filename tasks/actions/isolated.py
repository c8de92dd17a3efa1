"""``python -m tasks.actions.isolated``: reads one request, runs its action and writes one answer."""

import asyncio
import json
import sys
from importlib import import_module
from typing import Any, TextIO
from uuid import UUID

from django.db import connections

from stator.exceptions import NotBegun, TryAgainLater
from stator.graph.failures import describe, text_of
from stator.worker.isolated.child import serve_worker
from tasks.actions.isolation import START_AGAIN
from tasks.actions.registry import Context, find
from tasks.actions.values import storable
from tasks.conf import load_settings
from tasks.failures import Cancel, Release


def serve(answers: TextIO, options: dict[str, Any]) -> None:
    """Run the action that the request on standard input names, and answer."""
    answers.write(json.dumps({"ready": True}) + "\n")
    request = json.loads(sys.stdin.buffer.readline())
    answers.write(json.dumps(answer_to(request)) + "\n")


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
    serve_worker(serve)
