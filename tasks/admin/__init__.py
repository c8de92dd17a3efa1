"""Admin pages for queues, tasks, batches, claims and schedules, and the overview's section on queues."""

from django.contrib import admin

from stator.admin import add_section
from tasks.admin.batches import BatchAdmin
from tasks.admin.overview import section_of_queues
from tasks.admin.queues import QueueAdmin
from tasks.admin.runs import RunAdmin
from tasks.admin.schedules import ScheduleAdmin
from tasks.admin.tasks import TaskAdmin
from tasks.models import Batch, Queue, Run, Schedule, Task

__all__ = ["BatchAdmin", "QueueAdmin", "RunAdmin", "ScheduleAdmin", "TaskAdmin"]

for _model, _model_admin in (
    (Queue, QueueAdmin), (Task, TaskAdmin), (Batch, BatchAdmin), (Run, RunAdmin), (Schedule, ScheduleAdmin),
):  # fmt: skip
    admin.site.register(_model, _model_admin)

add_section(section_of_queues)
