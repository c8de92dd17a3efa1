"""Conversion of a table into one with partitions, and back.

Converting moves no rows: the table becomes the first partition of a new one that takes its name. What takes long, to
build unique indexes and to check to which partition all rows belong, is done before, while programs go on writing.
Rows are copied only if they belong to several partitions already, and on the way back.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from random import uniform
from time import sleep
from typing import Any

from django.db import OperationalError
from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.backends.utils import CursorWrapper
from django.db.models import ForeignKey, Model

from stator.extensions.partitions.schemes import MAX_NAME, PART, Division, Scheme, part_of
from stator.extensions.partitions.tables import Part, read, spelled_out
from stator.extensions.partitions.upkeep import is_locked, locked
from stator.rows.keys import key_fields
from stator.statements import fetch_all
from stator.table_operations import LEAVES

# How often the lock of a table is tried, and the most seconds between two tries.
TRIES, MAX_PAUSE = 50, 1.0

FIND = """
SELECT n.nspname, c.relname, c.relkind::text FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.oid = to_regclass(%s)
"""

# The right that the role that migrates lacks to make tables beside this one and to give them to its owner, or that the
# owner lacks, if no superuser gives; and the statement that grants it.
LACKS = """
WITH here AS (
  SELECT current_user AS role, o.oid AS owner, rolname, relname, relnamespace AS place
  FROM pg_class c JOIN pg_roles o ON o.oid = relowner WHERE c.oid = to_regclass(%(table)s)
)
SELECT format('the role %%I is no member of %%I, the owner of %%I', role, rolname, relname),
  format('GRANT %%I TO %%I', rolname, role)
FROM here WHERE NOT (pg_has_role(owner, 'USAGE') AND pg_has_role(owner, %(become)s))
UNION ALL SELECT format('the role %%I may not create tables in the schema %%s', creator, place::regnamespace),
  format('GRANT CREATE ON SCHEMA %%s TO %%I', place::regnamespace, creator)
FROM here, LATERAL (VALUES (role), (rolname)) either (creator)
WHERE NOT has_schema_privilege(creator, place, 'CREATE')
  AND NOT (creator <> role AND (SELECT rolsuper FROM pg_roles WHERE rolname = role))
LIMIT 1
"""

# By which column a table is divided, and into how many partitions.
DIVIDED = """
SELECT a.attname, (SELECT count(*) FROM pg_inherits WHERE inhparent = partrelid) FROM pg_partitioned_table
JOIN pg_attribute a ON a.attrelid = partrelid AND a.attnum = partattrs[0] WHERE partrelid = to_regclass(%s)
"""

# What refers to a table by its identity would go on with the first partition alone.
DEPENDENTS = """
SELECT 'the trigger ' || tgname, '' FROM pg_trigger
  WHERE tgrelid = to_regclass(%(table)s) AND NOT tgisinternal AND NOT %(keeps_triggers)s
UNION ALL SELECT 'the policy ' || polname, '' FROM pg_policy WHERE polrelid = to_regclass(%(table)s)
UNION ALL SELECT 'the foreign key ' || conname || ' of ' || conrelid::regclass, 'f' FROM pg_constraint
  WHERE confrelid = to_regclass(%(table)s) AND contype = 'f'
UNION ALL SELECT 'the view ' || ev_class::regclass, '' FROM pg_rewrite JOIN pg_depend ON objid = pg_rewrite.oid
  WHERE classid = 'pg_rewrite'::regclass AND refclassid = 'pg_class'::regclass
    AND refobjid = to_regclass(%(table)s) AND ev_class <> refobjid
UNION ALL SELECT 'the publication ' || pubname, '' FROM pg_publication_rel JOIN pg_publication p ON p.oid = prpubid
  WHERE prrelid = to_regclass(%(table)s)
