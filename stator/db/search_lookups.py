"""Lookups for searches that ignore case whatever the collation, such as ``stator_icontains``.

On MariaDB, Django's own ``icontains`` compares as the column's collation does, and the collation that our documentation
advises is case-sensitive.
"""

from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import Field, lookups
from django.db.models.sql.compiler import SQLCompiler

# The prefix of the names of these lookups, before the name of Django's lookup.
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
    # Their ``lookup_name`` stays the name of Django's lookup, because backends choose the operator by it.
    Field.register_lookup(lookup, f"{PREFIX}{lookup.lookup_name}")
