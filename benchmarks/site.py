"""The site's settings, with the benchmarks' models added to the installed apps."""

from project.settings import *  # noqa: F403

INSTALLED_APPS = [*INSTALLED_APPS, "benchmarks"]  # noqa: F405
