"""The kinds of problems of queues and tasks, beside the framework's kinds for every managed model."""

from stator.models import ProblemKind
from tasks.extensions.problems import queues, starving, unserved_queues, versions
from tasks.extensions.problems.throttles import THROTTLED

TASK = "tasks.task"

KINDS = (
    ProblemKind(
        "unserved",
        remedy="start a worker that serves the queue",
        model=TASK,
        find=unserved_queues.unserved,
        level="error",
        rank=1,
        check="served",
    ),
    ProblemKind(
        "queue_unclaimable",
        remedy="clear one_per_worker, or set actions_elsewhere",
        model=TASK,
        find=queues.unclaimable,
        level="error",
    ),
    ProblemKind(
        "queue_paused",
        remedy="check whether the reason still holds, then resume",
        model=TASK,
        find=queues.paused,
        level="warning",
        signs=queues.with_pause,
    ),
    ProblemKind(
        "starved",
        remedy="start a worker for the other queues, or name fair_by",
        model=TASK,
        find=starving.starved,
        level="warning",
    ),
    ProblemKind(
        "dead_letters",
        remedy="find the cause, then requeue them",
        model=TASK,
        find=queues.dead_letters,
        level="warning",
        signs=queues.dead,
    ),
    THROTTLED,  # tasks.extensions.problems.throttles
    ProblemKind(
        "versions",
        remedy="restart the processes that run the old code",
        model=TASK,
        find=versions.versions,
        level="warning",
    ),
    # Reasons of one task, from ``explaining`` beside it. All but the last three keep the task from its attempt.
    ProblemKind("dead_letter", keeps="dead letters", alarming=True),
    ProblemKind("claim_paused", keeps="in a paused queue"),
    ProblemKind("no_handler", keeps="without a handler", alarming=True),
    ProblemKind("no_named_worker", keeps="without a live worker of those that may run them", alarming=True),
    ProblemKind("action_unserved", keeps="without a live worker that has their action", alarming=True),
    ProblemKind("queue_unserved", keeps="without a live worker that serves their queue", alarming=True),
    ProblemKind("no_eligible_worker", keeps="without a live worker that may have them", alarming=True),
    ProblemKind("named_only"),
    ProblemKind("part"),
    ProblemKind("only_workers"),
)
