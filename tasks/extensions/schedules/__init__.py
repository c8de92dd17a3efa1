"""Schedules: tasks and calls at planned times. Begin with ``schedules``; ``ticking`` fires the ticks."""

from stator.seams import Extension

EXTENSION = Extension(
    name="schedules",
    connect=(
        "tasks.extensions.schedules.periodic_sync.connect",
        "tasks.extensions.schedules.problems.late_ticks.connect",
    ),
    kinds=("tasks.extensions.schedules.problems.kinds.KINDS",),
    admin=("tasks.extensions.schedules.tasks_admin",),
)
