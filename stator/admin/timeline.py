"""The history of one row in sentences, newest first."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Protocol

from django.db.models import Q

from stator.admin.row_summary import holder, seconds_since
from stator.graph.durations import span
from stator.models import StatorModel
from stator.rows.meta import home_of
from stator.rows.readings import read
from stator.rows.state_column import state_name

LATEST = 50


@dataclass(frozen=True, slots=True)
class TimelineEvent:
    """One entry: ``kind`` for its style, what happened, who or what did it, and the message.

    ``moved``: the states from which and to which it moved the object, if it did.
    """

    kind: str
    at: datetime
    what: str
    who: str = ""
    said: str = ""
    details: str = ""
    traceback: str = ""
    log: str = ""
    moved: tuple[str, str] | None = None

    @property
    def ago(self) -> str:
        """The time since the event as text."""
        return f"{span(seconds_since(self.at))} ago"

    @property
    def key(self) -> str:
        """An identifier that stays the same when the page is drawn again."""
        return f"{self.kind}-{self.at.timestamp():.6f}"


@dataclass(frozen=True, slots=True)
class Timeline:
    """The events of a row, and the moves among them as ``(from, to)``, the latest first."""

    events: list[TimelineEvent]
    moves: list[tuple[str, str]]


# Returns the latest entries of a row, at most so many, the newest first, each with the id of the worker that made it;
# the id is "" if the entry says itself who did.
Entries = Callable[[StatorModel, int], Iterable[tuple[str, TimelineEvent]]]


class StoredEntry(Protocol):
    """A stored entry of the history of an object."""

    kind: str
    at: datetime
    source: str
    to: str
    reason: str


# What extensions add; and what they say of stored entries, by their kind, given who did it and further details.
_further: list[Entries] = []
SENTENCES: dict[str, Callable[[StoredEntry, str, str], TimelineEvent]] = {}


def add_entries(entries: Entries) -> None:
    """Add entries of an extension, whose module for the admin calls this."""
    _further.append(entries)


def move_text(act: StoredEntry) -> str:
    """Return the states that a move led from and to."""
    return f"{act.source} \N{RIGHTWARDS ARROW} {act.to}"


def timeline_of(row: StatorModel) -> Timeline:
    """Return the stored events of the row; one statement, and those of extensions."""
    further = [each for entries in _further for each in entries(row, LATEST)]
    crew = _crew({worker for worker, _ in further} - {""}, home_of(row))
    events = [replace(event, who=crew[worker]) if worker else event for worker, event in further]
    if row.state_claim is not None and row.state_attempted:
        what = f"Attempt {row.state_attempts} in {state_name(row)} began"
        events.append(TimelineEvent("begun", row.state_attempted, what, holder(row.state_claim)))
    moves = [event.moved for event in events if event.moved is not None]
    events.sort(key=lambda event: event.at, reverse=True)
    return Timeline(events[:LATEST], moves)


def _crew(ids: set[str], using: str | None) -> dict[str, str]:
    """Return a phrase for each worker; without a place for one whose row is deleted, a day after its end."""
    # One more key ensures that the page takes an equal number of statements with and without workers.
    processes = read("processes", using, Q(pk__in=["", *ids]), otherwise={})
    return {pk: f"worker {pk} ({processes[pk]})" if pk in processes else f"worker {pk}" for pk in ids}
