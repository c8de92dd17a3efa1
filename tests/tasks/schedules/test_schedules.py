"""Ticks: planned, fired, missed, paused, changed while they run; and presented again where they were not written."""

from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest
from django.core.exceptions import ValidationError
from django.db import IntegrityError, connection, transaction
from django.db.models import QuerySet

from stator.models import Report
from stator.testing import drain
from tasks.models import Queue, Schedule, Task
from tasks.schedules import ticking
from tasks.testing import advance
from tests.stator.making import change, row
from tests.tasks.making import make_queue


@pytest.fixture
def queue(db):
    return Queue.objects.create(name="ticks", actions_elsewhere=True)


def schedule_of(queue, **options):
    # Nobody runs the tasks.
    given = {"overlap": "allow", "queue": queue, "action": "act", "period": 60.0, **options}
    given = {"name": f"s{Schedule.objects.count()}", **given}
    return Schedule.objects.create(**{name: value for name, value in given.items() if value is not None})


def now():
    return datetime.now(UTC)


def seconds_until(moment):
    return (moment - now()).total_seconds()


def ticks_of(schedule):
    """The indexes of the ticks that were published, in order."""
    found = Task.objects.filter(key__startswith=f"{schedule.pk}:").order_by("pk")
    return [task.metadata["tick"] for task in found]


def planned_times(tasks):
    return [datetime.fromisoformat(task.metadata["planned"]) for task in tasks]


def daily_in(seconds):
    """A full minute about so far away: the place of a daily tick."""
    return (now() + timedelta(seconds=seconds)).replace(second=0, microsecond=0)


@pytest.fixture
def draws(monkeypatch):
    """Has chance draw what the test says."""

    class Chance:
        drawn = 0.0

        def uniform(self, least, most):
            return self.drawn

    monkeypatch.setattr(ticking, "chance", chance := Chance())
    return lambda drawn: setattr(chance, "drawn", drawn)


def go(seconds=0.0):
    """Let time pass, and do what is due then."""
    advance(seconds)
    drain(Schedule)


class TestTicks:
    def test_first_tick_is_a_period_away(self, queue):
        schedule = schedule_of(queue)
        go()
        assert ticks_of(schedule) == []
        planned = row(schedule).planned
        assert 58 < seconds_until(planned) <= 60
        # What the framework waits for is the tick, to the millisecond and never early.
        assert 0 <= (row(schedule).state_next_attempt - planned).total_seconds() < 0.5

    def test_each_tick_publishes_one_task_under_its_own_key(self, queue):
        schedule = schedule_of(queue, entity="channel-7", data={"a": 1}, metadata={"colour": "red"})
        for _ in range(4):
            go(60)
        assert ticks_of(schedule) == [0, 1, 2]
        task = Task.objects.get(key=f"{schedule.pk}:0")
        assert (task.queue, task.action, task.data) == (queue, "act", {"a": 1})
        assert task.metadata | {"planned": None} == {
            "colour": "red", "schedule": schedule.pk, "tick": 0, "entity": "channel-7", "planned": None,
        }  # fmt: skip

    def test_ticks_that_fire_late_do_not_shift_those_after_them(self, queue):
        schedule = schedule_of(queue)
        go()
        first = row(schedule).planned
        go(60)
        go(75)
        assert row(schedule).nominal - first == timedelta(seconds=120 - 135)
        assert ticks_of(schedule) == [0, 1]

    def test_cron_ticks_in_its_zone(self, queue):
        schedule = schedule_of(queue, period=None, cron="0 9 * * *", zone="Asia/Kolkata")
        go()
        planned = row(schedule).planned
        assert (planned.hour, planned.minute, planned.second) == (3, 30, 0)
        go(seconds_until(planned) + 1)
        assert ticks_of(schedule) == [0]
        assert planned_times(Task.objects.all())[0] == row(schedule).fired_for

    def test_nothing_fires_before_its_time_even_when_it_is_retried(self, queue):
        schedule = schedule_of(queue)
        go()
        planned = row(schedule).planned
        Schedule.stator.filter(pk=schedule.pk).retry()
        drain(Schedule)
        assert ticks_of(schedule) == []
        assert row(schedule).planned == planned

    def test_no_tick_comes_after_the_end(self, queue):
        schedule = schedule_of(queue, until=now() + timedelta(seconds=150))
        go()
        for _ in range(5):
            go(60)
        assert ticks_of(schedule) == [0, 1]
        assert row(schedule).state == "ended"

    def test_schedule_that_ended_goes_on_once_it_may(self, queue):
        schedule = schedule_of(queue, until=now() + timedelta(seconds=30))
        go()
        assert row(schedule).state == "ended"
        schedule.refresh_from_db()
        schedule.until = None
        schedule.save()
        go()
        go(60)
        assert ticks_of(schedule) == [0]

    def test_run_now_is_a_tick_more_and_leaves_the_timetable_alone(self, queue):
        schedule = schedule_of(queue, period=86400.0)
        go()
        planned = row(schedule).planned
        assert schedule.run_now()
        drain(Schedule)
        assert ticks_of(schedule) == [0]
        assert row(schedule).planned == planned
        go(86400)
        assert ticks_of(schedule) == [0, 1]

    def test_run_now_is_a_tick_more_than_one_that_is_due(self, queue):
        schedule = schedule_of(queue, period=86400.0)
        go()
        advance(86401)
        assert schedule.run_now()
        drain(Schedule)
        found = row(schedule)
        assert (ticks_of(schedule), found.asked) == ([0, 1], False)
        assert 86395 < seconds_until(found.planned) <= 86400

    def test_run_now_is_a_tick_more_than_the_last_one(self, queue):
        schedule = schedule_of(queue, until=now() + timedelta(seconds=90))
        go()
        advance(61)
        assert schedule.run_now()
        drain(Schedule)
        assert (ticks_of(schedule), row(schedule).state) == ([0, 1], "ended")

    def test_queue_that_takes_nothing_holds_the_tick(self, queue):
        schedule = schedule_of(queue)
        go()
        Queue.objects.update(publish_paused=True)
        go(60)
        found = row(schedule)
        assert (ticks_of(schedule), found.tick_index, found.state_failures) == ([], 0, 0)
        assert "accepts no tasks" in Report.objects.get(object_pk=str(schedule.pk)).message
        Queue.objects.update(publish_paused=False)
        go(ticking.PAUSED)
        assert ticks_of(schedule) == [0]

    def test_schedules_begin_anew_after_a_loss(self, queue):
        schedule = schedule_of(queue, missed="all")
        go()
        go(60)
        advance(86400)
        assert Schedule.objects.all().begin_anew(beyond=1000) == 1
        go()
        assert ticks_of(schedule) == [0]
        go(60)
        assert ticks_of(schedule) == [0, 1001]


