"""Actions are attempted: what they are given, and what is made of how they end."""

from types import SimpleNamespace
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

import tasks
from stator.models import history_of
from stator.runner import StatorRunner
from stator.testing import Moved, Waiting, advance, attempt, drain
from tasks.actions.registry import Context, RegisteredAction, registry
from tasks.models import Queue, Run, Task
from tests.commanding import asked
from tests.queries import sent
from tests.sizes import CROWDED
from tests.tasks.actions.making import make, ran, report
from tests.testapp import actions as examples

pytestmark = pytest.mark.django_db


class TestArguments:
    def test_an_object_comes_as_keyword_arguments_null_as_none_and_anything_else_as_the_one(self) -> None:
        given: list[tuple[str, Any, Any]] = [
            ("resize", {"image": 7}, {"image": 7, "width": 100}),
            *(("echo", data, [data]) for data in (5, "x", [1, 2], False)), ("echo", None, []),
            # A coroutine function, which returns a tuple.
            ("fetch", {"url": "x://y"}, ["x://y", 5]),
        ]  # fmt: skip
        made = [make(action, data) for action, data, _ in given]
        drain(Task)
        found = Task.objects.in_bulk([task.pk for task in made])
        assert [found[task.pk].result for task in made] == [result for *_, result in given]

    def test_the_context_says_which_attempt_this_is(self) -> None:
        task = make("told", {"more": 1})
        drain(Task)
        task.refresh_from_db()
        assert task.result.pop("worker") == Run.objects.get().worker
        assert task.result == {
            "task": task.pk, "attempt": 1, "mine": True, "extended": True, "stopped": False, "data": {"more": 1},
        }  # fmt: skip

    def test_the_context_says_that_the_attempt_is_over_whenever_it_is_asked(self) -> None:
        for asked_before in (True, False):
            context = Context(None, SimpleNamespace(still_mine=lambda: True), "w1")
            before = context.stopped if asked_before else None
            assert context.still_mine()
            assert not (before and before.is_set())
            context.end()
            assert context.stopped.is_set()
            assert before in (None, context.stopped)
            assert not context.still_mine()

    @pytest.mark.parametrize("is_async", [False, True])
    def test_the_context_has_each_value_of_the_task_without_a_query(
        self, monkeypatch: pytest.MonkeyPatch, *, is_async: bool
    ) -> None:
        """Also on the event loop, where there can be no query."""

        def read(context: Context, size: int) -> dict[str, Any]:
            task, before = context.task, len(queries)
            found = {"size": size, "data": task.data, "metadata": task.metadata, "workers": task.worker_ids}
            return found | {
                "result": task.result,
                "same": task.metadata is task.metadata,
                "sent": len(queries) - before,
            }

        async def read_on_loop(context: Context, size: int) -> dict[str, Any]:
            return read(context, size)

        function = read_on_loop if is_async else read
        action = RegisteredAction(name="read", function=function, takes_context=True)
        monkeypatch.setitem(registry, "read", {"": action})
        with CaptureQueriesContext(connection) as queries:
            task = ran("read", {"size": 3}, metadata={"shop": "a", "n": 1.5}, worker_ids=[])
        assert task.result == {
            "size": 3, "data": {"size": 3}, "metadata": {"shop": "a", "n": 1.5}, "workers": [], "result": None,
            "same": True, "sent": 0,
        }  # fmt: skip

    def test_what_the_action_writes_into_the_result_is_none(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for returned in (None, {"a": [1]}):

            def write(context: Context, returned: Any = returned) -> Any:
                context.task.result = "mine"
                return returned

            monkeypatch.setitem(registry, "w", {"": RegisteredAction(name="w", function=write, takes_context=True)})
            assert ran("w").result == returned


class TestErrors:
    def test_an_error_is_recorded_and_the_task_is_retried_after_the_back_off_of_its_action(self) -> None:
        made = [make("resize", {"picture": 7}), make("unstorable"), make("break")]
        drain(Task)
        for task in made:
            task.refresh_from_db()
            assert (task.state, task.state_failures, task.result) == ("pending", 1, None)
        misfit, unstorable, task = made
        assert report(misfit).error == "TypeError"
        no_json = "the result cannot be stored as JSON: Object of type object is not JSON serializable"
        assert report(unstorable).message == no_json
        assert (report(task).error, report(task).message) == ("tests.testapp.actions.Odd", "no")
        assert 4 <= (task.state_next_attempt - task.state_attempted).total_seconds() <= 40 + CROWDED

    def test_after_its_attempts_it_is_errored_with_the_error_as_it_was(self) -> None:
        task = make("break", {"message": "never"})
        for _ in range(3):
            drain(Task)
            advance(3600, Task)
        task.refresh_from_db()
        assert (task.state, examples.seen) == ("errored", ["break"] * 3)
        assert task.attempts == 3
        assert [letter["attempts"] for letter in asked("tasks", "dead")] == [3]
        assert (report(task).error, report(task).message) == ("tests.testapp.actions.Odd", "never")
        header, first, *_ = report(task).traceback.splitlines()
        assert header == "Traceback (most recent call last):"
        assert first.endswith("in go_wrong")
        assert [event.to for event in history_of(Task, task.pk, "default", 9)] == ["errored", "", ""]

    def test_a_task_has_its_own_limit_or_else_the_lower_of_those_of_its_action_and_its_queue(self) -> None:
        Queue.objects.create(name="hasty", max_attempts=1)
        Queue.objects.create(name="patient", max_attempts=9)
        assert ran("break", max_attempts=1).state == "errored"
        assert ran("break", queue="hasty").state == "errored"
        tasks_of_it = [
            make("break", queue="patient"),
            make("break", max_attempts=9),
            make("unstorable", queue="patient"),
        ]
        for _ in range(3):
            drain(Task)
            advance(3600, Task)
        assert [Task.objects.get(pk=task.pk).state for task in tasks_of_it] == ["errored", "pending", "pending"]

    def test_fail_fails_at_once(self) -> None:
        task = ran("give-up")
        assert (task.state, report(task).error) == ("errored", "stator.exceptions.Fail")

    def test_later_is_no_error_but_ends_with_the_attempts(self) -> None:
        task = make("later")
        assert attempt(task) == Waiting(5, None, "not ripe")
        outcome = attempt(task)
        assert isinstance(outcome, Moved)
        assert (task.state, report(task).message) == (
            "errored",
            "it has used its 2 attempts; the last reason: not ripe",
        )

    def test_an_action_that_is_removed_while_its_task_is_held_is_reported_and_waited_for(self) -> None:
        task = make("removed.long.ago")
        # Workers claim no such task.
        attempt(task)
        assert (task.state, report(task).error) == ("pending", "tasks.failures.NoHandler")
        assert report(task).message == "no handler: this worker has no action 'removed.long.ago' for queue 'default'"
        assert isinstance(outcome := attempt(task), Waiting)
        assert outcome.delay >= 12
        while task.state == "pending":
            attempt(task)
        assert (task.state, task.state_version) == ("errored", 1)
        assert [event.kind for event in history_of(Task, task.pk, "default", 9)] == ["move", *["error"] * 4]

    def test_unexpected_errors_are_tried_again_by_the_same_worker_and_counted_in_the_run(self) -> None:
        for times, outcome in ((0, "succeeded"), (2, "succeeded"), (3, "failed")):
            examples.seen.clear()
            task = ran("flaky", {"times": times})
            run = task.runs.get()
            assert (task.state, task.state_failures) == (("pending", 1) if times == 3 else ("completed", 0))
            assert examples.seen == ["flaky"] * min(times + 1, 3)
            assert (run.outcome, run.unexpected_errors, run.result) == (
                outcome,
                times,
                times + 1 if times < 3 else None,
            )

    def test_number_of_retries_of_the_task_replaces_that_of_the_action(self) -> None:
        for own, calls in ((0, 1), (1, 2), (4, 5), (None, 3)):
            examples.seen.clear()
            ran("flaky", {"times": 100}, max_unexpected_retries=own)
            assert examples.seen == ["flaky"] * calls, own
            Task.objects.all().delete()

    @pytest.mark.parametrize(
        ("action", "data", "own", "timeout"),
        [("slow", None, None, 0.1), ("slow", None, 0.05, 0.05), ("deaf", 0.2, 0.1, 0.1)],
        ids=["of its action", "its own", "holds the loop"],
    )
    def test_a_task_that_takes_too_long_is_ended(self, action: str, data: Any, own: Any, timeout: float) -> None:
        task = ran(action, data, timeout=own)
        assert (task.state, report(task).error) == ("pending", "stator.exceptions.AttemptTimedOut")
        assert f"timeout of {timeout} s" in report(task).message


@pytest.mark.parametrize("is_async", [False, True])
class TestGivingUp:
    def give_up(self, monkeypatch: pytest.MonkeyPatch, is_async: bool, end: BaseException, **options: Any) -> None:
        def call() -> None:
            examples.seen.append("given up")
            if len(examples.seen) <= options.get("local_retries", 0):
                raise examples.Odd("first")
            raise end

        async def acall() -> None:
            call()

        action = RegisteredAction(name="give-it-up", function=acall if is_async else call, local_delay=0.001, **options)
        monkeypatch.setitem(registry, "give-it-up", {"": action})

    def test_action_releases_its_task_for_another_worker(self, monkeypatch: pytest.MonkeyPatch, is_async: bool) -> None:
        self.give_up(monkeypatch, is_async, tasks.Release("no\x00space here"), backoff=30)
        task = ran("give-it-up", max_attempts=2)
        assert (task.status, task.state_failures, task.attempts) == ("invisible", 0, 1)
        assert task.rejected_by == [task.runs.get().worker]
        advance(45, Task)
        drain(Task)
        task.refresh_from_db()
        assert (task.status, task.attempts, len(examples.seen)) == ("errored", 2, 2)
        assert list(task.runs.values_list("outcome", "reason")) == [("released", "no\ufffdspace here")] * 2

    def test_action_cancels_its_task(self, monkeypatch: pytest.MonkeyPatch, is_async: bool) -> None:
        self.give_up(monkeypatch, is_async, tasks.Cancel("done before"), local_retries=1)
        other = make("echo", 5)
        task = ran("give-it-up")
        run = task.runs.get()
        assert (task.status, task.result, task.state_failures) == ("canceled", None, 0)
        assert (run.outcome, run.reason, run.unexpected_errors) == ("canceled", "done before", 1)
        assert run.ended == task.state_changed
        assert (other.runs.get().outcome, other.runs.get().result) == ("succeeded", [5])


class TestSteps:
    @pytest.mark.needs("steps")
    @pytest.mark.parametrize("is_async", [False, True])
    def test_recorded_step_is_called_neither_by_a_local_retry_nor_by_a_further_attempt(
        self, monkeypatch: pytest.MonkeyPatch, is_async: bool
    ) -> None:
        def charge() -> str:
            examples.seen.append("charge")
            return "r-1"

        async def acharge() -> str:
            return charge()

        def pay(context: tasks.Context) -> str:
            receipt = context.step("charge", charge)
            return done(context, receipt)

        async def apay(context: tasks.Context) -> str:
            receipt = await context.task.stator.astep("charge", acharge)
            return done(context, receipt)

        def done(context: tasks.Context, receipt: str) -> str:
            examples.seen.append("tried")
            if len(examples.seen) < 5:
                raise examples.Odd("no paper")
            return receipt

        action = RegisteredAction(
            name="pay", function=apay if is_async else pay, takes_context=True, local_retries=1, local_delay=0.001,
            backoff=1,
        )  # fmt: skip
        monkeypatch.setitem(registry, "pay", {"": action})
        task = ran("pay", None, max_attempts=3)
        advance(45, Task)
        drain(Task)
        task.refresh_from_db()
        assert (task.status, task.result) == ("completed", "r-1")
        assert examples.seen == ["charge", *["tried"] * 4]


class TestFence:
    def test_the_queue_is_not_asked_for_each_attempt(self) -> None:
        for number in range(3):
            make("echo", number)
        with CaptureQueriesContext(connection) as queries:
            StatorRunner([Task]).run_single_cycle()
        # Counts of its tasks are read for the charts.
        start, end = 'SELECT "tasks_queue"."id", ', 'FROM "tasks_queue" WHERE "tasks_queue"."id" = '
        found = [sql for sql in sent(queries) if sql.startswith(start) and end in sql]
        assert len(found) == 1
