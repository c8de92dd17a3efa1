"""What a confirmation page showed: the confirmed action changes only rows that are still as they were shown."""

import json
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import NamedTuple

from django.db.models import BigIntegerField, Case, Model, QuerySet, Value, When
from django.http import HttpRequest

from stator.admin.fields import can_be_key
from stator.rows.clock import Now
from stator.rows.meta import M
from stator.rows.state_column import state_field
from stator.texts import escape

# The field of the form that carries what was shown.
FIELD = "stator_seen"

# The field that says that the page was confirmed.
CONFIRMED = "stator_confirmed"

# Up to this many rows are carried one by one. If there are more rows, their states and the time are carried.
EXACT = 1000

# Changed rows that the message after the action names.
NAMED = 5


class RowVersion(NamedTuple):
    """What changes when a row is moved, and when it is claimed."""

    moves: int
    attempts: int


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The rows of a confirmation page, counted by state.

    ``rows`` has their versions by key, as text; None if they are more than ``EXACT``. Then they are the rows in the
    counted states that have not moved since ``at``. ``counts`` is empty if the rows are too many to count.
    """

    counts: Mapping[str, int] = field(default_factory=dict)
    rows: Mapping[str, RowVersion] | None = None
    at: datetime | None = None
    total: int = 0

    def as_text(self) -> str:
        """Return the value of the form's field."""
        if self.rows is not None:
            return json.dumps({"rows": self.rows})
        return json.dumps({"at": self.at.isoformat() if self.at else "", "states": sorted(self.counts)})

    def unchanged(self, rows: QuerySet[M], *, same_claim: bool = False) -> QuerySet[M]:
        """Return the rows that have not moved since; ``same_claim``: nor were claimed anew."""
        if self.rows is None:
            still = rows.filter(state_changed__lt=self.at)
            return still.filter(**state_field(rows.model).among(self.counts)) if self.counts else still
        rows = rows.filter(pk__in=list(self.rows), state_version=self._expected("moves"))
        return rows.filter(state_attempts=self._expected("attempts")) if same_claim else rows

    def changes(self, rows: QuerySet[Model], *, same_claim: bool = False) -> list[str]:
        """Return a phrase for each shown row that has changed since, among ``rows``, which are all of the model."""
        if self.rows is None:
            return []
        current = rows.filter(pk__in=list(self.rows)).order_by()
        field = state_field(rows.model)
        named = ("pk", field.name, "state_version", "state_attempts")
        now = {
            str(pk): (field.name_of(state), RowVersion(*version)) for pk, state, *version in current.values_list(*named)
        }
        return [
            phrase
            for key, version in self.rows.items()
            if (phrase := _phrase(key, version, now.get(key), same_claim=same_claim))
        ]

    def _expected(self, column: str) -> Case:
        keys: dict[int, list[str]] = defaultdict(list)
        for key, version in (self.rows or {}).items():
            keys[getattr(version, column)].append(key)
        whens = [When(pk__in=same, then=Value(value)) for value, same in keys.items()]
        return Case(*whens, default=Value(None), output_field=BigIntegerField())


def see(rows: QuerySet[Model], most: int) -> Snapshot:
    """Return what a confirmation page shows of the rows, counted up to ``most``; one statement."""
    field = state_field(rows.model)
    named = ("pk", field.name, "state_version", "state_attempts", "stator_seen_at")
    read = rows.order_by().annotate(stator_seen_at=Now()).values_list(*named)
    listed = list(read[: most + 1])
    total = len(listed)
    counts = Counter(field.name_of(state) for _, state, *_ in listed)
    if total <= EXACT:
        exact = {str(pk): RowVersion(moves, attempts) for pk, _, moves, attempts, _ in listed}
        return Snapshot(counts, exact, total=total)
    # SQLite's clock has milliseconds, and a move within the millisecond of ``at`` may be later than the page.
    return Snapshot(counts if total <= most else {}, None, listed[0][-1] - timedelta(milliseconds=1), total)


def confirmed_in(request: HttpRequest, model: type[Model]) -> Snapshot | None:
    """Return what the page had shown that was confirmed; None if the page has to be shown."""
    if CONFIRMED not in request.POST:
        return None
    try:
        given = json.loads(request.POST.get(FIELD, ""))
        if "rows" in given:
            rows = {key: RowVersion(*map(int, version)) for key, version in given["rows"].items()}
            return Snapshot(rows=rows) if all(can_be_key(model, key) for key in rows) else None
        states = dict.fromkeys(map(str, given["states"]), 0)
        return Snapshot(counts=states, at=datetime.fromisoformat(given["at"]))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None


def describe_changes(changes: list[str]) -> str:
    """Return which rows have changed since they were shown; "" if none has."""
    named = changes[:NAMED] + [f"{len(changes) - NAMED:,} others have changed"] * (len(changes) > NAMED)
    return f"since you were asked: {', '.join(map(escape, named))}" if named else ""


def _phrase(key: str, shown: RowVersion, now: tuple[str, RowVersion] | None, *, same_claim: bool) -> str:
    if now is None:
        return f"{key} is gone"
    state, version = now
    if version.moves != shown.moves:
        return f"{key} is in {state} now"
    return f"{key} was claimed anew" if same_claim and version != shown else ""
