"""Database servers of their own for tests and benchmarks: PostgreSQL, MariaDB and MySQL without manual installation."""
