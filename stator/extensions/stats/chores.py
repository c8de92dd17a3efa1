"""Chores of statistics: samples of the queue, and what is merged once it is old.

Each does a bounded part in one short transaction. It is safe to run twice, on any worker, and concurrently.
"""

from datetime import datetime, timedelta
from typing import TypeVar

from django.db.models import QuerySet
from django.utils import timezone

from stator.db.interface import Operations
from stator.db.repeat import retrying
from stator.extensions.stats.models import MERGED, Depth, Stats, this_hour
from stator.graph.durations import seconds_of
from stator.rows import columns
from stator.rows.clock import Elapsed, Now
from stator.rows.indexes import place_in_line
from stator.worker.duties import Duty, Upkeep, When, all_rows

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
    models = tuple(operations for operations in models if not operations.state_field.is_left)
    if not models:
        return
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
    counts = operations.division.counts([ready, due, failing], limit)
    return {"queued": counts[0] + counts[1], "failing": counts[2], "oldest": seconds_of(oldest)}


@retrying
def thin(operations: Operations, limit: int) -> int:
    """Merge the samples of each hour that ended two days ago into one; return how many samples were read.

    For all models in the database, about ``limit`` samples, the oldest first. Index ``stator_depth_by_minute``.
    """
    samples, thinned = Depth.objects.using(operations.alias), 0
    # An hour more, so that every hour found is over and is thinned as a whole.
    old = samples.filter(hourly=False, minute__lt=columns.after(-BY_MINUTE - HOUR.total_seconds())).order_by("minute")
    with operations.transaction():
        fine = old.values_list("model_label", "minute")[:limit]
        for label, start in dict.fromkeys((label, _hour(minute)) for label, minute in fine):
            if thinned < limit:
                same = samples.filter(model_label=label, minute__gte=start, minute__lt=start + HOUR)
                thinned += _leave_one(operations, same)
    return thinned


def _hour(minute: datetime) -> datetime:
    """Return when the hour began in the current time zone; half-hour offsets shift hours like a chart's days."""
    local = timezone.localtime(minute) if timezone.is_aware(minute) else minute
    return minute - timedelta(minutes=local.minute, seconds=local.second, microseconds=local.microsecond)


def _leave_one(operations: Operations, samples: QuerySet[Depth]) -> int:
    locked = sorted(_lock_all(operations, samples.order_by("pk")), key=lambda sample: (-sample.queued, sample.minute))
    if not locked:
        return 0
    return _leave_first(samples, locked, hourly=True, oldest=max(sample.oldest for sample in locked))


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
        edges = over.values("model_label", "hour", "source", "to")[:limit]
        for edge in {tuple(each.values()): each for each in edges}.values():
            if merged < limit:
                merged += _merge(operations, stats.filter(**edge))
    return merged


def _merge(operations: Operations, shards: QuerySet[Stats]) -> int:
    # The row of an earlier pass first, if there is one, since two rows cannot have its shard.
    locked = _lock_all(operations, shards.order_by("-shard"))
    if not locked:
        return 0
    sums = {name: sum(getattr(stats, name) for stats in locked) for name in ("handled", "failed", "seconds")}
    return _leave_first(shards, locked, shard=MERGED, longest=max(stats.longest for stats in locked), **sums)


def _leave_first(rows: QuerySet[Merged], locked: list[Merged], **changes: object) -> int:
    """Change the first of these rows, and delete the others; return how many there were."""
    first, *others = locked
    rows.filter(pk=first.pk).update(**changes)
    if others:
        rows.filter(pk__in=[each.pk for each in others]).delete()
    return len(locked)


def _lock_all(operations: Operations, rows: QuerySet[Merged]) -> list[Merged]:
    """Lock rows that are to become one; return none if another worker has locked some or added one."""
    passing_over = operations.connection.features.has_select_for_update_skip_locked
    locked = list(rows.select_for_update(skip_locked=passing_over)[:PARTS])
    return locked if len(locked) == rows.values("pk")[:PARTS].count() else []


# The queue is counted up to this depth: counting millions of rows every half minute would cost more than it is worth.
COUNTED = 100_000

# For all models of a scope in one transaction.
SAMPLE = Duty("sample_depths", sample_depths, COUNTED, parts=all_rows, when=When.TOGETHER)

THIN = Upkeep("thinned", "samples of the queue thinned", thin)
MERGE = Upkeep("merged", "rows of statistics merged", merge_stats)