LIMIT 1
"""
REMEDIES = {"": "Remove it", "f": "Give its field db_constraint=False"}

# The keys without a column, each with the kind of its constraint, its columns, and its storage parameters.
KEYS = """
SELECT c.relname, con.contype::text, array_agg(a.attname::text ORDER BY k.place), array_to_string(c.reloptions, ', ')
FROM pg_index i
JOIN pg_class c ON c.oid = i.indexrelid
LEFT JOIN pg_constraint con ON con.conindid = i.indexrelid AND con.conrelid = i.indrelid
CROSS JOIN LATERAL unnest(i.indkey::int2[]) WITH ORDINALITY k (number, place)
LEFT JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.number
WHERE i.indrelid = to_regclass(%s) AND (i.indisunique OR i.indisexclusion) AND i.indisvalid AND k.place <= i.indnkeyatts
GROUP BY c.relname, con.contype, c.reloptions HAVING bool_and(a.attname IS DISTINCT FROM %s)
"""
LEFT = """
SELECT c.relname FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
WHERE i.indrelid = to_regclass(%s) AND starts_with(c.relname, %s)
"""
ADDED = {
    "p": "ALTER TABLE {table} ADD CONSTRAINT {name} PRIMARY KEY USING INDEX {new}",
    "u": "ALTER TABLE {table} ADD CONSTRAINT {name} UNIQUE USING INDEX {new}",
}

# The indexes of a partitioned table, each with the index of a partition.
PAIRS = """
SELECT w.relname, p.relname FROM pg_index i
JOIN pg_inherits h ON h.inhparent = i.indexrelid
JOIN pg_class w ON w.oid = h.inhparent
JOIN pg_class p ON p.oid = h.inhrelid
JOIN pg_index o ON o.indexrelid = h.inhrelid
WHERE i.indrelid = to_regclass(%s) AND o.indrelid = to_regclass(%s)
"""

TRIGGERS = "SELECT tgname FROM pg_trigger WHERE tgrelid = to_regclass(%s) AND NOT tgisinternal"

# The statements that give a table what it has, each with its kind. A key of a kind that a division widens gets the
# column, or loses it again. Of storage parameters, which only partitions have, it is what follows SET. Of the owner, if
# another role migrates, it is what follows the name of the table.
PROPERTIES = """
SELECT 'key', format('ALTER TABLE %%s ADD CONSTRAINT %%I %%s%%s', %(table)s::text, conname,
    CASE WHEN contype::text <> ALL(%(widened)s) THEN pg_get_constraintdef(k.oid)
      WHEN %(divides)s THEN regexp_replace(pg_get_constraintdef(k.oid), '\\)', format(', %%I)', %(column)s::text))
      ELSE replace(pg_get_constraintdef(k.oid), format(', %%I)', %(column)s::text), ')') END,
    CASE WHEN contype = 'p' THEN ' WITH (' || array_to_string(reloptions, ', ') || ')' END)
  FROM pg_constraint k JOIN pg_class c ON c.oid = conindid
  WHERE conrelid = to_regclass(%(table)s) AND contype IN ('p', 'u', 'x')
UNION ALL SELECT 'index', pg_get_indexdef(indexrelid) FROM pg_index
  WHERE indrelid = to_regclass(%(table)s)
    AND indexrelid NOT IN (SELECT conindid FROM pg_constraint WHERE conrelid = indrelid)
UNION ALL SELECT 'reference',
    format('ALTER TABLE %%s ADD CONSTRAINT %%I %%s', %(table)s::text, conname, pg_get_constraintdef(oid))
  FROM pg_constraint WHERE conrelid = to_regclass(%(table)s) AND contype = 'f'
UNION ALL SELECT 'trigger', pg_get_triggerdef(oid)
  FROM pg_trigger WHERE tgrelid = to_regclass(%(table)s) AND NOT tgisinternal
UNION ALL SELECT 'trigger off', format('ALTER TABLE %%s %%s TRIGGER %%I', %(table)s::text,
    CASE tgenabled WHEN 'D' THEN 'DISABLE' WHEN 'A' THEN 'ENABLE ALWAYS' ELSE 'ENABLE REPLICA' END, tgname)
  FROM pg_trigger WHERE tgrelid = to_regclass(%(table)s) AND NOT tgisinternal AND tgenabled <> 'O'
UNION ALL SELECT 'comment', format('COMMENT ON TABLE %%s IS %%L', %(table)s::text, description)
  FROM pg_description WHERE classoid = 'pg_class'::regclass AND objoid = to_regclass(%(table)s) AND objsubid = 0
