"""What calls write into objects within a transaction: if that is rolled back, the objects are as they were before.

Django undoes its rows alone. An object that keeps the state, the key or the claim of a write that never happened would
write it again with its next save, or write to the row of somebody else who got the key.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache, partial
from itertools import count
from typing import NamedTuple
from weakref import ref

from django.db import connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import NOT_PROVIDED, Model

from stator.rows.beginning import FRAMEWORK_COLUMNS
from stator.rows.keys import key_fields
from stator.rows.state_column import state_field

# In place of the value of an attribute that an object does not have.
ABSENT = object()

# Where a connection has its journal.
JOURNAL = "stator_journal"

# Objects that are gone are dropped from a journal when it has grown to this many entries, or to twice what was left.
MANY = 1024

# The attributes that the UPDATE of a save fills.
FILLED_BY_UPDATES = frozenset({
    "_loaded_state",
    "_loaded_watched",  # stator.extensions.reconcile
    "stator",
})  # fmt: skip

Values = Mapping[str, object]

# The context outside of a transaction.
NOTHING = nullcontext()


def remembered(
    using: str, holders: Iterable[object], names: Collection[str] | None = None
) -> AbstractContextManager[None]:
    """Undo what the block writes into the attributes of objects if the open transaction, or its savepoint, is undone.

    ``names``: the attributes, by default all. Whether a model's instance is saved, and where, is always among them. An
    attribute that was assigned anew since keeps its value. Does nothing outside of a transaction.
    """
    return _restoring(using, holders, names) if is_open(using) else NOTHING


def is_open(using: str) -> bool:
    """Return whether a transaction is open, so that what is written may be rolled back."""
    connection = connections[using]
    # A connection that is not open yet takes its settings when it is; to ask for it takes three times as long.
    return not (connection.autocommit if connection.connection else transaction.get_autocommit(using))


@contextmanager
def _restoring(using: str, holders: Iterable[object], names: Collection[str] | None) -> Iterator[None]:
    parts = [(part, own, _values(part, own)) for holder in holders for part, own in _parts(holder, names)]
    try:
        yield
    finally:
        journal = journal_of(using)
        for part, own, before in parts:
            journal.note(part, before, _values(part, own))


class BeforeSave(NamedTuple):
    """An instance before it is saved: whether it is new, its database, and its attributes."""

    adding: bool
    db: str | None
    values: dict[str, object]


def before_save(using: str, instance: Model) -> BeforeSave | None:
    """Return what :func:`note_save` needs after the instance was saved; None outside of a transaction.

    As ``remembered``, in a tenth of the time: programs save many objects in one transaction.
    """
    if not is_open(using):
        return None
    state, values = instance._state, instance.__dict__
    # A copy of all attributes takes less time than one of some.
    return BeforeSave(state.adding, state.db, values.copy() if state.adding else _values(instance, FILLED_BY_UPDATES))


def note_save(using: str, instance: Model, before: BeforeSave) -> None:
    """Undo what a save has written into an instance if the open transaction, or its savepoint, is rolled back."""
    if before.adding:
        held = ref(instance)
        journal_of(using).add(partial(_unsave, held, before), held)
        return
    now = _values(instance, FILLED_BY_UPDATES)
    if now != before.values:
        journal_of(using).note(instance, before.values, now)


@cache
def _filled_by_inserts(model: type[Model]) -> frozenset[str]:
    """Return the attributes that an INSERT fills, apart from what receivers of signals and the project's fields do."""
    keys = {field.attname for each in (model, *model._meta.all_parents) for field in key_fields(each)}
    fields = list(model._meta.concrete_fields)
    returned = {field.attname for field in fields if field.generated or field.db_default is not NOT_PROVIDED}
    return (FRAMEWORK_COLUMNS | keys | returned | FILLED_BY_UPDATES) - {state_field(model).name}


def created(using: str, instances: Iterable[Model]) -> None:
    """Make new instances unsaved again if the open transaction, or its savepoint, is rolled back."""
    if not is_open(using):
        return
    journal = journal_of(using)
    for instance in instances:
        key = instance._meta.pk.attname
        journal.note(instance, {key: None}, {key: instance.pk})
        journal.note(instance._state, {"adding": True}, {"adding": False})


def on_rollback(using: str, function: Callable[[], object]) -> None:
    """Call a function if the open transaction, or its savepoint, is rolled back."""
    if is_open(using):
        journal_of(using).add(function)


def journal_of(using: str) -> "Journal":
    """Return the journal of this thread's connection."""
    connection = transaction.get_connection(using)
    journal: Journal | None = vars(connection).get(JOURNAL)
    if journal is None:
        journal = vars(connection)[JOURNAL] = Journal(connection)
    return journal


