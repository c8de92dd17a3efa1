"""A MariaDB server of this machine's own package, started for tests and benchmarks. Not for production."""

from project.mariadb.server import MariaDBError, Server, temporary_server

__all__ = ["MariaDBError", "Server", "temporary_server"]
