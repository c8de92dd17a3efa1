"""Chores on the framework's own tables: samples of the queue, statistics, and rows past their retention.

Each does a bounded part in one short transaction. It is safe to run twice, on any worker, and concurrently.
"""

from collections import Counter
from contextlib import suppress
from datetime import datetime, timedelta
from itertools import groupby
from operator import attrgetter
from typing import Any, NamedTuple, TypeVar

from django.core.exceptions import ValidationError
from django.db.models import Case, Q, QuerySet, Value, When
from django.utils import timezone

from stator.db.interface import Operations
from stator.db.repeat import retrying
from stator.graph.durations import seconds_of
from stator.partitions import UPKEEP, is_partitioned, maintain
from stator.rows import columns
from stator.rows.actions import UNDONE_WITHIN, Action, Before
from stator.rows.clock import Elapsed, Now
from stator.rows.indexes import place_in_line
from stator.rows.life import OF_LIFE, Life
from stator.rows.meta import model_of, options_of
from stator.rows.record_tables import RECORD_TABLES
from stator.rows.reports import LEFT, Event, History, Step
from stator.rows.statistics import MERGED, Depth, Stats, this_hour
from stator.rows.workers import WORKER_RETENTION
from stator.scopes import entered

# Seconds that the samples of each minute are kept; hourly charts show the last day.
BY_MINUTE = 2 * 86400.0
HOUR = timedelta(hours=1)

Merged = TypeVar("Merged", Depth, Stats)

# How many samples or shards of one hour are merged at once: more than an hour has minutes or a host has workers.
PARTS = 1000


@retrying
def sample_depths(*models: Operations, limit: int) -> None:
    """Record how many rows of each model are ready or due, or fail, counted up to ``limit``, and the oldest's wait.

    The models are of one database and sampled in one transaction.
    """
    alias = models[0].alias
    with models[0].transaction():
        hour = this_hour()
        moved = Stats.moves(alias, [operations.label for operations in models], hour)
        depths = {one.label: _depth(one, limit) | {"moved": moved.get((one.label, hour), 0)} for one in models}
        Depth.sample(alias, depths)


def _depth(operations: Operations, limit: int) -> dict[str, float]:
    # Paused rows count too: they wait.
    ready = operations.ready(operations.graph.automatic_states)
    due = operations.waiting().filter(state_next_attempt__lte=Now())
    # The first row by the index; a minimum would read all rows.
    waited = Elapsed(place_in_line())
    oldest = ready.order_by(place_in_line()).values_list(waited, flat=True).first() or timedelta()
    failing = operations.rows.filter(
        state_failures__gt=0, state_claim=None, state_crashes__lt=operations.settings.MAX_CRASHES
    )
    counts = [rows.order_by().values("pk")[:limit].count() for rows in (ready, due, failing)]
    return {"queued": counts[0] + counts[1], "failing": counts[2], "oldest": seconds_of(oldest)}


def prune(
    alias: str, limit: int, *, errors: float, history: float, stats: float,
    counts: Counter[tuple[str, str]] | None = None,
) -> int:  # fmt: skip
    """Delete reports, history and statistics older than the given seconds, up to ``limit`` of each; return how many.

    Also deletes rows of workers and pauses that ended long ago. Partitioned tables lose whole partitions, but not here.
    ``counts``: the numbers are added to it, by the label of the table and what ends its rows.
    """
    found = Counter[tuple[str, str]]()
    ages = {"errors": errors, "history": history, "stats": stats, "workers": WORKER_RETENTION}
    for table in RECORD_TABLES:
        if not table.aged or is_partitioned(table.model, alias):
            continue
        rows: QuerySet[Any] = QuerySet(table.model, using=alias)
        lookups = {f"{table.aged}__lt": columns.after(-ages[table.kept])}
        old = list(rows.filter(**lookups).values_list("pk", flat=True)[:limit])
        if old:
            found[table.model._meta.label_lower, table.kept] = rows.filter(pk__in=old).delete()[0]
    found[Before._meta.label_lower, ""] = _prune_before(alias, limit)
    found[Step._meta.label_lower, "history"] = _prune_steps(alias, limit, history)
    found[Event._meta.label_lower, "history"] = _prune_events(alias, limit, history)
    if counts is not None:
        counts += +found
    return found.total()