class TestMissed:
    @pytest.mark.parametrize(
        ("missed", "deadline", "fired", "dropped"),
        [
            ("one", None, [120], 2),
            ("one", 20, [], 3),
            ("skip", None, [120], 2),
            ("skip", 20, [], 3),
            ("all", None, [0, 60, 120], 0),
            ("all", 100, [60, 120], 1),
            ("all", 20, [], 3),
        ],
    )
    def test_policies(self, queue, missed, deadline, fired, dropped):
        schedule = schedule_of(queue, missed=missed, deadline=deadline)
        go()
        go(seconds_until(row(schedule).planned) + 150)
        found = row(schedule)
        tasks = Task.objects.order_by("pk")
        base = found.nominal - timedelta(seconds=180)
        assert [round((moment - base).total_seconds()) for moment in planned_times(tasks)] == fired
        assert ticks_of(schedule) == list(range(len(fired)))
        assert found.dropped == dropped
        assert 25 < seconds_until(found.planned) <= 30

    def test_skip_lets_a_tick_go_that_is_a_minute_late(self, queue):
        schedule = schedule_of(queue, missed="skip", period=3600.0)
        go()
        go(3600 + 61)
        assert (ticks_of(schedule), row(schedule).dropped) == ([], 1)
        go(3600 - 61 + 30)
        assert (ticks_of(schedule), row(schedule).dropped) == ([0], 1)


