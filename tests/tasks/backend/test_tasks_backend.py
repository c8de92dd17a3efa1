"""The backend for Django's Tasks framework: its public contract, on Django 6 and with ``django-tasks`` before."""

import doctest
from pathlib import Path

import pytest
from django.db import transaction
from django.db.models.functions import Now

from stator.testing import advance, drain
from tasks.backend.framework import TaskResultDoesNotExist, TaskResultStatus
from tasks.models import Queue, Task
from tests.stator.making import at_once
from tests.stator.test_testing import run_examples
from tests.tasks.backend.making import done
from tests.testapp import tasks as examples

pytestmark = pytest.mark.django_db


class TestRunning:
    def test_a_task_runs_and_its_value_is_its_result(self) -> None:
        result = done(examples.add.enqueue(2, right=3))
        assert (result.status, result.return_value, result.is_finished) == (TaskResultStatus.SUCCESSFUL, 5, True)
        assert result.enqueued_at <= result.finished_at
        assert result.started_at <= result.last_attempted_at <= result.finished_at
        assert (result.attempts, result.errors) == (1, [])
        assert len(result.worker_ids[0]) == 12
        assert examples.calls == [(2, 3)]

    def test_the_context_comes_first_where_it_is_taken(self) -> None:
        result = done(examples.describe.enqueue("note"))
        assert result.return_value == {
            "id": result.id, "attempt": 1, "status": "RUNNING", "note": "note", "args": ["note"],
        }  # fmt: skip
        assert done(examples.adescribe.enqueue()).return_value == 1

    def test_an_error_is_final_and_kept(self) -> None:
        result = done(examples.go_wrong.enqueue("so it is"))
        assert (result.status, result.is_finished, result.attempts) == (TaskResultStatus.FAILED, True, 1)
        [error] = result.errors
        assert (error.exception_class_path, error.exception_class) == ("builtins.ValueError", ValueError)
        header, first, *_, last = error.traceback.splitlines()
        assert (header, last) == ("Traceback (most recent call last):", "ValueError: so it is")
        assert first.endswith("in go_wrong")
        with pytest.raises(ValueError, match="failed"):
            _ = result.return_value
        advance(86400, Task)
        drain(Task)
        assert examples.calls == ["wrong"]


@pytest.mark.django_db(transaction=True)
class TestWorkers:
    def test_a_queue_is_made_once_however_many_need_it(self) -> None:
        at_once(*[lambda: examples.add.enqueue(1)] * 4)
        assert (Queue.objects.count(), Task.objects.count()) == (1, 4)
        assert Task.objects.filter(created__lte=Now()).count() == 4


def test_the_examples_of_the_guide_run() -> None:
    text = (Path(__file__).parents[3] / "docs" / "guides" / "django-tasks.rst").read_text()
    # A traceback names the module of its error.
    text = text.replace("\nTaskResultDoesNotExist:", f"\n{TaskResultDoesNotExist.__module__}.TaskResultDoesNotExist:")
    names = {
        "Task": Task, "drain": drain, "transaction": transaction, "add": examples.add, "go_wrong": examples.go_wrong,
        "fetch": examples.fetch, "advance": advance,
    }  # fmt: skip
    run_examples(doctest.DocTestParser().get_doctest(text, names, "django-tasks.rst", None, 0))
