"""Databases of the cluster, made for one test each."""

import os
from collections.abc import Callable, Iterator
from typing import Any

import environ
import psycopg
import pytest
from django.db import connections

URL, NAME, ALIAS = os.environ.get("CITUS_URL", ""), "stator_citus_test", "citus"

MakeDatabase = Callable[..., str]


@pytest.fixture
def make_database(django_db_blocker: Any) -> Iterator[MakeDatabase]:
    """Make an empty database of the cluster, which has the alias returned; by Django's own backend unless told."""
    config = environ.Env.db_url_config(URL)
    node = [config["HOST"], int(config["PORT"] or 5432)]

    def make(engine: str = config["ENGINE"], **options: str) -> str:
        with psycopg.connect(URL, autocommit=True) as server:
            server.execute(f"DROP DATABASE IF EXISTS {NAME} WITH (FORCE)")
            server.execute(f"CREATE DATABASE {NAME}")
        given = {**config, "ENGINE": engine, "NAME": NAME, "OPTIONS": options, "TEST": {}}
        configured = connections.configure_settings({"default": given})["default"]
        connections.databases[ALIAS] = {**configured, "TEST": {**configured["TEST"], "MIGRATE": False}}
        with connections[ALIAS].cursor() as cursor:
            cursor.execute("CREATE EXTENSION citus")
            cursor.execute("SELECT citus_set_coordinator_host(%s, %s)", node)
            cursor.execute("SELECT citus_set_node_property(%s, %s, 'shouldhaveshards', true)", node)
        return ALIAS

    with django_db_blocker.unblock():
        yield make
        if ALIAS in connections.databases:
            connections[ALIAS].close()
            del connections[ALIAS]
            del connections.databases[ALIAS]
    with psycopg.connect(URL, autocommit=True) as server:
        server.execute(f"DROP DATABASE IF EXISTS {NAME} WITH (FORCE)")


@pytest.fixture
def citus(make_database: MakeDatabase) -> str:
    """The alias of an empty database of the cluster for Django's own backend."""
    return make_database()


@pytest.fixture
def schema(make_database: MakeDatabase) -> str:
    """The alias of a database with an empty distributed schema, for ``stator.citus``."""
    alias = make_database("stator.citus", options="-c search_path=site -c citus.enable_schema_based_sharding=on")
    run(alias, "CREATE SCHEMA site")
    return alias


def run(alias: str, *statements: str) -> None:
    """Run statements, each as a transaction."""
    with connections[alias].cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)
