"""Workers killed at any moment of a handler with ten steps: no step is called again after its record."""

import random
import subprocess
import sys
from collections import Counter

import pytest
from django.db.models import Count

from stator.models import Step
from tests.processes import environment_for_subprocess
from tests.testapp.stepped import LOG, STEPS, KeptPurchase

pytestmark = [pytest.mark.fault, pytest.mark.harmed, pytest.mark.django_db(transaction=True)]

SETTINGS = {
    "STATOR_LEASE": "2", "STATOR_REAP_INTERVAL": "0.5", "STATOR_POLL_INTERVAL": "0.1", "STATOR_MAX_CRASHES": "100000",
    "STATOR_SHUTDOWN_TIMEOUT": "1",
}  # fmt: skip


def test_recorded_step_is_never_called_again_though_workers_are_killed_in_it(transactional_db, thorough, tmp_path):
    kills, seed, log = 1000 if thorough else 5, random.randrange(1_000_000), tmp_path / "calls"
    environment = {**environment_for_subprocess(), **SETTINGS, LOG: str(log)}
    program = [sys.executable, "-m", "tests.faults.stepping", str(kills), str(seed)]
    # Its lines are shown with -s: a thousand kills take a quarter of an hour, and on a crowded machine more than one.
    subprocess.run(program, env=environment, check=True, timeout=None if thorough else 300)

    calls = [line.rsplit(" ", 1) for line in log.read_text().splitlines()]
    last, number = dict(calls), Counter(call for call, _ in calls)
    steps = {f"{step.object_pk} {step.state} {step.name[5:]}": step.value for step in Step.objects.all()}
    objects = KeptPurchase.objects.count()
    again = Counter(steps.values())
    resumed = Step.objects.values("object_pk", "state").annotate(n=Count("attempt", distinct=True)).filter(n__gt=1)
    print(
        f"seed {seed}: {kills} kills, {objects} objects, {len(steps)} steps recorded by {len(calls)} calls; "
        f"{resumed.count()} visits were resumed after a kill, {sum(n > 1 for n in number.values())} steps were called "
        f"again since their record was missing"
    )
    assert set(KeptPurchase.objects.values_list("state", flat=True)) == {"done"}
    assert len(steps) == len(again) == 2 * STEPS * objects
    # Had a step been called after its record, the last call would not be the recorded one.
    assert steps == last
    assert resumed.exists()
