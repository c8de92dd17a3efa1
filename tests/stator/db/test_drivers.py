"""A project that has psycopg2 and no psycopg 3 is told so before anything fails for want of it."""

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from django.conf import settings as django_settings

from stator.db.engines import unsupported_driver
from tests.sizes import PATIENCE

SETTINGS = """
SECRET_KEY = "for tests"
INSTALLED_APPS = ["django.contrib.auth", "django.contrib.contenttypes", "stator", "tasks"]
DATABASES = {"default": {"ENGINE": "django.db.backends.postgresql", "NAME": "nowhere"}}
USE_TZ = True
"""

# As much of the driver as Django asks of it before it connects.
PSYCOPG2 = """
import sys
from types import ModuleType

class Error(Exception): pass
class Anything:
    def __init__(self, *args, **kwargs): pass
    def __getattr__(self, name): return Anything()
    def __call__(self, *args, **kwargs): return Anything()

class Part(ModuleType):
    def __getattr__(self, name):
        if name.startswith("__"): raise AttributeError(name)
        return len(name) if name.startswith("ISOLATION_LEVEL") else type(name, (Anything,), {})

__version__ = "2.9.9"
for name in ("extensions", "extras", "sql", "errors"):
    sys.modules[f"psycopg2.{name}"] = globals()[name] = Part(f"psycopg2.{name}")
for name in ("DataError", "OperationalError", "IntegrityError", "InternalError", "ProgrammingError",
             "NotSupportedError", "DatabaseError", "InterfaceError"):
    globals()[name] = type(name, (Error,), {})
"""

HIDDEN = "raise ModuleNotFoundError(\"No module named 'psycopg'\", name='psycopg')\n"


@pytest.fixture
def run(tmp_path):
    """Runs ``manage.py`` in a project on PostgreSQL whose only driver is psycopg2."""
    for name, text in {"psycopg2": PSYCOPG2, "psycopg": HIDDEN, "psycopg2only": SETTINGS}.items():
        (tmp_path / f"{name}.py").write_text(text)
    path = os.pathsep.join([str(tmp_path), str(Path(django_settings.BASE_DIR))])
    environment = {**os.environ, "PYTHONPATH": path, "DJANGO_SETTINGS_MODULE": "psycopg2only"}

    def run(*arguments):
        return subprocess.run(
            [sys.executable, "-m", "django", *arguments],
            env=environment, capture_output=True, text=True, timeout=PATIENCE, check=False,
        )  # fmt: skip

    return run


@pytest.mark.needs("queue")
def test_check_names_the_database_the_driver_and_the_remedy(run):
    done = run("check")
    assert done.returncode == 1
    assert "(stator.E304) The PostgreSQL database 'default' uses psycopg2" in done.stderr
    assert "HINT: pip install 'psycopg[binary]>=3.2'" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.needs("queue")
def test_worker_ends_with_one_line(run):
    done = run("runstator")
    assert done.returncode == 75
    [line] = done.stderr.strip().splitlines()
    assert line.startswith("runstator: database 'default' uses psycopg2, which Stator does not support; pip")


@pytest.mark.parametrize(
    ("vendor", "driver", "version", "told"),
    [
        ("postgresql", "psycopg", "3.1.20", "psycopg 3.1.20"),
        ("postgresql", "psycopg", "3.2", ""),
        ("postgresql", "psycopg", "3.10.dev1", ""),
        ("postgresql", "psycopg2", "2.9.9 (dt dec pq3 ext lo64)", "psycopg2"),
        ("sqlite", "sqlite3.dbapi2", "2.6.0", ""),
    ],
)
def test_driver_is_refused_by_its_name_and_its_version(vendor, driver, version, told):
    connection = SimpleNamespace(vendor=vendor, Database=SimpleNamespace(__name__=driver, __version__=version))
    assert unsupported_driver(connection) == told
