"""Steps in the admin: their list, and their entries in the history of an object."""

from collections.abc import Iterator

from django.contrib import admin

from stator.admin.read_only import OfObjectAdmin
from stator.admin.timeline import TimelineEvent, add_entries
from stator.extensions.steps.models import Step
from stator.models import StatorModel, home_of, records_of, worker_of


@admin.register(Step)
class StepAdmin(OfObjectAdmin):
    """Durable steps of attempts, with their results."""

    list_display = ("at", "model_label", "of_object", "state", "name", "attempt")
    list_filter = ("name", "at")
    search_fields = ("=model_label", "=object_pk", "=name")
    ordering = ("-pk",)


def _entries(row: StatorModel, most: int) -> Iterator[tuple[str, TimelineEvent]]:
    steps = records_of(Step, type(row), row.pk, home_of(row)).defer("result")
    for step in steps.order_by("-at", "-pk")[:most]:
        said = f"Step {step.name} done in {step.state}"
        yield worker_of(step.claim), TimelineEvent("step", step.at, said, details=f"attempt {step.attempt}")


add_entries(_entries)
