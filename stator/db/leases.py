"""Leases through the ORM: correct on every database."""

from functools import cached_property
from itertools import chain, groupby
from uuid import UUID

from django.db.models import F, FloatField, Model, Q, QuerySet, Value

from stator.db.conditions import REAP
from stator.db.interface import Claim, Operations
from stator.db.repeat import retried, unless_refused
from stator.db.transactions import lock_parts
from stator.db.values import Pk
from stator.graph.durations import seconds_of
from stator.rows import columns
from stator.rows.clock import Now
from stator.rows.followers import taken
from stator.rows.meta import function_of
from stator.rows.workers import worker_of

NO_LIMIT = Value(None, output_field=FloatField())


class Leases:
    """Leases of the claims on one model's rows."""

    def __init__(self, operations: Operations) -> None:
        self._operations = operations

    def holds(self, claim: Claim) -> bool:
        """Return whether a claim is valid and its lease has not run out."""
        return self._fenced(claim).filter(state_locked_until__gt=Now()).exists()

    def extend(self, claim: Claim, seconds: float) -> bool:
        """Set the lease of one claim to end ``seconds`` from now; return False if the claim has ended."""
        # Handlers call this.
        with self._operations.handler_transaction():
            return bool(self._fenced(claim).update(state_locked_until=columns.after(seconds)))

    def _fenced(self, claim: Claim) -> QuerySet[Model]:
        own = self._operations.state_field.at(claim.state)
        return self._operations.division.anywhere.filter(pk=claim.pk, state_claim=claim.token, **own)

    def renew(self, claims: list[Claim], *, wait: float | None = None) -> set[int]:
        """Extend the leases of valid claims; return the ``id()`` of claims that have ended.

        ``wait``: seconds that it waits for a lock, if fewer than usual.
        """
        operations, ended = self._operations, set[int]()
        for (token, lease), same in groupby(sorted(claims, key=_key), key=_key):
            group = list(same)
            fenced = operations.rows.filter(pk__in=[claim.pk for claim in group], state_claim=UUID(int=token))
            with operations.transaction(wait=wait):
                mine = set(operations.lock(fenced.order_by("pk"), len(group)))
                mine -= self._release_withdrawn(mine)
                of_rows = operations.own_lease_end
                until = operations.lease_end(F("state_attempted")) if of_rows else columns.after(lease)
                operations.rows.filter(pk__in=list(mine)).update(state_locked_until=until)
                if of_rows:
                    self._read_leases(group, mine)
            others = [claim for claim in group if claim.pk not in mine]
            locked_by_others = still_claimed(operations, others) if others else set()
            ended.update(id(claim) for claim in others if claim.pk not in locked_by_others)
        return ended

    def _read_leases(self, claims: list[Claim], mine: set[Pk]) -> None:
        """Note how long the leases of rows hold now, when they are to be renewed, and how long attempts may take."""
        options = self._operations.options
        heartbeat, limit = options.heartbeat, function_of(options.max_runtime)
        read = {"stator_now": Now(), "stator_limit": limit() if limit else NO_LIMIT}
        names = ["state_locked_until", *read, *([heartbeat] if heartbeat else [])]
        rows = self._operations.rows.filter(pk__in=list(mine)).annotate(**read)
        leases = {pk: rest for pk, *rest in rows.values_list("pk", *names)}
        for claim in claims:
            if claim.pk in leases:
                until, now, most, *own = leases[claim.pk]
                claim.lease = seconds_of(until - now)
                if own != [claim.renewed_after]:
                    claim.renewed_after = own[0] if own else None
                claim.max_runtime = claim.max_runtime if most is None else min(claim.max_runtime, most)

    def _release_withdrawn(self, mine: set[Pk]) -> set[Pk]:
        """Release rows that a condition does not let this worker hold any more; return them. They are locked."""
        operations = self._operations
        mine_still = operations.conditions.holds() if mine else None
        if mine_still is None:
            return set()
        kept = operations.rows.filter(mine_still, pk__in=list(mine)).values_list("pk", flat=True)
        if withdrawn := mine.difference(kept):
            rows = operations.rows.filter(pk__in=list(withdrawn))
            taken(operations.followers, rows, "no longer allowed")
            # Only running attempts have their leases renewed, so these have begun.
            rows.update(**columns.releasing(begun=True))
        return withdrawn

    def reap(self, limit: int) -> list[tuple[Pk, str]]:
        """End the leases that ran out, counting a crash for each; return ``(pk, worker id)`` of the rows."""
        operations = self._operations
        parts = [rows.order_by("state_locked_until") for rows in operations.lost()]
        write = retried(operations, self._reap_some)
        return list(chain.from_iterable(unless_refused(operations, REAP, parts, limit, write)))

    def _reap_some(self, parts: list[QuerySet[Model]], limit: int) -> list[tuple[Pk, str]]:
        operations, most = self._operations, self._operations.settings.MAX_CRASHES
        with operations.transaction():
            rows = operations.rows.filter(pk__in=lock_parts(operations, parts, limit))
            held = [(pk, worker_of(token)) for pk, token in rows.values_list("pk", "state_claim") if token]
            if held:
                if unbegun := taken(operations.followers, rows):
                    operations.rows.filter(pk__in=unbegun).update(**columns.releasing())
                    rows = operations.rows.filter(pk__in=[pk for pk, _ in held if pk not in unbegun])
                for follower in operations.followers:
                    follower.reaping(rows)
                rows.update(**columns.reaping(most, self._spared))
                crashed = operations.rows.filter(pk__in=[pk for pk, _ in held], state_crashes__gte=most)
                for follower in operations.followers:
                    follower.quarantined(crashed, dict(held), most)
        return held

    @cached_property
    def _spared(self) -> Q:
        """The rows that are never quarantined here; also rows in unknown states, which other workers decide about."""
        operations, among = self._operations, self._operations.state_field.among
        own = [state for state in operations.automatic if not state.quarantine]
        return Q(**among(own)) | ~Q(**among(operations.known))


def _key(claim: Claim) -> tuple[int, float]:
    """Return a key; claims with equal keys are renewed by one ORM update."""
    # Where rows have leases of their own, the statement reads them.
    return claim.token.int, 0.0 if claim.operations.own_lease_end else claim.lease


def still_claimed(operations: Operations, claims: list[Claim]) -> set[Pk]:
    """Return the rows that are still mine but were skipped because an application's transaction locks them.

    Or the project has moved them to another part; their claims go there, too. Note in the claims which rows are gone.
    """
    mine = {(claim.pk, claim.token, claim.state.value) for claim in claims}
    moves = operations.division.moves
    names = ["pk", "state_claim", operations.state_field.name, *moves]
    with operations.reading():
        rows = operations.division.anywhere.filter(pk__in=[claim.pk for claim in claims])
        current = {row[0]: row for row in rows.values_list(*names)}
    for claim in claims:
        claim.gone = claim.pk not in current
        if moves and not claim.gone:
            claim.operations = operations.division.at(current[claim.pk][3])
    # Without SKIP LOCKED, no row is skipped.
    skips = operations.connection.features.has_select_for_update_skip_locked
    return {pk for pk, row in current.items() if skips and row[:3] in mine}