class TestChanges:
    def test_new_period_takes_effect_at_once(self, queue):
        schedule = schedule_of(queue, period=86400.0)
        go()
        schedule.refresh_from_db()
        schedule.period = 20.0
        schedule.save()
        go()
        assert 18 < seconds_until(row(schedule).planned) <= 20
        go(20)
        assert ticks_of(schedule) == [0]

    def test_update_of_many_takes_effect_at_once(self, queue):
        first, second = schedule_of(queue, period=86400.0), schedule_of(queue, period=86400.0)
        go()
        assert Schedule.objects.filter(period=86400.0).update(period=20.0) == 2
        go()
        for schedule in (first, second):
            assert 18 < seconds_until(row(schedule).planned) <= 20

    def test_tick_that_was_due_before_the_change_still_fires(self, queue):
        schedule = schedule_of(queue)
        go()
        advance(61)
        Schedule.objects.update(period=3600.0)
        drain(Schedule)
        assert ticks_of(schedule) == [0]
        assert 3598 < seconds_until(row(schedule).planned) <= 3600

    @pytest.mark.parametrize("changed", [{"period": 3600.0}, {"jitter": 5.0}], ids=["period", "jitter"])
    @pytest.mark.parametrize("rules", [{"deadline": 5.0}, {"missed": "skip"}], ids=["deadline", "skip"])
    def test_tick_that_was_due_too_long_before_the_change_is_dropped(self, queue, rules, changed):
        schedule = schedule_of(queue, **rules, period=7200.0)
        go()
        advance(7200 + 3600)
        Schedule.objects.update(**changed)
        drain(Schedule)
        found = row(schedule)
        assert (ticks_of(schedule), found.dropped) == ([], 1)
        assert 3590 < seconds_until(found.planned) <= 3605

    def test_change_of_the_jitter_does_not_repeat_a_tick_that_came_early(self, queue, draws):
        place = daily_in(1200)
        schedule = schedule_of(queue, period=None, cron=f"{place:%M %H} * * *", jitter=1800.0)
        draws(-1500)
        change(schedule, planned_for=schedule.plan_key, nominal=place, planned=place - timedelta(seconds=1500))
        go()
        assert ticks_of(schedule) == [0]
        draws(0)
        Schedule.objects.update(jitter=300.0)
        go()
        assert (ticks_of(schedule), row(schedule).nominal) == ([0], place + timedelta(days=1))

    def test_change_of_the_jitter_does_not_leave_out_the_tick_to_come(self, queue, draws):
        place = daily_in(1200)
        schedule = schedule_of(queue, period=None, cron=f"{place:%M %H} * * *", jitter=300.0)
        draws(0)
        change(schedule, planned_for=schedule.plan_key, nominal=place, planned=place)
        draws(600)
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
        assert 58 < seconds_until(row(schedule).planned) <= 60
        go(60)
        assert (ticks_of(schedule), row(schedule).dropped) == ([0], 0)

    def test_schedule_enabled_behind_our_back_goes_on_with_the_next_pass(self, queue):
        schedule = schedule_of(queue, enabled=False)
        go()
        assert row(schedule).state == "paused"
        QuerySet(Schedule).update(enabled=True)
        drain(Schedule)
        assert row(schedule).state == "waiting"


class TestWhatCannotWork:
    @pytest.mark.parametrize(
        ("options", "words"),
        [
            ({"period": None}, "either a period or a cron"),
            ({"period": -1.0}, "above 0"),
            ({"jitter": 30.0}, "less than half"),
            ({"period": None, "cron": "nonsense"}, "not a cron expression"),
            ({"period": None, "cron": "0 0 * * *", "zone": "Nowhere"}, "not a time zone"),
            ({"deadline": 0.0}, "deadline=0.0 must be above 0"),
            ({"rate_limit": 1.0}, "go together"),
            ({"rate_limit": -1.0, "rate_key": "a"}, "above 0"),
            ({"missed": "some"}, "must be one of skip, one, all"),
            ({"action": ""}, "needs an action"),
            ({"action": "django:tests.testapp.tasks.add"}, "only Django's Tasks framework enqueues"),
            ({"until": datetime.max.replace(tzinfo=UTC)}, "until must be a moment"),
            ({"action": "a\nb"}, "printable characters"),
            ({"metadata": [1]}, "must be a dictionary"),
            ({"metadata": "x"}, "must be a dictionary"),
            ({"metadata": {"a": {}}}, "must be a text, a number"),
            ({"metadata": {"a": "x" * 16_370}}, "bytes as JSON; the most is 16,384"),
            ({"data": "x" * 262_144}, "bytes as JSON; the most is 262,144"),
            ({"data": [[[[1]]]]}, "nested deeper than 3 levels"),
            ({"rate_limit": 1e-300, "rate_key": "a"}, "must be at least 1e-06"),
        ],
        ids=lambda value: str(value)[:60],
    )
    def test_is_refused_when_it_is_saved(self, queue, settings, options, words):
        settings.STATOR_TASKS = {"PAYLOAD_DEPTH": 3}
        with pytest.raises(ValidationError, match=words):
            schedule_of(queue, **options)
        assert not Schedule.objects.exists()

    @pytest.mark.parametrize("given", [{"metadata": {"title": "a"}}, {"key": "entity", "entity": "a"}], ids=str)
    def test_exclusive_queue_needs_a_value_of_its_key(self, db, given):
        key = given.pop("key", "title")
        exclusive = make_queue("one", exclusive_key=key)
        with pytest.raises(ValidationError, match=f"must have a value of '{key}'"):
            schedule_of(exclusive)
        schedule_of(exclusive, **given)
        go()
        go(60)
        assert Task.objects.get().exclusive_value == "a"

    def test_reference_to_no_queue_is_refused_as_such(self, queue):
        with pytest.raises(ValidationError, match="queue instance with id 0 "):
            Schedule(name="a", queue_id=0, action="act", period=60.0).full_clean()

    def test_lease_must_be_shorter_than_the_period(self, queue):
        with pytest.raises(ValidationError, match="more than a lease of 10 s apart"):
            Schedule(name="a", queue=queue, action="act", period=10.0).full_clean()
        Schedule(name="a", queue=queue, action="act", period=11.0).full_clean()

    def test_is_an_error_of_the_schedule_when_it_was_written_unchecked(self, queue):
        bad, good = schedule_of(queue), schedule_of(queue)
        Schedule.objects.filter(pk=bad.pk).update(period=None, cron="nonsense")
        drain(Schedule)
        assert row(bad).state_failures == 1
        assert "nonsense" in Report.objects.get(object_pk=str(bad.pk)).message
        assert row(good).planned is not None

    def test_database_refuses_two_timetables_and_none(self, queue):
        schedule = schedule_of(queue)
        for values in ({"cron": "* * * * *"}, {"period": None}):
            with pytest.raises(IntegrityError), transaction.atomic():
                QuerySet(Schedule).filter(pk=schedule.pk).update(**values)

    def test_one_entity_has_one_schedule_of_a_name(self, queue):
        schedule_of(queue, name="flush", entity="a")
        schedule_of(queue, name="flush", entity="b")
        with pytest.raises(IntegrityError), transaction.atomic():
            schedule_of(queue, name="flush", entity="a")


