"""The site's settings, with nothing installed but what is measured."""

from project.settings import *  # noqa: F403

INSTALLED_APPS = ["stator", "benchmarks"]
SECRET_KEY = "for benchmarks"
STATOR = {}
