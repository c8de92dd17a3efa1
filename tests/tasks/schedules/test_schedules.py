"""Ticks: planned, fired, missed, paused, changed while they run; and presented again where they were not written."""

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest
from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction

from stator.models import Report
from stator.testing import drain
from tasks.extensions.schedules import ticking
from tasks.models import Schedule, Task
from tasks.testing import advance
from tests.stator.making import change, raw, row
from tests.tasks.schedules.making import go, now, schedule_of, seconds_until, ticks_of


class TestChanges:
    def test_new_period_takes_effect_at_once(self, queue):
        schedule = schedule_of(queue, period=86400.0)
        go()
        schedule.refresh_from_db()
        schedule.period = 20.0
        schedule.save()
        go()
        assert 0 < seconds_until(row(schedule).planned) <= 20
        go(20)
        assert ticks_of(schedule) == [0]

    def test_tick_that_was_due_before_the_change_still_fires(self, queue):
        schedule = schedule_of(queue)
        go()
        advance(61, Schedule)
        Schedule.objects.update(period=3600.0)
        drain(Schedule)
        assert ticks_of(schedule) == [0]
        assert 3000 < seconds_until(row(schedule).planned) <= 3600

    @pytest.mark.parametrize("changed", [{"period": 3600.0}, {"jitter": 5.0}], ids=["period", "jitter"])
    @pytest.mark.parametrize("rules", [{"deadline": 5.0}, {"missed": "skip"}], ids=["deadline", "skip"])
    def test_tick_that_was_due_too_long_before_the_change_is_dropped(self, queue, rules, changed):
        schedule = schedule_of(queue, **rules, period=7200.0)
        go()
        advance(7200 + 3600, Schedule)
        Schedule.objects.update(**changed)
        drain(Schedule)
        found = row(schedule)
        assert (ticks_of(schedule), found.dropped) == ([], 1)
        assert 3000 < seconds_until(found.planned) <= 3605

    def test_change_of_the_jitter_does_not_leave_out_the_tick_to_come(self, queue, monkeypatch):
        place = (now() + timedelta(seconds=1200)).replace(second=0, microsecond=0)
        schedule = schedule_of(queue, period=None, cron=f"{place:%M %H} * * *", jitter=300.0)
        change(schedule, planned_for=schedule.plan_key, nominal=place, planned=place)
        monkeypatch.setattr(ticking, "chance", SimpleNamespace(uniform=lambda least, most: 600.0))
        Schedule.objects.update(jitter=1800.0)
        go()
        found = row(schedule)
        assert (ticks_of(schedule), found.nominal, found.planned) == ([], place, place + timedelta(seconds=600))

    def test_change_of_what_is_published_does_not_move_the_ticks(self, queue):
        schedule = schedule_of(queue)
        go()
        planned = row(schedule).planned
        schedule.refresh_from_db()
        schedule.data = [1]
        schedule.save()
        drain(Schedule)
        assert row(schedule).planned == planned
        go(60)
        assert Task.objects.get().data == [1]

    def test_stale_copy_does_not_undo_a_tick(self, queue):
        schedule = schedule_of(queue)
        go()
        stale = row(schedule)
        go(60)
        stale.data = {"new": True}
        stale.save()
        assert row(schedule).tick_index == 1
        go(60)
        assert ticks_of(schedule) == [0, 1]

    def test_disabled_schedule_pauses_and_what_it_missed_meanwhile_is_forgotten(self, queue):
        schedule = schedule_of(queue, missed="all")
        go()
        Schedule.objects.update(enabled=False)
        drain(Schedule)
        assert row(schedule).state == "paused"
        assert not schedule.run_now()
        go(3600)
        assert ticks_of(schedule) == []
        Schedule.objects.update(enabled=True)
        go()
        assert row(schedule).state == "waiting"
        assert 0 < seconds_until(row(schedule).planned) <= 60
        go(60)
        assert (ticks_of(schedule), row(schedule).dropped) == ([0], 0)