class TestCrash:
    def test_same_index_is_presented_again_after_an_error_between_work_and_write(self, queue, monkeypatch):
        schedule = schedule_of(queue)
        go()
        presented, publish = [], Queue.publish_many

        def note(self, given, **options):
            given = list(given)
            presented.extend(message["key"] for message in given)
            published = publish(self, given, **options)
            if len(presented) == 1:
                raise ConnectionError("between work and write")
            return published

        monkeypatch.setattr(Queue, "publish_many", note)
        go(60)
        assert (ticks_of(schedule), row(schedule).tick_index, row(schedule).state_failures) == ([], 0, 1)
        go(60)
        assert presented == [f"{schedule.pk}:0"] * 2
        assert (ticks_of(schedule), row(schedule).tick_index) == ([0], 1)

    def test_second_presentation_of_an_index_does_nothing(self, queue):
        schedule = schedule_of(queue)
        go()
        before = row(schedule)
        go(60)
        # As if what was written of the tick had been lost, and the task had not.
        change(schedule, tick_index=0, nominal=before.nominal, planned=before.planned)
        go(61)
        assert ticks_of(schedule) == [0]
        assert row(schedule).tick_index == 1


class TestManyAtOnce:
    def test_those_that_begin_at_one_moment_spread_and_keep_their_mean(self, transactional_db, monkeypatch):
        """R4.2, on a virtual clock: one look for work every fifteen seconds, ten periods long and a half."""
        # A quarter of the thousand that test_timetable has, or a tenth, counted in seconds so many times as long.
        count, second = (250, 4) if connection.vendor == "postgresql" else (100, 10)
        period, step, published, times = 60, 15, [], {}
        # With transactions that end: in one alone, PostgreSQL would have to step over every former version of each row.
        queue = Queue.objects.create(name="ticks", actions_elsewhere=True)
        monkeypatch.setattr(Queue, "publish_many", lambda self, given: published.extend(given))
        Schedule.objects.bulk_create(
            Schedule(name="tick", entity=str(n), queue=queue, action="act", period=period, jitter=15)
            for n in range(count)
        )
        drain(Schedule)
        start = now()
        for elapsed in range(step, 11 * period + 1, step):
            advance(step, Schedule)
            drain(Schedule)
            for told in (message["metadata"] for message in published):
                assert (told["entity"], told["tick"]) not in times, "fired twice"
                planned = datetime.fromisoformat(told["planned"])
                times[told["entity"], told["tick"]] = (planned - start).total_seconds() + elapsed
            published.clear()
        tenth = Counter(moment // second for moment in times.values() if 9.5 * period <= moment < 10.5 * period)
        assert sum(tenth.values()) > 0.8 * count
        assert max(tenth.values()) < 3 * count * second / period
        spans = [times[str(n), 9] - times[str(n), 0] for n in range(count)]
        # No entity drifts: after nine periods each is within one of where it began, so the mean is the period.
        assert max(abs(span - 9 * period) for span in spans) <= period
        assert abs(sum(spans) / count / 9 - period) < 1