UNION ALL SELECT 'right', format('GRANT %%s%%s ON %%s TO %%s%%s', privilege_type, of_column, %(table)s::text,
    CASE grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(grantee)) END,
    CASE WHEN is_grantable THEN ' WITH GRANT OPTION' ELSE '' END)
  FROM (
    SELECT relacl, relowner, '' FROM pg_class WHERE oid = to_regclass(%(table)s)
    UNION ALL SELECT attacl, 0, format(' (%%I)', attname) FROM pg_attribute WHERE attrelid = to_regclass(%(table)s)
  ) given (acl, owner, of_column), aclexplode(acl) WHERE grantee <> owner OR of_column <> ''
UNION ALL SELECT 'owner', format('OWNER TO %%I', rolname)
  FROM pg_class c JOIN pg_roles r ON r.oid = relowner WHERE c.oid = to_regclass(%(table)s) AND rolname <> current_user
UNION ALL SELECT 'storage', string_agg(parameter, ', ')
  FROM pg_class c LEFT JOIN pg_class t ON t.oid = c.reltoastrelid,
    LATERAL (SELECT unnest(c.reloptions) UNION ALL SELECT 'toast.' || unnest(t.reloptions)) given (parameter)
  WHERE c.oid = coalesce(
    (SELECT min(inhrelid) FROM pg_inherits WHERE inhparent = to_regclass(%(table)s)), to_regclass(%(table)s)
  ) HAVING count(*) > 0
"""
# What LIKE gives to a new table if it is not told otherwise, and what it never gives, in the order of the statements.
INDEXES = ("key", "index")
REST = ("reference", "trigger", "trigger off", "comment", "right")

# Columns that an INSERT may name.
WRITABLE = """
SELECT attname FROM pg_attribute
WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped AND attgenerated = '' ORDER BY attnum
"""

# From this version on, a member of a role may lack the right to become it.
SETS_ROLES = 160000

# From this version on, a partition has no identity column of its own.
ONE_IDENTITY = 170000

# The name of the check that all rows are of the first partition, and how the names of new indexes begin, and the name
# of a table that is copied.
CHECK, NEW, FORMER = "stator_before", "stator_new_", "stator_former_"

# The sequence of a key, and whether it is one of an identity column; other sequences are of the column's default.
SEQUENCE = """
SELECT n.nspname, c.relname, a.attidentity <> ''
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
JOIN pg_attribute a ON a.attrelid = to_regclass(%(table)s) AND a.attname = %(pk)s
WHERE c.oid = pg_get_serial_sequence(%(table)s, %(pk)s)::regclass
"""
BOUND = "ALTER TABLE {table} ADD CONSTRAINT {check} CHECK ("
UNBOUND = "ALTER TABLE {table} DROP CONSTRAINT IF EXISTS {check}"
CREATE = "CREATE TABLE {table} (LIKE {former} INCLUDING ALL"
ATTACH = "ALTER TABLE {table} ATTACH PARTITION {part} FOR VALUES "
ORPHANS = "DELETE FROM {table} p WHERE NOT EXISTS (SELECT FROM {target} t WHERE t.{key} = p.{own})"
COPY = "INSERT INTO {table} ({columns}) SELECT {columns} FROM {former}"


@dataclass(frozen=True, slots=True)
class Sequence:
    """The sequence of a table's key: its name, how far it is, and whether it is one of an identity column."""

    place: tuple[str, str]
    is_identity: bool
    last: int
    is_called: bool


