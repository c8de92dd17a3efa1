"""Handlers that leave their database connection in disorder (F17), and handlers that block for ever (F15)."""

import pytest
from django.db import connection

from tests.faults.fleet import logged
from tests.testapp.faults import LOOP_BOMBS, MESSES, Bomb, Effect, Messy

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


def test_child_that_a_handler_ends_does_not_stop_its_worker(watch, fleet):
    watched = watch(Bomb)
    Bomb.objects.bulk_create(Bomb(kind=kind) for kind in ("child", "child on loop") for _ in range(5))
    workers = fleet("testapp.Bomb")
    worker = workers.start("--processes", "1")

    workers.until_done(Bomb)
    assert not logged(worker, "stator.attempt_failed")
    assert not logged(worker, "stator.stopping")
    workers.stop()
    watched.judge()


# Longer than a healthy process stands still on a crowded machine.
WATCHDOG = 2.0
FROZEN, HELD = 70, 1


def test_handlers_that_hold_the_loop_end_their_process_which_is_replaced(watch, fleet):
    watched = watch(Bomb)
    Bomb.objects.bulk_create(Bomb(kind=kind) for kind in LOOP_BOMBS)
    held = Bomb.objects.filter(kind__in=LOOP_BOMBS)
    # A lease that outlasts both watches: who counts the crash finds its process gone.
    lease = 3 * WATCHDOG
    others = Bomb.objects.bulk_create(Bomb(kind="harmless") for _ in range(20))
    workers = fleet(
        "testapp.Bomb", STATOR_WATCHDOG=WATCHDOG, STATOR_LEASE=lease, STATOR_REAP_INTERVAL=0.3,
        STATOR_SHUTDOWN_TIMEOUT=2, STATOR_MAX_CRASHES=2,
    )  # fmt: skip
    worker = workers.start("--processes", "3")

    # Quarantined: the second time each was in a process of its own, so that none of the others can have been.
    quarantined = held.filter(state_crashes=2, state_ready=False, state_claim=None)
    workers.until(lambda: quarantined.count() == len(LOOP_BOMBS), 180)
    # A healthy object that was beside one of them is in a process of its own, whose worker another one may end.
    workers.until(lambda: Bomb.objects.filter(state="done").count() == len(others))
    workers.stop()

    # An interpreter that is held stops the watchdog too, and is ended by the timer behind it.
    died = [*logged(worker, "stator.worker_died"), *logged(worker, "stator.isolated_process_died")]
    assert {line["exit_code"] for line in died} == {FROZEN, HELD}
    frozen = f"stator: the event loop was blocked for {WATCHDOG:.0f} s; stacks follow, then the worker exits with 70"
    assert frozen in worker.output()
    for kind in ("in spin\n", "in handle_on_loop\n"):
        assert kind in worker.output()
    watched.judge(max_crashes=2)


def test_handlers_that_hold_threads_fail_and_the_worker_ends_when_none_is_left(watch, fleet):
    watched = watch(Bomb)
    workers = fleet("testapp.Bomb", STATOR_THREADS=2, STATOR_MAX_RUNTIME=1, STATOR_WATCHDOG=WATCHDOG)
    worker = workers.start()
    Bomb.objects.create(kind="deadlock")
    workers.until(lambda: logged(worker, "stator.handler_stuck"))
    Bomb.objects.bulk_create(Bomb(kind="harmless") for _ in range(5))
    workers.until(lambda: Bomb.objects.filter(state="done").count() == 5)

    Bomb.objects.create(kind="spin")

    assert worker.wait() == FROZEN, worker.output()
    trouble = "every handler thread is held by a handler that does not return"
    assert [line["trouble"] for line in logged(worker, "stator.frozen")] == [trouble]
    deadlock = Bomb.objects.get(kind="deadlock")
    assert (deadlock.state_failures, deadlock.state_crashes, deadlock.state_claim) == (1, 0, None)
    # It may end before the other failure is recorded; then the lease of that one is left.
    assert watched.violations(Bomb, quiet=False) == []
