"""``runstator --processes``: its numbers, an end that all processes share, and the name of a new one."""

import os
import signal
import subprocess
import sys

import pytest

from stator.models import Worker
from tests.processes import environment_for_subprocess, wait_until
from tests.sizes import PATIENCE
from tests.stator.running import refusal_of_runstator


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({"processes": 0}, "--processes 0 must be from 1 to 256"),
        ({"name": "w" * 98, "processes": 10}, "with the suffix -10"),
    ],
)
def test_wrong_numbers_are_refused(options, line):
    assert line in refusal_of_runstator(**options)


def test_unusable_database_ends_every_process_of_several(tmp_path):
    path = tmp_path / "empty.sqlite3"
    path.touch()
    done = subprocess.run(
        [sys.executable, "-m", "django", "runstator", "testapp.Line", "--processes", "2"],
        env=environment_for_subprocess(DATABASE_URL="sqlite:////", TEST_DATABASE_DEFAULT=str(path)),
        capture_output=True, text=True, timeout=PATIENCE, check=False,
    )  # fmt: skip
    assert done.returncode == 75
    assert set(done.stderr.strip().splitlines()) == {
        "runstator: database 'default' has no table testapp_line of testapp.Line; run manage.py migrate"
    }


@pytest.mark.needs("fleet")
@pytest.mark.django_db(transaction=True)
def test_replaced_process_keeps_its_name(worker_process):
    with worker_process("testapp.Line", "--name", "w", "--processes", "2") as worker:
        wait_until(lambda: Worker.objects.live().count() == 2, message=worker.output)
        first = {row.name: row for row in Worker.objects.all()}
        assert sorted(first) == ["w-1", "w-2"]
        os.kill(first["w-1"].pid, signal.SIGKILL)
        wait_until(lambda: Worker.objects.filter(name="w-1").count() == 2, message=worker.output)
        latest = Worker.objects.filter(name="w-1").latest("started")
        # What was killed cannot say so.
        assert latest.published["replaced"] == {"pid": first["w-1"].pid, "exit_code": -signal.SIGKILL}
        assert "replaced" not in Worker.objects.get(name="w-2").published
        assert worker.stop() == 0, worker.output()
