"""Workers that are killed while they move the last of many related objects: what waits for those moves once."""

import random
from threading import Event

import pytest
from django.db import connection

from tests.testapp.baskets import Basket, Item

pytestmark = [pytest.mark.fault, pytest.mark.harmed, pytest.mark.django_db(transaction=True)]

VERY_MANY = {"postgresql": 100_000, "sqlite": 10_000, "mysql": 10_000}
FEW = 4


def filled(baskets: int, items: int) -> None:
    """Baskets that wait for their items."""
    Basket.objects.bulk_create(Basket() for _ in range(baskets))
    made = Basket.objects.order_by("pk").filter(state="filling")
    Item.objects.bulk_create((Item(basket=basket) for basket in made for _ in range(items)), batch_size=5000)
    made.update(state="collecting")


def left() -> int:
    return Item.objects.exclude(state="packed").count()


def deadlocks() -> int:
    """How many the server has seen in this database."""
    if connection.vendor != "postgresql":
        return 0
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_stat_clear_snapshot()")
        cursor.execute("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()")
        return cursor.fetchone()[0]


def test_what_waits_for_all_moves_once_though_workers_are_killed(watch, fleet, thorough):
    count, small, crew, kills = (VERY_MANY[connection.vendor], 2500, 8, 20) if thorough else (400, 30, 3, 2)
    filled(1, count)
    filled(small, FEW)
    before, choice = deadlocks(), random.Random(7)
    watched = watch(Basket)
    # They do not serve baskets, so only the transactions of items move these.
    workers = fleet("testapp.Item", STATOR_MAX_CRASHES=1000, STATOR_BATCH_SIZE=50)
    for _ in range(crew):
        workers.start()

    total = count + FEW * small
    for kill in range(kills):
        workers.until(lambda kill=kill: left() < total * (1 - kill / kills), 1200)
        Event().wait(choice.uniform(0, 0.2))
        workers.kill(choice.choice(list(workers.alive)))
        workers.start()
    workers.until(lambda: not left(), 1200)
    workers.stop()

    assert set(Basket.objects.values_list("state", flat=True)) == {"ready"}
    assert set(Basket.objects.values_list("state_version", flat=True)) == {2}
    moves = [event for event in watched.history(Basket).events if event.new and event.new.state == "ready"]
    assert len(moves) == 1 + small
    assert deadlocks() == before
    print(f"{total:,} items of {1 + small:,} baskets, {crew} workers, {kills} kills: no deadlock, each moved once")
