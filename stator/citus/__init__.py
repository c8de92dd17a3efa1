"""A database backend for Django on Citus: ``ENGINE = "stator.citus"``, for tables in distributed schemas."""
