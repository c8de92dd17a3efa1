"""The site's settings with the models that are measured."""

from project.settings import *  # noqa: F403
from project.settings import INSTALLED_APPS

INSTALLED_APPS = [*INSTALLED_APPS, "benchmarks"]
SECRET_KEY = "for benchmarks"
STATOR: dict[str, object] = {}
