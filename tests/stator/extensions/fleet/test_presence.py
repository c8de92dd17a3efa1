"""The row of a process in the table of workers."""

import os
from datetime import timedelta

import pytest
from django.db import OperationalError, connections
from django.db.models.functions import Now

from stator import __version__
from stator.db import own_tables
from stator.db.interface import new_worker_id
from stator.extensions.fleet.presence import Presence, published_by
from stator.models import Worker
from stator.rows.workers import live_workers, name_of
from stator.signals import on_heartbeat
from tests.stator.making import operations_of, raw
from tests.stator.running import connected
from tests.stator.worker.fakes import node_away
from tests.testapp.explained import Errand

pytestmark = pytest.mark.django_db(transaction=True)

FIGURES = {"running": 1, "handled": 2, "lost": 3}


@pytest.fixture
def presence():
    return Presence(new_worker_id(), [operations_of(Errand)], lambda: dict(FIGURES))


def test_first_word_of_a_process_writes_its_row(presence):
    presence.show()
    worker = Worker.objects.get()
    assert (worker.pid, worker.version, worker.database) == (os.getpid(), __version__, "default")
    assert (worker.models, worker.stopped) == (["testapp.errand"], None)
    assert (worker.running, worker.handled, worker.lost) == (1, 2, 3)
    assert live_workers("default") == [worker]
    assert worker.serves("testapp.errand")
    assert not worker.serves("testapp.order")


def test_further_words_are_one_update_and_rare(presence, django_assert_max_num_queries):
    """In a transaction, so that the update waits for no lock for long."""
    presence.show()
    raw(Worker).update(heartbeat=Now() - timedelta(hours=1))
    with django_assert_max_num_queries(0):
        presence.show()
    presence._shown -= 11
    FIGURES["handled"] = 9
    # The second one looks for processes of this host that are gone.
    with django_assert_max_num_queries(6):
        presence.show()
    assert (Worker.objects.live().count(), Worker.objects.get().handled) == (1, 9)


@pytest.mark.django_db(transaction=True, databases=["default", "other"])
def test_database_that_is_away_keeps_no_word_from_another():
    def down(*args):
        raise OperationalError("away")

    both = [operations_of(Errand, "vendor", alias) for alias in ("other", "default")]
    presence = Presence(new_worker_id(), both, lambda: dict(FIGURES))
    with connections["other"].execute_wrapper(down), pytest.raises(OperationalError, match="away"):
        presence.show()
    assert Worker.objects.using("default").live().count() == 1
    # It is said again, there as well.
    presence.show()
    assert Worker.objects.using("other").live().count() == 1


@pytest.mark.django_db(transaction=True, databases=["default", "other"])
def test_node_that_is_away_keeps_no_word_from_another_however_long():
    def away(*args):
        raise node_away()

    both = [operations_of(Errand, "vendor", alias) for alias in ("default", "other")]
    presence = Presence(new_worker_id(), both, lambda: dict(FIGURES))
    with connections["other"].execute_wrapper(away):
        for _ in range(2):
            presence.show()
            presence._shown -= 11
            assert raw(Worker).all().delete()[0] == 1


def test_what_apps_publish_is_written_when_it_changes(statements_of_show):
    published = {"colors": ["red"]}
    presence = Presence(new_worker_id(), [operations_of(Errand)], lambda: dict(FIGURES), lambda: dict(published))
    assert "published" in statements_of_show(presence)
    assert Worker.objects.get().published == {"colors": ["red"]}
    assert "published" not in statements_of_show(presence)
    published["colors"] = ["blue"]
    assert "published" in statements_of_show(presence)
    assert Worker.objects.get().published == {"colors": ["blue"]}


@pytest.fixture
def statements_of_show(django_assert_max_num_queries):
    """The statements of one refresh, as text."""

    def show(presence):
        presence._shown -= 11
        with django_assert_max_num_queries(9) as asked:
            presence.show()
        return " ".join(query["sql"] for query in asked.captured_queries)

    return show


def test_receivers_publish_and_a_faulty_one_keeps_nothing_from_the_others(caplog):
    answers = [{"a": 1}, None, ["no dictionary"], {"b": object()}, {"c": "x" * 70_000}, {"d": 2}]
    receivers = [lambda sender, answer=answer, **kwargs: answer for answer in answers]

    def broken(sender, **kwargs):
        raise ValueError("no")

    with caplog.at_level("ERROR", "stator.worker"):
        found = published_with([broken, *receivers])
    assert found == {"a": 1, "d": 2}


def published_with(receivers):
    with connected(on_heartbeat, *receivers):
        return {name: value for name, value in published_by(object()).items() if name != "tasks"}


def test_last_word_marks_the_row_stopped(presence):
    presence.show()
    presence.leave()
    assert Worker.objects.get().stopped is not None
    assert live_workers("default") == []


# The table of workers: written at the start, refreshed while the process lives, closed at its end


def test_worker_whose_row_comes_after_its_first_claim_has_its_name_then():
    worker = new_worker_id()
    assert name_of(worker, "default") == worker
    Worker.objects.create(id=worker, name="bot-1", host="h", pid=1, version="1", models=[])
    assert name_of(worker, "default") == "bot-1"


def test_rows_of_workers_that_are_gone_are_pruned_after_a_day(presence):
    presence.show()
    raw(Worker).create(id="0" * 12, host="ash", pid=1, version="1", database="default")
    raw(Worker).filter(pk="0" * 12).update(heartbeat=Now() - timedelta(hours=25))
    assert own_tables.prune("default", 10, errors=100, history=100, stats=100) == 1
    assert Worker.objects.count() == 1
