"""The hooks and the condition of tasks: all that the framework asks this app about their rows."""

from stator.db.conditions import add_condition
from stator.models import ModelHooks, add_problem_kind, register_hooks
from tasks.diagnosis.kinds import KINDS
from tasks.models import Queue, Run, Task
from tasks.queue import begun, eligibility, operator_actions, process_eligibility, unserved
from tasks.queue.kept_runs import KeptRuns


def connect() -> None:
    """Register the hooks. Worker processes claim the most urgent of the tasks that they may run."""
    for kind in KINDS:
        add_problem_kind(kind)
    add_condition(process_eligibility.Eligible)
    register_hooks(
        Task,
        ModelHooks(
            lease_end=eligibility.lease_end_in_process,
            max_runtime=eligibility.timeout_in_process,
            effects=(KeptRuns,),
            reaped=begun.reaped,
            stays=operator_actions.stays,
            undone=operator_actions.undone,
            reasons=unserved.reasons,
            fixed=("batch",),
            beside=(Run,),
            everywhere=(Queue,),
        ),
    )
