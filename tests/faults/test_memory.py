"""Handlers that take more memory than there is (F3): by the kernel's kill, and by a limit of the process."""

import errno
import os
import resource
import sys
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from stator.worker.children import MAX_EXPENDABLE, MORE_EXPENDABLE
from tests.faults.fleet import logged
from tests.processes import wait_until
from tests.testapp.faults import Bomb

pytestmark = [
    pytest.mark.fault,
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(sys.platform != "linux", reason="limits of memory are set as Linux does it; run it there"),
]

MEGABYTE = 1024 * 1024
ROOM = 200 * MEGABYTE
# For two workers and the processes in which they attempt single objects, but not for a handler that takes a gigabyte.
ROOM_OF_ALL = 700 * MEGABYTE
GROUPS = Path("/sys/fs/cgroup")


@contextmanager
def confined(pids, thorough):
    """Has processes, and those that they start, in a control group with so much room that the kernel kills for more."""
    place = GROUPS / "memory" if (GROUPS / "memory").is_dir() else GROUPS
    group = place / f"stator-test-{os.getpid()}"
    unified = (place / "cgroup.controllers").exists()
    if unified and not thorough:
        pytest.skip("bin/chaos tries it in unified control groups (version 2)")
    limit = "memory.max" if unified else "memory.limit_in_bytes"
    try:
        group.mkdir()
        if (group / "memory.swap.max").exists():
            (group / "memory.swap.max").write_text("0")
        (group / limit).write_text(str(ROOM_OF_ALL))
        for pid in pids:
            (group / "cgroup.procs").write_text(str(pid))
    except OSError as error:
        if group.exists():
            group.rmdir()
        pytest.skip(f"a control group for memory is made for this, as root where /sys/fs/cgroup is writable: {error}")
    try:
        yield
    finally:
        for pid in (group / "cgroup.procs").read_text().split():
            (place / "cgroup.procs").write_text(pid)
        wait_until(lambda: _removed(group))


def _removed(group):
    try:
        group.rmdir()
    except OSError as error:
        # Processes that are dying are still in it, and no longer listed.
        if error.errno != errno.EBUSY:
            raise
        return False
    return True


def _oom_score(pid):
    return int(Path(f"/proc/{pid}/oom_score_adj").read_text())


def test_worker_that_is_killed_for_memory_is_replaced_and_spares_the_others(watch, fleet, thorough):
    watched = watch(Bomb)
    workers = fleet(
        "testapp.Bomb", STATOR_CONCURRENCY=8, STATOR_LEASE=2, STATOR_REAP_INTERVAL=0.3, STATOR_SHUTDOWN_TIMEOUT=2,
        STATOR_MAX_CRASHES=2,
    )  # fmt: skip
    worker = workers.start("--processes", "2")
    others = {str(Bomb.objects.create(kind="harmless").pk) for _ in range(60)}
    workers.until(lambda: workers.starts(worker).exists())
    supervisor = psutil.Process(worker.pid)
    # The kernel would rather kill any of them than what replaces them.
    raised = min(MAX_EXPENDABLE, _oom_score(worker.pid) + MORE_EXPENDABLE)
    assert [_oom_score(child.pid) for child in supervisor.children()] == [raised, raised]
    with confined([worker.pid, *(child.pid for child in supervisor.children())], thorough):
        hog = Bomb.objects.create(kind="hog")

        workers.until(lambda: Bomb.objects.filter(state="done").count() == len(others))
        workers.until(lambda: Bomb.objects.filter(pk=hog.pk, state_crashes=2, state_ready=False).exists())
        workers.stop()

    assert {died["exit_code"] for died in logged(worker, "stator.worker_died")} == {-9}
    crashes = [event.new.crashes for event in watched.history(Bomb).events if event.pk in others]
    assert max(crashes) <= 1
    watched.judge(max_crashes=2)


def test_attempt_that_is_refused_memory_fails_and_the_worker_goes_on(watch, fleet):
    watched = watch(Bomb)
    workers = fleet("testapp.Bomb")
    worker = workers.start()
    Bomb.objects.create(kind="harmless")
    workers.until(lambda: Bomb.objects.filter(state="done").exists())
    process = psutil.Process(worker.pid)
    most = process.memory_info().vms + ROOM
    process.rlimit(resource.RLIMIT_AS, (most, most))

    hog = Bomb.objects.create(kind="hog")
    workers.until(lambda: Bomb.objects.filter(pk=hog.pk, state_failures=1, state_claim=None).exists())
    Bomb.objects.create(kind="harmless")
    workers.until(lambda: Bomb.objects.filter(state="done").count() == 2)

    hog.refresh_from_db()
    assert (hog.state, hog.state_crashes) == ("fresh", 0)
    assert [line["error"] for line in logged(worker, "stator.attempt_failed")] == ["MemoryError"]
    workers.stop()
    watched.judge(external=frozenset({"fresh"}))
