"""A state with ``concurrency=3``: never more at a time however workers die, and three again soon after."""

from datetime import timedelta

import pytest
from django.db import connection

from tests.faults.checker import ENDS
from tests.faults.events import Kind
from tests.faults.fleet import LEASE, RECOVERY
from tests.testapp.faults import Effect
from tests.testapp.harmed import Limited

pytestmark = [pytest.mark.fault, pytest.mark.postgresql, pytest.mark.django_db(transaction=True)]

MOST = 3
# Objects that were lost with a worker are run alone, each in a process that has to become empty first.
SLACK = 1.0


def now():
    """The database's."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        return cursor.fetchone()[0]


def running(but=()):
    """How many handlers are at work, those of some actors left out."""
    claims = Limited.objects.filter(state_claim__isnull=False).values_list("state_claim", flat=True)
    return Effect.objects.filter(claim__in=list(claims)).exclude(actor__in=but).count()


def numbers_at_once(history):
    """``(moment, held)`` after each event: how many claims each actor holds, in database time."""
    held = {}
    for event, kind in sorted(zip(history.events, history.kinds(), strict=True), key=turn):
        if kind is Kind.CLAIM:
            held[event.pk] = event.actor
        elif kind in ENDS:
            held.pop(event.pk, None)
        yield event.at, dict(held)


def turn(found):
    """In the order of time; of one moment, the ends first."""
    event, kind = found
    return event.at, kind is Kind.CLAIM


def test_limit_holds_and_is_reached_again_when_workers_are_killed(watch, fleet, thorough):
    kills = 40 if thorough else 3
    watched = watch(Limited)
    Limited.objects.bulk_create(Limited(seconds=0.4) for _ in range(100 * kills))
    workers = fleet("testapp.Limited", STATOR_MAX_CRASHES=1000)
    for _ in range(4):
        workers.start()
    killed = {}

    for _ in range(kills):
        workers.until(lambda: running(but=killed) == MOST)
        victim = busiest(workers)
        workers.kill(victim.name)
        killed[f"{victim.name}:{victim.pid}"] = now()
        workers.start()
    workers.until(lambda: running(but=killed) == MOST)
    Limited.objects.filter(state_claim=None).exclude(state="done").delete()
    workers.until(lambda: not Limited.objects.exclude(state="done").exists())
    workers.stop()

    numbers = list(numbers_at_once(watched.history(Limited)))
    assert max(len(held) for _, held in numbers) == MOST
    waits = [recovered(numbers, killed, moment) for moment in killed.values()]
    print(f"{kills} kills; {MOST} at a time again after {', '.join(f'{wait:.1f}' for wait in waits)} s")
    assert max(waits) <= LEASE + RECOVERY + SLACK
    watched.judge(max_crashes=1000, reap_slack=RECOVERY)


def busiest(workers):
    """A worker that holds something at this moment."""
    claims = Limited.objects.filter(state_claim__isnull=False).values_list("state_claim", flat=True)
    actors = Effect.objects.filter(claim__in=list(claims)).values_list("actor", flat=True)
    names = [actor.partition(":")[0] for actor in actors]
    return next((workers.alive[name] for name in names if name in workers.alive), next(iter(workers.alive.values())))


def recovered(numbers, killed, moment):
    """Seconds from a moment until as many as are allowed were held by workers that lived then."""
    dead = {actor for actor, when in killed.items() if when <= moment}
    for at, held in numbers:
        if at > moment and len([actor for actor in held.values() if actor not in dead]) == MOST:
            return (at - moment) / timedelta(seconds=1)
    raise AssertionError(f"after {moment} the limit was not reached again")