def prune_all(alias: str, limit: int, *, errors: float, history: float, stats: float) -> int:
    """Call :func:`prune` until nothing more is to be deleted; return how many rows were."""
    place, total = (alias, entered()), 0
    while deleted := prune(alias, limit, errors=errors, history=history, stats=stats):
        total += deleted
    # A part with nothing to delete may come before another one.
    examined: list[tuple[Any, Any]] = [(_prune_steps, _examined), (_prune_events, _examined_events)]
    for prune_part, last in examined:
        last.pop(place, None)
        total += prune_part(alias, limit, history)
        while last.get(place):
            total += prune_part(alias, limit, history)
    return total


def _prune_before(alias: str, limit: int) -> int:
    """Delete what objects were before actions that can no longer be undone; return how many."""
    over = Action.objects.using(alias).filter(at__lt=columns.after(-UNDONE_WITHIN))
    rows = Before.objects.using(alias)
    # Each action has its rows together in the index, so the few actions of which some are left are found first.
    old = list(rows.filter(action__in=over.values("pk")).values_list("pk", flat=True)[:limit])
    return rows.filter(pk__in=old).delete()[0] if old else 0


LABEL = attrgetter("model_label")

# The last step that was examined in each database and schema; the next pass goes on after it.
_examined: dict[tuple[str, str], int] = {}

# The time and the key of the last event that was examined.
_examined_events: dict[tuple[str, str], tuple[datetime, int]] = {}


def _prune_steps(alias: str, limit: int, history: float) -> int:
    """Delete steps of visits that have ended, for models with history past its retention; return how many.

    A move by a handler deletes the steps of its attempt. This is for moves by hand, by events and by timeouts, and for
    objects that raw SQL has deleted. It examines the next ``limit`` steps. Those of an object that was moved less than
    an hour ago stay, since the move may be undone.
    """
    place = alias, entered()
    steps = Step.objects.using(alias)
    found = list(steps.filter(pk__gt=_examined.get(place, 0)).order_by("pk").defer("result")[:limit])
    _examined[place] = found[-1].pk if len(found) == limit else 0
    ended: list[int] = []
    for label, group in groupby(sorted(found, key=LABEL), key=LABEL):
        of_model = list(group)
        known = model_of(label)
        model: Any = known if hasattr(known, "state_graph") else None
        found_rows = _rows_of(model, alias, {step.object_pk for step in of_model}) if model else {}
        over = [step for step in of_model if not _is_in_force(step, found_rows.get(step.object_pk))]
        if over and model and options_of(model).history:
            past = set(
                steps.filter(pk__in=[step.pk for step in over], at__lt=columns.after(-history)).values_list("pk")
            )
            over = [step for step in over if (step.pk,) in past]
        ended += [step.pk for step in over]
    return steps.filter(pk__in=ended).delete()[0] if ended else 0


class _Row(NamedTuple):
    """The life of an object, when it entered its state, and whether that is so long ago that nobody can undo it."""

    life: Life
    entered: datetime
    rests: bool


def _prune_events(alias: str, limit: int, history: float) -> int:
    """Delete events past their retention that are not in force; return how many. Index ``stator_event_at``.

    In force are events of the present visit and wish of an object, events that are kept, and the marks of states that
    an object has left in this life. It examines the next ``limit`` events.
    """
    place = alias, entered()
    events: QuerySet[Event] = QuerySet(Event, using=alias)
    old = events.filter(at__lt=columns.after(-history)).exclude(version=None, until__gt=Now())
    if place in _examined_events:
        at, last = _examined_events.pop(place)
        old = old.filter(Q(at__gt=at) | Q(at=at, pk__gt=last), at__gte=at)
    found = list(old.order_by("at", "pk").only("model_label", "object_pk", "at", "version", "life")[:limit])
    if len(found) == limit:
        _examined_events[place] = found[-1].at, found[-1].pk
    over: list[int] = []
    for label, group in groupby(sorted(found, key=LABEL), key=LABEL):
        of_model = list(group)
        known = model_of(label)
        rows = _rows_of(known, alias, {one.object_pk for one in of_model}) if hasattr(known, "state_graph") else {}
        over += [one.pk for one in of_model if not _keeps(rows.get(one.object_pk), one)]
    return events.filter(pk__in=over).delete()[0] if over else 0


def _keeps(row: _Row | None, event: Event) -> bool:
    if row is None:
        return False
    if event.version == LEFT:
        return row.life.is_of(event.life)
    return not row.rests or row.life.keeps(event.life, event.version)


def _is_in_force(step: Step, row: _Row | None) -> bool:
    if row is None or not row.rests:
        return row is not None
    of_1_1 = step.entered == row.entered and step.life == row.life.unmarked
    return of_1_1 or row.life.keeps(step.life, row.life.visit if step.entered == row.entered else step.visit)


