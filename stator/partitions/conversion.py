"""Conversion of a table into one with partitions, and back.

Converting moves no rows: the table becomes the first partition of a new one that takes its name. What takes long, to
build unique indexes and to check the time of all rows, is done before, while programs go on writing.
"""

from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from random import uniform
from time import sleep
from typing import Any, cast

from django.core.management.base import CommandError
from django.db import OperationalError
from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.models import ForeignKey, Model

from stator.partitions.tables import (
    DAY,
    Part,
    following,
    partition_column,
    periods_from,
    spelled_out,
    start_of,
)
from stator.partitions.upkeep import creation, is_locked, locked

# How often the lock of a table is tried, and the most seconds between two tries.
TRIES, MAX_PAUSE = 50, 1.0

FIND = """
SELECT n.nspname, c.relkind::text FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.oid = to_regclass(%s)
"""

# What refers to a table by its identity would go on with the first partition alone.
DEPENDENTS = """
SELECT 'the trigger ' || tgname FROM pg_trigger WHERE tgrelid = to_regclass(%(table)s) AND NOT tgisinternal
UNION ALL SELECT 'the policy ' || polname FROM pg_policy WHERE polrelid = to_regclass(%(table)s)
UNION ALL SELECT 'the foreign key ' || conname FROM pg_constraint
  WHERE confrelid = to_regclass(%(table)s) AND contype = 'f'
UNION ALL SELECT 'the view ' || ev_class::regclass FROM pg_rewrite JOIN pg_depend ON objid = pg_rewrite.oid
  WHERE classid = 'pg_rewrite'::regclass AND refclassid = 'pg_class'::regclass
    AND refobjid = to_regclass(%(table)s) AND ev_class <> refobjid
UNION ALL SELECT 'the publication ' || pubname FROM pg_publication_rel JOIN pg_publication p ON p.oid = prpubid
  WHERE prrelid = to_regclass(%(table)s)
LIMIT 1
"""

# The unique indexes without a column, each with the kind of its constraint and its columns.
UNIQUE = """
SELECT c.relname, con.contype::text, array_agg(a.attname::text ORDER BY k.place)
FROM pg_index i
JOIN pg_class c ON c.oid = i.indexrelid
LEFT JOIN pg_constraint con ON con.conindid = i.indexrelid AND con.conrelid = i.indrelid
CROSS JOIN LATERAL unnest(i.indkey::int2[]) WITH ORDINALITY k (number, place)
JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.number
WHERE i.indrelid = to_regclass(%s) AND i.indisunique AND i.indisvalid
GROUP BY c.relname, con.contype HAVING NOT %s = ANY(array_agg(a.attname::text))
"""
LEFT = """
SELECT c.relname FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
WHERE i.indrelid = to_regclass(%s) AND starts_with(c.relname, %s)
"""
ADDED = {
    "p": "ALTER TABLE {table} ADD CONSTRAINT {name} PRIMARY KEY USING INDEX {new}",
    "u": "ALTER TABLE {table} ADD CONSTRAINT {name} UNIQUE USING INDEX {new}",
}

# The indexes of a partitioned table, each with that of a partition.
PAIRS = """
SELECT w.relname, p.relname FROM pg_index i
JOIN pg_inherits h ON h.inhparent = i.indexrelid
JOIN pg_class w ON w.oid = h.inhparent
JOIN pg_class p ON p.oid = h.inhrelid
JOIN pg_index o ON o.indexrelid = h.inhrelid
WHERE i.indrelid = to_regclass(%s) AND o.indrelid = to_regclass(%s)
"""

FOREIGN_KEYS = "SELECT conname FROM pg_constraint WHERE conrelid = to_regclass(%s) AND contype = 'f'"

GRANTS = """
SELECT privilege_type, is_grantable, CASE grantee WHEN 0 THEN '' ELSE pg_get_userbyid(grantee) END
FROM pg_class, aclexplode(relacl) WHERE oid = to_regclass(%s) AND grantee <> relowner
"""

# From this version on, a partition has no identity column of its own.
ONE_IDENTITY = 170000

# The name of the check that all rows are of the first partition, and how names of new indexes begin.
CHECK, NEW = "stator_before", "stator_new_"

TIMES = """
SELECT extract(epoch FROM statement_timestamp())::float8, extract(epoch FROM max({column}))::float8 FROM {table}
"""
SEQUENCE = """
SELECT n.nspname, c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.oid = pg_get_serial_sequence(%s, %s)::regclass
"""
BOUND = "ALTER TABLE {table} ADD CONSTRAINT {check} CHECK ({column} < {upper}) NOT VALID"
UNBOUND = "ALTER TABLE {table} DROP CONSTRAINT IF EXISTS {check}"
ATTACH = "ALTER TABLE {table} ATTACH PARTITION {part} FOR VALUES FROM (MINVALUE) TO ({upper})"
ORPHANS = "DELETE FROM {plain} p WHERE NOT EXISTS (SELECT FROM {target} t WHERE t.{key} = p.{own})"


