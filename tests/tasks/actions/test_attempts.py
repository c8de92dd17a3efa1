"""Actions: registering them, running them in workers, and what is made of how they end."""

import asyncio
import doctest
import signal
import threading
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.contrib.auth.models import Group
from django.db import OperationalError, connection, router
from django.db.models import QuerySet
from django.db.models.functions import Now
from django.test import override_settings
from django.test.utils import CaptureQueriesContext

import tasks
from stator import claims
from stator.models import History, Report
from stator.runner import StatorRunner
from stator.testing import Moved, Waiting, advance, attempt, drain
from tasks.actions import attempts as actions
from tasks.actions import throttles
from tasks.actions.registry import Action, Context, find, registry
from tasks.actions.threads import Threads
from tasks.actions.throttling import Frequency, frequency, key_text
from tasks.failures import NoHandler
from tasks.models import ActionRate, ActionSlot, Queue, Task
from tests.commanding import asked
from tests.processes import wait_until
from tests.stator.test_testing import run_examples
from tests.testapp import actions as examples

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _nothing_seen() -> Any:
    examples.seen.clear()
    examples.release.clear()
    yield
    examples.release.set()


def make(action: str, data: Any = None, queue: str = "default", **columns: Any) -> Task:
    found, _ = Queue.objects.get_or_create(name=queue, defaults={"actions_elsewhere": False})
    return Task.objects.create(queue=found, action=action, data=data, priority=1, **columns)


def ran(action: str, data: Any = None, **columns: Any) -> Task:
    task = make(action, data, **columns)
    drain(Task)
    task.refresh_from_db()
    return task


def report(task: Task) -> Report:
    return Report.objects.get(model_label="tasks.task", object_pk=str(task.pk))


class TestRegistering:
    def test_a_name_is_that_of_one_function(self) -> None:
        with pytest.raises(ValueError, match=r"'resize' is tests.testapp.actions.resize already, not .*<lambda>"):
            tasks.action("resize")(lambda: None)
        assert find("resize", "any").function is examples.resize
        assert "resize" in actions.registry

    def test_the_function_stays_what_it_was(self) -> None:
        assert examples.resize(3) == {"image": 3, "width": 100}

    def test_the_same_function_may_come_again_as_when_its_module_is_loaded_again(self) -> None:
        assert tasks.action("resize", backoff=30)(examples.resize) is examples.resize

    @pytest.mark.parametrize("name", ["", "two words", "django:os.system", "x" * 201, None, "a\n"])
    def test_bad_names_are_refused(self, name: Any) -> None:
        with pytest.raises(ValueError, match="is no name for an action"):
            tasks.action(name)
        assert name not in registry

    @pytest.mark.parametrize(
        "option",
        [
            {"timeout": 0}, {"timeout": "1"}, {"timeout": float("nan")}, {"max_attempts": 0}, {"max_attempts": True},
            {"concurrency": 1.5}, {"local_retries": -1}, {"local_delay": -1}, {"rate": "ten"}, {"rate": "0/s"},
            {"no_such": 1},
        ],
    )  # fmt: skip
    def test_bad_options_are_refused_and_named(self, option: dict[str, Any]) -> None:
        with pytest.raises((ValueError, TypeError), match=next(iter(option))):
            tasks.action("bad-option", **option)(print)
        assert not registry.get("bad-option")

    def test_an_action_of_a_queue_is_found_for_its_tasks_alone(self) -> None:
        assert ran("only-here", queue="special").result == "here"
        with pytest.raises(NoHandler, match="no action 'only-here' for queue 'default'"):
            find("only-here", "default")

    def test_modules_of_apps_are_loaded_when_django_is_ready(self) -> None:
        assert registry["resize"][""].function.__module__ == "tests.testapp.actions"


