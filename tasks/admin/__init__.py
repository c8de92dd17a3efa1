"""Admin pages for queues, tasks, batches and claims, and the overview's section on queues."""

from django.contrib import admin

from stator.admin import add_section
from tasks.admin import batches  # noqa: F401 - registers tasks.extensions.batches
from tasks.admin.overview import section_of_queues
from tasks.admin.queues import QueueAdmin
from tasks.admin.runs import RunAdmin
from tasks.admin.tasks import TaskAdmin
from tasks.models import Queue, Run, Task

__all__ = ["QueueAdmin", "RunAdmin", "TaskAdmin"]

for _model, _model_admin in (
    (Queue, QueueAdmin), (Task, TaskAdmin), (Run, RunAdmin),
):  # fmt: skip
    admin.site.register(_model, _model_admin)

add_section(section_of_queues)
