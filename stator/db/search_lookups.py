"""Lookups for searches that ignore case whatever the collation: ``stator_icontains`` and others.

On MariaDB, Django's own ``icontains`` compares as the column's collation does, and the one that the documentation
advises minds case.
"""

from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import Field, lookups
from django.db.models.sql.compiler import SQLCompiler

# What the names of the lookups have before those of Django's.
PREFIX = "stator_"


class _IgnoringCase(lookups.BuiltinLookup):
    """A lookup that compares lower case with lower case on MySQL and MariaDB, and elsewhere as Django does."""

    def as_mysql(self, compiler: SQLCompiler, connection: BaseDatabaseWrapper) -> tuple[str, list[object]]:
        """Return the SQL for MySQL and MariaDB."""
        column, params = self.process_lhs(compiler, connection)
        sought, further = self.process_rhs(compiler, connection)
        return f"LOWER({column}) {self.get_rhs_op(connection, f'LOWER({sought})')}", [*params, *further]


class IContains(_IgnoringCase, lookups.IContains):
    """A text that contains another one."""


class IExact(_IgnoringCase, lookups.IExact):
    """A text that is equal to another one."""


class IStartsWith(_IgnoringCase, lookups.IStartsWith):
    """A text that starts with another one."""


for lookup in (IContains, IExact, IStartsWith):
    # Their own names stay those of Django's lookups, by which backends know what to write.
    Field.register_lookup(lookup, f"{PREFIX}{lookup.lookup_name}")
