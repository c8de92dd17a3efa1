"""The site's settings with the test app and two databases, both real files or both on one PostgreSQL.

A process that a test starts reads the same settings; ``TEST_DATABASE_<ALIAS>`` sends it to the databases of the test.
"""

import os
import tempfile
from pathlib import Path

from project.settings import *  # noqa: F403
from project.settings import DATABASES, INSTALLED_APPS, SILENCED_SYSTEM_CHECKS, stator_settings

SECRET_KEY = "for tests"
# The server of the tests in a browser has no HTTPS.
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = False
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
# A worker has no pages, and starts a third sooner without those of the admin and the package that describes the API.
LEFT_OUT = {"django.contrib.admin", "ninja"} if os.environ.get("TEST_WORKER") else set()
INSTALLED_APPS = [*(app for app in INSTALLED_APPS if app not in LEFT_OUT), "tests.testapp"]
# The workers that tests start are given theirs in the environment.
STATOR = stator_settings(dict(os.environ))
_OURS, _ALONE = "tasks.backend.StatorBackend", {"isolated": True}
TASKS = {
    "default": {"BACKEND": _OURS, "QUEUES": ["default", "mail"]},  # tasks.extensions.backend
    "retrying": {"BACKEND": _OURS, "OPTIONS": {"max_attempts": 3, "backoff": 30}},  # tasks.extensions.backend
    "isolated": {"BACKEND": _OURS, "OPTIONS": _ALONE},  # tasks.extensions.isolation, tasks.extensions.backend
}


def _other() -> dict[str, object]:
    name = DATABASES["default"]["NAME"]
    return {**DATABASES["default"], "NAME": f"{name}_other", "OPTIONS": {**DATABASES["default"]["OPTIONS"]}}


# One for each run; the processes of pytest-xdist inherit it. Made and removed by conftest.py.
TEST_DIRECTORY = Path(os.environ.setdefault("TEST_DIRECTORY", f"{tempfile.gettempdir()}/stator-tests-{os.getpid()}"))
DATABASES["default"]["ENGINE"] = os.environ.get("TEST_ENGINE", DATABASES["default"]["ENGINE"])
DATABASES = {"default": DATABASES["default"], "other": _other()}
for alias, config in DATABASES.items():
    if name := os.environ.get(f"TEST_DATABASE_{alias.upper()}"):
        config["NAME"] = name
    elif config["ENGINE"].endswith("sqlite3"):
        # In memory, a database would be out of reach of the processes and threads that tests start.
        config["TEST"] = {"NAME": str(TEST_DIRECTORY / f"{alias}.sqlite3")}
    if config["ENGINE"].endswith("sqlite3"):
        # No test has a power failure, and waiting for the disk takes most of the time of a commit.
        options = config["OPTIONS"]
        # After what DATABASE_URL gives, which some tests have for their workers alone.
        config["OPTIONS"] = {**options, "init_command": f"{options['init_command']}; PRAGMA synchronous=OFF"}

# The warning about Branch, which exists to be warned of.
SILENCED_SYSTEM_CHECKS = [*SILENCED_SYSTEM_CHECKS, "stator.W104"]

# Its tables are made from its models.
MIGRATION_MODULES = {"testapp": None}
