"""The history of a task is read by the statement that reads the task."""

from typing import Any

import pytest
from django.db import connection
from django.db.models import QuerySet

from stator.models import History, Report
from stator.rows.readings import READINGS
from tasks.backend.history import with_history
from tasks.models import Task
from tests.tasks.backend.making import counts, run
from tests.tasks.making import task_of
from tests.testapp import tasks as examples

pytestmark = pytest.mark.django_db


class TestStatements:
    @pytest.mark.parametrize("times", [0, 2])
    def test_a_result_is_read_in_one_whatever_has_happened(
        self, times: int, django_assert_max_num_queries: Any
    ) -> None:
        task = examples.go_wrong.using(backend="retrying")
        result = task.enqueue("no")
        for _ in range(times):
            run(result)
        # Django asks SQLite once whether it has JSON.
        task.get_result(result.id)
        with django_assert_max_num_queries(1):
            result = task.get_result(result.id)
        assert counts(result) == (times, times, times)
        with django_assert_max_num_queries(1):
            result.refresh()

    def test_where_nobody_keeps_reports_and_a_history_runs_have_the_attempts_and_errors(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.delitem(READINGS, "records", raising=False)
        task = examples.go_wrong.using(backend="retrying")
        result = task.enqueue("no")
        for _ in range(2):
            run(result)
        found = task.get_result(result.id)
        assert found.attempts == 2
        assert [error.exception_class_path for error in found.errors] == ["builtins.ValueError"] * 2

    @pytest.mark.postgresql
    def test_records_of_one_task_among_many_are_found_by_indexes(self) -> None:
        pk = task_of(examples.add.enqueue(1)).pk
        kept = {"model_label": "tasks.task", "source": "pending"}
        History.objects.bulk_create(History(**kept, object_pk=str(n), version=1, to="completed") for n in range(1000))
        Report.objects.bulk_create(
            Report(model_label="tasks.task", object_pk=str(n), state="pending") for n in range(1000)
        )
        with connection.cursor() as cursor:
            cursor.execute("ANALYZE stator_history, stator_report")
        plan = with_history(QuerySet(Task)).filter(pk=pk).explain()
        assert "stator_history_object" in plan, plan
        assert "stator_report_one_per_object" in plan, plan
