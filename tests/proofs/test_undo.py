"""Many objects are moved by mistake beside eight workers: the untouched ones go back, and no other is touched."""

from time import monotonic

import pytest

from stator.models import Action
from stator.undo import undo
from tests.sizes import size
from tests.testapp.faults import Effect, Job

pytestmark = [pytest.mark.proof, pytest.mark.fault, pytest.mark.django_db(transaction=True)]

OBJECTS, WORKERS = size(100_000, 300), size(8, 2)
# Seconds that an attempt takes, so that the workers have begun with some of the objects and not with all.
ATTEMPT = 1.0
# Seconds that are promised for the undo of all of them, on a machine that has no other work.
PROMISED = 10.0


def test_untouched_objects_go_back_and_the_others_are_named(proof, fleet):
    proof = proof("undo", full=600, short=200)
    Job.objects.bulk_create([Job(seconds=ATTEMPT) for _ in range(OBJECTS)], batch_size=5000)
    Job.transition_perform_queryset(Job.objects.all(), "done")
    workers = fleet(Job._meta.label, STATOR_CONCURRENCY=10, STATOR_LEASE=120)
    for _ in range(WORKERS):
        workers.start()

    begun = monotonic()
    Job.stator.move("fresh", actor="anna", reason="by mistake")
    moved = monotonic() - begun
    action = Action.objects.get()
    assert action.count == OBJECTS
    workers.until(Effect.objects.exists, proof.left)

    begun = monotonic()
    done = undo(action.pk, "default", actor="eve", reason="it was wrong")
    seconds = monotonic() - begun
    workers.finish(Job, timeout=proof.left)

    proof.lost = OBJECTS - done.count - len(done.left)
    # An object that went back has never been in the hands of a worker; the others are named, and workers finish them.
    had = set(Effect.objects.values_list("object_pk", flat=True))
    proof.doubled = len(had - set(done.left))
    assert had
    # Back after two moves, or on after two steps.
    moves = [Job.objects.filter(state="done", state_version=version).count() for version in (3, 4)]
    assert moves == [done.count, len(done.left)]
    proof.figures |= {
        "objects": OBJECTS, "workers": WORKERS, "moved in s": moved, "undone": done.count, "named": len(done.left),
        "undone in s": seconds, "promised s": PROMISED,
    }  # fmt: skip
    proof.judge()
