"""Events of the rows of a model, as the checker judges them. Independent of databases."""

from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from uuid import UUID


@dataclass(frozen=True, slots=True)
class Row:
    """The framework's columns of a row at one moment, its exclusive key and its priority (smaller is more urgent)."""

    state: str
    version: int = 0
    ready: bool = True
    claim: UUID | None = None
    locked_until: datetime | None = None
    next_attempt: datetime | None = None
    attempts: int = 0
    failures: int = 0
    crashes: int = 0
    key: str | None = field(default=None, compare=False)
    priority: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Event:
    """One committed change of one row; ``old`` is None when it was made, ``new`` when it was deleted."""

    pk: str
    at: datetime
    actor: str
    old: Row | None
    new: Row | None


@dataclass(frozen=True, slots=True)
class Effect:
    """One start of a handler, written by the handler itself."""

    pk: str
    version: int
    state: str
    claim: UUID
    at: datetime
    actor: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class History:
    """All events of a model in the order in which they were committed, row by row, and what its handlers did."""

    events: list[Event] = field(default_factory=list)
    effects: list[Effect] = field(default_factory=list)

    def rows(self) -> dict[str, list[Event]]:
        """The events of each row."""
        found: dict[str, list[Event]] = {}
        for event in self.events:
            found.setdefault(event.pk, []).append(event)
        return found

    def kinds(self) -> list["Kind"]:
        """Return the kind of each event."""
        return [kind_of(event) for event in self.events]

    def of(self, kind: "Kind") -> list[Event]:
        """Return the events of one kind."""
        return [event for event in self.events if kind_of(event) is kind]


class Kind(StrEnum):
    """The meaning of a row's change in the protocol."""

    CREATE = "create"
    DELETE = "delete"
    CLAIM = "claim"
    RENEW = "renew"
    STEAL = "steal"
    MOVE = "move"
    WAIT = "wait"
    RELEASE = "release"
    UNLOCK = "unlock"
    REAP = "reap"
    READY = "ready"
    REST = "rest"
    SAVE = "save"
    TAMPER = "tamper"


def kind_of(event: Event) -> Kind:
    """Return the kind of an event, derived from the row before and after it alone."""
    old, new = event.old, event.new
    if old is None:
        return Kind.CREATE
    if new is None:
        return Kind.DELETE
    if old == new:
        return Kind.SAVE
    if (old.state, old.version) != (new.state, new.version):
        return Kind.TAMPER if new.claim else Kind.MOVE
    if old.claim is None:
        return _unclaimed(old, new, event.at)
    if new.claim is None:
        return _ended(old, new)
    if old.claim != new.claim:
        return Kind.STEAL
    return Kind.RENEW if old.locked_until != new.locked_until else Kind.TAMPER


def _unclaimed(old: Row, new: Row, at: datetime) -> Kind:
    if new.claim is not None:
        return Kind.CLAIM
    if not new.ready and new.next_attempt and new.next_attempt > at and new == replace(old, ready=False):
        # It was ready before it was due.
        return Kind.REST
    return Kind.READY if new.ready and old.attempts == new.attempts else Kind.TAMPER


def _ended(old: Row, new: Row) -> Kind:
    if new.crashes > old.crashes:
        return Kind.REAP
    if new.attempts < old.attempts:
        return Kind.RELEASE
    return Kind.UNLOCK if new.ready else Kind.WAIT
