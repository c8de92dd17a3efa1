"""Schedules of ``@periodic`` functions are made and changed as the code says, and checked."""

import pytest
from django.core import checks
from django.core.exceptions import ImproperlyConfigured

from stator.testing import drain
from tasks import periodic
from tasks.extensions.schedules.periodic_sync import check_functions, check_schedules, sync
from tasks.extensions.schedules.schedules import LEASE
from tasks.models import Queue, Schedule
from tests.stator.making import at_once, raw, row
from tests.tasks.schedules.making import declare, go

pytestmark = pytest.mark.usefixtures("registry")


@pytest.mark.django_db
class TestSync:
    def test_makes_one_schedule_for_each_function_however_often(self, calls):
        declare(calls, every=None, cron="*/5 * * * *", zone="Europe/Berlin", jitter=10, missed="skip", deadline=60)
        sync()
        go()
        before = Schedule.objects.values().get()
        sync()
        assert Schedule.objects.values().get() == before
        wanted = {"cron": "*/5 * * * *", "zone": "Europe/Berlin", "jitter": 10, "missed": "skip", "deadline": 60}
        assert wanted.items() <= before.items()

    def test_zone_is_that_of_the_project_by_default(self, calls, settings):
        settings.TIME_ZONE = "Asia/Tokyo"
        declare(calls, every=None, cron="0 9 * * *")
        sync()
        assert Schedule.objects.get().zone == "Asia/Tokyo"

    def test_each_entity_has_a_schedule_of_its_own(self, calls, registry, caplog):
        @periodic(every=60.0, name="flush", entity=("north", "south"))
        def flush(tick):
            calls.append((tick.entity, tick.index))

        sync()
        go()
        go(60)
        assert sorted(calls) == [("north", 0), ("south", 0)]
        registry.clear()
        declare(calls, entity="south")
        sync()
        removed = dict(Schedule.objects.values_list("entity", "removed"))
        assert removed == {"north": True, "south": False}
        assert caplog.messages.count("tasks.functions_removed") == 1

    def test_what_an_operator_changed_stays_until_the_code_changes(self, calls, registry):
        declare(calls)
        sync()
        Schedule.objects.update(period=300.0, enabled=False)
        sync()
        assert Schedule.objects.get().period == 300.0
        registry.clear()
        declare(calls, every=120.0)
        sync()
        schedule = Schedule.objects.get()
        assert (schedule.period, schedule.enabled) == (120.0, False)

    def test_schedule_of_a_function_that_is_gone_pauses_and_goes_on_where_a_worker_has_it(
        self, calls, registry, caplog
    ):
        declare(calls)
        sync()
        go()
        flush = registry.pop("flush")
        caplog.set_level("INFO", "tasks.schedules")
        # A worker with older code starts.
        sync()
        for _ in range(2):
            drain(Schedule)
            schedule = Schedule.objects.get()
            assert (schedule.removed, schedule.state, schedule.enabled) == (True, "paused", True)
        assert [record.names for record in caplog.records if record.msg == "tasks.functions_removed"] == [["flush"]]
        [warning] = check_schedules(databases=["default"])
        assert (warning.id, "no longer has this periodic function" in warning.msg) == ("tasks.W103", True)
        registry["flush"] = flush
        for _ in range(2):
            go(60)
        schedule = Schedule.objects.get()
        assert (schedule.removed, schedule.state, [index for index, _ in calls]) == (False, "waiting", [0])
        assert [record.names for record in caplog.records if record.msg == "tasks.functions_back"] == [["flush"]]
        # So has one that starts.
        registry.pop("flush")
        sync()
        drain(Schedule)
        assert row(schedule).state == "paused"
        registry["flush"] = flush
        sync()
        drain(Schedule)
        assert row(schedule).state == "waiting"

    def test_schedules_of_people_are_left_alone_and_their_names_refused_in_one_line(self, calls):
        queue = Queue.objects.create(name="ticks", actions_elsewhere=True)
        mine = Schedule.objects.create(name="flush", queue=queue, action="act", period=60.0)
        sync()
        assert not row(mine).removed
        declare(calls)
        with pytest.raises(ImproperlyConfigured, match=r"^@periodic flush: schedule \d+ has that name"):
            sync()


def test_workers_that_start_at_once_make_one_schedule(transactional_db, calls):
    declare(calls)
    at_once(*[sync] * 4)
    assert Schedule.objects.count() == 1


@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        ({"every": None}, "tasks.E101", "either a period or a cron"),
        ({"every": None, "cron": "hourly"}, "tasks.E101", "not a cron expression"),
        ({"every": LEASE}, "tasks.E102", "must be more than a lease of 10 s "),
        ({"every": None, "cron": "*/5 * * * * *"}, "tasks.E102", "5 s apart"),
    ],
)
def test_check_finds_what_cannot_work(calls, options, code, words):
    declare(calls, **options)
    [found] = check_functions()
    assert (found.id, found.level) == (code, checks.ERROR)
    assert words in found.msg
    with pytest.raises(ImproperlyConfigured, match="@periodic flush: "):
        sync()


@pytest.mark.django_db
def test_check_of_the_database_finds_schedules_that_cannot_work():
    queue = Queue.objects.create(name="ticks", actions_elsewhere=True)
    for name in ("fine", "hasty", "broken"):
        Schedule.objects.create(name=name, queue=queue, action="act", period=60.0)
    # Stored before the lease was raised.
    raw(Schedule).filter(name="hasty").update(period=5.0)
    Schedule.objects.filter(name="broken").update(jitter=40.0)
    found = list(check_schedules(databases=["default"]))
    assert [(message.id, message.level) for message in found] == [
        ("tasks.W102", checks.WARNING), ("tasks.W101", checks.WARNING),
    ]  # fmt: skip
    assert list(check_schedules(databases=None)) == []
