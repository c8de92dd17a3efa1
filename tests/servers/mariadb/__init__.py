"""A MariaDB server of this machine's own package, started for tests and benchmarks. Not for production."""

from tests.servers.mariadb.server import MariaDBError, Server, temporary_server

__all__ = ["MariaDBError", "Server", "temporary_server"]
