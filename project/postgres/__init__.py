"""A PostgreSQL 18 of our own for tests, benchmarks and demos, with nothing installed by hand. Not for production."""

from project.postgres.programs import PostgresError
from project.postgres.server import DATABASE, Server, temporary_server

__all__ = ["DATABASE", "PostgresError", "Server", "temporary_server"]
