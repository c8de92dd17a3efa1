"""The process of an isolated action: reads one request, runs the action, writes one answer."""

import asyncio
import json
import os
import signal
import sys
import traceback
from importlib import import_module
from typing import Any
from uuid import UUID

import django
from django.db import connections

from stator.exceptions import Fail, TryAgainLater
from tasks.conf import load_settings
from tasks.registry import Context, find
from tasks.values import storable


def main() -> None:
    """Carry out the request on standard input."""
    request = json.loads(sys.stdin.buffer.readline())
    end_with_worker()
    # Whatever the action prints goes to the error output: the answer stands alone.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    django.setup()
    answer = answer_to(request)
    connections.close_all()
    answers.write(json.dumps(answer).encode() + b"\n")
    answers.flush()


def end_with_worker() -> None:
    """Have the whole group killed once nobody holds the other end of standard input, because the worker is gone.

    By a process of its own: an action may hold the interpreter, so that no thread of this one gets on.
    """
    if os.fork():
        return
    try:
        # The worker waits for the end of these.
        os.close(1)
        os.close(2)
        while os.read(0, 1):
            pass
    finally:
        os.killpg(0, signal.SIGKILL)


def answer_to(request: dict[str, Any]) -> dict[str, Any]:
    """What the action returned, or how it ended."""
    try:
        return {"value": carry_out(request)}
    except TryAgainLater as later:
        return {"after": later.after, "reason": str(later.reason)}
    except BaseException as error:  # noqa: BLE001 - whatever it raises is the answer
        kind = type(error)
        return {
            "module": kind.__module__,
            "name": kind.__qualname__,
            "message": _text(error),
            "traceback": "".join(traceback.format_tb(error.__traceback__)),
            "final": isinstance(error, Fail),
        }


def carry_out(request: dict[str, Any]) -> Any:
    """The value of the action, as JSON has it."""
    # By name: they need Django to be set up.
    claims, models = import_module("stator.claims"), import_module("tasks.models")
    claim = claims.find(models.Task, request["task"], UUID(request["token"]), using=request["using"])
    found = find(request["action"], request["queue"], claim.instance.data)
    context = Context(claim.instance, claim)
    value = asyncio.run(found.acall(context)) if found.is_async else found.call(context)
    return storable(found.result_of(value), "the result", load_settings())


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except BaseException as broken:  # noqa: BLE001 - the error must be told whatever its __str__ does
        return f"<{type(error).__name__}.__str__ raised {type(broken).__name__}>"


if __name__ == "__main__":
    main()