class Conversion:
    """The conversion of one model's table.

    Changes that need the whole table wait for its lock only briefly, but again and again.
    """

    def __init__(self, editor: BaseDatabaseSchemaEditor, model: type[Model]) -> None:
        self.editor = editor
        # Typed by the vendor's class, which has more than the base class.
        self.connection: Any = editor.connection
        self.model = model
        self.pk = str(model._meta.pk.column)
        self.name = model._meta.db_table
        self.schema, self.kind = self._find()
        # Its quoted name, as a value.
        self.quoted = self._spelled_out("{table}")

    def forwards(self, period: str) -> None:
        """Convert the table; what an interrupted conversion left is replaced."""
        if self.kind == "p":
            return
        for dependent in self._asked(DEPENDENTS, {"table": self.quoted}):
            raise CommandError(
                f"PartitionByTime: {dependent[0]} refers to the table {self.name}, and would lose it. "
                "Remove it, then migrate again."
            )
        now, newest = self._times()
        if newest and newest > now + DAY:
            raise CommandError(
                f"PartitionByTime: {self.name} has rows of the future, up to {newest:%Y-%m-%d}. "
                "Correct or delete them, then migrate again."
            )
        # So long that the table takes all rows that are written before it is converted.
        upper = following(start_of(now + DAY, period), period)
        try:
            replaced = self._replace_unique()
            self._alone(lambda cursor: self._do(cursor, BOUND, upper=upper))
            self._run("ALTER TABLE {table} VALIDATE CONSTRAINT {check}")
            self._alone(lambda cursor: self._swap(cursor, upper, period, now, replaced))
        except BaseException:
            self._alone(self._undo)
            raise

    def backwards(self) -> None:
        """Copy all rows into one table without partitions, in one transaction."""
        if self.kind == "p":
            self._alone(self._gather)

    def _find(self) -> tuple[str, str]:
        for schema, kind in self._asked(FIND, [self.connection.ops.quote_name(self.name)]):
            return schema, kind
        raise CommandError(
            f"PartitionByTime: there is no table {self.name} yet. Add the latest migration of "
            f"{self.model._meta.app_label!r} to the dependencies of this one."
        )

    def _times(self) -> tuple[datetime, datetime | None]:
        [(now, newest)] = self._asked(self._spelled_out(TIMES))
        return datetime.fromtimestamp(now, UTC), None if newest is None else datetime.fromtimestamp(newest, UTC)

    def _replace_unique(self) -> list[tuple[str, str | None, str]]:
        """Build the unique indexes that a partitioned table can have; return the name and kind of each former one."""
        self._alone(self._undo)
        column, replaced = partition_column(self.model), []
        for number, (name, kind, columns) in enumerate(self._asked(UNIQUE, [self.quoted, column])):
            new = f"{NEW}{number}_{self.model._meta.model_name}"
            self._run(
                "CREATE UNIQUE INDEX CONCURRENTLY {new} ON {table} ({columns})", new=new, columns=[*columns, column]
            )
            replaced.append((name, kind, new))
        return replaced

    def _undo(self, cursor: Any) -> None:
        """Remove what an interrupted conversion left."""
        self._do(cursor, UNBOUND)
        for (name,) in self._asked(LEFT, [self.quoted, NEW]):
            self._do(cursor, "DROP INDEX {index}", index=(self.schema, name))

    def _swap(
        self, cursor: Any, upper: datetime, period: str, now: datetime, replaced: list[tuple[str, str | None, str]]
    ) -> None:
        """Make the table the first partition of a new one."""
        for name, kind, new in replaced:
            self._exchange(cursor, name, kind, new)
        for (name,) in self._asked(FOREIGN_KEYS, [self.quoted]):
            self._do(cursor, "ALTER TABLE {table} DROP CONSTRAINT {name}", name=name)
        number, grants = self._number(), self._asked(GRANTS, [self.quoted])
        first = f"{self.name}_before_{upper:%Y%m%d}"
        part = (self.schema, first)
        self._do(cursor, "ALTER TABLE {table} RENAME TO {first}", first=first)
        self._do(cursor, "CREATE TABLE {table} (LIKE {part} INCLUDING ALL) PARTITION BY RANGE ({column})", part=part)
        self._do(cursor, UNBOUND)
        self._set_number(cursor, number)
        if self.connection.pg_version >= ONE_IDENTITY:
            self._do(cursor, "ALTER TABLE {part} ALTER COLUMN {pk} DROP IDENTITY", part=part)
        self._do(cursor, ATTACH, part=part, upper=upper)
        self._do(cursor, "ALTER TABLE {part} DROP CONSTRAINT {check}", part=part)
        for whole, former in self._asked(PAIRS, [self.quoted, self._spelled_out("{part}", part=part)]):
            self._rename_index(cursor, former, f"{former[:50]}_{upper:%Y%m%d}")
            self._rename_index(cursor, whole, former)
        self._grant(cursor, grants)
        ahead = [bounds for bounds in periods_from(now, period) if bounds[0] >= upper]
        for bounds in (None, *ahead):
            cursor.execute(creation(self.connection, (self.schema, self.name), bounds))

    def _exchange(self, cursor: Any, name: str, kind: str | None, new: str) -> None:
        """Put a new index in place of a unique one, under its name."""
        if kind:
            self._do(cursor, "ALTER TABLE {table} DROP CONSTRAINT {name}", name=name)
            self._do(cursor, ADDED[kind], name=name, new=new)
        else:
            self._do(cursor, "DROP INDEX {index}", index=(self.schema, name))
            self._rename_index(cursor, new, name)

    def _rename_index(self, cursor: Any, former: str, name: str) -> None:
        self._do(cursor, "ALTER INDEX {index} RENAME TO {name}", index=(self.schema, former), name=name)

    def _gather(self, cursor: Any) -> None:
        """Copy the rows into an ordinary table, and give it the name, the indexes and the rights of this one."""
        number, grants, editor = self._number(), self._asked(GRANTS, [self.quoted]), cast("Any", self.editor)
        plain = f"{NEW}{self.name}"
        at = (self.schema, plain)
        self._do(cursor, "CREATE TABLE {plain} (LIKE {table} INCLUDING ALL EXCLUDING INDEXES)", plain=at)
        self._do(cursor, "INSERT INTO {plain} SELECT * FROM {table}", plain=at)
        foreign = [field for field in self.model._meta.local_fields if isinstance(field, ForeignKey)]
        for field in foreign:
            # Rows in partitions outlive what they refer to.
            target, key, column = field.related_model._meta.db_table, field.target_field.column, str(field.column)
            self._do(cursor, ORPHANS, plain=at, target=target, key=str(key), own=column)
        self._do(cursor, "DROP TABLE {table}")
        self._do(cursor, "ALTER TABLE {plain} RENAME TO {name}", plain=at, name=self.name)
        self._do(cursor, "ALTER TABLE {table} ADD CONSTRAINT {name} PRIMARY KEY ({pk})", name=f"{self.name}_pkey")
        self._set_number(cursor, number)
        for index in self.model._meta.indexes:
            editor.add_index(self.model, index)
        for constraint in self.model._meta.constraints:
            editor.add_constraint(self.model, constraint)
        for field in foreign:
            # Named as Django does.
            editor.execute(editor._create_fk_sql(self.model, field, "_fk_%(to_table)s_%(to_column)s"))
        self._grant(cursor, grants)

    def _number(self) -> tuple[int, bool]:
        """Return how far the sequence of the key is; the new table has a sequence of its own."""
        [(schema, name)] = self._asked(SEQUENCE, [self.quoted, self.pk])
        [found] = self._asked(
            self._spelled_out("SELECT last_value, is_called FROM {sequence}", sequence=(schema, name))
        )
        number: tuple[int, bool] = found
        return number

    def _set_number(self, cursor: Any, number: tuple[int, bool]) -> None:
        cursor.execute("SELECT setval(pg_get_serial_sequence(%s, %s), %s, %s)", [self.quoted, self.pk, *number])

    def _grant(self, cursor: Any, grants: Iterable[tuple[str, bool, str]]) -> None:
        # The privileges are words of PostgreSQL.
        for privilege, grantable, role in grants:
            to = (
                self._spelled_out(" ON {table} TO {role}", role=role)
                if role
                else self._spelled_out(" ON {table} TO PUBLIC")
            )
            cursor.execute(f"GRANT {privilege}{to}{' WITH GRANT OPTION' * grantable}")

    def _alone(self, change: Callable[[Any], None]) -> None:
        """Make a change in a transaction that holds the table alone."""
        for left in reversed(range(TRIES)):
            try:
                with locked(self.connection, (self.schema, self.name)) as cursor:
                    change(cursor)
                return
            except OperationalError as error:
                if not is_locked(error):
                    raise
                if not left:
                    raise CommandError(
                        f"PartitionByTime: the table {self.name} was in use at each of {TRIES} tries. End long "
                        "transactions (manage.py stator doctor names the oldest), then migrate again."
                    ) from error
            sleep(uniform(0, MAX_PAUSE))

    def _run(self, template: str, **parts: Part) -> None:
        """Send a statement outside of a transaction."""
        with self.connection.cursor() as cursor:
            self._do(cursor, template, **parts)

    def _do(self, cursor: Any, template: str, **parts: Part) -> None:
        cursor.execute(self._spelled_out(template, **parts))

    def _spelled_out(self, template: str, **parts: Part) -> str:
        own: dict[str, Part] = {
            "table": (self.schema, self.name), "column": partition_column(self.model), "pk": self.pk, "check": CHECK,
        }  # fmt: skip
        return spelled_out(self.connection, template, **own, **parts)

    def _asked(self, statement: str, params: Any = None) -> list[Any]:
        with self.connection.cursor() as cursor:
            cursor.execute(statement, params)
            return list(cursor.fetchall())
