"""Publication of tasks that belong to a batch."""

from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

from django.db import transaction

from tasks.exceptions import PublishRefused
from tasks.extensions.batches.models import Batch, BatchGraph
from tasks.queue import publishing
from tasks.queue.publishing import OnExistingKey, Publish, Published

if TYPE_CHECKING:
    from tasks.models import Queue


def joining(batch: Batch | None) -> Publish | None:
    """Return what publishes tasks into a batch; None without a batch."""
    return None if batch is None else partial(publish, batch=batch)


def publish(
    queue: "Queue", given: Iterable[object], on_existing: OnExistingKey, *, batch: Batch, **options: Any
) -> list[Published]:
    """Publish messages like :func:`tasks.queue.publishing.publish`, in a batch.

    A new batch is written with its tasks in one transaction, and then runs. If none of the tasks can exist, it runs
    from the beginning: the transaction has written all that is in it.
    """
    if not isinstance(batch, Batch):
        raise PublishRefused(f"batch={batch!r:.80} is not a tasks.models.Batch; pass Batch() or one that runs")
    messages = list(given)
    all_new = bool(messages) and all(isinstance(each, dict) and each.get("key") is None for each in messages)
    with transaction.atomic(using=queue._state.db):
        is_new = batch.begin(queue, BatchGraph.running if all_new else BatchGraph.filling)
        published = publishing.publish(queue, messages, on_existing, columns={"batch_id": batch.pk}, **options)
        if not (is_new and all_new):
            batch.take(published)
            if is_new:
                batch.close()
    return published
