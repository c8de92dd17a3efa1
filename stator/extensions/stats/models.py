"""Statistics per model over time: attempts per hour and edge, and samples of the queue's depth."""

import datetime
from collections.abc import Iterable

from django.db import models
from django.db.models import F, Max, Q, QuerySet, Sum, Value
from django.db.models.expressions import Combinable
from django.db.models.functions import Coalesce, Greatest
from django.utils import timezone

from stator.rows.meta import owner_of
from stator.rows.record_tables import RecordTable, add_record_table
from stator.rows.records import conflict_target
from stator.rows.stay import Stay

DAY = 86400.0

# The shard of a row that merges the shards of all workers; workers have smaller numbers.
MERGED = 32_767


class Stats(models.Model):
    """Attempts of one model in one hour that ended in the same way.

    ``to`` is empty if the object stayed. ``seconds`` is the total time that the objects had been in the state that they
    left, by the database's clock; an attempt after which the object stays adds nothing.

    Each worker adds to rows of its own ``shard``, in the transaction that records the attempts. So workers do not wait
    for each other, and no count is lost or written twice. When an hour is over, the scheduling pass merges its shards.
    """

    # ``PartitionByTime`` divides the table by this column.
    PARTITION_COLUMN = "hour"

    model_label = models.CharField(max_length=200)
    hour = models.DateTimeField()
    source = models.CharField(max_length=100)
    to = models.CharField(max_length=100, blank=True)
    shard = models.PositiveSmallIntegerField(default=0)
    handled = models.BigIntegerField(default=0)
    failed = models.BigIntegerField(default=0)
    seconds = models.FloatField(default=0.0, help_text="In the state that was left, all moves together.")
    longest = models.FloatField(default=0.0, help_text="Seconds in the state that was left, the most of one move.")

    class Meta:
        verbose_name = "moves of an hour"
        verbose_name_plural = "moves by the hour"
        constraints = [
            models.UniqueConstraint(
                fields=["model_label", "hour", "source", "to", "shard"], name="stator_stats_one_per_edge"
            )
        ]
        indexes = [
            models.Index(fields=["hour"], name="stator_stats_hour"),
            # Index for MERGE STATISTICS: rows of past hours; nearly always empty except for the current hour.
            models.Index(fields=["hour"], condition=Q(shard__lt=MERGED), name="stator_stats_unmerged"),
        ]

    def __str__(self) -> str:
        return f"{self.model_label} {self.source} -> {self.to or 'stayed'} at {self.hour:%Y-%m-%d %H:00}"

    @classmethod
    def get_for_model(cls, model: type[models.Model], using: str | None = None) -> "ModelStats":
        """Return the statistics of one model."""
        return ModelStats(owner_of(model)._meta.label_lower, using)

    @classmethod
    def add(
        cls, using: str, model_label: str, source: str, to: str, *,
        shard: int, handled: int, failed: int = 0, stays: Iterable[Stay] = (),
    ) -> None:  # fmt: skip
        """Count attempts, if there are any; call it in the transaction that records them."""
        if not handled:
            return
        hour = this_hour()
        key = {"model_label": model_label, "hour": hour, "source": source, "to": to, "shard": shard}
        rows = cls.objects.using(using)
        counted: dict[str, Combinable] = {"handled": F("handled") + handled, "failed": F("failed") + failed}
        if stays := list(stays):
            counted["seconds"] = F("seconds") + sum(stay.seconds for stay in stays)
            counted["longest"] = Greatest("longest", Value(max(stay.longest for stay in stays)))
        if rows.filter(**key).update(**counted):
            return
        Stats.objects.using(using).bulk_create([Stats(**key)], ignore_conflicts=True)
        rows.filter(**key).update(**counted)

    @classmethod
    def moves(
        cls, using: str, labels: Iterable[str], since: datetime.datetime
    ) -> dict[tuple[str, datetime.datetime], int]:
        """Return the number of moves of each model in each hour from ``since`` on. Index ``stator_stats_hour``."""
        rows = cls.objects.using(using).filter(hour__gte=since, model_label__in=list(labels)).exclude(to="").order_by()
        counted = rows.values_list("model_label", "hour").annotate(moved=Sum("handled"))
        return {(label, hour): moved for label, hour, moved in counted}

    @classmethod
    def put(cls, using: str, hour: datetime.datetime, counts: dict[str, tuple[int, int]]) -> None:
        """Write how much each label handled in an hour and how much failed, in place of earlier numbers."""
        cls._default_manager.using(using).bulk_create(
            [
                cls(model_label=label, hour=hour, handled=ended, failed=failed)
                for label, (ended, failed) in sorted(counts.items())
            ],
            update_conflicts=True,
            unique_fields=conflict_target(using, "model_label", "hour", "source", "to", "shard"),
            update_fields=["handled", "failed"],
        )


