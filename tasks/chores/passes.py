"""What follows moves of tasks after their commit, and chores in the passes of workers; extensions add theirs.

What follows is done right after the commit of each move, whoever made it. If the process dies before, a pass makes up
for it.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import NamedTuple

from stator import signals
from stator.scopes import entered
from stator.signals import Move
from tasks.chores.retention import prune
from tasks.extensions.stats.samples import sample
from tasks.models import Task
from tasks.rows.databases import home

# Keys per statement.
BATCH = 500

# Stands for a key that an instance was read without.
UNREAD = object()


class TaskMoves(NamedTuple):
    """Up to 500 moves of tasks to one state, and the instances of the tasks, as far as the process has them."""

    moves: list[Move]
    instances: Mapping[object, object]

    def pks(self, key: str = "", source: str = "") -> list[object]:
        """Return the tasks that moved, from one state if it is given, without those known to have no ``key``."""
        return [
            move.pk
            for move in self.moves
            if source in ("", move.source) and (not key or self._of(move.pk).get(key, UNREAD) is not None)
        ]

    def _of(self, pk: object) -> dict[str, object]:
        return vars(self.instances[pk]) if pk in self.instances else {}


# What follows when tasks have entered a state, with the database; and the chores of each database.
FOLLOWS = defaultdict[str, list[Callable[[str, TaskMoves], object]]](list)
CHORES: list[Callable[[str], object]] = []


def connect() -> None:
    """Connect the receivers for moves of tasks, and for the scheduling pass of workers."""
    signals.transitioned.connect(_on_moves, sender=Task, dispatch_uid="tasks.settling")
    signals.on_schedule.connect(_on_schedule, dispatch_uid="tasks.settling")


def _on_moves(
    sender: object, moves: list[Move], using: str, instances: Mapping[object, object] | None = None, **kwargs: object
) -> None:
    by_target: dict[str, list[Move]] = defaultdict(list)
    for move in moves:
        by_target[move.to].append(move)
    for to, each in by_target.items():
        for start in range(0, len(each), BATCH):
            moved = TaskMoves(each[start : start + BATCH], instances or {})
            for follow in FOLLOWS.get(to, ()):
                follow(using, moved)


def _on_schedule(sender: signals.ServingWorker, **kwargs: object) -> None:
    # Even a worker that serves no tasks does these chores, where queues are written; a schema may be without tasks.
    for using in sender.databases_of(Task) or [home()] * (not entered()):
        Task.objects.using(using).end_exhausted()
        for chore in CHORES:
            chore(using)
        prune(using)
        sample(using)  # tasks.extensions.stats
