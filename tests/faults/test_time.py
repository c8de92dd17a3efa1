"""Clocks and zones (F37): the database's clock alone decides, wherever a worker believes itself to be."""

from pathlib import Path

import pytest
from django.db import connection

from tests.faults.fleet import RECOVERY
from tests.testapp.faults import Job

pytestmark = [pytest.mark.fault, pytest.mark.django_db(transaction=True)]

# Of Debian's package faketime, which has one folder for each kind of machine.
LIBRARY = next(iter(Path("/usr/lib").glob("*/faketime/libfaketime.so.1")), None)


def clock_off_by(hours):
    return {"LD_PRELOAD": str(LIBRARY), "FAKETIME": f"{hours:+}h", "FAKETIME_DONT_FAKE_MONOTONIC": "1"}


ELSEWHERE = {
    "zone of site": {"TZ": "America/St_Johns", "DJANGO_SETTINGS_MODULE": "tests.zone_settings",
                     "TEST_ZONE": "Asia/Kathmandu"},
    "no zone": {"TZ": "UTC", "DJANGO_SETTINGS_MODULE": "tests.naive_settings", "TEST_ZONE": "Pacific/Pago_Pago"},
    "zone and clock ahead": {"TZ": "Pacific/Kiritimati", **clock_off_by(3)},
}  # fmt: skip
# Processes that share SQLite's file share a machine and its clock. There, as on MySQL, they have to agree on USE_TZ.
WHERE = ["no zone" if connection.vendor == "postgresql" else "zone of site"]
WHERE += ["zone and clock ahead"] if LIBRARY and connection.vendor != "sqlite" else []


def test_leases_end_when_they_should_whatever_a_worker_believes_the_time_to_be(watch, fleet, gate):
    """Off by hours, a lease would be over at once or hold for as long; here workers disagree on the hour."""
    watched = watch(Job)
    workers = fleet("testapp.Job", STATOR_CONCURRENCY=3)
    Job.objects.bulk_create(Job(gate=str(gate)) for _ in range(3 * len(WHERE)))
    victims = [workers.start(**ELSEWHERE[where]) for where in WHERE]
    workers.until(lambda: all(workers.starts(victim).count() == 3 for victim in victims))
    # It looks for leases that ran out, and must see none while the victims renew them.
    other = workers.start(TZ="America/Los_Angeles")
    Job.objects.create()
    workers.until(lambda: workers.starts(other).exists() or Job.objects.filter(state="done").exists())
    for victim in victims:
        workers.kill(victim.name)
    gate.touch()

    workers.finish(Job)

    # Reaped neither early, which is I1, nor late: then nothing would have been done by now.
    watched.judge(reap_slack=RECOVERY)
    if LIBRARY is None and connection.vendor != "sqlite":
        pytest.skip("a clock that is wrong was not tried: install Debian's faketime")