class Entry(NamedTuple):
    """How to undo a write, and its place in the order of writes and savepoints; ``holder`` has been written to."""

    place: int
    restore: Callable[[], object]
    holder: Callable[[], object]


class Journal:
    """The writes into objects in the open transaction of one connection, and its savepoints.

    The methods of the connection that end a transaction or a savepoint are replaced, because Django has no hook for a
    rollback, and its hooks for a commit know neither savepoints that code makes by itself nor manual transactions.
    """

    def __init__(self, connection: BaseDatabaseWrapper) -> None:
        self._connection = connection
        self._entries: list[Entry] = []
        # The place of each open savepoint. One that is not here is older than the journal.
        self._savepoints: dict[str, int] = {}
        self._places = count()
        self._many = MANY
        own: dict[str, Callable[..., object]] = {
            "savepoint": self._savepoint,
            "savepoint_create": self._savepoint,
            "savepoint_commit": self._savepoint_commit,
            "savepoint_rollback": self._savepoint_rollback,
            "rollback": self._rollback,
            "close": self._close,
            "commit": self._commit,
            "set_autocommit": self._set_autocommit,
        }
        for name, method in own.items():
            # Django 6.1 gives a savepoint another name.
            if hasattr(connection, name):
                vars(connection)[name] = partial(method, getattr(connection, name))

    def note(self, holder: object, before: Values, after: Values) -> None:
        """Note what was written into an object; it may be gone before the transaction ends."""
        changed = {
            name: (before.get(name, ABSENT), after.get(name, ABSENT))
            for name in before.keys() | after.keys()
            if before.get(name, ABSENT) is not after.get(name, ABSENT)
        }
        if changed:
            held = ref(holder)
            self.add(partial(_restore, held, changed), held)

    def add(self, restore: Callable[[], object], holder: Callable[[], object] = object) -> None:
        """Note how to undo a write, as long as ``holder()`` is not None."""
        if len(self._entries) >= self._many:
            self._entries = [entry for entry in self._entries if entry.holder() is not None]
            self._many = max(MANY, 2 * len(self._entries))
        self._entries.append(Entry(next(self._places), restore, holder))

    def _restore_since(self, since: int = 0) -> None:
        while self._entries and self._entries[-1].place >= since:
            self._entries.pop().restore()

    def _forget(self) -> None:
        self._entries.clear()
        self._savepoints.clear()

    def _savepoint(self, make: Callable[[], str | None]) -> str | None:
        if name := make():
            self._savepoints[name] = next(self._places)
        return name

    def _savepoint_commit(self, commit: Callable[[str], None], name: str) -> None:
        commit(name)
        self._savepoints.pop(name, None)

    def _savepoint_rollback(self, roll_back: Callable[[str], None], name: str) -> None:
        # Before the statement: if that fails, the transaction is lost as well.
        self._restore_since(self._savepoints.get(name, 0))
        roll_back(name)

    def _rollback(self, end: Callable[[], None]) -> None:
        self._restore_since()
        self._forget()
        end()

    def _close(self, close: Callable[[], None]) -> None:
        close()
        # A database in memory stays open.
        if self._connection.connection is None or self._connection.closed_in_transaction:
            self._restore_since()
            self._forget()

    def _commit(self, commit: Callable[[], None]) -> None:
        commit()
        self._forget()

    def _set_autocommit(self, change: Callable[..., None], autocommit: bool, **options: object) -> None:
        change(autocommit, **options)
        # What a manual transaction has left open is committed then.
        self._forget()


def _parts(holder: object, names: Collection[str] | None) -> Iterator[tuple[object, Collection[str] | None]]:
    yield holder, names
    if (state := vars(holder).get("_state")) is not None:
        yield state, ("adding", "db")


def _values(part: object, names: Collection[str] | None) -> dict[str, object]:
    values = vars(part)
    return dict(values) if names is None else {name: values[name] for name in names if name in values}


def _unsave(held: Callable[[], Model | None], before: BeforeSave) -> None:
    if (instance := held()) is None:
        return
    values, was = instance.__dict__, before.values
    for name in _filled_by_inserts(type(instance)):
        if name in was:
            values[name] = was[name]
        else:
            values.pop(name, None)
    instance._state.adding, instance._state.db = True, before.db


def _restore(held: Callable[[], object], changed: Mapping[str, tuple[object, object]]) -> None:
    if (holder := held()) is None:
        return
    values = vars(holder)
    for name, (before, after) in changed.items():
        now = values.get(name, ABSENT)
        if now is not after and now != after:
            continue
        if before is ABSENT:
            values.pop(name, None)
        else:
            values[name] = before
