"""Databases of the cluster, made for one test each."""

import os
from collections.abc import Callable, Iterator
from typing import Any

import environ
import psycopg
import pytest
from django.apps import apps
from django.core.management import call_command
from django.db import connections
from django.db.migrations.state import ProjectState

from stator.migration_operations import Distribute

URL, NAME, ALIAS = os.environ.get("CITUS_URL", ""), "stator_citus_test", "citus"
# The URLs of the nodes that have the rows; the coordinator has them if there are none.
NODES = os.environ.get("CITUS_NODES", "").split()

MakeDatabase = Callable[..., str]


@pytest.fixture
def make_database(django_db_blocker: Any) -> Iterator[MakeDatabase]:
    """Make an empty database of the cluster, which has the alias returned; by Django's own backend unless told."""

    def make(engine: str = "", **options: str) -> str:
        create_database(ALIAS, engine, **options)
        return ALIAS

    with django_db_blocker.unblock():
        yield make
        if ALIAS in connections.databases:
            connections[ALIAS].close()
            del connections[ALIAS]
            del connections.databases[ALIAS]
    drop_databases()


def over_the_nodes(make_database: MakeDatabase, **columns: str) -> str:
    """Return the alias of a database of ``stator.citus``, where models of the test app are distributed by a column."""
    alias = make_database("stator.citus")
    call_command("migrate", database=alias, verbosity=0, run_syncdb=True)
    state = ProjectState.from_apps(apps)
    with connections[alias].schema_editor(atomic=False) as editor:
        for name, column in columns.items():
            Distribute(name, by=column).database_forwards("testapp", editor, state, state)
    return alias


def create_database(alias: str, engine: str = "", **options: str) -> None:
    """Make an empty database of the cluster, and let the alias mean it."""
    drop_databases()
    for url in (URL, *NODES):
        with psycopg.connect(url, autocommit=True) as server:
            server.execute(f"CREATE DATABASE {NAME}")
    config = environ.Env.db_url_config(URL)
    given = {**config, "ENGINE": engine or config["ENGINE"], "NAME": NAME, "OPTIONS": options, "TEST": {}}
    configured = connections.configure_settings({"default": given})["default"]
    connections.databases[alias] = {**configured, "TEST": {**configured["TEST"], "MIGRATE": False}}
    with connections[alias].cursor() as cursor:
        cursor.execute("CREATE EXTENSION citus")
        cursor.execute("SELECT citus_set_coordinator_host(%s, %s)", address_of(URL))
        if not NODES:
            cursor.execute("SELECT citus_set_node_property(%s, %s, 'shouldhaveshards', true)", address_of(URL))
        for url in NODES:
            with psycopg.connect(url, dbname=NAME, autocommit=True) as node:
                node.execute("CREATE EXTENSION citus")
            cursor.execute("SELECT citus_add_node(%s, %s)", address_of(url))


def drop_databases() -> None:
    """Drop the database of a test on every node: Citus leaves that to us."""
    for url in (URL, *NODES):
        with psycopg.connect(url, autocommit=True) as server:
            server.execute(f"DROP DATABASE IF EXISTS {NAME} WITH (FORCE)")


def address_of(url: str) -> list[object]:
    """Return the host and the port of a node."""
    config = environ.Env.db_url_config(url)
    return [config["HOST"], int(config["PORT"] or 5432)]


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
