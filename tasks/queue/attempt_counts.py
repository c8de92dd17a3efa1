"""Attempt counts of ended tasks; the count in a task's own row is reset when it ends."""

from typing import Any

from django.db.models import Count, F, QuerySet

from stator.models import History
from tasks.querysets import TERMINAL


def attempts_of(ended: list[Any], using: str | None) -> dict[Any, int]:
    """Return the attempts that tasks had when they ended: from the history, else from their runs."""
    if not ended:
        return {}
    model = type(ended[0])
    runs: QuerySet[Any] = QuerySet(model.runs.rel.related_model, using=using)
    counted = dict(
        runs.filter(task__in=[task.pk for task in ended], version=F("task__state_version") - 1)
        .values_list("task")
        .annotate(Count("pk"))
    )
    moves = History.objects.using(using).filter(
        model_label=model._meta.label_lower, object_pk__in=[str(task.pk) for task in ended], to__in=TERMINAL
    )
    versions = {str(task.pk): task.state_version for task in ended}
    for pk, version, attempts in moves.values_list("object_pk", "version", "attempts"):
        if version == versions[pk] and attempts:
            counted[int(pk)] = attempts
    return counted
