"""A name in a row is run only if it is the name of a task."""

import sys
from importlib import import_module

import pytest
from django.test import override_settings

from stator.models import Report
from stator.testing import drain
from tasks.backend import framework
from tasks.backend.framework import TaskResultDoesNotExist, TaskResultStatus, task_backends
from tasks.backend.tasks_backend import resolve
from tasks.exceptions import PublishRefused
from tasks.failures import NoHandler
from tasks.models import Queue, Task
from tests.tasks.backend.making import BACKEND, backend, done, enqueue_many
from tests.tasks.making import IMPOSSIBLE_NAMES
from tests.testapp import tasks as examples

pytestmark = pytest.mark.django_db


class TestPaths:
    """S1: what a row names is run only if it is a task."""

    PATHS = (
        "os.system", "subprocess.Popen", "antigravity.fly", "this.s", "tests.testapp.tasks.no_task",
        "tests.testapp.tasks.os", "tests.testapp.tasks", "tests.testapp.tasks.add.func", "builtins.eval", "", ".",
        "a..b", "tests.testapp.nowhere.task", "tests.testapp.tasks.__builtins__", "../x.y", "x.y\n",
    )  # fmt: skip

    def test_all_else_is_an_error_of_the_row_and_nothing_is_imported(self) -> None:
        queue, _ = Queue.objects.get_or_create(name="default")
        data = {"args": ["true"], "kwargs": {}, "backend": "default"}
        # The first loads what the worker itself needs.
        drain(Task)
        made = Task.objects.bulk_create(
            Task(queue=queue, action=f"django:{path}", data=data, priority=1) for path in self.PATHS
        )
        loaded = set(sys.modules)
        drain(Task)
        assert set(sys.modules) == loaded
        for task in Task.objects.all():
            assert (task.state, task.result) == ("pending", None), task.action
            assert Report.objects.get(object_pk=str(task.pk)).error == "tasks.failures.NoHandler", task.action
            with pytest.raises(TaskResultDoesNotExist):
                task_backends["default"].get_result(str(task.pk))
        assert Task.objects.count() == len(made) == len(self.PATHS)

    def test_a_task_in_a_queue_that_its_backend_has_not_is_an_error_of_the_row(self) -> None:
        queue = Queue.objects.create(name="bots")
        data = {"args": [1], "kwargs": {}, "backend": "default"}
        made = Task.objects.create(queue=queue, action="django:tests.testapp.tasks.add", data=data, priority=1)
        drain(Task)
        made.refresh_from_db()
        assert (made.state, examples.calls) == ("pending", [])
        assert "has no queue 'bots'" in Report.objects.get(object_pk=str(made.pk)).message

    def test_no_publisher_names_one(self) -> None:
        queue = Queue.objects.create(name="default")
        data = {"args": [1], "kwargs": {}, "backend": "default"}
        with pytest.raises(PublishRefused, match="enqueue it there"):
            queue.publish("django:tests.testapp.tasks.add", data)
        assert not Task.objects.exists()

    def test_modules_of_installed_apps_are_loaded_for_it(self) -> None:
        loaded = sys.modules.pop("tests.testapp.tasks")
        try:
            found = resolve("tests.testapp.tasks.add")
            assert found.func.__module__ == "tests.testapp.tasks"
        finally:
            sys.modules["tests.testapp.tasks"] = loaded

    def test_others_are_when_they_are_listed(self) -> None:
        with pytest.raises(NoHandler):
            resolve("tests.tasks.elsewhere.far")
        assert "tests.tasks.elsewhere" not in sys.modules
        with backend(OPTIONS={"modules": ["tests.tasks.elsewhere"]}):
            assert resolve("tests.tasks.elsewhere.far").name == "far"
        del sys.modules["tests.tasks.elsewhere"]

    def test_one_in_a_module_that_no_worker_imports_is_refused(self) -> None:
        far = import_module("tests.tasks.elsewhere").far
        try:
            with backend():
                with pytest.raises(PublishRefused) as caught:
                    far.enqueue()
                told = str(caught.value)
                assert "tests.tasks.elsewhere.far" in told
                assert "installed app" in told
                assert '["OPTIONS"]["modules"]' in told
                assert "\n" not in told
                assert not Task.objects.exists()
                [error] = task_backends["default"].check()
                assert (error.id, "tests.tasks.elsewhere" in error.msg) == ("tasks.E203", True)
                assert '["OPTIONS"]["modules"]' in error.hint
            with backend(OPTIONS={"modules": ["tests.tasks.elsewhere"]}):
                far.enqueue()
                assert task_backends["default"].check() == []
        finally:
            del sys.modules["tests.tasks.elsewhere"]
        assert Task.objects.count() == 1

    @pytest.mark.parametrize("broken", [
        {"BACKEND": "does.not.exist"}, {"BACKEND": BACKEND, "OPTIONS": {"nonsense": 1}},
    ])  # fmt: skip
    def test_an_alias_that_is_broken_breaks_no_other(self, broken: dict[str, object]) -> None:
        good = {"BACKEND": BACKEND, "QUEUES": [], "OPTIONS": {"modules": ["tests.tasks.elsewhere"]}}
        try:
            with override_settings(TASKS={"broken": broken, "default": good}):
                result = import_module("tests.tasks.elsewhere").far.enqueue()
                assert task_backends["default"].check() == []
                del sys.modules["tests.tasks.elsewhere"]
                assert done(result).status == TaskResultStatus.SUCCESSFUL
        finally:
            sys.modules.pop("tests.tasks.elsewhere", None)

    def test_one_that_its_module_has_under_another_name_is_refused(self, monkeypatch: pytest.MonkeyPatch) -> None:
        renamed = framework.task(examples.no_task)
        monkeypatch.setattr(examples, "renamed", renamed, raising=False)
        with pytest.raises(PublishRefused, match="no_task is not a task"):
            renamed.enqueue()
        assert not Task.objects.exists()

    def test_a_queue_name_that_no_database_keeps_is_refused(self) -> None:
        with backend():
            for name, told in IMPOSSIBLE_NAMES:
                there = examples.add.using(queue_name=name)
                for enqueue in (lambda there: there.enqueue(1), lambda there: enqueue_many([((1,), {})], there)):
                    with pytest.raises(PublishRefused) as caught:
                        enqueue(there)
                    assert told in str(caught.value)
                    assert "\n" not in str(caught.value)
        assert not Queue.objects.exists()

    def test_a_row_that_is_no_enqueued_task_is_an_error(self) -> None:
        queue, _ = Queue.objects.get_or_create(name="default")
        rows = (
            None, [], {}, {"args": [], "kwargs": {}}, {"args": [1], "kwargs": {}, "backend": "gone"},
            {"args": [1], "kwargs": {}, "backend": "default", "run_after": "soon"},
        )  # fmt: skip
        Task.objects.bulk_create(
            Task(queue=queue, action="django:tests.testapp.tasks.add", data=data, priority=1) for data in rows
        )
        drain(Task)
        assert examples.calls == []
        for made in Task.objects.all():
            assert made.state != "completed", made.data
            with pytest.raises(TaskResultDoesNotExist):
                task_backends["default"].get_result(str(made.pk))
