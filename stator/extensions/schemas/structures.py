"""Which of many schemas have the same tables, so that only one of them is to be examined."""

from collections import defaultdict
from collections.abc import Iterable

from django.db import connections

from stator.capabilities import capabilities_of
from stator.scopes import Scope
from stator.statements import fetch_all

# Tables with their columns, valid indexes, and triggers that are off; partitions are tables too.
STRUCTURES = """
SELECT nspname, md5(string_agg(part, ' ' ORDER BY part)) FROM pg_namespace JOIN (
  SELECT relnamespace, 'column ' || relname || '.' || attname AS part FROM pg_class
    JOIN pg_attribute ON attrelid = pg_class.oid WHERE relkind IN ('r', 'p') AND attnum > 0 AND NOT attisdropped
  UNION ALL SELECT relnamespace, 'index ' || relname FROM pg_class
    JOIN pg_index ON indexrelid = pg_class.oid WHERE indisvalid
  UNION ALL SELECT relnamespace, 'disabled ' || relname || '.' || tgname FROM pg_class
    JOIN pg_trigger ON tgrelid = pg_class.oid WHERE tgenabled = 'D'{of_citus}
) parts ON relnamespace = pg_namespace.oid WHERE nspname = ANY(%s) GROUP BY nspname
"""
OF_CITUS = """
  UNION ALL SELECT relnamespace, 'citus ' || relname || partmethod || repmodel FROM pg_class
    JOIN pg_catalog.pg_dist_partition ON logicalrelid = pg_class.oid"""


def alike(alias: str, scopes: Iterable[Scope]) -> list[list[Scope]]:
    """Return the schemas of a database in groups with the same structure, the largest group first."""
    by_name = {scope.path: scope for scope in scopes}
    of_citus = OF_CITUS if capabilities_of(connections[alias]).has_nodes else ""
    groups: dict[str, list[Scope]] = defaultdict(list)
    found = fetch_all(connections[alias], STRUCTURES.format(of_citus=of_citus), [list(by_name)])
    for schema, structure in sorted(found):
        groups[structure].append(by_name[schema])
    return sorted(groups.values(), key=len, reverse=True)
