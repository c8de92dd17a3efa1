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


# On servers, the others have a zone of the worker's as well.
OF_SQLITE = pytest.param("zone of site", marks=pytest.mark.sqlite)


@pytest.mark.parametrize("where", [OF_SQLITE, *(each for each in ELSEWHERE if each != "zone of site")])
def test_leases_end_when_they_should_whatever_a_worker_believes_the_time_to_be(watch, fleet, gate, where):
    """Off by hours, a lease would be over at once or hold for as long; here two workers disagree on the hour."""
    if connection.vendor == "sqlite":
        if where == "no zone":
            pytest.skip("SQLite keeps what it is given: processes that disagree on USE_TZ cannot share one")
        if "clock" in where:
            pytest.skip("SQLite has no clock of its own: processes that share one share a machine")
    if "clock" in where and LIBRARY is None:
        pytest.skip("needs a clock that is wrong: install Debian's faketime")
    watched = watch(Job)
    Job.objects.bulk_create(Job(gate=str(gate)) for _ in range(3))
    workers = fleet("testapp.Job")
    victim = workers.start(**ELSEWHERE[where])
    workers.until(lambda: workers.starts(victim).count() == 3)
    # It looks for leases that ran out, and must see none while the victim renews them.
    other = workers.start(TZ="America/Los_Angeles")
    Job.objects.create()
    workers.until(lambda: workers.starts(other).exists() or Job.objects.filter(state="done").exists())
    workers.kill(victim.name)
    gate.touch()
    workers.start(**ELSEWHERE[where])

    workers.finish(Job)

    # Reaped neither early, which is I1, nor late: then nothing would have been done by now.
    watched.judge(reap_slack=RECOVERY)
