"""Rows that the database refuses to change, by a constraint or a trigger, so that other rows are not held up."""

import logging
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import NamedTuple, Protocol, TypeVar

from django.db import DatabaseError, ProgrammingError
from django.db.models import Model, Q, QuerySet

from stator.db.conditions import ALL, CLAIM
from stator.db.retry import is_of_schema, is_passing
from stator.db.suspensions import ResumptionPace, Suspensions
from stator.db.values import Pk
from stator.graph.failures import MESSAGE_LENGTH, bounded

logger = logging.getLogger("stator.worker")

Result = TypeVar("Result")

# Seconds that a refused row is left alone; they double each time, up to the second number.
LEFT_ALONE, MAX_SECONDS = 60.0, 600.0
PACE = ResumptionPace(LEFT_ALONE, MAX_SECONDS, stale=MAX_SECONDS)

# For refused claims, and how many refusals bring no warning. A constraint may forbid what another claim has just made
# impossible, and allow it once that claim has ended.
PACE_OF_CLAIMS, QUIETLY = ResumptionPace(1.0, MAX_SECONDS, stale=MAX_SECONDS), 2

# Refused rows that one part of a chore takes, at some statements each, before it leaves further rows to the next part.
AT_ONCE = 100

# Refused rows of one model that are remembered for each kind of write; beyond that, single rows are not the cause.
MAX_REMEMBERED = 1000

# SQLSTATE class of syntax errors, missing names and missing rights: no row is at fault.
OF_THE_STATEMENT = "42"


class RefusedWrite(NamedTuple):
    """A kind of write that the database refused for one row."""

    deed: str
    pk: Pk


class Refusals(Suspensions):
    """The writes that the database refused for rows of one model, as seen by this process, by :class:`RefusedWrite`."""

    def __init__(self, label: str) -> None:
        super().__init__(PACE)
        self._label = label
        # By kind of write: the filter of last time, and the rows that it leaves out.
        self._others: dict[str, tuple[list[Pk], Q]] = {}

    def others(self, deed: str) -> Q:
        """Return a filter that leaves out the rows to be left alone; the same one while these are the same."""
        left = [key.pk for key in self._of(deed) if not self.allow(key)] if self.held else []
        if not left:
            return ALL
        last, others = self._others.get(deed, ([], ALL))
        if last != left:
            others = ~Q(pk__in=left)
            self._others[deed] = left, others
        return others

    def note(self, deed: str, pk: Pk, error: Exception) -> None:
        """Leave a row alone for a while."""
        key, known, text = RefusedWrite(deed, pk), self._of(deed), bounded(str(error), MESSAGE_LENGTH)
        if key not in known and len(known) >= MAX_REMEMBERED:
            self.end(known[0])
        times = self.suspend(key, text, PACE_OF_CLAIMS if deed == CLAIM else PACE).times
        logger.log(
            logging.INFO if deed == CLAIM and times <= QUIETLY else logging.WARNING,
            "stator.row_refused",
            extra={
                "model": self._label, "pk": str(pk), "deed": deed, "error": type(error).__name__, "message_text": text,
            },
        )  # fmt: skip

    def _of(self, deed: str) -> list[RefusedWrite]:
        """Return the rows for which a kind of write was refused, the latest last."""
        return [key for key in self.held if isinstance(key, RefusedWrite) and key.deed == deed]


class Refusing(Protocol):
    """Operations on a model whose rows the database may refuse to change."""

    refusals: Refusals

    @property
    def reading(self) -> Callable[[], AbstractContextManager[object]]:
        """Return a context for a query with a lock timeout."""


def is_refusal(error: Exception) -> bool:
    """Return whether a row may be at fault, rather than the connection or the statement."""
    if isinstance(error, ProgrammingError):
        # Errors that a trigger raises are refusals as well.
        state: str = getattr(error.__cause__, "sqlstate", None) or OF_THE_STATEMENT
        return not state.startswith(OF_THE_STATEMENT)
    return not (is_passing(error) or is_of_schema(error))


def unless_refused(
    operations: Refusing,
    deed: str,
    parts: list[QuerySet[Model]],
    limit: int,
    write: Callable[[list[QuerySet[Model]], int], Result],
    errors: type[Exception] = DatabaseError,
) -> list[Result]:
    """Return the results of ``write`` for up to ``limit`` rows: all at once or, if that is refused, piece by piece.

    ``write`` takes querysets and a limit, and is a transaction by itself.
    """
    others = operations.refusals.others(deed)
    parts = [rows.filter(others) for rows in parts]
    try:
        return [write(parts, limit)]
    except errors as error:
        if not is_refusal(error):
            raise
    with operations.reading():
        pks = [pk for rows in parts for pk in rows.values_list("pk", flat=True)[:limit]]

    def write_piece(piece: list[Pk]) -> Result:
        return write([rows.filter(pk__in=piece) for rows in parts], len(piece))

    return in_pieces(operations, deed, pks[:limit], write_piece, errors)


def in_pieces(
    operations: Refusing,
    deed: str,
    pks: list[Pk],
    write: Callable[[list[Pk]], Result],
    errors: type[Exception] = DatabaseError,
) -> list[Result]:
    """Return the results of ``write`` for these rows: all at once or, if that is refused, for each half, and so on.

    A row that is refused by itself is left out.
    """
    done: list[Result] = []
    left, refused = [pks] if pks else [], 0
    while left and refused < AT_ONCE:
        piece = left.pop()
        try:
            done.append(write(piece))
        except errors as error:
            if not is_refusal(error):
                raise
            if len(piece) == 1:
                operations.refusals.note(deed, piece[0], error)
                refused += 1
            else:
                middle = len(piece) // 2
                left += [piece[middle:], piece[:middle]]
    return done
