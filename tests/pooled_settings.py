"""The settings of the tests with Django's connection pool, as its documentation has it: of four connections."""

from tests.settings import *  # noqa: F403
from tests.settings import DATABASES

for config in DATABASES.values():
    config["OPTIONS"] = {**config["OPTIONS"], "pool": True}
    config["CONN_MAX_AGE"] = 0
