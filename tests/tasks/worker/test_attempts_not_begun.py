"""A failure before the action is called costs its task no attempt."""

from typing import Any
from uuid import uuid4

import pytest

from stator.graph.outcomes import Released
from tasks.actions.registry import Context, RegisteredAction, registry
from tasks.extensions.isolation import attempts as isolated
from tasks.models import ActionSlot, Queue
from tests.statements import failing
from tests.stator.making import change
from tests.tasks.actions.attempting import assert_free_of_attempts, attempt, claimed, publish

pytestmark = pytest.mark.django_db(transaction=True)

# The most statements of an attempt that has a limit, a rate and receivers, before its action is called. Where a
# transaction begins is one on SQLite alone.
MAX_STATEMENTS = 14


class Heard(RegisteredAction):
    """An action whose preparation queries the database, as receivers of Django's signals may do."""

    async def begin(self, context: Context) -> None:
        await Queue.objects.aexists()


@pytest.fixture
def called(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether the action was called."""
    found: list[bool] = []
    action = Heard(name="heard", function=lambda: found.append(True), rate="100/h", concurrency=2, max_attempts=1)
    monkeypatch.setitem(registry, "heard", {"": action})
    return found


def test_none_of_them_costs_an_attempt(monkeypatch: pytest.MonkeyPatch, called: list[bool]) -> None:
    """Each statement before the call fails once; the task has one attempt, which it still has in the end."""
    task = publish()
    for nth in range(MAX_STATEMENTS + 1):
        outcome, sent = attempt(claimed(), failing(monkeypatch, lambda n, nth=nth: n == nth, lambda: not called))
        if called:
            break
        assert_free_of_attempts(task, outcome)
        assert outcome.reason == "the attempt did not begin: the connection was cut"
        change(task, state_ready=True, state_next_attempt=None)
    task.refresh_from_db()
    assert (called, task.state) == ([True], "completed")
    assert 8 <= len(sent) <= MAX_STATEMENTS, sent
    for table in ("tasks_queue", "tasks_actionslot", "tasks_actionrate"):
        assert any(table in statement for statement in sent)


@pytest.mark.parametrize("name", ["echo", "doze", "alone"])
def test_nothing_is_called_for_a_claim_that_is_nearly_over_or_once_a_stop_was_asked_for(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Whatever was true when the claim was made, and while the attempt was prepared."""
    called: list[bool] = []
    monkeypatch.setattr(isolated, "answer_of", lambda process, request: called.append(True))
    for method in ("call", "acall"):
        monkeypatch.setattr(RegisteredAction, method, lambda *args: called.append(True))
    monkeypatch.setattr(RegisteredAction, "is_heard", True)
    task = publish(name)
    for end in (be_late, stop):
        claim = claimed()

        async def end_meanwhile(action: RegisteredAction, context: Context, end: Any = end, claim: Any = claim) -> None:
            end(claim)

        monkeypatch.setattr(RegisteredAction, "begin", end_meanwhile)
        outcome, _ = attempt(claim, failing(monkeypatch, lambda number: False, lambda: False))
        assert (outcome, called) == (Released(), [])
        task.refresh_from_db()
        assert (task.state_attempts, task.state_ready, task.state_claim) == (0, True, None)


def be_late(claim: Any) -> None:
    claim.deadline = 0.0


def stop(claim: Any) -> None:
    claim.operations.stop()


@pytest.mark.parametrize("end", [be_late, stop])
def test_nothing_is_called_once_more_either_and_the_attempt_counts(monkeypatch: pytest.MonkeyPatch, end: Any) -> None:
    called: list[Any] = []

    def fail(context: Context) -> None:
        called.append(context.task.pk)
        end(context.claim)
        raise ValueError("no")

    action = RegisteredAction(name="retried", function=fail, takes_context=True, local_retries=3, local_delay=0.001)
    monkeypatch.setitem(registry, "retried", {"": action})
    task = publish("retried")
    outcome, _ = attempt(claimed(), failing(monkeypatch, lambda number: False, lambda: False))
    task.refresh_from_db()
    assert (outcome.failure.kind, called) == ("ValueError", [task.pk])
    assert task.state == "errored"


def test_a_place_that_cannot_be_given_back_is_no_error_of_an_action_that_succeeded(
    monkeypatch: pytest.MonkeyPatch, called: list[bool], caplog: pytest.LogCaptureFixture
) -> None:
    task = publish()
    outcome, _ = attempt(claimed(), failing(monkeypatch, lambda number: number == 0, lambda: bool(called)))
    task.refresh_from_db()
    assert (task.state, called) == ("completed", [True])
    assert [record.msg for record in caplog.records if record.name == "tasks.actions"] == ["tasks.slot_kept"]
    # It is free all the same: its claim has ended.
    assert ActionSlot.take("default", ":heard:", 1, 7, uuid4()) == 0.0