class TestWhatCannotWork:
    def test_is_refused_when_it_is_saved(self, queue, settings):
        settings.STATOR_TASKS = {"PAYLOAD_DEPTH": 3}
        for options, words in (
            ({"period": None}, "either a period or a cron"),
            ({"jitter": 30.0}, "less than half"),
            ({"period": None, "cron": "nonsense"}, "not a cron expression"),
            ({"deadline": 0.0}, "deadline=0.0 must be above 0"),
            ({"rate_limit": 1.0}, "go together"),
            ({"missed": "some"}, "must be one of skip, one, all"),
            ({"overlap": "some"}, "overlap"),
            ({"action": ""}, "needs an action"),
            ({"action": "django:tests.testapp.tasks.add"}, "only Django's Tasks framework enqueues"),
            ({"until": datetime.max.replace(tzinfo=UTC)}, "until must be a moment"),
            ({"action": "a\nb"}, "printable characters"),
            ({"metadata": {"a": {}}}, "must be a text, a number"),
            ({"data": "x" * 262_144}, "bytes as JSON; the most is 262,144"),
            ({"data": [[[[1]]]]}, "nested deeper than 3 levels"),
            ({"rate_limit": 1e-300, "rate_key": "a"}, "must be at least 1e-06"),
            ({"task_key": "same"}, "task_key"),
            ({"task_key": "{tick}\0"}, "task_key"),
            ({"task_key": "{entity}" * 20 + "{tick}", "entity": "x" * 20}, "task_key"),
            ({"timeout": 0.0}, "timeout"),
            ({"max_attempts": 0}, "max_attempts"),
            ({"priority": 2**63}, "priority"),
            ({"name": "n" * 201}, "name has 201 characters; at most 200"),
        ):
            with pytest.raises(ValidationError, match=words):
                schedule_of(queue, **options)
        assert not Schedule.objects.exists()

    def test_lease_must_be_shorter_than_the_period_and_the_queue_must_be_there(self, queue):
        with pytest.raises(ValidationError, match="more than a lease of 10 s "):
            Schedule(name="a", queue=queue, action="act", period=10.0).full_clean()
        Schedule(name="a", queue=queue, action="act", period=11.0).full_clean()
        with pytest.raises(ValidationError, match="queue instance with id 0 "):
            Schedule(name="a", queue_id=0, action="act", period=60.0).full_clean()

    @pytest.mark.parametrize("hasty", [{"period": 5.0}, {"period": None, "cron": "*/5 * * * * *"}], ids=str)
    def test_period_within_the_lease_is_refused_however_it_is_written(self, queue, hasty):
        schedule, rows = schedule_of(queue), Schedule.objects
        other = {"name": "hasty", "queue": queue, "action": "act", **hasty}
        for name, value in hasty.items():
            setattr(schedule, name, value)
        for write in (
            lambda: rows.create(**other),
            lambda: rows.get_or_create(name="hasty", defaults=other),
            lambda: rows.bulk_create([Schedule(**other)]),
            schedule.save,
            lambda: rows.update(**hasty),
            lambda: rows.bulk_update([schedule], [*hasty]),
        ):
            told = "its ticks are 5 s apart; they must be more than a lease of 10 s "
            with pytest.raises(ValidationError, match=told), transaction.atomic():
                write()
        assert list(rows.values_list("period", "cron")) == [(60.0, "")]

    def test_stored_schedule_whose_period_the_lease_has_outgrown_can_still_be_changed(self, queue):
        schedule = schedule_of(queue)
        raw(Schedule).update(period=5.0)
        schedule.refresh_from_db()
        schedule.data = {"a": 1}
        schedule.save()
        Schedule.objects.update(enabled=False)
        assert (row(schedule).data, row(schedule).enabled) == ({"a": 1}, False)
        schedule.period = 6.0
        with pytest.raises(ValidationError, match="6 s apart"):
            schedule.save()

    def test_is_an_error_of_the_schedule_when_it_was_written_unchecked(self, queue):
        bad, good = schedule_of(queue), schedule_of(queue)
        Schedule.objects.filter(pk=bad.pk).update(period=None, cron="nonsense")
        drain(Schedule)
        # It may be due again before the other was found.
        assert row(bad).state_failures >= 1
        assert "nonsense" in Report.objects.get(object_pk=str(bad.pk)).message
        assert row(good).planned is not None

    def test_one_entity_has_one_schedule_of_a_name(self, queue):
        schedule_of(queue, name="flush", entity="a")
        schedule_of(queue, name="flush", entity="b")
        with pytest.raises(IntegrityError), transaction.atomic():
            schedule_of(queue, name="flush", entity="a")
