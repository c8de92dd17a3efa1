"""Dead letters of one queue by the place of their error, for its page."""

from dataclasses import dataclass, field

from tasks.models import Queue, Task
from tasks.queue.latest_errors import TaskFailure, errors_of

# Dead letters that are read, the latest first. Dead letters with one error are requeued together.
READ = 200

# The most dead letters, of all queues, that are searched for one queue's.
MAX_SEARCHED = 10_000


@dataclass(slots=True)
class DeadGroup:
    """Dead letters with errors of one place; ``latest`` is the error of the latest one."""

    latest: TaskFailure
    pks: list[int] = field(default_factory=list)


def dead_by_error(queue: Queue) -> list[DeadGroup]:
    """Return a queue's latest dead letters by the place of their last error, most first; three statements."""
    using = str(queue._state.db)
    # The framework's index of resting rows lacks the queue, so this reads the latest dead letters of all queues.
    dead = Task.objects.using(using).dead_letters()
    latest = dead.order_by("-state_next_attempt", "-state_changed").values_list("pk", "queue")[:MAX_SEARCHED]
    pks = [pk for pk, of in latest if of == queue.pk][:READ]
    errors, groups = errors_of(pks, using), dict[str, DeadGroup]()
    for pk in pks:
        error = errors.get(pk, TaskFailure("no error is stored"))
        groups.setdefault(error.group, DeadGroup(error)).pks.append(pk)
    return sorted(groups.values(), key=lambda group: -len(group.pks))
