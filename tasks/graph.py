"""The life of a task.

Four states are stored. Between publishing and the end a task is ``pending``; whether that means *invisible* (not due
yet), *pending* or *running* (claimed) follows from its due time and its claim, so it can never contradict them.
"""

from typing import Any

from django.db.models import Q

from stator.graph import State, StateGraph
from tasks.actions import attempt, backoff_of_attempt


class TaskGraph(StateGraph):
    """Of every task, whoever runs it.

    ``shared`` is a task that several workers are to run, each once: its parts are tasks of their own, and it ends with
    them. Nobody can move a task to these states by hand, where it would count as done or dead: workers end tasks, and
    people have ``cancel()`` and ``requeue()``, which refuse what the table of statuses does not allow.
    """

    # Attempts are limited by each task's own number: how many leases were lost says nothing more.
    pending = State(try_interval=60, force_initial=True, backoff=backoff_of_attempt, saves=["result"], quarantine=False)
    shared = State(externally_progressed=True, enter_by_hand=False)
    completed = State(enter_by_hand=False)
    canceled = State(enter_by_hand=False)
    errored = State(enter_by_hand=False)

    pending.transitions_to(completed, canceled, errored)
    pending.fails_to(errored)
    # No handler goes there: tasks for several workers are published in it. Declared so that the graph is connected.
    pending.transitions_to(shared)
    # Done at once when a part ends, by tasks.settling; and here should its process die between.
    shared.when(Q(parts__state="errored")).to(errored)
    shared.when(Q(parts__state="canceled")).to(canceled)
    shared.when(~Q(parts__state__in=["pending", "errored", "canceled"])).to(completed)

    @classmethod
    async def handle_pending(cls, task: Any) -> Any:
        """Run the task's action in this worker."""
        return await attempt(task)