class TestArguments:
    def test_an_object_comes_as_keyword_arguments(self) -> None:
        task = ran("resize", {"image": 7})
        assert (task.state, task.result) == ("completed", {"image": 7, "width": 100})

    @pytest.mark.parametrize(
        ("data", "expected"), [(None, []), (5, [5]), ("x", ["x"]), ([1, 2], [[1, 2]]), (False, [False])]
    )
    def test_anything_else_is_the_one_argument_and_null_is_none(self, data: Any, expected: Any) -> None:
        assert ran("echo", data).result == expected

    def test_coroutine_functions_are_awaited_and_tuples_are_lists(self) -> None:
        assert ran("fetch", {"url": "x://y"}).result == ["x://y", 5]

    def test_the_context_says_which_attempt_this_is(self) -> None:
        task = make("told", {"more": 1})
        drain(Task)
        task.refresh_from_db()
        assert len(task.result.pop("worker")) == 12
        assert task.result == {
            "task": task.pk, "attempt": 1, "mine": True, "extended": True, "stopped": False, "data": {"more": 1},
        }  # fmt: skip

    def test_the_context_says_that_the_attempt_is_over_whenever_it_is_asked(
        self,
    ) -> None:
        for asked_before in (True, False):
            context = Context(None, SimpleNamespace(still_mine=lambda: True))
            before = context.stopped if asked_before else None
            assert context.still_mine()
            assert not (before and before.is_set())
            context.end()
            assert context.stopped.is_set()
            assert before in (None, context.stopped)
            assert not context.still_mine()

    def test_arguments_that_do_not_fit_are_an_error_of_the_task(self) -> None:
        task = ran("resize", {"picture": 7})
        assert (task.state, report(task).error) == ("pending", "TypeError")


class OfQueue:
    """A task that says how often its queue was asked for, and is refused at first so many times."""

    def __init__(self, operations: Any, refused: int = 0) -> None:
        self.stator, self.queue_id = SimpleNamespace(operations=operations), 7
        self.asked, self.refused = 0, refused

    @property
    def queue(self) -> str:
        self.asked += 1
        if self.asked <= self.refused:
            raise OperationalError("away")
        return "queue"


class TestQueueOfAttempts:
    def ask(self, task: Any, times: int) -> list[Any]:
        async def together() -> list[Any]:
            return await asyncio.gather(*(actions._queue_of(task) for _ in range(times)), return_exceptions=True)

        return async_to_sync(together)()

    def test_of_many_that_begin_together_one_asks_for_it(self) -> None:
        task = OfQueue(operations := TestQueueOfAttempts())
        assert self.ask(task, 20) == ["queue"] * 20
        assert self.ask(OfQueue(operations), 2) == ["queue"] * 2
        assert task.asked == 1

    def test_where_it_could_not_be_had_the_next_one_asks(self) -> None:
        task = OfQueue(operations := TestQueueOfAttempts(), refused=2)
        told = self.ask(task, 5)
        assert [type(each) for each in told] == [OperationalError, OperationalError, str, str, str]
        assert (self.ask(task, 1), task.asked, operations) == (["queue"], 3, operations)

    def test_it_is_asked_for_again_after_a_while(self, monkeypatch: pytest.MonkeyPatch) -> None:
        task = OfQueue(operations := TestQueueOfAttempts())
        monkeypatch.setattr(actions, "QUEUES_KEPT", -1.0)
        assert [self.ask(task, 1), self.ask(task, 1), operations] == [["queue"], ["queue"], operations]
        assert task.asked == 2


