"""The shop is a site of its own: its tests run in processes that have its settings."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.sizes import PATIENCE

ROOT = Path(__file__).parents[3]

Run = Callable[..., str]


def environ_of(database: Path) -> dict[str, str]:
    """The environment of a shop with this database."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("DJANGO_", "STATOR_", "PYTEST"))}
    given = {"DATABASE_URL": f"sqlite:///{database}", "DEBUG": "true", "LOG_LEVEL": "WARNING"}
    return kept | given | {"PYTHONPATH": str(ROOT), "DJANGO_SETTINGS_MODULE": "examples.orders.settings"}


def shop_of(environ: dict[str, str]) -> Run:
    """Migrate the database of a shop; return a function that runs a command in it and returns what that printed."""

    def run(*arguments: str, code: int = 0) -> str:
        command = [sys.executable, "-W", "error", "-m", "examples.orders.manage", *arguments]
        ended = subprocess.run(
            command, cwd=ROOT, env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            timeout=PATIENCE, check=False,
        )  # fmt: skip
        assert ended.returncode == code, ended.stdout
        return ended.stdout

    run("migrate", "-v0")
    return run


@pytest.fixture(scope="module")
def environ(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of a shop that several tests use."""
    return environ_of(tmp_path_factory.mktemp("orders") / "orders.sqlite3")


@pytest.fixture(scope="module")
def shop(environ: dict[str, str]) -> Run:
    """Run a command of that shop."""
    run = shop_of(environ)
    run("orders", "open", "--lamps", "1")
    return run
