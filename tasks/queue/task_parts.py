"""What belongs to a task beside its row: nothing, unless an extension puts in its place what has parts of tasks."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, TypedDict, TypeVar

from django.db.models import Model, Q, QuerySet

from stator.models import Action, in_parts
from tasks.rows.tables import Rows, locked
from tasks.rows.tasks import TaskRow

if TYPE_CHECKING:
    from tasks.models import Task

RowsT = TypeVar("RowsT", bound=Rows)


class AuthorAndReason(TypedDict, total=False):
    """Who moves tasks, and why: options of ``move_rows``."""

    actor: str
    reason: str
    action: Action | None


class Note(AuthorAndReason, total=False):
    """The options of ``move_rows`` for tasks that wait again."""

    start_over: bool


class Parts:
    """The parts of tasks. Without an extension, no task has any."""

    # What is said of a maximum of rows, and how the address of a list leaves out parts.
    in_rows = ""
    aside: tuple[tuple[str, str], ...] = ()

    def lock(self, rows: QuerySet[Model]) -> None:
        """Lock tasks and then their parts, each in the order of their keys, until the transaction ends.

        All code that writes both locks them in this order.
        """
        for part in in_parts(rows):
            list(locked(part).order_by("pk").values_list("pk"))

    def open(self, using: str, pks: Sequence[int]) -> list[int]:
        """Return the parts of these tasks that have not ended."""
        return []

    def cancel(self, using: str, pks: Sequence[int], note: AuthorAndReason) -> None:
        """Cancel these parts that have not ended, after their tasks."""

    def refuse(self, task: TaskRow, act: str) -> None:
        """Raise ``MoveRefused`` for a part: people and programs act on its task."""

    def let_wait(self, rows: "QuerySet[Task]", pks: Collection[int], states: tuple[str, ...], note: Note) -> set[int]:
        """Let ended tasks with parts, and their parts in these states, wait again; return which tasks they are."""
        return set()

    def let_parts_wait(self, task: TaskRow, states: tuple[str, ...], note: Note) -> None:
        """Let the parts of a waiting task in these states wait again."""

    def lacking(self, rows: QuerySet[Model], pks: Collection[int]) -> set[int]:
        """Return which of these tasks have lost parts to their retention; nobody deletes any before the end."""
        return set()

    def postponed(self, using: str, dues: Mapping[int, datetime]) -> dict[int, datetime]:
        """Return when the waiting parts of tasks are due, which are due at these times."""
        return {}

    def with_own(self, pk: int) -> Q:
        """Return the condition of a task and its parts."""
        return Q(pk=pk)

    def sizes(self, rows: QuerySet[Model], pks: Sequence[int]) -> dict[int, int]:
        """Return how many rows an act on a task writes, if that is not one."""
        return {}

    def whole_of(self, rows: QuerySet[Model]) -> dict[object, object]:
        """Return by task the task that it is a part of, or itself."""
        return {pk: pk for pk in rows.values_list("pk", flat=True)}

    def of(self, task: TaskRow) -> "Iterable[Task]":
        """Return the parts of a task."""
        return ()

    def with_parts(self, rows: "QuerySet[Task]") -> "QuerySet[Task]":
        """Return tasks that are read together with their parts."""
        return rows

    def with_states(self, rows: RowsT) -> RowsT:
        """Return tasks that are read together with the states of their parts."""
        return rows

    def read_states(self, tasks: "Sequence[Task]") -> None:
        """Read the states of the parts of these tasks, with one query for all."""

    def task_of(self, task: TaskRow) -> int | None:
        """Return the key of the task that this is a part of."""
        return None

    def add(self, tasks: "Sequence[Task]", copied: Sequence[str]) -> None:
        """Insert the parts of new tasks, with these columns of theirs."""

    def resize(self, task: "Task", given: "Task", copied: Sequence[str]) -> None:
        """Change how many parts a waiting task has, if the publisher gave a number."""

    def too_few(self, names: Collection[str], task: TaskRow) -> str:
        """Return what is wrong if fewer workers are named than a task needs; else an empty text."""
        return ""

    def make_due(self, using: str, pks: Sequence[int], delay: float) -> None:
        """Let the parts of waiting tasks start after so many seconds."""

    def status_conditions(self, rows: "QuerySet[Task]", status: str) -> list[Q]:
        """Return the conditions that tasks with parts have this status."""
        return []

    def of_run(self, task: TaskRow) -> Q:
        """Return the condition of the runs of a task, or of its parts."""
        return Q(task=task.pk)

    def rows_of(self, tasks: "Collection[Task]", using: str | None) -> "list[tuple[int, Task]]":
        """Return the parts of tasks with the columns that attempts are counted by, each after the key of its task."""
        return []

    def completed(self, task: "Task") -> "Iterable[Task]":
        """Return the rows of a task that have a result."""
        return (task,) if task.state == "completed" else ()

    def to_delete(self, rows: QuerySet[Model], pks: Sequence[int], most: int) -> tuple[list[int], set[object]]:
        """Return up to so many parts of these tasks, and the tasks that have more."""
        return [], set()


@dataclass(slots=True)
class Kind:
    """What the parts of tasks are."""

    parts: Parts = field(default_factory=Parts)


KIND = Kind()
