"""The shop: each step by itself, and all of it with real processes."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.request import urlopen

import pytest

from tests.examples.orders.conftest import ROOT, Run, environ_of, shop_of
from tests.processes import wait_until
from tests.servers.user import free_port
from tests.sizes import PATIENCE

pytestmark = pytest.mark.sqlite

STEPS = Path(__file__).with_name("steps.py")


NAMES = re.findall(r"^def (\w+)\(\) -> None", STEPS.read_text(), re.MULTILINE)


@pytest.fixture(scope="module")
def tried(shop: Run, environ: dict[str, str]) -> dict[str, str]:
    """The traceback of each step that failed, from one process for all."""
    command = [sys.executable, "-W", "error", str(STEPS), *NAMES]
    ended = subprocess.run(
        command, cwd=ROOT, env=environ, capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert ended.returncode == 0, ended.stderr[-3000:]
    found: dict[str, str] = json.loads(ended.stdout)
    return found


@pytest.mark.parametrize("name", NAMES)
def test_step(name: str, tried: dict[str, str]) -> None:
    assert tried[name] == ""


def test_models_have_their_migration(shop: Run) -> None:
    assert shop("makemigrations", "--check", "--dry-run", "orders") == "No changes detected in app 'orders'\n"


@pytest.mark.skipif(
    shutil.which("perl") is None
    or subprocess.run(["perl", "-MHTTP::Tiny", "-MJSON::PP", "-e1"], check=False).returncode,
    reason="the robot needs Perl with its modules",
)
def test_orders_are_shipped_or_repaid_though_the_worker_is_killed(tmp_path: Path) -> None:
    site, provider = free_port(), free_port()
    environ = environ_of(tmp_path / "orders.sqlite3")
    environ |= {"PROVIDER_URL": f"http://127.0.0.1:{provider}", "STATOR_LEASE": "5", "STATOR_SHUTDOWN_TIMEOUT": "5"}
    environ |= {"STATOR_REAP_INTERVAL": "1", "STATOR_SCHEDULE_INTERVAL": "1", "STATOR_POLL_INTERVAL": "0.2"}
    shop = shop_of(environ)
    assert shop("orders", "place", code=1) == "CommandError: the shop is not open; run: orders open\n"
    shop("orders", "open", "--lamps", "3")
    token = shop("tasks", "token", "create", "robot", "--queue", "warehouse", "--verb", "claim").strip()
    python = [sys.executable, "-m"]
    worker = [*python, "examples.orders.manage", "runstator"]
    webhook = f"http://127.0.0.1:{site}/orders/paid/"
    with (
        running([*python, "examples.orders.manage", "runserver", "--noreload", str(site)], environ),
        running([*python, "examples.orders.provider", "--port", str(provider), "--webhook", webhook], environ),
        running(
            ["perl", "examples/orders/robot.pl"], environ | {"API": f"http://127.0.0.1:{site}/api", "TOKEN": token}
        ),
    ):
        shop("orders", "place", "5")
        with running(worker, environ) as first:
            wait_until(lambda: "placed: 5" not in shop("orders", "show"))
            os.kill(first.pid, signal.SIGKILL)
        with running(worker, environ):
            wait_until(lambda: shop("orders", "show") == "refunded: 2\nshipped: 3\nLamps left: 0\n")
        with urlopen(environ["PROVIDER_URL"], timeout=PATIENCE) as answer:
            done = json.load(answer)
    assert sorted(each["order"] for each in done if each["kind"] == "charges") == [1, 2, 3, 4, 5]
    assert len([each for each in done if each["kind"] == "refunds"]) == 2


@contextmanager
def running(command: list[str], environ: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """Keep a process running, and end it."""
    with subprocess.Popen(
        command, cwd=ROOT, env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT
    ) as process:
        try:
            yield process
        finally:
            process.kill()
