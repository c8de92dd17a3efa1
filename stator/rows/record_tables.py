"""The framework's own tables in one list: what workers may do with each, whose rows it has, and what ends them.

Grants, retention, renames of models and the ends of lives read it. A new table of the core gets a line here, and
extensions add their own.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from django.db.models import Model, Q, QuerySet

from stator.rows.actions import Action
from stator.rows.workers import Worker

# The keys of rows that are deleted as texts, or a queryset of these.
Keys = list[str] | QuerySet[Model, object]

ALL = ("SELECT", "INSERT", "UPDATE", "DELETE")

# The settings of what ends rows, by the ``kept`` of their tables.
RETENTIONS = {"errors": "ERROR_RETENTION", "history": "HISTORY_RETENTION", "stats": "STATS_RETENTION"}


@dataclass(frozen=True, slots=True)
class TakingBack:
    """An ``action`` that another one takes back, ``by``; ``leave`` names what stays, by key, with the reason.

    ``among``: narrows objects to the ones that the actor may change; None for all.
    """

    action: Action
    by: Action
    leave: Callable[[str, str], None]
    among: Callable[[QuerySet[Model]], QuerySet[Model]] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordTable:
    """One table of ours.

    ``privileges``: what workers need; nothing for a table that only people's commands use. ``aged``: the column by
    which rows are old, and ``kept``: which retention ends them ("errors", "history", "stats" or "workers"). Tables
    without both have a prune of their own, or none. ``labelled``: rows belong to a model, by its label, and are renamed
    with it. ``rewrite``: gives rows other values, if they are not to be updated.

    ``of_life``: rows are in force for one object, named by ``object_pk``, and end with its life. ``marked``: they say
    by ``life`` which one that is. ``outlives``: they are about one object, named in the same way, and stay when it is
    deleted, unless its app deletes them with it. Of tables that have the objects in another way: ``present``, the rows
    that may be in force, and ``end``, which ends what is in force for deleted objects. ``entered``: the column that has
    when an object entered its state. ``sweep``: the path of the :class:`~stator.db.own_tables.Sweep` that deletes what
    is no longer in force, after the time of ``kept``.

    ``undo``: takes back what a manual action made here, given the model and the alias of the database, and returns how
    many rows it took back. ``since``: returns which objects with some keys,
    as texts, got a row after a time, each with why an undo leaves it alone.
    """

    model: type[Model]
    privileges: tuple[str, ...] = ALL
    aged: str = ""
    kept: str = ""
    labelled: bool = True
    of_life: bool = False
    marked: bool = True
    outlives: bool = False
    present: Callable[[], Q] | None = None
    end: Callable[[type[Model], str, Keys], None] | None = None
    entered: str = ""
    sweep: str = ""
    rewrite: Callable[[QuerySet[Any], dict[str, str]], None] | None = None
    undo: Callable[[type[Model], str, TakingBack], int] | None = None
    since: Callable[[type[Model], str, list[str], Any], dict[str, str]] | None = None


RECORD_TABLES = [
    RecordTable(model=Worker, aged="heartbeat", kept="workers", labelled=False),
    # Commands and pages write these.
    RecordTable(model=Action, privileges=(), aged="at", kept="history", labelled=False),
]


def add_record_table(table: RecordTable) -> None:
    """Add the table of an extension, which its module of models calls."""
    RECORD_TABLES.append(table)
