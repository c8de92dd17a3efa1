"""Errors that asyncio, threads and generators treat in a special way, from the code of actions."""

import asyncio
from typing import Any

import pytest

from stator.testing import drain
from tasks.actions.registry import Action, registry
from tasks.models import Task
from tests.stator.running import work
from tests.tasks.actions.making import make, report

pytestmark = pytest.mark.django_db(transaction=True)

ERRORS = [StopIteration, StopAsyncIteration, GeneratorExit, asyncio.CancelledError, KeyboardInterrupt, SystemExit]
RUNS = {"worker": lambda: work(Task, run_for=20), "drain": lambda: drain(Task)}


def options_of(place: str, fail: Any) -> dict[str, Any]:
    async def acall() -> None:
        fail()

    def refuse() -> None:
        raise ValueError("odd")

    return {
        "action": {"function": fail},
        "async action": {"function": acall},
        "key": {"function": len, "rate": "100/s", "key": fail},
        "backoff": {"function": refuse, "backoff": fail},
    }[place]


@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("place", ["action", "async action", "key", "backoff"])
@pytest.mark.parametrize("run", RUNS)
def test_it_fails_the_attempt_alone(monkeypatch: pytest.MonkeyPatch, run: str, place: str, error: Any) -> None:
    def fail(*args: Any) -> None:
        raise error("odd")

    action = Action(name="odd", **{"backoff": 600.0, **options_of(place, fail)})
    monkeypatch.setitem(registry, "odd", {"": action})
    odd, other = make("odd"), make("echo")
    RUNS[run]()
    odd.refresh_from_db()
    other.refresh_from_db()
    assert (other.state, odd.state, odd.state_claim) == ("completed", "pending", None)
    assert (odd.state_attempts, odd.state_failures) == (1, 1)
    assert "odd" in report(odd).traceback


@pytest.mark.parametrize("error", ERRORS)
def test_last_attempt_ends_with_the_error_itself(monkeypatch: pytest.MonkeyPatch, error: Any) -> None:
    async def fail() -> None:
        raise error("odd")

    monkeypatch.setitem(registry, "odd", {"": Action(name="odd", function=fail, max_attempts=1)})
    odd = make("odd")
    drain(Task)
    odd.refresh_from_db()
    assert (odd.state, odd.state_attempts) == ("errored", 0)
    assert "odd" in report(odd).traceback


@pytest.mark.parametrize("error", ERRORS)
def test_notice_that_fails_is_sent_again(monkeypatch: pytest.MonkeyPatch, error: Any) -> None:
    def fail(letter: Any) -> None:
        raise error("odd")

    monkeypatch.setattr("tasks.dead_letters.mail_administrators", fail)
    monkeypatch.setitem(registry, "odd", {"": Action(name="odd", function=len, max_attempts=1)})
    odd = make("odd")
    work(Task, run_for=20)
    odd.refresh_from_db()
    assert odd.state == "errored"
    assert odd.notice_due is not None
