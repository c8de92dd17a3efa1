"""Types of what goes to a database and comes from it."""

from collections.abc import Hashable, Sequence
from datetime import datetime
from typing import Any, Protocol, TypeAlias

# A primary key, of any type.
Pk: TypeAlias = Hashable

# A row as the server sent it: its columns differ in type.
Row: TypeAlias = tuple[Any, ...]


# The parameters of a statement, of any type that the driver adapts.
Params: TypeAlias = Sequence[Any]


class Instance(Protocol):
    """An object of a managed model: the attributes that claims use."""

    pk: Any
    state: str
    state_changed: datetime
    state_next_attempt: datetime | None
    state_attempted: datetime
