"""What each kind of database can do. Other modules ask for a capability here, never for the name of a vendor."""

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """The capabilities of one kind of database. The defaults are for a database that is not in :data:`KNOWN`."""

    # The name of the vendor, for messages.
    name: str
    # The module with its statements on rows. The default needs only the ORM; the others have what it cannot say, or
    # not fast enough.
    statements: str = "stator.db.portable"
    # The query for the names of the valid indexes; empty if none is known.
    index_query: str = ""

    # Several connections can write at once, so a worker has separate threads for claims, records and duties.
    concurrent_writers: bool = True
    # Writers lock single tables or rows rather than the whole database.
    locks_tables: bool = True
    # Statements fail with "database is locked" instead of waiting, unless OPTIONS are set as W301 says.
    fails_when_locked: bool = False
    # A database may be in the memory of one process; its connection has ``is_in_memory_db()``.
    may_be_in_memory: bool = False

    # LISTEN and NOTIFY, which wake sleeping workers.
    notifies: bool = False
    # Triggers in PL/pgSQL, such as the trigger of ``StrictFence``.
    has_plpgsql: bool = False
    # Indexes can be built while programs write to the table, and changes of tables can be rolled back.
    builds_concurrently: bool = False
    # Schemas, and a ``search_path`` that says which of them have the tables.
    has_schemas: bool = False
    # Storage parameters of tables and indexes, such as the fill factor.
    has_storage_parameters: bool = False
    # GIN indexes, which find JSON by its content.
    has_gin: bool = False
    # JSON's true and false are equal to the texts "true" and "false" when values in JSON are compared.
    takes_booleans_for_texts: bool = False
    # Values in JSON are compared as texts; ``JSON_CONTAINS`` distinguishes types.
    compares_json_as_text: bool = False
    # Arrays, which pass many keys as one parameter.
    has_arrays: bool = False
    # A table in FROM may be a query that refers to the row of the query around it.
    has_outer_references: bool = False
    # Neither indexes on expressions nor unique constraints with conditions: generated columns take their place.
    needs_generated_columns: bool = False
    # One statement can insert the rows of a JSON text and return them.
    inserts_from_json: bool = False
    # A WITH clause can write, so one statement can write several tables.
    writes_in_with: bool = False
    # Tables can be divided by time, and a part dropped as a whole.
    has_partitions: bool = False

    # The driver reports the status of a transaction, as ``info.transaction_status`` of its connection.
    reports_transaction_status: bool = False
    # The server reports the privileges of a role on a table.
    reports_privileges: bool = False
    # The query for what the server calls itself; engines that only speak its protocol differ. Empty if there are none.
    engine_query: str = ""
    # The query that says whether the server is a read replica; empty if there is none.
    replica_query: str = ""
    # How a message says that a server is a replica.
    replica_sign: str = ""
    # The query that says whether the server is a replica, and whether it takes no writes of this session; and how a
    # message says that.
    read_only_query: str = ""
    read_only_sign: str = ""
    # The database is a file, which may be read-only for this process.
    is_file: bool = False
    # Views of open transactions, held snapshots, dead rows and replication.
    has_monitoring_views: bool = False
    # A row that has left an index keeps its entry there while an older snapshot is open.
    keeps_dead_entries: bool = False
    # The database is on several nodes; Citus' functions ask each of them.
    has_nodes: bool = False
    # ``clock_timestamp()``, the server's clock, which can be compared with this host's clock.
    has_clock_timestamp: bool = False

    # Columns accept moments with a time zone even if ``USE_TZ`` is off.
    accepts_aware_moments: bool = False
    # The database's clock is in UTC, whatever the zone of its columns is.
    clock_in_utc: bool = False
    # The clock is in the time zone of the session, which Django does not set.
    clock_in_zone_of_session: bool = False


# Aurora DSQL calls itself PostgreSQL, but has a view of its own in a schema of its own.
ENGINE = """
SELECT CASE WHEN EXISTS (
    SELECT 1 FROM pg_catalog.pg_class JOIN pg_catalog.pg_namespace ON pg_namespace.oid = relnamespace
    WHERE nspname = 'sys' AND relname = 'iam_pg_role_mappings'
) THEN 'Aurora DSQL' ELSE version() END
"""

POSTGRESQL = Capabilities(
    name="postgresql", statements="stator.db.postgresql",
    index_query="SELECT relname FROM pg_class JOIN pg_index ON indexrelid = pg_class.oid WHERE indisvalid",
    notifies=True, has_plpgsql=True, has_storage_parameters=True, has_gin=True, has_arrays=True,
    has_outer_references=True, inserts_from_json=True, writes_in_with=True, builds_concurrently=True,
    has_schemas=True, has_partitions=True,
    reports_transaction_status=True, reports_privileges=True, has_monitoring_views=True, keeps_dead_entries=True,
    engine_query=ENGINE, replica_query="SELECT pg_is_in_recovery()", replica_sign="in recovery",
    read_only_query="SELECT pg_is_in_recovery(), current_setting('transaction_read_only') = 'on'",
    read_only_sign="default_transaction_read_only is on",
    has_clock_timestamp=True, accepts_aware_moments=True,
)  # fmt: skip
SQLITE = Capabilities(
    name="sqlite", statements="stator.db.sqlite",
    index_query="SELECT name FROM sqlite_master WHERE type = 'index'",
    concurrent_writers=False, locks_tables=False, is_file=True, fails_when_locked=True, may_be_in_memory=True,
    has_outer_references=True, takes_booleans_for_texts=True, clock_in_utc=True,
)  # fmt: skip
# This vendor name also stands for MariaDB.
MYSQL = Capabilities(
    name="mysql", statements="stator.db.mysql",
    index_query="SELECT DISTINCT index_name FROM information_schema.statistics WHERE table_schema = DATABASE()",
    needs_generated_columns=True, compares_json_as_text=True, clock_in_zone_of_session=True,
    engine_query="SELECT version()",
    replica_query="SELECT @@global.read_only", replica_sign="read_only is on",
    read_only_query="SELECT @@global.read_only, 0",
)  # fmt: skip

KNOWN = {each.name: each for each in (POSTGRESQL, SQLITE, MYSQL)}


class HasVendor(Protocol):
    """A connection of Django, of which one more attribute may say what its database can do."""

    vendor: str


def capabilities_of(connection: HasVendor) -> Capabilities:
    """Return the capabilities of a Django connection's database; opens nothing. A backend may bring its own."""
    own: Capabilities | None = getattr(connection, "stator_capabilities", None)
    return own or KNOWN.get(connection.vendor) or Capabilities(name=connection.vendor)
