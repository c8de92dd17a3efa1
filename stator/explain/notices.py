"""Notices: groups of ready objects of a model that no live worker serves, as the model itself finds them."""

from dataclasses import asdict, dataclass
from typing import Any

from django.db.models import Model

from stator.rows.meta import hooks_of, owner_of


@dataclass(frozen=True, slots=True)
class Notice:
    """A group of ready objects, and who serves them.

    ``code``, ``sentence`` and ``remedy`` are those of a reason. ``group``: a name for the objects, such as their queue.
    ``count``: how many were found among those that are first in line; ``more``: there may be more. ``served``: live
    workers do serve them, but no worker process does.
    """

    code: str
    group: str
    count: int
    sentence: str
    remedy: str = ""
    more: bool = False
    served: bool = False

    @property
    def counted(self) -> str:
        """The number of objects as text."""
        return f"{self.count:,}{'+' if self.more else ''}"

    def as_dict(self) -> dict[str, Any]:
        """Return the notice as a dictionary for JSON."""
        return asdict(self)


def notices_of(model: type[Model], using: str) -> list[Notice]:
    """Return the notices of a model in a database; none if it has no such hook."""
    find = hooks_of(owner_of(model)).notices
    return [] if find is None else list(find(using))
