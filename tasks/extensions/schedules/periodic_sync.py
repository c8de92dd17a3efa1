"""The schedules of ``@periodic`` functions: kept in step with the code, and examined by system checks."""

import logging
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from django.core import checks
from django.core.exceptions import ImproperlyConfigured
from django.db import router
from django.utils.module_loading import autodiscover_modules

from stator import signals
from stator.checks.messages import looked
from stator.db.tables import lack_of
from stator.scopes import entered
from tasks.extensions.schedules.periodic import Periodic, registry
from tasks.extensions.schedules.rates import prune_rates
from tasks.extensions.schedules.schedules import Schedule, haste_of

logger = logging.getLogger("tasks.schedules")

# The most schedules in the database that the checks examine.
CHECKED = 1000


def connect() -> None:
    """Import the module ``periodic`` of all apps, and synchronise their schedules when workers start."""
    autodiscover_modules("periodic")
    signals.on_start.connect(_on_start, dispatch_uid="tasks.declared")
    signals.on_schedule.connect(_on_schedule, dispatch_uid="tasks.declared")
    checks.register(check_functions, "tasks")
    checks.register(check_schedules, "tasks", checks.Tags.database)


def sync() -> None:
    """Create a schedule for each registered function, and stop schedules whose function is gone; safe to repeat.

    An operator's changes stay until the declaration in the code changes. Raises ``ImproperlyConfigured`` if a timetable
    cannot work.
    """
    using = router.db_for_write(Schedule)
    for known in registry.values():
        schedule = _schedule(known)
        if problem := next(iter(schedule.problems().values()), None) or haste_of(schedule.timetable):
            raise ImproperlyConfigured(f"@periodic {known.name}: {problem}")
        for entity in known.entities:
            _declare(using, known, entity)
    _, gone = _by_code(using, removed=False)
    if gone:
        Schedule.objects.using(using).filter(pk__in=list(gone), removed=False).update(removed=True)
        logger.warning("tasks.functions_removed", extra={"names": sorted(set(gone.values()))})


def bring_back(using: str) -> None:
    """Resume schedules that a worker with other code has stopped, if this code has their functions.

    So while old and new code run side by side, a function is called as long as any worker has it.
    """
    back, _ = _by_code(using, removed=True)
    if back:
        Schedule.objects.using(using).filter(pk__in=list(back), removed=True).update(removed=False)
        logger.info("tasks.functions_back", extra={"names": sorted(set(back.values()))})


def _by_code(using: str, *, removed: bool) -> tuple[dict[int, str], dict[int, str]]:
    """Return the schedules of ``@periodic`` functions, names by key: of functions that this code has, and of others."""
    rows = Schedule.objects.using(using).filter(queue=None, declared__isnull=False, removed=removed)
    here, others = dict[int, str](), dict[int, str]()
    for pk, name, entity in rows.values_list("pk", "name", "entity"):
        declared = name in registry and entity in registry[name].entities
        (here if declared else others)[pk] = name
    return here, others


def check_functions(app_configs: object = None, **kwargs: object) -> Iterator[checks.CheckMessage]:
    """Yield tasks.E101 for timetables that cannot work, and tasks.E102 for ticks no further apart than a lease."""
    for known in registry.values():
        yield from _check(_schedule(known), f"@periodic {known.name}", checks.Error, "E10")


def check_schedules(
    app_configs: object = None, databases: Sequence[str] | None = None, **kwargs: object
) -> Iterator[checks.CheckMessage]:
    """Yield tasks.W101 and W102 for the same problems of stored schedules, and W103 for functions that are gone."""
    for alias in databases or []:
        # The check may run before the migrations: the table, or a column, is still missing.
        if router.allow_migrate_model(alias, Schedule) and not lack_of(Schedule, alias):
            yield from looked(partial(_check_rows, alias), alias)


def _check_rows(alias: str) -> Iterator[checks.CheckMessage]:
    for row in Schedule.objects.using(alias).filter(enabled=True).order_by("pk")[:CHECKED]:
        yield from _check_row(row)


HINT = (
    "Make ticks further apart, or lower STATOR_TASKS['TICK_LEASE']: after a worker dies, its tick must be repeated "
    "before the next one is due."
)


def _check_row(row: Schedule) -> Iterator[checks.CheckMessage]:
    yield from _check(row, f"Schedule {row.pk} ({row})", checks.Warning, "W10")
    if row.removed:
        yield checks.Warning(
            f"Schedule {row.pk} ({row}) is paused: the code no longer has this periodic function.",
            hint="Delete the schedule, or register the function under this name again.",
            id="tasks.W103",
        )


def _check(
    row: Schedule, what: str, kind: Callable[..., checks.CheckMessage], group: str
) -> Iterator[checks.CheckMessage]:
    problems = row.problems()
    for problem in problems.values():
        yield kind(f"{what}: {problem}.", id=f"tasks.{group}1")
    if not problems and (haste := haste_of(row.timetable)):
        yield kind(f"{what}: {haste}.", hint=HINT, id=f"tasks.{group}2")


def _schedule(known: Periodic) -> Schedule:
    return Schedule(name=known.name, **known.declared)


def _declare(using: str, known: Periodic, entity: str) -> None:
    """Create the schedule of a function for an entity, or update it where the code has changed."""
    columns = known.declared
    schedule, made = Schedule.objects.using(using).get_or_create(
        name=known.name, entity=entity, defaults={**columns, "declared": columns}
    )
    if made:
        return
    if schedule.queue_id is not None or schedule.declared is None:
        raise ImproperlyConfigured(f"@periodic {known.name}: schedule {schedule.pk} has that name; choose another")
    changed = {} if schedule.declared == columns else {**columns, "declared": columns}
    if changed or schedule.removed:
        # Only if needed, because the update makes workers plan the schedule again.
        rows = Schedule.objects.using(using).filter(pk=schedule.pk)
        rows.update(**changed, removed=False)


def _on_start(sender: object, **kwargs: object) -> None:
    path, served = entered(), getattr(sender, "operations", ())
    # A schema may be without the tables of this app.
    if not path or any(each.scope.path == path and each.model is Schedule for each in served):
        sync()


def _on_schedule(sender: signals.ServingWorker, **kwargs: object) -> None:
    for using in sender.databases_of(Schedule):
        prune_rates(using)
        if registry:
            bring_back(using)