class TestErrors:
    def test_an_error_is_kept_and_the_task_comes_again_after_the_back_off_of_its_action(self) -> None:
        task = ran("break")
        assert (task.state, task.state_failures) == ("pending", 1)
        assert (report(task).error, report(task).message) == ("tests.testapp.actions.Odd", "no")
        left = (task.state_next_attempt - Task.objects.annotate(now=Now()).get().now).total_seconds()
        assert 3 < left <= 40

    def test_a_number_is_a_back_off_too(self) -> None:
        outcome = attempt(make("resize", {"picture": 7}))
        assert isinstance(outcome, Waiting)
        assert outcome.delay == 30

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
        assert [event.to for event in History.objects.order_by("pk")] == ["", "", "errored"]

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

    @override_settings(STATOR_TASKS={"MAX_ATTEMPTS": 1})
    def test_the_setting_is_what_is_left(self) -> None:
        assert ran("unstorable").state == "errored"

    def test_fail_fails_at_once(self) -> None:
        task = ran("give-up")
        assert (task.state, report(task).error) == ("errored", "stator.exceptions.Fail")

    def test_what_would_end_a_process_is_an_error(self) -> None:
        task = ran("leave")
        assert (task.state, report(task).error) == ("pending", "SystemExit")

    def test_a_result_that_is_no_json_is_an_error(self) -> None:
        task = ran("unstorable")
        assert (task.state, task.result) == ("pending", None)
        assert (
            report(task).message == "the result cannot be kept as JSON: Object of type object is not JSON serializable"
        )

    @override_settings(STATOR_TASKS={"PAYLOAD_LIMIT": 10})
    def test_a_result_that_is_too_long_is_an_error(self) -> None:
        assert "the result has" in report(ran("echo", "x" * 20)).message

    def test_later_is_no_error_but_ends_with_the_attempts(self) -> None:
        task = make("later")
        assert attempt(task) == Waiting(5, None, "not ripe")
        outcome = attempt(task)
        assert isinstance(outcome, Moved)
        assert (task.state, report(task).message) == ("errored", "it has had its 2 attempts; the last said: not ripe")

    def test_an_attempt_too_many_does_not_run(self) -> None:
        task = make("break")
        QuerySet(Task).update(state_attempts=3)
        assert drain(Task) == 1
        task.refresh_from_db()
        assert (task.state, examples.seen, report(task).message) == ("errored", [], "it has had its 3 attempts")

    def test_an_action_that_is_gone_is_told_and_waited_for(self) -> None:
        task = ran("removed.long.ago")
        assert (task.state, report(task).error) == ("pending", "tasks.failures.NoHandler")
        assert report(task).message == "no handler: this worker knows no action 'removed.long.ago' for queue 'default'"
        assert isinstance(outcome := attempt(task), Waiting)
        assert outcome.delay >= 12
        while task.state == "pending":
            attempt(task)
        assert (task.state, task.state_version) == ("errored", 1)
        assert History.objects.filter(kind="error").count() == 4

    @pytest.mark.parametrize(("times", "state"), [(2, "completed"), (3, "pending")])
    def test_unexpected_errors_are_tried_again_by_the_same_worker(self, times: int, state: str) -> None:
        task = ran("flaky", {"times": times})
        assert (task.state, examples.seen, task.state_failures) == (state, ["flaky"] * 3, int(times == 3))

    def test_a_task_that_takes_too_long_is_ended(self) -> None:
        task = ran("slow")
        assert (task.state, report(task).error) == ("pending", "stator.exceptions.AttemptTimedOut")
        assert "longer than its timeout of 0.1 s" in report(task).message

    def test_the_time_a_task_may_take_begins_with_its_claim(self) -> None:
        task = ran("slow", timeout=0.05)
        assert "timeout of 0.05 s" in report(task).message

    def test_a_result_of_before_does_not_stay(self) -> None:
        task = ran("echo", 5)
        task.transition_perform("pending")
        Task.objects.update(action="write", data={"name": "again"})
        drain(Task)
        task.refresh_from_db()
        assert (task.state, task.result) == ("completed", None)


