"""The rules of a queue, and their validation."""

from dataclasses import dataclass

from django.core.validators import RegexValidator

from stator.graph.backoff import MAX_SECONDS
from stator.models import are_apart, field_of
from stator.texts import text_problem
from tasks.actions.options import MAX_TRIES
from tasks.messages import METADATA_NAME_RULE, UNPRINTABLE, is_metadata_name
from tasks.queue import actions as queue_actions
from tasks.rows.databases import home
from tasks.rows.queues import QueueRow
from tasks.rows.tables import task_model

# Names appear in URLs, logs and terminals.
NAME = RegexValidator(
    r"^\w[\w.:-]{0,99}\Z", "Up to 100 letters, digits, and _ . : - only, beginning with a letter, a digit or _."
)

NAME_LENGTH = 100


@dataclass(frozen=True, slots=True)
class QueueRule:
    """A rule of a queue, as the HTTP API, ``manage.py tasks`` and the admin describe it, and the bounds of a number."""

    says: str
    example: object
    kind: type = float
    least: float = 0
    most: float = MAX_SECONDS

    @property
    def is_number(self) -> bool:
        """Whether it has bounds; a rule that is empty takes the project's setting."""
        return self.kind in (int, float)

    @property
    def bounds(self) -> str:
        """The bounds of a number as text."""
        if self.kind is int:
            return f"whole number from {self.least} to {self.most:,}"
        return f"number of seconds from {self.least:g} to {self.most:.0f}, or empty"


# The largest numbers that every database stores.
RULES = {
    "lease": QueueRule("Seconds that a claim holds without a heartbeat.", 60, least=0.05),
    "timeout": QueueRule("Time limit of an attempt in seconds, heartbeats or not.", None, least=0.05),
    "invisible_for": QueueRule("Seconds until a new task can be claimed.", 0),
    "max_attempts": QueueRule("Claims without success until a task is errored.", 5, int, 1, MAX_TRIES),
    "retention": QueueRule("Seconds for which a task is stored after it has ended.", 604800),
    "failed_retention": QueueRule("Seconds for which an errored task is stored; by default as the others.", 2592000),
    "same_worker_again": QueueRule("Whether a worker may claim a task again that it gave up.", False, bool),
    "worker_retries": QueueRule(
        "Without same_worker_again: how often it may all the same. If empty, a named worker never; a worker process "
        "leaves the task to others first, and then tries it again.", None, int, 0, 32_767,
    ),
    "one_per_worker": QueueRule("Whether a worker may hold only one task at a time.", False, bool),
    "actions_elsewhere": QueueRule("Whether external programs serve it, so that it accepts any action.", True, bool),
    "http_actions": QueueRule("The site's own actions that programs may publish over HTTP.", [], list),
}  # fmt: skip


def queue_name_problem(name: object) -> str:
    """Return why a queue cannot have this name, as one line; empty if it can: it is stored, and part of addresses."""
    if not isinstance(name, str):
        return f"the name of a queue must be a text, not {name!r:.80}"
    if not name:
        return "the name of a queue is empty; give it 1 to 100 characters"
    if len(name) > NAME_LENGTH:
        return f"the name of queue {name[:20]!r}... has {len(name):,} characters; the most is {NAME_LENGTH}"
    if wrong := text_problem(name):
        return f"the name of queue {name!r} {wrong}"
    if UNPRINTABLE.search(name):
        return f"the name of queue {name!r} has a character that cannot be printed, such as a line break"
    if "/" in name or name in (".", ".."):
        return f"queue {name!r} would have no address over HTTP; use a name without /, and not . or .."
    return ""


def problems(queue: QueueRow) -> dict[str, str]:
    """Return one sentence for each rule that no task could follow."""
    wrong_by_name = {}
    for name, rule in RULES.items():
        if rule.is_number and (value := _number(queue, name)) is not None and not rule.least <= value <= rule.most:
            wrong_by_name[name] = f"must be a {rule.bounds}"
    if "http_actions" in queue.__dict__ and (wrong := queue_actions.problem(queue.http_actions)):
        wrong_by_name["http_actions"] = wrong
    if queue.one_per_worker and not queue.actions_elsewhere and are_apart(task_model(), home()):
        wrong_by_name["one_per_worker"] = (
            "only programs that claim by name obey this over several nodes; then set actions_elsewhere, too"
        )
    if queue.exclusive != bool(queue.exclusive_key):
        wrong_by_name["exclusive_key"] = "an exclusive queue needs a key, and only an exclusive one has one"
    # The key of an existing queue cannot be changed.
    if queue._state.adding and queue.exclusive_key and not is_metadata_name(queue.exclusive_key):
        wrong_by_name["exclusive_key"] = f"it is a name in metadata, so it {METADATA_NAME_RULE}"
    return wrong_by_name


def _number(queue: QueueRow, name: str) -> float | None:
    # A deferred field is not saved, so it is not checked.
    return field_of(type(queue), name).to_python(queue.__dict__.get(name))
