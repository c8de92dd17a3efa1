"""An embedded PostgreSQL 18 for tests, benchmarks and demos, without manual installation. Not for production."""

from project.postgres.programs import PostgresError
from project.postgres.server import DATABASE, Server, temporary_server

__all__ = ["DATABASE", "PostgresError", "Server", "temporary_server"]