class TestFence:
    def test_a_late_attempt_does_not_write_its_result(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def intrude(**data: Any) -> str:
            Task.objects.get().cancel(running=True)
            return "late"

        monkeypatch.setitem(registry, "intrude", {"": Action(name="intrude", function=intrude)})
        task = ran("intrude", {})
        assert (task.state, task.result) == ("canceled", None)

    def test_the_queue_is_not_asked_for_each_attempt(self) -> None:
        for number in range(3):
            make("echo", number)
        with CaptureQueriesContext(connection) as queries:
            StatorRunner([Task]).run_single_cycle()
        asked = [query for query in queries if 'FROM "tasks_queue" WHERE "tasks_queue"."id" = ' in query["sql"]]
        assert len(asked) == 1


class TestThrottles:
    @pytest.mark.parametrize(
        ("text", "expected"), [("10/s", (10, 1)), ("3/10s", (3, 10)), ("100/m", (100, 60)), ("1/d", (1, 86400))]
    )
    def test_rates_are_understood(self, text: str, expected: tuple[int, int]) -> None:
        assert frequency(text) == Frequency(*expected)

    @pytest.mark.parametrize("text", ["10", "10/x", "0/s", "-1/s", "1.5/s", "10/s ", "1/0s", "9999999999/s"])
    def test_others_are_refused(self, text: str) -> None:
        with pytest.raises(ValueError, match="write a number and a time"):
            frequency(text)

    def test_keys_fit_their_column_and_stay_different(self) -> None:
        assert key_text("a", 1) == "a:1"
        assert len({key_text("x" * 500 + end) for end in "ab"}) == 2
        assert all(len(key_text("x" * 500 + end)) <= 200 for end in "ab")

    def test_no_more_start_than_the_rate_says_and_those_put_off_have_had_no_attempt(self) -> None:
        made = [make("twice", {"channel": channel, "number": n}) for n in range(4) for channel in "ab"]
        drain(Task)
        assert sorted(examples.seen) == ["a", "a", "b", "b"]
        put_off = Task.objects.filter(state="pending")
        assert [task.state_attempts for task in put_off] == [0, 0, 0, 0]
        assert report(put_off.earliest("pk")).message == ":twice:a has started 2/h, as often as it may"
        advance(3 * 3600, Task)
        ActionRate.objects.update(until=Now() - timedelta(seconds=1))
        drain(Task)
        assert sorted(examples.seen) == ["a"] * 4 + ["b"] * 4
        assert Task.objects.filter(state="completed").count() == len(made)

    def test_those_put_off_come_back_apart_from_each_other(self) -> None:
        waits = [ActionRate.take("default", "k", Frequency(2, 10)) for _ in range(10)]
        assert waits[:2] == [0, 0]
        for place, wait in enumerate(waits[2:]):
            least = 10 * (place // 2)
            assert least < wait <= least + 20

    def test_one_key_runs_as_often_at_a_time_as_it_may(self) -> None:
        holder = make("single", {"door": "left"})
        [held] = claims.claim(Task)
        assert ActionSlot.take("default", ":single:left", 1, holder.pk, held.token) == 0
        same, other = make("single", {"door": "left"}), make("single", {"door": "right"})
        drain(Task)
        same.refresh_from_db()
        other.refresh_from_db()
        assert (same.state, same.state_attempts, other.state) == ("pending", 0, "completed")
        assert report(same).message == "1 of :single:left run at present, as many as may"
        # Its claim ends without another word, as with a worker that dies: the place is free.
        holder.cancel(running=True)
        advance(5, Task)
        drain(Task)
        same.refresh_from_db()
        assert same.state == "completed"
        assert not ActionSlot.objects.exists()

    def test_what_says_nothing_any_more_is_pruned(self) -> None:
        ActionRate.take("default", "old", Frequency(1, 1))
        ActionRate.objects.update(until=Now() - timedelta(days=2))
        ActionRate.take("default", "new", Frequency(1, 60))
        ActionSlot.take("default", "gone", 1, 12345, "1" * 32)
        ActionSlot.objects.update(taken=Now() - timedelta(days=2))
        assert throttles.prune(router.db_for_write(Task)) == 2
        assert [row.key for row in ActionRate.objects.all()] == ["new"]


@pytest.mark.django_db(transaction=True)
class TestRaces:
    def test_of_many_workers_as_many_start_as_the_rate_says(self) -> None:
        started: list[float] = []
        barrier = threading.Barrier(6)

        def start() -> None:
            barrier.wait()
            started.extend(ActionRate.take("default", "k", Frequency(3, 3600)) for _ in range(5))
            connection.close()

        run_together(start)
        assert started.count(0.0) == 3

    def test_of_many_workers_as_many_get_a_place_as_there_are(self) -> None:
        for _ in range(6):
            make("single", {"door": "x"})
        turns = iter(claims.claim(Task, 6))
        waits: list[float] = []
        barrier = threading.Barrier(6)

        def take() -> None:
            held = next(turns)
            barrier.wait()
            waits.append(ActionSlot.take("default", "k", 2, held.pk, held.token))
            connection.close()

        run_together(take)
        assert waits.count(0.0) == 2
        assert ActionSlot.objects.count() == 2


def run_together(function: Any, count: int = 6) -> None:
    threads = [threading.Thread(target=function) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


@pytest.mark.django_db(transaction=True)
class TestThreads:
    @pytest.mark.parametrize("how", ["open", "broken", "session", "closed"])
    def test_the_next_action_finds_a_clean_connection(self, how: str) -> None:
        threads = Threads(1)

        async def both() -> None:
            with pytest.raises(Exception) if how == "broken" else no_error():
                await threads.run(lambda: examples.dirty(how))
            await threads.run(lambda: examples.write("after"))
            await threads.run(lambda: connection.close())

        asyncio.run(both())
        assert [group.name for group in Group.objects.all()] == ["after"]

    def test_no_more_run_at_a_time_than_there_are_threads(self) -> None:
        threads, lock = Threads(2), threading.Lock()
        running: list[int] = [0]
        most: list[int] = [0]
        gate = threading.Barrier(2)

        def work() -> None:
            with lock:
                running[0] += 1
                most[0] = max(most[0], running[0])
            gate.wait(10)
            with lock:
                running[0] -= 1

        async def all_of_them() -> None:
            await asyncio.gather(*(threads.run(work) for _ in range(6)))

        asyncio.run(all_of_them())
        assert most == [2]

    def test_a_thread_that_is_given_up_is_replaced_and_ends_with_its_action(self) -> None:
        threads = Threads(1)
        stuck, begun, done = threading.Event(), threading.Event(), threading.Event()

        def hold_out() -> None:
            begun.set()
            stuck.wait(30)
            done.set()

        async def give_up() -> str:
            running = asyncio.ensure_future(threads.run(hold_out))
            while not begun.is_set():
                await asyncio.sleep(0.001)
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running
            assert threads.exhausted
            return str(await threads.run(lambda: "another thread"))

        assert asyncio.run(give_up()) == "another thread"
        stuck.set()
        assert done.wait(10)
        wait_until(lambda: not threads.exhausted)

    def test_what_has_not_begun_is_not_run_once_nobody_waits_for_it(self) -> None:
        threads, ran_too_late = Threads(1), []
        gate = threading.Event()

        async def go() -> None:
            first = asyncio.ensure_future(threads.run(lambda: gate.wait(30)))
            second = asyncio.ensure_future(threads.run(lambda: ran_too_late.append(1)))
            await asyncio.sleep(0.01)
            second.cancel()
            await asyncio.gather(second, return_exceptions=True)
            gate.set()
            await first
            await threads.run(lambda: None)

        asyncio.run(go())
        assert ran_too_late == []


class no_error:
    def __enter__(self) -> None: ...

    def __exit__(self, *error: object) -> None: ...


@pytest.mark.django_db(transaction=True)
class TestWorker:
    def test_it_runs_sync_and_async_actions(self, worker_process: Any) -> None:
        made = [make("resize", {"image": n}) for n in range(20)] + [make("fetch", {"url": str(n)}) for n in range(20)]
        with worker_process("tasks.Task", "--until-idle") as worker:
            assert worker.wait() == 0, worker.output()
        assert Task.objects.filter(state="completed").count() == len(made), worker.output()
        made[3].refresh_from_db()
        assert made[3].result == {"image": 3, "width": 100}

    @pytest.mark.parametrize("action", ["wait", "thread"])
    def test_cancel_ends_what_runs(self, worker_process: Any, action: str) -> None:
        task = make(action)
        with worker_process(
            "tasks.Task", STATOR_LEASE="3", STATOR_REAP_INTERVAL="1", STATOR_SHUTDOWN_TIMEOUT="2"
        ) as worker:
            wait_until(lambda: Task.objects.filter(state_claim__isnull=False).exists(), message=worker.output)
            task.cancel(actor="somebody", running=True)
            later = make("resize", {"image": 1})
            wait_until(lambda: Task.objects.get(pk=later.pk).state == "completed", message=worker.output)
            assert worker.stop() == 0
        task.refresh_from_db()
        assert (task.state, task.result) == ("canceled", None)

    def test_a_second_worker_takes_over_when_the_first_dies(self, worker_process: Any) -> None:
        task = make("wait")
        with worker_process(
            "tasks.Task",
            STATOR_LEASE="2",
            STATOR_REAP_INTERVAL="0.5",
            STATOR_POLL_INTERVAL="0.2",
            STATOR_SHUTDOWN_TIMEOUT="1",
        ) as first:
            wait_until(lambda: Task.objects.filter(state_claim__isnull=False).exists(), message=first.output)
            first.kill(signal.SIGKILL)
        Task.objects.update(action="echo")
        with worker_process(
            "tasks.Task",
            STATOR_LEASE="2",
            STATOR_REAP_INTERVAL="0.5",
            STATOR_POLL_INTERVAL="0.2",
            STATOR_SHUTDOWN_TIMEOUT="1",
        ) as second:
            wait_until(lambda: Task.objects.get(pk=task.pk).state == "completed", message=second.output)
        task.refresh_from_db()
        assert task.result == []


def test_the_examples_of_the_guide_run() -> None:
    text = (Path(__file__).parents[3] / "docs" / "guides" / "actions.rst").read_text()
    names = {"Queue": Queue, "Task": Task, "drain": drain}
    run_examples(doctest.DocTestParser().get_doctest(text, names, "actions.rst", None, 0))
