"""An embedded PostgreSQL 18 for tests, benchmarks and demos, without manual installation. Not for production."""

from tests.servers.postgres.programs import PostgresError
from tests.servers.postgres.server import Server, temporary_server
from tests.servers.user import DATABASE

__all__ = ["DATABASE", "PostgresError", "Server", "temporary_server"]
