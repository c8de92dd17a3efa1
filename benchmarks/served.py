"""The site's settings for a server that is measured: no limits of rates, connections as ``BENCHMARK_DATABASE`` says."""

import json
import os

from project.settings import *  # noqa: F403

DATABASES["default"] |= json.loads(os.environ["BENCHMARK_DATABASE"])  # noqa: F405
STATOR_TASKS = {"API_REQUESTS_PER_MINUTE": 10**6, "API_ROWS_PER_MINUTE": 10**8}
