"""Looks at models one by one: one that fails hides no other, and what could not be seen is said."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TypeVar

from django.db import connections
from django.db.transaction import atomic

from stator.texts import one_line

Seen = TypeVar("Seen")

REMEDY = "tell the developers; the other models are shown without it"


def guarded(using: str) -> AbstractContextManager[object]:
    """Return a context for statements that may fail: they do not end a transaction around it."""
    return atomic(using=using) if connections[using].in_atomic_block else nullcontext()


class Apart:
    """The looks at the models of one database. ``failed``: why a model could not be looked at, and the remedy.

    ``raises``: an error is raised, for a caller who repeats all looks without that; it saves a savepoint for each.
    """

    def __init__(self, using: str, *, raises: bool = False) -> None:
        self.failed: dict[str, str] = {}
        self._connection = connections[using]
        self._raises = raises

    def look(self, label: str, read: Callable[[], Seen], otherwise: Seen) -> Seen:
        """Return what ``read`` returns about a model; if it raises, note that once and return ``otherwise``.

        Only a database that cannot be reached any more ends the looks at all of them.
        """
        if self._raises:
            return read()
        try:
            with guarded(self._connection.alias):
                return read()
        except Exception as error:
            if not self._connection.is_usable():
                raise
            self.failed.setdefault(label, f"cannot be looked at: {type(error).__name__}: {one_line(error)}; {REMEDY}")
            return otherwise
