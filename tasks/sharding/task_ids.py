"""Numbers of tasks, which tell the database: each database over which queues are spread has its own range."""

from collections.abc import Iterable

from django.db import connections, transaction
from django.db.models import Max, Model, QuerySet

from stator.capabilities import capabilities_of
from stator.models import home_of
from tasks.exceptions import TaskError
from tasks.rows.queues import QueueRow, home
from tasks.rows.tasks import Shard

# Task numbers stay below 2**53, the largest integer that every JSON reader keeps exact.
BITS, MAX_NUMBER = 48, 31

# This moves the counter forward, never back, so no number is given twice.
SET_COUNTER = """
SELECT setval(counter, %s) FROM (SELECT pg_get_serial_sequence(%s, %s)::regclass AS counter) tasks
WHERE coalesce(pg_sequence_last_value(counter), 0) < %s
"""


def settle(row: Model, *, is_copy: bool) -> None:
    """Let a row that was read from a replica be read again, and written, in the database where routers write it.

    ``is_copy``: it belongs to the database that answered, one of several over which its queue is spread.
    """
    if not is_copy:
        row._state.db = home_of(row)


def worked_in(sender: object, model: type[Model]) -> list[str]:
    """Return the databases in which a worker runs a model's chores at a scheduling pass."""
    told: list[str] = sender.databases_of(model) if hasattr(sender, "databases_of") else [home()]
    return told


def database_of(pk: int) -> str | None:
    """Return the database of a task with this number; None if there is none."""
    if pk >> BITS == 0:
        return home()
    shard = _shards().filter(number=pk >> BITS).first() if pk >> BITS <= MAX_NUMBER else None
    return shard.alias if shard and shard.alias in connections else None


def in_order(databases: Iterable[str], after: int = 0) -> list[str]:
    """Return databases in the order of their task numbers; databases without numbers above ``after`` are left out."""
    wanted, using = set(databases), home()
    here = [using] if using in wanted and after >> BITS == 0 else []
    if wanted <= {using}:
        return here
    there = _shards().filter(alias__in=wanted - {using}, number__gte=after >> BITS)
    return [*here, *there.order_by("number").values_list("alias", flat=True)]


def number_from(queue: QueueRow) -> None:
    """Make the database of this copy of a queue number its tasks in its own range. It is safe to repeat."""
    using, model = queue._state.db or home(), queue.tasks.model
    if using == home():
        return
    first = _number(using) << BITS
    tasks: QuerySet[Model] = QuerySet(model, using=using)
    with transaction.atomic(using=using):
        probe = model(queue=queue, action="numbering")
        probe.save_base(raw=True, force_insert=True, using=using)
        beyond = tasks.filter(pk__gte=first + 2**BITS).exists()
        tasks.filter(pk=probe.pk).delete()
        if beyond:
            raise TaskError(f"database {using!r} has given numbers that belong to another; it had another name before")
        if probe.pk < first:
            _count_from(first, queue, using)


def _count_from(first: int, queue: QueueRow, using: str) -> None:
    connection, model = connections[using], queue.tasks.model
    if capabilities_of(connection).has_sequences:
        table = connection.ops.quote_name(model._meta.db_table)
        with connection.cursor() as cursor:
            cursor.execute(SET_COUNTER, [first, table, model._meta.pk.column, first])
        return
    # Other databases continue from the largest number that ever existed.
    tasks: QuerySet[Model] = QuerySet(model, using=connection.alias)
    tasks.bulk_create([model(pk=first, queue=queue, action="numbering")], ignore_conflicts=True)
    tasks.filter(pk=first).delete()


def _number(alias: str) -> int:
    """Return the number of a database; assign the next one if it has none."""
    for _ in range(MAX_NUMBER):
        if found := _shards().filter(alias=alias).first():
            return int(found.number)
        number = (_shards().aggregate(last=Max("number"))["last"] or 0) + 1
        if number > MAX_NUMBER:
            raise TaskError(f"{MAX_NUMBER} databases have numbers of tasks already; there are none left for {alias!r}")
        # Another process may take this number first.
        _shards().bulk_create([_shards().model(number=number, alias=alias)], ignore_conflicts=True)
    raise AssertionError("a number is found, or there are none left")


def _shards() -> QuerySet[Shard]:
    return QuerySet(Shard, using=home())
