"""The process of an isolated action, as its worker sees it."""

from typing import Any

from django.db import connections

from stator.capabilities import capabilities_of
from stator.exceptions import NotBegun, TryAgainLater
from stator.extensions.isolation.messages import NotStarted, ProcessFailed
from stator.extensions.isolation.process import IsolatedProcess
from stator.extensions.isolation.surroundings import surroundings
from stator.graph.tracebacks import RemoteTraceback
from stator.texts import Json, JsonObject
from tasks.failures import Cancel, IsolationError, Release, remote

# Seconds until a process that could not be started is tried again.
START_AGAIN = 10.0


def process_for_action(limit: int) -> IsolatedProcess:
    """Return a process for one call of an action; ``limit``: the most bytes of its answer."""
    return IsolatedProcess("tasks.extensions.isolation.isolated", limit=limit, keeps_errors=True)


def answer_of(process: IsolatedProcess, request: JsonObject) -> JsonObject:
    """Start the process and return its answer; raise :class:`~tasks.failures.IsolationError` if there is none."""
    _refuse_memory(request.get("using"))
    try:
        process.start(surroundings())
        return process.ask(request)
    except NotStarted as error:
        return {"not_begun": START_AGAIN, "reason": f"the attempt did not begin: {error}"}
    except ProcessFailed as error:
        raise IsolationError(str(error)) from None
    finally:
        process.end()


def value_of(answer: JsonObject) -> Json:
    """Return the value of the action, or raise what it raised in its process."""
    if "value" in answer:
        return answer["value"]
    if "not_begun" in answer:
        raise NotBegun(answer["not_begun"], answer["reason"])
    if "outcome" in answer:
        raise {end.outcome: end for end in (Release, Cancel)}[answer["outcome"]](answer["reason"])
    if "after" in answer:
        raise TryAgainLater(answer["after"], answer["reason"])
    cause = RemoteTraceback(answer["traceback"], answer["fingerprint"])
    raise remote(answer["module"], answer["name"], answer["message"], cause, is_final=answer["final"])


def _refuse_memory(using: str | None) -> None:
    if using is None:
        return
    connection: Any = connections[using]
    if capabilities_of(connection).may_be_in_memory and connection.is_in_memory_db():
        raise IsolationError(
            f"database {using!r} is in memory, where no other process finds it; name a file, in tests by "
            f"DATABASES[{using!r}]['TEST']['NAME']"
        )
