"""Troubles: what stands still or needs people, one value for each cause, with its numbers and its remedy."""

from dataclasses import asdict, dataclass, field
from typing import Any

from django.db.models import Model

from stator.rows.meta import hooks_of, owner_of

ERROR, WARNING = "error", "warning"


@dataclass(frozen=True, slots=True)
class Remedy:
    """What people can do about a trouble in the admin: ``action`` on objects in the list of ``model``.

    ``model``: its label in lower case. ``pks``: keys of the objects; none for all that the lookups ``query`` of the
    list find. ``action``: the name of an admin action; "" for a link to the list.
    """

    label: str
    model: str
    action: str = ""
    pks: tuple[Any, ...] = ()
    query: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Trouble:
    """One cause that keeps objects from moving, or that will.

    ``code`` does not change. ``level``: ``error`` if something stands still, ``warning`` if it may. ``where``: the
    label of the model, or a worker. ``detail`` names objects or quotes messages: for users who may see all objects of
    ``model``, a label in lower case. ``since``: for how many seconds. ``covers``: the states of ``model`` in which
    objects wait because of it, so that their waiting is no trouble of its own. ``advice``: what to do, in words;
    ``command``: the command that does it or shows more.
    """

    code: str
    level: str
    where: str
    sentence: str
    model: str = ""
    detail: str = ""
    count: int = 0
    more: bool = False
    since: float | None = None
    numbers: dict[str, Any] = field(default_factory=dict)
    remedies: tuple[Remedy, ...] = ()
    advice: str = ""
    command: str = ""
    covers: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """The sentence with its detail, for people who may see all objects."""
        return f"{self.sentence}{f': {self.detail}' if self.detail else ''}"

    def as_dict(self) -> dict[str, Any]:
        """Return the trouble as a dictionary for JSON."""
        return asdict(self)


def own_troubles(model: type[Model], using: str) -> list[Trouble]:
    """Return the troubles that a model finds itself in a database; none if it has no such hook."""
    find = hooks_of(owner_of(model)).troubles
    return [] if find is None else list(find(using))
