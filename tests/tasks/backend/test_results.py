"""Results of Django's framework: whose they are, and what they say of attempts and errors, in one statement."""

import pytest

from stator import claims
from stator.testing import drain
from tasks.backend.framework import TaskException, TaskResultDoesNotExist, TaskResultStatus, task_backends
from tasks.models import Queue, Task
from tests.tasks.backend.making import counts, fresh, run
from tests.tasks.making import task_of
from tests.testapp import tasks as examples

pytestmark = pytest.mark.django_db


class TestMoments:
    def test_an_attempt_knows_its_start_which_stays_after_its_end(self) -> None:
        result = examples.started.enqueue()
        drain(Task)
        told = examples.calls
        fresh(result)
        assert [result.started_at] == [result.last_attempted_at] == told
        assert result.started_at < result.finished_at

    def test_a_task_has_started_with_its_first_attempt_however_many_follow(self) -> None:
        result = examples.started.using(backend="retrying").enqueue(times=2)
        drain(Task)
        first = fresh(result).started_at
        assert [first] == [result.last_attempted_at] == examples.calls
        run(result)
        assert examples.calls == [first, first]
        second = result.last_attempted_at
        assert (result.started_at, second > first) == (first, True)
        run(result)
        assert (result.status, result.started_at) == (TaskResultStatus.SUCCESSFUL, first)
        assert first < second < result.last_attempted_at < result.finished_at

    def test_a_running_task_says_so_and_has_started_when_it_did_if_it_is_canceled(self) -> None:
        result = examples.add.enqueue(1)
        [held] = claims.claim(Task)
        started = fresh(result).started_at
        assert (result.status, result.attempts) == (TaskResultStatus.RUNNING, 1)
        assert result.worker_ids == [held.token.hex[:12]]
        assert started == result.last_attempted_at is not None
        task_of(result).cancel(running=True)
        fresh(result)
        assert (result.status, result.started_at, result.attempts) == (TaskResultStatus.FAILED, started, 1)


class TestRequeued:
    def test_attempts_and_errors_go_on_where_they_were(self) -> None:
        result = examples.go_wrong.enqueue("no")
        drain(Task)
        assert counts(fresh(result)) == (1, 1, 1)
        started, worker = result.started_at, result.worker_ids[0]
        task_of(result).requeue()
        assert counts(fresh(result)) == (1, 1, 1)
        assert (result.status, result.finished_at) == (TaskResultStatus.READY, None)
        assert counts(run(result)) == (2, 2, 2)
        assert (result.status, result.started_at, result.worker_ids[0]) == (TaskResultStatus.FAILED, started, worker)
        assert all("in go_wrong" in error.traceback for error in result.errors[-1:])

    def test_a_task_gets_the_number_of_its_attempt_since_it_was_enqueued(self) -> None:
        result = examples.describe.using(backend="retrying").enqueue("note", times=4)
        for _ in range(3):
            run(result)
        assert result.status == TaskResultStatus.FAILED
        task_of(result).requeue()
        run(result)
        assert (run(result).return_value["attempt"], counts(result)) == (5, (5, 5, 4))


class TestResults:
    def test_what_is_not_there_does_not_exist(self) -> None:
        for result_id in ("12345", "none", "", "-1", "0", "9" * 30, "1; drop", "1\0"):
            with pytest.raises(TaskResultDoesNotExist):
                task_backends["default"].get_result(result_id)

    def test_nor_do_tasks_of_another_backend_or_of_queues(self) -> None:
        other = examples.second_time.enqueue()
        queue = Queue.objects.get()
        plain = Task.objects.create(queue=queue, action="echo", priority=1)
        for pk in (other.id, str(plain.pk)):
            with pytest.raises(TaskResultDoesNotExist):
                task_backends["default"].get_result(pk)

    def test_the_result_of_another_task_is_a_mismatch(self) -> None:
        result = examples.add.enqueue(1)
        with pytest.raises(TaskException, match="does not match"):
            examples.send.get_result(result.id)
        assert examples.add.get_result(result.id).id == result.id
