"""An embedded PostgreSQL 18 for tests, benchmarks and demos, without manual installation. Not for production."""

from project.postgres.programs import PostgresError
from project.postgres.server import Server, temporary_server
from project.server_user import DATABASE

__all__ = ["DATABASE", "PostgresError", "Server", "temporary_server"]
