"""A status in numbers, or null, and dates of the rows, over the nodes."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from stator.db.tables import lack_of
from stator.models import History
from stator.rows.clock import Now
from stator.testing import advance
from tests.citus.conftest import MakeDatabase, over_the_nodes
from tests.citus.test_operating import Router, run
from tests.testapp.spreading import Telegram, TelegramGraph

pytestmark = [pytest.mark.citus, pytest.mark.django_db(databases=[])]


@pytest.fixture(autouse=True)
def site(make_database: MakeDatabase, settings: Any) -> Iterator[None]:
    """A site whose table of telegrams is over the nodes."""
    alias = over_the_nodes(make_database, Telegram="shard")
    assert lack_of(Telegram, alias) == ""
    settings.DATABASE_ROUTERS = [Router()]
    yield
    settings.DATABASE_ROUTERS = []


def telegrams(count: int = 5, **values: Any) -> list[Telegram]:
    return Telegram.objects.bulk_create([Telegram(**values) for _ in range(count)])


def after(seconds: float) -> Any:
    return Now() + timedelta(seconds=seconds)


def test_numbers_and_nulls_are_attempted_by_their_dates() -> None:
    telegrams(), telegrams(status=None), telegrams(status=0), telegrams(text="fail")
    early = telegrams(send_after=after(3600))
    telegrams(text="remind", patience=timedelta(hours=1), send_after=after(-60))
    assert run(Telegram, 3) == {"queued": 10, "reminding": 5, "sent": 10, "unmanaged": 5}
    assert sorted({each.status for each in Telegram.objects.exclude(status=None)}) == [0, 2, 3]
    assert early[0].explain()[0].numbers["due_by"] == "send_after"
    assert Telegram.stator.explain_counts()["not_due"] == 10
    # Whoever writes the date, also by a statement of many rows.
    Telegram.objects.filter(pk__in=[each.pk for each in early]).update(send_after=after(-1))
    Telegram.objects.filter(status=3).update(patience=timedelta(0))
    assert run(Telegram, 3) == {"queued": 5, "sent": 15, "lost": 5, "unmanaged": 5}
    assert Telegram.stator.filter(status="queued").retry(actor="ina") == 5
    assert Telegram.objects.filter(status=None).update(status=TelegramGraph.queued, send_after=after(3600)) == 5
    assert run(Telegram, 3) == {"queued": 10, "sent": 15, "lost": 5}


def test_date_that_is_moved_holds_for_objects_that_were_ready() -> None:
    made = telegrams()
    Telegram.objects.update(send_after=after(3600))
    assert run(Telegram, 2) == {"queued": 5}
    made[0].transition_perform("sent")
    assert made[0].stator.send("again", by="ina").outcome == "moved"
    assert run(Telegram, 2) == {"queued": 5}
    advance(3601, Telegram)
    assert run(Telegram, 2) == {"sent": 5}


def test_objects_are_timed_out_by_their_dates() -> None:
    telegrams(send_after=after(3600), expires=after(60)), telegrams(expires=after(60), patience=timedelta(hours=1))
    assert run(Telegram, 2) == {"queued": 5, "sent": 5}
    advance(61, Telegram)
    assert run(Telegram, 2) == {"sent": 5, "lost": 5}
    Telegram.objects.update(patience=timedelta(0))
    assert run(Telegram, 2) == {"lost": 10}
    reasons = set(History.objects.filter(to="lost").values_list("reason", flat=True))
    assert reasons == {"timed out by expires", "timed out by expires + patience"}
