import os
from collections.abc import Iterator
from urllib.parse import quote, urlunsplit

import psycopg
import pytest
from django.conf import settings

DATABASE = f"stator_benchmarks_{os.getpid()}"


@pytest.fixture(scope="session")
def scratch_url() -> Iterator[str]:
    """A database on the server of the tests, which benchmarks may fill and empty as they like."""
    config = settings.DATABASES["default"]
    user = quote(config["USER"]) + (f":{quote(config['PASSWORD'])}" if config["PASSWORD"] else "")
    server = f"{user}@{config['HOST']}:{config['PORT'] or 5432}"
    drop = f"DROP DATABASE IF EXISTS {DATABASE} WITH (FORCE)"
    with psycopg.connect(urlunsplit(("postgresql", server, "/postgres", "", "")), autocommit=True) as connection:
        connection.execute(drop)
        connection.execute(f"CREATE DATABASE {DATABASE}")
        yield urlunsplit(("postgresql", server, f"/{DATABASE}", "", ""))
        connection.execute(drop)
