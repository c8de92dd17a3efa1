"""The parts of shared tasks, in acts of people and publishers."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, cast

from django.db.models import Count, Exists, Model, OuterRef, Prefetch, Q, QuerySet, prefetch_related_objects

from stator.models import Now, in_parts, make_due, move_rows
from tasks.exceptions import MoveRefused, PublishRefused
from tasks.queue.task_parts import AuthorAndReason, Note, Parts, RowsT
from tasks.rows.clock import Later
from tasks.rows.tables import locked, task_rows
from tasks.rows.tasks import TaskRow

if TYPE_CHECKING:
    from tasks.models import Task


# Rows of one statement.
BATCH = 500

# The status of a shared task is derived from these columns of its parts.
STATES = ("whole", "state", "state_claim", "state_ready", "state_next_attempt")

# Attempts of parts are counted from these columns.
COUNTED = ("whole", "worker_count", "state", "state_version", "state_attempts")


class SharedParts(Parts):
    """The parts of shared tasks. A worker locks the parts that it claims or ends, and no shared task."""

    in_rows = " (worker_count=n is n + 1 rows)"
    aside = (("whole__isnull", "True"),)

    def lock(self, rows: QuerySet[Model]) -> None:
        shared = []
        for part in in_parts(rows):
            each = locked(part).order_by("pk").values_list("pk", "worker_count")
            shared += [pk for pk, workers in each if workers > 1]
        for part in in_parts(task_rows(rows.db).filter(whole__in=shared)) if shared else ():
            list(locked(part).order_by("pk").values_list("pk"))

    def open(self, using: str, pks: Sequence[int]) -> list[int]:
        return list(task_rows(using).filter(whole__in=pks, state="pending").values_list("pk", flat=True))

    def cancel(self, using: str, pks: Sequence[int], note: AuthorAndReason) -> None:
        move_rows(task_rows(using).filter(pk__in=pks, state="pending"), "canceled", **note)

    def refuse(self, task: TaskRow, act: str) -> None:
        if task.whole_id is not None:
            raise MoveRefused(f"task {task.pk} is a part of task {task.whole_id}; {act} that task")

    def let_wait(self, rows: "QuerySet[Task]", pks: Collection[int], states: tuple[str, ...], note: Note) -> set[int]:
        shared = self._workers(rows, pks).keys()
        if shared:
            move_rows(rows.filter(pk__in=shared), "shared", **note)
            move_rows(rows.filter(whole__in=shared, state__in=states), "pending", **note)
        return set(shared)

    def let_parts_wait(self, task: TaskRow, states: tuple[str, ...], note: Note) -> None:
        if task.worker_count > 1:
            parts = task_rows(task._state.db).filter(whole=task.pk, state__in=states)
            move_rows(parts, "pending", **note)

    def lacking(self, rows: QuerySet[Model], pks: Collection[int]) -> set[int]:
        if not (shared := self._workers(rows, pks)):
            return set()
        # The deletion of parts locks these rows too, so none begins after this.
        for part in in_parts(task_rows(rows.db).filter(pk__in=shared)):
            list(part.order_by("pk").select_for_update().values_list("pk"))
        parts = task_rows(rows.db).filter(whole__in=shared).order_by().values_list("whole").annotate(Count("pk"))
        left = dict(parts)
        return {pk for pk, workers in shared.items() if left.get(pk, 0) < workers}

    def postponed(self, using: str, dues: Mapping[int, datetime]) -> dict[int, datetime]:
        parts = task_rows(using).filter(whole__in=dues, state="pending")
        return {pk: dues[whole] for pk, whole in parts.values_list("pk", "whole") if whole is not None}

    def with_own(self, pk: int) -> Q:
        return Q(pk=pk) | Q(whole=pk)

    def sizes(self, rows: QuerySet[Model], pks: Sequence[int]) -> dict[int, int]:
        return self._workers(rows, pks)

    def whole_of(self, rows: QuerySet[Model]) -> dict[object, object]:
        return {pk: pk if whole is None else whole for pk, whole in rows.values_list("pk", "whole")}

    def of(self, task: TaskRow) -> "Iterable[Task]":
        return task.parts.all()

    def with_parts(self, rows: "QuerySet[Task]") -> "QuerySet[Task]":
        return rows.prefetch_related("parts")

    def with_states(self, rows: RowsT) -> RowsT:
        return rows.prefetch_related(_states())

    def read_states(self, tasks: "Sequence[Task]") -> None:
        prefetch_related_objects([task for task in tasks if task.worker_count > 1], _states())

    def task_of(self, task: TaskRow) -> int | None:
        return task.whole_id

    def add(self, tasks: "Sequence[Task]", copied: Sequence[str]) -> None:
        parts = [part for row in tasks if row.worker_count > 1 for part in _parts(row, row.worker_count, copied)]
        if parts:
            task_rows(parts[0].queue._state.db).bulk_create(parts, batch_size=BATCH)

    def resize(self, task: "Task", given: "Task", copied: Sequence[str]) -> None:
        workers = given.worker_count
        if "worker_count" not in given.options or workers == task.worker_count:
            return
        if 1 in (workers, task.worker_count):
            raise PublishRefused(
                f"task {task.pk} has worker_count={task.worker_count}, which cannot become {workers}: "
                "one stays one, and several stay several; cancel the task and publish it under another key"
            )
        parts = list(task.parts.all())
        new = _parts(task, max(0, workers - len(parts)), copied)
        waiting = [part.pk for part in parts if part.state == "pending"]
        surplus = waiting[-(len(parts) - workers) :] if workers < len(parts) else []
        if len(parts) - len(surplus) > workers:
            raise PublishRefused(f"worker_count={workers} is too few for task {task.pk}: more of its parts have ended")
        rows = task_rows(task._state.db)
        rows.filter(pk__in=surplus).delete()
        rows.bulk_create(new, batch_size=BATCH)
        rows.filter(pk=task.pk).update(worker_count=workers)
        task.worker_count = workers
        task.__dict__["_prefetched_objects_cache"] = {"parts": rows.filter(whole=task.pk)}

    def too_few(self, names: Collection[str], task: TaskRow) -> str:
        if not 0 < len(set(names)) < task.worker_count:
            return ""
        return f"task {task.pk} is for {task.worker_count} workers, but worker_ids names fewer; name more or none"

    def make_due(self, using: str, pks: Sequence[int], delay: float) -> None:
        # Nothing attempts a shared task itself; parts that are added to it later start with it.
        task_rows(using).filter(pk__in=pks, state="shared").update(state_next_attempt=Later(delay))
        make_due(task_rows(using).filter(whole__in=pks), delay)

    def status_conditions(self, rows: "QuerySet[Task]", status: str) -> list[Q]:
        parts = task_rows(rows.db).filter(whole=OuterRef("pk"), state="pending")
        held, hidden = Q(state_claim__isnull=False), Q(state_ready=False, state_next_attempt__gt=Now())
        running, waiting = Q(Exists(parts.filter(held))), Q(Exists(parts.filter(~held & ~hidden)))
        # Tested before the subqueries on parts, which would otherwise run for every task.
        shared = Q(state="shared", state_ready=False, state_claim=None)
        return [shared & {"running": running, "pending": ~running & waiting}.get(status, ~running & ~waiting)]

    def of_run(self, task: TaskRow) -> Q:
        return Q(task__whole=task.pk) if task.worker_count > 1 else super().of_run(task)

    def rows_of(self, tasks: "Collection[Task]", using: str | None) -> "list[tuple[int, Task]]":
        # Most answers have no shared tasks, and a query that finds nothing takes its time, too.
        wholes = [task.pk for task in tasks if task.worker_count > 1]
        parts = task_rows(using).filter(whole__in=wholes).only(*COUNTED) if wholes else ()
        return [(cast("int", part.whole_id), part) for part in parts]

    def completed(self, task: "Task") -> "Iterable[Task]":
        if task.worker_count == 1:
            return super().completed(task)
        return task.parts.filter(state="completed").order_by("pk")

    def to_delete(self, rows: QuerySet[Model], pks: Sequence[int], most: int) -> tuple[list[int], set[object]]:
        of_these = rows.filter(whole__in=pks)
        parts = list(of_these.order_by("whole").values_list("pk", flat=True)[:most])
        others = of_these.exclude(pk__in=parts).values_list("whole", flat=True).distinct()
        return parts, set(others if len(parts) == most else ())

    def _workers(self, rows: QuerySet[Model], pks: Collection[int]) -> dict[int, int]:
        """Return the workers of the shared tasks among these."""
        shared = task_rows(rows.db).filter(pk__in=pks, worker_count__gt=1).order_by()
        return dict(shared.values_list("pk", "worker_count")) if pks else {}


def _states() -> "Prefetch[str, QuerySet[Task], str]":
    """Return a new prefetch of the parts. Not a constant: Django records the database in the object."""
    return Prefetch("parts", task_rows().only(*STATES).order_by("pk"))


def _parts(whole: "Task", count: int, copied: Sequence[str]) -> "list[Task]":
    """Return ``count`` new parts of a shared task, each for one worker."""
    own = {name: getattr(whole, name) for name in (*copied, "shard")}
    times = {name: getattr(whole, name) for name in ("state_next_attempt", "created", "state_changed")}
    # The shared task itself is never ready.
    is_due = whole.state_next_attempt is None
    return [type(whole)(queue=whole.queue, whole=whole, state_ready=is_due, **own, **times) for _ in range(count)]
