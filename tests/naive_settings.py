"""The settings of the tests on a site without time zones, where all times are those of ``TEST_ZONE``."""

from tests.zone_settings import *  # noqa: F403

USE_TZ = False
