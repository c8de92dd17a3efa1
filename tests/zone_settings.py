"""The settings of the tests on a site that lies elsewhere: in ``TEST_ZONE``."""

import os

from tests.settings import *  # noqa: F403

TIME_ZONE = os.environ["TEST_ZONE"]
