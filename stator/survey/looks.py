"""The looks of one survey: each is bounded, and one that fails or was cut short leaves out its own model alone."""

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from django.db import DatabaseError, connections
from django.db.models import Model

from stator.capabilities import capabilities_of
from stator.db.looks import MOST, LockHolder, bounded, holder_among, holders
from stator.db.retry import is_cut_short, is_lock_timeout, is_of_remote
from stator.graph.durations import span
from stator.rows.problem import ERROR, Problem
from stator.rows.readings import READINGS
from stator.scopes import PATHS, path_in_use
from stator.texts import one_line

Result = TypeVar("Result")


@dataclass(slots=True)
class Looks:
    """``unread``: the models of which nothing more is read, by label in lower case, each with its problem.

    A context: all looks are in one bounded transaction, and in a new one after one that was cut short.
    """

    using: str
    models: Sequence[type[Model]] = field(default_factory=list)
    unread: dict[str, Problem] = field(default_factory=dict)
    _open: ExitStack | None = None

    def __enter__(self) -> "Looks":
        return self

    def __exit__(self, *raised: object) -> None:
        self._close(*raised)

    def at(self, model: type[Model], look: Callable[[], Result], otherwise: Any) -> Result:
        """Return what ``look`` reads about a model; ``otherwise`` if it fails or takes too long, or did so before.

        Only a database that cannot be used any more ends the looks at all of them.
        """
        if model._meta.label_lower in self.unread:
            return otherwise
        try:
            with self.limits():
                return look()
        except Exception as error:
            if is_cut_short(error):
                self._note(model, is_locked=is_lock_timeout(error))
            elif is_of_remote(error):
                said = f"not everything is shown: {one_line(error)}"
                remedy = "start the server with its rows, or find out what holds it up"
                self.unread[model._meta.label_lower] = self._problem(model, said, remedy=remedy)
            elif connections[self.using].is_usable():
                said = f"not everything is shown: {type(error).__name__}: {one_line(error)}"
                self.unread[model._meta.label_lower] = self._problem(model, said, remedy="tell the developers")
            else:
                raise
            return otherwise

    def of(self, name: str, *given: object, otherwise: object) -> Any:
        """Return what the reading with a name finds; ``otherwise`` also if no extension has it."""
        reading = READINGS.get(name)
        if reading is None:
            return otherwise
        return self.at(reading.model, partial(reading.of, self.using, *given), otherwise)

    def together(self, look: Callable[[], Result]) -> Result | None:
        """Return what one look at many models reads; None if it fails, so that each has to be looked at by itself."""
        try:
            with self.limits():
                return look()
        except Exception as error:
            if not (is_cut_short(error) or is_of_remote(error) or connections[self.using].is_usable()):
                raise
            return None

    @contextmanager
    def limits(self) -> Iterator[None]:
        """Read within the limits; an error ends the transaction of the looks so far, not what they have read."""
        if self._open is None:
            self._open = ExitStack()
            self._open.enter_context(bounded(self.using))
        try:
            yield
        except BaseException as error:
            self._close(type(error), error, error.__traceback__)
            raise
        if not self._locks_tables:
            # There, the limit is of the block, which takes no statement.
            self._close(None, None, None)

    def _close(self, *raised: Any) -> None:
        if opened := self._open:
            self._open = None
            with suppress(DatabaseError):
                opened.__exit__(*raised)

    @property
    def _locks_tables(self) -> bool:
        return capabilities_of(connections[self.using]).locks_tables

    def _note(self, model: type[Model], *, is_locked: bool) -> None:
        """Leave out a model and, after a lock timeout, all whose tables are locked too: each would be waited for."""
        label = model._meta.label_lower
        if not is_locked:
            said = f"not everything is shown: a look took longer than {span(MOST)}"
            self.unread[label] = self._problem(model, said)
        elif not self._locks_tables:
            said = f"not everything is shown: another program locks database {self.using!r}"
            whole = self._problem(model, said, where="database", model="")
            self.unread |= dict.fromkeys((label, *(each._meta.label_lower for each in self.models)), whole)
        else:
            locked = holders(self.using)
            self._leave_out(model, holder_among(locked, _tables_of(model)))
            for each in self.models:
                if held := next((locked[table] for table in _tables_of(each) if table in locked), None):
                    self._leave_out(each, held)

    def _leave_out(self, model: type[Model], holder: LockHolder | None) -> None:
        table, label = holder.table if holder else model._meta.db_table, model._meta.label_lower
        known = (one for one in self.unread.values() if one.numbers.get("table") == table)
        same = self.unread.get(label) or next(known, None)
        said = f"not everything is shown: {holder or f'table {table} is locked'}"
        ends = f'-c "SELECT pg_terminate_backend({holder.pid})"' if holder else ""
        self.unread[label] = same or self._problem(
            model, said, numbers={"table": table}, since=holder.since if holder else None,
            remedy="wait for that session, or end it",
            **({"command": f"manage.py dbshell --database {self.using} -- {ends}"} if ends else {}),
        )  # fmt: skip

    def _problem(self, of: type[Model], said: str, **rest: Any) -> Problem:
        rest = {
            "where": str(of._meta.label), "command": "manage.py stator doctor",
            "model": of._meta.label_lower if hasattr(of, "state_graph") else "",
            "remedy": "find out what keeps the database busy",
        } | rest  # fmt: skip
        return Problem("unread", said, level=ERROR, **rest)


def _tables_of(model: type[Model]) -> Collection[str]:
    return [part._meta.db_table.strip('"') for part in (model, *model._meta.get_parent_list())]


def works_in_schemas(using: str = "default") -> bool:
    """Return whether the setting names schemas, and neither a command nor a package has chosen one of them."""
    return PATHS.served([], None, None) is not None and path_in_use(connections[using]) in ("", "public")
