"""Test databases on Citus: their tables are in a distributed schema, on the node of the coordinator."""

from typing import Any

import psycopg
from django.db.backends.postgresql import creation
from django.db.backends.utils import CursorWrapper


class DatabaseCreation(creation.DatabaseCreation):
    """Makes test databases with the extension, and with one distributed schema that all connections use."""

    def _execute_create_test_db(self, cursor: CursorWrapper, parameters: dict[str, str], keepdb: bool = False) -> None:
        django: Any = super()
        django._execute_create_test_db(cursor, parameters, keepdb)
        name = parameters["dbname"]
        given = self.connection.get_connection_params()
        given = {key: given[key] for key in ("host", "port", "user", "password") if key in given}
        node = [given.get("host", "localhost"), int(given.get("port", 5432))]
        with psycopg.connect(**given, dbname=name.strip('"'), autocommit=True) as made:
            # Its statements are statements of PostgreSQL, so an ordinary server can test them too.
            if not made.execute("SELECT FROM pg_available_extensions WHERE name = 'citus'").rowcount:
                return
            made.execute("CREATE EXTENSION IF NOT EXISTS citus")
            made.execute("SELECT citus_set_coordinator_host(%s, %s)", node)
            made.execute("SELECT citus_set_node_property(%s, %s, 'shouldhaveshards', true)", node)
            made.execute("SET citus.enable_schema_based_sharding = on")
            made.execute("CREATE SCHEMA IF NOT EXISTS app")
            made.execute(f"ALTER DATABASE {name} SET search_path = app, public")
            made.execute(f"ALTER DATABASE {name} SET citus.enable_schema_based_sharding = on")
