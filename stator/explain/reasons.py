"""The table of reasons, and what it drives: :func:`explain` for one object, :func:`explain_counts` for many."""

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

from django.db import router
from django.db.models import Case, CharField, Count, Exists, Model, OuterRef, Q, QuerySet, Value, When
from django.db.models.functions import Coalesce

from stator.explain import sentences
from stator.explain.facts import Facts, gather
from stator.explain.many import Many
from stator.explain.sentences import Said
from stator.rows.clock import Now
from stator.rows.meta import graph_of, hooks_of, owner_of
from stator.rows.reports import reports_of
from stator.rows.waits import waiting


@dataclass(frozen=True, slots=True)
class Reason:
    """One reason: a ``code`` that does not change, a sentence, and the numbers in it; durations are in seconds.

    ``remedy``: what to do about it; empty if nothing has to be done.
    """

    code: str
    sentence: str
    numbers: dict[str, Any] = field(default_factory=dict)
    remedy: str = ""

    def __str__(self) -> str:
        return self.sentence

    def as_dict(self) -> dict[str, Any]:
        """Return the reason as a dictionary for JSON."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Entry:
    """A kind of reason: how to find it for one object and for many rows, and its texts.

    ``holds``: whether it is a reason of one object, whatever the other reasons are. ``condition``: the rows that have
    it, among rows for which no earlier entry holds. ``sentences``: called only for an object for which it holds.
    """

    code: str
    holds: Callable[[Facts], bool]
    condition: Callable[[Many], Q]
    sentences: Callable[[Facts], Iterator[Said]]
    remedy: str


NO_ROWS = Q(pk__in=[])


def said_lately() -> dict[str, Any]:
    """Return the lookups for the reason that a handler gave at the latest attempt, which later ones may not repeat."""
    latest = Coalesce(OuterRef("state_attempted"), OuterRef("state_changed"))
    return {"error": "", "state": OuterRef("state"), "at__gte": latest}


# The most decisive first.
REASONS = (
    Entry(
        "terminal",
        lambda facts: facts.state is not None and facts.state.terminal,
        lambda many: Q(state__in=[state.name for state in graph_of(many.model).terminal_states]),
        sentences.terminal,
        "Nothing to do. To process it again, move it to another state.",
    ),
    Entry(
        "other_version",
        lambda facts: facts.state is None and bool(facts.knowing),
        lambda many: Q(state__in=many.newer),
        sentences.other_version,
        "Wait. If that worker is stopped for good, move it to a state that this code knows.",
    ),
    Entry(
        "unknown_state",
        lambda facts: facts.state is None and not facts.knowing,
        lambda many: ~Q(state__in=list(graph_of(many.model).states)),
        sentences.unknown_state,
        "Move it to an existing state, or ask a developer about the state that was removed.",
    ),
    Entry(
        "lease_lost",
        lambda facts: facts.lease_over,
        lambda many: Q(state_claim__isnull=False, state_locked_until__lte=Now()),
        sentences.lease_lost,
        "Wait a moment: workers take it over.",
    ),
    Entry(
        "leased",
        lambda facts: facts.claimed and not facts.lease_over,
        lambda many: Q(state_claim__isnull=False),
        sentences.leased,
        "Wait. If that worker is cut off or was killed, its lease expires by itself; unlock to end it now.",
    ),
    Entry(
        "quarantined",
        lambda facts: facts.quarantined and not facts.claimed,
        lambda many: many.automatic & Q(state_crashes__gte=many.settings.MAX_CRASHES),
        sentences.quarantined,
        "Find out what ended its workers, then retry it to release it.",
    ),
    Entry(
        "paused",
        lambda facts: bool(facts.pauses),
        lambda many: many.paused,
        sentences.paused,
        "Ask the person who paused it, then resume.",
    ),
    Entry(
        "external",
        lambda facts: facts.state is not None and not (facts.state.terminal or facts.automatic),
        lambda many: ~many.automatic,
        sentences.external,
        "Check the program or person that should move it. If that is done or will not come, move it by hand.",
    ),
    Entry(
        "waits_for",
        lambda facts: bool(facts.awaited),
        lambda many: waiting(many.model, many.using),
        sentences.waits_for,
        "Check the object that it waits for.",
    ),
    Entry(
        "backoff",
        lambda facts: facts.rests and facts.failed,
        lambda many: many.waiting & Q(state_failures__gt=0),
        sentences.backoff,
        "Read the error. After you have fixed its cause, retry now to skip the wait.",
    ),
    Entry(
        "last_said",
        lambda facts: facts.rests and not facts.failed and facts.said,
        lambda many: Q(many.waiting, Exists(reports_of(many.model, many.using, **said_lately()))),
        sentences.last_said,
        "Check what it waits for; retry now to attempt it at once.",
    ),
    Entry(
        "not_due",
        lambda facts: facts.rests and not facts.failed,
        lambda many: many.waiting,
        sentences.not_due,
        "Wait, or retry now.",
    ),
    Entry(
        "no_worker",
        lambda facts: facts.needs_worker and not facts.workers,
        lambda many: NO_ROWS if many.served else ~NO_ROWS,
        sentences.no_worker,
        "Start a worker: manage.py runstator. Nothing moves until then.",
    ),
    Entry(
        "crashed",
        lambda facts: facts.in_line and facts.row["state_crashes"] >= facts.settings.alone_from,
        lambda many: Q(state_ready=True, state_crashes__gte=many.settings.alone_from),
        sentences.crashed,
        "Wait: only a few such objects are attempted at a time. Find out what ended its workers.",
    ),
    Entry(
        "at_limit",
        lambda facts: facts.in_line and facts.limit is not None and facts.running >= facts.limit,
        lambda many: Q(state_ready=True, state__in=many.full),
        sentences.at_limit,
        "Wait, or ask a developer to raise the limit.",
    ),
    Entry(
        "in_line",
        lambda facts: facts.in_line,
        lambda many: Q(state_ready=True),
        sentences.in_line,
        "Wait. If the line is long and grows, start more workers.",
    ),
    Entry(
        "due",
        lambda facts: facts.in_turn and not facts.ready,
        lambda many: Q(state_ready=False),
        sentences.due,
        "Wait a moment. If nothing happens, look at the workers.",
    ),
)


def explain(model: type[Model], pk: object, using: str | None = None) -> list[Reason]:
    """Return the reasons why an object is not moving, the most decisive first; never empty, at most five statements."""
    facts = gather(model, pk, using)
    if facts is None:
        sentence = f"{model._meta.label} {pk} is gone: there is no such row."
        return [Reason("gone", sentence, remedy="Nothing to do.")]
    held = [entry for entry in REASONS if entry.holds(facts)]
    return [Reason(entry.code, *said, entry.remedy) for entry in held for said in entry.sentences(facts)]


def explain_counts(queryset: QuerySet[Model]) -> dict[str, int]:
    """Return the number of rows by the code of their first reason, most first; in a handful of statements."""
    owner = owner_of(queryset.model)
    many = Many.of(owner, getattr(queryset, "_db", None) or router.db_for_write(owner))
    first = Case(*(When(rows, then=Value(code)) for code, rows in _conditions(many)), output_field=CharField())
    rows = many.rows.filter(pk__in=queryset.order_by().values("pk")).annotate(stator_reason=first)
    counts = rows.values_list("stator_reason").annotate(stator_count=Count("pk"))
    return dict(counts.order_by("-stator_count"))


def _conditions(many: Many) -> Iterator[tuple[str, Q]]:
    """Yield the codes with their rows; those of the model itself say more than that no worker process is live."""
    for entry in REASONS:
        if entry.code == "no_worker" and (own := hooks_of(many.model).reasons):
            yield from own(many.using).items()
        yield entry.code, entry.condition(many)
