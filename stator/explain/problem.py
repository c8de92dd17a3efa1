"""A problem: what is wrong with one object or with many, with its numbers and what to do about it."""

from dataclasses import KW_ONLY, asdict, dataclass, field
from typing import Any

OK, WARNING, ERROR = "ok", "warning", "error"

# The fields in the JSON of a problem of one object.
OF_ONE = ("code", "sentence", "numbers", "remedy")


@dataclass(frozen=True, slots=True)
class AdminAction:
    """What people can do about a problem in the admin: ``action`` on objects in the list of ``model``.

    ``model``: its label in lower case. ``pks``: keys of the objects; none for all objects that the lookups ``query`` of
    the list find. ``action``: the name of an admin action; "" for a link to the list.
    """

    label: str
    model: str
    action: str = ""
    pks: tuple[Any, ...] = ()
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
    """

    code: str
    sentence: str
    numbers: dict[str, Any] = field(default_factory=dict)
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

    def __str__(self) -> str:
        return self.sentence

    @property
    def text(self) -> str:
        """The sentence with its detail, for people who may see all objects."""
        return f"{self.sentence}{f': {self.detail}' if self.detail else ''}"

    def as_dict(self) -> dict[str, Any]:
        """Return the problem as a dictionary for JSON: all fields of a problem of many, ``OF_ONE`` of another."""
        values = asdict(self)
        return values if self.where else {name: values[name] for name in OF_ONE}