class Conversion:
    """The conversion of one model's table.

    Changes that need the whole table wait for its lock only briefly, but again and again.
    """

    def __init__(self, editor: BaseDatabaseSchemaEditor, model: type[Model], scheme: Scheme) -> None:
        self.editor = editor
        # Typed by the vendor's class, which has more than the base class.
        self.connection: Any = editor.connection
        self.model = model
        self.scheme = scheme
        columns = [str(field.column) for field in key_fields(model)]
        # Only a key of one column can have a sequence.
        self.pk = columns[0]
        self.widened = [kind for kind in scheme.widened if kind and not (kind == "p" and scheme.column in columns)]
        self.schema, self.name, self.kind = self._find()
        self.place = (self.schema, self.name)
        # Its quoted name, as a value.
        self.quoted = self._spelled_out("{table}")

    def forwards(self) -> None:
        """Convert the table; what an interrupted conversion left is replaced."""
        if self.kind == "p":
            self._refuse_others()
            return
        self._refuse_lack_of_rights()
        self._refuse_dependents()
        keys = self._keys()
        division = self.scheme.divide(self.connection, self.place)
        if division.copies:
            self._alone(lambda cursor: self._copy(cursor, division))
            return
        with self._undone_on_error():
            replaced = self._replace_unique(keys)
            self._alone(lambda cursor: self._do(cursor, f"{BOUND}{division.condition}) NOT VALID"))
            self._run("ALTER TABLE {table} VALIDATE CONSTRAINT {check}")
            self._alone(lambda cursor: self._swap(cursor, division, replaced))

    def backwards(self) -> None:
        """Copy all rows into one table without partitions, in one transaction."""
        if self.kind == "p":
            self._refuse_lack_of_rights()
            self._alone(self._copy)

    def _find(self) -> tuple[str, str, str]:
        # The name in the model may be quoted, with a schema.
        table = self.model._meta.db_table
        for schema, name, kind in self._asked(FIND, [self.connection.ops.quote_name(table)]):
            return schema, name, kind
        remedy = f"Add the latest migration of {self.model._meta.app_label!r} to the dependencies of this one"
        raise self.scheme.refusal(f"there is no table {table} yet", remedy)

    def _refuse_others(self) -> None:
        """Raise ``CommandError`` if the table is divided already, in another way."""
        table = read(self.model, self.connection.alias)
        for column, number in self._asked(DIVIDED, [self.quoted]):
            if not self.scheme.is_as(column, number, table.period if table else None):
                what = f"{self.name} is divided in another way already, into {number} partitions by {column}"
                raise self.scheme.refusal(what, "Reverse the migration that divided it, and remove that operation")

    def _refuse_lack_of_rights(self) -> None:
        """Raise ``CommandError`` if this role may not make tables, or not give them to the owner of this one."""
        become = "SET" if self.connection.pg_version >= SETS_ROLES else "MEMBER"
        for what, remedy in self._asked(LACKS, {"table": self.quoted, "become": become}):
            raise self.scheme.refusal(what, remedy)

    def _refuse_dependents(self, *, keeps_triggers: bool = True) -> None:
        """Raise ``CommandError`` if something refers to the table, or is a trigger that would be lost."""
        given = {"table": self.quoted, "keeps_triggers": keeps_triggers}
        for dependent, kind in self._asked(DEPENDENTS, given):
            raise self.scheme.refusal(f"{dependent} refers to the table {self.name}, and would lose it", REMEDIES[kind])

    def _keys(self) -> list[tuple[Any, ...]]:
        """Return the keys to widen, once what an interrupted conversion left is removed.

        Raise ``CommandError`` for a key that is to be unique without the column, unless it is widened.
        """
        self._alone(self._undo)
        keys = self._asked(KEYS, [self.quoted, self.scheme.column])
        for name, kind, *_ in keys:
            if kind not in self.scheme.widened:
                column = self.scheme.column
                what = f"{name} of {self.name} is unique without {column}, which partitions cannot enforce"
                raise self.scheme.refusal(what, f"Add {column} to its constraint")
        return keys

    @contextmanager
    def _undone_on_error(self) -> Iterator[None]:
        """Remove what the block has prepared if it fails."""
        try:
            yield
        except BaseException:
            self._alone(self._undo)
            raise

    def _replace_unique(self, keys: Iterable[tuple[Any, ...]]) -> list[tuple[str, str | None, str]]:
        """Build keys that a partitioned table can have; return the name and kind of each former one, and the new."""
        column, replaced = self.scheme.column, []
        for number, (name, kind, columns, parameters) in enumerate(keys):
            new = f"{NEW}{number}_{self.model._meta.model_name}"
            # Parameters are numbers and words of PostgreSQL.
            self._run(
                "CREATE UNIQUE INDEX CONCURRENTLY {new} ON {table} ({columns})"
                + (f" WITH ({parameters})" if parameters else ""),
                new=new,
                columns=[*columns, column],
            )
            replaced.append((name, kind, new))
        return replaced

    def _undo(self, cursor: CursorWrapper) -> None:
        """Remove what an interrupted conversion left."""
        self._do(cursor, UNBOUND)
        for (name,) in self._asked(LEFT, [self.quoted, NEW]):
            self._do(cursor, "DROP INDEX {index}", index=(self.schema, name))

    def _swap(self, cursor: CursorWrapper, division: Division, replaced: list[tuple[str, str | None, str]]) -> None:
        """Make the table the first partition of a new one."""
        for name, kind, new in replaced:
            self._exchange(cursor, name, kind, new)
        properties, sequence = self._properties(), self._sequence()
        for (name,) in self._asked(TRIGGERS, [self.quoted]):
            self._do(cursor, "DROP TRIGGER {name} ON {table}", name=name)
        part = part_of(self.place, division.suffix)
        self._do(cursor, "ALTER TABLE {table} RENAME TO {name}", name=part[1])
        self._do(cursor, f"{CREATE}){self._divided(division)}", former=part)
        self._do(cursor, UNBOUND)
        self._continue(cursor, sequence)
        if sequence and sequence.is_identity and self.connection.pg_version >= ONE_IDENTITY:
            self._do(cursor, "ALTER TABLE {part} ALTER COLUMN {pk} DROP IDENTITY", part=part)
        self._do(cursor, ATTACH + division.bounds, part=part)
        self._do(cursor, "ALTER TABLE {part} DROP CONSTRAINT {check}", part=part)
        pairs = self._asked(PAIRS, [self.quoted, self._spelled_out("{part}", part=part)])
        for number, (whole, former) in enumerate(pairs):
            self._rename_index(cursor, former, part_of((self.schema, former), f"{number}_{division.suffix}")[1])
            self._rename_index(cursor, whole, former)
        self._execute(cursor, division.further)
        self._hand_over(cursor, properties)
        self._execute(cursor, [each for kind in REST for each in properties[kind]])
        self._set(cursor, properties)

    def _exchange(self, cursor: CursorWrapper, name: str, kind: str | None, new: str) -> None:
        """Put a new index in place of a unique one, under its name."""
        if kind:
            self._do(cursor, "ALTER TABLE {table} DROP CONSTRAINT {name}", name=name)
            self._do(cursor, ADDED[kind], name=name, new=new)
        else:
            self._do(cursor, "DROP INDEX {index}", index=(self.schema, name))
            self._rename_index(cursor, new, name)

    def _rename_index(self, cursor: CursorWrapper, former: str, name: str) -> None:
        self._do(cursor, "ALTER INDEX {index} RENAME TO {name}", index=(self.schema, former), name=name)

    def _copy(self, cursor: CursorWrapper, division: Division | None = None) -> None:
        """Copy the rows into a new table, and give it the name, the keys, the indexes and the rights of this one."""
        properties, sequence = self._properties(divides=division is not None), self._sequence()
        columns = [column for (column,) in self._asked(WRITABLE, [self.quoted])]
        former = (self.schema, f"{FORMER}{self.name}"[:MAX_NAME])
        self._do(cursor, "ALTER TABLE {table} RENAME TO {name}", name=former[1])
        self._do(cursor, f"{CREATE} EXCLUDING INDEXES){self._divided(division)}", former=former)
        if division:
            self._do(cursor, PART + division.bounds, part=part_of(self.place, division.suffix))
            self._execute(cursor, division.further)
        self._do(cursor, COPY, columns=columns, former=former)
        self._continue(cursor, sequence)
        self._do(cursor, "DROP TABLE {former}", former=former)
        if self.scheme.keeps_orphans and not division:
            self._delete_orphans(cursor)
        self._hand_over(cursor, properties)
        self._execute(cursor, [each for kind in (*INDEXES, *REST) for each in properties[kind]])
        self._set(cursor, properties)

    def _divided(self, division: Division | None) -> str:
        """Return the end of the statement that creates the table."""
        return self._spelled_out(f" PARTITION BY {division.method} ({{column}})") if division else ""

    def _delete_orphans(self, cursor: CursorWrapper) -> None:
        """Delete rows that outlived what they refer to: in a table without partitions nothing would ever do so."""
        for field in self.model._meta.local_fields:
            if isinstance(field, ForeignKey):
                target: Any = field.target_field
                names = {"target": target.model._meta.db_table, "key": target.column, "own": field.column}
                self._do(cursor, ORPHANS, **names)

    def _properties(self, *, divides: bool = False) -> Mapping[str, list[str]]:
        """Return the statements that give a new table what this one has, by kind; keys for a table that ``divides``."""
        given = {
            "table": self.quoted, "column": self.scheme.column, "divides": divides,
            "widened": self.widened,
        }  # fmt: skip
        properties: dict[str, list[str]] = defaultdict(list)
        for kind, statement in self._asked(PROPERTIES, given):
            properties[kind].append(statement)
        return properties

    def _hand_over(self, cursor: CursorWrapper, properties: Mapping[str, list[str]]) -> None:
        """Give the new table and its partitions to the owner of the former one, before rights are granted on them."""
        for body in properties["owner"]:
            for table in (self.quoted, *(leaf for (leaf,) in self._asked(LEAVES, {"table": self.quoted}))):
                cursor.execute(f"ALTER TABLE {table} {body}")

    def _set(self, cursor: CursorWrapper, properties: Mapping[str, list[str]]) -> None:
        """Give the storage parameters to the table, or to each partition."""
        for body in properties["storage"]:
            for (table,) in self._asked(LEAVES, {"table": self.quoted}):
                cursor.execute(f"ALTER TABLE {table} SET ({body})")

    def _sequence(self) -> Sequence | None:
        """Return the sequence of the key; None if it has none."""
        for schema, name, is_identity in self._asked(SEQUENCE, {"table": self.quoted, "pk": self.pk}):
            read = self._spelled_out("SELECT last_value, is_called FROM {sequence}", sequence=(schema, name))
            [(last, is_called)] = self._asked(read)
            return Sequence((schema, name), is_identity, last, is_called)
        return None

    def _continue(self, cursor: CursorWrapper, sequence: Sequence | None) -> None:
        """Have the new table number its rows from the last number on."""
        if sequence and sequence.is_identity:
            # The new table has a sequence of its own.
            cursor.execute(
                "SELECT setval(pg_get_serial_sequence(%s, %s), %s, %s)",
                [self.quoted, self.pk, sequence.last, sequence.is_called],
            )
        elif sequence:
            self._do(cursor, "ALTER SEQUENCE {sequence} OWNED BY {table}.{pk}", sequence=sequence.place)

    def _alone(self, change: Callable[[CursorWrapper], None]) -> None:
        """Make a change in a transaction that holds the table alone."""
        for left in reversed(range(TRIES)):
            try:
                with locked(self.connection, self.place) as cursor:
                    change(cursor)
                return
            except OperationalError as error:
                if not is_locked(error):
                    raise
                if not left:
                    what = f"the table {self.name} was in use at each of {TRIES} tries"
                    remedy = "End long transactions (manage.py stator doctor names the oldest)"
                    raise self.scheme.refusal(what, remedy) from error
            sleep(uniform(0, MAX_PAUSE))

    def _run(self, template: str, **parts: Part) -> None:
        """Send a statement outside of a transaction."""
        with self.connection.cursor() as cursor:
            self._do(cursor, template, **parts)

    def _do(self, cursor: CursorWrapper, template: str, **parts: Part) -> None:
        cursor.execute(self._spelled_out(template, **parts))

    def _execute(self, cursor: CursorWrapper, statements: Iterable[str]) -> None:
        for statement in statements:
            cursor.execute(statement)

    def _spelled_out(self, template: str, **parts: Part) -> str:
        own: dict[str, Part] = {
            "table": self.place, "column": self.scheme.column, "pk": self.pk, "check": CHECK,
        }  # fmt: skip
        return spelled_out(self.connection, template, **own, **parts)

    def _asked(self, statement: str, params: Any = None) -> list[Any]:
        return fetch_all(self.connection, statement, params)
