"""The site's settings, with the models of the benchmarks beside what is installed."""

from project.settings import *  # noqa: F403

INSTALLED_APPS = [*INSTALLED_APPS, "benchmarks"]  # noqa: F405
