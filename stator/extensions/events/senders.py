"""Who sends an event."""

from dataclasses import dataclass
from typing import Any, ClassVar


@dataclass(frozen=True, slots=True)
class Sender:
    """The sender of an event that is no user: a program, a token, or nobody, whose ``username`` is empty.

    ``permitted``: it has the permission of the event, as a token has that lists the event.
    """

    username: str = ""
    permitted: bool = False

    is_authenticated: ClassVar[bool] = False
    is_active: ClassVar[bool] = True

    def __str__(self) -> str:
        return self.username

    def get_username(self) -> str:
        """Return the name, as a user of Django does."""
        return self.username

    def has_perm(self, permission: str, obj: object = None) -> bool:
        """Return whether it has the permission of the event that it sends."""
        return self.permitted


def sender_of(by: object) -> Any:
    """Return a user as it is, and anything else as a :class:`Sender`: a token, a text, or None."""
    if hasattr(by, "get_username"):
        return by
    return Sender("" if by is None else str(by))
