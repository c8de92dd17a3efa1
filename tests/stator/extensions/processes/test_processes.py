"""``runstator --processes``: its numbers, and an end that all processes share."""

import subprocess
import sys

import pytest

from tests.processes import environment_for_subprocess
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
