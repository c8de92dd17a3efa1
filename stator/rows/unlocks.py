"""Claims that operators end: who holds the rows, and how to end a claim so that no worker takes the row at once."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from django.db import transaction
from django.db.models import F, Model, QuerySet

from stator.conf import load_settings
from stator.graph.durations import seconds_of, span
from stator.rows import columns
from stator.rows.actions import Action
from stator.rows.clock import Elapsed, Now
from stator.rows.keys import shown_key
from stator.rows.meta import home_of, model_of, owner_of, written_to
from stator.rows.state_column import state_field
from stator.rows.transitions import write_by_hand
from stator.rows.workers import Worker, tokens_of, worker_of

# A worker's claims are read for this many models, and for this many objects of each.
MAX_MODELS, MAX_HELD = 100, 100

# Holders that are described.
MAX_HOLDERS = 20

# Seconds until a row that was unlocked and is held is due; by then every worker has read what holds it.
SETTLED = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """How an extension keeps workers from rows that are unlocked, in the same transaction.

    ``name``: of the option and the button. ``summary``: the help of the option. ``done``: the participle. ``most``: how
    many rows it takes. ``keep``: called with the model, the alias of the database, the keys of the rows and the action;
    it raises ``ValueError`` with one line if they are too many.
    """

    name: str
    done: str
    most: int
    summary: str
    keep: Callable[[type[Model], str, list[object], Action], object]


HOLDS: list[Hold] = []


def add_hold(hold: Hold) -> None:
    """Add a way to hold unlocked rows, which the models of an extension call."""
    HOLDS.append(hold)


@dataclass(frozen=True, slots=True)
class Holder:
    """The claim on one row. ``left``: seconds of its lease; ``heard``: since its worker's heartbeat, if it has one."""

    pk: object
    worker: str
    attempt: int
    running: float
    left: float
    status: str = ""
    place: str = ""
    heard: float = 0.0

    @property
    def may_run(self) -> bool:
        """Whether the attempt may still run."""
        return self.status == "alive" or self.left > 0

    def __str__(self) -> str:
        what = f"{shown_key(self.pk)}: attempt {self.attempt}, which began {span(self.running)} ago"
        who = f"worker {self.worker}{f' on {self.place}' if self.place else ''}"
        lease = f"its lease has {span(self.left)} left" if self.left > 0 else f"its lease ended {span(-self.left)} ago"
        if self.status == "alive":
            return f"{what}, is run by {who}, which is alive; {lease}."
        if self.status == "silent":
            return f"{what}, was run by {who}, silent for {span(self.heard)}; {lease}."
        if self.status == "stopped":
            return f"{what}, was run by {who}, which has stopped; {lease}."
        return f"{what}, is held by {who}; {lease}."


def holders_of(rows: QuerySet[Model]) -> list[Holder]:
    """Return up to ``MAX_HOLDERS`` claims on the rows, the latest leases first; two statements."""
    using = written_to(rows)
    held = rows.using(using).filter(state_claim__isnull=False).order_by("-state_locked_until")
    named = ("pk", "state_claim", "state_attempts", "state_attempted", "state_locked_until", "stator_read_at")
    read = held.annotate(stator_read_at=Now()).values_list(*named)
    rows_held = list(read[:MAX_HOLDERS])
    ids = {worker_of(token) for _, token, *_ in rows_held}
    known = Worker.objects.using(using).with_status().defer("published").in_bulk(ids) if ids else {}
    return [_holder(known.get(worker_of(token)), pk, worker_of(token), *rest) for pk, token, *rest in rows_held]


def _holder(
    worker: Worker | None,
    pk: object,
    name: str,
    attempt: int,
    began: datetime | None,
    until: datetime | None,
    now: datetime,
) -> Holder:
    running = (now - began).total_seconds() if began else 0.0
    left = (until - now).total_seconds() if until else 0.0
    if worker is None:
        return Holder(pk, name, attempt, running, left)
    heard = (worker.now - worker.heartbeat).total_seconds()
    return Holder(pk, name, attempt, running, left, worker.status, f"{worker.host}, process {worker.pid}", heard)


class HeldObject(NamedTuple):
    """An object that a worker process has claimed, with the seconds of its attempt."""

    label: str
    pk: object
    state: str
    token: UUID
    running: float


def held_by(worker: Worker) -> Iterator[HeldObject]:
    """Yield the objects that a worker process has claimed, in its own database."""
    for label in worker.models[:MAX_MODELS]:
        # A worker of another release may serve a model that this code does not have.
        if (model := model_of(label)) is None:
            continue
        rows: QuerySet[Model] = QuerySet(model, using=home_of(worker))
        held = rows.filter(state_claim__isnull=False, state_claim__range=tokens_of(worker.pk))
        running, field = Elapsed(F("state_attempted")), state_field(model)
        read = held.order_by("state_locked_until", "pk").values_list("pk", field.name, "state_claim", running)
        for pk, state, token, since in read[:MAX_HELD]:
            yield HeldObject(str(model._meta.label), pk, field.name_of(state), token, seconds_of(since))


def unlock_and_hold(rows: QuerySet[Model], action: Action, hold: Hold) -> int:
    """Hold the claimed rows, then end the claims on them; return how many.

    Raise ``ValueError`` with one line if they are too many. The rows are due only when every worker has read what holds
    them.
    """
    using, owner = written_to(rows), owner_of(rows.model)
    claimed = rows.using(using).filter(state_claim__isnull=False)
    due = columns.after(max(SETTLED, 3 * load_settings().POLL_INTERVAL))
    changes = columns.unlocking() | {"state_ready": False, "state_next_attempt": due}
    with transaction.atomic(using=using):
        pks = list(claimed.order_by("pk").values_list("pk", flat=True))
        if not pks:
            return 0
        hold.keep(owner, using, pks, action)
        held: QuerySet[Model] = QuerySet(owner, using=using).filter(pk__in=pks, state_claim__isnull=False)
        return write_by_hand(held, changes, actor=action.actor, reason=f"unlocked and {hold.done}", action=action)
