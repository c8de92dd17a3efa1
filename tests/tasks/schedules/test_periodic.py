"""Functions on a timetable: registered, given schedules when workers start, called with their tick."""

import subprocess
import sys

import pytest

from stator.exceptions import TryAgainLater
from stator.models import Report
from tasks import periodic
from tasks.extensions.notices.sending import send_notices
from tasks.extensions.schedules.periodic_sync import sync
from tasks.models import Schedule
from tests.processes import environment_for_subprocess
from tests.tasks.schedules.making import declare, go

pytestmark = pytest.mark.usefixtures("registry")

letters = []


def keep(letter):
    letters.append(letter)


@pytest.mark.django_db
class TestCalls:
    def test_function_is_called_with_each_tick(self, calls):
        declare(calls)
        sync()
        for _ in range(3):
            go(60)
        schedule = Schedule.objects.get()
        assert calls == [(0, f"{schedule.pk}:0"), (1, f"{schedule.pk}:1")]
        assert (schedule.state, schedule.tick_index) == ("waiting", 2)

    def test_functions_may_be_asynchronous_and_take_nothing(self, calls):
        @periodic(every=60.0)
        async def count():
            calls.append(await Schedule.objects.acount())

        sync()
        go()
        go(60)
        assert calls == [1]
        assert Schedule.objects.get().name == f"{__name__}.{count.__qualname__}"

    @pytest.mark.needs("reports", "notices")
    def test_failed_ticks_are_counted_and_told_once_until_one_succeeds(self, calls, settings):
        settings.STATOR_TASKS = {"NOTIFY": "tests.tasks.schedules.test_periodic.keep"}
        letters.clear()

        @periodic(every=3600.0, name="backup")
        def backup(tick):
            calls.append(tick.index)
            assert tick.key == f"{Schedule.objects.get().pk}:{tick.index}"
            if tick.index < 2:
                raise OSError("S3 bucket\nis gone")

        sync()
        go()
        for failed in (1, 2):
            go(3600)
            for _ in range(3):
                go(60)
            go(1)
            send_notices("default")
            schedule = Schedule.objects.get()
            assert (schedule.state, schedule.failed_ticks) == ("waiting", failed)
            assert schedule.last_error == "OSError: S3 bucket is gone"
            # What an operator edits meanwhile loses no count.
            schedule.save()
        assert schedule.result == "last 2 ticks failed: OSError: S3 bucket is gone"
        [letter] = letters
        assert (str(letter), letter.id, letter.attempts) == ("a tick of schedule backup", schedule.pk, 1)
        assert letter.errors == ["OSError: S3 bucket is gone"]
        go(3600)
        schedule = Schedule.objects.get()
        assert (calls, schedule.failed_ticks) == ([0, 0, 0, 1, 1, 1, 2], 0)
        assert (schedule.result, schedule.last_error, schedule.notice_due) == ("succeeded", "", None)

    def test_function_may_ask_for_more_time(self, calls):
        @periodic(every=3600.0)
        def later(tick):
            calls.append(tick.index)
            if len(calls) == 1:
                raise TryAgainLater(30, "not yet")

        sync()
        go()
        go(3600)
        go(30)
        assert calls == [0, 0]

    def test_worker_without_the_function_leaves_the_tick_to_others(self, calls, registry):
        declare(calls, every=86400.0)
        sync()
        go()
        registry.clear()
        go(86400)
        schedule = Schedule.objects.get()
        assert (schedule.state, schedule.state_failures) == ("calling", 0)
        assert "no periodic function flush" in Report.objects.get().message
        declare(calls, every=86400.0)
        go(60)
        assert [index for index, _ in calls] == [0]


def test_decorator_without_a_timetable_and_functions_of_more_than_the_tick_are_refused():
    with pytest.raises(TypeError, match=r"needs a timetable: @tasks.periodic\(every=60\)"):
        periodic(lambda: None)
    with pytest.raises(TypeError, match="may take the tick and nothing else"):
        periodic(every=60)(lambda tick, other: None)
    with pytest.raises(TypeError, match="may take the tick and nothing else"):
        periodic(every=60)(lambda *, tick: None)
    periodic(every=60)(lambda tick, other=None: None)


def test_two_functions_of_one_name_are_refused(calls):
    declare(calls)
    with pytest.raises(ValueError, match="another function is named 'flush'"):
        declare(calls)


def test_decorators_are_imported_as_the_guides_say():
    program = """
from tasks.periodic import periodic
import tasks
assert tasks.periodic is periodic
from tasks import action

@periodic(every=60, jitter=15, name="flush")
def flush(tick): ...

@action("resize-in-a-fresh-process", queue="encode")
def resize(image): ...

from tasks.extensions.schedules.periodic import registry
from tasks.actions.registry import registry as actions
assert registry["flush"].function is flush
assert "resize-in-a-fresh-process" in actions
"""
    subprocess.run([sys.executable, "-W", "error", "-c", program], env=environment_for_subprocess(), check=True)
