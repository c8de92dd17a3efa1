"""What is installed without extras is enough for both apps on SQLite."""

import re
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

# Modules of distributions that nothing but an extra names are as if they were not installed.
SCRIPT = """
import sys
sys.modules.update(dict.fromkeys({missing!r}))
import django
from django.conf import settings
from django.core.management import call_command
settings.configure(
    DATABASES={{"default": {{"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}}}},
    INSTALLED_APPS=["django.contrib.auth", "django.contrib.contenttypes", "stator", "tasks"],
)
django.setup()
call_command("check")
call_command("migrate", verbosity=0)
call_command("tasks", "queues")
import stator.worker.worker, tasks
tasks.action("resize")(print)
"""


def names(requirements):
    return {re.split(r"[\[<>=;, ]", requirement, maxsplit=1)[0].lower() for requirement in requirements}


def test_apps_work_without_any_extra():
    extras = set().union(*map(names, PROJECT["optional-dependencies"].values())) - names(PROJECT["dependencies"])
    missing = [module for module, held in packages_distributions().items() if extras & {one.lower() for one in held}]
    assert {"ninja", "psycopg"} <= {*missing}
    command = [sys.executable, "-c", SCRIPT.format(missing=missing)]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 0, ended.stderr[-2000:]
