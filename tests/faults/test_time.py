"""Clocks and zones (F37): the database's clock alone decides, wherever a worker believes itself to be."""

from pathlib import Path

import pytest
from django.db import connection

from tests.faults.fleet import RECOVERY
from tests.testapp.faults import Job

pytestmark = [pytest.mark.fault, pytest.mark.django_db(transaction=True)]

ZONES = [
    {"TZ": "Pacific/Kiritimati"},
    {"TZ": "America/St_Johns", "DJANGO_SETTINGS_MODULE": "tests.zone_settings", "TEST_ZONE": "Asia/Kathmandu"},
    {"TZ": "UTC", "DJANGO_SETTINGS_MODULE": "tests.naive_settings", "TEST_ZONE": "Pacific/Pago_Pago"},
]


@pytest.mark.parametrize("zone", ZONES, ids=["process", "site", "naive"])
def test_leases_end_when_they_should_whatever_the_zone_of_a_worker(watch, fleet, gate, zone):
    """Off by hours, a lease would be over at once or hold for as long; here two workers disagree on the hour."""
    if "naive" in zone.get("DJANGO_SETTINGS_MODULE", "") and connection.vendor == "sqlite":
        pytest.skip("SQLite keeps what it is given: processes that disagree on USE_TZ cannot share one")
    watched = watch(Job)
    Job.objects.bulk_create(Job(gate=str(gate)) for _ in range(3))
    workers = fleet("testapp.Job")
    victim = workers.start(**zone)
    workers.until(lambda: workers.starts(victim).count() == 3)
    workers.start(TZ="America/Los_Angeles")
    workers.kill(victim.name)
    gate.touch()
    workers.start(**zone)

    workers.until(lambda: not Job.objects.exclude(state="done").exists())
    workers.stop()

    # Reaped neither early, which is I1, nor late: then nothing would have been done by now.
    watched.judge(reap_slack=RECOVERY)


# Of Debian's package faketime, which has one folder for each kind of machine.
LIBRARY = next(iter(Path("/usr/lib").glob("*/faketime/libfaketime.so.1")), None)


@pytest.mark.postgresql
@pytest.mark.parametrize("off", ["+3h", "-3h"])
def test_worker_whose_clock_is_off_by_hours_takes_no_lease_early_and_keeps_none_too_long(watch, fleet, gate, off):
    if LIBRARY is None:
        pytest.skip("needs a clock that is wrong: install Debian's faketime")
    wrong = {"LD_PRELOAD": str(LIBRARY), "FAKETIME": off, "FAKETIME_DONT_FAKE_MONOTONIC": "1"}
    watched = watch(Job)
    Job.objects.bulk_create(Job(gate=str(gate)) for _ in range(3))
    workers = fleet("testapp.Job")
    victim = workers.start(**wrong)
    workers.until(lambda: workers.starts(victim).count() == 3)
    # It looks for leases that ran out, and must see none while the victim renews them.
    other = workers.start()
    Job.objects.create()
    workers.until(lambda: workers.starts(other).exists() or Job.objects.filter(state="done").exists())
    workers.kill(victim.name)
    gate.touch()
    workers.start(**wrong)

    workers.until(lambda: not Job.objects.exclude(state="done").exists())
    workers.stop()
    watched.judge(reap_slack=RECOVERY)
