"""Claims through the ORM: correct on every database. Rows are picked and locked first, then claimed."""

import logging
import time
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from itertools import chain
from typing import TypeVar
from uuid import UUID

from django.db import DatabaseError
from django.db.models import Max, Model, Q, QuerySet

from stator.db.conditions import CLAIM
from stator.db.instances import load_rows
from stator.db.interface import Claim, Operations, new_token
from stator.db.ordering import Lines, pick
from stator.db.refusals import in_pieces, is_refusal
from stator.db.values import Instance, Pk
from stator.graph import State
from stator.graph.failures import bounded
from stator.rows import columns
from stator.rows.claimable import READY, Crashes
from stator.rows.sent_events import Event, events_of

logger = logging.getLogger("stator.worker")

Some = TypeVar("Some", bound=Claim)

# How many events are read at once, of all objects that are claimed together.
MAX_EVENTS = 1000

# More rows than one claim takes.
MAX_CLAIMED = 100_000


class Claims:
    """Claims on the rows of one model, in the order of one worker."""

    def __init__(self, operations: Operations) -> None:
        self._operations = operations
        self.lines = Lines(operations)

    def claim(
        self, states: list[State], limit: int, *, token: UUID | None = None, crashes: Crashes = Crashes.NONE
    ) -> list[Claim]:
        """Claim up to ``limit`` ready rows in the order of their turn; claim rows that lost leases by age alone.

        Only rows that meet the store's conditions are claimed.
        """
        operations, states = self._operations, self.running(states)
        if not states:
            return []
        token = token or new_token(operations.worker_id)
        claimed = time.monotonic()
        instances = self._claim(states, limit, token, crashes)
        by_value, own = operations.state_field.states, operations.state_field.attname
        return with_events(
            [Claim(operations, each, by_value[each.__dict__[own]], token, claimed) for each in instances]
        )

    def running(self, states: list[State]) -> list[State]:
        """Return those of these states in which rows may be claimed."""
        conditions = self._operations.conditions
        conditions.read_initially(self._operations)
        return conditions.states(states)

    def _claim(self, states: list[State], limit: int, token: UUID, crashes: Crashes) -> list[Instance]:
        """Claim rows together; if the database refuses that, claim the rows that it accepts.

        A constraint of the model may forbid what another claim has just made impossible, so the retry picks rows anew.
        """
        operations = self._operations
        for claim_rows in (self._claim_rows, self._claim_pieces):
            try:
                if operations.conditions.gates(states):
                    return self._claim_gated(states, limit, token, crashes, claim_rows)
                return claim_rows(states, limit, token, crashes)
            except DatabaseError as error:
                if operations.connection.in_atomic_block or not is_refusal(error):
                    raise
                told = {"model": operations.label, "error": bounded(str(error), 200)}
                logger.info("stator.claim_refused", extra=told)
        return []

    def _claim_gated(
        self,
        states: list[State],
        limit: int,
        token: UUID,
        crashes: Crashes,
        claim_rows: Callable[..., list[Instance]],
    ) -> list[Instance]:
        """Claim as many rows as a condition has room for."""
        operations = self._operations
        with operations.transaction():
            room = operations.conditions.room(states, limit, sure=True)
            return claim_rows(states, room, token, crashes) if room else []

    def _claim_rows(self, states: list[State], limit: int, token: UUID, crashes: Crashes) -> list[Instance]:
        operations = self._operations
        with operations.transaction():
            picked = pick(operations, self.lines, states, limit, crashes)
            return self._take(token, picked) if picked else []

    def _claim_pieces(self, states: list[State], limit: int, token: UUID, crashes: Crashes) -> list[Instance]:
        operations = self._operations
        with operations.transaction():
            picked = pick(operations, self.lines, states, limit, crashes)
            return list(chain.from_iterable(in_pieces(operations, CLAIM, picked, partial(self._take_piece, token))))

    def _take_piece(self, token: UUID, picked: list[Pk]) -> list[Instance]:
        with self._operations.transaction():
            return self._take(token, picked)

    def _take(self, token: UUID, picked: list[Pk]) -> list[Instance]:
        operations = self._operations
        changes = columns.claiming_due(operations.state_field, token, operations.lease_end())
        found = {row.pk: row for row in take(operations.rows.filter(pk__in=picked), token, changes)}
        return [found[pk] for pk in picked if pk in found]

    def release_token(self, token: UUID) -> int:
        """Release the rows of a claim statement whose answer never arrived; return how many."""
        operations = self._operations
        if operations.division.spans:
            return operations.division.release_token(token)
        with operations.transaction():
            # "Held" is in the filter because there is an index of held rows.
            taken = operations.lock(operations.rows.filter(state_claim__isnull=False, state_claim=token), MAX_CLAIMED)
            return operations.rows.filter(pk__in=taken).update(**columns.releasing())


def take(rows: QuerySet[Model], token: UUID, changes: columns.Changes, only: Q = READY) -> list[Instance]:
    """Claim rows that the caller's transaction has locked, if they match ``only``; return the claimed instances.

    Some servers accept SKIP LOCKED and lock nothing: a row that somebody else has claimed is not ready any more.
    """
    claimed = rows.filter(only).update(**changes)
    return load_rows(rows.filter(state_claim=token)) if claimed else []


def claim_one(operations: Operations, pk: Pk) -> Claim | None:
    """Claim one row out of turn, ending any other claim; return None if it is gone or its state is not attempted."""
    token, claimed = new_token(operations.worker_id), time.monotonic()
    field = operations.state_field
    rows = operations.rows.filter(pk=pk, **field.among(operations.automatic))
    with operations.transaction():
        taken = take(rows, token, columns.claiming(token, operations.lease_end()), only=Q())
    states, own = field.states, field.attname
    claims = [Claim(operations.part_with(row), row, states[row.__dict__[own]], token, claimed) for row in taken]
    return next(iter(with_events(claims)), None)


def with_events(claims: list[Some]) -> list[Some]:
    """Return claims of one model, each with the events of its object in this state and on the way into it.

    If their objects have more than ``MAX_EVENTS`` together, the latest of each is read. The others are read when a
    handler asks for them, or now if it runs on the event loop, which cannot wait for them.
    """
    if claims and claims[0].operations.graph.event_names:
        operations = claims[0].operations
        held = {(str(claim.pk), claim.life.visit): claim for claim in claims}
        mine = events_of(operations.model, operations.alias).filter(
            object_pk__in=[pk for pk, _ in held], version__in={version for _, version in held}
        )
        with operations.reading():
            found = list(mine.order_by("pk")[: MAX_EVENTS + 1])
            many = len(found) > MAX_EVENTS
            if many:
                visits = mine.order_by().values("object_pk", "version", "life")
                latest = visits.annotate(latest=Max("pk")).values("latest")
                found = list(Event.objects.using(operations.alias).filter(pk__in=latest))
            by_visit: dict[tuple[str, int | None, int], list[Event]] = defaultdict(list)
            for event in found:
                by_visit[event.object_pk, event.version, event.life].append(event)
            for (pk, visit), claim in held.items():
                own = tuple(by_visit.get((pk, visit, claim.life.number), ()))
                claim.event, claim.happened = (own[-1], None if many else own) if own else (None, ())
                if many and claim.state.is_async:
                    claim.happened = claim.events
    return claims
