"""The settings of the tests, with this app."""

from tests.settings import *  # noqa: F403
from tests.settings import INSTALLED_APPS

INSTALLED_APPS = [*INSTALLED_APPS, "tests.tasks.ticker.apps.TickerConfig"]
