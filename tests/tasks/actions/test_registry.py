"""Actions are registered, and found by their names."""

from typing import Any

import pytest

import tasks
from stator import Backoff
from tasks.actions.registry import find, registry
from tasks.failures import NoHandler
from tests.tasks.actions.making import ran
from tests.testapp import actions as examples

pytestmark = pytest.mark.django_db


class TestRegistering:
    def test_a_name_is_that_of_one_function(self) -> None:
        with pytest.raises(ValueError, match=r"'resize' is tests.testapp.actions.resize already, not .*<lambda>"):
            tasks.action("resize")(lambda: None)
        assert find("resize", "any").function is examples.resize
        assert "resize" in registry

    def test_decorator_without_a_name_is_refused(self) -> None:
        with pytest.raises(TypeError, match=r"needs a name: @tasks.action\('print'\)"):
            tasks.action(print)  # type: ignore[arg-type]

    def test_methods_of_celery_say_what_takes_their_place(self) -> None:
        with pytest.raises(TypeError, match=r"here: queue\.publish\('resize', data\)"):
            examples.resize.delay(7)  # type: ignore[attr-defined]

    @pytest.mark.parametrize("name", ["", "two words", "django:os.system", "x" * 201, None, "a\n"])
    def test_bad_names_are_refused(self, name: Any) -> None:
        with pytest.raises(ValueError, match="is not a valid name for an action"):
            tasks.action(name)
        assert name not in registry

    @pytest.mark.parametrize(
        "option",
        [
            {"timeout": float("nan")}, {"max_attempts": 0}, {"concurrency": 1.5}, {"local_retries": -1},
            {"rate": "10/s "}, {"rate": "1/0s"}, {"rate": "9999999999/s"}, {"backoff": Backoff(base=-5)},
            {"no_such": 1},
        ],
    )  # fmt: skip
    def test_bad_options_are_refused_and_named(self, option: dict[str, Any]) -> None:
        with pytest.raises((ValueError, TypeError), match=next(iter(option))):
            tasks.action("bad-option", **option)(print)
        assert not registry.get("bad-option")

    def test_options_of_other_queues_are_refused_with_ours(self) -> None:
        unknown: dict[str, Any] = {"max_retries": 3}
        with pytest.raises(TypeError, match="has no option 'max_retries'; use max_attempts, which counts the first"):
            tasks.action("bad-option", **unknown)

    def test_an_action_of_a_queue_is_found_for_its_tasks_alone(self) -> None:
        assert ran("only-here", queue="special").result == "here"
        with pytest.raises(NoHandler, match="no action 'only-here' for queue 'default'"):
            find("only-here", "default")

    def test_modules_of_apps_are_loaded_when_django_is_ready(self) -> None:
        assert registry["resize"][""].function.__module__ == "tests.testapp.actions"
