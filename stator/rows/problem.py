"""A problem: what is wrong with one object or with many, with its numbers and what to do about it."""

from dataclasses import KW_ONLY, asdict, dataclass, field, replace
from shlex import quote
from typing import Any

OK, WARNING, ERROR = "ok", "warning", "error"

# Seconds until the first due object has waited for too long, and until what waits, or what holds it, counts as perhaps
# forgotten.
TOO_LONG, FORGOTTEN = 60.0, 86400.0

# The fields in the JSON of a problem of one object.
OF_ONE = ("code", "sentence", "numbers", "remedy")


# The numbers that tell causes of one kind apart.
OF_CAUSE = ("fingerprint", "states", "awaited", "reason", "group", "queue", "action")


# The numbers in a sentence, by name, for JSON.
Numbers = dict[str, Any]


@dataclass(frozen=True, slots=True)
class AdminAction:
    """What people can do about a problem in the admin: ``action`` on objects in the list of ``model``.

    ``model``: its label in lower case. ``pks``: keys of the objects; none for all objects that the lookups ``query`` of
    the list find. ``action``: the name of an admin action; "" for a link to the list, or to the page of the one object.
    """

    label: str
    model: str
    action: str = ""
    pks: tuple[object, ...] = ()
    query: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Problem:
    """One cause that keeps an object, or many, from moving, or that will do so; durations are in seconds.

    ``code`` does not change.
    ``numbers``: the numbers in the sentence.
    ``remedy``: what to do, in words; empty if nothing has to be done.

    The other fields are for problems of many objects.

    ``level``: ``error`` if objects do not move, ``warning`` if that may happen, ``ok`` if it is only worth a line; by
    default the level of its kind.
    ``where``: the label of the model, or a worker.
    ``detail`` names objects or quotes messages: for users who may see all objects of ``model``, a label in lower case.
    ``since``: how many seconds ago it began.
    ``covers``: the states whose objects wait because of it, so that their waiting is no problem of its own.
    ``command``: the command that fixes the problem or shows more.
    ``schemas``: the schemas of PostgreSQL that have it, the worst first, on a site in many.
    """

    code: str
    sentence: str
    numbers: Numbers = field(default_factory=dict)
    remedy: str = ""
    _: KW_ONLY
    level: str = ""
    where: str = ""
    model: str = ""
    detail: str = ""
    count: int = 0
    more: bool = False
    since: float | None = None
    actions: tuple[AdminAction, ...] = ()
    command: str = ""
    covers: tuple[str, ...] = ()
    schemas: tuple[str, ...] = ()

    def __str__(self) -> str:
        return self.sentence

    @property
    def text(self) -> str:
        """The sentence with its detail, for people who may see all objects."""
        return f"{self.sentence}{f': {self.detail}' if self.detail else ''}"

    def in_schema(self, name: str) -> "Problem":
        """Return the problem as it is for people who work outside of its schema."""
        # One worker serves all schemas.
        is_of_all = not self.command or self.command.startswith("manage.py runstator")
        return replace(
            self, actions=(), command=self.command if is_of_all else f"{self.command} --schema {quote(name)}"
        )

    @property
    def cause(self) -> tuple[object, ...]:
        """What a problem has in common with those in other schemas that have the same cause."""
        return (self.code, self.level, self.where, *(str(self.numbers.get(name, "")) for name in OF_CAUSE))

    def as_dict(self) -> dict[str, object]:
        """Return the problem as a dictionary for JSON: all fields of a problem of many, ``OF_ONE`` of another."""
        values = asdict(self)
        return values if self.where else {name: values[name] for name in OF_ONE}


# The documented name of a problem of one object.
Reason = Problem
