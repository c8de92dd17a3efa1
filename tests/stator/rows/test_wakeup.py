"""Workers are woken after the commit, told a label and nothing else, and found waiting where NOTIFY is missing."""

import pytest
from django.db import OperationalError, connection, transaction
from django.test import override_settings

from stator.rows import wakeup
from stator.runner import StatorRunner
from stator.signals import became_ready
from tests.processes import wait_until
from tests.sizes import PATIENCE
from tests.stator.making import at_once, put, raw
from tests.stator.running import hearing
from tests.testapp.models import Line, SyncLine


@pytest.fixture
def sent(monkeypatch):
    wakeup._sent.clear()
    statements = []

    def note(execute, sql, params, many, context):
        if "pg_notify" in sql:
            statements.append(params)
        return execute(sql, params, many, context)

    with connection.execute_wrapper(note):
        yield statements


@pytest.mark.postgresql
@pytest.mark.usefixtures("transactional_db")
class TestNotify:
    def test_label_alone_is_sent_once_the_rows_are_committed(self, sent):
        with transaction.atomic():
            Line.objects.create(name="secret")
            assert sent == []
        assert sent == [["stator", "testapp.line"]]

    def test_many_commits_at_once_send_once(self, sent, monkeypatch):
        monkeypatch.setattr(wakeup, "DEBOUNCE", 60.0)
        for _ in range(5):
            Line.objects.create()
        assert len(sent) == 1
        monkeypatch.setattr(wakeup, "DEBOUNCE", 0.0)
        Line.objects.create()
        assert len(sent) == 2

    def test_objects_of_one_transaction_are_told_of_once_for_each_model(self):
        with hearing(became_ready) as told, transaction.atomic():
            for _ in range(3):
                SyncLine.objects.create()
            # Those of a savepoint that is rolled back are not.
            with pytest.raises(ZeroDivisionError), transaction.atomic():
                Line.objects.create()
                raise ZeroDivisionError
            with transaction.atomic():
                SyncLine.objects.create()
            assert told == []
        assert {sender for sender, _ in told} == {SyncLine}

    def test_nothing_is_sent_where_nothing_became_ready_or_the_setting_turns_it_off(self, sent):
        Line.objects.create(state="last")
        with override_settings(STATOR={"NOTIFY": False}):
            Line.objects.create()
        assert sent == []

    def test_nobody_waits_until_a_notification_is_on_the_disk(self):
        with connection.cursor() as cursor:
            with transaction.atomic():
                cursor.execute(wakeup.NOTIFY, [wakeup.CHANNEL, "testapp.line"])
                cursor.execute("SHOW synchronous_commit")
                assert cursor.fetchone() == ("off",)
            cursor.execute("SHOW synchronous_commit")
            assert cursor.fetchone() == ("on",)

    def test_failing_to_notify_does_not_undo_the_commit(self):
        wakeup._sent.clear()

        def refuse(execute, sql, params, many, context):
            if "pg_notify" in sql:
                raise OperationalError("no")
            return execute(sql, params, many, context)

        with connection.execute_wrapper(refuse):
            Line.objects.create()
        assert raw(Line).count() == 1


def worked_on():
    """Whether a waiting worker takes a row that is created after it began to wait."""
    runner = StatorRunner([Line], run_for=PATIENCE)
    worker = runner.worker()

    def work():
        worker.run()

    def create():
        wait_until(lambda: hasattr(worker, "scheduler") and worker.scheduler.found_nothing)
        put(Line)
        wait_until(lambda: raw(Line).filter(state="last").exists())
        worker._loop.call_soon_threadsafe(worker.stop)

    at_once(work, create)
    return raw(Line).get().state == "last"


@pytest.mark.usefixtures("transactional_db")
@pytest.mark.parametrize("settings", [{"NOTIFY": True}, {"NOTIFY": False}], ids=["listening", "polling"])
def test_waiting_worker_takes_what_comes_whether_it_hears_of_it_or_not(settings):
    with override_settings(STATOR={"POLL_INTERVAL": 0.1, **settings}):
        assert worked_on()


@pytest.mark.postgresql
@pytest.mark.usefixtures("transactional_db")
def test_listener_that_cannot_connect_does_not_keep_rows_from_being_worked_on():
    dsn = "postgresql://nobody@127.0.0.1:1/nowhere"
    with override_settings(STATOR={"POLL_INTERVAL": 0.1, "LISTEN_DSN": dsn}):
        assert worked_on()
