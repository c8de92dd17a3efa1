"""A MySQL server of programs that are there already, started for tests. Not for production."""

from tests.servers.mysql.server import MySQLError, Server, temporary_server

__all__ = ["MySQLError", "Server", "temporary_server"]
