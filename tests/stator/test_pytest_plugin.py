"""The fixtures for pytest."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from stator import pytest_plugin
from stator.runner import StatorRunner
from tests.sizes import PATIENCE
from tests.testapp.models import Line, SyncLine
from tests.testapp.operators import Parcel

ROOT = Path(__file__).parents[2]

# Not by ``pytest_plugins``: where the distribution is installed, pytest has the plugin under another name already.
stator_drain = pytest_plugin.stator_drain
stator_attempt = pytest_plugin.stator_attempt
stator_advance = pytest_plugin.stator_advance
stator_runner = pytest_plugin.stator_runner


@pytest.mark.django_db
def test_fixtures_move_rows(stator_drain: Any, stator_attempt: Any, stator_advance: Any) -> None:
    parcel = Parcel.objects.create()
    assert stator_attempt(parcel).to == "stamped"
    assert stator_drain(Parcel) == 1
    stator_advance(7 * 86400 + 1, Parcel)
    stator_drain(Parcel)
    parcel.refresh_from_db()
    assert parcel.state == "returned"


@pytest.mark.django_db
def test_runner_is_one_over_all_models(stator_runner: Any) -> None:
    assert isinstance(stator_runner, StatorRunner)
    assert {Line, SyncLine, Parcel} <= set(stator_runner.models)
    assert stator_runner.until_idle
    assert not stator_runner.heed_signals
    Line.objects.create()
    Parcel.objects.create()
    assert stator_runner.run_single_cycle() == 2


def test_plugin_is_loaded_without_django(tmp_path: Path) -> None:
    code = (
        "import sys, pytest\n"
        "code = pytest.main(['-p', 'stator.pytest_plugin', '-p', 'no:cacheprovider', '--fixtures', '-q'])\n"
        "assert not any(name.partition('.')[0] in ('django', 'hypothesis') for name in sys.modules)\n"
        "sys.exit(code)\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    environment.pop("DJANGO_SETTINGS_MODULE", None)
    ended = subprocess.run(
        [sys.executable, "-c", code],
        check=False,
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert ended.returncode in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED), ended.stdout + ended.stderr
    assert {"stator_drain", "stator_attempt", "stator_advance", "stator_runner"} <= set(ended.stdout.split())
