"""The graph of a task.

From publication to its end a task is ``pending``. Whether its status is *invisible* (not due yet), *pending* or
*running* (claimed) is derived from its due time and its claim, so the status cannot contradict them.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from django.db.models import Q

from stator.graph import State, StateGraph

if TYPE_CHECKING:
    from tasks.models import Task


@dataclass(slots=True)
class Attempting:
    """What a worker process does with tasks: ``tasks.worker.attempts`` sets it when the app is ready.

    ``attempt``: run the action of a claimed task, and return the state that it moves to. ``backoff``: the delay in
    seconds after the attempt that has just failed, by the number of failures, in the context of that attempt.
    """

    attempt: Callable[["Task"], Awaitable[str]] | None = None
    backoff: Callable[[int], float] | None = None


ATTEMPTING = Attempting()


def backoff_of_attempt(failures: int) -> float:
    """Return the delay in seconds after the attempt that has just failed."""
    if ATTEMPTING.backoff is None:
        raise RuntimeError("no task can be attempted before the app tasks is ready")
    return ATTEMPTING.backoff(failures)


# When the parts of a task have ended, some without success, or all with it.
FAILED = ~Q(parts__state__in=["pending", "canceled"]) & Q(parts__state="errored")  # tasks.extensions.shared
DONE = ~Q(parts__state__in=["pending", "errored", "canceled"])  # tasks.extensions.shared


class TaskGraph(StateGraph):
    """The graph of all tasks, whether a worker process or an external program runs them.

    A ``shared`` task is run by several workers, each once. Its parts are tasks of their own. It ends when the last part
    ends: completed if all parts are, else errored. The only move by hand is to ``pending``, which lets a waiting or
    running task begin again; in any other state a task counts as done or dead. Workers end tasks. Operators use
    ``cancel()`` and ``requeue()``, which refuse moves that the status does not allow.
    """

    # The number of attempts of each task is limited, so a limit on lost leases (quarantine) would add nothing.
    pending = State(try_interval=60, force_initial=True, backoff=backoff_of_attempt, saves=["result"], quarantine=False)
    shared = State(externally_progressed=True, enter_by_hand=False, leave_by_hand=False)  # tasks.extensions.shared
    completed = State(enter_by_hand=False, leave_by_hand=False)
    canceled = State(enter_by_hand=False, leave_by_hand=False)
    errored = State(enter_by_hand=False, leave_by_hand=False)

    pending.transitions_to(completed, canceled, errored)
    pending.fails_to(errored)
    # No handler takes this edge, because shared tasks are published as such. It only keeps the graph connected.
    pending.transitions_to(shared)  # tasks.extensions.shared
    # :mod:`tasks.extensions.shared.settling` makes these moves as soon as a part ends. If its process dies first, these
    # rules make them.
    shared.when(Q(parts__state="canceled")).to(canceled)  # tasks.extensions.shared
    shared.when(FAILED).to(errored)  # tasks.extensions.shared
    shared.when(DONE).to(completed)  # tasks.extensions.shared

    @classmethod
    async def handle_pending(cls, task: "Task") -> str:
        """Run the task's action in this worker."""
        if ATTEMPTING.attempt is None:
            raise RuntimeError("no task can be attempted before the app tasks is ready")
        return await ATTEMPTING.attempt(task)
