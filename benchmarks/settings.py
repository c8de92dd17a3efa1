"""The site's settings, with only the measured apps installed."""

from project.settings import *  # noqa: F403

INSTALLED_APPS = ["stator", "benchmarks"]
SECRET_KEY = "for benchmarks"
STATOR = {}
