"""The site's settings, with only the measured apps installed."""

import os

from project.settings import *  # noqa: F403
from project.settings import DATABASES

INSTALLED_APPS = ["stator", "benchmarks"]
SECRET_KEY = "for benchmarks"
STATOR = {}
DATABASES["default"]["ENGINE"] = os.environ.get("ENGINE", DATABASES["default"]["ENGINE"])
