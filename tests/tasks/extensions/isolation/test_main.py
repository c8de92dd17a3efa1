"""The process of an isolated action: what it answers if the action did not begin."""

import errno
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from django.db import OperationalError
from django.db.utils import ConnectionHandler

from stator import claims
from stator.exceptions import TryAgainLater
from stator.extensions.progress.models import REACHED, reached
from stator.models import Report
from tasks.actions.registry import RegisteredAction, registry
from tasks.extensions.isolation import attempts, isolated
from tasks.extensions.isolation.calls import answer_of, process_for_action, value_of
from tasks.extensions.isolation.isolated import answer_to
from tasks.failures import Cancel
from tests.processes import wait_until
from tests.statements import failing
from tests.tasks.actions.attempting import assert_free_of_attempts, attempt, claimed, publish

pytestmark = pytest.mark.django_db(transaction=True)

AROUND = {"using": "default", "schema": "", "language": None, "time_zone": 0}
ASKED = {"task": 1, "token": "0" * 32, "action": "heard", "queue": "default", **AROUND}


class TestIsolated:
    def test_process_that_finds_no_database_says_that_the_action_did_not_begin(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def away(*args: Any, **kwargs: Any) -> Any:
            raise OperationalError("the connection was cut")

        monkeypatch.setattr(claims, "find", away)
        answer = answer_to(ASKED, print)
        assert answer["reason"] == "the attempt did not begin: the connection was cut"
        assert 0 < answer["not_begun"] <= 2

    @pytest.mark.parametrize("end", [TryAgainLater(7, "not yet"), Cancel("not here")])
    def test_end_that_the_action_raises_there_is_raised_here(
        self, monkeypatch: pytest.MonkeyPatch, end: TryAgainLater | Cancel
    ) -> None:
        def raise_it(*args: Any) -> Any:
            raise end

        monkeypatch.setattr(isolated, "carry_out", raise_it)
        with pytest.raises(type(end)) as raised:
            value_of(answer_to(ASKED, print))
        assert vars(raised.value) == vars(end)

    def test_process_that_cannot_set_django_up_begins_nothing(self, monkeypatch: pytest.MonkeyPatch) -> None:
        process = process_for_action(10_000)
        monkeypatch.setattr(process, "_spawn", lambda environment: None)
        monkeypatch.setattr(process, "ask", lambda *args, **options: {"not_ready": "the server is starting"})
        answer = answer_of(process, {})
        assert answer["reason"] == "the attempt did not begin: the server is starting"
        assert answer["not_begun"] > 0

    def test_says_how_far_it_is_until_it_answers(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(isolated, "SAY_EVERY", 0.01)
        said: list[Any] = []
        held = SimpleNamespace(kept={})
        with isolated._saying(held, said.append):
            REACHED.note(held, reached(1, 2, "one"))
            wait_until(lambda: said)
        assert said == [{"reached": [1, 2, "one"]}]
        heard: list[Any] = []
        process = process_for_action(10_000)
        process.reached = lambda *args: heard.append(args)
        lines = iter([*said, {"value": 7}])
        monkeypatch.setattr(process, "_next", lambda ready_within: next(lines))
        assert (process.answer(), heard) == ({"value": 7}, [(1, 2, "one")])

    def test_process_makes_no_file_in_place_of_a_deleted_one(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        gone = tmp_path / "gone.sqlite3"
        handler = ConnectionHandler({"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": gone}})
        monkeypatch.setattr("tasks.extensions.isolation.isolated.connections", handler)
        answer = answer_to(ASKED, print)
        assert answer["reason"] == f"the attempt did not begin: database file {gone} does not exist"
        assert not gone.exists()

    def isolated(self, monkeypatch: pytest.MonkeyPatch, **options: Any) -> None:
        action = RegisteredAction(name="heard", function=len, isolated=True, **options)
        monkeypatch.setitem(registry, "heard", {"": action})

    def test_process_that_cannot_be_started_costs_no_attempt(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def refuse(*args: Any, **kwargs: Any) -> Any:
            raise OSError(errno.EAGAIN, "Resource temporarily unavailable")

        self.isolated(monkeypatch)
        monkeypatch.setattr(subprocess, "Popen", refuse)
        task = publish()
        outcome, _ = attempt(claimed(), failing(monkeypatch, lambda number: False, lambda: False))
        assert_free_of_attempts(task, outcome)

    def test_a_further_try_that_does_not_begin_counts(self, monkeypatch: pytest.MonkeyPatch) -> None:
        failure = {"module": "builtins", "name": "ValueError", "message": "no", "traceback": "", "fingerprint": ""}
        answers = [{**failure, "final": False}, {"not_begun": 1.5, "reason": "away"}]
        self.isolated(monkeypatch, local_retries=1, local_delay=0.001)
        monkeypatch.setattr(attempts, "answer_of", lambda process, request: answers.pop(0))
        task = publish()
        attempt(claimed(), failing(monkeypatch, lambda number: False, lambda: False))
        task.refresh_from_db()
        assert (task.state, Report.objects.get().message) == ("errored", "no")
        assert Report.objects.get().error.endswith("ValueError")
