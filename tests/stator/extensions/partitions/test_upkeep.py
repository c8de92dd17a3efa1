"""The upkeep of partitions: made ahead, dropped when past, and no write that fails meanwhile."""

import logging
from contextlib import contextmanager
from datetime import timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from stator.extensions.partitions import upkeep
from stator.extensions.partitions.tables import AHEAD, read, start_of
from stator.extensions.partitions.upkeep import locked, maintain
from stator.models import History, Stats
from stator.worker.duties import PRUNE
from tests.stator.dividing import day, divided, execute, names, other_session
from tests.stator.making import ago, operations_of
from tests.testapp.basic import Step

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.postgresql]

DAY = 86400.0
PAST = [day(f"2020-0{month}-01") for month in (1, 2, 3)]
JANUARY, FEBRUARY = ("stator_history_20200101", "stator_history_20200201")


def event(at):
    return History.objects.create(model_label="x", object_pk="1", version=1, source="a", at=at)


def test_a_month_past_its_retention_is_dropped_and_leaves_no_dead_rows():
    with divided("stator.History", "month", *PAST):
        for moment in PAST[:2]:
            event(moment + timedelta(days=3))
        recent = event(ago(60))
        # Between the end of January and that of February, in days from now.
        age = (timezone.now() - day("2020-02-15")).total_seconds()
        maintain(History, "default", age)
        assert JANUARY not in names(History)
        assert FEBRUARY in names(History)
        assert History.objects.count() == 2
        maintain(History, "default", 90 * DAY)
        assert list(History.objects.all()) == [recent]
        execute("SELECT pg_stat_clear_snapshot()")
        dead = execute("SELECT sum(n_dead_tup) FROM pg_stat_user_tables WHERE starts_with(relname, 'stator_history')")
        assert dead == [(0,)]


def test_partitions_are_made_ahead_and_only_once():
    with divided("stator.Stats", "week", *PAST[:2]):
        # The partitions that the conversion made; the first of them took the current week.
        for name in names(Stats) - {"stator_stats_default"}:
            execute(f"DROP TABLE {name}")
        start = start_of(timezone.now(), "week")
        execute(
            f"CREATE TABLE stator_stats_old PARTITION OF stator_stats"
            f" FOR VALUES FROM ('{start - timedelta(days=14)}') TO ('{start - timedelta(days=7)}')"
        )
        assert maintain(Stats, "default", 400 * DAY) == AHEAD["week"] + 1
        assert not read(Stats, "default").missing()
        assert f"stator_stats_{start:%Y%m%d}" in names(Stats)
        assert maintain(Stats, "default", 400 * DAY) == 0


def test_rows_that_no_partition_takes_are_written_and_found_and_go_with_their_retention():
    with divided("stator.History", "month", *PAST):
        first, second = event(day("2019-05-05")), event(ago(0))
        assert set(History.objects.all()) == {first, second}
        # The second one is in the default partition as well, so that is not emptied, and its month has none.
        maintain(History, "default", 90 * DAY)
        assert set(History.objects.all()) == {first, second}
        assert f"stator_history_{start_of(second.at, 'month'):%Y%m%d}" not in names(History)
        assert read(History, "default").missing()
        second.delete()
        maintain(History, "default", 90 * DAY)
        assert not History.objects.exists()
        assert not read(History, "default").missing()


def test_a_row_that_arrives_while_the_table_is_waited_for_is_not_emptied_with_the_others(monkeypatch):
    with divided("stator.History", "month", *PAST), monkeypatch.context() as racing:
        event(day("2019-05-05"))

        @contextmanager
        def late(connection, place):
            new.append(event(day("2300-01-01")))
            with locked(connection, place) as cursor:
                yield cursor

        new = []
        racing.setattr(upkeep, "locked", late)
        maintain(History, "default", 90 * DAY)
        assert {*new} < {*History.objects.all()}


def test_a_partition_in_use_is_left_for_the_next_time(caplog, monkeypatch):
    caplog.set_level(logging.INFO, "stator.partitions")
    with divided("stator.History", "month", *PAST):
        event(PAST[0])
        with other_session() as report, monkeypatch.context() as usual:
            usual.setattr(upkeep, "WAIT", 0.05)
            report.execute("SELECT count(*) FROM stator_history")
            assert maintain(History, "default", 90 * DAY) == 0
        assert "stator.partitions_locked" in caplog.text
        assert JANUARY in names(History)
        maintain(History, "default", 90 * DAY)
        assert not History.objects.exists()


def test_a_partition_may_be_kept():
    with divided("stator.History", "month", *PAST):
        maintain(History, "default", 90 * DAY, lambda partition: partition.name != JANUARY)
        assert (JANUARY in names(History), FEBRUARY in names(History)) == (True, False)


def test_a_role_that_does_not_own_the_table_changes_nothing_and_says_so(caplog):
    with divided("stator.History", "month", *PAST):
        execute("CREATE ROLE runner_of_partitions")
        try:
            # A test database of Citus has a schema of its own, which not everybody may use.
            [(schema,)] = execute("SELECT quote_ident(current_schema())")
            execute(f"GRANT USAGE ON SCHEMA {schema} TO runner_of_partitions")
            execute("GRANT SELECT ON stator_history TO runner_of_partitions")
            execute("SET ROLE runner_of_partitions")
            assert maintain(History, "default", 90 * DAY) == 0
        finally:
            execute("RESET ROLE")
            execute("DROP OWNED BY runner_of_partitions")
            execute("DROP ROLE runner_of_partitions")
        assert "stator.partitions_not_owned" in caplog.text
        assert JANUARY in names(History)


def test_the_duty_of_workers_drops_partitions_and_deletes_no_row_of_them():
    with divided("stator.History", "month", *PAST):
        event(PAST[0])
        with CaptureQueriesContext(connection) as asked:
            PRUNE.call(operations_of(Step))
        assert JANUARY not in names(History)
        assert not [each["sql"] for each in asked if each["sql"].startswith('DELETE FROM "stator_history"')]
