"""Messages of the checks, by their codes."""

from collections.abc import Callable, Iterable
from contextlib import nullcontext

from django.core import checks
from django.db import connections
from django.db.transaction import atomic


def message(code: str, text: str, hint: str, obj: object = None) -> checks.CheckMessage:
    """Return a message; a code begins with E for an error, with W for a warning."""
    kind = checks.Error if code.startswith("E") else checks.Warning
    return kind(text, hint=hint, obj=obj, id=f"stator.{code}")


def looked(look: Callable[[], Iterable[checks.CheckMessage]], alias: str) -> list[checks.CheckMessage]:
    """Return what a check finds in a database; W307 if the check itself fails.

    Django runs these checks before ``migrate``, which must go on and say what it has to say. A database that cannot be
    reached raises here, as in the command.
    """
    connection = connections[alias]
    connection.ensure_connection()
    # Within a transaction, a statement that fails must not end it.
    guard = atomic(using=alias) if connection.in_atomic_block else nullcontext()
    try:
        with guard:
            return list(look())
    except Exception as error:  # noqa: BLE001 - rows and tables are what any program has left there
        text = f"A check of database {alias!r} failed: {type(error).__name__}: {error}"
        return [message("W307", text, f"The command goes on. To repeat the check: manage.py check --database {alias}.")]