def _rows_of(model: Any, alias: str, pks: set[str]) -> dict[str, _Row]:
    """Return what decides about the steps of objects, by their keys as text."""
    rows: QuerySet[Any] = QuerySet(model, using=alias)
    rests = Case(When(state_changed__lte=columns.after(-UNDONE_WITHIN), then=Value(True)), default=Value(False))
    # Keys of another type, from before a migration, are of no object.
    with suppress(ValueError, ValidationError):
        found = rows.filter(pk__in=pks).values_list("pk", "state_changed", rests, *OF_LIFE)
        return {str(pk): _Row(Life.of(*of_life), at, rested) for pk, at, rested, *of_life in found}
    return {}


def maintain_partitions(alias: str, *, errors: float, history: float, stats: float) -> int:
    """Make partitions ahead, and drop those older than the given seconds; return how many changed.

    The latest ``errors`` are rows that are written again and again, so they have no partitions.

    Call it outside of a transaction, so that no lock on a whole table lasts longer than one change.
    """
    own = maintain(History, alias, history) + maintain(Stats, alias, stats)
    return own + sum(upkeep(alias) for upkeep in UPKEEP)


@retrying
def thin(operations: Operations, limit: int) -> int:
    """Merge the samples of each hour that ended two days ago into one; return how many samples were read.

    For all models in the database, about ``limit`` samples, the oldest first. Index ``stator_depth_by_minute``.
    """
    samples, thinned = Depth.objects.using(operations.alias), 0
    # An hour more, so that every hour found is over and is thinned as a whole.
    old = samples.filter(hourly=False, minute__lt=columns.after(-BY_MINUTE - HOUR.total_seconds())).order_by("minute")
    with operations.transaction():
        found = old.values_list("model_label", "minute")[:limit]
        for label, start in dict.fromkeys((label, _hour(minute)) for label, minute in found):
            if thinned < limit:
                same = samples.filter(model_label=label, minute__gte=start, minute__lt=start + HOUR)
                thinned += _leave_one(operations, same)
    return thinned


def _hour(minute: datetime) -> datetime:
    """Return when the hour began in the current time zone; half-hour offsets shift hours like a chart's days."""
    local = timezone.localtime(minute) if timezone.is_aware(minute) else minute
    return minute - timedelta(minutes=local.minute, seconds=local.second, microseconds=local.microsecond)


def _leave_one(operations: Operations, samples: QuerySet[Depth]) -> int:
    found = sorted(_lock_all(operations, samples.order_by("pk")), key=lambda sample: (-sample.queued, sample.minute))
    if not found:
        return 0
    first, *others = found
    samples.filter(pk=first.pk).update(hourly=True, oldest=max(sample.oldest for sample in found))
    if others:
        samples.filter(pk__in=[sample.pk for sample in others]).delete()
    return len(found)


@retrying
def merge_stats(operations: Operations, limit: int) -> int:
    """Merge the shards of each edge's statistics once their hour is over; return how many rows were merged.

    For all models in the database, about ``limit`` rows, the oldest first. A worker whose clock is behind adds to a new
    shard, which the next pass merges. Index ``stator_stats_unmerged``.
    """
    stats, merged = Stats.objects.using(operations.alias), 0
    # An hour more than needed, for workers whose clocks are behind.
    over = stats.filter(shard__lt=MERGED, hour__lt=columns.after(-2 * HOUR.total_seconds())).order_by("hour")
    with operations.transaction():
        found = over.values("model_label", "hour", "source", "to")[:limit]
        for edge in {tuple(each.values()): each for each in found}.values():
            if merged < limit:
                merged += _merge(operations, stats.filter(**edge))
    return merged


def _merge(operations: Operations, shards: QuerySet[Stats]) -> int:
    # The row of an earlier pass first, if there is one, since two rows cannot have its shard.
    found = _lock_all(operations, shards.order_by("-shard"))
    if not found:
        return 0
    first, *others = found
    sums = {name: sum(getattr(stats, name) for stats in found) for name in ("handled", "failed", "seconds")}
    shards.filter(pk=first.pk).update(shard=MERGED, longest=max(stats.longest for stats in found), **sums)
    if others:
        shards.filter(pk__in=[stats.pk for stats in others]).delete()
    return len(found)


def _lock_all(operations: Operations, rows: QuerySet[Merged]) -> list[Merged]:
    """Lock rows that are to become one; return none if another worker has locked some or added one."""
    passing_over = operations.connection.features.has_select_for_update_skip_locked
    found = list(rows.select_for_update(skip_locked=passing_over)[:PARTS])
    return found if len(found) == rows.values("pk")[:PARTS].count() else []