class Depth(models.Model):
    """How many rows of a model were ready or due at one minute, how long the oldest had waited, how many were failing.

    ``moved`` counts the moves since the hour began. After two days one sample of each hour remains (``hourly``): the
    sample of the minute with the most queued rows, with the longest wait of the hour.
    """

    model_label = models.CharField(max_length=200)
    minute = models.DateTimeField()
    queued = models.BigIntegerField()
    oldest = models.FloatField(default=0.0, help_text="Seconds that the oldest of them had waited.")
    failing = models.BigIntegerField(default=0, help_text="Objects whose latest attempt was an error.")
    moved = models.BigIntegerField(default=0, help_text="Moves since the hour of the minute began.")
    hourly = models.BooleanField(default=False, db_default=False, help_text="The most of its hour, left for all of it.")

    class Meta:
        verbose_name = "waiting objects of a minute"
        verbose_name_plural = "waiting objects by the minute"
        constraints = [models.UniqueConstraint(fields=["model_label", "minute"], name="stator_depth_one_per_minute")]
        indexes = [
            models.Index(fields=["minute"], name="stator_depth_minute"),
            models.Index(fields=["minute"], condition=Q(hourly=False), name="stator_depth_by_minute"),
        ]

    def __str__(self) -> str:
        return f"{self.model_label}: {self.queued} at {self.minute:%Y-%m-%d %H:%M}"

    @classmethod
    def sample(cls, using: str, depths: dict[str, dict[str, float]]) -> None:
        """Write the columns of each model's sample for this minute, replacing an earlier sample of it."""
        minute = timezone.now().replace(second=0, microsecond=0)
        # The order is fixed, because another worker may sample these models at the same time.
        in_order = sorted(depths.items())
        cls._default_manager.using(using).bulk_create(
            [cls(model_label=label, minute=minute, **sampled) for label, sampled in in_order],
            update_conflicts=True,
            unique_fields=conflict_target(using, "model_label", "minute"),
            update_fields=["queued", "oldest", "failing", "moved"],
        )


add_record_table(RecordTable(model=Stats, aged="hour", kept="stats"))
add_record_table(RecordTable(model=Depth, aged="minute", kept="stats"))


class ModelStats:
    """Statistics of one model: its latest depth, recently handled attempts, and time in states."""

    def __init__(self, model_label: str, using: str | None = None) -> None:
        self.model_label = model_label
        self.using = using

    def most_recent_queued(self) -> int:
        """Return how many rows were queued at the latest sample; 0 before the first."""
        depths = Depth.objects.using(self.using).filter(model_label=self.model_label)
        return depths.order_by("-minute").values_list("queued", flat=True).first() or 0

    def most_recent_handled(self) -> tuple[int, int, int]:
        """Return how many attempts were handled in this hour, day and month, by the current time zone."""
        hour, day, month = _period_starts(timezone.localtime() if timezone.is_aware(timezone.now()) else timezone.now())
        rows = Stats.objects.using(self.using).filter(model_label=self.model_label, hour__gte=month)
        sums = rows.aggregate(
            in_hour=Coalesce(Sum("handled", filter=Q(hour__gte=hour)), 0),
            in_day=Coalesce(Sum("handled", filter=Q(hour__gte=day)), 0),
            in_month=Coalesce(Sum("handled"), 0),
        )
        return sums["in_hour"], sums["in_day"], sums["in_month"]

    def time_in_states(self, period: float = DAY) -> dict[str, Stay]:
        """Return how long objects were in each state that was left in the last ``period`` seconds, in whole hours."""
        rows = self._stays(period).values_list("source").annotate(**_SUMS)
        return {source: Stay(*sums) for source, *sums in rows}

    def time_on_edges(self, period: float = DAY) -> dict[tuple[str, str], Stay]:
        """Return these times for each pair ``(state, next state)``."""
        rows = self._stays(period).values_list("source", "to").annotate(**_SUMS)
        return {(source, to): Stay(*sums) for source, to, *sums in rows}

    def _stays(self, period: float) -> QuerySet[Stats]:
        # The hour when the period begins is included; otherwise the first minutes of an hour would show nothing.
        since = timezone.now() - datetime.timedelta(seconds=period, hours=1)
        rows = Stats.objects.using(self.using).filter(model_label=self.model_label, hour__gt=since)
        return rows.exclude(to="").order_by()


def this_hour() -> datetime.datetime:
    """Return the beginning of the hour that attempts are counted in now."""
    return timezone.now().replace(minute=0, second=0, microsecond=0)


# In the order of the attributes of a ``Stay``.
_SUMS = {"all_seconds": Sum("seconds"), "most": Max("longest"), "all_moves": Sum("handled")}


def _period_starts(now: datetime.datetime) -> tuple[datetime.datetime, datetime.datetime, datetime.datetime]:
    hour = now.replace(minute=0, second=0, microsecond=0)
    day = hour.replace(hour=0)
    return hour, day, day.replace(day=1)
