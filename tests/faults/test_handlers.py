"""Handlers that leave their database connection in disorder (F17): the next object in the same thread is unaffected."""

import pytest
from django.db import connection

from tests.testapp.faults import MESSES, Effect, Messy

pytestmark = [pytest.mark.fault, pytest.mark.django_db(transaction=True)]

ON_POSTGRESQL_ALONE = ("session", "session_behind")


def test_disorder_left_by_a_handler_does_not_reach_the_next(watch, fleet):
    watched = watch(Messy)
    on_postgresql = connection.vendor == "postgresql"
    kinds = [kind for kind in MESSES if on_postgresql or kind not in ON_POSTGRESQL_ALONE]
    for kind in kinds:
        Messy.objects.create(kind=kind)
        Messy.objects.create(kind="look")
    workers = fleet("testapp.Messy", STATOR_THREADS=1, STATOR_BATCH_SIZE=500)
    workers.start()

    workers.until(lambda: not Messy.objects.filter(state_attempts=0, state="fresh").exists())
    workers.until(lambda: not Messy.stator.leased().exists())
    workers.stop()

    found = list(Effect.objects.values_list("note", flat=True))
    clean = "atomic=False autocommit=True" + (' search_path="$user", public' if on_postgresql else "")
    assert found == [clean] * Messy.objects.filter(kind="look").count()
    assert set(Messy.objects.exclude(state="done").values_list("kind", flat=True)) == {"broken"}
    watched.judge(external=frozenset({"fresh"}), started=False)
