"""Workers killed at any moment of a handler with ten steps: no step is called again after its record."""

import random
from collections import Counter
from threading import Event

import pytest
from django.db.models import Count

from stator.models import Step
from tests.faults.test_kill import SOON
from tests.testapp.stepped import LOG, STEPS, KeptPurchase

pytestmark = [pytest.mark.fault, pytest.mark.harmed, pytest.mark.django_db(transaction=True)]

# So many workers run at a time, and so many objects at least are not done when one is killed.
WORKERS, BUSY = 4, 120
# The longest time in seconds that a worker lives on after its first call of a step.
LIFE = 0.3


def keep_busy():
    KeptPurchase.objects.bulk_create(
        KeptPurchase() for _ in range(BUSY - KeptPurchase.objects.exclude(state="done").count())
    )


def test_recorded_step_is_never_called_again_though_workers_are_killed_in_it(fleet, thorough, tmp_path):
    kills, seed, log = 1000 if thorough else 4, random.randrange(1_000_000), tmp_path / "calls"
    choice = random.Random(seed)
    workers = fleet(
        "testapp.KeptPurchase", **SOON, STATOR_MAX_CRASHES=100_000, STATOR_CONCURRENCY=8, STATOR_SCHEDULE_INTERVAL=0.5,
        **{LOG: log},
    )  # fmt: skip
    log.touch()
    for _ in range(WORKERS):
        workers.start()
    for _ in range(kills):
        keep_busy()
        before = log.stat().st_size
        workers.until(lambda before=before: log.stat().st_size > before)
        Event().wait(choice.uniform(0, LIFE))
        workers.kill(next(iter(workers.alive)))
        workers.start()
    workers.finish(KeptPurchase, timeout=300)

    calls = [line.rsplit(" ", 1) for line in log.read_text().splitlines()]
    last, number = dict(calls), Counter(call for call, _ in calls)
    steps = {f"{step.object_pk} {step.state} {step.name[5:]}": step.value for step in Step.objects.all()}
    objects = KeptPurchase.objects.count()
    resumed = Step.objects.values("object_pk", "state").annotate(n=Count("attempt", distinct=True)).filter(n__gt=1)
    print(
        f"seed {seed}: {kills} kills, {objects} objects, {len(steps)} steps recorded by {len(calls)} calls; "
        f"{resumed.count()} visits were resumed after a kill, {sum(n > 1 for n in number.values())} steps were called "
        f"again since their record was missing"
    )
    assert len(steps) == len(set(steps.values())) == 2 * STEPS * objects
    # Had a step been called after its record, the last call would not be the recorded one.
    assert steps == last
    assert resumed.exists()
