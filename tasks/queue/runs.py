"""Records of claims by named workers, written by one statement for all tasks of a claim.

Django's bulk_create would take ten times as long to build the statement as the database takes to run it.
"""

from typing import Any

from django.db import connections

# The columns of a run, and those of the task that they are copied from.
COPIED = {
    "task": "id", "version": "state_version", "claimed": "state_attempted", "lease_until": "state_locked_until",
}  # fmt: skip


def note(model: Any, claims: list[Any], worker: str, lease: float | None, using: str) -> None:
    """Record the claims that one statement has just made, copied from their rows, with the lease that was asked for."""
    if not claims:
        return
    connection, task = connections[using], claims[0].instance._meta
    quote = connection.ops.quote_name
    given = {"worker": worker, "token": claims[0].token, "lease": lease, "outcome": "", "reason": ""}
    names = ", ".join(quote(model._meta.get_field(name).column) for name in (*COPIED, *given))
    columns = ", ".join(quote(task.get_field(name).column) for name in COPIED.values())
    values = [model._meta.get_field(name).get_db_prep_save(value, connection) for name, value in given.items()]
    places = ", ".join(["%s"] * len(claims))
    with connection.cursor() as cursor:
        cursor.execute(
            f"INSERT INTO {quote(model._meta.db_table)} ({names}) SELECT {columns}, %s, %s, %s, %s, %s"  # noqa: S608 - names
            f" FROM {quote(task.db_table)} WHERE {quote(task.pk.column)} IN ({places})",
            [*values, *(claim.pk for claim in claims)],
        )
