"""Questions to all shards of a table over nodes: one call for each node, which asks its own shards by a kept plan.

Citus has each shard's share of a statement planned by itself, each time anew. So a function on each node puts the
question to all of its shards in one statement, which the coordinator's session there keeps.
"""

from time import monotonic
from typing import Any

from django.apps import AppConfig, apps
from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.utils import CursorWrapper
from django.db.models.signals import post_migrate

from stator.capabilities import capabilities_of
from stator.db.interface import Operations
from stator.db.kept_statements import inlined
from stator.extensions.slices.grouping import is_spread
from stator.extensions.slices.nodes import LOOKED_UP, is_now_distributed
from stator.statements import Statement, written

# The question finds the rows of a shard under the name of the table. Its plan is kept for tables that may grow.
FUNCTION = """
CREATE OR REPLACE FUNCTION stator_in_shards(distributed text, called text, question text) RETURNS SETOF text[]
LANGUAGE plpgsql SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $${body}$$
"""
BODY = """
DECLARE
  shards bigint[]; plan text;
BEGIN
  SELECT array_agg(shardid ORDER BY shardid) INTO shards FROM pg_catalog.pg_dist_placement
  WHERE groupid = (SELECT l.groupid FROM pg_catalog.pg_dist_local_group l) AND shardid IN
    (SELECT s.shardid FROM pg_catalog.pg_dist_shard s WHERE s.logicalrelid = distributed::regclass);
  IF shards IS NULL THEN RETURN; END IF;
  plan := 'stator_' || md5(called || question || shards::text);
  IF NOT EXISTS (SELECT FROM pg_catalog.pg_prepared_statements WHERE name = plan) THEN
    EXECUTE format('PREPARE %I AS ', plan) || (
      SELECT string_agg(format('(WITH %s AS NOT MATERIALIZED (TABLE %s) SELECT %s)',
        called, pg_catalog.shard_name(distributed::regclass, shard), question), ' UNION ALL ')
      FROM unnest(shards) shard);
  END IF;
  RETURN QUERY EXECUTE format('EXECUTE %I', plan);
END
"""
# On the node that has the shard of a value; the table makes Citus send it there.
CALL = """
SELECT stator_in_shards({whole}, {name}, {question}) FROM (SELECT count(*) FROM {table} WHERE {column} = {value}) x
"""
PRESENT = "SELECT prosrc FROM pg_catalog.pg_proc WHERE oid = to_regprocedure('stator_in_shards(text, text, text)')"
# The full name of a table, how many shards it has, and a value of which the shard is on a node, for each node.
ADDRESSES = """
SELECT format('%%I.%%I', nspname, relname), (SELECT count(*) FROM pg_catalog.pg_dist_shard WHERE logicalrelid = t.oid),
  ARRAY(
    SELECT DISTINCT ON (nodename, nodeport) n FROM unnest(CAST(%s AS {kind}[])) WITH ORDINALITY AS tried(value, n)
    JOIN pg_catalog.pg_dist_shard_placement
      ON shardid = pg_catalog.get_shard_id_for_distribution_column(t.oid::regclass, value)
    ORDER BY nodename, nodeport, n)
FROM pg_catalog.pg_class t JOIN pg_catalog.pg_namespace ON relnamespace = pg_namespace.oid WHERE t.oid = to_regclass(%s)
"""

# How many values are tried to find one for each node. No row need have it.
TRIED = 500


def connect() -> None:
    """Have each ``migrate`` make the function for tables that were distributed before."""
    post_migrate.connect(_make_in, dispatch_uid="stator.in_shards")


def _make_in(app_config: AppConfig, using: str, **kwargs: object) -> None:
    connection = connections[using]
    if app_config.label != "stator" or not capabilities_of(connection).has_nodes:
        return
    tables = (connection.ops.quote_name(model._meta.db_table) for model in apps.get_models() if is_spread(model))
    if any(is_now_distributed(table, connection) for table in tables):
        make_function(connection)


def make_function(connection: BaseDatabaseWrapper) -> None:
    """Make the function on each node, unless it is there; Citus makes it on further ones."""
    with connection.cursor() as cursor:
        if not _is_made(cursor):
            cursor.execute(FUNCTION.format(body=BODY))


def _is_made(cursor: CursorWrapper) -> bool:
    cursor.execute(PRESENT)
    return bool(cursor.fetchone() == (BODY,))


def text_of(connection: BaseDatabaseWrapper, statement: Statement) -> str:
    """Return the text of a statement with its values."""
    return inlined(connection, statement).text.replace("%%", "%")


class Shards:
    """The shards of the table of a division."""

    def __init__(self, division: Any) -> None:
        self._division = division
        self._looked = -LOOKED_UP
        self._whole, self._count = "", 0
        # A slice on each node.
        self._addresses: list[Operations] = []

    def ask(self, question: str) -> list[list[str | None]] | None:
        """Return the answer of each shard; None if they cannot be asked in this way.

        ``question``: a SELECT of one array of texts, without that word, of rows of this table alone. Its values are in
        the text.
        """
        if monotonic() - self._looked >= LOOKED_UP:
            self._look_up()
        if not self._addresses:
            return None
        answers: list[list[str | None]] = []
        for part in self._addresses:
            answers += [answer for (answer,) in part.fetch(self._call(part, question), (), often=True)]
        if len(answers) == self._count:
            return answers
        # A shard has moved, or a node does not know of it yet.
        self._looked = -LOOKED_UP
        return None

    def _call(self, part: Operations, question: str) -> str:
        connection, field = part.connection, self._division.field
        table = connection.ops.quote_name(part.model._meta.db_table)
        value = field.get_db_prep_value(part.part, connection)
        given = {"whole": self._whole, "name": table, "question": question, "value": value}
        values = {name: Statement("%s", (each,)) for name, each in given.items()}
        return inlined(connection, written(CALL, table=table, column=self._division.column, **values)).text

    def _look_up(self) -> None:
        self._looked = monotonic()
        store, field = self._division.store, self._division.field
        connection, addresses = store.connection, list[Operations]()
        with connection.cursor() as cursor:
            if _is_made(cursor):
                tried = [field.to_python(number) for number in range(TRIED)]
                given = [field.get_db_prep_value(value, connection) for value in tried]
                table = connection.ops.quote_name(store.model._meta.db_table)
                cursor.execute(ADDRESSES.format(kind=field.rel_db_type(connection)), [given, table])
                self._whole, self._count, places = cursor.fetchone()
                addresses = [self._division.addressed(tried[place - 1]) for place in places]
        self._addresses = addresses
