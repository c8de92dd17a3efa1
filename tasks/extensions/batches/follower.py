"""Which tasks no undo moves back because of their batch."""

from collections.abc import Mapping

from django.db.models import Model, QuerySet

from tasks.extensions.batches.models import Batch
from tasks.queue.follower import TaskFollower
from tasks.queue.task_parts import KIND
from tasks.rows.tables import locked, task_rows


class OfBatches(TaskFollower):
    """Canceled tasks of an ended batch stay: it has published its action, and would have a task that is done later."""

    def staying(self, rows: QuerySet[Model]) -> Mapping[object, str]:
        whole = KIND.parts.whole_of(rows.filter(state="canceled"))
        own = task_rows(rows.db).filter(pk__in=set(whole.values()), batch__isnull=False).order_by()
        batches: dict[object, object] = dict(own.values_list("pk", "batch"))
        every: QuerySet[Batch] = QuerySet(Batch, using=rows.db)
        taken = locked(every.filter(pk__in=set(batches.values())).order_by("pk"))
        states = dict(taken.values_list("pk", "state")) if batches else {}
        ended = {pk: state for pk, state in states.items() if state in ("ending", "done", "canceled")}
        by_task = {pk: batches.get(of) for pk, of in whole.items()}
        return {pk: f"is in batch {batch}, which is {ended[batch]}" for pk, batch in by_task.items() if batch in ended}
