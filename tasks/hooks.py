"""The hooks of tasks and schedules: all that the framework asks this app about their rows."""

from stator.models import ModelHooks, register_hooks
from tasks.models import Schedule, Task
from tasks.queue import eligibility, notices, process_eligibility, runs, unserved, versions
from tasks.queue.troubles import troubles as task_troubles
from tasks.schedules.troubles import troubles as schedule_troubles


def connect() -> None:
    """Register them. Worker processes claim the most urgent of the tasks that they may run."""
    register_hooks(Schedule, ModelHooks(troubles=schedule_troubles))
    register_hooks(
        Task,
        ModelHooks(
            claimable=process_eligibility.open_to_process,
            holdable=process_eligibility.may_hold,
            lease_end=eligibility.lease_end_in_process,
            recorded=runs.recorded,
            attempts=runs.attempts,
            reaped=runs.reaped,
            reasons=unserved.reasons,
            notices=notices.notices,
            versions=versions.differences,
            troubles=task_troubles,
        ),
    )
